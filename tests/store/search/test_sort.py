"""SORT, and the columns it works on: RFC 5256, RFC 5957."""

import weakref
from datetime import date
from operator import eq, ge, gt, lt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.message import cacherecord, envelopes
from store.message.cacherecord import render
from store.message.mime import Scanner
from store.partition import serials
from store.progress import Progress
from store.search import columns
from store.search.columns import Columns, columns_of
from store.search.mailboxsearch import search
from store.search.searchkeys import And, Body, Envelope, HasFlag, Header, Not, Or, Sent, Size
from store.search.sort import Criterion, SortKey, sort
from store.search.thread import ordered_subject, references
from store.store import Store
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.support.stores.stores import deliver, make_store

INBOX = "user/alice/INBOX"


@pytest.fixture
def store(tmp_path):
    store = make_store(tmp_path / "store")
    yield store
    store.close()


def mailbox(store):
    return store.open_mailbox(store.entry(MailboxName.parse(INBOX)))


def message(store, *fields, at=0):
    text = "\r\n".join(fields) + "\r\n\r\nText\r\n"
    deliver(store, text.encode(), INBOX, received=InternalDate(1_000_000_000 + at, 0))


def order(store, *keys, reverse=False):
    box = mailbox(store)
    return (sort(store, box, np.arange(len(box.rows)), [Criterion(key, reverse) for key in keys]) + 1).tolist()


def found(store, key):
    return (np.flatnonzero(search(store, mailbox(store), key)) + 1).tolist()


def reads(faults):
    """How many cache records are read from now on, one number for each message."""
    seen = []
    faults.before(Store, "cached", lambda store, entry, rows: seen.extend(rows["uid"].tolist()))
    return seen


def test_only_what_is_new_is_read(store, faults):
    for name in ("b", "c", "a"):
        message(store, f"Subject: {name}")
    seen = reads(faults)
    assert order(store, SortKey.SUBJECT) == [3, 1, 2]
    assert seen == [1, 2, 3]
    assert order(store, SortKey.SUBJECT) == [3, 1, 2]
    entry = mailbox(store).entry
    change_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.DELETED))
    message(store, "Subject: B2")
    assert order(store, SortKey.SUBJECT) == [3, 1, 4, 2]
    expunge(store, entry)
    assert order(store, SortKey.SUBJECT) == [2, 3, 1]
    assert found(store, Envelope("subject", "b")) == [3]
    assert seen == [1, 2, 3, 4]


def test_a_search_reads_what_is_left_when_the_index_has_been_asked(store, faults):
    for at in range(5):
        message(store, f"From: u{at}@example.org", f"Subject: s{at}")
    change_flags(store, mailbox(store).entry, [2, 4], FlagAction.ADD, Flags(Flag.FLAGGED))
    seen = reads(faults)
    assert found(store, And((Envelope("from", "U3"), HasFlag(Flag.FLAGGED)))) == [4]
    assert seen == [2, 4]
    assert found(store, And((Envelope("from", "u"), Not(Size(gt, 0))))) == []
    assert found(store, Envelope("from", "EXAMPLE")) == [1, 2, 3, 4, 5]
    assert sorted(seen) == [1, 2, 3, 4, 5]


def test_no_file_is_opened_for_the_envelope(store, faults):
    message(store, "From: a@example.org", "Subject: x", "Date: 1 Jan 2020 00:00:00 +0000")
    faults.forbid(Store, "open_message")
    assert found(store, Envelope("from", "a@")) == [1]
    assert found(store, And((Envelope("subject", "x"), Sent(eq, date(2020, 1, 1)), Not(Envelope("to", ""))))) == [1]
    assert found(store, Or(Sent(lt, date(2020, 1, 1)), Sent(ge, date(2020, 1, 2)))) == []
    assert order(store, SortKey.DATE, SortKey.FROM, SortKey.DISPLAYTO) == [1]
    box = mailbox(store)
    assert references(store, box, np.arange(1)).roots == ordered_subject(store, box, np.arange(1)).roots == [0]


