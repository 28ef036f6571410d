"""The conversation with one relay (RFC 2033): what each command does, and what is said."""

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from lmtp import noting, replies
from lmtp.access import Trust
from lmtp.delivery import Delivery
from lmtp.login import not_looked_at
from lmtp.receiving import Incoming, failure
from lmtp.refusals import refusal
from lmtp.relay import RELAYS, Listener, Relay
from lmtp.replies import Farewell, Reply, SyntaxProblem
from lmtp.states import COMMANDS, OTHERS, State
from lmtp.trace import protocol, trace
from lmtp.wire import (
    Auth,
    Bdat,
    Command,
    Data,
    Help,
    Lhlo,
    Mail,
    Noop,
    Quit,
    Rcpt,
    Rset,
    Starttls,
    Vrfy,
    Xclient,
    parse_bdat,
    verb,
)
from mboxlist.engine.transact import Commits, Unflushed
from store.errors import StoreError, disk_problem
from store.metrics.histograms import SECONDS
from store.metrics.processcounters import Counters
from store.net.authentication import Authenticator
from store.net.linestates import ConnectionLost, LimitReached, LineTooLong, Stopping, TimedOut
from store.net.stream import INPUT, Stream
from store.observing.loglines import LIMIT, tell_command
from store.problems import tell_refusal

_BETWEEN = State.READY, State.STRANGER

log = logging.getLogger(__name__)


