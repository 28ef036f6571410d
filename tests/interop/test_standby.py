"""A real server, and a standby that follows it over mutual TLS: what was answered is there after a promotion."""

import contextlib
import itertools
import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.net import controlchannel
from tests.support.clients import dashboard
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import command, wait
from tests.support.processes.ports import free_port
from tests.support.servers.backends import MESSAGE_ID, BackEnd, body, dump
from tests.support.servers.standbymachines import (
    SERVED,
    USERS,
    StandbyMachine,
    following,
    is_current,
    is_superseded,
    two_machines,
)
from tests.tools.server.test_administration import values

pytestmark = pytest.mark.every_file

STRANGER = "third.example.org"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BackEnd, StandbyMachine]]:
    with two_machines(tmp_path_factory.mktemp("standby")) as made:
        yield made


def deliver(server: BackEnd, name: str, *users: str) -> None:
    with Lmtp(server.lmtp) as lmtp:
        for reply in lmtp.deliver("relay@example.org", list(users), body(name, 3000)):
            assert reply.code == 250, reply


def status(machine: StandbyMachine, expected: int) -> dict[str, object]:
    found: dict[str, object] = json.loads(machine.command("standby", "status", "--json", status=expected))
    return found


def told(machine: StandbyMachine) -> str:
    """What `onecopy standby status` prints, if it is known yet."""
    return command.run_here(("standby", "status"), machine.environment(), b"")[1]


def test_who_may_not_copy_the_store_learns_nothing(machines: tuple[BackEnd, StandbyMachine], tmp_path: Path) -> None:
    """A certificate that is trusted is not enough: its name must be among exchange.standbys; and who is in no
    exchange.peers moves no users."""
    one, two = machines
    stranger = StandbyMachine(tmp_path / "three", {**two.options, "root": str(tmp_path / "three/store"),
                                                   "exchange.host": STRANGER})
    with open(two.options["exchange.authorities"], "a") as file:
        file.write(stranger.command("config", "certificate"))
    status, _, complaint = command.run(("standby", "create", "--from", two.source), stranger.environment(), b"", 300)
    assert status == 1
    assert "is not among" in complaint
    assert not (stranger.root / "mboxlist").exists()


def test_all_that_was_answered_is_there(machines: tuple[BackEnd, StandbyMachine], tmp_path: Path) -> None:
    """Beside a server that goes on; and whoever has followed it for long enough takes its place."""
    one, two = machines
    for number in range(5):
        deliver(one, f"before-{number}@example.org", *USERS)
    two.command("standby", "create", "--from", two.source)
    assert "no process follows" in str(status(two, 1)["trouble"])
    two.command("serve", status=1)
    assert controlchannel.names(one.root / "run") == ["exchange-1", "keeper"]      # it is served beside the mail
    with following(two):
        for number in range(5):
            deliver(one, f"since-{number}@example.org", *USERS)
        with Imap(one.imap, "alice") as imap:
            imap.ok("CREATE Archive")
            imap.select()
            imap.ok("UID MOVE 2:3 Archive")
            imap.ok("UID STORE 4 +FLAGS (\\Flagged $Later)")
        answered = time.time()
        wait.until(lambda: is_current(two, answered), "the standby", pid=os.getpid(), limit=180)
        said = status(two, 0)
        assert said["follows"] == SERVED and said["trouble"] == ""
        before = {user: dump(one, user) for user in USERS}
        two.options["http.port"] = str(free_port())
        with two.serving_for_reading():
            reads_only(one, two, tmp_path, before)
            on_the_dashboard(one, two, tmp_path)
            before = {user: dump(one, user) for user in USERS}
            two.command("standby", "promote", "--yes", status=2)        # the other machine answers
            assert status(two, 0)["process"]
            one.kill()
            two.command("standby", "promote", "--yes")      # ends what follows, and what is read
        assert not (two.root / "reading").exists()
    two.start()
    after = {user: dump(two, user) for user in USERS}
    assert without_figures(after) == without_figures(before)
    deliver(two, "after@example.org", "alice")
    two.check()
    wait.until(lambda: "away" in told(two), "its standby is away: nobody follows", pid=os.getpid(), limit=180)
    wait.until(lambda: is_superseded(one), "it serves no more", pid=os.getpid(), limit=180)


def reads_only(one: BackEnd, two: StandbyMachine, folder: Path, expected: dict[str, dict[str, object]]) -> None:
    """IMAP is served from what the standby has, while it follows, and refuses changes (RFC 3501 §6.3.1, RFC 5530). What
    comes later is seen later, by who connects then; who has connected before goes on. A backup is made there by the
    command that is typed elsewhere, too."""
    said, known = (re.sub(r"PERMANENTFLAGS \([^)]*\)", "", without_figures(each)) for each in (
        {user: dump(two, user) for user in USERS}, expected))       # none are permanent there
    assert said == known
    with Imap(two.imap, "alice") as imap:
        assert b", for reading: the mail of " in imap.greeting.text
        assert imap.ok("SELECT INBOX").text.startswith("[READ-ONLY]")
        assert imap.command("STORE 1 +FLAGS (\\Seen)").text.startswith("[UNAVAILABLE]")
        there = len(imap.uids())
        deliver(one, "later@example.org", "alice")
        wait.until(lambda: messages(two) == there + 1, "what came later", pid=os.getpid(), limit=300)
        imap.ok("NOOP")
        assert len(imap.uids()) == there
    two.command("backup", "--to", str(folder / "backup.tar"), "--json")
    assert json.loads(two.command("backup", "verify", str(folder / "backup.tar"), "--json"))
    two.command("mailbox", "create", "alice", "New", status=1)
    assert json.loads(two.command("standby", "status", "--json"))["reading"]["process"]
    reader = json.loads(two.command("standby", "copy", "--to", str(folder / "reader"), "--json"))["root"]
    two.command("check", "--root", reader)
    two.command("check", "--repair", "--root", reader, status=2)


