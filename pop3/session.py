"""The conversation with one client (RFC 1939): what each command does, and what is said."""

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen

from mboxlist.engine.transact import Commits, Unflushed
from pop3 import languages, replies, wire
from pop3.login import LOGINS, Login
from pop3.maildrop import Maildrop, NoMessage
from pop3.maildropopening import Admission, NotNow
from pop3.refusals import refusal
from pop3.replies import ok, refused
from pop3.replyqueue import READ_OCTETS, ReplyQueue
from pop3.settings import OFF, REFUSE, Settings
from pop3.states import COMMANDS, Farewell, State
from pop3.surrogate import File, NeedsUtf8, Surrogate, changes_of
from pop3.update import mark_seen, update
from pop3.wire import SyntaxProblem, TopLines
from store.accounts.refusallines import befell
from store.accounts.rejectedlogins import NO_LOGIN
from store.audit.sessionaudit import note
from store.errors import Problem, StoreError, disk_problem
from store.metrics.histograms import SECONDS
from store.metrics.processcounters import Counters
from store.net.authentication import Authenticator
from store.net.callers import Admitted
from store.net.linestates import ConnectionLost, LimitReached, LineTooLong, Stopping, TimedOut
from store.net.openlogins import OpenLogin
from store.net.stream import Stream
from store.observing.loglines import LIMIT, tell_command
from store.partition.messagereading import MessageFile, verified
from store.problems import tell_refusal
from store.store import Store

log = logging.getLogger(__name__)


@frozen(eq=False)
class Listener:
    """What all sessions of a server share. `clock` measures spans of time."""

    store: Store
    settings: Settings
    admission: Admission
    clock: Callable[[], float]


