r"""Events of records in a row of the outbox: what is read is what was written, whatever is done with one of them."""

import json
import math
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import severalmessages
from store.delivery.commit import Target
from store.events.eventvalues import OF_RECORDS, moment
from store.events.outboxtable import DEAD, WAITING, OutboxTable, Parcel
from store.events.packedevents import (
    KINDS,
    SOLE,
    events_in,
    pack_event,
    pack_row,
    shifted,
    sole,
    sole_row,
    unpack,
    words,
)
from store.events.receivers import Receiver
from store.mailboxes import namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.flagchanges import change_flags
from store.store import Store
from store.tables.state import MailboxState
from store.values import Flag, FlagAction, Flags
from tests.support.stores.heardevents import hear, waiting
from tests.support.stores.stores import deliver, make_store

MAIL = b"Subject: %d\r\n\r\nText\r\n"
INBOX = MailboxName("alice", "INBOX")
# a row of before events of records were packed
OLDER = {"event": "MessageNew", "timestamp": "2026-01-31T12:00:00.123Z", "process": "onecopy", "pid": 311,
         "serverFQDN": "mail.example.org", "user": "alice",
         "mailboxID": "imap://alice@mail.example.org/INBOX;UIDVALIDITY=17", "uidset": "5", "uidnext": 6, "modseq": 12,
         "messages": 5, "vnd.onecopy.mailbox": 3, "messageSize": 2048,
         "uri": "imap://alice@mail.example.org/INBOX;UIDVALIDITY=17/;UID=5"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = make_store(tmp_path / "store", ["alice", "bob", "carol"])
    hear(store, Receiver("all"))
    yield store
    assert check(store) == []
    store.close()


def outbox(store: Store) -> OutboxTable:
    return store.partitions["primary"].outbox


def rows(store: Store, name: str = "all", state: bytes = WAITING) -> list[bytes]:
    """As they are stored."""
    prefix = state + name.encode()
    return [row for _, row in outbox(store).table.scan(prefix, prefix + b"\1")]


def to_all(store: Store, number: int = 1) -> None:
    """A message with three recipients: a transaction, three events."""
    deliver(store, MAIL % number, "user/alice/INBOX", "user/bob/INBOX", "user/carol/INBOX")


def act(store: Store, what: object) -> object:
    return transact(store.partitions["primary"].env, what)      # type: ignore[arg-type]


NUMBERS = [st.integers(0, (1 << bits) - 1) for bits in (32, 32, 32, 64, 32, 64)]


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(KINDS), *NUMBERS, st.lists(st.sampled_from(["Work", "\u00fcber", "$x"]), max_size=3),
       st.sampled_from(["", "mail.example.org"]), st.integers(0, 2 ** 31))
def test_what_is_packed_is_what_is_read(kind, mailbox, validity, uidnext, modseq, messages, size, keywords, server, at):
    state = evolve(MailboxState.new(validity, 1, "bob"), uidnext=uidnext, highestmodseq=modseq, messages=messages)
    event = pack_event(7, kind, mailbox, state.to_bytes(), size, int(Flag.FLAGGED),
                       words(str(INBOX).encode(), b"3:4", "bob", keywords))
    row = pack_row([event, event], at, 311, server.encode())
    place = bytes(range(12)) + b"\0\0\1\0"
    (when, (first, second)), count = unpack(place, row), events_in(row)
    assert (when, count, first, first.place, first.mailbox) == (at, 2, second, 7, mailbox)
    body = json.loads(first.text)
    assert {key: body[key] for key in ("id", "event", "user", "uidset", "uidnext", "modseq", "messages", "pid",
                                       "flagNames", "vnd.onecopy.mailbox")} == {
        "id": "000102030405060708090a0b00000107",
        "event": kind, "user": "bob", "uidset": "3:4", "uidnext": uidnext, "modseq": modseq, "messages": messages,
        "pid": 311, "flagNames": ["\\Flagged", *keywords], "vnd.onecopy.mailbox": mailbox}
    assert body.get("messageSize", size) == size and body["mailboxID"].endswith(f";UIDVALIDITY={validity}")


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(KINDS), *NUMBERS, st.sampled_from([b"7", b"3:4", b"1,3"]), st.sampled_from(["", "b.example"]),
       st.floats(0, 2 ** 31))
