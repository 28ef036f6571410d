"""SEARCH: RFC 3501 §6.4.4, on a real store."""

import tracemalloc
from datetime import UTC, date, datetime
from operator import eq, ge, gt, lt

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import MessageFile
from store.search import mailboxsearch
from store.search.columns import Columns
from store.search.mailboxsearch import places, search
from store.search.searchkeys import (
    All,
    Among,
    And,
    Body,
    HasFlag,
    Header,
    Key,
    Keyword,
    Not,
    Numbers,
    Or,
    Received,
    Recent,
    Sent,
    Size,
    Text,
    Uids,
)
from store.tables.index import ROW
from store.tables.state import Mailbox, MailboxState
from store.values import Flag, Flags, InternalDate
from tests.support.faults.planted import Faults
from tests.support.stores.stores import deliver, make_store

INBOX = "user/alice/INBOX"


def seconds(year, month, day, hour=0, minute=0):
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp())


MIXED = (b"From: Carol <carol@example.org>\r\nTo: bob@example.org\r\nSubject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\r\n"
         b"Date: 3 Feb 2026 23:30:00 -0800\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\nPreamble\r\n--b\r\n"
         b"Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
         b"Stra=DFe and soft=\r\nbreak\r\n--b\r\nContent-Type: text/html; charset=utf-8\r\n"
         b"Content-Transfer-Encoding: base64\r\nX-Part: partial\r\n\r\n"
         b"w5xi\r\nZXJz\r\nZXR6dW5n\r\n--b\r\nContent-Type: image/png; name=picture.png\r\n\r\npixels\r\n--b\r\n"
         b"Content-Type: message/rfc822\r\n\r\nSubject: enclosed\r\n\r\ninner text\r\n--b--\r\nEpilogue\r\n")
