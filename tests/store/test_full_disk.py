"""What changes the list of mailboxes, or users, while the disk is full or failing: it is refused for now, with no error
that nobody expects. When the disk is well again, the same can be done."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Deadlock, Failure, Unflushed
from mboxlist.names import MailboxName
from store.accounts.base import Account, Status
from store.accounts.builtin import BuiltinDirectory
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import interrupted
from store.mailboxes import authorization, deletion, firstuse, namespace, subscribing
from store.mailboxes.expunge import remove
from store.migration import uidvalidity
from store.opening import open_store
from store.partitions import partitionmove, volumes
from store.quota import roots
from store.readonly import readingcopy
from store.rebuild.desired import new_mailbox
from store.rebuild.liveloader import LiveLoader
from store.store import Store
from store.users import lifecycle, renaming, restorable
from tests.support.faults.planted import Faults
from tests.support.stores.purging import purge_mailboxes
from tests.support.stores.stores import HASH, SMALL, deliver, make_store

ALICE, ARCHIVE = MailboxName("alice", "INBOX"), MailboxName("alice", "Archive")
OLD, NEW = MailboxName("alice", "Old"), MailboxName("alice", "New")
MAIL = b"Subject: 1\r\n\r\nText\r\n"
#: What an operation may say that had been done when it was refused.
DONE = {Problem.MAILBOX_EXISTS, Problem.NO_MAILBOX, Problem.USER_EXISTS, Problem.NO_USER, Problem.NO_PERMISSION,
        Problem.BAD_NAME}


def _directory(store: Store) -> BuiltinDirectory:
    assert isinstance(store.directory, BuiltinDirectory)
    return store.directory


def _account(store: Store, user: str) -> Account:
    account = store.directory.find(user)
    assert account is not None
    return account


#: What writes, and may be called by a server or a command.
OPERATIONS: dict[str, Callable[[Store], object]] = {
    "create": lambda store: namespace.create_mailbox(store, NEW),
    "first use": lambda store: firstuse.inbox(store, _account(store, "carol")),
    "rename": lambda store: namespace.rename_mailbox(store, ARCHIVE, NEW),
    "rename INBOX": lambda store: namespace.rename_mailbox(store, ALICE, NEW),
    "delete": lambda store: deletion.delete_mailbox(store, ARCHIVE),
    "subscribe": lambda store: subscribing.subscribe(store, "alice", "Archive"),
    "unsubscribe": lambda store: subscribing.unsubscribe(store, "alice", "INBOX"),
    "claim recent": lambda store: store.claim_recent(store.entry(ALICE)),
    "set a limit": lambda store: roots.set_quota(store, "alice", 1_000_000),
    "remove a quota root": lambda store: roots.remove_quota_root(store, "alice/Archive"),
    "remove all of a user": lambda store: lifecycle.remove_mail(store, "bob"),
    "undelete a mailbox": lambda store: deletion.undelete_mailbox(store, OLD),
    "undelete messages": lambda store: deletion.undelete_messages(store, store.entry(ALICE)),
    "purge mailboxes": lambda store: purge_mailboxes(store, 1 << 40),
    "rights": lambda store: authorization.set_acl(store, ARCHIVE, "bob", "lr"),
    "annotate": lambda store: authorization.annotate(store, store.entry(ALICE), "/shared/comment", b"one"),
    "remove a user": lambda store: lifecycle.remove_user(store, "alice"),
    "restore a user": lambda store: lifecycle.restore_user(store, "dave"),
    "forget a user": lambda store: restorable.forget_user(store, "bob"),
    "rename a user": lambda store: renaming.rename_user(store, "alice", "alicia"),
    "undelete a user": lambda store: restorable.undelete_user(store, "erin"),
    "drop a user": lambda store: restorable.drop(store, "erin"),
    "add to the directory": lambda store: _directory(store).add("frank", HASH),
    "change the directory": lambda store: _directory(store).change("alice", status=Status.INACTIVE),
    "remove from the directory": lambda store: _directory(store).remove("carol"),
    "rules of a domain": lambda store: _directory(store).domains.set_access("example.org", "+imap:all"),
    "flush the directory": lambda store: _directory(store).domains.next_epoch(),
    "the directory's secret": lambda store: _directory(store).domains.secret(),
    "adopt": lambda store: uidvalidity.adopt(store, store.entry(NEW), 4_000_000_000),
    "import": lambda store: LiveLoader(store.partitions["primary"], store).load([new_mailbox(NEW)]),
    "move": lambda store: partitionmove.move_owner(store, "alice", "second"),
}
#: These are not on disk when they are answered, nor need they be.
UNFLUSHED = {"claim recent", "drop a user"}


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    store = make_store(tmp_path / "store", ("alice", "bob", "dave", "erin"))
    volumes.add(store, "second")
    _directory(store).add("carol", HASH)
    lifecycle.remove_user(store, "dave")
    restorable.forget_user(store, "erin")
    for name in (ARCHIVE, OLD):
        namespace.create_mailbox(store, name)
    deletion.delete_mailbox(store, OLD)
    if request.node.callspec.params["name"] == "adopt":
        namespace.create_mailbox(store, NEW)
    roots.set_quota(store, "alice/Archive", 1_000_000)
    subscribing.subscribe(store, "alice", "INBOX")
    deliver(store, MAIL, str(ALICE))
    deliver(store, MAIL, str(ALICE))
    remove(store, store.entry(ALICE), [1])
    yield store
    for item in list(store.mailboxes.pending.all()):        # housekeeping, a minute later
        interrupted.finish(store, item)
    assert check(store) == []
    store.close()


@pytest.mark.parametrize("name", OPERATIONS)
def test_refused_for_now(store: Store, faults: Faults, name: str) -> None:
    operation = OPERATIONS[name]
    for error, problem in ((Failure(errno.ENOSPC, "no room"), Problem.DISK_FULL),
                           (Failure(errno.EIO, "no disk"), Problem.UNAVAILABLE),
                           (Deadlock[0](-30993, "deadlock"), Problem.BUSY)):
        faults.fail(Env, "begin", error, when=lambda *_, reads=False, **__: not reads)
        with pytest.raises(StoreError) as refused:
            operation(store)
        faults.mend()
        assert refused.value.problem is problem
    operation(store)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in UNFLUSHED])
@pytest.mark.parametrize(("error", "problem"), [(errno.ENOSPC, Problem.DISK_FULL), (errno.EIO, Problem.UNAVAILABLE)])
def test_the_log_cannot_be_written(store: Store, faults: Faults, name: str, error: int,
                                   problem: Problem) -> None:
    """Before anything is done it is refused; when it may be done, it is neither refused nor called done. A step after
    what was asked for (`after_commit`) turns nothing."""
    faults.fail(Env, "flush", Unflushed(error, os.strerror(error)))
    try:
        OPERATIONS[name](store)
    except StoreError as refused:
        assert refused.problem is problem
    except Unflushed as unknown:
        assert unknown.errno == error
    else:
        raise AssertionError("called done")
    faults.mend()
    try:
        OPERATIONS[name](store)
    except StoreError as again:
        assert again.problem in DONE


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "the directory's secret"])   # it is there
def test_refused_in_a_copy_for_reading(store: Store, name: str) -> None:
    """And nothing of the store itself is touched, which may not be writable."""
    for env in (store.mailboxes.env, *(partition.env for partition in store.partitions.values())):
        env.flush()
    before = _files(store)
    copied = open_store(readingcopy.make(store.root, SMALL.cache), SMALL)
    try:
        assert copied.read_only
        with pytest.raises(StoreError) as refused:
            OPERATIONS[name](copied)
        assert refused.value.problem is Problem.READ_ONLY
        assert str(copied.status(copied.entry(ALICE))) == str(store.status(store.entry(ALICE)))
    finally:
        copied.close()
        readingcopy.remove(store.root)
    assert _files(store) == before


def _files(store: Store) -> dict[str, tuple[int, int]]:
    places = [partition.folder / part for partition in store.partitions.values()
              for part in ("users", "messages", "staging")]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for place in places for path in place.rglob("*")}
