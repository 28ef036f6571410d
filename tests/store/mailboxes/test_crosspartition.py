"""COPY and MOVE to a mailbox on another partition."""

import numpy as np
import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store import offload
from store.delivery.batch import BatchStore, NotCopied
from store.delivery.filecopy import FileCopier, copy_rows
from store.errors import Problem, StoreError
from store.housekeeping.tasks import environments
from store.mailboxes import crosspartition, deletion, namespace, placement
from store.mailboxes.copymessages import PartlyMoved, copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.partitions import partitionmove, volumes
from store.quota import roots
from store.store import Store
from store.tables.index import CHUNK
from store.tables.quotatable import UNLIMITED
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge
from tests.support.stores.stores import deliver, reopen_after_crash

BODIES = [b"Subject: %d\r\n\r\n" % n + b"x" * (97 * n) for n in range(6)]
TRACE = b"Return-Path: <a@example.org>\r\nReceived: by one\r\n"
INBOX, THERE = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")


@pytest.fixture
def two(store):
    """Alice's mailboxes are on one partition, bob's on another."""
    volumes.add(store, "second")
    partitionmove.move_owner(store, "bob", "second")
    return store


def contents(store: Store, name: MailboxName) -> dict[int, tuple]:
    mailbox = store.open_mailbox(store.entry(name))
    found = {}
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found[int(row["uid"])] = (file.read(0, file.size), Flag(int(row["flags"])),
                                      set(mailbox.keyword_names(int(row["keywords"]))), int(row["received"]))
    return found


def copy(store: Store, uids: list[int], **options) -> list[int]:
    source, target = store.entry(INBOX), store.entry(THERE)
    return offload.now(crosspartition.copy_durably(store, source, target, np.array(uids, np.uint32), **options))


def known(store: Store, partition: str) -> list[int]:
    return sorted(record.references for _, record in store.partitions[partition].refs.all())


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("move", [False, True])
def test_flags_dates_and_octets_come_along(two, move, at_once):
    change = Flags(Flag.SEEN | Flag.FLAGGED, ("todo", "Later"))
    for body in BODIES[:4]:
        deliver(two, body, "user/alice/INBOX", trace=TRACE)
    deliver(two, b"x", "user/bob/INBOX", flags=Flags(Flag(0), ("other", "later")))
    change_flags(two, two.entry(INBOX), [2], FlagAction.ADD, change)
    before = contents(two, INBOX)
    state = two.status(two.entry(THERE))
    assert copy(two, [1, 2, 4], remove=move, at_once=at_once) == [2, 3, 4]
    after = contents(two, THERE)
    assert [after[uid][:2] for uid in (2, 3, 4)] == [before[uid][:2] for uid in (1, 2, 4)]
    assert [after[uid][3] for uid in (2, 3, 4)] == [before[uid][3] for uid in (1, 2, 4)]
    assert after[3][2] == {"todo", "later"}         # a keyword is the same in any case
    assert two.status(two.entry(THERE)).highestmodseq == state.highestmodseq + 1
    assert list(contents(two, INBOX)) == ([3] if move else [1, 2, 3, 4])
    assert known(two, "second") == [1, 1, 1, 1]
    assert known(two, "primary") == ([0, 0, 0, 1] if move else [1, 1, 1, 1])