BODIES = [
    (b"From: Alice Smith <alice@example.org>\r\nTo: team:bob@example.org;\r\nSubject: Hello\r\n World\r\n"
     b"Date: Mon, 2 Feb 2026 01:00:00 +0900\r\n\r\nFirst body\r\n", Flags(Flag.SEEN, ("$Junk",)),
     InternalDate(seconds(2026, 2, 1, 23, 30), 60)),
    (MIXED, Flags(Flag.FLAGGED | Flag.ANSWERED, ("$Junk", "todo")), InternalDate(seconds(2026, 2, 2, 0, 30), -60)),
    (b"Subject: third\r\nX-Empty:\r\nBcc: dan@example.org\r\n\r\n" + b"long line\r\n" * 100, Flags(Flag.DELETED),
     InternalDate(seconds(2026, 2, 3))),
    (b"\r\nno header", Flags(Flag.DRAFT | Flag.SEEN), InternalDate(seconds(1969, 12, 31, 12), 0)),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store that these tests only read."""
    store = make_store(tmp_path_factory.mktemp("search") / "store")
    for body, flags, received in BODIES:
        deliver(store, body, INBOX, flags=flags, received=received)
    yield store
    store.close()


def found(store, key, recent=(0, 0)):
    """The numbers of the messages that the key finds."""
    mailbox = store.open_mailbox(store.entry(MailboxName.parse(INBOX)))
    mask = search(store, mailbox, key, recent)
    assert mask.dtype == np.bool_ and len(mask) == len(mailbox.rows)
    return (np.flatnonzero(mask) + 1).tolist()


@pytest.mark.parametrize(("key", "expected"), [
    (All(), [1, 2, 3, 4]),
    (HasFlag(Flag.SEEN), [1, 4]), (Not(HasFlag(Flag.SEEN)), [2, 3]), (HasFlag(Flag.ANSWERED), [2]),
    (HasFlag(Flag.FLAGGED), [2]), (HasFlag(Flag.DELETED), [3]), (HasFlag(Flag.DRAFT), [4]),
    (Keyword("$junk"), [1, 2]), (Keyword("todo"), [2]), (Keyword("never"), []), (Not(Keyword("never")), [1, 2, 3, 4]),
    (Recent(), [3, 4]), (And((Recent(), Not(HasFlag(Flag.SEEN)))), [3]), (Not(Recent()), [1, 2]),
    # the date in the message's own zone: 1 is 2 February there, 2 is 1 February
    (Received(eq, date(2026, 2, 2)), [1]), (Received(eq, date(2026, 2, 1)), [2]),
    (Received(lt, date(2026, 2, 2)), [2, 4]),
    (Received(ge, date(2026, 2, 2)), [1, 3]), (Received(eq, date(1969, 12, 31)), [4]),
    # the date in the header disregarding time and zone; no date, not found
    (Sent(eq, date(2026, 2, 2)), [1]), (Sent(eq, date(2026, 2, 3)), [2]), (Sent(lt, date(2026, 2, 3)), [1]),
    (Sent(ge, date(2026, 2, 3)), [2]), (Sent(ge, date(2000, 1, 1)), [1, 2]), (Sent(lt, date(2100, 1, 1)), [1, 2]),
    (Size(gt, len(BODIES[0][0])), [2, 3]), (Size(lt, len(BODIES[0][0])), [4]),
    (Size(gt, len(BODIES[0][0]) - 1), [1, 2, 3]),
    (Numbers(((2, 3),)), [2, 3]), (Numbers(((3, 2), (1, 1))), [1, 2, 3]), (Numbers(((0, 0),)), [4]),
    (Numbers(((3, 0),)), [3, 4]), (Numbers(((9, 9), (4, 7))), [4]), (Numbers(((9, 0),)), [4]), (Numbers(()), []),
    (Uids(((2, 3),)), [2, 3]), (Uids(((0, 0),)), [4]), (Uids(((1000, 0),)), [4]), (Uids(((1000, 2000),)), []),
    (Among(np.array([True, False, True, False])), [1, 3]),
    (Header("from", "ALICE"), [1]), (Header("From", "example.org"), [1, 2]), (Header("from", "Alice Smith <"), [1]),
    (Header("to", "team"), [1]), (Header("bcc", "dan"), [3]), (Header("cc", ""), []), (Header("x-empty", ""), [3]),
    (Header("subject", ""), [1, 2, 3]), (Header("subject", "hello world"), [1]), (Header("subject", "GRÜßE"), [2]),
    (Header("subject", "grüsse"), []),      # RFC 5051: ß is no ss
    (Header("subject", "enclosed"), []), (Header("ubject", "hello"), []), (Header("subject", "subject"), []),
    (Body("first BODY"), [1]), (Body("STRAßE and softbreak"), [2]), (Body("übersetzung"), [2]), (Body("Hello"), []),
    (Body("inner text"), [2]), (Body("enclosed"), [2]), (Body("partial"), [2]), (Body("picture.png"), [2]),
    (Body("pixels"), []), (Body("preamble"), []), (Body(""), [1, 2, 3, 4]), (Body("no header"), [4]),
    (Text("hello"), [1]), (Text("first body"), [1]), (Text("grüße"), [2]), (Text("x-empty:"), [3]),
    (Text("nowhere"), []),
    (And(()), [1, 2, 3, 4]), (And((Header("from", ""), HasFlag(Flag.SEEN))), [1]),
    (And((Body("o"), Text("o"), Header("subject", "o"), Numbers(((1, 3),)))), [1]),
    (Or(HasFlag(Flag.DELETED), HasFlag(Flag.DRAFT)), [3, 4]), (Or(Body("first body"), Keyword("todo")), [1, 2]),
    (Or(Body("first body"), Header("subject", "third")), [1, 3]), (Not(Body("first body")), [2, 3, 4]),
    (Not(Or(Header("from", ""), HasFlag(Flag.DELETED))), [4]), (Not(Not(Text("hello"))), [1]),
    (And((Not(Text("hello")), Or(Numbers(((1, 2),)), Body("no header")))), [2, 4]),
    (Or(And((Header("from", "alice"), Body("first"))), Not(Header("subject", ""))), [1, 4]),
])
def test_keys(filled, key, expected):
    assert found(filled, key, recent=(3, 5)) == expected
    mailbox = filled.open_mailbox(filled.entry(MailboxName.parse(INBOX)))
    assert [at + 1 for at in places(filled, mailbox, key, (3, 5)).tolist()] == expected


@pytest.mark.parametrize(("where", "there"), [
    (Numbers(((3, 4),)), {3, 4}), (Numbers(((2, 2),)), {2}), (Uids(((2, 3),)), {2, 3}), (Uids(((0, 0),)), {4}),
    (Uids(((1000, 2000),)), set()), (Numbers(((1, 1), (3, 3))), {1, 3}), (Numbers(((9, 0),)), {4})])
@pytest.mark.parametrize(("key", "expected"), [
    (Not(HasFlag(Flag.SEEN)), {2, 3}), (Recent(), {3, 4}), (Keyword("$junk"), {1, 2}), (Body("o"), {1, 2, 3, 4}),
    (Not(Header("subject", "hello")), {2, 3, 4}), (Sent(ge, date(2000, 1, 1)), {1, 2}),
    (Or(Numbers(((1, 2),)), Uids(((0, 0),))), {1, 2, 4}), (Not(Numbers(((0, 0),))), {1, 2, 3}),
    (Among(np.array([True, False, True, False])), {1, 3})])
def test_a_key_that_names_messages_narrows_the_others(filled, monkeypatch, where, there, key, expected):
    """In a mailbox of 1,000,000 the flags of all were looked at for UID SEARCH UID 1:100 UNSEEN, 10 ms."""
    looked_at = []
    monkeypatch.setattr(mailboxsearch, "LARGE", 1)
    Faults(monkeypatch).before(mailboxsearch._Index, "mask", lambda index, asked: isinstance(
        asked, Numbers | Uids | Among) or looked_at.append(len(index.mailbox.rows)))
    mailbox = filled.open_mailbox(filled.entry(MailboxName.parse(INBOX)))
    assert {at + 1 for at in places(filled, mailbox, And((where, key)), (3, 5)).tolist()} == there & expected
    if there != {1, 3}:                 # these lie too far from each other
        assert all(count <= len(there) for count in looked_at)


@pytest.mark.parametrize("where", [Uids(((101, 200),)), Numbers(((101, 150), (180, 200)))])
def test_what_a_set_names_costs_nothing_for_the_other_messages(where):
    """Nothing is made that has a place for each message of a mailbox of 1,000,000: that was 250 us."""
    rows = np.zeros(1_000_000, ROW)
    rows["uid"] = np.arange(1, len(rows) + 1)
    mailbox = Mailbox(None, MailboxState.new(1, 0, ""), rows, "", np.ascontiguousarray(rows["uid"]))
    key = And((where, Not(HasFlag(Flag.SEEN)), Not(Uids(((0, 0),)))))
    tracemalloc.start()
    found = places(None, mailbox, key).tolist()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found[0] == 100 and found[-1] == 199
    assert most < 100_000


def test_an_empty_mailbox(store):
    for key in (All(), Numbers(((1, 0),)), Uids(((1, 0), (0, 0))), Body("x"), Not(Header("a", "b")),
                Received(eq, date(2026, 1, 1)), Keyword("x"), Recent()):
        assert found(store, key) == []


def test_only_messages_that_are_left_are_opened(filled, faults):
    opened = []
    number_of = {row["digest"].tobytes(): int(row["uid"])
                 for row in filled.open_mailbox(filled.entry(MailboxName.parse(INBOX))).rows}
    faults.before(MessageFiles, "beginnings", lambda files, digests, *_: opened.extend(map(number_of.get, digests)))
    assert found(filled, And((Body("body"), Or(HasFlag(Flag.SEEN), Keyword("todo")), Size(lt, 400)))) == [1]
    assert opened == [1, 4]
    opened.clear()
    assert found(filled, Or(All(), Text("x"))) == [1, 2, 3, 4]
    assert opened == []
    assert found(filled, And((Body("first"), Header("from", "bob")))) == []
    assert opened == [1, 2, 3, 4]


def test_headers_are_read_before_bodies(store, faults):
    """Of a large message; a small one is read as a whole."""
    for name in (b"alice", b"bob"):
        deliver(store, b"From: %b\r\n\r\n" % name + b"x\r\n" * 50_000, INBOX)
    octets = faults.watch(MessageFile, "read", lambda file, offset, count: count)
    assert found(store, And((Body("y"), Header("from", "nobody")))) == []
    assert len(octets) == 2 and sum(octets) < 600
    assert found(store, And((Body("x"), Header("from", "bob")))) == [2]


def test_the_trace_header_is_searched_where_it_belongs_to_the_message(store):
    deliver(store, b"Subject: x\r\n\r\nbody", INBOX, trace=b"Return-Path: <zoe@example.org>\r\n")
    assert found(store, Header("return-path", "zoe")) == [1]
    assert found(store, Text("zoe")) == [1]
    assert found(store, Body("zoe")) == []
    assert found(store, Body("body")) == [1]


def test_a_message_that_cannot_be_read_is_not_found_and_harms_no_other(filled, faults, caplog):
    faults.around(MessageFiles, "beginnings", lambda _, files, digests, *__: iter([None] * len(digests)))
    for name in ("open_message", "cached"):
        faults.fail(filled, name, StoreError(Problem.CORRUPT, detail="gone"),
                    when=lambda entry, rows: 2 in np.atleast_1d(rows["uid"]))
        filled.columns = Columns()
        assert found(filled, Text("o")) == [1, 3, 4]
        assert found(filled, Not(Text("nowhere"))) == [1, 3, 4]
        assert "gone" in caplog.text
        caplog.clear()


class Unknown(Key):
    pass


def test_an_unknown_key_is_a_fault_of_the_program(filled):
    with pytest.raises(TypeError):
        found(filled, Unknown())
