"""SEARCH TEXT, BODY and HEADER over many messages: RFC 3501 §6.4.4. What is in a message is known, since it was made of
that; nothing here looks at messages in the way the store does."""

import base64
import itertools
import quopri
import unicodedata

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mboxlist.names import MailboxName
from store.mailboxes import copymessages, namespace
from store.mailboxes.copymessages import copy_messages
from store.message import envelopes, mime
from store.partition.messagefiles import MessageFiles
from store.progress import Abandoned, Progress
from store.search import matching, prefilter
from store.search.columns import columns_of
from store.search.mailboxsearch import search
from store.search.searchkeys import And, Body, Header, Keyword, Not, Or, Text, Uids
from store.search.sort import Criterion, SortKey, sort
from store.search.thread import ordered_subject, references
from store.store import Store
from tests.support.stores.slicing import one_by_one
from tests.support.stores.stores import deliver, make_store

INBOX = "user/alice/INBOX"


@pytest.fixture
def store(tmp_path):
    store = make_store(tmp_path / "store")
    yield store
    store.close()


def mailbox(store, path="INBOX"):
    return store.open_mailbox(store.entry(MailboxName("alice", path)))


def found(store, key, progress=None):
    return (np.flatnonzero(search(store, mailbox(store), key, progress=progress)) + 1).tolist()


def folded(text):
    """RFC 5051 §2, a character at a time: simple title case, and all decompositions."""
    out = ""
    for char in text:
        title = char.title()
        out += unicodedata.normalize("NFKD", title if len(title) == 1 else char)
    return out


# A message is made of texts that are known; "e" and "E", "k" and the Kelvin sign, "fi" and its ligature are alike.
WORDS = st.text("aAbeEéÉk\u212aﬁ日 .=?_<", min_size=1, max_size=6).map(str.strip).filter(bool)
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


def encoded_word(text, charset, encoding):
    octets = text.encode(charset, "replace")
    text = octets.decode(charset)
    if encoding == "B":
        return text, b"=?%b?B?%b?=" % (charset.encode(), base64.b64encode(octets))
    return text, b"=?%b?q?%b?=" % (charset.encode(), b"".join(b"=%02X" % octet for octet in octets))


@st.composite
def fields(draw):
    """Fields of a header and their text: words as they are, encoded, and lines that go on."""
    shown, wire = "", b""
    for name in draw(st.lists(st.sampled_from(["Subject", "X-Note", "Comments"]), max_size=3, unique=True)):
        shown, wire = shown + f"{name}: ", wire + name.encode() + b": "
        was_encoded = False
        for number, word in enumerate(draw(st.lists(WORDS, min_size=1, max_size=4))):
            is_encoded = draw(st.booleans())
            if number:
                gap = draw(st.sampled_from([b" ", b"\r\n ", b"\n\t"]))
                shown += "" if is_encoded and was_encoded else gap[-1:].decode()       # RFC 2047 §6.2
                wire += gap
            was_encoded = is_encoded
            if is_encoded:
                word, octets = encoded_word(word, draw(st.sampled_from(["utf-8", "iso-8859-1"])), draw(st.sampled_from(
                    "BQ")))
            else:
                word = word.replace("=", "-")
                octets = word.encode()
            shown, wire = shown + word, wire + octets
        shown, wire = shown + "\n", wire + b"\r\n"
    return shown, wire


@st.composite
def leaves(draw):
    """A body that is text, the fields that say how it is encoded, and what it says."""
    text = "\r\n".join(draw(st.lists(TEXTS, min_size=1, max_size=3)))
    charset = draw(st.sampled_from(["utf-8", "iso-8859-1", "utf-16", "iso-2022-jp", "us-ascii"]))
    octets = text.encode(charset, "replace")
    text = octets.decode(charset)
    encoding = draw(st.sampled_from(["8bit", "base64", "quoted-printable"]))
    if charset == "utf-16":
        encoding = "base64"
    if encoding == "base64":
        octets = base64.encodebytes(octets)
    elif encoding == "quoted-printable":
        octets = quopri.encodestring(octets)
    head = f"Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n"
    return head, octets, text


