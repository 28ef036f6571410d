"""ENVELOPE, BODYSTRUCTURE, BODY (RFC 3501 §7.4.2) and the cache record."""

import re
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.message import cacherecord
from store.message.cachedbatch import CachedBatch, CutBatch, listed_of_rows
from store.message.cacherecord import CachedMessage, PartSpan, render
from store.message.fields import MOST, Lister, header_fields
from store.message.headers import header_end
from store.message.mime import Scanner

MID = bytes(range(32))


def cached(message, trace=0):
    scanner = Scanner()
    scanner.feed(message)
    return render(scanner.finish(), MID, trace)


def envelope(header):
    return cached(header + b"\r\n").envelope


# The message of RFC 3501 §8: its header gives this ENVELOPE there.
RFC_HEADER = (
    b"Date: Wed, 17 Jul 1996 02:23:25 -0700 (PDT)\r\nFrom: Terry Gray <gray@cac.washington.edu>\r\n"
    b"Subject: IMAP4rev1 WG mtg summary and minutes\r\nTo: imap@cac.washington.edu\r\n"
    b"cc: minutes@CNRI.Reston.VA.US, John Klensin <KLENSIN@MIT.EDU>\r\n"
    b"Message-Id: <B27397-0100000@cac.washington.edu>\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: TEXT/PLAIN; CHARSET=US-ASCII\r\n")
RFC_ENVELOPE = (
    b'("Wed, 17 Jul 1996 02:23:25 -0700 (PDT)" "IMAP4rev1 WG mtg summary and minutes" '
    b'(("Terry Gray" NIL "gray" "cac.washington.edu")) (("Terry Gray" NIL "gray" "cac.washington.edu")) '
    b'(("Terry Gray" NIL "gray" "cac.washington.edu")) ((NIL NIL "imap" "cac.washington.edu")) '
    b'((NIL NIL "minutes" "CNRI.Reston.VA.US")("John Klensin" NIL "KLENSIN" "MIT.EDU")) NIL NIL '
    b'"<B27397-0100000@cac.washington.edu>")')
PERSON = b'((NIL NIL "a" "b.test"))'


def test_the_example_of_the_rfc():
    found = cached(RFC_HEADER + b"\r\n" + b"line\r\n" * 92)
    assert found.envelope == RFC_ENVELOPE
    assert found.body == b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 552 92)'


@pytest.mark.parametrize(("header", "expected"), [
    (b"", b"(NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL)"),
    (b"Subject:\r\nDate:\r\nMessage-ID: \r\n", b'("" "" NIL NIL NIL NIL NIL NIL NIL "")'),
    # sender and reply-to are those of From where they are missing or empty
    (b"From: a@b.test\r\n", b"(NIL NIL %b %b %b NIL NIL NIL NIL NIL)" % (PERSON, PERSON, PERSON)),
    (b"From: a@b.test\r\nSender:\r\nReply-To: (x)\r\n",
     b"(NIL NIL %b %b %b NIL NIL NIL NIL NIL)" % (PERSON, PERSON, PERSON)),
    (b"From: a@b.test\r\nSender: c@d.test\r\nReply-To: e@f.test\r\n",
     b'(NIL NIL %b ((NIL NIL "c" "d.test")) ((NIL NIL "e" "f.test")) NIL NIL NIL NIL NIL)' % PERSON),
    (b"Sender: a@b.test\r\n", b"(NIL NIL NIL %b NIL NIL NIL NIL NIL NIL)" % PERSON),
    (b"To:\r\nCc: ;\r\nBcc: a@b.test\r\n", b"(NIL NIL NIL NIL NIL NIL NIL %b NIL NIL)" % PERSON),
    # group syntax
    (b"To: friends: a@b.test;\r\nCc: none:;\r\n",
     b'(NIL NIL NIL NIL NIL ((NIL NIL "friends" NIL)(NIL NIL "a" "b.test")(NIL NIL NIL NIL))'
     b' ((NIL NIL "none" NIL)(NIL NIL NIL NIL)) NIL NIL NIL)'),
    (b"To: <@x.test,@y.test:a@b.test>\r\n",
     b'(NIL NIL NIL NIL NIL ((NIL "@x.test,@y.test" "a" "b.test")) NIL NIL NIL NIL)'),
    # quoting and literals
    (b'Subject: say "hi" \\o/\r\n', b'(NIL "say \\"hi\\" \\\\o/" NIL NIL NIL NIL NIL NIL NIL NIL)'),
    (b"Subject: caf\xe9\r\n", b"(NIL {4}\r\ncaf\xe9 NIL NIL NIL NIL NIL NIL NIL NIL)"),
    (b"Subject: a\rb\0\r\n", b"(NIL {3}\r\na\rb NIL NIL NIL NIL NIL NIL NIL NIL)"),
    (b"Subject: a\0b\r\n", b'(NIL "ab" NIL NIL NIL NIL NIL NIL NIL NIL)'),
    (b"Subject: folded\r\n\tin two\r\nIn-Reply-To: <1@x>\r\n <2@x>\r\n",
     b'(NIL "folded\tin two" NIL NIL NIL NIL NIL NIL "<1@x> <2@x>" NIL)'),
    (b"Subject: =?utf-8?q?as_it_stands?=\r\n",
     b'(NIL "=?utf-8?q?as_it_stands?=" NIL NIL NIL NIL NIL NIL NIL NIL)'),
])
def test_envelope(header, expected):
    assert envelope(header) == expected