def test_keys_that_need_the_file_are_mixed_with_those_that_do_not(store):
    message(store, "From: a@example.org", "X-One: yes")
    message(store, "From: b@example.org", "X-One: no")
    message(store, "From: a@example.org")
    assert found(store, And((Envelope("from", "a@"), Header("x-one", "YES")))) == [1]
    assert found(store, Or(Envelope("from", "b@"), Header("x-one", "yes"))) == [1, 2]
    assert found(store, And((Not(Envelope("from", "b@")), Body("text")))) == [1, 3]
    assert found(store, Not(Or(Envelope("from", "b@"), Header("x-one", "")))) == [3]


def test_the_same_content_twice(store):
    message(store, "Subject: b")
    message(store, "Subject: a")
    message(store, "Subject: b", at=5)
    assert order(store, SortKey.SUBJECT) == [2, 1, 3]
    assert len(columns_of(store).subjects(mailbox(store))) == 2
    assert order(store, SortKey.SUBJECT, SortKey.ARRIVAL, reverse=True) == [3, 1, 2]
    assert found(store, Envelope("subject", "b")) == [1, 3]


def test_what_cannot_be_read_counts_as_empty_and_is_not_found(store, faults, caplog):
    for name in ("b", "x", "a"):
        message(store, f"Subject: {name}", f"Date: {ord(name) - 96} Jan 2020 00:00:00 +0000")
    faults.fail(Store, "cached", StoreError(Problem.CORRUPT), when=lambda store, entry, rows: 2 in rows["uid"])
    assert order(store, SortKey.SUBJECT) == [2, 3, 1]
    assert order(store, SortKey.DATE) == [2, 3, 1]          # the internal date is of 2001
    assert found(store, Not(Envelope("subject", "b"))) == [3]
    assert "search in" in caplog.text
    faults.mend()
    assert order(store, SortKey.SUBJECT) == [3, 1, 2]       # it is not remembered as empty
    assert found(store, Not(Envelope("subject", "b"))) == [2, 3]


def test_records_of_an_earlier_version_are_made_anew(store, monkeypatch):
    monkeypatch.setattr(cacherecord, "VERSION", 1)
    message(store, "Subject: b", "Message-ID: <1@example.org>")
    message(store, "Subject: a", "References: <1@example.org>", "Message-ID: <2@example.org>")
    monkeypatch.setattr(cacherecord, "VERSION", 2)
    box = mailbox(store)
    assert serials._cached(b"x" * 60) is None
    assert references(store, box, np.arange(2)).children == {0: [1]}
    assert order(store, SortKey.SUBJECT) == [2, 1]


def test_columns_are_bounded(store):
    store.owned.put(Columns, Columns(kept=5, each=0))
    for name in ("b", "a", "c"):
        message(store, f"Subject: {name}")
    assert order(store, SortKey.SUBJECT) == [2, 1, 3]
    assert order(store, SortKey.DATE) == [1, 2, 3]
    assert order(store, SortKey.SUBJECT, SortKey.DATE) == [2, 1, 3]
    held = Columns()
    box = mailbox(store)
    first = held.dates(box)
    first.places(store, box.entry, box.rows)
    held.subjects(box).places(store, box.entry, box.rows)
    assert held.dates(box) is first         # it is the last one used; the next to be asked for pushes the other out
    held.ids(box)
    assert held.dates(box) is first