@st.composite
def messages(draw):
    """A message, the text of its header and the texts of its body."""
    header, wire = draw(fields())
    if draw(st.booleans()):
        head, octets, text = draw(leaves())
        return wire + head.encode() + b"\r\n" + octets, header + head.replace("\r\n", "\n"), [text]
    kind = "Content-Type: multipart/mixed; boundary=cut\r\n"
    body, texts = b"", []
    for head, octets, text in draw(st.lists(leaves(), min_size=1, max_size=3)):
        more, octets_of_more = draw(fields())
        body += b"--cut\r\n" + octets_of_more + head.encode() + b"\r\n" + octets + b"\r\n"
        texts += [more + head.replace("\r\n", "\n"), text]
    return wire + kind.encode() + b"\r\n" + body + b"--cut--\r\n", header + kind.replace("\r\n", "\n"), texts


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(messages(), min_size=1, max_size=6), st.lists(TEXTS, min_size=1, max_size=6), st.data())
def test_what_is_in_a_message_is_found_and_nothing_else(store, made, wanted, data):
    for raw, _, _ in made:
        deliver(store, raw, INBOX)
    box = mailbox(store)
    box = type(box)(box.entry, box.state, box.rows[-len(made):])
    for _, header, texts in made:
        text = data.draw(st.sampled_from([header, *texts]))
        start = data.draw(st.integers(0, max(0, len(text) - 1)))
        wanted.append(text[start:start + data.draw(st.integers(1, 8))])
    for text in filter(None, wanted):
        in_body = [any(folded(text) in folded(one) for one in texts) for _, _, texts in made]
        in_text = [yes or folded(text) in folded(header) for yes, (_, header, _) in zip(in_body, made, strict=True)]
        assert search(store, box, Body(text)).tolist() == in_body, text
        assert search(store, box, Text(text)).tolist() == in_text, text


PLAIN = b"From: a@example.org\r\nSubject: %b\r\n\r\n%b\r\n"
QP = (b"Subject: x\r\nContent-Type: text/plain; charset=utf-8\r\n"
      b"Content-Transfer-Encoding: quoted-printable\r\n\r\n%b\r\n")


def test_most_messages_need_not_be_taken_apart(store, faults):
    for number in range(10):
        deliver(store, PLAIN % (b"=?utf-8?q?M=C3=BCller_%d?=" % number, b"one"), INBOX)
        deliver(store, QP % b"caf=C3=A9 one", INBOX)
    deliver(store, PLAIN % (b"a needle", b"two"), INBOX)
    taken = faults.watch(matching.Message, "__init__", lambda self, store, box, row, *_: int(row["uid"]))
    assert found(store, Text("needle")) == [21]
    assert found(store, Body("CAFE")) == list(range(2, 21, 2))
    assert taken == [21]


def test_cache_records_are_read_once(store, faults):
    for number in range(5):
        deliver(store, PLAIN % (b"%d" % number, b"body"), INBOX)
    seen = []
    faults.before(Store, "cached", lambda store, entry, rows: seen.extend(rows["uid"].tolist()))
    assert found(store, Text("nowhere")) == found(store, Body("neither")) == []
    assert seen == [1, 2, 3, 4, 5]
    seen.clear()
    references(store, mailbox(store), np.arange(5))         # ids, subjects and dates
    sort(store, mailbox(store), np.arange(5), [Criterion(SortKey.DATE), Criterion(SortKey.SUBJECT)])
    assert seen == [1, 2, 3, 4, 5]


def test_a_content_is_read_once_however_often_it_is_there(store, faults):
    deliver(store, PLAIN % (b"x", b"needle"), INBOX)
    deliver(store, PLAIN % (b"y", b"hay"), INBOX)
    entry = mailbox(store).entry
    for _ in range(3):
        copy_messages(store, entry, entry, [1, 2])
    opened = []
    faults.before(MessageFiles, "beginnings", lambda files, digests, *_: opened.extend(digests))
    assert found(store, And((Text("needle"), Uids(((1, 6),))))) == [1, 3, 5]
    assert len(opened) == 2
    assert found(store, Or(Text("needle"), Body("hay"))) == list(range(1, 9))
    assert len(opened) == 4


def test_pages_and_large_messages_make_no_difference(store, monkeypatch):
    for number in range(7):
        text = b"needle" if number % 3 == 0 else b"hay"
        deliver(store, PLAIN % (b"%d" % number, b"x" * 100 * number + b"\r\n" + text), INBOX)
    for page, octets, small in ((2, 1 << 20, 1 << 16), (100, 500, 1 << 16), (100, 1, 1), (3, 1 << 20, 300)):
        monkeypatch.setattr(matching, "PAGE", page)
        monkeypatch.setattr(matching, "OCTETS", octets)
        monkeypatch.setattr(matching, "SMALL", small)
        assert found(store, Body("NEEDLE")) == [1, 4, 7]
        assert found(store, And((Header("subject", "3"), Not(Body("hay"))))) == [4]
        assert found(store, Or(Keyword("never"), Header("from", "EXAMPLE"))) == list(range(1, 8))


