"""A connection of HTTP: reads a request, has it answered, writes the answer, and so on.

An answer is written in pieces, as the client takes them; no other request is read meanwhile. So a slow client slows
only itself, and what is held for it is one request and one answer.
"""

import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from attrs import frozen

from store.accounts import refusallines
from store.accounts.networks import Networks
from store.net.linestates import ConnectionLost, LimitReached, Stopping, TimedOut
from store.net.stream import Stream
from tools.http.httpchannel import Channel, Request
from tools.http.webpages import ALWAYS, NO_SCRIPT, Answer, Asked, Refused

log = logging.getLogger(__name__)

PIECE_OCTETS = 64 << 10            # octets that are written at a time,
TAKEN_OCTETS = 8 << 10             # or read: of a body in chunks of one octet they are 5 ms of work
LINGER_TIME = 2.0           # seconds, and octets, of which nothing is made any more, so that the client, which may
LINGER_OCTETS = 4 << 20     # still be sending, gets to see why it is refused
LOOKING = ("GET", "HEAD")
_NOT_TEXT = re.compile(r"[^ -~]")


@frozen(eq=False)
class Site:
    """What connections share. `service`: its name in the log; `refusal`: what is answered to what is no request."""

    service: str
    networks: Networks
    answer: Callable[[Asked], Awaitable[Answer]]
    refusal: Callable[[Refused], Answer | None] = Answer.problem
    early: Callable[[Asked], Awaitable[object]] | None = None   # raises Refused before the body is read
    request_time: float = 20.0
    idle_time: float = 60.0
    answer_time: float = 60.0
    body_limit: int = 1 << 20
    once: bool = False          # one request a connection


def closing(answer: Answer) -> bytes:
    """An answer where there is no request, or none that can be read; the connection ends with it."""
    fields = [("Connection", "close"), ("Content-Length", str(len(answer.body))), *_fields(answer)]
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", *(f"{name}: {_NOT_TEXT.sub('?', value)}"
                                                                            for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("ascii") + answer.body


def _fields(answer: Answer) -> list[tuple[str, str]]:
    """Those of an answer; what it does not say itself is as for all."""
    said = {name.lower() for name, _ in answer.fields}
    return [*answer.fields, *([("Content-Type", answer.kind)] if answer.body else []),
            *((name, value) for name, value in (*ALWAYS, NO_SCRIPT) if name.lower() not in said)]


class Session:
    """See the module's text."""

    def __init__(self, stream: Stream, site: Site) -> None:
        self._stream = stream
        self._site = site
        self._changes = False       # something else than GET and HEAD has come

    async def run(self) -> None:
        """Answer requests, until one side ends it. Raises ConnectionLost, TimedOut, LimitReached."""
        stream, site = self._stream, self._site
        if stream.peer not in site.networks:
            refusallines.refused(refusallines.ADDRESS, stream.peer, "", site.service,
                                 f"not in {site.service}.networks", session=stream.id)
            self._refuse(Refused(403, "not from this address"))
            return
        try:
            stream.admit()
        except LimitReached as limit:
            self._refuse(Refused(503, limit.public))
            raise
        except Stopping:
            self._refuse(Refused(503, "the server is stopping"))
            return
        channel, ending = Channel(stream, site.body_limit), "server error"
        try:
            while not channel.ended:
                await self._one(channel)
            ending = "logout"
        except Refused as problem:
            log.info("%s: a request from %s is not understood: %s", stream.id, stream.peer, problem.public)
            ending = problem.public
            self._refuse(problem)
            if not site.once:
                await self._linger()
        except ConnectionLost:
            ending = "connection lost"
            raise
        except TimedOut:
            ending = "idle"
            raise
        except Stopping:
            ending = stream.farewell or "server stop"
            if channel.begun or site.once:
                self._refuse(Refused(503, "the server is stopping"))
        finally:        # whoever only looks, as often as monitoring does, is told to those who want to see all
            stream.tell_end(site.service, "", ending, {"requests": channel.answered},
                            logging.INFO if self._changes else logging.DEBUG)

    async def _one(self, channel: Channel) -> None:
        """Raises Refused, ConnectionLost, TimedOut, Stopping."""
        request = await self._request(channel)
        channel.asked = None
        stream = self._stream
        asked = self._asked(request)
        self._changes |= asked.method not in LOOKING or self._site.once
        began = stream.clock.seconds()
        answer = await self._answer(asked)
        if self._site.once or stream.stopping:
            channel.persistent = False
        await self._write(channel, request, answer)
        log.log(logging.DEBUG if asked.method in LOOKING else logging.INFO, "%s: %s %s from %s: %d, %.3f s",
                stream.id, asked.method, asked.target.partition("?")[0], stream.peer, answer.status,
                stream.clock.seconds() - began)

    def _asked(self, request: Request) -> Asked:
        stream = self._stream
        return Asked.of(request.method, request.uri, dict(request.requestHeaders.getAllRawHeaders()),
                        request.whole.getvalue(), peer=stream.peer, secure=stream.secure, stream=stream)

    async def _request(self, channel: Channel) -> Request:
        stream, site, seen = self._stream, self._site, False
        if channel.asked is None and not channel.begun:
            await stream.wait(site.idle_time if channel.answered else site.request_time)
        deadline = stream.clock.seconds() + site.request_time
        while channel.asked is None:
            try:
                data = await stream.some(TAKEN_OCTETS, max(0.0, deadline - stream.clock.seconds()))
            except TimedOut:
                raise Refused(408, "the request did not come in time") from None
            channel.take(data)
            if channel.headed is not None and not seen and site.early is not None:
                seen = True
                await site.early(self._asked(channel.headed))
            await stream.breathe()
        return channel.asked

    async def _answer(self, asked: Asked) -> Answer:
        """Whatever happens, there is one. Raises ConnectionLost, Stopping."""
        try:
            return await self._site.answer(asked)
        except Refused as refused:
            return self._site.refusal(refused) or Answer(refused.status)
        except (ConnectionLost, Stopping):
            raise
        except Exception:
            log.exception("%s: a request could not be answered", self._stream.id)
            failed = Refused(500, "the request could not be carried out; the log of the server has more")
            return self._site.refusal(failed) or Answer(500)

    async def _write(self, channel: Channel, request: Request, answer: Answer) -> None:
        request.setResponseCode(answer.status)
        headers = request.responseHeaders
        if not channel.persistent:
            headers.setRawHeaders(b"Connection", [b"close"])
        if answer.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):     # RFC 9110 §8.6
            headers.setRawHeaders(b"Content-Length", [str(len(answer.body)).encode()])
        for name, value in _fields(answer):
            headers.addRawHeader(name.encode("ascii"), _NOT_TEXT.sub("?", value).encode("ascii"))
        for begin in range(0, len(answer.body), PIECE_OCTETS):
            request.write(answer.body[begin:begin + PIECE_OCTETS])      # type: ignore[no-untyped-call]
            await self._stream.drain(self._site.answer_time)
        channel.answered += 1
        request.finish()        # type: ignore[no-untyped-call]
        await self._stream.drain(self._site.answer_time)

    def _refuse(self, problem: Refused) -> None:
        answer = self._site.refusal(problem)
        if answer is not None:
            self._stream.write(closing(answer))

    async def _linger(self) -> None:
        stream, octets = self._stream, 0
        deadline = stream.clock.seconds() + LINGER_TIME
        try:
            while octets < LINGER_OCTETS:
                octets += len(await stream.some(PIECE_OCTETS, max(0.0, deadline - stream.clock.seconds())))
        except (ConnectionLost, TimedOut):
            pass