def test_strings_that_cannot_be_converted_come_last_octet_by_octet(store):
    """The example of RFC 5255 §4.6: (4) (2) (3) (1), of which (1) and (3) are not in the charset that they name."""
    strings = (("utf-8", "D0C0D0BDD0B4D180D0B5D0B9"), ("utf-8", "D181D095D0A0D093D095D099"),
               ("utf-8", "D092D0B0D181D0B8D0BBD0B8FFB9"), ("KOI8-R", "E1CCC5CBD3C5CA"))
    for charset, digits in strings:
        word = f"=?{charset}?Q?{''.join(f'={octet:02X}' for octet in bytes.fromhex(digits))}?="
        message(store, f"Subject: {word}", f"From: {word} <{word}@example.org>", f"To: {word} <a@example.org>")
    wanted = [4, 2, 3, 1]
    assert order(store, SortKey.SUBJECT) == order(store, SortKey.DISPLAYFROM) == order(store, SortKey.FROM) == wanted
    assert order(store, SortKey.DISPLAYTO) == wanted
    message(store, "Subject: [list] Re: =?x-none?Q?b?=")
    message(store, "Subject: =?x-none?Q?a?= =?x-none?Q?=D0?=")
    message(store, "Subject: =?utf-8?Q?=F0=90=80=80?=")
    message(store, "X-No-Subject: x")
    message(store, "Subject: =?x-none?Q??=")
    message(store, "Subject: =?x-none?Q?B?= (fwd)")
    message(store, "Subject: =?us-ascii?Q?A?= x")
    assert order(store, SortKey.SUBJECT) == [8, 9, 11, 4, 2, 7, 10, 6, 5, 3, 1]
    box = mailbox(store)
    assert ordered_subject(store, box, np.arange(4, 6)).roots == [0, 1]


def test_threads_of_subjects_that_cannot_be_converted(store):
    """They are equal octet by octet; what is removed from them is known all the same."""
    for at, subject in enumerate(("=?x-none?Q?caf=E9?=", "Re: =?x-none?Q?caf=E9?=", "Re: =?x-none?Q?Caf=E9?=")):
        message(store, f"Subject: {subject}", at=at)
    threads = references(store, mailbox(store), np.arange(3))
    assert threads.roots == [0, 2] and threads.children == {0: [1]}


@pytest.mark.parametrize(("own", "field", "linked"), [
    ("<1@example.org>", "References: <1@example.org>", True), ("<1@example.org>", "References: <1@EXAMPLE.org>", False),
    # the same id, quoted in other ways (RFC 5256 §3)
    ('<"1"@example.org>', "References: <1@example.org>", True),
    ('<"1"@example.org>', 'References: <"\\1"@example.org>', True),
    ('<"a\\"b"@example.org>', 'References: <"a\\"\\b"@example.org>', True),
    ('<"a\\"b"@example.org>', "References: <ab@example.org>", False),
    # the first valid id of In-Reply-To, when there is none in References
    ("<1@example.org>", "In-Reply-To: Your message of <Monday> <1@example.org> <2@example.org>", True),
    ("<1@example.org>", "References: <x> <>\r\nIn-Reply-To: <1@example.org>", True),
    ("<1@example.org>", "References: <2@example.org>\r\nIn-Reply-To: <1@example.org>", False),
    ("<1>", "References: <1>", False), ("<@1>", "References: <@1>", False), ("<1@>", "References: <1@>", False),
])
def test_message_ids(store, own, field, linked):
    message(store, f"Message-ID: {own}", "Subject: a")
    message(store, field, "Subject: b", at=1)
    assert references(store, mailbox(store), np.arange(2)).children == ({0: [1]} if linked else {})


def test_columns_without_messages_are_bounded_too(store):
    store.owned.put(Columns, Columns(kept=10 * columns.EACH))
    weak = []
    for at in range(30):
        box = store.open_mailbox(namespace.create_mailbox(store, MailboxName("", f"empty{at}")))
        weak.append(weakref.ref(columns_of(store).dates(box)))
    assert [column() is not None for column in weak] == [False] * 20 + [True] * 10


def test_what_was_read_counts_at_once(store):
    for name in ("b", "a", "c"):
        message(store, f"Subject: {name}")
    box = mailbox(store)
    for most, kept in ((2 * columns.EACH + 3, True), (2 * columns.EACH + 2, False)):
        held = Columns(kept=most)
        first = weakref.ref(held.dates(box))
        held.read(store, box, box.rows, ["subject"], Progress())
        assert (first() is not None) == kept
    held.dates(box)                                         # although nobody has asked for the other one again
    assert len(held.subjects(box)) == 0


