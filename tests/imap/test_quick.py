"""Sections of many messages at once: the same as what is said of each message by itself, and by RFC 3501 §6.4.5."""

import gc
import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imap.verbs import messagesections, quick
from imap.wire import fetch as fetch_items
from mboxlist.names import MailboxName
from store.message.fields import header_fields, picker
from store.partition.messagefiles import MessageFiles
from store.tables.index import take
from tests.support.conversations.scripts import content
from tests.support.stores.stores import deliver

LINES = st.sampled_from([b"From: a", b"from : b", b"FROM\t:c", b"From", b"Fromage: d", b"Subject: e", b" folded",
                         b"\tFrom: f", b"To: From: g", b"X-To: h", b": i", b"no colon", b"From\0: j", b"Cc:", b"\r",
                         b" ", b"From: \xff"])
NAMES = st.lists(st.sampled_from([b"From", b"TO", b"subject", b"X-To", b"Cc", b"", b"no colon", b"a.b", b"(From"]),
                 min_size=1, max_size=3, unique=True)
ENDS = st.sampled_from([b"\r\n", b"\n"])


@settings(deadline=None, max_examples=500)
@given(st.lists(st.tuples(LINES, ENDS), max_size=8), ENDS, NAMES)
def test_fields_are_picked_as_one_by_one(lines, last, names):
    header = b"".join(line + end for line, end in lines)
    end = quick.header_end(header + last + b"From: body\r\n")
    whole = (header + last)[:end]
    assert picker(names)(whole) == header_fields(whole, names)


@pytest.mark.parametrize(("message", "end"), [
    (b"A: b\r\n\r\nx", 8), (b"A: b\n\nx", 6), (b"\r\nx", 2), (b"\nx", 1), (b"A: b\r\n\nx\r\n\r\n", 7),
    (b"A: b\r\n", None), (b"A: b\n\r\nx\n\n", 7), (b"", None), (b"A: b\r\n\r", None)])
def test_a_header_ends_after_the_first_empty_line(message, end):
    assert quick.header_end(message) == end


MESSAGES = [
    content("one"), b"\r\nno header", b"\nbare", b"No: body", b"No: body\r\n", b"Bare: a\nTo: b\n\nbody\n", b"\r\n",
    b"x", b"To: x\r\n" + b"Long: " + b"y" * 900 + b"\r\n" + b"Fold: a\r\n b\r\nTo: c\r\n\r\nbody",
    b"To: z\r\n\r\n" + b"w" * 90_000,
    b"".join(b"Field-%d: %d\r\n" % (at, at) for at in range(1000)) + b"To: late\r\n\r\nbody", b"NUL\0: a\r\n\r\n\0\0",
]
ITEMS = [b"BODY.PEEK[]", b"BODY.PEEK[HEADER]", b"BODY.PEEK[TEXT]", b"BODY.PEEK[HEADER.FIELDS (TO FOLD)]",
         b"BODY.PEEK[HEADER.FIELDS.NOT (TO FOLD)]", b"BODY.PEEK[]<5.10>", b"BODY.PEEK[TEXT]<0.3>",
         b"BODY.PEEK[]<70000.30>", b"BODY.PEEK[HEADER.FIELDS (TO)]<4.9000>", b"RFC822.HEADER", b"BODY.PEEK[1]"]
FORMS = [*ITEMS, *(b"(UID %b FLAGS %b)" % pair for pair in itertools.pairwise(ITEMS)), b"RFC822",
         b"(BODY[TEXT] FLAGS)"]
DONE = b"c OK FETCH completed\r\n"
FIGURES = [b"FLAGS", b"UID", b"INTERNALDATE", b"RFC822.SIZE", b"MODSEQ", b"ENVELOPE", b"BODY", b"BODYSTRUCTURE"]


def test_what_is_said_of_one_message_is_what_is_said_of_it_among_others(place):
    """Each item that index and cache know, and all pairs; for messages with keywords, new and old ones."""
    for at, data in enumerate(MESSAGES[:6]):
        place.deliver("INBOX", data)
        if at == 2:
            other = place.connect()
            other.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\nc STORE 2:3 +FLAGS (Work $Junk \\Seen)\r\n"
                       b"d STORE 1 FLAGS (\\Draft)\r\n")
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\na ENABLE CONDSTORE\r\nb SELECT INBOX\r\n")
    assert b"* 3 RECENT" in wire.received()
    for names in itertools.chain(itertools.permutations(FIGURES, 1), itertools.permutations(FIGURES, 2)):
        form = b"(" + b" ".join(names) + b")"
        wire.send(b"c FETCH 1:* %b\r\n" % form)
        together = wire.received()
        assert together.count(b" FETCH (" + names[0]) == 6 and together.endswith(DONE)
        for number in range(1, 7):
            wire.send(b"c FETCH %d %b\r\n" % (number, form))
        assert wire.received().replace(DONE, b"") == together.replace(DONE, b"")


