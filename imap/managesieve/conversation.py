"""The conversation with one client of ManageSieve (RFC 5804): what each command does, and what is said."""

import binascii
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from attrs import frozen

from imap.managesieve import answers, requests
from imap.managesieve.answers import bye, no, ok, refusal, script_refused, string
from imap.managesieve.managesettings import Settings
from imap.managesieve.requests import Misread, Request, TooLarge
from mboxlist.engine.transact import Commits, Unflushed
from store import offload
from store.accounts.mechanisms import GivenUp, Malformed, NotOffered
from store.accounts.refusallines import befell
from store.accounts.rejectedlogins import NO_LOGIN
from store.audit.sessionaudit import note
from store.errors import Problem, StoreError, disk_problem
from store.filtering import userscripts
from store.filtering.externallists import SCHEMES
from store.filtering.filters import Filters
from store.filtering.sievesettings import Settings as SieveSettings
from store.filtering.userscripts import ScriptRefused
from store.net.authentication import Authenticator
from store.net.callers import Admitted, Caller
from store.net.linestates import ConnectionLost, LimitReached, LineTooLong, Stopping, TimedOut
from store.net.openlogins import OpenLogin
from store.net.stream import Stream
from store.problems import tell_refusal
from store.sieve.language import CAPABILITIES
from store.sieve.scriptlimits import DEFAULT
from store.sieve.scriptproblems import ScriptProblem
from store.store import Store
from store.values import Secret

log = logging.getLogger(__name__)

SERVICE = "imap"                # who may use that may manage scripts: one right, and one kind of app password
EARLY_LITERAL = 8 << 10         # octets of a literal before login
READ_OCTETS = 64 << 10
SWITCHED_OFF = "Sieve is switched off for this user"
_OF_VACATION = frozenset(("vacation", "vacation-seconds"))

T = TypeVar("T")


@frozen(eq=False)
class Listener:
    """What all sessions of a server share. `clock` measures spans of time."""

    store: Store
    settings: Settings
    clock: Callable[[], float]


class Farewell(Exception):
    """The server has had enough of this client: the last answer."""

    def __init__(self, reply: bytes) -> None:
        super().__init__()
        self.reply = reply


class _GivenUp(GivenUp):
    """The exchange ends without a login."""