@pytest.mark.parametrize(("header", "name", "text", "there"), [
    (b"Subject: a\r\n b\r\n\r\n", b"subject", "A B", True), (b"SUBJECT : x\r\n\r\n", b"subject", "x", True),
    (b"X-Subject: x\r\n\r\n", b"subject", "", False), (b"Subject: x\r\n\r\n", b"subject", "subject", False),
    (b"To: a\r\nSubject:\r\n\r\n", b"subject", "", True), (b"a:b: c\r\n\r\n", b"a:b", "c", False),
    (b"a.c: x\r\nabc: y\r\n\r\n", b"a.c", "y", False), (b"To: a\r\nTo: b\r\n\r\n", b"to", "B", True),
])
def test_fields(header, name, text, there):
    assert matching.has_field(header, name, folded(text)) is there


@pytest.mark.parametrize(("octets", "header"), [
    (b"A: b\r\n\r\nbody\r\n\r\n", b"A: b\r\n\r\n"), (b"A: b\n\nbody", b"A: b\n\n"), (b"\r\nbody", b"\r\n"),
    (b"\nbody\n\n", b"\n"), (b"A: b\r\n", b"A: b\r\n"), (b"", b""), (b"A: b\n\r\nc\n\nd", b"A: b\n\r\n"),
    (b"A: b\n\nc\n\r\nd", b"A: b\n\n"),
])
def test_where_a_header_ends(octets, header):
    assert octets[:matching.header_end(octets)] == header


def test_a_phrase_over_a_folded_line(store):
    deliver(store, b"Subject: one two\r\n three\r\nX: four\n\tfive\r\n\r\nsix\r\n seven\r\n", INBOX)
    for text in ("two three", "FOUR\tFIVE", "one two t"):
        assert found(store, Text(text)) == [1]
    for text in ("six seven", "two  three"):            # no line of a body goes on
        assert found(store, Text(text)) == []


@pytest.mark.parametrize(("raw", "wanted", "there"), [
    (b"Subject: =?utf-8?q?M=C3=BCller?= and Sons\r\n\r\nx", "ller and", True),       # out of an encoded word
    (b"Subject: see =?utf-8?q?M=C3=BCller?=\r\n\r\nx", "see m", True),              # into one
    (b"Subject: a=?utf-8?q?b?=c\r\n\r\nx", "abc", True),                          # over one
    (b"Subject: =?utf-8?q?a?=\r\n =?utf-8?q?b?=\r\n\r\nx", "ab", True), (b"Subject: a\r\n b\r\n\r\nx", "ab", False),
    (b"Content-Type: text/plain; charset=iso-8859-1\r\n\r\ncaf\xe9 x", "CAF\u00c9 X", True),
    (b"Content-Type: text/plain; charset=utf-8\r\n\r\ncaf\xc3\xa9", "cafe", True),
    (b"Content-Type: text/plain; charset=utf-16\r\n\r\n\xff\xfeh\0a\0y\0", "hay", True),
    (b"Content-Type: text/plain; charset=iso-2022-jp\r\n\r\n\x1b$B$\"\x1b(B", "\u3042", True),
    (b"Content-Type: image/png\r\n\r\nhay", "hay", False),
    (b"Content-Transfer-Encoding: base64\r\n\r\naGF5", "hay", True),
    (b"Content-Transfer-Encoding: base64\r\n\r\naGF5", "aGF5", False),
])
def test_where_octets_alone_do_not_tell(store, raw, wanted, there):
    deliver(store, raw, INBOX)
    assert found(store, Text(wanted)) == [1] * there


def test_the_sieve_lets_nothing_through_that_goes_over_line_ends():
    assert not any(prefilter.Prefilter(text).usable for text in ("", " ", "\t", "a\nb", "a\r"))
    assert prefilter.Prefilter("A B").usable


class Patience:
    """Wants the result until it has been asked so many times."""

    def __init__(self, asked):
        self.left = asked

    def __call__(self):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("asked", [0, 1, 2, 3])