class Session:
    """One connection, from the greeting to the end."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        self._stream = stream
        self._listener = listener
        self._settings = listener.settings
        self._output = ReplyQueue(stream, listener.settings.send_time)
        self._say = self._output.say
        self._state = State.AUTHORIZATION
        self._deadline = listener.clock() + listener.settings.login_time
        self._user = ""
        self._held: OpenLogin | None = None
        self._maildrop: Maildrop | None = None
        self._ended = 0.0                       # when the command before was answered
        self._times = Counters.of(listener.store).of_server("pop3")
        self._bad_commands = 0
        self._open = True
        self._ending = "server error"           # why the session ended
        self._utf8 = False                      # the client has said UTF8 (RFC 6856 §2.1)
        self._login = Login(stream, listener.store, self._settings, self._say, self._refuse, self._line, self._enter)
        self._actions: dict[type[wire.Command], Callable[[Any], Awaitable[None]]] = {
            wire.Capa: self._capa, wire.Stls: self._stls, wire.User: self._login.user,
            wire.Pass: self._login.password, wire.Auth: self._login.auth, wire.Stat: self._stat,
            wire.List: self._list, wire.Uidl: self._uidl, wire.Retr: self._retr, wire.Top: self._top,
            wire.Dele: self._dele, wire.Noop: self._noop, wire.Rset: self._rset, wire.Quit: self._quit,
            wire.Last: self._last, wire.Utf8: self._take_utf8, wire.Lang: self._lang,
        }

    async def run(self) -> None:
        """Talk until one side has had enough. Raises ConnectionLost, TimedOut."""
        try:
            await self._converse()
        except ConnectionLost:
            self._ending = "connection lost"
            raise
        except TimedOut:
            self._ending = "idle"
            raise
        finally:
            if self._held is not None:
                self._held.leave()
            self._leave()

    async def _converse(self) -> None:
        try:
            self._stream.admit()
            self._say(replies.greeting(self._listener.store.as_of))
            while self._open:
                await self._command()
                await self._output.relieve()
                if self._stream.input_waiting:
                    await self._stream.breathe()
            self._ending = "logout"
        except Stopping:
            own = self._stream.farewell
            ended = self._held.ended if self._held is not None else None
            self._ending = ended.public if ended else own or "server stop"
            self._say(_ended(ended) if ended else refused(own, "SYS/TEMP") if own else replies.STOPPING)
        except LimitReached as limit:
            self._ending = limit.public
            turned = Authenticator.of(self._listener.store).turned
            turned.at_admission("pop", self._stream.peer, self._user or limit.user, limit.public,
                                session=self._stream.id)
            self._say(replies.limit_reached(limit.public))
        except Farewell as last:
            self._ending = last.reply.decode("ascii").rstrip().removeprefix("-ERR ")
            if last.reply == replies.TOO_SLOW_LOGIN:
                Authenticator.of(self._listener.store).turned.at_admission("pop", self._stream.peer, "", NO_LOGIN,
                                                                              session=self._stream.id)
            log.info("%s: rejected: %s", self._stream.id, self._ending)
            self._say(last.reply)

    def describe(self) -> dict[str, str]:
        """See `Stream.describe`."""
        return {"state": self._state.name.lower(), "mailbox": "" if self._maildrop is None else
                str(self._maildrop.mailbox.entry.name)}

    async def _command(self) -> None:
        """Read one command and answer it."""
        try:
            line = await self._line(self._settings.line_limit, idle=True)
        except LineTooLong:
            self._refuse(replies.LINE_TOO_LONG)
            return
        name, self._login.name = self._login.name, None
        verb = b""
        try:
            verb, rest = wire.keyword(line)
            entry = COMMANDS.get(verb)
            if entry is None or not self._offers(verb):
                if verb == b"APOP":
                    self._login.not_looked_at("APOP is not offered")
                self._refuse(replies.UNKNOWN_COMMAND)
                return
            if self._state not in entry.states:
                self._refuse(refused(f"not allowed: {self._state.value}"))
                return
            command = entry.parse(rest)
        except SyntaxProblem as problem:
            if verb in LOGINS and self._state is State.AUTHORIZATION:
                self._login.not_looked_at(str(problem))
            self._refuse(refused(str(problem)))
            return
        if isinstance(command, wire.Pass):
            self._login.name = name
        await self._carry_out(verb.decode("ascii"), command)

    async def _carry_out(self, verb: str, command: wire.Command) -> None:
        bad, before, began = self._bad_commands, Commits.total, max(self._stream.heard, self._ended)
        if self._held is not None:
            try:
                self._held.require()
            except StoreError as ended:
                raise Farewell(_ended(ended)) from None
        try:
            await self._actions[type(command)](command)
            if self._bad_commands == bad:
                self._bad_commands = 0
        except NoMessage as problem:
            self._say(refused(str(problem)))
        except NeedsUtf8:
            self._say(replies.NEEDS_UTF8)
        except SyntaxProblem as problem:
            self._refuse(refused(str(problem)))
        except StoreError as error:
            tell_refusal(log, logging.WARNING, f"{self._stream.id}: {self._user}: {verb}", error)
            self._fail(refusal(error))
        except (ConnectionLost, TimedOut, Stopping, LimitReached, Farewell):
            raise
        except Unflushed as error:              # any reply would say what nobody knows
            tell_refusal(log, logging.ERROR, f"{self._stream.id}: {self._user}: no answer", disk_problem(error))
            self._stream.abort()
            raise ConnectionLost from error
        except Exception as error:
            log.exception("%s: %s: %s failed", self._stream.id, self._user, verb)
            if Commits.total != before:             # what was asked for may be done
                self._stream.abort()
                raise ConnectionLost from error
            self._fail(replies.SERVER_BUG)
        self._ended = self._listener.clock()
        seconds, timed = max(0.0, self._ended - began), self._times[verb]
        timed.counts[bisect_left(SECONDS, seconds)] += 1
        timed.total += seconds
        if seconds > LIMIT.seconds and verb != "AUTH":          # which takes as long as the client likes
            tell_command(self._stream.id, self._user, "pop", verb, seconds, self._stream.waited)
        self._stream.waited.clear()
        self._stream.operations += 1

    def _fail(self, reply: bytes) -> None:
        if self._output.interrupted:
            self._stream.abort()
            raise ConnectionLost
        self._say(reply)

    # Before login

    async def _capa(self, command: wire.Capa) -> None:
        able = ["TOP", "UIDL", "PIPELINING", "RESP-CODES", "AUTH-RESP-CODE", "IMPLEMENTATION onecopy", "LANG"]
        if self._offers(b"UTF8"):
            able.append("UTF8 USER")
        able += [*self._listener.admission.capabilities(self._user), *self._login.capabilities()]
        if self._stream.can_start_tls and self._state is State.AUTHORIZATION and not self._utf8:
            able.append("STLS")
        self._say(replies.several("capabilities", able))

    async def _stls(self, command: wire.Stls) -> None:
        if not self._stream.can_start_tls:
            self._refuse(refused("TLS is on already" if self._stream.secure else "TLS is not offered"))
            return
        if self._utf8:                          # RFC 6856 §2.1: STLS comes first
            self._refuse(refused("not allowed after UTF8"))
            return
        self._say(ok("begin the TLS handshake"))
        self._stream.start_tls()

    async def _take_utf8(self, command: wire.Utf8) -> None:
        self._utf8 = True
        self._say(ok("UTF-8 from here on"))

    async def _lang(self, command: wire.Lang) -> None:
        if command.range is None:
            self._say(replies.several("languages follow", languages.LISTING))
        elif language := languages.match(command.range):
            self._say(ok(f"{language} this is the language from here on"))
        else:
            self._say(refused("that language is not spoken here"))

    async def _enter(self, admitted: Admitted) -> None:
        """The client has proved who it is: give it the maildrop, if nobody else has it."""
        stream, account = self._stream, admitted.account
        try:
            self._maildrop = await self._listener.admission.enter(account)
        except NotNow as answer:
            log.info("%s: maildrop of %s: %s", stream.id, account.user, answer.reply.decode("ascii").rstrip())
            self._say(answer.reply)
            return
        stream.enter(account.user)
        self._user = account.user
        self._held = OpenLogin.begin(self._listener.store, admitted)
        self._state = State.TRANSACTION
        befell(log, stream.id, f"{self._user} has logged in from {stream.peer}{admitted.how}")
        self._say(ok(f"maildrop has {self._maildrop.summary()}"))

    # After login

    async def _stat(self, command: wire.Stat) -> None:
        self._say(ok(f"{self._drop.count} {self._drop.octets}"))

    async def _list(self, command: wire.List) -> None:
        if command.number is not None:
            self._say(ok(self._drop.size_line(command.number)))
            return
        self._say(ok(self._drop.summary()))
        await self._output.listing(self._drop.size_lines())

    async def _uidl(self, command: wire.Uidl) -> None:
        if command.number is not None:
            self._say(ok(self._drop.uid_line(command.number)))
            return
        self._say(ok("unique-ids follow"))
        await self._output.listing(self._drop.uid_lines())

    async def _retr(self, command: wire.Retr) -> None:
        row = self._drop.row(command.number)
        with self._open_message(row) as file:
            first = file.read(0, READ_OCTETS)
            message = self._shown(file, command.number, first)
            self._say(ok(f"{message.size} octets"))
            await self._output.message(message, None, first if message is file else b"")
        self._drop.sent(command.number)
        self._stream.acts["read"] += 1
        if self._held is not None:
            self._held.has_read = True

    async def _top(self, command: wire.Top) -> None:
        row = self._drop.row(command.number)
        with self._open_message(row) as file:
            first = file.read(0, READ_OCTETS)
            message = self._shown(file, command.number, first)
            self._say(ok("top of the message follows"))
            await self._output.message(message, TopLines(command.lines), first if message is file else b"")

    @property
    def _only_reads(self) -> bool:
        """Whether the client may change nothing (an app password for reading)."""
        return self._held is not None and self._held.admitted.only_reads

    async def _dele(self, command: wire.Dele) -> None:
        if self._only_reads:
            self._say(replies.ONLY_READS)
            return
        self._drop.delete(command.number)
        self._stream.acts["deleted"] += 1
        self._say(replies.MARKED)

    async def _noop(self, command: wire.Noop) -> None:
        self._say(ok())

    async def _rset(self, command: wire.Rset) -> None:
        self._drop.reset()
        self._stream.acts["deleted"] = 0
        self._say(ok(f"maildrop has {self._drop.summary()}"))

    async def _last(self, command: wire.Last) -> None:
        self._say(ok(str(self._drop.highest())))

    async def _quit(self, command: wire.Quit) -> None:
        self._open = False
        if self._state is State.TRANSACTION and not self._only_reads:
            removed = await update(self._listener.store, self._settings, self._drop, self._who)
            if removed is None:
                self._say(replies.NOT_REMOVED)
                return
            await self._note_removed(removed)
            if removed < 0:
                self._say(replies.SOME_REMOVED)
                return
            self._stream.acts["expunged"] += removed
        self._say(replies.BYE)

    async def _note_removed(self, messages: int) -> None:
        """Note that an administrator has removed messages of the user as whom it acts; -1: only some of those that were
        to go."""
        store, admitted = self._listener.store, self._held.admitted if self._held is not None else None
        if messages and admitted is not None and Authenticator.of(store).is_administrator_acting(admitted):
            await note(store, "delete", "QUIT", actor=admitted.authenticated, user=self._user,
                       address=self._stream.peer, service="pop", session=self._stream.id,
                       **({"messages": messages} if messages > 0 else {"result": "in part"}))

    def _open_message(self, row: Any) -> MessageFile:
        """Open the file of a message, which stays for a while when others expunge it."""
        store, mailbox = self._listener.store, self._drop.mailbox
        try:
            file = store.open_message(mailbox.entry, row)
        except StoreError as error:
            if error.problem is Problem.CORRUPT and store.refresh(mailbox).row(int(row["uid"])) is None:
                raise StoreError(Problem.GONE) from None
            raise
        return verified(file, bytes(row["digest"]), self._user) if store.settings.verify_reads else file

    def _shown(self, file: MessageFile, number: int, first: bytes) -> File:
        """The message in the form that this client may have; `first` is how it begins. Raises NeedsUtf8, StoreError."""
        if self._utf8 or self._settings.utf8 == OFF or first.isascii() and len(first) == file.size:
            return file
        rows = self._drop.rows(number)
        cached, = self._listener.store.cached(self._drop.mailbox.entry, rows)
        changes = changes_of(file, cached, len(file.head) + cached.trace - int(rows["header_length"][0]), first)
        if changes and self._settings.utf8 == REFUSE:
            raise NeedsUtf8
        return Surrogate.of(file, changes) if changes else file

    # Inside

    @property
    def _who(self) -> str:
        """The user, for the log."""
        return f"{self._stream.id}: {self._user}"

    def _offers(self, verb: bytes) -> bool:
        """Whether this server has a command that is not in every server."""
        return verb != b"LAST" and verb != b"UTF8" or (
            self._settings.last if verb == b"LAST" else self._settings.utf8 != OFF)

    @property
    def _drop(self) -> Maildrop:
        assert self._maildrop is not None       # the table of commands has seen to it
        return self._maildrop

    async def _line(self, limit: int, *, idle: bool = False) -> bytes:
        """The client's next line.

        A client that is idle after login is cut off without a word: it would take the text for the answer to its next
        command (RFC 1939 §3). The time limit for the login is another one, and the client is told.
        """
        self._output.waits_for_input()
        if self._state is State.TRANSACTION:
            return await self._stream.line(limit, self._settings.idle_time, idle=idle)
        left = self._deadline - self._listener.clock()
        try:
            if left <= 0:
                raise TimedOut
            return await self._stream.line(limit, min(left, self._settings.early_time), idle=idle)
        except TimedOut:
            raise Farewell(replies.TOO_SLOW_LOGIN) from None

    def _refuse(self, reply: bytes) -> None:
        """Answer a command that makes no sense, and count it."""
        self._bad_commands += 1
        if self._bad_commands >= self._settings.bad_commands:
            raise Farewell(replies.TOO_MANY_ERRORS)
        self._say(reply)

    def _leave(self) -> None:
        """Give back the maildrop, however the session has ended. Only QUIT has deleted anything."""
        if self._maildrop is None:
            return
        drop, self._maildrop = self._maildrop, None
        try:
            if self._settings.mark_seen and not self._only_reads:
                mark_seen(self._listener.store, drop, self._who)
        finally:
            self._listener.admission.leave(drop)
            self._stream.tell_end("pop", self._user, self._ending, app_password=(
                self._held.admitted.by_name if self._held is not None else ""))


def _ended(ended: StoreError) -> bytes:
    """The last reply to a client whose login is not valid any more."""
    return replies.MOVED if ended.problem is Problem.ELSEWHERE else refusal(ended)
