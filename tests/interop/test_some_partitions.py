"""A standby that protects one of two partitions: what users of both hear after it was promoted, and how the other
partition comes home."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import command, wait
from tests.support.servers.backends import MESSAGE_ID, BackEnd, body
from tests.support.servers.standbymachines import SERVED, following, is_current, two_machines

pytestmark = pytest.mark.long


def answers(server: BackEnd, name: str, *users: str) -> list[int]:
    """What a relay hears for each recipient of one message."""
    with Lmtp(server.lmtp) as lmtp:
        return [reply.code
                for reply in lmtp.deliver("relay@example.org", list(users), body(f"{name}@example.org", 3000))]


def inbox(server: BackEnd, user: str) -> dict[int, str]:
    """The Message-ID of each message, by UID."""
    with Imap(server.imap, user) as imap:
        imap.select()
        return {uid: MESSAGE_ID.search(octets)[1].decode() for uid, octets in imap.messages().items()}


def test_the_other_partition_waits_and_comes_home(tmp_path: Path) -> None:
    with two_machines(tmp_path) as (one, two):
        one.command("partition", "add", "archive")
        one.command("user", "move", "bob", "--to", "archive")
        assert answers(one, "first", "alice", "bob") == [250, 250]
        two.command("standby", "create", "--from", two.source, "--partition", "primary")
        with following(two):
            assert answers(one, "second", "bob", "alice") == [250, 250]
            answered = time.time()
            wait.until(lambda: is_current(two, answered), "the standby", pid=os.getpid(), limit=300)
            said = two.command("standby", "status")
            assert f"NOT PROTECTED: partition archive is on {SERVED}, and not on this standby" in said, said
            assert json.loads(two.command("standby", "status", "--json"))["unprotected"] == {"archive": SERVED}
            wait.until(lambda: "NOT PROTECTED by second.example.org: partition archive" in command.run_here(
                ("standby", "status"), one.environment(), b"")[1], "its note", pid=one.pid, limit=300)
        before = inbox(one, "bob")
        one.kill()
        two.command("standby", "promote", "--yes")
        two.start()
        is_served_without(two)
        comes_home(one, two, before)


def is_served_without(two: BackEnd) -> None:
    """Users of the partition that is there, in full; the others hear that it is not there now (RFC 5530 §3, RFC 3206
    §3, RFC 3463 §3.4), and nothing is made anew."""
    assert list(inbox(two, "alice").values()) == ["first@example.org", "second@example.org"]
    with Lmtp(two.lmtp) as lmtp:
        taken, later = lmtp.deliver("relay@example.org", ["alice", "bob"], body("third@example.org", 3000))
    assert taken.code == 250 and (later.code, later.lines[0][:5]) == (451, "4.3.0")
    with Imap(two.imap, "bob") as imap:
        assert imap.ok('LIST "" *').find(rb"LIST .* INBOX$")
        for line in ("SELECT INBOX", "STATUS INBOX (MESSAGES)", "CREATE New"):
            refused = imap.command(line)
            assert (refused.status, refused.text[:13]) == ("NO", "[UNAVAILABLE]"), line
    with Pop3(two.pop3) as pop3:
        pop3.ok("USER bob")
        assert pop3.command("PASS secret").startswith("-ERR [SYS/TEMP]")
    found = two.command("check", status=1)
    assert f"partition archive: is only on {SERVED}" in found and len(found.splitlines()) == 1, found
    assert f"partition archive is only on {SERVED}" in two.command("partition", "list")
    listed, = json.loads(two.command("mailbox", "list", "bob", "--json"))
    assert (listed["mailbox"], listed["partition"], listed["messages"]) == ("INBOX", "archive", None)


def comes_home(one: BackEnd, two: BackEnd, before: dict[int, str]) -> None:
    """With the UIDs that were shown; then the first machine is a standby of all, and loses nothing of it."""
    said = json.loads(one.command("standby", "rejoin", "--from", one.source, "--dry-run", "--json"))
    assert [(each["partition"], each["messages"]) for each in said["partitions"]] == [("archive", 2)]
    assert (said["messages"], said["done"]) == (0, [])
    said = json.loads(one.command("standby", "rejoin", "--from", one.source, "--yes", "--json"))
    assert (said["brought"], said["there"], said["kept"]) == (0, 0, 0)
    assert before and inbox(two, "bob") == before
    assert answers(two, "fourth", "bob", "alice") == [250, 250]
    two.check()
    with following(one):
        answered = time.time()
        wait.until(lambda: is_current(one, answered), "the standby", pid=os.getpid(), limit=300)
    two.kill()
    one.command("standby", "promote", "--yes")
    one.start()
    assert sorted(inbox(one, "bob").values()) == ["first@example.org", "fourth@example.org", "second@example.org"]
    one.check()
