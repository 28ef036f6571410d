"""A mailbox whose rows are as they were some changes ago takes over all that is newer in its `store.idx`: messages,
flags, keywords, readers' own flags, and what was expunged; and what came into it meanwhile stays."""

import logging
import shutil
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import INBOX, MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.mailboxes.expunge import expunge, remove
from store.mailboxes.flagchanges import change_flags
from store.partition.marks import generations_of_partition
from store.partition.transactions import WriteTxn
from store.store import Store
from store.tables.index import chunk_key, decode, encode
from store.tables.state import state_key
from store.userarea import writing
from store.values import Flag, FlagAction, Flags
from tests.support.stores.stores import deliver, reopen

NAME = MailboxName("alice", INBOX)
Seen = dict[int, tuple[bytes, int, tuple[str, ...]]]        # by UID: subject, system flags, keywords


def seen(store: Store) -> Seen:
    """What the mailbox shows."""
    entry, found = store.entry(NAME), {}
    store.partitions["primary"].views.forget()
    view = store.open_mailbox(entry)
    for row in view.rows:
        with store.open_message(entry, row) as file:
            found[int(row["uid"])] = (file.read(0, file.size), int(row["flags"]),
                                      tuple(sorted(view.keyword_names(int(row["keywords"])))))
    return found


def say(store: Store, *numbers: int) -> None:
    for number in numbers:
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(NAME))


def subject(number: int) -> bytes:
    return b"Subject: %d\r\n\r\n" % number


def rolled_back(store: Store, changes: Callable[[], None], *, every: bool = False) -> Callable[[], None]:
    """Make these changes, write store.idx; what is given puts the rows back as they were before."""
    partition, entry = store.partitions["primary"], store.entry(NAME)
    tables = (partition.states, partition.index, partition.readers._table)
    if every:
        tables += (partition.vanished._table, partition.removed._table)
    then = [dict(table.scan()) for table in tables]
    changes()
    writing.write_changed(store, hurry=True)

    def put_back() -> None:
        def work(txn: object) -> None:
            for table, rows in zip(tables, then, strict=True):
                for key in {key for key, _ in table.scan(txn=txn)} - rows.keys():
                    table.delete(key, txn)
                for key, value in rows.items():
                    table.put(key, value, txn)

        transact(partition.env, work)
        partition.views.forget()
        partition.unwritten.changed.add(entry.id)

    return put_back


def take_in(store: Store) -> None:
    """What housekeeping does: it cannot write the file, and takes in what is newer."""
    writing.write_changed(store, hurry=True)
    items = list(tasks._damaged(store))
    assert items
    for item in items:
        tasks._repair(store, item)
    writing.write_changed(store, hurry=True)
    assert check(store) == [] and not list(tasks._damaged(store))


def age(store: Store) -> None:
    """What is there came a while before any store.idx is written."""
    partition, entry = store.partitions["primary"], store.entry(NAME)
    rows = decode(partition.index.get(chunk_key(entry.id, 0)))
    rows["saved"] -= 100
    transact(partition.env, lambda txn: partition.index.put(chunk_key(entry.id, 0), encode(rows), txn))
    partition.views.forget()


def later(store: Store, *uids: int) -> None:
    """These messages came a while after the file was written."""
    partition, entry = store.partitions["primary"], store.entry(NAME)
    rows = decode(partition.index.get(chunk_key(entry.id, 0)))
    rows["saved"][np.isin(rows["uid"], uids)] += 100
    transact(partition.env, lambda txn: partition.index.put(chunk_key(entry.id, 0), encode(rows), txn))
    partition.views.forget()


@pytest.fixture
def small(store: Store) -> Iterator[Store]:
    say(store, 1, 2, 3, 4)
    age(store)
    yield store


