"""What a full or failing disk stopped in its middle, between the list of mailboxes and a partition, is finished by
housekeeping, without a restart; and housekeeping does no harm to what is only slow."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Unflushed, transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.delivery.commit import Delivered
from store.errors import Problem, StoreError
from store.housekeeping import interrupted
from store.mailboxes import deletion, namespace
from store.mailboxes.deletion import undelete_mailbox
from store.partition.partition import Partition
from store.partitions import partitionmove, volumes
from store.quota import roots
from store.rebuild.desired import new_mailbox
from store.rebuild.liveloader import LiveLoader
from store.store import Store
from store.tables.state import MOVING
from tests.support.faults.planted import Faults
from tests.support.stores.purging import purge_mailboxes
from tests.support.stores.stores import deliver, make_store

ARCHIVE, NEW = MailboxName("alice", "Archive"), MailboxName("alice", "New")
MAIL = b"Subject: 1\r\n\r\nText\r\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = make_store(tmp_path / "store")
    store.patience = 0.0
    namespace.create_mailbox(store, ARCHIVE)
    deliver(store, MAIL, str(ARCHIVE))
    yield store
    keep_house(store)
    assert check(store) == []
    assert not list(store.mailboxes.pending.all())
    store.close()


def keep_house(store: Store) -> None:
    """Two rounds of the task, a minute after all that has happened: one finishes, the next takes off the record."""
    for _ in range(2):
        for item in list(store.mailboxes.pending.all()):
            interrupted.finish(store, item)


def mailboxes_on(store: Store) -> list[int]:
    return [mailbox for mailbox, _ in store.partitions["primary"].all_states()]


def fail(faults: Faults, store: Store, what: str, *, after: int = 0) -> None:
    """From the call of that number on, the list's log, the partition's, or its transactions fail."""
    primary, calls = store.partitions["primary"], iter(range(after))
    second = store.partitions.get("second", primary)
    owner, name = {"list": (store.mailboxes.env, "flush"), "partition": (primary.env, "flush"),
                   "transaction": (primary, "transact"), "second partition": (second.env, "flush"),
                   "second's transaction": (second, "transact")}[what]
    error = StoreError(Problem.DISK_FULL) if name == "transact" else Unflushed(errno.ENOSPC, os.strerror(errno.ENOSPC))
    faults.fail(owner, name, error, when=lambda *_, **__: next(calls, None) is None)


def refused(work: Callable[[], object]) -> None:
    """Refused; or neither that nor called done, when it may be."""
    with pytest.raises((StoreError, Unflushed)) as refusal:
        work()
    assert isinstance(refusal.value, Unflushed) or refusal.value.problem is Problem.DISK_FULL


def decided(work: Callable[[], object]) -> None:
    """What was asked for is done, and called done, whatever fails after its commit: housekeeping does the rest."""
    work()


def test_a_mailbox_whose_figures_could_not_be_flushed_is_gone_at_once(store: Store) -> None:
    before = mailboxes_on(store)
    with Faults() as faults:
        fail(faults, store, "partition")
        refused(lambda: namespace.create_mailbox(store, NEW))
    assert mailboxes_on(store) == before
    assert check(store) == []


def test_a_mailbox_whose_figures_could_not_be_taken_back_either(store: Store) -> None:
    before = mailboxes_on(store)
    with Faults() as faults:
        fail(faults, store, "partition")
        fail(faults, store, "transaction", after=1)
        refused(lambda: namespace.create_mailbox(store, NEW))
    assert len(mailboxes_on(store)) == len(before) + 1
    keep_house(store)
    assert mailboxes_on(store) == before
    assert check(store) == []
    namespace.create_mailbox(store, NEW)


@pytest.mark.parametrize(("what", "after"), [("partition", 0), ("transaction", 1), ("list", 1)])
def test_undelete(store: Store, what: str, after: int) -> None:
    deletion.delete_mailbox(store, ARCHIVE)
    use = roots.quota(store, "alice")
    with Faults() as faults:
        fail(faults, store, what, after=after)
        if what == "partition":
            fail(faults, store, "transaction", after=1)
        (decided if what == "transaction" else refused)(lambda: undelete_mailbox(store, ARCHIVE))
    keep_house(store)
    assert check(store) == []
    if store.mailboxes.find(ARCHIVE) is None:
        assert (roots.quota(store, "alice").octets, roots.quota(store, "alice").messages) == (use.octets, use.messages)
        undelete_mailbox(store, ARCHIVE)
    outcome, = deliver(store, MAIL, str(ARCHIVE))
    assert isinstance(outcome, Delivered)
    assert store.status(store.entry(ARCHIVE)).messages == roots.quota(store, "alice").messages == 2


@pytest.mark.parametrize("what", ["list", "partition", "transaction"])
def test_delete(store: Store, what: str) -> None:
    """It has left the list; its quota is given back."""
    with Faults() as faults:
        fail(faults, store, what)
        (refused if what == "list" else decided)(lambda: deletion.delete_mailbox(store, ARCHIVE))
        if what == "list":
            item, = (item for item in store.mailboxes.pending.all() if item[0] == mailboxes_on(store)[-1])
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                interrupted.finish(store, item)          # a crash could still bring the mailbox back
            assert roots.quota(store, "alice").messages == 1
    assert store.mailboxes.find(ARCHIVE) is None
    keep_house(store)
    assert check(store) == []
    assert roots.quota(store, "alice").messages == 0
    undelete_mailbox(store, ARCHIVE)
    assert roots.quota(store, "alice").messages == 1


@pytest.mark.parametrize("what", ["list", "transaction"])
def test_rename_to_another_quota_root(store: Store, what: str) -> None:
    namespace.create_mailbox(store, NEW)
    roots.set_quota(store, "alice/New", 1_000_000)
    with Faults() as faults:
        fail(faults, store, what)
        (refused if what == "list" else decided)(
            lambda: namespace.rename_mailbox(store, ARCHIVE, MailboxName("alice", "New/Archive")))
    assert roots.quota(store, "alice/New").messages == 0
    keep_house(store)
    assert roots.quota(store, "alice/New").messages == 1
    assert check(store) == []


@pytest.mark.parametrize(("what", "after"), [("transaction", 1), ("transaction", 2), ("list", 0)])
def test_purge(store: Store, what: str, after: int) -> None:
    deletion.delete_mailbox(store, ARCHIVE)
    keep_house(store)
    with Faults() as faults:
        fail(faults, store, what, after=after)
        refused(lambda: purge_mailboxes(store, 1 << 40))
    assert not list(store.mailboxes.deleted.all())
    keep_house(store)
    assert len(mailboxes_on(store)) == 2
    assert check(store) == []
    record, = (record for _, record in store.partitions["primary"].refs.all())
    assert record.references == 0


@pytest.mark.parametrize(("what", "after"), [("transaction", 1), ("transaction", 2), ("list", 1), ("list", 2),
                                             ("second partition", 3), ("second's transaction", 1)])
def test_move_to_another_partition(store: Store, what: str, after: int) -> None:
    """Wherever it is stopped, mail comes, without a restart and without another move."""
    volumes.add(store, "second")
    with Faults() as faults:
        fail(faults, store, what, after=after)
        try:
            partitionmove.move_owner(store, "alice", "second")
        except StoreError as refusal:
            assert refusal.problem is Problem.DISK_FULL
        except Unflushed as unknown:
            assert unknown.errno == errno.ENOSPC
    keep_house(store)
    assert check(store) == []
    outcome, = deliver(store, MAIL, str(ARCHIVE))
    assert isinstance(outcome, Delivered)
    assert store.status(store.entry(ARCHIVE)).messages == roots.quota(store, "alice").messages == 2


def test_what_somebody_moves_just_now_is_not_let_go(store: Store) -> None:
    partition, entry = store.partitions["primary"], store.entry(ARCHIVE)
    transact(store.mailboxes.env, lambda txn: store.mailboxes.pending.note([entry.id], txn))
    partition.transact(lambda txn: txn.set_state(entry.id, None, evolve(txn.any_state(entry.id), moving=MOVING)))
    with partitionmove.alone(store):
        keep_house(store)
        refusal, = deliver(store, MAIL, str(ARCHIVE))
        assert isinstance(refusal, StoreError) and refusal.problem is Problem.BUSY
    keep_house(store)
    outcome, = deliver(store, MAIL, str(ARCHIVE))
    assert isinstance(outcome, Delivered)


# Housekeeping comes in the middle of what is slow

def _create(store: Store) -> None:
    namespace.create_mailbox(store, NEW)


def _undelete(store: Store) -> None:
    deletion.delete_mailbox(store, ARCHIVE)
    undelete_mailbox(store, ARCHIVE, new_name=NEW)


def _import(store: Store) -> None:
    LiveLoader(store.partitions["primary"], store).load([new_mailbox(NEW)])


def _delete(store: Store) -> None:
    namespace.create_mailbox(store, NEW)
    deletion.delete_mailbox(store, ARCHIVE)


def _purge(store: Store) -> None:
    namespace.create_mailbox(store, NEW)
    deletion.delete_mailbox(store, ARCHIVE)
    purge_mailboxes(store, 1 << 40)


@pytest.mark.parametrize("do", [_create, _undelete, _import, _delete, _purge])
def test_a_round_at_every_moment(store: Store, faults: Faults, do: Callable[[Store], None]) -> None:
    """Before and after each transaction and flush, in the same way as another process might."""
    keeping = []

    def around(real: Callable[..., object], *arguments: object, **options: object) -> object:
        _keep_house_once(store, keeping)
        try:
            return real(*arguments, **options)
        finally:
            _keep_house_once(store, keeping)

    faults.around(Env, "flush", around)
    faults.around(Partition, "transact", around)
    do(store)
    faults.mend()
    assert len(keeping) >= 4
    assert check(store) == []
    outcome, = deliver(store, MAIL, str(NEW))
    assert isinstance(outcome, Delivered)
    assert store.status(store.entry(NEW)).messages == 1 + (do is _undelete)
    assert check(store) == []


def _keep_house_once(store: Store, keeping: list[bool]) -> None:
    if not keeping or not keeping[-1]:
        keeping.append(True)
        try:
            for item in list(store.mailboxes.pending.all()):
                interrupted.finish(store, item)
        finally:
            keeping.append(False)


def test_deleted_before_it_can_be_written_to(store: Store, faults: Faults) -> None:
    """Somebody else deletes it as soon as it is in the list: it does not come back by that."""
    def in_its_own_turn(*_: object, **__: object) -> None:
        if store.mailboxes.find(NEW) is not None:
            faults.mend()
            deletion.delete_mailbox(store, NEW)

    faults.before(Partition, "transact", in_its_own_turn)
    namespace.create_mailbox(store, NEW)
    assert store.mailboxes.find(NEW) is None
    assert check(store) == []


def test_two_who_bring_back_the_same(store: Store, faults: Faults) -> None:
    """The second one comes too late, and takes nothing away."""
    deletion.delete_mailbox(store, ARCHIVE)
    faults.first(Partition, "transact", lambda *_, **__: undelete_mailbox(store, ARCHIVE))
    with pytest.raises(StoreError) as refusal:
        undelete_mailbox(store, ARCHIVE, new_name=NEW)
    assert refusal.value.problem is Problem.NO_MAILBOX
    assert check(store) == []
    outcome, = deliver(store, MAIL, str(ARCHIVE))
    assert isinstance(outcome, Delivered)


def test_while_a_volume_is_missing_nothing_is_looked_at(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on record stays, and no round goes through all of it."""
    monkeypatch.setattr(interrupted, "PENDING_SECONDS", -10)
    namespace.create_mailbox(store, NEW)
    lost, begun = store.root / "partitions" / "lost", list(store.mailboxes.pending.all())
    lost.symlink_to(store.root / "nowhere")
    assert begun and not list(interrupted.pending(store))
    for item in begun:
        interrupted.finish(store, item)
    assert list(store.mailboxes.pending.all()) == begun
    lost.unlink()
    assert list(interrupted.pending(store)) == begun