def test_the_only_event_of_a_row_is_read_as_one_among_others(kind, mailbox, validity, uidnext, modseq, messages, size,
                                                             uids, server, at):
    """And a transaction that has one alone writes the row that it would have among others."""
    state = evolve(MailboxState.new(validity, 1, "bob"), uidnext=uidnext, highestmodseq=modseq, messages=messages)
    said, place = words(str(INBOX).encode(), uids), bytes(range(16))
    row = pack_row([pack_event(0, kind, mailbox, state.to_bytes(), size, int(Flag.SEEN), said)], at, 311,
                   server.encode())
    when, (event,) = unpack(place, row)
    assert row.startswith(SOLE) and sole(place, row) == (
        (when, event.mailbox, event.text) if uids.isdigit() else None)         # of several messages: `unpack` reads it
    assert moment(at) == f"{datetime.fromtimestamp(int(at), UTC):%Y-%m-%dT%H:%M:%S}.{int((at - int(at)) * 1000):03}Z"
    alone = sole_row(server.encode(), 311, kind, mailbox, str(INBOX).encode(), int(Flag.SEEN))(
        validity, size, state.to_bytes())
    written, = struct.unpack_from("<d", alone, 3)
    assert alone == pack_row([pack_event(0, kind, mailbox, state.to_bytes(), size, int(Flag.SEEN), words(
        str(INBOX).encode(), b"%d" % validity))], written, 311, server.encode())


def test_each_place_is_given_once(store):
    """By all threads, one at a time and several together, also in one nanosecond."""
    table = outbox(store)

    def take(most: int) -> list[bytes]:
        return [shifted(first, by)[8:] for _ in range(300) for first in [table.new_place(most)] for by in range(most)]

    with ThreadPoolExecutor(4) as threads:
        given = [place for some in threads.map(take, (1, 3, 1, 2)) for place in some]
    assert len(set(given)) == len(given) == 300 * 7


def test_every_event_of_records_has_a_number_and_keeps_it():
    """Rows that wait have these numbers."""
    assert KINDS == ("MessageNew", "MessageAppend", "MessageExpire", "MessageExpunge", "MessageRead", "MessageTrash",
                     "FlagsSet", "FlagsClear") and set(KINDS) == set(OF_RECORDS)


@pytest.mark.parametrize("events", [1, 3])
def test_a_row_that_is_cut_off_or_changed_is_one_that_says_so(store, events):
    deliver(store, MAIL % 1, *["user/alice/INBOX", "user/bob/INBOX", "user/carol/INBOX"][:events])
    row, = rows(store)
    key = outbox(store).some("all", 1)[0].row
    for damaged in (*(row[:end] for end in range(1, len(row))), row + b"x", row[:40] + b"\xff" + row[41:],
                    row.replace(b"\n1\n", b'\n"\n'),
                    row[:1] + b"\0\0" + row[3:],
                    *(row[:3] + struct.pack("<d", when) + row[11:] for when in (math.inf, math.nan, 1e300, -1e18))):
        act(store, lambda txn, damaged=damaged: outbox(store).table.put(key, damaged, txn))
        some = outbox(store).some("all", 10)
        assert all(each.body["event"] in ("MessageNew", "vnd.onecopy.EventsLost") for each in some) and some
        assert len(some) == events and some[0].readable or [(each.readable, each.together) for each in some] == [
            (False, 1)]
        assert not some[0].readable or len(damaged) == len(row)         # what is cut off, or has more, is never read
        assert [json.loads(each.document) for each in some] == [{"id": each.id, **each.body} for each in some]
    act(store, lambda txn: outbox(store).remove(outbox(store).some("all", 10), txn))
    assert rows(store) == []


def test_a_transaction_is_a_row_for_each_receiver(store):
    """And what several receivers get of one event has one id, whatever else each gets."""
    hear(store, Receiver("all"), Receiver("bob", users=("bob",)), Receiver("trash", types=("MessageTrash",)))
    to_all(store)
    assert [len(rows(store, name)) for name in ("all", "bob", "trash")] == [1, 1, 0]
    change_flags(store, store.entry(MailboxName("bob", "INBOX")), [1], FlagAction.ADD,
                 Flags(Flag.SEEN | Flag.DELETED | Flag.FLAGGED))
    every = {name: outbox(store).some(name, 100) for name in ("all", "bob", "trash")}
    assert [each.body["event"] for each in every["all"]] == [*["MessageNew"] * 3, "MessageRead", "MessageTrash",
                                                             "FlagsSet"]
    assert [each.body["event"] for each in every["trash"]] == ["MessageTrash"]
    ids = [each.id for each in every["all"]]
    assert len(set(ids)) == 6 and {each.id for each in every["bob"]} == {ids[1], *ids[3:]}
    assert [each.id for each in every["trash"]] == [ids[4]]


