"""The conversation with one client (RFC 1939): what each command does, and what is said."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen

from mboxlist.entry import MailboxEntry
from pop3 import replies
from pop3.maildrop import Maildrop, MaildropLocks, NoMessage, counted
from pop3.output import Output
from pop3.refusals import CODES, refusal
from pop3.replies import ok, refused
from pop3.settings import Settings
from pop3.states import COMMANDS, State
from pop3.wire import (
    Auth,
    Capa,
    Command,
    Dele,
    List,
    Noop,
    Pass,
    Quit,
    Retr,
    Rset,
    Stat,
    Stls,
    SyntaxProblem,
    Top,
    TopLines,
    Uidl,
    User,
    keyword,
    response,
)
from store.accounts.sasl import Plain
from store.errors import Problem, StoreError
from store.expunge import remove
from store.flags import change_flags
from store.mailbox import Mailbox
from store.messagefiles import MessageFile
from store.net import offload
from store.net.limits import ConnectionLimits, is_this_host
from store.net.lines import ConnectionLost, LineTooLong, Stopping, TimedOut
from store.net.stream import Stream
from store.store import Store
from store.values import Flag, FlagAction, Flags, Secret

QUICK = 10_000              # messages that are opened, or deleted, without a thread

log = logging.getLogger(__name__)


@frozen(eq=False)
class Listener:
    """What all sessions of a server share. `clock` measures spans of time."""

    store: Store
    settings: Settings
    limits: ConnectionLimits
    locks: MaildropLocks
    clock: Callable[[], float]


class Farewell(Exception):
    """The server has had enough of this client: the last reply."""

    def __init__(self, reply: bytes) -> None:
        super().__init__()
        self.reply = reply


class Session:
    """One connection, from the greeting to the end."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        self._stream = stream
        self._listener = listener
        self._settings = listener.settings
        self._output = Output(stream, listener.settings.send_time)
        self._say = self._output.say
        self._state = State.AUTHORIZATION
        self._deadline = listener.clock() + listener.settings.login_time
        self._name: str | None = None           # what USER said, until the command after it
        self._user = ""
        self._maildrop: Maildrop | None = None
        self._failed_logins = self._bad_commands = 0
        self._open = True
        self._actions: dict[type[Command], Callable[[Any], Awaitable[None]]] = {
            Capa: self._capa, Stls: self._stls, User: self._take_user, Pass: self._pass, Auth: self._auth,
            Stat: self._stat, List: self._list, Uidl: self._uidl, Retr: self._retr, Top: self._top,
            Dele: self._dele, Noop: self._noop, Rset: self._rset, Quit: self._quit,
        }

    async def run(self) -> None:
        """Talk until one side has had enough. Raises ConnectionLost, TimedOut."""
        peer = self._stream.peer
        if not self._listener.limits.admit(peer):
            log.warning("%s: too many connections, %s is turned away", self._stream.id, peer)
            self._stream.write(replies.TOO_MANY_CONNECTIONS)
            return
        try:
            await self._converse()
        finally:
            self._leave()
            self._listener.limits.release(peer)

    async def _converse(self) -> None:
        self._say(replies.GREETING)
        try:
            while self._open:
                await self._command()
                await self._output.relieve()
                await self._stream.breathe()
        except Stopping:
            self._say(replies.STOPPING)
        except Farewell as last:
            log.info("%s: turned away: %s", self._stream.id, last.reply.decode("ascii").rstrip())
            self._say(last.reply)

    async def _command(self) -> None:
        """Read one command and answer it."""
        try:
            line = await self._line(self._settings.line_limit, idle=True)
        except LineTooLong:
            self._refuse(replies.LINE_TOO_LONG)
            return
        name, self._name = self._name, None
        try:
            verb, rest = keyword(line)
            entry = COMMANDS.get(verb)
            if entry is None:
                self._refuse(replies.UNKNOWN_COMMAND)
                return
            if self._state not in entry.states:
                self._refuse(refused(f"not allowed: {self._state.value}"))
                return
            command = entry.parse(rest)
        except SyntaxProblem as problem:
            self._refuse(refused(str(problem)))
            return
        if isinstance(command, Pass):
            self._name = name
        await self._carry_out(verb.decode("ascii"), command)

    async def _carry_out(self, verb: str, command: Command) -> None:
        bad = self._bad_commands
        try:
            await self._actions[type(command)](command)
            if self._bad_commands == bad:
                self._bad_commands = 0
        except NoMessage as problem:
            self._say(refused(str(problem)))
        except SyntaxProblem as problem:
            self._refuse(refused(str(problem)))
        except StoreError as error:
            self._report(verb, error)
            self._fail(refusal(error))
        except (ConnectionLost, TimedOut, Stopping, Farewell):
            raise
        except Exception:
            log.exception("%s: %s: %s failed", self._stream.id, self._user, verb)
            self._fail(replies.SERVER_BUG)

    def _fail(self, reply: bytes) -> None:
        if self._output.unfinished:
            self._stream.abort()
            raise ConnectionLost
        self._say(reply)

    # Before login

    async def _capa(self, command: Capa) -> None:
        able = ["TOP", "UIDL", "PIPELINING", "RESP-CODES", "AUTH-RESP-CODE", "IMPLEMENTATION onecopy"]
        if self._may_log_in:
            able += ["USER", "SASL PLAIN"]
        if self._stream.can_start_tls and self._state is State.AUTHORIZATION:
            able.append("STLS")
        self._say(replies.several("capabilities", able))

    async def _stls(self, command: Stls) -> None:
        if not self._stream.can_start_tls:
            self._refuse(refused("TLS is on already" if self._stream.secure else "TLS is not offered"))
            return
        self._say(ok("begin the TLS handshake"))
        self._stream.start_tls()

    async def _take_user(self, command: User) -> None:
        if not self._may_log_in:
            self._refuse(replies.NEEDS_TLS)
            return
        self._name = command.name               # who is there, and who not, is not told
        self._say(ok("send the password"))

    async def _pass(self, command: Pass) -> None:
        name, self._name = self._name, None
        if name is None:                        # RFC 1939 §7: only right after USER
            self._refuse(refused("USER comes first"))
            return
        await self._log_in(name, command.password)

    async def _auth(self, command: Auth) -> None:
        if not command.mechanism:               # no RFC has it, clients ask it
            self._say(replies.several("mechanisms", ["PLAIN"] if self._may_log_in else []))
            return
        if not self._may_log_in:
            self._refuse(replies.NEEDS_TLS)
            return
        if command.mechanism != "PLAIN":
            self._refuse(refused("unknown mechanism"))
            return
        message = command.initial
        if message is None:
            self._say(replies.CONTINUE)
            try:
                line = await self._line(self._settings.response_limit)
            except LineTooLong:
                self._refuse(replies.LINE_TOO_LONG)
                return
            if line == b"*":                    # RFC 5034 §4
                self._say(refused("the exchange was cancelled"))
                return
            message = response(line)
        try:
            plain = Plain.from_bytes(message.reveal())
        except ValueError as error:
            raise SyntaxProblem(str(error)) from None
        if plain.for_another:
            self._login_failed(plain.user, StoreError(Problem.BAD_LOGIN, detail="another authorization identity"))
            return
        await self._log_in(plain.user, plain.password)

    async def _log_in(self, name: str, password: Secret) -> None:
        store, stream = self._listener.store, self._stream
        try:
            account = await offload.authenticate(store, name, password)
        except StoreError as error:
            if CODES[error.problem] != "AUTH":
                raise
            self._login_failed(name, error)
            return
        entry = store.inbox(account)
        if not self._listener.locks.take(entry.id):
            log.info("%s: maildrop of %s is in use", stream.id, account.user)
            self._say(replies.IN_USE)
            return
        try:
            self._maildrop = Maildrop(await self._open_mailbox(entry))
        finally:
            if self._maildrop is None:
                self._listener.locks.release(entry.id)
        self._user = account.user
        self._state = State.TRANSACTION
        log.info("%s: %s has logged in from %s", stream.id, self._user, stream.peer)
        self._say(ok(f"maildrop has {self._maildrop.summary()}"))

    def _login_failed(self, name: str, error: StoreError) -> None:
        log.info("%s: login of %r from %s refused: %s", self._stream.id, name, self._stream.peer, error)
        self._failed_logins += 1
        if self._failed_logins >= self._settings.login_attempts:
            raise Farewell(replies.TOO_MANY_LOGINS)
        self._say(refusal(error))

    async def _open_mailbox(self, entry: MailboxEntry) -> Mailbox:
        store = self._listener.store
        if store.status(entry).messages > QUICK:
            return await offload.run(store, "files", store.open_mailbox, entry)
        return store.open_mailbox(entry)

    @property
    def _may_log_in(self) -> bool:
        """Whether a password may be sent here: under TLS, from this host, or where that is allowed to everybody."""
        return self._stream.secure or self._settings.plaintext_login or is_this_host(self._stream.peer)

    # After login

    async def _stat(self, command: Stat) -> None:
        self._say(ok(f"{self._drop.count} {self._drop.octets}"))

    async def _list(self, command: List) -> None:
        if command.number is not None:
            self._say(ok(self._drop.size_line(command.number)))
            return
        self._say(ok(self._drop.summary()))
        await self._output.listing(self._drop.size_lines())

    async def _uidl(self, command: Uidl) -> None:
        if command.number is not None:
            self._say(ok(self._drop.uid_line(command.number)))
            return
        self._say(ok("unique-ids follow"))
        await self._output.listing(self._drop.uid_lines())

    async def _retr(self, command: Retr) -> None:
        row = self._drop.row(command.number)
        with self._open_message(row) as file:
            self._say(ok(f"{file.size} octets"))
            await self._output.message(file, None)
        self._drop.sent(command.number)

    async def _top(self, command: Top) -> None:
        with self._open_message(self._drop.row(command.number)) as file:
            self._say(ok("top of the message follows"))
            await self._output.message(file, TopLines(command.lines))

    async def _dele(self, command: Dele) -> None:
        self._drop.delete(command.number)
        self._say(ok("marked as deleted"))

    async def _noop(self, command: Noop) -> None:
        self._say(ok())

    async def _rset(self, command: Rset) -> None:
        self._drop.reset()
        self._say(ok(f"maildrop has {self._drop.summary()}"))

    async def _quit(self, command: Quit) -> None:
        self._open = False
        if self._state is State.TRANSACTION and not await self._update():
            self._say(replies.NOT_REMOVED)
            return
        self._say(replies.BYE)

    async def _update(self) -> bool:
        """The UPDATE state (RFC 1939 §6): remove what is marked as deleted; False when that failed.

        Messages that others have expunged meanwhile are gone, which is what was asked for.
        """
        uids = self._drop.deleted()
        if not uids:
            return True
        store, entry = self._listener.store, self._drop.mailbox.entry
        try:
            if len(uids) > QUICK:
                await offload.run(store, "files", remove, store, entry, uids)
            else:
                remove(store, entry, uids)
            await offload.flushed(store, entry)
        except StoreError as error:
            self._report("QUIT", error)
            return False
        except Exception:
            log.exception("%s: %s: QUIT failed", self._stream.id, self._user)
            return False
        log.info("%s: %s has deleted %s", self._stream.id, self._user, counted(len(uids)))
        return True

    def _open_message(self, row: Any) -> MessageFile:
        """The file of a message, which stays for a while when others expunge it."""
        store, mailbox = self._listener.store, self._drop.mailbox
        try:
            return store.open_message(mailbox.entry, row)
        except StoreError as error:
            if error.problem is Problem.CORRUPT and store.refresh(mailbox).row(int(row["uid"])) is None:
                raise StoreError(Problem.GONE) from None
            raise

    # Inside

    @property
    def _drop(self) -> Maildrop:
        assert self._maildrop is not None       # the table of commands has seen to it
        return self._maildrop

    async def _line(self, limit: int, *, idle: bool = False) -> bytes:
        """The client's next line.

        RFC 1939 §3: who is idle after login is cut off without a word, which would be taken for the answer to the next
        command. The limit for a login is not that timer, and is told.
        """
        self._output.waits_for_input()
        if self._state is State.TRANSACTION:
            return await self._stream.line(limit, self._settings.idle_time, idle=idle)
        left = self._deadline - self._listener.clock()
        try:
            if left <= 0:
                raise TimedOut
            return await self._stream.line(limit, left, idle=idle)
        except TimedOut:
            raise Farewell(replies.TOO_SLOW_LOGIN) from None

    def _refuse(self, reply: bytes) -> None:
        """Answer a command that makes no sense, and count it."""
        self._bad_commands += 1
        if self._bad_commands >= self._settings.bad_commands:
            raise Farewell(replies.TOO_MANY_ERRORS)
        self._say(reply)

    def _report(self, verb: str, error: StoreError) -> None:
        log.warning("%s: %s: %s: %s", self._stream.id, self._user, verb, error)

    def _leave(self) -> None:
        """Give back the maildrop, however the session ended. Only QUIT has deleted anything."""
        if self._maildrop is None:
            return
        entry = self._maildrop.mailbox.entry
        unseen = self._maildrop.sent_unseen() if self._settings.mark_seen else []
        try:
            if unseen:
                change_flags(self._listener.store, entry, unseen, FlagAction.ADD, Flags(Flag.SEEN))
        except StoreError as error:
            self._report("RETR", error)
        finally:
            self._maildrop = None
            self._listener.locks.release(entry.id)
        log.info("%s: %s has left", self._stream.id, self._user)
