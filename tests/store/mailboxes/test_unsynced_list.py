"""Nobody writes to a mailbox before its row in the list is on disk: a loss of power would take the mailbox away, and
mail that had been acknowledged would be where nobody finds it."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.delivery.commit import Delivered
from store.errors import Problem, StoreError
from store.housekeeping import interrupted
from store.mailboxes import deletion, namespace
from store.mailboxes.deletion import undelete_mailbox
from store.migration import uidvalidity
from store.partition.transactions import WriteTxn
from store.rebuild.desired import new_mailbox
from store.rebuild.liveloader import LiveLoader
from store.store import Store
from tests.support.faults.planted import Faults
from tests.support.stores.stores import deliver, make_store, reopen_after_crash

ARCHIVE = MailboxName("alice", "Archive")
MAIL = b"Subject: 1\r\n\r\nText\r\n"


def _fill(store: Store) -> None:
    LiveLoader(store.partitions["primary"], store).load([new_mailbox(ARCHIVE)])


def _undelete(store: Store) -> None:
    undelete_mailbox(store, ARCHIVE)


def _create(store: Store) -> None:
    namespace.create_mailbox(store, ARCHIVE)


WAYS = [_create, _undelete, _fill]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = make_store(tmp_path / "store")
    store.patience = 0.0
    namespace.create_mailbox(store, ARCHIVE)
    deletion.delete_mailbox(store, ARCHIVE)
    yield store
    assert check(store) == []
    store.close()


def busy(store: Store) -> bool:
    """Whether the mailbox is in the list and takes no mail."""
    if store.mailboxes.find(ARCHIVE) is None:
        return False
    outcome, = deliver(store, MAIL, str(ARCHIVE))
    return isinstance(outcome, StoreError) and outcome.problem is Problem.BUSY


def takes_mail(store: Store) -> bool:
    outcome, = deliver(store, MAIL, str(ARCHIVE))
    return isinstance(outcome, Delivered)


def fail_when_listed(store: Store, faults: Faults) -> None:
    """There is no room for the log when the mailbox has got into the list, nor after that."""
    faults.fail(store.mailboxes.env, "flush", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
                when=lambda: store.mailboxes.find(ARCHIVE) is not None)


@pytest.mark.parametrize("make", WAYS)
def test_who_comes_before_the_row_is_on_disk(store: Store, make: Callable[[Store], None],
                                             faults: Faults) -> None:
    seen = list[bool]()

    def look() -> None:
        if store.mailboxes.find(ARCHIVE) is not None and not seen:
            seen.append(busy(store))

    faults.before(store.mailboxes.env, "flush", look)
    make(store)
    assert seen == [True]
    assert takes_mail(store)


@pytest.mark.parametrize("make", WAYS)
def test_a_row_that_cannot_be_flushed(store: Store, make: Callable[[Store], None]) -> None:
    with Faults() as faults:
        fail_when_listed(store, faults)
        with pytest.raises((StoreError, OSError)):
            make(store)
        assert busy(store)
        mailbox = store.entry(ARCHIVE).id
        item, = (item for item in store.mailboxes.pending.all() if item[0] == mailbox)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            interrupted.finish(store, item)
        assert busy(store)
    interrupted.finish(store, item)      # housekeeping, when there is room again
    assert takes_mail(store)


@pytest.mark.parametrize("make", WAYS)
def test_a_crash_then(tmp_path: Path, make: Callable[[Store], None]) -> None:
    store = make_store(tmp_path / "store")
    store.patience = 0.0
    namespace.create_mailbox(store, ARCHIVE)
    deletion.delete_mailbox(store, ARCHIVE)
    with Faults() as faults:
        fail_when_listed(store, faults)
        with pytest.raises((StoreError, OSError)):
            make(store)
    store = reopen_after_crash(store)
    assert check(store) == []
    if store.mailboxes.find(ARCHIVE) is None:
        namespace.create_mailbox(store, ARCHIVE)
    assert takes_mail(store)
    assert check(store) == []
    store.close()


@pytest.mark.parametrize("make", WAYS)
def test_killed_when_the_row_is_on_disk(tmp_path: Path, make: Callable[[Store], None]
                                        , faults: Faults) -> None:
    """An import that made it and goes on can still give it the UIDs of the other server, though twice killed."""
    store = make_store(tmp_path / "store")
    store.patience = 0.0
    namespace.create_mailbox(store, ARCHIVE)
    deletion.delete_mailbox(store, ARCHIVE)
    faults.fail(WriteTxn, "make_writable", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        make(store)
    faults.mend()
    for _ in range(2):
        store = reopen_after_crash(store)
        assert check(store) == []
    entry = store.entry(ARCHIVE)
    assert store.partitions["primary"].has(entry.id)
    uidvalidity.rewind(store, entry, 1)
    assert store.status(entry).uidnext == 1
    assert takes_mail(store)
    store.close()


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
