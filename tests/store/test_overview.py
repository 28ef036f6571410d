"""Users, names and quota are known without opening the store, at rest and beside others, as whoever opens it knows
them; where that cannot be, it is left to who opens the store."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mboxlist.engine import damagemarks
from mboxlist.names import MailboxName
from store.mailboxes import firstuse, namespace
from store.opening import open_store
from store.partition import processes
from store.partitions import volumes
from store.quota import roots as quotaroots
from store.quota.overview import Overview, look
from store.quota.sums import UNDER_WAY
from tests.support.stores.stores import HASH, SMALL, deliver, make_store

OWNERS = ("alice", "bob", "carol@example.com", "")


@pytest.fixture
def mail(tmp_path: Path) -> Iterator[Path]:
    """A store that nobody has open, on two partitions, with an alias, a root for a mailbox, a public mailbox, and
    limits of a domain."""
    store = make_store(tmp_path / "mail", ("alice", "bob"))
    volumes.add(store, "second")
    firstuse.inbox(store, store.directory.add("carol@example.com", HASH, partition="second", aliases=["c@example.com"]))
    for name in (MailboxName("alice", "Archive/2026"), MailboxName("", "news/local")):
        namespace.create_mailbox(store, name)
    quotaroots.set_quota(store, "alice/Archive", octets=1 << 20)
    quotaroots.set_quota(store, "@example.com", octets=1 << 30)
    quotaroots.set_quota(store, "bob", messages=7)
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), "user/alice/INBOX", "user/alice/Archive/2026",
                "public/news/local")
    deliver(store, b"Subject: c\r\n\r\nc\r\n", "user/carol@example.com/INBOX")
    store.close()
    yield store.root
    if not any((store.root / name).exists() for name in UNDER_WAY):
        assert processes.look(store.root / "run") == ([], [])


def told(store: Overview) -> list[object]:
    """All that an overview is for."""
    roots = quotaroots.all_roots(store)
    return [list(store.directory.all()), store.directory.look_up("c@example.com"), store.directory.look_up("mallory"),
            roots, {root: quotaroots.quota(store, root) for root in (*roots, "@example.com", "@example.org",
                                                                     "bob/None")},
            {owner: store.names(owner) for owner in OWNERS}, sorted(store.domains.limited)]


def files(root: Path) -> dict[str, tuple[int, int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino, path.stat().st_size)
            for folder in ("mboxlist", "partitions") for path in (root / folder).rglob("*")}


def test_a_store_at_rest_is_told_of_and_left_as_it_is(mail: Path) -> None:
    before = files(mail)
    found = look(mail, SMALL, "test")
    assert found is not None
    seen = told(found)
    found.close()
    assert files(mail) == before
    store = open_store(mail, SMALL)
    assert seen == told(store)
    store.close()


def test_beside_others_all_that_was_committed_is_seen(mail: Path) -> None:
    store = open_store(mail, SMALL)
    firstuse.inbox(store, store.directory.add("dave", HASH))
    deliver(store, b"Subject: new\r\n\r\nnew\r\n", "user/dave/INBOX", "user/alice/INBOX")
    found = look(mail, SMALL, "test")
    assert found is not None
    assert told(found) == told(store)
    assert [one.who for one in processes.look(mail / "run")[0]] == ["", "test"]
    with open(mail / "run" / "door.lock", "rb+") as admission:
        processes.fcntl.flock(admission, processes.fcntl.LOCK_EX | processes.fcntl.LOCK_NB)     # others may come in
    found.close()
    assert store.partitions["primary"].env.active() == 0
    store.close()


def test_nobody_comes_in_while_the_files_are_read(mail: Path) -> None:
    found = look(mail, SMALL, "test")
    assert found is not None
    with open(mail / "run" / "door.lock", "rb+") as admission:
        with pytest.raises(BlockingIOError):
            processes.fcntl.flock(admission, processes.fcntl.LOCK_EX | processes.fcntl.LOCK_NB)
        found.close()
        processes.fcntl.flock(admission, processes.fcntl.LOCK_EX | processes.fcntl.LOCK_NB)


KILLED = """
from store.opening import open_store
import os, sys
from pathlib import Path
from tests.support.stores.stores import HASH, SMALL
from store.store import Store
store = open_store(Path(sys.argv[1]), SMALL)
store.directory.add("eve", HASH)
os.kill(os.getpid(), 9)
"""


def test_after_an_end_that_was_not_clean_the_store_is_opened(mail: Path) -> None:
    here = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-P", "-c", KILLED, str(mail)], check=False,
                   env={**os.environ, "PYTHONPATH": str(here)})
    assert look(mail, SMALL, "test") is None
    open_store(mail, SMALL).close()
    found = look(mail, SMALL, "test")
    assert found is not None and found.directory.find("eve") is not None
    found.close()


@pytest.mark.parametrize("what", [
    "unclean", "suspect", "touched", "users touched", "restoring.json", "mending", "reconstruct", "rebuild",
    "no partition", "no table", "not a table", "no store"])
def test_what_cannot_be_told_is_left_to_who_opens_the_store(mail: Path, what: str) -> None:
    second = mail / "partitions" / "second"
    if what in ("unclean", "suspect"):
        (second / "index" / what).touch()
    elif what == "touched":
        os.utime(second / "index" / "quota.db")
    elif what == "users touched":
        os.utime(mail / "mboxlist" / "users.db")
    elif what == "no table":
        (second / "index" / "quota.db").unlink()
    elif what == "not a table":
        (mail / "mboxlist" / "users.db").write_bytes(b"x" * 8192)
        damagemarks.mark_clean(mail / "mboxlist")
    elif what == "rebuild":
        (second / what).mkdir()
    elif what == "no partition":
        second.rename(mail / "elsewhere")
        second.symlink_to("nowhere")
    elif what == "no store":
        for path in (mail / "run").rglob("*"):
            if path.is_file():
                path.unlink()
        (mail / "run" / "inside").rmdir()
        (mail / "run").rename(mail / "ran")
    else:
        (mail / what).touch()
    assert look(mail, SMALL, "test") is None
    if what != "no store":
        assert processes.look(mail / "run") == ([], [])
