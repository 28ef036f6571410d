"""The connections of a process, as administrators see them: listed in pages, and ended."""

import heapq
import logging
import time
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from attrs import define

from store.net.admission import AdmissionControl
from store.net.stream import Stream
from store.net.streamfactory import StreamFactory
from tools.server.process.listeners import Server
from tools.server.process.sockets import Purpose

log = logging.getLogger(__name__)

PAGE = 200              # connections in one answer: some milliseconds of work
MOST_TOLD = 200         # connections of which `Busiest` is told at a time: a millisecond or two
OCTETS = ("octets received", "octets sent")
MOST_IDS = 100          # that can be named in one request
FAREWELL = "An administrator has ended this connection"
PATIENCE = 5.0          # seconds after which a session that has not ended by itself is cut off


@define(eq=False)
class Connections:
    """Those of a server. `name` is the process's."""

    _server: Server
    _name: str
    _reactor: Any

    def tell(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A page: what comes behind the connection with the number `after`."""
        after = int(request.get("after", 0))
        labels: dict[Stream, str] = {}
        for label, factory in self._kinds():                # the whole of it for each page, so no more than needs be
            labels |= dict.fromkeys([stream for stream in factory.streams if stream.number > after], label)
        found = heapq.nsmallest(PAGE + 1, labels, key=attrgetter("number"))
        return {"rows": [self._row(labels[stream], stream) for stream in found[:PAGE]],
                "next": found[PAGE - 1].number if len(found) > PAGE else None}

    def end(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """End the connections with these ids: the client is told when it is between two commands, or else it is cut
        off a little later. The ids of those that are ended."""
        wanted = request["ids"]
        if not isinstance(wanted, list) or len(wanted) > MOST_IDS:
            raise ValueError(f"ids must be a list of at most {MOST_IDS}")
        ids, ended = frozenset(wanted), []
        for _, stream in list(self._all()):
            if stream.id in ids and not stream.lost:
                log.info("%s: %s, %s, is ended by an administrator", stream.id, stream.user or "a client", stream.peer)
                ended.append(stream.id)
                self._reactor.callLater(PATIENCE, _cut_off, stream)
                stream.dismiss(FAREWELL)
        return {"ended": ended}

    def counted(self) -> dict[str, dict[str, int]]:
        """For each server: what is open, and what has come since the start."""
        found: dict[str, dict[str, int]] = {}
        doors: set[AdmissionControl] = set()
        for label, factory in self._kinds():
            counted = found.setdefault(label, {"open": 0})
            counted["open"] += len(factory.streams)
            counted.update({name: number for name, number in factory.admission.counted.items()
                            if name not in OCTETS})             # of one door for all listeners of the server
            ended = factory.admission.counted if factory.admission not in doors else {}
            doors.add(factory.admission)
            for name, octets in zip(OCTETS, (sum(stream.received for stream in factory.streams),
                                             sum(stream.sent for stream in factory.streams)), strict=True):
                counted[name] = counted.get(name, 0) + octets + ended.get(name, 0)
        return found

    def busiest(self) -> list[dict[str, Any]]:
        """The users who do most, and their domains, of each server, after a look at the connections at which there was
        most to count since the last one."""
        for stream in heapq.nlargest(MOST_TOLD, [stream for _, stream in self._all()], key=attrgetter("untold")):
            stream.tell_busy(stream.user)
        return [admission.busiest.figures() for admission in {factory.admission for _, factory in self._kinds()}]

    def _all(self) -> Iterator[tuple[str, Stream]]:
        for label, factory in self._kinds():
            for stream in factory.streams:
                yield label, stream

    def _kinds(self) -> Iterator[tuple[str, StreamFactory]]:
        for (server, _, purpose), factory in self._server.kinds.items():
            yield purpose.value if purpose is Purpose.VERIFICATION else server, factory

    def _row(self, label: str, stream: Stream) -> dict[str, Any]:
        now, said = self._reactor.seconds(), dict(stream.describe())
        wall = time.time()
        return {
            "id": stream.id, "process": self._name, "protocol": label, "user": stream.user or said.get("user", ""),
            "address": stream.peer, "proxy": stream.proxy, "tls": stream.secure, "client": said.get("client", ""),
            "state": said.get("state", ""), "mailbox": said.get("mailbox", ""),
            "since": wall - (now - stream.began),
            "logged_in": wall - (now - stream.entered_at) if stream.entered else None,
            "idle": max(0.0, now - stream.heard), "received": stream.received, "sent": stream.sent}


def _cut_off(stream: Stream) -> None:
    if not stream.lost:
        stream.abort()