def on_the_dashboard(one: BackEnd, two: StandbyMachine, folder: Path) -> None:
    """The queries of its row find what both machines tell. (In step is one that answers wait for: not this one.)"""
    samples = values(one.command("stats", "--prometheus"))
    follows, = (name for name in samples if name.startswith("onecopy_standby_connected"))
    samples[follows.replace("connected", "in_step")] = 1
    with urllib.request.urlopen(f"http://127.0.0.1:{two.options['http.port']}/metrics", timeout=180) as answer:
        samples["onecopy_as_of_timestamp_seconds"] = values(answer.read().decode())["onecopy_as_of_timestamp_seconds"]
    asked = dashboard.queries(standby=True)
    assert len(asked) == 6
    assert dashboard.empty(samples, asked, folder) == []
    assert len(dashboard.empty({}, asked, folder)) == 6


def messages(two: StandbyMachine) -> int:
    """How many a client finds that connects now."""
    with contextlib.suppress(OSError), Imap(two.imap, "alice") as imap:
        imap.select()
        return len(imap.uids())
    return 0


def without_figures(found: dict[str, dict[str, object]]) -> str:
    """What is shown, but for UIDNEXT, HIGHESTMODSEQ and the MODSEQ of each message, which have skipped."""
    return re.sub(r"(UIDNEXT|HIGHESTMODSEQ|MODSEQ) \(?\d+\)?", r"\1", repr(found))


def test_nothing_older_than_what_is_reported_is_lost(tmp_path: Path) -> None:
    """The first machine is killed under load, and the process that follows, too."""
    with two_machines(tmp_path) as (one, two):
        two.command("standby", "create", "--from", two.source)
        answered: dict[bytes, float] = {}
        uids: dict[int, bytes] = {}
        with following(two) as follower, contextlib.suppress(OSError, ConnectionError):
            with Lmtp(one.lmtp) as lmtp, Imap(one.imap, "alice") as imap:
                seen = 0.0
                for number in itertools.count():
                    name = b"load-%d@example.org" % number
                    reply, = lmtp.deliver("relay@example.org", ["alice"], body(name.decode(), 2000))
                    assert reply.code == 250, reply
                    answered[name] = time.time()
                    if number == 20:
                        imap.select()
                        uids = {uid: MESSAGE_ID.search(octets)[1] for uid, octets in imap.messages().items()}
                        seen = time.time()
                    if number > 60 and is_current(two, seen):
                        follower.kill()
                        follower.join()
                        for name in ("late-1", "late-2"):
                            deliver(one, f"{name}@example.org", *USERS)
                        imap.ok("UID SEARCH 1")
                        late = max(imap.messages())
                        imap.ok(f"UID STORE {late} +FLAGS (\\Flagged $Late)")
                        one.kill()
        assert len(answered) > 60
        current = json.loads((two.root / "run/standby").read_text())["current"]
        assert "no process follows" in str(status(two, 1)["trouble"])
        two.command("standby", "promote", "--yes")
        two.start()
        with Imap(two.imap, "alice") as imap:
            imap.select()
            there = {uid: MESSAGE_ID.search(octets)[1] for uid, octets in imap.messages().items()}
        assert {name for name, when in answered.items() if when < current} <= set(there.values()) <= set(answered)
        assert uids and {uid: there.get(uid) for uid in uids} == uids
        deliver(two, "after@example.org", "alice")
        with Imap(two.imap, "alice") as imap:
            imap.select()
            assert max(imap.messages()) > len(answered) + 65_536      # no UID that was shown comes again
        comes_back(one, two, {*answered, b"after@example.org", b"late-1@example.org", b"late-2@example.org"})
        two.check()


def comes_back(one: BackEnd, two: BackEnd, names: set[bytes]) -> None:
    """The machine that was lost brings what only it has to the one that was promoted, once, and follows it; and takes
    its place again."""
    found = json.loads(one.command("standby", "rejoin", "--from", one.source, "--dry-run", "--json"))
    late = [each for each in found["mail"] if each["mailbox"] == "user/bob/INBOX"]
    assert len(late) == 2 and found["messages"] >= 4
    assert found == json.loads(one.command("standby", "rejoin", "--from", one.source, "--dry-run", "--json"))
    said = json.loads(one.command("standby", "rejoin", "--from", one.source, "--yes", "--json"))
    assert (said["brought"], said["there"], said["kept"]) == (found["messages"], 0, 0)
    assert inbox(two, "alice") == sorted(names)
    assert inbox(two, "bob") == [b"late-1@example.org", b"late-2@example.org"]
    with Imap(two.imap, "alice") as imap:
        imap.select()
        assert imap.ok("UID SEARCH FLAGGED KEYWORD $Late").find(rb"SEARCH \d+$")
    with following(one):
        deliver(two, "last@example.org", "alice")
        answered = time.time()
        wait.until(lambda: is_current(one, answered), "the standby", pid=os.getpid(), limit=180)
    two.kill()
    one.command("standby", "promote", "--yes")
    one.start()
    assert inbox(one, "alice") == sorted({*names, b"last@example.org"})
    one.check()


def inbox(machine: BackEnd, user: str) -> list[bytes]:
    """The Message-IDs of all messages, each as often as it is there."""
    with Imap(machine.imap, user) as imap:
        imap.select()
        return sorted(MESSAGE_ID.search(octets)[1] for octets in imap.messages().values())