def test_the_quick_way_says_what_the_other_says(place, faults):
    """Every section of many odd messages, and of a later delivery of each, whose trace fields are beside the file; the
    expected side is the way that reads message after message. So does a FETCH of each message by itself."""
    for data in MESSAGES:
        place.deliver("INBOX", data)
    for data in MESSAGES:
        deliver(place.store, data, "user/alice/INBOX", trace=b"Return-Path: <a@example.org>\r\nReceived: again\r\n")
    assert (place.store.open_mailbox(place.entry("INBOX")).rows["head"] != 0).sum() == len(MESSAGES)
    answers = []
    for way in ("quick", "one by one", "slow"):
        if way == "slow":
            faults.around(quick.Quick, "of", lambda *_: None)
            forget_lists()
        wire = place.connect()
        wire.send(b"a LOGIN alice secret\r\nb EXAMINE INBOX\r\n")
        wire.received()
        for form in FORMS:
            for which in range(1, 2 * len(MESSAGES) + 1) if way == "one by one" else ["1:*"]:
                wire.send(b"c FETCH %b %b\r\n" % (str(which).encode(), form))
        answers.append(wire.received())
    forget_lists()
    assert answers[0] == answers[2]
    assert answers[0].replace(DONE, b"") == answers[1].replace(DONE, b"")
    assert answers[0].count(b"c OK FETCH completed\r\n") == len(FORMS)
    assert answers[0].count(b"FETCH (") == 2 * len(FORMS) * len(MESSAGES)
    assert answers[0].count(b"Received: again") > 3 * len(MESSAGES)


def forget_lists():
    """What lists of items come to is remembered."""
    fetch_items._plain_items.cache_clear()
    fetch_items._listing_items.cache_clear()


def test_what_the_octets_are(place):
    """Independent of both ways: the octets of the message that was delivered."""
    for data in MESSAGES:
        place.deliver("INBOX", data)
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb EXAMINE INBOX\r\n")
    wire.received()
    wire.send(b"c FETCH 1:* BODY.PEEK[]\r\n")
    got = wire.received()
    for number, data in enumerate(MESSAGES, 1):
        line, got = re.match(rb"\* %d FETCH \(BODY\[\] \{%d\}\r\n" % (number, len(data)), got), got
        assert line, got[:80]
        got = got[line.end():]
        assert got.startswith(data.replace(b"\0", b"\x80") + b")\r\n")      # RFC 3501 §9 CHAR8
        got = got[len(data) + 3:]
    assert got == b"c OK FETCH completed\r\n"


def test_the_trace_header_of_another_delivery_is_not_told(place):
    """One file for both: the second record passes over what the first one's relay put in front."""
    trace, data = b"Return-Path: <secret@example.org>\r\nReceived: from relay\r\n", content("with a trace")
    deliver(place.store, data, "user/alice/INBOX", trace=trace)
    place.deliver("INBOX", data)
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb EXAMINE INBOX\r\n")
    wire.received()
    wire.send(b"c FETCH 1:2 BODY.PEEK[]\r\nd FETCH 1:2 BODY.PEEK[HEADER.FIELDS (FROM RETURN-PATH)]\r\n")
    field, sender = b"Return-Path: <secret@example.org>\r\n", b"From: bob@example.org\r\n\r\n"
    assert wire.received() == (
        b"* 1 FETCH (BODY[] {%d}\r\n%b)\r\n* 2 FETCH (BODY[] {%d}\r\n%b)\r\nc OK FETCH completed\r\n" % (
            len(trace + data), trace + data, len(data), data)
        + b"* 1 FETCH (BODY[HEADER.FIELDS (FROM RETURN-PATH)] {%d}\r\n%b)\r\n" % (
            len(field + sender), field + sender)
        + b"* 2 FETCH (BODY[HEADER.FIELDS (FROM RETURN-PATH)] {%d}\r\n%b)\r\nd OK FETCH completed\r\n" % (
            len(sender), sender))