TWO = (b"Content-Type: multipart/mixed; boundary=b\r\nContent-Language: en\r\n\r\n--b\r\n\r\none\r\n--b\r\n"
       b"Content-Type: application/octet-stream; name=\"a\\\\b\"\r\nContent-Transfer-Encoding: base64\r\n"
       b"Content-ID: <1@x>\r\nContent-Description: what\r\nContent-MD5: m==\r\nContent-Location: there\r\n"
       b"Content-Disposition: attachment; filename=f\r\nContent-Language: en, de\r\n\r\nQUJD\r\n--b--\r\n")


@pytest.mark.parametrize(("message", "structure", "body"), [
    (b"", b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 0 0 NIL NIL NIL NIL)',
     b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 0 0)'),
    (b"Content-Type: text/html; format=flowed\r\nContent-Transfer-Encoding: 8bit\r\n\r\na\nb",
     b'("TEXT" "HTML" ("FORMAT" "flowed" "CHARSET" "US-ASCII") NIL NIL "8BIT" 3 1 NIL NIL NIL NIL)',
     b'("TEXT" "HTML" ("FORMAT" "flowed" "CHARSET" "US-ASCII") NIL NIL "8BIT" 3 1)'),
    (TWO,
     b'(("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 3 0 NIL NIL NIL NIL)'
     b'("APPLICATION" "OCTET-STREAM" ("NAME" "a\\\\b") "<1@x>" "what" "BASE64" 4 "m==" '
     b'("ATTACHMENT" ("FILENAME" "f")) ("en" "de") "there") "MIXED" ("BOUNDARY" "b") NIL ("en") NIL)',
     b'(("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 3 0)'
     b'("APPLICATION" "OCTET-STREAM" ("NAME" "a\\\\b") "<1@x>" "what" "BASE64" 4) "MIXED")'),
    (b"Content-Type: message/rfc822\r\nContent-Disposition: inline\r\n\r\nSubject: in\r\n\r\none\r\ntwo\r\n",
     b'("MESSAGE" "RFC822" NIL NIL NIL "7BIT" 25 (NIL "in" NIL NIL NIL NIL NIL NIL NIL NIL) '
     b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 10 2 NIL NIL NIL NIL) 4 NIL ("INLINE" NIL) NIL NIL)',
     b'("MESSAGE" "RFC822" NIL NIL NIL "7BIT" 25 (NIL "in" NIL NIL NIL NIL NIL NIL NIL NIL) '
     b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 10 2) 4)'),
    # RFC 3501 §9 has no multipart without parts
    (b"Content-Type: multipart/mixed; boundary=b\r\n\r\ntext",
     b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 4 0 NIL NIL NIL NIL)',
     b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 4 0)'),
    (b"Content-Type: image/png; name=\"\xff\"\r\n\r\n",
     b'("IMAGE" "PNG" ("NAME" {1}\r\n\xff) NIL NIL "7BIT" 0 NIL NIL NIL NIL)',
     b'("IMAGE" "PNG" ("NAME" {1}\r\n\xff) NIL NIL "7BIT" 0)'),
])
def test_structure(message, structure, body):
    found = cached(message)
    assert found.bodystructure == structure
    assert found.body == body