def test_nothing_is_kept_of_a_mailbox_that_is_deleted(store):
    entry = namespace.create_mailbox(store, MailboxName("", "a"))
    box = store.open_mailbox(entry)
    other = columns_of(store).dates(mailbox(store))
    weak = [weakref.ref(column) for column in (columns_of(store).dates(box), columns_of(store).subjects(box))]
    changes = weakref.ref(store.partition_of(entry).views.history[entry.id])
    deletion.delete_mailbox(store, entry.name)
    assert [column() for column in weak] == [None, None]
    assert changes() is None
    assert columns_of(store).dates(mailbox(store)) is other


def test_a_column_that_knows_mostly_what_has_gone_begins_anew(store):
    store.owned.put(Columns, Columns(spare=2))
    for at in range(6):
        message(store, f"Subject: s{at}")
    box = mailbox(store)
    first = columns_of(store).subjects(box)
    assert order(store, SortKey.SUBJECT) == [1, 2, 3, 4, 5, 6]
    change_flags(store, box.entry, [1, 2, 3, 4, 5], FlagAction.ADD, Flags(Flag.DELETED))
    expunge(store, box.entry)
    assert columns_of(store).subjects(mailbox(store)) is not first
    assert order(store, SortKey.SUBJECT) == [1]


@settings(deadline=None)
@given(st.lists(st.text("ab\n", max_size=5) | st.none(), max_size=8), st.text("ab\n", max_size=3))
def test_searching_all_texts_at_once(texts, wanted):
    held = columns.Texts()
    held.add([text and text.encode() for text in texts[:3]])
    held.add([text and text.encode() for text in texts[3:]])
    expected = [text is not None and wanted in text.replace("\n", " ") for text in texts]
    assert held.having(wanted.encode()).tolist() == [False, *expected]


NASTY = [b"plain", b'quo"ted', b"back\\slash", b"line\r\n", b"", "größe".encode(), b"{5}", b"{5}\r\n", b") (", b"NIL",
         b"(a b)", b"\xff\xfe"]


@pytest.mark.parametrize("subject", NASTY)
@pytest.mark.parametrize("name", NASTY)
def test_envelopes_are_read_as_they_were_written(subject, name):
    string = cacherecord.string
    written = b"(NIL %b ((%b NIL %b %b)(NIL NIL %b NIL)) NIL NIL NIL NIL NIL %b NIL)" % (
        string(subject), string(name), string(subject), string(name), string(name), string(name))
    fields = envelopes.split(written)
    assert len(fields) == 10
    assert envelopes.string(fields[envelopes.DATE]) is None
    assert envelopes.string(fields[envelopes.SUBJECT]) == subject
    assert envelopes.people(fields[envelopes.FROM]) == [(name, None, subject, name), (None, None, name, None)]
    assert envelopes.people(fields[envelopes.TO]) == []
    assert envelopes.string(fields[envelopes.IN_REPLY_TO]) == name


@pytest.mark.parametrize("junk", [b"", b"()", b"NIL", b"(" * 1000, b'("' * 1000, b"{99999}\r\n", b"(NIL NIL)"])
def test_what_is_no_envelope_is_empty(junk):
    assert envelopes.split(junk) == (b"NIL",) * 10


def test_references_are_kept_to_a_limit():
    scanner = Scanner()
    ids = b" ".join([b"<%d@example.org>" % at for at in range(3000)])
    scanner.feed(b"References: " + ids + b"\r\n\r\n")
    record = render(scanner.finish(), bytes(32), 0)
    assert ids.endswith(record.references) and len(record.references) == cacherecord.REFERENCES
    assert cacherecord.CachedMessage.from_bytes(record.data) == record


def test_day_of_the_header_is_in_its_own_zone(store):
    message(store, "Date: 3 Feb 2026 23:30:00 -0800")
    assert found(store, Sent(eq, date(2026, 2, 3))) == [1]