def test_many_headers_are_read_in_few_calls(place, faults):
    """Each message file is read once, and no message is answered for by itself."""
    for at in range(120):
        place.deliver("INBOX", content(str(at)))
    read = faults.watch(MessageFiles, "beginning", lambda files, digest, *_: digest)
    faults.forbid(messagesections.MessageSections, "send")
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb EXAMINE INBOX\r\n")
    wire.received()
    wire.send(b"c FETCH 1:* BODY.PEEK[HEADER.FIELDS (SUBJECT X-A)]\r\n")
    got = wire.received()
    assert [got.count(b"Subject: %d\r\n\r\n" % at) for at in range(120)] == [1] * 120
    assert len(read) == len(set(read)) == 120


def test_listed_fields_open_no_file(place, faults):
    """Not even where a message has fields of its own in front, and none of a message whose file is lost."""
    deliver(place.store, content("traced"), "user/alice/INBOX", trace=b"Return-Path: <x@example.org>\r\n")
    place.deliver("INBOX", content("lost"))
    place.lose("INBOX", 2)
    faults.forbid(MessageFiles, "beginning")
    faults.forbid(messagesections.MessageSections, "send")
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb EXAMINE INBOX\r\n")
    wire.received()
    wire.send(b"c FETCH 1:* (BODY.PEEK[HEADER.FIELDS (SUBJECT)] BODY.PEEK[HEADER.FIELDS (Cc subject)]<2.7>)\r\n")
    assert wire.received() == b"".join([
        b"* %d FETCH (BODY[HEADER.FIELDS (SUBJECT)] {%d}\r\nSubject: %b\r\n\r\n"
        b" BODY[HEADER.FIELDS (Cc subject)]<2> {7}\r\nbject: )\r\n" % (number, len(subject) + 13, subject)
        for number, subject in ((1, b"traced"), (2, b"lost"))]) + b"c OK FETCH completed\r\n"


def test_messages_whose_files_are_lost_or_short_are_nil_and_the_others_come(place):
    for subject in ("one", "two", "three"):
        place.deliver("INBOX", content(subject))
    place.lose("INBOX", 2)
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb EXAMINE INBOX\r\n")
    wire.received()
    wire.send(b"c FETCH 1:* BODY.PEEK[HEADER.FIELDS (SUBJECT X-A)]\r\n")
    got = wire.received()
    assert b"* 2 FETCH (BODY[HEADER.FIELDS (SUBJECT X-A)] NIL)\r\n" in got
    assert b"Subject: one\r\n\r\n)\r\n* 2" in got and b"Subject: three\r\n\r\n)\r\nc NO " in got


def test_cache_records_are_those_of_their_messages_in_whatever_order(place):
    """Two connections that fill a mailbox have arrival serials in turn."""
    for at in range(5):
        place.deliver("INBOX", content(str(at)))
    store, entry = place.store, place.store.entry(MailboxName("alice", "INBOX"))
    rows = store.open_mailbox(entry).rows
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [1, 3, 4], [4, 1, 3], [3, 3, 0], [2]):
        some = take(rows, np.array(order))
        assert [one.digest for one in store.cached(entry, some)] == some["digest"].tolist()
        batch = store.cached_batch(entry, some, fields=True)
        assert [b'"%d"' % at in one for at, one in zip(order, batch.envelopes(), strict=True)] == [True] * len(order)


@pytest.mark.parametrize("item", [*ITEMS, b"BODY.PEEK[1.MIME]", b"BINARY.PEEK[1]", b"BODY.PEEK[2]"])
def test_what_a_fetch_has_read_does_not_wait_for_a_search_for_garbage(place, item):
    """The records of a large mailbox are free again as soon as nobody has it selected, so that the next change need not
    copy them."""
    place.patch.setattr("store.partition.recordbuffers.LARGE", 0)
    place.patch.setattr("store.partition.views.LARGE", 0)
    place.deliver("INBOX", content("one"))
    place.deliver("INBOX", MESSAGES[-3])
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\n")
    wire.received()
    gc.collect()
    gc.disable()
    try:
        wire.send(b"b EXAMINE INBOX\r\nc FETCH 1:* %b\r\nd UNSELECT\r\n" % item)
        answer = wire.received()
        shelf = place.store.partitions["primary"].views._shelf
        copies = shelf._copies.get((place.entry("INBOX").id, ""), [])
        assert b"c OK" in answer and b"d OK" in answer and copies and all(copy.free for copy in copies)
    finally:
        gc.enable()