class Session:
    """One connection, from the greeting to the end."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        self._stream = stream
        self._store = listener.store
        self._settings = listener.settings
        self._clock = listener.clock
        self._deadline = listener.clock() + listener.settings.login_time
        self._user = ""
        self._held: OpenLogin | None = None
        self._failed = self._bad = 0
        self._open = True
        self._ending = "server error"           # why the session ended
        self._actions: dict[str, tuple[int, bool, Callable[[Request], Awaitable[bytes]]]] = {
            #               arguments, needs a login
            "CAPABILITY": (0, False, self._capability), "STARTTLS": (0, False, self._start_tls),
            "AUTHENTICATE": (2, False, self._authenticate), "LOGOUT": (0, False, self._logout),
            "NOOP": (1, False, self._noop), "UNAUTHENTICATE": (0, True, self._unauthenticate),
            "HAVESPACE": (2, True, self._have_space), "PUTSCRIPT": (2, True, self._put),
            "LISTSCRIPTS": (0, True, self._list), "SETACTIVE": (1, True, self._activate),
            "GETSCRIPT": (1, True, self._get), "DELETESCRIPT": (1, True, self._delete),
            "RENAMESCRIPT": (2, True, self._rename), "CHECKSCRIPT": (1, True, self._check),
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
            self._leave()

    async def _converse(self) -> None:
        try:
            self._stream.admit()
            self._stream.write(self._capabilities() + ok("onecopy is ready"))
            while self._open:
                await self._command()
                await self._stream.drain(self._settings.send_time)
                if self._stream.input_waiting:
                    await self._stream.breathe()
            self._ending = "logout"
        except Stopping:
            ended = self._held.ended if self._held is not None else None
            self._ending = ended.public if ended else self._stream.farewell or "server stop"
            self._stream.write(bye(self._ending.capitalize(), "TRYLATER"))
        except LimitReached as limit:
            self._ending = limit.public
            Authenticator.of(self._store).turned.at_admission(
                SERVICE, self._stream.peer, self._user or limit.user, limit.public, session=self._stream.id)
            self._stream.write(bye(limit.public, "TRYLATER"))
        except Farewell as last:
            self._ending = last.reply.decode("utf-8", "replace").rstrip()
            log.info("%s: rejected: %s", self._stream.id, self._ending)
            self._stream.write(last.reply)

    def describe(self) -> dict[str, str]:
        """See `Stream.describe`."""
        return {"state": "logged in" if self._user else "not logged in", "mailbox": ""}

    # One command

    async def _command(self) -> None:
        """Read one command and answer it."""
        try:
            request = await requests.read(await self._line(idle=True), self._literal, self._line)
        except LineTooLong:
            self._refuse("The line is too long")
            return
        except TooLarge:
            self._say(script_refused(ScriptRefused(userscripts.Refusal.QUOTA_MAXSIZE)))
            return
        except Misread as misread:
            if misread.farewell:
                raise Farewell(bye(str(misread))) from None
            self._refuse(str(misread))
            return
        action = self._actions.get(request.name)
        if action is None:
            self._refuse("There is no such command")
            return
        most, needs_login, work = action
        least = most - 1 if request.name in ("AUTHENTICATE", "NOOP") else most
        if not least <= len(request.arguments) <= most:
            self._refuse(f"{request.name} takes {most} arguments")
            return
        if needs_login != bool(self._user) and (needs_login or request.name == "AUTHENTICATE"):
            self._refuse("Log in first" if needs_login else "You are logged in")
            return
        await self._carry_out(request, work)

    async def _carry_out(self, request: Request, work: Callable[[Request], Awaitable[bytes]]) -> None:
        before = Commits.total
        if self._held is not None:
            try:
                self._held.require()
            except StoreError as ended:
                raise Farewell(bye(ended.public)) from None
            if not self._may_have_scripts(self._user) and request.name not in ("LOGOUT", "NOOP", "UNAUTHENTICATE"):
                raise Farewell(bye(SWITCHED_OFF))
        try:
            self._say(await work(request))
            self._bad = 0
        except Misread as misread:
            self._refuse(str(misread))
        except ScriptRefused as refused:
            self._say(script_refused(refused))
        except ScriptProblem as problem:
            self._say(no(str(problem)))
        except StoreError as error:
            tell_refusal(log, logging.WARNING, f"{self._stream.id}: {self._user}: {request.name}", error)
            self._say(refusal(error))
        except (ConnectionLost, TimedOut, Stopping, LimitReached, Farewell):
            raise
        except Unflushed as error:              # any answer would say what nobody knows
            tell_refusal(log, logging.ERROR, f"{self._stream.id}: {self._user}: no answer", disk_problem(error))
            self._stream.abort()
            raise ConnectionLost from error
        except Exception as error:
            log.exception("%s: %s: %s failed", self._stream.id, self._user, request.name)
            if Commits.total != before:         # what was asked for may be done
                self._stream.abort()
                raise ConnectionLost from error
            self._say(no("An error of this server", "TRYLATER"))
        self._stream.operations += 1

    def _say(self, octets: bytes) -> None:
        if octets:
            self._stream.write(octets)

    def _refuse(self, text: str) -> None:
        """Answer a command that makes no sense, and count it."""
        self._bad += 1
        if self._bad >= self._settings.bad_commands:
            raise Farewell(bye("Too many bad commands"))
        self._say(no(text))

    async def _line(self, *, idle: bool = False) -> bytes:
        if self._user:
            return await self._stream.line(self._settings.line_limit, self._settings.idle_time, idle=idle)
        return await self._stream.line(self._settings.line_limit, self._left(), idle=idle)

    def _left(self) -> float:
        """Seconds that a client who is not logged in still has for its next line."""
        left = self._deadline - self._clock()
        if left <= 0:
            Authenticator.of(self._store).turned.at_admission(SERVICE, self._stream.peer, "", NO_LOGIN,
                                                              session=self._stream.id)
            raise Farewell(bye("The login takes too long"))
        return min(left, self._settings.early_time)

    async def _literal(self, octets: int) -> bytes:
        """See `requests.read`."""
        most = DEFAULT.script if self._user else EARLY_LITERAL
        if octets > max(most, self._settings.swallow_limit if self._user else 0):
            raise Farewell(bye("The literal is too large", "QUOTA/MAXSIZE" if self._user else ""))
        found, left = bytearray(), octets
        while left:
            time = self._settings.idle_time if self._user else self._left()
            piece = await self._stream.some(min(left, READ_OCTETS), time)
            left -= len(piece)
            if octets <= most:
                found += piece
        if octets > most:
            raise TooLarge
        return bytes(found)

    # Before login

    @property
    def _caller(self) -> Caller:
        private = self._settings.plaintext_login or Authenticator.of(self._store).is_private(self._stream)
        return Caller(self._stream, SERVICE, private)

    def _capabilities(self) -> bytes:
        """RFC 5804 §1.7; to a user who has logged in, what holds for that user."""
        settings = self._settings_of(self._user)
        names = [name for name in CAPABILITIES if settings.vacation or name not in _OF_VACATION]
        lines = [("IMPLEMENTATION", "onecopy"), ("SIEVE", " ".join(names)), ("NOTIFY", "mailto"),
                 ("SASL", " ".join(Authenticator.of(self._store).mechanisms(self._caller)) if not self._user else ""),
                 ("MAXREDIRECTS", str(settings.redirects)), ("VERSION", "1.0")]
        lines.append(("EXTLISTS", " ".join(SCHEMES if self._store.directory.remote else SCHEMES[:2])))   # RFC 6134 §2.7
        if self._user:
            lines.append(("OWNER", self._user))
        bare = [b'"UNAUTHENTICATE"\r\n']          # before login, too: clients need not ask again (RFC 5804 §2.1)
        if self._stream.can_start_tls and not self._user:
            bare.append(b'"STARTTLS"\r\n')
        return b"".join([string(name) + b" " + string(value) + b"\r\n" for name, value in lines] + bare)

    async def _capability(self, _request: Request) -> bytes:
        return self._capabilities() + ok()

    async def _start_tls(self, _request: Request) -> bytes:
        if self._user or not self._stream.can_start_tls:
            return no("TLS is on already" if self._stream.secure else "TLS is not offered")
        self._say(ok("Begin the TLS handshake"))
        self._stream.start_tls()
        await self._stream.established(self._left())
        return self._capabilities() + ok("TLS is on")        # RFC 5804 §2.2: without being asked

    async def _authenticate(self, request: Request) -> bytes:
        mechanism = requests.text(request, 0).upper()
        authenticator, caller = Authenticator.of(self._store), self._caller
        try:
            initial = _response(requests.string(request, 1)) if len(request.arguments) == 2 else None
            admitted = await authenticator.authenticate(caller, mechanism, initial, self._talk)
        except NotOffered:
            return no("That mechanism is not offered here", "" if caller.passwords else "ENCRYPT-NEEDED")
        except Malformed as problem:
            raise Misread(str(problem)) from None
        except _GivenUp as reason:
            return no(str(reason).capitalize())
        except StoreError as error:
            if error.problem not in (Problem.BAD_LOGIN, Problem.NOT_AUTHORIZED, Problem.LIMIT, Problem.LOGIN_EXPIRED):
                raise
            self._failed += 1
            if self._failed >= self._settings.login_attempts:
                authenticator.turned.at_admission(SERVICE, caller.peer, "", "too many failed logins",
                                                  session=self._stream.id)
                raise Farewell(bye("Too many failed logins")) from None
            return refusal(error)
        if not self._may_have_scripts(admitted.account.user):
            log.info("%s: %s: %s", self._stream.id, admitted.account.user, SWITCHED_OFF)
            return no(SWITCHED_OFF)
        return self._enter(admitted)

    async def _talk(self, octets: bytes) -> Secret:
        self._say(answers.challenge(octets))
        try:
            found = await requests.read(b"AUTHENTICATE " + await self._line(), self._literal, self._line)
        except (Misread, TooLarge, LineTooLong):
            raise _GivenUp("the response is no string", malformed=True) from None
        if len(found.arguments) != 1 or not isinstance(found.arguments[0], bytes):
            raise _GivenUp("the response is no string", malformed=True)
        if found.arguments[0] == b"*":
            raise _GivenUp("the exchange was cancelled")
        return _response(found.arguments[0])

    def _enter(self, admitted: Admitted) -> bytes:
        stream, account = self._stream, admitted.account
        stream.enter(account.user)
        self._user = account.user
        self._held = OpenLogin.begin(self._store, admitted)
        befell(log, stream.id, f"{self._user} has logged in to ManageSieve from {stream.peer}{admitted.how}")
        return ok("Logged in")

    # At any time

    async def _logout(self, _request: Request) -> bytes:
        self._open = False
        return ok("Goodbye")

    async def _noop(self, request: Request) -> bytes:
        """RFC 5804 §2.13: what it is given comes back."""
        return ok("Done", "TAG", string(requests.string(request, 0))) if request.arguments else ok("Done")

    async def _unauthenticate(self, _request: Request) -> bytes:
        self._leave("unauthenticate")
        self._deadline = self._clock() + self._settings.login_time
        return ok("Nobody is logged in now")

    def _leave(self, why: str = "") -> None:
        if self._held is not None:
            self._held.leave()
            self._held = None
        if self._user:
            self._stream.tell_end("managesieve", self._user, why or self._ending)
            self._stream.leave()
        self._user = ""

    # Scripts

    def _settings_of(self, user: str) -> SieveSettings:
        """Those of the server, or of a user who has logged in."""
        filters = Filters.of(self._store)
        return filters.settings_of(user) if user else filters.settings

    def _may_have_scripts(self, user: str) -> bool:
        settings = self._settings_of(user)
        return settings.enabled and settings.own

    @property
    def _admitted(self) -> Admitted:
        assert self._held is not None           # the table of commands has seen to it
        return self._held.admitted

    async def _change(self, request: Request, name: str, work: Callable[[], None]) -> bytes:
        """Carry out a change. Raises ScriptProblem, ScriptRefused, StoreError."""
        if self._admitted.only_reads:
            return no("This app password only reads")
        await offload.run(self._store, "names", work)
        await self._note_if_acting(request, "mailbox", name)
        return ok("Done")

    async def _note_if_acting(self, request: Request, kind: str, name: str) -> None:
        """What an administrator does on behalf of a user is in the audit trail, before the answer says that it is done.
        """
        admitted = self._admitted
        if Authenticator.of(self._store).is_administrator_acting(admitted):
            await note(self._store, kind, request.name, actor=admitted.authenticated, user=self._user,
                       address=self._stream.peer, service="managesieve", session=self._stream.id, script=name)

    async def _read(self, function: Callable[..., T], *arguments: object) -> T:
        """What the function says of the user's scripts, which may be two megabytes."""
        return await offload.run(self._store, "names", function, self._store.mailboxes, self._user, *arguments)

    async def _have_space(self, request: Request) -> bytes:
        await self._read(userscripts.require_room, requests.text(request, 0), requests.number(request, 1),
                         self._settings_of(self._user))
        return ok("There is room")

    async def _put(self, request: Request) -> bytes:
        name, script = requests.text(request, 0), requests.string(request, 1)
        return await self._change(request, name, partial(
            userscripts.put, self._store, self._admitted.account, name, script, self._settings_of(self._user)))

    async def _list(self, _request: Request) -> bytes:
        scripts = await self._read(userscripts.of_user)
        return b"".join([string(one.name) + (b" ACTIVE\r\n" if one.active else b"\r\n") for one in scripts]) + ok()

    async def _activate(self, request: Request) -> bytes:
        name = requests.text(request, 0)
        if not name and not await self._read(userscripts.of_user):
            return ok("No script is active")    # RFC 5804 §2.8: it may be said at any time
        return await self._change(request, name, partial(userscripts.activate, self._store, self._user, name))

    async def _get(self, request: Request) -> bytes:
        name = requests.text(request, 0)
        script = await self._read(userscripts.find, name)
        await self._note_if_acting(request, "read", name)
        return b"{%d}\r\n" % len(script.text) + script.text + b"\r\n" + ok()

    async def _delete(self, request: Request) -> bytes:
        name = requests.text(request, 0)
        return await self._change(request, name, partial(userscripts.delete, self._store, self._user, name))

    async def _rename(self, request: Request) -> bytes:
        old, new = requests.text(request, 0), requests.text(request, 1)
        return await self._change(request, old, partial(userscripts.rename, self._store, self._user, old, new))

    async def _check(self, request: Request) -> bytes:
        await offload.run(self._store, "names", partial(userscripts.check, requests.string(request, 0),
                                                      self._settings_of(self._user)))
        return ok("It is a script")


def _response(octets: bytes) -> Secret:
    """What a client says in an exchange, in base64. Raises _GivenUp."""
    try:
        return Secret(binascii.a2b_base64(octets, strict_mode=True) if octets else b"")
    except binascii.Error:
        raise _GivenUp("the response is not in base64", malformed=True) from None