class Session(Relay):
    """One connection, from the greeting to the end."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        super().__init__(stream, listener)
        self._delivery = self._none = Delivery(listener.store, listener.settings)      # between two messages
        self._deliveries = 0
        self._commands = 0                      # since the last message
        self._times = Counters.of(listener.store).of_server("lmtp")
        self._ended = self._began = 0.0         # when the command before was answered; when all of this one had come
        self._actions: dict[type[Command], Callable[[Any], Awaitable[None]]] = {
            Lhlo: self._lhlo, Mail: self._mail, Rcpt: self._rcpt, Data: self._data, Bdat: self._bdat, Rset: self._rset,
            Noop: self._noop, Vrfy: self._vrfy, Help: self._help, Starttls: self._starttls, Auth: self._auth,
            Xclient: self._xclient, Quit: self._quit,
        }

    async def run(self) -> None:
        """Talk until one side has had enough. Raises ConnectionLost."""
        greeted, ending = False, "server error"         # why the session ended
        try:
            self._stream.admit()
            await self._greet()
            greeted = self._open
            while self._open:
                line = self._stream.line_at_once(self._settings.command_limit)
                if line is None:
                    seconds = self._settings.command_time if self._found_trust in RELAYS else self._time
                    deadline = self._listener.clock() + seconds
                    if self._stream.await_input(deadline, idle=self._state in _BETWEEN):
                        await INPUT             # here: few functions are then entered again
                    line = self._stream.line_at_once(self._settings.command_limit)
                    if line is None:
                        line = await self._rest_of_line(deadline)
                if line is not None:
                    await self._command(line)
            ending = "logout"
        except LimitReached as limit:
            ending = limit.public
            turned = Authenticator.of(self._listener.store).turned
            turned.at_admission("lmtp", self._stream.peer, self._user or limit.user, limit.public,
                                session=self._stream.id)
            self._say(replies.limit_reached(limit.public))
        except TimedOut:
            ending = "idle"
            self._say(replies.TOO_SLOW)
        except ConnectionLost:
            ending = "connection lost"
            raise
        except Stopping:
            ending = self._stream.farewell or "server stop"
            ended = self._login.ended if self._login is not None else None
            self._say(replies.login_ended(ended.public) if ended else
                      replies.ended(self._stream.farewell) if self._stream.farewell else replies.STOPPING)
        except Farewell as last:
            log.warning("%s: ended: %s", self._stream.id, last.reply)
            ending = last.reply.lines[0]
            self._say(last.reply)
        finally:
            if greeted:                         # else it was a line that says that it is refused
                self._stream.tell_end("lmtp", self._user, ending, {"messages": self._deliveries})
            self._delivery.abort()
            self._log_out()

    def describe(self) -> dict[str, str]:
        """See `Stream.describe`."""
        return {"state": self._state.name.lower(), "user": self._user, "client": self._client}

    async def _rest_of_line(self, deadline: float) -> bytes | None:
        """Read the rest of a line, or a whole one after others have been served. None when it was too long, and has
        been refused."""
        await self._stream.breathe()
        try:
            left = max(0.0, deadline - self._listener.clock())
            return await self._stream.line(self._settings.command_limit, left, idle=self._state in _BETWEEN)
        except LineTooLong:
            self._refuse(replies.LINE_TOO_LONG)
            return None

    async def _command(self, line: bytes) -> None:
        """Carry out one command and answer it."""
        name, argument = verb(line)
        entry = COMMANDS.get(name)
        self._began = max(self._stream.heard, self._ended)
        if entry is None:
            self._refuse(OTHERS.get(name, replies.UNKNOWN_COMMAND))
            return
        wrong = entry.refusals.get(self._state)
        if wrong is not None:
            if name == b"BDAT":
                chunk = parse_bdat(argument)
                await self._drop(chunk)
                if chunk.last and self._state is State.SENDER:
                    self._reset()               # a reply for each recipient, and there is none (RFC 2033 §4.3)
                    return
            self._refuse(wrong)
            return
        self._commands += 1
        if self._commands > self._settings.idle_commands and name != b"QUIT":   # it keeps us busy and brings nothing
            raise Farewell(replies.TOO_MANY_COMMANDS)
        try:
            command = entry.parse(argument)
        except SyntaxProblem as problem:
            if name == b"AUTH":
                not_looked_at(self._stream, self._listener.store, problem.reply.lines[0])
            self._refuse(problem.reply)
            return
        before = Commits.total
        try:
            await self._actions[type(command)](command)
        except StoreError as error:
            tell_refusal(log, logging.WARNING, f"{self._stream.id}: {name.decode('ascii')}", error)
            self._say(refusal(error))
        except (ConnectionLost, TimedOut, Stopping, LimitReached, Farewell):
            raise
        except Unflushed as error:              # any reply would say what nobody knows (RFC 5321 §4.2.5)
            tell_refusal(log, logging.ERROR, f"{self._stream.id}: no answer", disk_problem(error))
            self._stream.abort()
            raise ConnectionLost from error
        except Exception as error:
            log.exception("%s: %s failed", self._stream.id, name.decode("ascii"))
            if isinstance(command, Data | Bdat):
                if Commits.total != before:             # the message may have been delivered
                    self._delivery.unanswered()
                    self._stream.abort()
                    raise ConnectionLost from error
                raise Farewell(replies.BROKEN) from None    # the rest of it must not be taken for commands
            self._say(replies.LOCAL_ERROR)
        self._ended = self._listener.clock()
        seconds, timed = max(0.0, self._ended - self._began), self._times[name]
        timed.counts[bisect_left(SECONDS, seconds)] += 1
        timed.total += seconds
        if seconds > LIMIT.seconds and name != b"AUTH":         # which takes as long as the client likes
            tell_command(self._stream.id, self._user, "lmtp", name.decode("ascii"), seconds, self._stream.waited)
        self._stream.waited.clear()

    # What each command does

    async def _lhlo(self, command: Lhlo) -> None:
        self._client = command.name
        self._reset()
        self._say(replies.hello(self._settings.hostname, self._listener.store.settings.message_limit,
                                self._extensions()))

    async def _mail(self, command: Mail) -> None:
        if self._login is not None:
            self._require_login()
        if self._stream.stopping:
            raise Stopping
        if self._found_trust not in RELAYS and self._trust is Trust.STRANGER:
            self._refuse(replies.PROVE_YOURSELF)
            return
        if command.size > self._listener.store.settings.message_limit:
            envelope = noting.Envelope("", self._peer, command.sender, self._stream.id)
            noting.refused(self._listener.store.delivery_log, envelope, (), replies.TOO_BIG,
                           f"{command.size} octets are announced, store.message_limit is "
                           f"{self._listener.store.settings.message_limit}")
            self._say(replies.TOO_BIG)          # RFC 1870 §6.1
            return
        self._delivery = Delivery(self._listener.store, self._settings, command, self._listener.guaranteed, self._peer,
                                  self._stream.id)
        self._state = State.SENDER
        self._stream.write(replies.SENDER_OK.octets)

    async def _rcpt(self, command: Rcpt) -> None:
        if self._login is not None:
            self._require_login()
        if command.privileged and self._trust is not Trust.TRUSTED:
            self._refuse(replies.UNKNOWN_PARAMETER)
            return
        reply = await self._delivery.recipient(command)
        if reply.code < 400:
            self._state = State.RECIPIENTS
            self._commands -= 1
        else:
            log.info("%s: recipient <%s> refused: %s (%s)", self._stream.id, command.recipient, reply,
                     self._delivery.reason)
        self._stream.write(reply.octets)

    async def _data(self, command: Data) -> None:
        if self._delivery.mail.binary:
            self._refuse(replies.USE_BDAT)
            return
        incoming = await self._begin()
        self._stream.write(replies.GO_AHEAD.octets)
        await incoming.data(self._stream)
        self._began = max(self._stream.heard, self._ended)          # all of it has come: the time from here on is ours
        self._stream.waited.clear()
        if self._login is not None:
            self._require_login()
        self._answer(await self._delivery.finish())         # not `_finish`: a function less to come back to

    async def _bdat(self, command: Bdat) -> None:
        try:
            incoming = await self._begin()
        except StoreError as error:             # the chunk is read all the same, and the last one has all its replies
            incoming = self._delivery.incoming = Incoming(
                self._listener.store, self._settings, self._listener.clock,
                refused=failure("a message could not be begun", error))
        self._state = State.CHUNKS
        await incoming.chunk(self._stream, command.size)
        self._began = max(self._stream.heard, self._ended)          # all of it has come: the time from here on is ours
        self._stream.waited.clear()
        if command.last:
            await self._finish()
        elif incoming.refused is not None:
            self._state = State.FAILED
            self._say(incoming.refused)
        else:
            if command.size:
                self._commands -= 1
            self._say(replies.chunk_taken(command.size))

    async def _drop(self, command: Bdat) -> None:
        """Read a chunk that is refused (RFC 3030 §2). Raises ConnectionLost, TimedOut, Farewell."""
        dropped = Incoming(self._listener.store, self._settings, self._listener.clock)
        await dropped.chunk(self._stream, command.size)

    async def _begin(self) -> Incoming:
        """The message of this transaction; the first chunk begins it. Raises StoreError."""
        if self._login is not None:
            self._require_login()
        delivery = self._delivery
        if delivery.incoming is not None:
            return delivery.incoming
        self._deliveries += 1
        now = self._listener.now()
        name = f"{int(now):x}-{self._stream.id}-{self._deliveries:x}"
        how = protocol(utf8=delivery.mail.utf8, secure=self._stream.secure, authenticated=bool(self._user))
        head = trace(delivery.mail.sender, self._helo or self._client, self._peer, self._settings.hostname, how, name,
                     now, self._name)
        return await delivery.begin(head, name, self._listener.clock)

    async def _finish(self) -> None:
        """The message has come: send a reply for each recipient (RFC 2033 §4.2)."""
        if self._login is not None:
            self._require_login()
        self._answer(await self._delivery.finish())

    def _answer(self, answers: Iterable[Reply]) -> None:
        if self._stream.lost:
            self._delivery.unanswered()
        for answer in answers:
            self._stream.write(answer.octets)
        self._errors = self._commands = 0
        self._delivery = self._none             # as `_reset`: nothing is left of it
        self._state = State.READY

    async def _rset(self, command: Rset) -> None:
        self._reset()
        self._say(replies.OK)

    async def _noop(self, command: Noop) -> None:
        self._say(replies.OK)

    async def _vrfy(self, command: Vrfy) -> None:
        self._say(replies.CANNOT_VERIFY)

    async def _help(self, command: Help) -> None:
        self._say(replies.HELP)

    async def _quit(self, command: Quit) -> None:
        self._say(replies.BYE)
        self._open = False

    # Inside

    def _reset(self) -> None:
        """Forget the transaction (RFC 5321 §4.1.1.5)."""
        self._delivery.abort()
        self._delivery = self._none
        self._state = State.READY if self._client else State.STRANGER