def test_one_copy_there(two, faults):
    deliver(two, BODIES[3], "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    deliver(two, BODIES[4], "user/alice/INBOX", trace=TRACE)
    deliver(two, BODIES[4], "user/alice/INBOX")
    assert copy(two, [1, 2, 3]) == [2, 3, 4]
    faults.forbid(Staged, "copied")                 # no file is made any more
    assert copy(two, [1, 2, 3]) == [5, 6, 7]
    assert known(two, "second") == [3, 4]


def test_all_or_none(two):
    for body in BODIES[:3]:
        deliver(two, body, "user/alice/INBOX")
    remove(two, two.entry(INBOX), [2])
    for uids in ([1, 2], [1, 9]):
        with pytest.raises(StoreError) as refused:
            copy(two, uids, remove=True)
        assert refused.value.problem is Problem.GONE
    roots.set_quota(two, "bob", len(BODIES[0]) + len(BODIES[2]) - 1)
    with pytest.raises(StoreError) as refused:
        copy(two, [1, 3], remove=True)
    assert refused.value.problem is Problem.OVER_QUOTA
    assert contents(two, THERE) == {} and known(two, "second") == []
    roots.set_quota(two, "bob", UNLIMITED)
    assert copy(two, [1, 3], remove=True) == [1, 2]
    deletion.delete_mailbox(two, THERE, even_inbox=True)
    with pytest.raises(StoreError) as refused:
        crosspartition.copy(two, two.entry(INBOX), two.mailboxes.deleted.find(2)[1], [1])
    assert refused.value.problem is Problem.GONE or refused.value.problem is Problem.NO_MAILBOX


def test_flags_that_change_during_a_move_are_not_lost(two, faults):
    for body in BODIES[:2]:
        deliver(two, body, "user/alice/INBOX")
    faults.after(crosspartition._Arrival, "_arrive", lambda *_: change_flags(
        two, two.entry(INBOX), [2], FlagAction.ADD, Flags(Flag.SEEN, ("late",))))
    assert copy(two, [1, 2], remove=True) == [1, 2]
    assert [message[1:3] for message in contents(two, THERE).values()] == [(Flag(0), set()), (Flag.SEEN, {"late"})]
    assert contents(two, INBOX) == {}


def test_what_cannot_be_taken_out_is_not_left_in_both(two, faults):
    deliver(two, BODIES[1], "user/alice/INBOX")
    faults.fail(crosspartition, "_take_out", StoreError(Problem.UNAVAILABLE))
    with pytest.raises(StoreError):
        copy(two, [1], remove=True)
    assert list(contents(two, INBOX)) == [1] and contents(two, THERE) == {}


MANY = 3                        # slices of one message each, in the tests that follow


@pytest.fixture
def finely(two, monkeypatch):
    """Two partitions, with messages in INBOX, of which each is copied in a transaction of its own."""
    for body in BODIES[:MANY]:
        deliver(two, body, "user/alice/INBOX")
    monkeypatch.setattr(crosspartition, "slices", lambda uids, price: np.split(uids, len(uids)))
    return two


@pytest.mark.parametrize("move", [False, True])
def test_many_come_in_slices(finely, faults, move):
    """They are on record until the last one is there; what is new in the target is not seen to come twice."""
    seen = []
    faults.after(crosspartition._Arrival, "_some", lambda *_: seen.append(
        len(list(finely.partitions["second"].copies.all()))))
    faults.after(crosspartition, "_take_out", lambda *_: seen.append("out"))
    assert copy(finely, [1, 2, 3], remove=move, event_of="alice") == [1, 2, 3]
    assert [message[0] for message in contents(finely, THERE).values()] == BODIES[:MANY]
    assert len(contents(finely, INBOX)) == (0 if move else MANY)
    assert seen == [1, 1, 0, *(["out"] * MANY if move else [])]
    event, = finely.partitions["second"].script_events.of(finely.entry(THERE).id, 10)
    assert list(event.uids) == [1, 2, 3]


def test_many_that_cannot_all_come_are_none(finely, faults):
    faults.fail_second(crosspartition._Arrival, "_arrive", StoreError(Problem.DISK_FULL))
    with pytest.raises(StoreError) as refused:
        copy(finely, [1, 2, 3], remove=True)
    assert refused.value.problem is Problem.DISK_FULL
    assert contents(finely, THERE) == {} and len(contents(finely, INBOX)) == MANY
    assert list(finely.partitions["second"].copies.all()) == []


@pytest.mark.long
def test_a_crash_while_many_come_leaves_none_there(finely, faults):
    class Killed(BaseException):
        pass

    faults.fail_second(crosspartition._Arrival, "_arrive", Killed())
    faults.around(crosspartition, "undo_or_say", lambda *_: None)
    with pytest.raises(Killed):
        copy(finely, [1, 2, 3], remove=True)
    assert len(contents(finely, THERE)) == 1
    faults.mend()
    for environment in environments(finely).values():
        environment.flush()
    finely.__dict__.update(reopen_after_crash(finely).__dict__)
    assert contents(finely, THERE) == {} and len(contents(finely, INBOX)) == MANY


def test_a_move_of_many_that_is_refused_half_way_says_which_have_moved(finely, faults):
    """RFC 6851 §4.3: no message is in both, none is lost."""
    faults.fail_second(crosspartition, "_take_out", StoreError(Problem.UNAVAILABLE))
    with pytest.raises(PartlyMoved) as refused:
        copy(finely, [1, 2, 3], remove=True)
    assert (refused.value.uids.tolist(), refused.value.new) == ([1], [1])
    assert list(contents(finely, THERE)) == [1] and list(contents(finely, INBOX)) == [2, 3]


def test_no_transaction_of_many_is_larger_than_a_slice(two, monkeypatch):
    for body in BODIES:
        deliver(two, body, "user/alice/INBOX")
    inbox = two.entry(INBOX)
    while len(two.open_mailbox(inbox).uids) < 10 * CHUNK:
        copy_messages(two, inbox, inbox, two.open_mailbox(inbox).uids[-4 * CHUNK:])
    sizes = []
    for name in ("rewrite", "append"):
        real = getattr(WriteTxn, name)
        monkeypatch.setattr(WriteTxn, name, lambda txn, mailbox, rows, *more, real=real, **how: (
            sizes.append(len(more[0].nonzero()[0] if more else rows)), real(txn, mailbox, rows, *more, **how))[1])
    uids = two.open_mailbox(inbox).uids
    assert len(copy(two, uids.tolist(), remove=True)) == len(uids)
    assert sum(sizes) == 2 * len(uids) and max(sizes) <= 5 * CHUNK


def test_what_was_brought_and_is_purged_meanwhile_is_brought_again(two, faults):
    deliver(two, BODIES[1], "user/alice/INBOX")
    calls = faults.watch(crosspartition._Arrival, "_arrive")

    def purged(*_):
        purge(two.partitions["second"], now=4e9)
        assert known(two, "second") == []

    faults.first(crosspartition._Arrival, "_arrive", purged)
    assert copy(two, [1]) == [1]
    assert len(calls) == 2
    assert contents(two, THERE)[1][0] == BODIES[1]


def test_what_another_brings_at_the_same_moment_is_there_once(two, faults):
    deliver(two, BODIES[1], "user/alice/INBOX", trace=TRACE)

    def another(store):
        if store.batch:
            faults.mend()
            deliver(two, BODIES[1], "user/bob/INBOX", trace=b"Return-Path: <other@example.org>\r\n")

    faults.before(BatchStore, "keep", another)
    assert copy(two, [1]) == [2]
    assert contents(two, THERE)[2][0] == TRACE + BODIES[1]
    files = two.partitions["second"].files
    files.drop_staged_names()
    assert not list(files.staging.iterdir())


def test_it_gives_up_when_that_never_ends(two, faults):
    deliver(two, BODIES[1], "user/alice/INBOX")
    rows = two.open_mailbox(two.entry(INBOX)).rows
    copier = FileCopier(two.partitions["primary"], two.partitions["second"])
    faults.fail(BatchStore, "hold", NotCopied)
    with pytest.raises(StoreError) as refused:
        copy_rows(copier, [rows])
    assert refused.value.problem is Problem.BUSY


def test_a_full_partition_takes_nothing_and_serves_on(two, faults):
    deliver(two, BODIES[1], "user/alice/INBOX", "user/bob/INBOX")
    deliver(two, BODIES[2], "user/alice/INBOX")
    full = two.partitions["second"]
    full._roomy_until = 0
    faults.around(full.files, "volume", lambda _: (1 << 30, 99 << 30))
    assert full.is_full()
    with pytest.raises(StoreError) as refused:
        copy(two, [2])
    assert refused.value.problem is Problem.DISK_FULL
    alice, bob = deliver(two, BODIES[3], "user/alice/INBOX", "user/bob/INBOX")
    assert alice.uid == 3 and bob.problem is Problem.DISK_FULL
    with pytest.raises(StoreError) as refused:
        two.stage(two.entry(THERE))
    assert refused.value.problem is Problem.DISK_FULL
    with pytest.raises(StoreError) as refused:
        partitionmove.move_owner(two, "alice", "second")
    assert refused.value.problem is Problem.DISK_FULL
    assert placement.roomiest(two).name == "primary"
    change_flags(two, two.entry(THERE), [1], FlagAction.ADD, Flags(Flag.SEEN))
    assert contents(two, THERE)[1][:2] == (BODIES[1], Flag.SEEN)
    assert remove(two, two.entry(THERE), [1]) == [1]
    faults.around(full.files, "volume", lambda _: (1 << 30, 98 << 30))
    assert not full.is_full()


def test_inbox_is_renamed_to_where_new_mailboxes_go(two):
    deliver(two, BODIES[1], "user/alice/INBOX")
    two.directory.alter("alice", lambda row: evolve(
        row, account=evolve(row.account, partition="second")))
    namespace.rename_mailbox(two, INBOX, MailboxName("alice", "Old"))
    assert contents(two, INBOX) == {}
    assert contents(two, MailboxName("alice", "Old"))[1][0] == BODIES[1]
    assert two.entry(MailboxName("alice", "Old")).partition == "second"


def test_a_damaged_file_is_not_copied(two):
    deliver(two, BODIES[3], "user/alice/INBOX")
    row = two.open_mailbox(two.entry(INBOX)).rows[0]
    path = two.partitions["primary"].files.locate(bytes(row["digest"]), int(row["serial"]))
    path.write_bytes(BODIES[3].replace(b"x", b"y"))
    with pytest.raises(StoreError) as refused:
        copy(two, [1])
    assert refused.value.problem is Problem.CORRUPT
    path.write_bytes(BODIES[3])