def test_flags_keywords_and_expunges_of_the_newer_file_win(small: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    entry = small.entry(NAME)

    def changes() -> None:
        change_flags(small, entry, [1], FlagAction.ADD, Flags(Flag.FLAGGED, frozenset({"$Forwarded"})))
        change_flags(small, entry, [2], FlagAction.ADD, Flags(Flag.DELETED))
        expunge(small, entry, [2])
        change_flags(small, entry, [3], FlagAction.ADD, Flags(Flag.SEEN))
        say(small, 5)

    put_back = rolled_back(small, changes)
    wanted, state = seen(small), small.open_mailbox(entry).state
    put_back()
    assert set(seen(small)) == {1, 2, 3, 4}
    take_in(small)
    assert seen(small) == wanted and set(wanted) == {1, 3, 4, 5}
    now = small.open_mailbox(entry)
    assert now.state.highestmodseq > state.highestmodseq + 1000 and now.state.uidnext > 6
    changed = {int(row["uid"]): int(row["modseq"]) for row in now.rows}
    assert changed[1] == changed[3] == changed[5] > state.highestmodseq > changed[4]
    [line] = [line for line in caplog.messages if "older than their store.idx" in line]
    assert line.startswith("1 mailboxes on partition primary")
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == [line]
    assert "1 messages came back from it, 1 were expunged by it, 2 have its flags" in line


@pytest.mark.parametrize("every", [False, True], ids=["two tables", "every table"])
def test_what_was_expunged_by_the_file_can_be_undeleted(small: Store, every: bool) -> None:
    put_back = rolled_back(small, lambda: remove(small, small.entry(NAME), [2]) and None, every=every)
    put_back()
    take_in(small)
    assert set(seen(small)) == {1, 3, 4}
    partition = small.partitions["primary"]
    [row] = [row for item in partition.removed.all() for row in item.rows]
    assert row["uid"] == 2 and partition.refs.find(bytes(row["digest"])).references == 1


def test_what_came_meanwhile_stays_and_no_uid_has_two_meanings(small: Store) -> None:
    """UID 5 was shown as one message, then as another one; UID 6 was shown and expunged, then came again."""
    entry = small.entry(NAME)

    def changes() -> None:
        say(small, 5, 6)
        remove(small, entry, [6])
        for _ in range(3):
            change_flags(small, entry, [1], FlagAction.ADD, Flags(Flag.SEEN))
            change_flags(small, entry, [1], FlagAction.REMOVE, Flags(Flag.SEEN))

    put_back = rolled_back(small, changes)
    put_back()
    say(small, 50, 60, 70)
    later(small, 5, 6, 7)
    take_in(small)
    there = seen(small)
    assert sorted(text for text, _, _ in there.values()) == [subject(each) for each in (1, 2, 3, 4, 5, 50, 60, 70)]
    assert {uid for uid in there if uid < 1000} == {1, 2, 3, 4, 7}
    assert there[7][0] == subject(70)


def test_the_later_change_of_one_message_counts(small: Store) -> None:
    entry = small.entry(NAME)

    def changes() -> None:
        change_flags(small, entry, [1], FlagAction.ADD, Flags(Flag.FLAGGED))
        change_flags(small, entry, [2, 3, 4], FlagAction.ADD, Flags(Flag.SEEN))
        change_flags(small, entry, [4], FlagAction.REMOVE, Flags(Flag.SEEN))

    put_back = rolled_back(small, changes)
    put_back()
    change_flags(small, entry, [2], FlagAction.ADD, Flags(Flag.ANSWERED))
    change_flags(small, entry, [1], FlagAction.ADD, Flags(Flag.ANSWERED))
    take_in(small)
    flags = {uid: flags for uid, (_, flags, _) in seen(small).items()}
    assert flags == {1: int(Flag.ANSWERED), 2: int(Flag.SEEN), 3: int(Flag.SEEN), 4: 0}


def test_keywords_that_both_have_under_other_bits(small: Store) -> None:
    entry = small.entry(NAME)

    def give(uid: int, name: str) -> None:
        change_flags(small, entry, [uid], FlagAction.ADD, Flags(Flag(0), frozenset({name})))

    put_back = rolled_back(small, lambda: (give(1, "red"), give(2, "blue"), give(1, "late")) and None)
    put_back()
    give(3, "green")
    give(4, "Blue")
    take_in(small)
    assert {uid: [word.lower() for word in words] for uid, (_, _, words) in seen(small).items()} == {
        1: ["late", "red"], 2: ["blue"], 3: ["green"], 4: ["blue"]}


def test_an_expunge_of_the_older_side_stays(small: Store) -> None:
    put_back = rolled_back(small, lambda: say(small, 5, 6, 7))
    put_back()
    remove(small, small.entry(NAME), [1])
    take_in(small)
    assert set(seen(small)) == {2, 3, 4, 5, 6, 7}


def test_a_file_that_is_damaged_expunges_nothing(small: Store) -> None:
    """Its records cannot be read: what it lacks is no evidence."""
    partition, entry = small.partitions["primary"], small.entry(NAME)
    put_back = rolled_back(small, lambda: remove(small, entry, [2]) and None, every=True)
    path = writing.right_place(partition, entry, 0)
    octets = bytearray(path.read_bytes())
    octets[octets.index(bytes(small.open_mailbox(entry).rows["digest"][0]))] ^= 1
    path.write_bytes(octets)
    put_back()
    take_in(small)
    assert set(seen(small)) == {1, 2, 3, 4}


def test_a_lost_record_comes_back_by_itself(small: Store) -> None:
    """The mailbox has changed since its store.idx was written, which is not written over meanwhile."""
    partition, entry = small.partitions["primary"], small.entry(NAME)
    say(small, 5)
    writing.write_changed(small, hurry=True)
    before = seen(small)
    remove(small, entry, [4])
    say(small, 6)
    rows = decode(partition.index.get(chunk_key(entry.id, 0)))
    left = encode(rows[rows["uid"] != 2])
    transact(partition.env, lambda txn: partition.index.put(chunk_key(entry.id, 0), left, txn))
    partition.views.forget()
    take_in(small)
    assert {uid: what for uid, what in seen(small).items() if uid != 6} == {
        uid: what for uid, what in before.items() if uid != 4}


def test_lost_figures_come_back_by_themselves(small: Store) -> None:
    """RFC 3501 §6.3.1, RFC 5530 §3: nobody is told that there is no such mailbox."""
    partition, entry = small.partitions["primary"], small.entry(NAME)
    writing.write_changed(small, hurry=True)
    before = seen(small)
    transact(partition.env, lambda txn: partition.states.delete(state_key(entry.id), txn))
    partition.views.forget()
    for look in (small.open_mailbox, small.status):
        with pytest.raises(StoreError) as refused:
            look(entry)
        assert refused.value.problem is Problem.CORRUPT
    take_in(small)
    assert seen(small) == before


def test_readers_own_flags_of_the_newer_file_win(small: Store) -> None:
    partition, entry = small.partitions["primary"], small.entry(NAME)

    def own(**flags: int) -> None:
        def work(txn: WriteTxn) -> None:
            state = txn.state(entry.id)
            chunk = partition.readers.chunk(entry.id, 0, "bob", txn.handle)
            for uid, value in flags.items():
                chunk[int(uid[1:]) - 1] = value, state.highestmodseq + 1
            txn.put_own(entry.id, 0, "bob", chunk)
            txn.set_state(entry.id, state, evolve(state, highestmodseq=state.highestmodseq + 1,
                                                  changed=state.highestmodseq + 1))

        partition.transact(work)

    own(u1=int(Flag.SEEN))
    put_back = rolled_back(small, lambda: [own(u2=int(Flag.SEEN)), own(u3=int(Flag.SEEN))] and None)
    put_back()
    own(u4=int(Flag.SEEN))
    take_in(small)
    [(_, reader, flags)] = partition.readers.all(entry.id)
    assert reader == "bob" and flags["flags"][:5].tolist() == [int(Flag.SEEN)] * 4 + [0]


def test_older_databases_that_have_gone_past_the_file(store: Store) -> None:
    """Yesterday's databases were put back with all that says of which time they are, and the mailbox has changed more
    often since than it had before: its MODSEQ tells nothing."""
    say(store, 1, 2, 3, 4)
    age(store)
    root, entry = store.root, store.entry(NAME)
    store.close()
    old = root.parent / "yesterday"
    places = [root / "partitions/primary/index", *generations_of_partition(root / "partitions/primary")]
    old.mkdir()
    for number, place in enumerate(places):
        (shutil.copytree if place.is_dir() else shutil.copy2)(place, old / str(number))
    reopen(store)
    change_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.FLAGGED))
    remove(store, entry, [2])
    say(store, 5, 6)
    wanted = seen(store)
    store.close()
    shutil.rmtree(places[0])
    for number, place in enumerate(places):
        (shutil.copytree if number == 0 else shutil.copy2)(old / str(number), place)
    reopen(store)
    assert set(seen(store)) == {1, 2, 3, 4}
    for _ in range(8):
        change_flags(store, entry, [3], FlagAction.ADD, Flags(Flag.SEEN))
        change_flags(store, entry, [3], FlagAction.REMOVE, Flags(Flag.SEEN))
    say(store, 50)
    later(store, 5)
    take_in(store)
    now = seen(store)
    assert sorted(text for text, _, _ in now.values()) == [subject(each) for each in (1, 3, 4, 5, 50, 6)]
    assert now[1] == wanted[1] and now[6] == wanted[6] and 5 not in now
    for name in ("alice", "bob"):           # once: what is written from now on is of one course of events
        deliver(store, subject(7), f"user/{name}/INBOX")
    writing.write_changed(store, hurry=True)
    assert not store.partitions["primary"].outdated