# A reader of the wire form, to see that whatever comes out can be read.

TOKEN = re.compile(rb'\(|\)| |NIL|\d+|"((?:[^"\\\r\n\x00\x80-\xff]|\\["\\])*)"|\{(\d+)\}\r\n')


def read(data):
    """The values of a wire form: lists, octets, None, numbers."""
    stack, at = [[]], 0
    while at < len(data):
        found = TOKEN.match(data, at)
        assert found, data[at:at + 40]
        at = found.end()
        if found[0] == b"(":
            stack.append([])
        elif found[0] == b")":
            done = stack.pop()
            stack[-1].append(done)
        elif found[2] is not None:
            stack[-1].append(data[at:at + int(found[2])])
            assert b"\0" not in stack[-1][-1]
            at += int(found[2])
        elif found[0].startswith(b'"'):
            stack[-1].append(re.sub(rb"\\(.)", rb"\1", found[1]))
        elif found[0] != b" ":
            stack[-1].append(None if found[0] == b"NIL" else int(found[0]))
    assert len(stack) == 1
    value, = stack[0]
    return value


def check_body(body):
    """body of RFC 3501 §9: the kinds of values in their places."""
    if isinstance(body[0], list):
        parts = [item for item in body if isinstance(item, list)]
        assert isinstance(body[len(parts)], bytes) and len(body) == len(parts) + 1
        for part in parts:
            check_body(part)
        return
    kind, subtype, params, ident, description, encoding, octets, *rest = body
    assert all(isinstance(item, bytes) for item in (kind, subtype, encoding)) and isinstance(octets, int)
    assert params is None or (len(params) % 2 == 0 and all(isinstance(item, bytes) for item in params))
    assert all(item is None or isinstance(item, bytes) for item in (ident, description))
    if (kind, subtype) == (b"MESSAGE", b"RFC822"):
        inner_envelope, inner, lines = rest
        assert len(inner_envelope) == 10 and isinstance(lines, int)
        check_body(inner)
    elif kind == b"TEXT":
        assert isinstance(rest[0], int) and len(rest) == 1
    else:
        assert rest == []


JUNK = st.lists(st.sampled_from([
    b"Content-Type: ", b"multipart/mixed", b"message/rfc822", b"text/plain", b"; boundary=b", b"\r\n", b"\r\n", b"\n",
    b"\r", b"--b", b"--b--", b"\0", b"\xff", b'"', b"\\", b"(", b")", b"<", b">", b"@", b",", b":", b";", b"To: ", b" ",
    b"From: ", b"Subject: ", b"a@b.test", b"{5}", b"NIL", b"Content-Disposition: ", b"Content-Language: ", b"x=y"]),
    max_size=60).map(b"".join)


@settings(deadline=None)
@given(JUNK)
def test_whatever_comes_the_wire_form_can_be_read(message):
    for text in (message, b"Content-Type: multipart/digest; boundary=b\r\n\r\n--b\r\n" + message):
        found = cached(text)
        fields = read(found.envelope)
        assert len(fields) == 10
        for people in fields[2:8]:
            assert people is None or (people and all(len(person) == 4 for person in people))
        check_body(read(found.body))
        read(found.bodystructure)
        assert CachedMessage.from_bytes(found.data) == found


def test_record():
    found = cached(TWO, trace=77)
    data = found.data
    assert data[:36] == MID + (77).to_bytes(4, "little")        # what other records are checked against comes first
    again = CachedMessage.from_bytes(data)
    assert again == found
    assert (again.digest, again.trace) == (MID, 77)
    assert again.parts == found.parts


NAMES = (b"From", b"Subject"), (b"To", b"Message-ID"), (b"Date", b"From", b"To", b"Message-ID"), (b"X-Label",)


