"""Clients over a failover: mbsync, and one that comes back by QRESYNC. The first machine is killed under load, the
standby is promoted, and each client goes on there with what it had.

In asynchronous mode the last changes are lost, although both clients have seen them.
"""

import math
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.cachingclient import CachingClient, truth
from tests.support.clients.clients import Message
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.mbsync import QUIET, Pair
from tests.support.processes import wait
from tests.support.servers.backends import MESSAGE_ID, BackEnd, body
from tests.support.servers.failoverwork import Work
from tests.support.servers.server import PASSWORD
from tests.support.servers.standbymachines import OWN, USERS, StandbyMachine, in_step, is_current, two_machines
from tests.support.stores.maildir import Maildir

LIMIT = 180.0
SYNCED, CACHED = USERS          # who uses mbsync, and who a client with QRESYNC

pytestmark = pytest.mark.long


def far(server: BackEnd) -> str:
    """That account for mbsync, without TLS."""
    return (f"IMAPStore far\nHost 127.0.0.1\nPort {server.imap}\nUser {SYNCED}\nPass {PASSWORD}\nSSLType None\n"
            f"AuthMechs LOGIN\n\n")


def near(here: Maildir) -> str:
    """That Maildir for mbsync."""
    return f"MaildirStore near\nPath {here.root}/\nInbox {here.root}/INBOX\nSubFolders Verbatim\n\n"


def names(found: Iterable[bytes]) -> list[bytes]:
    """The Message-IDs of messages, each as often as it is there."""
    return sorted(MESSAGE_ID.search(octets.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))[1]   # type: ignore[index]
                  for octets in found)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_clients_go_on_with_what_they_had(tmp_path: Path, mode: str) -> None:
    here, client, work = Maildir(tmp_path / "mail"), CachingClient(), Work()
    here.create("INBOX")
    with two_machines(tmp_path, **({"synchronous": OWN} if mode == "synchronous" else {})) as (one, two):
        pair = Pair(tmp_path, far(one) + near(here))
        two.command("standby", "create", "--from", two.source)
        with two.following() as follower:
            if mode == "synchronous":
                wait.until(lambda: in_step(two), "the standby", pid=os.getpid(), limit=LIMIT)
            thread = threading.Thread(target=work.run, args=(one,), daemon=True)
            thread.start()
            under_load(one, two, work, client, pair, here)
            current = math.inf
            if mode == "asynchronous":
                current = what_will_be_lost(one, two, work, client, pair, follower)
            running = pair.begin()
            work.more(2)
            one.kill()
            thread.join(LIMIT)
            assert not thread.is_alive() and not work.errors
            running.wait(LIMIT)
        two.command("standby", "promote", "--yes")
        two.start()
        pair.move(far(two) + near(here))
        all_are_alike(two, client, pair, here)
        work.judge(client, current)
        if mode == "asynchronous":
            assert work.delivered.keys() - work.begun - set(names(client.octets.values())), "nothing was lost"
            one.command("standby", "rejoin", "--from", one.source, "--yes")
            all_are_alike(two, client, pair, here)
            assert work.delivered.keys() - work.begun <= set(names(client.octets.values()))
        after(two)
        all_are_alike(two, client, pair, here)
        two.check()


def synchronise(server: BackEnd, client: CachingClient) -> None:
    with Imap(server.imap, CACHED) as imap:
        client.synchronise(imap)


def under_load(one: BackEnd, two: StandbyMachine, work: Work, client: CachingClient, pair: Pair, here: Maildir) -> None:
    """Both clients have most of it, and mbsync's user has done something, too."""
    work.more(9)
    synchronise(one, client)
    pair.sync()
    here.mark(here.files("INBOX")[0], [r"\Flagged"])
    here.files("INBOX")[1].unlink()
    here.put("INBOX", Message(body("near@example.org")))
    for _ in range(3):
        work.more(3)
        synchronise(one, client)
    pair.sync()


def what_will_be_lost(one: BackEnd, two: StandbyMachine, work: Work, client: CachingClient, pair: Pair, follower: Any
                      ) -> float:
    """The process that follows ends, and all goes on. The clients see it. The time up to which nothing may be lost."""
    began = time.time()
    wait.until(lambda: is_current(two, began), "the standby", pid=os.getpid(), limit=LIMIT)
    follower.kill()
    follower.join()
    with Imap(one.imap, CACHED) as imap:        # of messages that both machines have
        imap.select()
        first, second, third, *_ = imap.uids()
        imap.ok(f"UID STORE {first} +FLAGS (\\Answered)")
        imap.ok(f"UID STORE {second} FLAGS ()")
        imap.ok(f"UID STORE {third} +FLAGS (\\Deleted)")
        imap.ok(f"UID EXPUNGE {third}")
    work.more(6)
    synchronise(one, client)
    pair.sync()
    assert third not in client.flags and rb"\Answered" in client.flags[first]
    return began


def after(server: BackEnd) -> None:
    """All goes on, and no UID means something else."""
    with Lmtp(server.lmtp) as lmtp:
        for number in range(3):
            replies = lmtp.deliver("relay@example.org", USERS, body(f"after-{number}@example.org"))
            assert [reply.code for reply in replies] == [250, 250]
    with Imap(server.imap, CACHED) as imap:
        imap.select()
        first, *_ = imap.uids()
        imap.ok(f"UID STORE {first} FLAGS.SILENT (\\Deleted)")
        imap.ok(f"UID EXPUNGE {first}")


def all_are_alike(server: BackEnd, client: CachingClient, pair: Pair, here: Maildir) -> None:
    """Who resynchronises knows what is found by who asks for all. mbsync brings the Maildir to what the server has, and
    then there is nothing left to do for it."""
    with Imap(server.imap, CACHED) as imap:
        client.synchronise(imap)
        assert client.known == truth(imap)
    assert not client.problems
    pair.sync()
    with Imap(server.imap, SYNCED) as imap:
        found = truth(imap)
    there = names(octets for octets, _ in found.values())
    assert len(set(there)) == len(there), "a message is there twice"
    assert names(map(here.octets, here.files("INBOX"))) == there
    assert sum(rb"\Flagged" in flags for _, flags in found.values()) == 1
    assert set(commands := pair.sync()) <= QUIET, commands
