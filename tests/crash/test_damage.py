"""A store is harmed in every way there is, and opened: it mends itself, nothing that was acknowledged is lost, nothing
wrong is shown, and the report names the damage.

The store is small, and each way harms a copy of it. `DAMAGES=all` tries every way on each store, else some are drawn.
`python -m tests.crash.damages FOLDER 200` harms a large store, and starts `onecopy serve` on it each time.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from mboxlist.names import MailboxName
from store import portable, recovery, refill, snapshots
from store.check import check
from store.store import Store
from tests.conftest import MEMORY
from tests.crash import harm
from tests.crash.harm import WAYS, Ledger, ledger
from tests.support import wait
from tests.support.imap import Imap
from tests.support.server import Server
from tests.support.stores import SMALL, deliver, make_store

MAILBOXES = ("user/alice/INBOX", "user/bob/INBOX", "user/alice/Archive")
TRACE = b"Return-Path: <sender@example.org>\r\nReceived: from a\r\n"
STAGES = ("young", "old", "snapshot")


def make(root: Path, stage: str) -> None:
    """A store with known content, killed in the middle of its work. `young`: with its log from the beginning; `old`:
    with no more of it than recovery needs; `snapshot`: as old, with a snapshot and the log since."""
    store = make_store(root)
    store.create_mailbox(MailboxName("alice", "Archive"))
    store.create_mailbox(MailboxName("alice", "Archive/2026"))
    store.subscribe("alice", "Archive")
    for number in range(40):
        deliver(store, b"Subject: %d\r\n\r\n%d %s\r\n" % (number, number, b"x" * 300), *MAILBOXES[:1 + number % 3],
                trace=TRACE if number % 2 else b"")
    for env in (store.mailboxes.env, store.partitions["primary"].env):
        env.checkpoint()
    if stage == "snapshot":
        snapshots.create(store)
    portable.write_changed(store, hurry=True)
    for number in range(40, 50):
        deliver(store, b"Subject: %d\r\n\r\nnew %d\r\n" % (number, number), *MAILBOXES[:1 + number % 3], trace=TRACE)
    portable.write_changed(store, hurry=True)
    for env in (store.mailboxes.env, store.partitions["primary"].env):
        if stage != "young":
            env.checkpoint()
            env.flush()
    harm.image(store, root.with_name("image"), from_first_log=stage == "young")
    store.close()
    shutil.rmtree(root)
    root.with_name("image").rename(root)


@pytest.fixture(scope="module")
def damaged(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path, Ledger]]:
    """What the ways begin with, and what was in it."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, harm.small():
        yield _damaged(request.param, Path(folder) / "store")


def _damaged(stage: str, root: Path) -> tuple[str, Path, Ledger]:
    make(root, stage)
    copy = root.with_name("whole")
    shutil.copytree(root, copy)
    store = Store(copy, SMALL)
    found = ledger(store)
    assert sum(map(len, found.values())) == 99 and store.recovery is not None and not store.recovery.events
    store.close()
    return stage, root, found


def _some() -> list[tuple[str, str]]:
    """Every way, or for each store those that are unlike each other."""
    if os.environ.get("DAMAGES") == "all":
        return [(stage, way) for stage in STAGES for way in WAYS]
    return [(stage, way) for stage, ways in FEW.items() for way in ways]


FEW = {
    "young": [f"a bit of {harm.INDEX}/index.db is flipped", f"{harm.LIST}/users.db is deleted",
              "bits of the newest log are flipped", "both folders are gone"],
    "old": [f"a bit of {harm.INDEX}/index.db is flipped", f"{harm.INDEX}/state.db is deleted",
            f"a page of {harm.INDEX}/messages.db is zeros", f"{harm.INDEX}/cache.db is deleted",
            f"{harm.LIST}/mailboxes.db is deleted", "the partition's folder is gone", "the logs are gone",
            "bits of the newest log are flipped", "the regions are another's"],
    "snapshot": [f"a page of {harm.INDEX}/index.db is junk", f"{harm.LIST}/users.db is deleted",
                 "both folders are empty", "the logs are gone"],
}


@pytest.mark.parametrize(("damaged", "way"), _some(), indirect=["damaged"])
def test_a_damaged_store_mends_itself(damaged: tuple[str, Path, Ledger], way: str, tmp_path: Path) -> None:
    stage, whole, before = damaged
    root = tmp_path / "store"
    shutil.copytree(whole, root, copy_function=harm.copy)
    said = WAYS[way](root, Random(f"{way} {stage}"))
    for _ in range(3):              # as the supervisor does: what is found in use is mended at the next start
        try:
            store = Store(root, SMALL)
            after = ledger(store)
            break
        except harm.BROKEN:
            harm.let_go(root)
    for item in list(refill.uncached(store)):
        refill.cache_one(store, item)
    wrong = harm.differences(before, after)
    assert store.recovery is not None and not wrong, (way, stage, wrong[:5], store.recovery.events)
    assert check(store) == [], (way, stage)
    told = [json.loads(path.read_text()) for path in sorted((root / "recovered").glob("*.json"))]
    assert harm.named(told, said), (said, told)
    deliver(store, b"Subject: after\r\n\r\nafter\r\n", *MAILBOXES)
    for (name, uids) in ((name, set(before[name])) for name in MAILBOXES):
        added = set(ledger(store)[name]) - uids
        assert len(added) == 1 and min(added) > max(uids), (name, added)
    store.close()
    again = Store(root, SMALL)
    assert again.recovery is not None and not again.recovery.events and check(again) == []
    again.close()


def test_a_page_that_goes_bad_in_use_is_mended_by_the_next_start(tmp_path: Path) -> None:
    """The supervisor's ordinary restart, once: the second start knows what the first one has met."""
    server = Server(tmp_path, ["alice"])
    bodies = [b"Subject: %d\r\n\r\n%s\r\n" % (number, b"x" * number) for number in range(3)]
    with server:
        with Imap(server.imap, "alice") as imap:
            for body in bodies:
                imap.append("INBOX", body)
        server.stop()
        harm.WAYS[f"a bit of {harm.INDEX}/index.db is flipped"](server.root, Random(1))
        for _ in range(2):              # the first time the server goes away, and comes back mended
            server.start() if not recovery.reports(server.root) and server._process is None else server.answers()
            with suppress(OSError, AssertionError), Imap(server.imap, "alice") as imap:
                imap.ok("SELECT INBOX")
                found = imap.ok("UID FETCH 1:* (UID BODY.PEEK[])").untagged
                break
            wait.until(lambda: bool(recovery.reports(server.root)), "the report", pid=server.pid, limit=60)
        assert [response.literals[0] for response in found if response.literals] == bodies
        (_, report), = recovery.reports(server.root)
        assert "index.db" in str(report) and server.stop() == 0
    server.check()
    assert "own log" in server.command("recover", "--list")