def test_messages_that_come_together_are_one_event(store):
    """MULTIAPPEND (RFC 3502); another flag is another event."""
    entry, messages = store.entry(INBOX), []
    for number, flag in ((1, Flag.SEEN), (2, Flag.SEEN), (3, Flag.SEEN), (4, Flag.DRAFT)):
        staged = store.stage(entry)
        staged.write(MAIL % number)
        messages.append((staged, Target(entry, Flags(flag), appended=True), None))
    offload.now(severalmessages.deliver_all(store, messages))
    assert [(body["event"], body["uidset"], body["messageSize"], body["flagNames"], body["uidnext"])
            for body in waiting(store)] == [("MessageAppend", "1:3", 3 * len(MAIL % 1), ["\\Seen"], 4),
                                            ("MessageAppend", "4", len(MAIL % 1), ["\\Draft"], 5)]
    assert len(rows(store)) == 1


def each(store: Store, name: str = "all", state: bytes = WAITING) -> list[Parcel]:
    return outbox(store).some(name, 100, state)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_event_of_a_row_is_a_dead_letter_and_is_sent_again(store, which):
    to_all(store)
    before = each(store)
    act(store, lambda txn: outbox(store).bury(before[which], 3, "no", txn))
    act(store, lambda txn: outbox(store).bury(before[which], 3, "no", txn))         # it is one already
    dead, = each(store, state=DEAD)
    assert (dead.id, dead.tries, dict(dead.body)) == (before[which].id, 3, dict(before[which].body))
    left = [parcel for parcel in before if parcel is not before[which]]
    assert [(parcel.id, dict(parcel.body)) for parcel in each(store)] == [
        (parcel.id, dict(parcel.body)) for parcel in left]
    assert act(store, lambda txn: outbox(store).revive(dead, txn))
    assert [parcel.body.get("vnd.onecopy.again") for parcel in each(store)] == [None, None, dead.id]
    assert outbox(store).counted("all", 100) == 3
    assert act(store, lambda txn: outbox(store).remove(each(store), txn)) == 3
    assert rows(store) == rows(store, state=DEAD) == []


def test_some_of_a_row_are_removed_alone_and_all_together(store):
    to_all(store)
    first, second, third = each(store)
    assert outbox(store).counted("all", 100) == 3 and outbox(store).counted("all", 2) == 2
    assert act(store, lambda txn: outbox(store).remove([second], txn)) == 1
    assert act(store, lambda txn: outbox(store).remove([second], txn)) == 0
    assert [parcel.id for parcel in each(store)] == [first.id, third.id]
    assert act(store, lambda txn: outbox(store).remove([first, third], txn)) == 2
    assert rows(store) == []


def test_what_only_some_get_of_a_row_can_be_buried(store):
    """A receiver that gets the second event of a transaction alone."""
    hear(store, Receiver("bob", users=("bob",)))
    to_all(store)
    only, = each(store, "bob")
    act(store, lambda txn: outbox(store).bury(only, 1, "no", txn))
    dead, = each(store, "bob", DEAD)
    assert dead.id == only.id and rows(store, "bob") == []


def test_a_row_of_the_version_before_is_sent(store):
    """After an upgrade; packed ones come behind it."""
    to_all(store)
    packed = each(store)
    key = packed[0].row[:-16] + bytes(8) + packed[0].row[-8:]
    row = json.dumps({"kind": "event", "at": 1769860800.123, "mailbox": 3, "tries": 1, "said": "no", "body": OLDER})
    act(store, lambda txn: outbox(store).table.put(key, row.encode(), txn))
    older, *others = each(store)
    assert (dict(older.body), older.tries, older.mailbox, older.id) == (OLDER, 1, 3, key[-16:].hex())
    assert [parcel.id for parcel in others] == [parcel.id for parcel in packed]
    act(store, lambda txn: outbox(store).bury(older, 2, "no", txn))
    assert [dict(parcel.body) for parcel in each(store, state=DEAD)] == [OLDER]
    act(store, lambda txn: outbox(store).remove(each(store, state=DEAD), txn))


def test_the_version_before_takes_a_packed_row_for_one_that_cannot_be_read(store):
    """It read each row as JSON, and what json says of another was its ValueError: then the receiver is told that an
    event is missing."""
    to_all(store)
    with pytest.raises(ValueError):
        json.loads(rows(store)[0])


def test_a_move_is_a_row_as_well(store):
    archive = namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    to_all(store)
    before = len(rows(store))
    copy_messages(store, store.entry(INBOX), archive, [1], remove=True)
    assert len(rows(store)) == before + 1
    assert [parcel.body["event"] for parcel in each(store)[-2:]] == ["MessageExpunge", "MessageAppend"]
