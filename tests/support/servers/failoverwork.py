"""What goes on at the first machine until it is lost: beside the clients that a test of a failover is about."""

import itertools
import threading
import time

from attrs import define, field

from tests.support.clients.cachingclient import CachingClient
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.servers.backends import MESSAGE_ID, BackEnd, body
from tests.support.servers.standbymachines import USERS

LIMIT = 180.0


@define(eq=False)
class Work:
    """Mail for two users, and a client of the second one that flags and expunges. What was acknowledged, and when, by
    Message-ID."""

    users: tuple[str, str] = USERS
    delivered: dict[bytes, float] = field(factory=dict)
    flagged: dict[bytes, float] = field(factory=dict)
    expunged: dict[bytes, float] = field(factory=dict)
    begun: set[bytes] = field(factory=set)          # expunges of which nobody has heard an answer, too
    errors: list[str] = field(factory=list)
    _goes: threading.Event = field(factory=threading.Event)
    _done: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))

    def run(self, server: BackEnd) -> None:
        """Until the server has gone."""
        self._goes.set()
        try:
            with Lmtp(server.lmtp) as lmtp, Imap(server.imap, self.users[1]) as imap:
                imap.select()
                for number in itertools.count():
                    self._goes.wait()
                    self._one(lmtp, imap, b"%d@example.org" % number, number % 3)
                    self._done.release()
        except (OSError, IndexError):
            pass
        except Exception as error:          # the test shows it
            self.errors.append(repr(error))

    def _one(self, lmtp: Lmtp, imap: Imap, name: bytes, which: int) -> None:
        for reply in lmtp.deliver("relay@example.org", self.users, body(name.decode(), 1000)):
            assert reply.code == 250, reply
        self.delivered[name] = time.time()
        imap.ok("NOOP")
        uid = imap.uids()[-1]
        if which == 1:
            imap.ok(f"UID STORE {uid} +FLAGS (\\Flagged $kept)")
            self.flagged[name] = time.time()
        if which == 2:
            self.begun.add(name)
            imap.ok(f"UID STORE {uid} +FLAGS.SILENT (\\Deleted)")
            imap.ok(f"UID EXPUNGE {uid}")
            self.expunged[name] = time.time()

    def judge(self, client: CachingClient, current: float) -> None:
        """All that was acknowledged before that time is as it was acknowledged."""
        flags = {MESSAGE_ID.search(octets)[1]: flags for octets, flags in client.known.values()}    # type: ignore[index]
        for name, when in self.delivered.items():
            if name not in self.begun and when < current:
                assert name in flags
        for name, when in self.flagged.items():
            if when < current and name in flags:
                assert flags[name] >= {rb"\Flagged", b"$kept"}
        for name, when in self.expunged.items():
            if when < current:
                assert name not in flags

    def pause(self) -> None:
        """Do nothing more, after what is under way, until `more`: a client that asks for all it is told of comes to an
        end."""
        self._goes.clear()

    def more(self, count: int) -> None:
        """Wait for so many messages more."""
        self._goes.set()
        for _ in range(count):
            assert self._done.acquire(timeout=LIMIT), self.errors
