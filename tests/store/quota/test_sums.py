"""Quota use is compared with what mailboxes have from two tables alone, at rest and beside others; whatever cannot be
told like that is left to who opens the store."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mboxlist.engine import damagemarks
from mboxlist.names import MailboxName
from store.mailboxes import deletion, namespace
from store.opening import open_store
from store.partition import marks, processes
from store.partitions import volumes
from store.quota import roots, sums
from store.recovery import environments
from store.store import Store
from tests.support import ROOT
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL, deliver, make_store

INBOX = MailboxName("alice", "INBOX")


@pytest.fixture
def mail(tmp_path: Path) -> Iterator[Path]:
    """A store that nobody has open, with users of the default domain and another one, a root for a mailbox, a public
    mailbox, limits of a domain, and a deleted mailbox."""
    store = make_store(tmp_path / "mail", ("alice", "bob", "carol@example.com"))
    for name in (MailboxName("alice", "Archive/2026"), MailboxName("bob", "Old"), MailboxName("", "news/local")):
        namespace.create_mailbox(store, name)
    roots.set_quota(store, "alice/Archive", octets=1 << 20)
    roots.set_quota(store, "@example.com", octets=1 << 30)
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), "user/alice/INBOX", "user/bob/Old",
                "user/alice/Archive/2026", "user/carol@example.com/INBOX", "public/news/local")
    deletion.delete_mailbox(store, MailboxName("bob", "Old"))
    store.close()
    yield store.root
    if not any((store.root / name).exists() for name in sums.UNDER_WAY):
        assert processes.look(store.root / "run") == ([], [])


def spoil(root: Path, work: Callable[[Store], object]) -> None:
    store = open_store(root, SMALL)
    work(store)
    store.close()


def charged(name: str, octets: int, messages: int) -> Callable[[Store], None]:
    def work(store: Store) -> None:
        partition = store.partitions["primary"]
        partition.transact(lambda txn: partition.quotas.charge(name, octets, messages, txn.handle, enforce=False))
    return work


def without_row(name: str) -> Callable[[Store], None]:
    def work(store: Store) -> None:
        partition = store.partitions["primary"]
        partition.transact(lambda txn: partition.quotas.forget(name, txn.handle))
    return work


def files(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for folder in ("mboxlist", "partitions")
            for path in (root / folder).rglob("*")}


def test_a_store_at_rest_is_read_and_left_as_it_is(mail: Path) -> None:
    before = files(mail)
    assert sums.are_right(mail, "test")
    assert sums.are_right(mail, "test", "primary")
    assert files(mail) == before


WRONG = {
    "octets": charged("alice", 1, 0),
    "messages": charged("bob", 0, 1),
    "a root of its own": charged("alice/Archive", -1, 0),
    "public": charged("public/news", 0, -1),
    "another domain": charged("carol@example.com", 7, 0),
    "of nobody": charged("mallory", 5, 1),
    "no row": without_row("alice"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_whatever_is_wrong_is_seen_at_rest_and_in_use(mail: Path, wrong: str) -> None:
    spoil(mail, WRONG[wrong])
    assert not sums.are_right(mail, "test")
    store = open_store(mail, SMALL)
    assert not sums.are_right(mail, "test")
    store.close()


def test_a_row_without_use_is_no_fault(mail: Path) -> None:
    spoil(mail, lambda store: roots.set_quota(store, "bob", octets=9))
    spoil(mail, without_row("bob"))             # who has nothing but a deleted mailbox
    assert sums.are_right(mail, "test")


def test_beside_others_what_is_being_changed_is_looked_at_again(mail: Path, faults: Faults) -> None:
    store = open_store(mail, SMALL)
    answers: list[bool] = []

    def first_too_early(look: Callable[..., bool], *given: object) -> bool:
        answers.append(look(*given))
        return answers[-1] and len(answers) > 1

    faults.around(sums, "_agree", first_too_early)
    assert sums.are_right(mail, "test")
    assert answers == [True, True]
    assert store.partitions["primary"].env.active() == 0        # nothing stays locked
    assert processes.look(mail / "run")[0][0].who == ""          # the store's own
    store.close()


def test_nobody_comes_in_while_the_files_are_read(mail: Path, faults: Faults) -> None:
    def look(*_: object) -> bool:
        admission = os.open(mail / "run" / "door.lock", os.O_RDWR)
        try:
            with pytest.raises(BlockingIOError):
                processes.fcntl.flock(admission, processes.fcntl.LOCK_EX | processes.fcntl.LOCK_NB)
        finally:
            os.close(admission)
        return True
    faults.around(sums, "_agree", look)
    assert sums.are_right(mail, "test")


KILLED = """
from store.opening import open_store
import os, sys
from pathlib import Path
from store.settings import Settings
store = open_store(Path(sys.argv[1]), Settings(cache=1 << 20, disk_reserve=0, database_locks=20_000,
                                              special_mailboxes=()))
os.kill(os.getpid(), 9)
"""


def test_after_an_end_that_was_not_clean_the_store_is_opened(mail: Path) -> None:
    here = ROOT
    subprocess.run([sys.executable, "-P", "-c", KILLED, str(mail)], check=False,
                   env={**os.environ, "PYTHONPATH": str(here)})
    assert not sums.are_right(mail, "test")
    open_store(mail, SMALL).close()
    assert sums.are_right(mail, "test")


@pytest.mark.parametrize("what", [
    "unclean", "suspect", "touched", "restoring.json", "mending", "reconstruct", "rebuild", "no partition",
    "no table", "not a table"])
def test_what_cannot_be_told_is_left_to_who_opens_the_store(mail: Path, what: str) -> None:
    index = mail / "partitions" / "primary" / "index"
    if what in ("unclean", "suspect"):
        (index / what).touch()
    elif what == "touched":
        os.utime(index / "state.db")
    elif what == "no table":
        (index / "quota.db").unlink()
    elif what == "not a table":
        (index / "state.db").write_bytes(b"x" * 8192)
        damagemarks.mark_clean(index)
    elif what == "rebuild":
        (mail / "partitions" / "primary" / what).mkdir()
    elif what != "no partition":
        (mail / what).touch()
    assert not sums.are_right(mail, "test", "second" if what == "no partition" else None)


def test_these_names_are_those_of_others() -> None:
    assert sums.UNDER_WAY == (marks.RESTORING, environments.MENDING, marks.SCRATCH)
    assert sums.REBUILD == volumes.REBUILD
