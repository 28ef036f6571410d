"""The conversation with one relay (RFC 2033): what each command does, and what is said."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen

from lmtp import replies
from lmtp.delivery import Delivery
from lmtp.refusals import refusal
from lmtp.replies import Farewell, Reply, SyntaxProblem
from lmtp.settings import Settings
from lmtp.states import COMMANDS, OTHERS, State
from lmtp.trace import trace
from lmtp.wire import Command, Data, Help, Lhlo, Mail, Noop, Quit, Rcpt, Rset, Starttls, Vrfy, verb
from store.errors import StoreError
from store.net.limits import ConnectionLimits
from store.net.lines import ConnectionLost, LineTooLong, Stopping, TimedOut
from store.net.stream import Stream
from store.store import Store

_ERRORS = frozenset({500, 501, 502, 503, 553, 555})     # replies that count as errors of the client

log = logging.getLogger(__name__)


@frozen(eq=False)
class Listener:
    """What all sessions of a server share. `clock` measures spans of time, `now` is Unix time."""

    store: Store
    settings: Settings
    limits: ConnectionLimits
    clock: Callable[[], float]
    now: Callable[[], float]


class Session:
    """One connection, from the greeting to the end."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        self._stream = stream
        self._listener = listener
        self._settings = listener.settings
        self._state = State.STRANGER
        self._client = ""
        self._delivery = Delivery(listener.store, listener.settings)
        self._deliveries = 0
        self._errors = 0
        self._open = True
        self._actions: dict[type[Command], Callable[[Any], Awaitable[None]]] = {
            Lhlo: self._lhlo, Mail: self._mail, Rcpt: self._rcpt, Data: self._data, Rset: self._rset, Noop: self._noop,
            Vrfy: self._vrfy, Help: self._help, Starttls: self._starttls, Quit: self._quit,
        }

    async def run(self) -> None:
        """Talk until one side has had enough. Raises ConnectionLost."""
        peer = self._stream.peer
        if not self._listener.limits.admit(peer):
            log.warning("%s: too many connections, %s is turned away", self._stream.id, peer)
            self._say(replies.TOO_MANY_CONNECTIONS)
            return
        try:
            await self._converse()
        finally:
            self._listener.limits.release(peer)

    async def _converse(self) -> None:
        self._say(replies.greeting(self._settings.hostname))
        try:
            while self._open:
                await self._command()
                await self._stream.breathe()
        except TimedOut:
            self._say(replies.TOO_SLOW)
        except Stopping:
            self._say(replies.STOPPING)
        except Farewell as last:
            log.warning("%s: ended: %s", self._stream.id, last.reply)
            self._say(last.reply)

    async def _command(self) -> None:
        """Read one command and answer it."""
        idle = self._state in (State.STRANGER, State.READY)
        try:
            line = await self._stream.line(self._settings.command_limit, self._settings.command_time, idle=idle)
        except LineTooLong:
            self._refuse(replies.LINE_TOO_LONG)
            return
        name, argument = verb(line)
        entry = COMMANDS.get(name)
        if entry is None:
            self._refuse(OTHERS.get(name, replies.UNKNOWN_COMMAND))
            return
        wrong = entry.refusals.get(self._state)
        if wrong is not None:
            self._refuse(wrong)
            return
        try:
            command = entry.parse(argument)
        except SyntaxProblem as problem:
            self._refuse(problem.reply)
            return
        try:
            await self._actions[type(command)](command)
        except StoreError as error:
            log.warning("%s: %s: %s", self._stream.id, name.decode("ascii"), error)
            self._say(refusal(error))
        except (ConnectionLost, TimedOut, Stopping, Farewell):
            raise
        except Exception:
            log.exception("%s: %s failed", self._stream.id, name.decode("ascii"))
            if isinstance(command, Data):       # what is left of the message must not be taken for commands
                raise Farewell(replies.BROKEN) from None
            self._say(replies.LOCAL_ERROR)

    # What each command does

    async def _lhlo(self, command: Lhlo) -> None:
        self._client = command.name
        self._reset()
        self._say(replies.hello(self._settings.hostname, self._listener.store.settings.message_limit,
                                self._stream.can_start_tls))

    async def _mail(self, command: Mail) -> None:
        if self._stream.stopping:
            raise Stopping
        if command.size > self._listener.store.settings.message_limit:
            self._say(replies.TOO_BIG)          # RFC 1870 §6.1
            return
        self._delivery = Delivery(self._listener.store, self._settings, command.sender, command.size)
        self._state = State.SENDER
        self._say(replies.SENDER_OK)

    async def _rcpt(self, command: Rcpt) -> None:
        reply = await self._delivery.recipient(command.recipient)
        if reply.positive:
            self._state = State.RECIPIENTS
        else:
            log.info("%s: recipient <%s> refused: %s", self._stream.id, command.recipient, reply)
        self._say(reply)

    async def _data(self, command: Data) -> None:
        self._deliveries += 1
        now = self._listener.now()
        name = f"{int(now):x}-{self._stream.id}-{self._deliveries:x}"
        head = trace(self._delivery.sender, self._client, self._stream.peer, self._settings.hostname,
                     "LMTPS" if self._stream.secure else "LMTP", name, now)
        staged = self._delivery.begin(head)
        self._say(replies.GO_AHEAD)
        for answer in await self._delivery.complete(self._stream, staged, name, self._listener.clock):
            self._say(answer)
        self._errors = 0
        self._reset()

    async def _rset(self, command: Rset) -> None:
        self._reset()
        self._say(replies.OK)

    async def _noop(self, command: Noop) -> None:
        self._say(replies.OK)

    async def _vrfy(self, command: Vrfy) -> None:
        self._say(replies.CANNOT_VERIFY)

    async def _help(self, command: Help) -> None:
        self._say(replies.HELP)

    async def _starttls(self, command: Starttls) -> None:
        if not self._stream.can_start_tls:
            self._refuse(replies.TLS_ALREADY if self._stream.secure else replies.NOT_OFFERED)
            return
        self._say(replies.TLS_READY)
        self._stream.start_tls()
        self._client = ""           # RFC 3207 §4.2: nothing said before counts
        self._reset()

    async def _quit(self, command: Quit) -> None:
        self._say(replies.BYE)
        self._open = False

    # Inside

    def _reset(self) -> None:
        """Forget the transaction (RFC 5321 §4.1.1.5)."""
        self._delivery = Delivery(self._listener.store, self._settings)
        self._state = State.READY if self._client else State.STRANGER

    def _say(self, reply: Reply) -> None:
        self._stream.write(reply.octets)

    def _refuse(self, reply: Reply) -> None:
        """Answer a command that makes no sense, and count it."""
        self._say(reply)
        if reply is not replies.NO_RECIPIENTS and reply.code in _ERRORS:
            self._errors += 1
            if self._errors > self._settings.error_limit:
                raise Farewell(replies.TOO_MANY_ERRORS)
