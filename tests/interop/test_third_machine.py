"""Three real machines: one serves, the second follows it and answers wait for its disk, the third follows the second.
Each takes its place in turn."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import command, wait
from tests.support.servers.backends import MESSAGE_ID, BackEnd, Relay, body
from tests.support.servers.standbymachines import (
    FURTHER,
    OWN,
    SERVED,
    following,
    in_step,
    is_current,
    is_superseded,
    three_machines,
)

pytestmark = [pytest.mark.long, pytest.mark.every_file]

LIMIT = 180


def deliver(server: BackEnd, name: str) -> None:
    with Lmtp(server.lmtp) as lmtp:
        reply, = lmtp.deliver("relay@example.org", ["alice"], body(name, 3000))
        assert reply.code == 250, reply


def inbox(machine: BackEnd) -> dict[int, str]:
    """UIDs and Message-IDs."""
    with Imap(machine.imap, "alice") as imap:
        imap.select()
        return {uid: MESSAGE_ID.search(octets)[1].decode() for uid, octets in imap.messages().items()}


def said(machine: BackEnd) -> str:
    """By `onecopy standby status`, whatever it thinks of it at this moment."""
    return command.run_here(("standby", "status"), machine.environment(), b"")[1]


def refused(machine: BackEnd, *words: str) -> str:
    """What the command says that fails."""
    found, _, complaint = command.run_here(words, machine.environment(), b"")
    assert found != 0
    return complaint


def until_current(machine: BackEnd) -> None:
    now = time.time()
    wait.until(lambda: is_current(machine, now), "the standby", pid=os.getpid(), limit=LIMIT)


def test_each_takes_its_place_in_turn(tmp_path: Path) -> None:
    """What was acknowledged is on the second machine at once, and on the third soon. Both are killed while they follow.
    The third one needs no copy of the databases to follow the second one when that serves."""
    with three_machines(tmp_path, synchronous=OWN) as (one, two, three):
        two.command("standby", "create", "--from", two.source)
        assert "cannot be reached" in refused(three, "standby", "create", "--from", three.source)
        with following(two) as second:
            wait.until(lambda: in_step(two), "the second machine", pid=os.getpid(), limit=LIMIT)
            deliver(one, "first@example.org")
            three.command("standby", "create", "--from", three.source)
            with Relay([one], ["alice"], "load") as relay:
                third = killed_half_way(three)
                second.kill()
                second.join()
                with following(two) as second:
                    wait.until(lambda: in_step(two), "the second machine again", pid=os.getpid(), limit=LIMIT)
                    with following(three):
                        assert third
                        until_current(three)
                        shows_each_other(one, two, three)
                        relay.stop()
                        assert not relay.errors
                        acknowledged = {name for _, name in relay.taken} | {"first@example.org"}
                        one.kill()
                        before = json.loads((three.root / "standby.json").read_text().splitlines()[0])["tables"]
                        assert "second.example.org answers" in refused(three, "standby", "promote", "--yes")
                        two.command("standby", "promote", "--yes")
                        two.options.pop("exchange.synchronous", None)
                        two.start()
                        there = inbox(two)
                        assert acknowledged <= set(there.values()) <= acknowledged | relay.doubtful
                        deliver(two, "second@example.org")
                        until_current(three)
                        goes_on_without_a_copy(three, before)
                        wait.until(lambda: is_superseded(one), "it serves no more", pid=os.getpid(), limit=LIMIT)
                        two.kill()
                        three.command("standby", "promote", "--yes")
        three.start()
        now = inbox(three)
        assert set(now.values()) == {*there.values(), "second@example.org"}
        assert there.items() <= now.items()
        deliver(three, "third@example.org")
        assert max(inbox(three)) > max(now) + 65_536        # no UID that was shown comes again
        three.check()


def killed_half_way(three: BackEnd) -> bool:
    """It follows, and is killed while much comes."""
    with following(three) as process:
        until_current(three)
        process.kill()
        process.join()
    return True


def shows_each_other(one: BackEnd, two: BackEnd, three: BackEnd) -> None:
    """`onecopy standby status` of each: who follows whom."""
    for machine, text in ((one, f"follows, through {OWN}"), (two, f"standby {FURTHER}"),
                          (three, f"{SERVED}, through {OWN}")):
        wait.until(lambda machine=machine, text=text: text in re.sub(" +", " ", said(machine)), text, pid=os.getpid(),
                   limit=LIMIT)


def goes_on_without_a_copy(three: BackEnd, before: dict[str, dict[str, str]]) -> None:
    """The logs of the machine that was promoted lead on: its databases were not copied again."""
    found = json.loads((three.root / "standby.json").read_text().splitlines()[0])
    assert found["tables"] == before and found["above"] == [] and found["succession"] == 1
    assert "copied again" not in (three.root.parent / "follow.err").read_text()
