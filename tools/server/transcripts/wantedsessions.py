"""Who is to be recorded in a process, and until when: `onecopy transcript`.

An order holds for connections that are open, from the moment on at which they stand between two commands, and for
those that begin: of an address from the greeting on, of a user from the login on. It ends by its time, with the
process, or when somebody says so.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from store.accounts.networks import Networks
from store.accounts.refusallines import quoted
from store.net.stream import Stream
from store.offload import Threads
from tools.server.process.listeners import Server
from tools.server.transcripts.imapmask import ImapMask
from tools.server.transcripts.lmtpmask import LmtpMask
from tools.server.transcripts.masking import Mask
from tools.server.transcripts.pop3mask import Pop3Mask
from tools.server.transcripts.transcriptfile import CHANGED, FOLDER, FULL, OVER, Recording, octets_of

log = logging.getLogger(__name__)

PROTOCOLS = ("imap", "pop3", "lmtp")
INTERVAL = 0.5              # seconds between two writings, and two looks at the connections that are open
LONGEST = 86400             # seconds of an order
MOST = 20                   # orders at a time
MOST_RECORDED = 100         # connections at a time,
MOST_OF_ORDER = 1000        # and of an order


@frozen(eq=False)
class Wanted:
    """One of them: a user id, or networks. `protocol` "": any; `until` by the process's clock. `begun`: the connections
    that were recorded for it, which are not again when their transcripts have ended."""

    who: str
    networks: Networks
    protocol: str
    until: float
    begun: set[int] = field(factory=set)

    def wants(self, protocol: str, stream: Stream) -> bool:
        """Whether it is about this connection, as it is now."""
        if self.protocol and self.protocol != protocol:
            return False
        return stream.peer in self.networks if self.networks else stream.user == self.who


@define(eq=False)
class WantedSessions:
    """Those of a process. `limit`: octets of all transcripts of the store."""

    _root: Path
    _server: Server
    _clock: Any
    _threads: Threads
    limit: int
    _wanted: list[Wanted] = field(factory=list, init=False)
    _recordings: dict[Recording, Wanted] = field(factory=dict, init=False)       # that have not been closed
    _tick: Any = field(default=None, init=False)
    _full: bool = field(default=False, init=False)
    _number: int = field(default=0, init=False)

    def order(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begin one, or with `end` end those of that user or address. Raises ValueError."""
        who, protocol = str(request["who"]), str(request.get("protocol") or "")
        networks = Networks.parse([who]) if request.get("address") else Networks()
        same = [each for each in self._wanted if each.who == who]
        if request.get("end"):
            self._end([each for each in same if protocol in ("", each.protocol)])
            return {"ended": len(same)}
        seconds = float(request["seconds"])
        same = [each for each in same if each.protocol == protocol]
        if not who or protocol not in ("", *PROTOCOLS) or not 0 < seconds <= LONGEST or (
                len(self._wanted) - len(same) >= MOST):
            raise ValueError(f"nobody, for more than {LONGEST} s, or more than {MOST} orders")
        self._end(same)
        self._wanted.append(Wanted(who, networks, protocol, self._clock.seconds() + seconds))
        for name, admission in self._server.admission.items():
            if name in PROTOCOLS:
                admission.watch = partial(self._look, name)
        self._look_at_all()
        self._go_on()
        return {"connections": sum(1 for each in self._recordings if not each.why)}

    def tell(self, _request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The orders, the seconds that are left of each, and how many connections are recorded for it now."""
        now = self._clock.seconds()
        return [{"who": each.who, "protocol": each.protocol, "left": max(0.0, each.until - now),
                 "connections": sum(1 for recording, order in self._recordings.items()
                                    if order is each and not recording.why)} for each in self._wanted]

    def stop(self) -> None:
        """The process ends: what has been said is written."""
        self._end(list(self._wanted))
        if self._tick is not None and self._tick.active():
            self._tick.cancel()
        self._threads.start("transcripts", partial(self._write, list(self._recordings)))

    def _streams(self) -> Iterator[tuple[str, Stream]]:
        for (name, _, _), factory in self._server.kinds.items():
            if self._server.admission.get(name) is factory.admission and name in PROTOCOLS:
                for stream in factory.streams:
                    yield name, stream

    def _look_at_all(self) -> None:
        for name, stream in list(self._streams()):
            if stream.tap is None and stream.between_commands:
                self._look(name, stream)

    def _look(self, name: str, stream: Stream, *, answers: int = 0) -> None:
        """The connection has begun, its client has logged in or out, or it stands between two commands. `answers`: to
        commands that are to come yet."""
        recording = stream.tap
        if isinstance(recording, Recording):
            if not self._recordings[recording].wants(name, stream):
                recording.end(CHANGED)
            return
        order = next((each for each in self._wanted if each.wants(name, stream)), None)
        if order is None or self._full or stream.number in order.begun or len(order.begun) >= MOST_OF_ORDER or (
                len(self._recordings) >= MOST_RECORDED):
            return
        order.begun.add(stream.number)
        now = time.time()
        self._number += 1
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        path = self._root / FOLDER / f"{stamp}-{name}-{stream.id}-{self._number}.txt"
        mask: Mask = ImapMask() if name == "imap" else Pop3Mask(answers) if name == "pop3" else LmtpMask()
        heading = f"{name} session {stream.id}, user {quoted(stream.user)}, from {stream.peer}"
        recording = Recording(stream, mask, path, heading, time.time)
        self._recordings[recording] = order
        recording.begin()
        if unread := stream.unread_octets:
            recording.received(unread)

    def _end(self, orders: list[Wanted]) -> None:
        for order in orders:
            self._wanted.remove(order)
            for recording, its in self._recordings.items():
                if its is order:
                    recording.end(OVER)
        if not self._wanted:
            for admission in self._server.admission.values():
                admission.watch = None

    def _go_on(self) -> None:
        if self._tick is None:
            self._tick = self._clock.callLater(INTERVAL, self._turn)

    def _turn(self) -> None:
        """Write in a thread what has been said; then, as long as there is anything to do, again."""
        now = self._clock.seconds()
        self._end([each for each in self._wanted if each.until <= now])
        self._look_at_all()
        written = self._threads.run("transcripts", partial(self._write, list(self._recordings)))
        written.addCallbacks(self._written, self._failed)       # type: ignore[attr-defined]  # those of a server

    def _write(self, recordings: list[Recording]) -> tuple[list[Recording], bool]:
        """In the thread: those that are closed now, and whether all transcripts together are at their limit."""
        closed = []
        for each in recordings:
            try:
                if each.write():
                    closed.append(each)
            except OSError as error:
                log.warning("transcript %s: %s", each.path.name, error)
                each.close()
                closed.append(each)
        return closed, octets_of(self._root / FOLDER) >= self.limit

    def _written(self, outcome: tuple[list[Recording], bool]) -> None:
        closed, self._full = outcome
        for each in closed:
            each.end("it cannot be written")
            self._recordings.pop(each, None)
        if self._full:
            for each in self._recordings:
                each.end(FULL)
        self._tick = None
        if self._wanted or self._recordings:
            self._go_on()

    def _failed(self, failure: Any) -> None:
        log.error("transcripts: %s", failure.value)
        self._written(([], self._full))