def test_what_nobody_waits_for_is_left_off(store, monkeypatch, asked):
    monkeypatch.setattr(matching, "PAGE", 2)
    monkeypatch.setattr("store.search.projection.BATCH", 2)
    for number in range(8):
        deliver(store, PLAIN % (b"%d" % (8 - number), b"body"), INBOX)
    box, every = mailbox(store), np.arange(8)
    for work in (lambda progress: search(store, box, Text("body"), progress=progress),
                 lambda progress: search(store, box, Header("subject", "1"), progress=progress),
                 lambda progress: sort(store, box, every, [Criterion(SortKey.SUBJECT)], progress),
                 lambda progress: sort(store, box, every, [Criterion(SortKey.DATE)], progress),
                 lambda progress: references(store, box, every, progress),
                 lambda progress: ordered_subject(store, box, every, progress)):
        columns_of(store).__init__()
        progress = Progress(Patience(asked))
        with pytest.raises(Abandoned):
            work(progress)
        assert progress.done < 8
    # and what was read until then is as good as any other
    assert (sort(store, box, every, [Criterion(SortKey.SUBJECT)]) + 1).tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert found(store, Text("body")) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_how_far_it_is(store, monkeypatch):
    monkeypatch.setattr(matching, "PAGE", 2)
    for number in range(5):
        deliver(store, PLAIN % (b"%d" % number, b"body"), INBOX)
    steps = []
    progress = Progress(lambda: steps.append((progress.done, progress.total)))
    assert found(store, Text("body"), progress) == [1, 2, 3, 4, 5]
    assert [step for step in steps if step[1]] == [(0, 5), (0, 5), (2, 5), (4, 5)]
    assert (progress.done, progress.total) == (5, 5)


def test_a_copy_that_nobody_waits_for_copies_nothing(store, faults):
    """Of a move each message is in one of the two."""
    faults.around(copymessages, "slices", lambda _, *given: one_by_one(*given))
    for number in range(4):
        deliver(store, PLAIN % (b"%d" % number, b"body"), INBOX)
    source, target = mailbox(store).entry, namespace.create_mailbox(store, MailboxName("alice", "RecordBuffers"))
    for remove in (False, True):
        with pytest.raises(Abandoned):
            copy_messages(store, source, target, [1, 2, 3, 4], remove=remove, progress=Progress(Patience(3)))
        moved = len(mailbox(store, "RecordBuffers").rows)
        assert len(mailbox(store).rows) == 4 - moved and (0 < moved < 4 if remove else not moved)
    new = copy_messages(store, source, target, mailbox(store).rows["uid"], progress=Progress(Patience(100)))
    assert len(mailbox(store, "RecordBuffers").rows) == moved + len(new) == 4


STRINGS = [b"NIL", b'"x"', b'""', b'"NIL NIL)"', b'") (NIL NIL"', b'"a \\" b"', b"{3}\r\n\" )"]


@pytest.mark.parametrize("people", [b"NIL", b'((NIL NIL "a" "b"))', b'(("NIL" NIL "a)" "b")(NIL NIL "c" NIL))'])
def test_the_ends_of_an_envelope(people):
    for date, subject, in_reply_to, message_id in itertools.product(STRINGS, repeat=4):
        envelope = b"(%b %b %b %b %b)" % (date, subject, b" ".join([people] * 6), in_reply_to, message_id)
        shown = tuple([b'"\\" )"' if one[:1] == b"{" else one for one in (date, subject, in_reply_to, message_id)])
        assert envelopes.ends(envelope) == shown


@pytest.mark.parametrize("depth", [1, 40, mime.DEPTH - 1, mime.DEPTH, mime.DEPTH + 1, 200])
def test_what_lies_deeper_than_messages_are_taken_apart(store, depth):
    """It is searched as it stands, without its own encodings. Attachments stay out."""
    multipart = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nX-Tag: field\r\n\r\nneedle\r\n--b--\r\n"
    for inner in (b"Subject: in\r\n\r\nneedle\r\n", multipart,
                  b"Content-Type: application/octet-stream\r\n\r\nneedle\r\n"):
        for _ in range(depth):
            inner = b"Content-Type: message/rfc822\r\n\r\n" + inner
        deliver(store, inner + b"x" * 70_000, INBOX)        # large ones are read in another way
        deliver(store, inner, INBOX)
    attached = [5, 6] if depth >= mime.DEPTH else []        # there it is not seen that it is one
    assert found(store, Body("NEEDLE")) == found(store, Text("needle")) == [1, 2, 3, 4, *attached]
    assert found(store, Body("X-Tag: field")) == [3, 4]


def test_messages_that_are_encoded_are_searched_decoded(store):
    """MESSAGE/GLOBAL may be (RFC 6532 §3.7), and is not taken apart then."""
    inner = base64.encodebytes(b"Subject: in\r\n\r\nneedle\r\n")
    deliver(store, b"Content-Type: message/global\r\nContent-Transfer-Encoding: base64\r\n\r\n" + inner, INBOX)
    assert found(store, Body("needle")) == found(store, Body("Subject: in")) == [1]
