"""Stores that older versions made open, are whole, show what they showed, and go on.

`tests/support/stores/oldstore.py` says how they were made.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mboxlist.names import MailboxName
from store.mailboxes.authorization import annotations
from store.opening import open_store
from tests.support import ROOT
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.servers.server import Server
from tests.support.stores.oldstore import ANNOTATE, SECOND, SEEN, SNAPSHOT, USERS, mail, seen_by_all, unpack
from tests.support.stores.stores import SMALL

ARCHIVES = sorted((ROOT / "tests" / "data").glob("store-*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """It does not run yet."""
    unpack(request.param, tmp_path)
    made = Server(tmp_path, options={"lmtp.delivered_to": "yes"})
    made.command("check", "--repair")           # others could read the files of those versions
    made.check()
    with contextlib.ExitStack() as ending:
        ending.push(made)
        yield made
        assert made.stop() == 0
        made.check()


def seen(server: Server) -> dict[str, Any]:
    return seen_by_all(server.imap, server.pop3)


def messages(seen: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Without what a snapshot does not bring back, such as the mailbox's UIDVALIDITY."""
    return {(user, name): box["messages"] for user, what in seen.items() for name, box in what["mailboxes"].items()}


def test_it_shows_what_it_showed_and_goes_on(server: Server, tmp_path: Path) -> None:
    store = open_store(server.root, SMALL)
    name, value, user = ANNOTATE
    assert annotations(store, store.entry(MailboxName.parse("user/alice/Work")), user)[name] == value
    store.close()
    server.start()
    assert seen(server) == json.loads((tmp_path / SEEN).read_text())
    files = len(server.messages)
    with Lmtp(server.lmtp) as lmtp:
        assert {each.code for each in lmtp.deliver("dave@example.org", USERS, mail("all-0"))} == {250}
        assert len(server.messages) == files                    # it knows those of then
        assert {each.code for each in lmtp.deliver("dave@example.org", USERS, mail("new"))} == {250}
    assert len(server.messages) == files + 2
    with Imap(server.imap, "alice") as alice:
        alice.select()
        last = alice.uids()[-1]
        alice.ok(rf"UID STORE {last} +FLAGS (\Seen $Label1)")
        alice.ok(r"UID STORE 1 +FLAGS (\Deleted)")
        alice.ok("UID EXPUNGE 1")
        alice.ok("UID COPY 3 Work")
    server.command("undelete", "alice", "INBOX")
    server.command("mailbox", "undelete", "alice", "Old")
    with Imap(server.imap, "alice") as alice:
        alice.select()
        found = alice.messages(f"{last + 1}:*")
        assert {each.partition(b"Subject: ")[2].split()[0] for each in found.values()} == {b"all-0", b"all-1"}
        assert alice.select("Old")[1] == 1 and mail("old") in alice.messages().values()
        assert alice.select("Work")[1] == 6


def test_its_databases_and_its_snapshot_come_back(server: Server, tmp_path: Path) -> None:
    """The databases of each partition, from the user area and message files of that version."""
    for lost in "primary", SECOND:
        shutil.rmtree(server.root / "partitions" / lost / "index")
        server.command("reconstruct", "--partition", lost)
    server.start()
    assert seen(server) == json.loads((tmp_path / SEEN).read_text())
    assert server.stop() == 0
    server.command("snapshot", "restore", "--exact", "--yes")
    server.start()
    assert messages(seen(server)) == messages(json.loads((tmp_path / SNAPSHOT).read_text()))