def test_records_of_many_messages_give_what_each_gives():
    fields = (b"From: a\r\n", b"Subject: b\r\n c\r\n", b"To: d\r\n", b"Date: e\r\n", b"Message-ID: f\r\n")
    messages = [b"".join(order) + b"X: y\r\n\r\nbody" for count in range(4) for order in permutations(fields, count)]
    records = [cached(message) for message in (*messages, TWO)]
    digests = np.frombuffer(MID * len(records), "V32")
    lists = [Lister(names) for names in NAMES]
    for batch in (CachedBatch.of([one.data for one in records], digests), CachedBatch.of_records(records)):
        assert batch.envelopes() == [one.envelope for one in records]
        assert batch.bodystructures() == [one.bodystructure for one in records]
        assert batch.bodies() == [one.body for one in records]
        for names, found in zip(NAMES, batch.listed(lists), strict=True):
            assert found == [header_fields(message[:header_end(message)], names) for message in (*messages, TWO)]
    keys = [b"%d" % at for at in range(len(records))]
    rows = list(zip(keys, [one.data for one in records], strict=True))
    for lister, found in zip(lists, batch.listed(lists), strict=True):
        assert listed_of_rows(lister, rows, keys, digests.tolist()) == found
    cut = CutBatch.of_rows(rows, keys, digests.tolist())
    assert (cut.envelopes(), cut.bodystructures(), cut.bodies()) == (
        batch.envelopes(), batch.bodystructures(), batch.bodies())


@pytest.mark.parametrize("damage", [
    lambda good: None, lambda good: b"", lambda good: good[:53], lambda good: good[:200],
    lambda good: bytes(32) + good[32:], lambda good: good[:36] + b"\x01\x00" + good[38:]])
def test_no_records_of_many_messages_when_one_is_damaged_or_of_another(damage):
    good = cached(TWO).data
    digests = np.frombuffer(MID * 3, "V32")
    assert CachedBatch.of([good] * 3, digests) is not None
    assert CachedBatch.of([good, damage(good), good], digests) is None
    assert CachedBatch.of([], digests[:0]).envelopes() == []
    keys, lister, others = [b"1", b"2", b"3"], Lister([b"Subject"]), [(b"1", good), (b"3", good)]
    assert listed_of_rows(lister, [(key, good) for key in keys], keys, digests.tolist()) is not None
    if (bad := damage(good)) is not None:
        assert listed_of_rows(lister, [others[0], (b"2", bad), others[1]], keys, digests.tolist()) is None
        assert CutBatch.of_rows([others[0], (b"2", bad), others[1]], keys, digests.tolist()) is None
    for rows in (others, [*others, others[1]], []):
        assert listed_of_rows(lister, rows, keys, digests.tolist()) is None
        assert CutBatch.of_rows(rows, keys, digests.tolist()) is None


def test_no_listed_fields_of_many_messages_when_one_record_has_none():
    records = [cached(TWO), cached(b"Subject: " + b"x" * (MOST + 1) + b"\r\n\r\n")]
    assert CachedBatch.of_records(records).listed([Lister([b"Subject"])]) is None
    rows, keys = [(b"%d" % at, one.data) for at, one in enumerate(records)], [b"0", b"1"]
    assert listed_of_rows(Lister([b"Subject"]), rows, keys, [MID] * 2) is None


@pytest.mark.parametrize("octets", [0, 10, 53])
def test_a_record_that_is_cut_short(octets):
    with pytest.raises(ValueError, match="cut short"):
        CachedMessage.from_bytes(cached(TWO).data[:octets])
    with pytest.raises(ValueError, match="cut short"):
        CachedMessage.from_bytes(cached(TWO).data[:200])


def test_a_record_of_another_version(monkeypatch):
    data = cached(b"").data
    monkeypatch.setattr(cacherecord, "VERSION", cacherecord.VERSION + 1)
    with pytest.raises(ValueError, match=f"version {cacherecord.VERSION - 1}"):
        CachedMessage.from_bytes(data)


def test_parts():
    parts = cached(TWO).parts
    assert list(parts) == [(), (1,), (2,)]
    one = parts[1,]
    assert TWO[one.body_start:one.end] == b"one"
    assert one == PartSpan(one.header_start, one.header_start + 2, one.header_start + 5)
    assert (parts[2,].type, parts[2,].subtype, parts[2,].encoding) == (b"APPLICATION", b"OCTET-STREAM", b"BASE64")


def test_strings_too_long_for_the_table_are_cut_there():
    found = cached(b"Content-Type: text/plain; charset=" + b"x" * 1000 + b"\r\n\r\n")
    assert found.parts[1,].charset == b"x" * 255
    assert b"x" * 1000 in found.bodystructure
