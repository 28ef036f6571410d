"""The conversation with one client: it reads commands, has them carried out, and tells what has changed meanwhile (RFC
3501 §2.2, §5).

`imap.verbs` has what each command does. This module has what they share, and the rule that the end of a command tells
the news that this command may tell. `imap.selection` has what is selected.
"""

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from attrs import evolve, frozen

from imap.client import farewell
from imap.referrals import NOT_HERE, to_mailbox
from imap.refusals import BROKEN
from imap.selection import Selection
from imap.settings import Settings
from imap.snapshotnames import is_there
from imap.states import Farewell, Refused, Reply, why_not
from imap.view import View
from imap.wire import responses
from imap.wire.commands import BadCommand, Head, State, status_response
from imap.wire.framer import Frame, Message, Rejected, Step
from imap.wire.grammar import SyntaxProblem
from imap.wire.responses import BAD, NO, OK
from mboxlist.engine.transact import Commits, Unflushed, unless_committed
from mboxlist.engine.troubles import TROUBLES
from mboxlist.entry import MailboxEntry
from store import offload
from store.accounts.refusallines import by_app_password
from store.accounts.rejectedlogins import NO_LOGIN
from store.errors import NotAtOnce, Problem, StoreError, disk_problem
from store.metrics.histograms import SECONDS
from store.metrics.processcounters import Counters
from store.net.callers import Admitted
from store.net.linestates import Clock, ConnectionLost, LimitReached, Stopping, TimedOut
from store.net.stream import INPUT, Stream
from store.observing.loglines import LIMIT, tell_command
from store.problems import tell_refusal
from store.progress import Abandoned, Progress
from store.store import Store
from store.tables.slices import UNITS

log = logging.getLogger(__name__)
_ONE_MESSAGE = b"", b""     # after the first text of an APPEND: one message, which went elsewhere

QUICK_UNITS = UNITS // 2    # of work that a transaction may do without a thread
CHANGES = frozenset((b"STORE", b"COPY", b"MOVE", b"EXPUNGE", b"CLOSE", b"APPEND", b"CREATE", b"DELETE", b"RENAME",
                     b"SUBSCRIBE", b"UNSUBSCRIBE", b"SETACL", b"DELETEACL", b"SETQUOTA",
                     b"SETMETADATA"))   # want a change
ADMINISTRATION = frozenset((b"SETACL", b"DELETEACL", b"GETACL", b"LISTRIGHTS", b"SETQUOTA", b"CREATE", b"DELETE",
                            b"RENAME"))     # where it is told to the log that somebody lacks the right
PROGRESS = 10               # seconds after which, and between which, a client hears of long work (RFC 9585 §3)

T = TypeVar("T")
Verb = Callable[["Session", Any], Awaitable[Reply]]
Receive = Callable[["Session", Message], Awaitable[Step | None]]


@frozen(eq=False)
class Listener:
    """What all sessions of a server share. `watched` are the verbs for an administrator who acts as a user, `reading`
    those for a client that may change nothing. `receive` takes the message of an APPEND, or says what to do instead."""

    store: Store
    settings: Settings
    clock: Clock
    verbs: Mapping[type[Any], Verb]
    watched: Mapping[type[Any], Verb]
    reading: Mapping[type[Any], Verb]
    receive: Receive


class Session(Selection):
    """One connection, from the greeting to the end."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        super().__init__(stream, listener.store, listener.settings, listener.clock)
        self.tag = b""                          # of the command being carried out
        self.arriving: Any = None               # verbs.append.Arriving: what has come of the APPEND being read
        self.ahead: deque[tuple[Any, Frame | Rejected]] = deque()   # read already: `arriving`, and its result
        self._listener = listener
        self._verbs = listener.verbs
        self._receive = partial(listener.receive, self)
        self._ended = 0.0                       # when the command before was answered
        self._times = Counters.of(listener.store).of_server("imap")
        self._bad_commands = 0
        self._before = 0                        # `Commits.total` when the command began
        self._done: Reply | None = None         # the reply from here on, whatever fails: see `done`

    # The conversation

    async def run(self) -> None:
        """Talk until one side has had enough. Raises ConnectionLost."""
        try:
            self.stream.admit()
            self.stream.write(responses.ok(None, f"onecopy is ready{self.store.as_of}", self.capability_code()))
            while self.state is not State.LOGOUT:
                line, deadline = None, self.clock.seconds() + self.settings.idle_time
                if self.login is not None and not self.ahead:
                    if self.stream.await_input(deadline):
                        await INPUT             # here: few functions are then entered again
                    line = self.stream.line_at_once(self.reading.framer.limits.line)
                await self._command(line, deadline)
            self.ending = "logout"
        except (Stopping, TimedOut, LimitReached, Farewell) as reason:
            self._send_away(reason)
        except ConnectionLost:
            self.ending = "connection lost"
            raise
        finally:
            if self.user:
                self.stream.tell_end("imap", self.user, self.ending, app_password=self.app_password)
            self.leave()
            self.forget_message()
            while self.ahead:
                self.arriving, _ = self.ahead.popleft()
                self.forget_message()
            self.end_login()

    def _send_away(self, reason: Exception) -> None:
        """Say why the conversation ends: the last thing that the client hears (RFC 3501 §7.1.5)."""
        last = self._last_words(reason)
        self.ending = "idle" if isinstance(reason, TimedOut) else last.public
        if isinstance(reason, LimitReached):
            self.authenticator.turned.at_admission("imap", self.stream.peer, self.user or reason.user, last.public,
                                                  session=self.stream.id)
        elif isinstance(reason, TimedOut) and not self.user:
            self.authenticator.turned.at_admission("imap", self.stream.peer, "", NO_LOGIN, session=self.stream.id)
        elif isinstance(reason, Farewell):
            log.info("%s: %s is sent away: %s", self.stream.id, self.user or "a client", last.public)
        self.stream.write(responses.bye(last.public, last.code))

    def _last_words(self, reason: Exception) -> Farewell:
        if isinstance(reason, Farewell):
            return reason
        if isinstance(reason, TimedOut):
            return Farewell("Idle for too long")
        if isinstance(reason, LimitReached):
            return Farewell(reason.public, b"LIMIT")
        if self.login is not None and self.login.ended is not None:
            return farewell(self.login.ended)
        own = self.stream.farewell
        return Farewell(own) if own else Farewell("The server is going down", b"UNAVAILABLE")

    async def _command(self, line: bytes | None, deadline: float) -> None:
        """Read one command, carry it out and answer it. Its line is there, or it must begin before the deadline, unless
        one has been read ahead."""
        step: Step | None = None if line is None else self.reading.framer.line(line)
        if self.ahead:
            await self.stream.breathe()
            self.arriving, step = self.ahead.popleft()
        if step is None:
            if self.stream.held_back:
                await self.stream.drain(self.settings.command_time)
            else:
                await self.stream.breathe()
        if type(step) is not Frame:
            step = await self.reading.command(self._receive, step, deadline)
        try:
            if isinstance(step, Rejected):
                self._answer_bad(step.tag, step.problem)
                if step.closing:
                    raise Farewell("The rest of the command cannot be told from the next")
            else:
                await self._carry_out(step)
        except BadCommand as bad:
            self._answer_bad(bad.tag, bad.problem)
        finally:
            if self.arriving is not None:
                self.forget_message()

    async def _carry_out(self, frame: Frame) -> None:
        read = self.arriving is not None and frame[1:] == _ONE_MESSAGE      # where the message began
        head: Head = self.arriving.head if read else Head(frame)
        if self.state not in head.entry.states:
            raise BadCommand(head.tag, SyntaxProblem(why_not(head.entry, self.state)))
        try:
            if read:
                command = self.arriving.command
            else:
                command = head.value(self.reading.framer.limits, utf8=self.utf8)
        except BadCommand as bad:
            self._cannot_read(head, bad)
            raise
        began, ended = self.stream.heard, self._ended       # one look at the clock does for a command: at its end
        if began < ended:
            began = ended
        if self.login is not None and began >= self.login.trusted_until:
            self.require_login()
        self.tag = head.tag
        self._reported, self._expunged, self._numbers_kept, self._done = None, False, False, None
        self._before = Commits.total
        try:
            reply = await self._verbs[type(command)](self, command)
        except Exception as error:
            reply = self._reply_to(head, error)
        if reply.status == NO and reply.code in NOT_HERE and self.refers_to_mailboxes:
            reply = await self._referred(command, reply)
        expunges = head.entry.expunges and not self._numbers_kept
        selects = head.name in (b"SELECT", b"EXAMINE")
        # A client takes what it hears within a SELECT for the new mailbox's, though nothing may be selected by it.
        if self.view is not None and self._reported is not expunges and (reply.status == OK or not selects):
            self._keep(reply)
            if selects:
                self._before = Commits.total        # what it has claimed as \\Recent is nothing that a NO would deny
            try:
                await self.tell(expunges=expunges, by_uid=head.name.startswith(b"UID "))
            except Exception as error:
                reply = self._reply_to(head, error)
        if selects and reply.status == NO:
            self.leave()                # RFC 3501 §6.3.1, however far it has come
        if self.view is not None and b"CONDSTORE" in self.enabled:
            reply = self._with_modseq(self.view, reply)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s: %s: %s", self.stream.id, self.user, head.name.decode(), reply.status.decode())
        self.stream.write(status_response(head.tag, reply.status, reply.text, reply.code))
        self._ended = self.clock.seconds()
        if head.name != b"IDLE":        # which takes as long as the client likes
            seconds, timed = self._ended - began, self._times[head.name]
            timed.counts[bisect_left(SECONDS, seconds)] += 1
            if seconds > 0.0:           # the clock may have been set back
                timed.total += seconds
            if seconds > LIMIT.seconds and head.name != b"AUTHENTICATE":
                tell_command(self.stream.id, self.user, "imap", head.name.decode("ascii"), seconds,
                             self.stream.waited)
        self.stream.waited.clear()
        self.stream.operations += 1
        if reply.status == BAD:
            self._count_bad()
        else:
            self._bad_commands = 0
        if reply.then is not None:
            reply.then()

    def log_in(self, admitted: Admitted) -> None:
        """See `Client`."""
        super().log_in(admitted)
        self._verbs = self._listener.reading if self.only_reads else (
            self._listener.watched if self.acts else self._listener.verbs)

    def _cannot_read(self, head: Head, bad: BadCommand) -> None:
        """What a command does although its arguments are none."""
        if bad.problem.status == NO and head.name in (b"SELECT", b"EXAMINE"):
            self.close()
        elif head.name in (b"LOGIN", b"AUTHENTICATE"):
            self.authenticator.not_looked_at(self.caller, bad.problem.public)

    async def _referred(self, command: Any, reply: Reply) -> Reply:
        """The reply; or another one, when the mailbox is not here and belongs to a user of another back end."""
        named = getattr(command, "mailbox", getattr(command, "target", None))
        if not isinstance(named, str) or is_there(named):
            return reply
        if not (code := await to_mailbox(self.store, self.user, self.name(named))):
            return reply
        return Reply("That mailbox is on another server", code, NO)

    def _with_modseq(self, view: View, reply: Reply) -> Reply:
        """The reply, with the HIGHESTMODSEQ that the client may take for its own, when expunges were told or wait to be
        told. The client may have seen higher MODSEQs, but not everything up to these (RFC 7162 §3.2, §3.2.7, §6)."""
        if not (self._expunged or view.has_vanished):
            return reply
        if reply.status == OK and not reply.code:
            return evolve(reply, code=responses.highestmodseq(view.modseq))
        self._tell_modseq(view)
        return reply

    def done(self, text: str) -> Reply:
        """What the command asked for is done, and on disk; that is the reply. It stays the reply whatever fails from
        here on while the news are told: a client that could not be told finds out at its next command."""
        self._done = Reply(text)
        return self._done

    def _keep(self, reply: Reply) -> None:
        if self._done is not None:
            self._done = reply

    def _reply_to(self, head: Head, error: Exception) -> Reply:
        """The reply to a command in which something went wrong. What ends the conversation is raised again; Farewell
        when no reply would be true."""
        if isinstance(error, ConnectionLost | TimedOut | Stopping | LimitReached | Farewell):
            raise error
        if self._done is not None:
            TROUBLES.met("a client could not be told of what it has changed",
                         f"{self.stream.id}: {self.user}: {head.name.decode('ascii')}: {error}")
            return self._done
        try:
            return self._failure(head, error)
        except Unflushed as unknown:
            tell_refusal(log, logging.ERROR, f"{self.stream.id}: {self.user}: no answer", disk_problem(unknown))
            raise Farewell("Whether the last command is done cannot be told", b"UNAVAILABLE") from error

    def _failure(self, head: Head, error: Exception) -> Reply:
        """The reply to a command that was not carried out. Raises Unflushed when it may have been."""
        match error:
            case Unflushed():
                raise error
            case Refused():
                self._tell_right(head, error.code == b"NOPERM", error.public)
                return Reply(error.public, error.code, error.status)
            case SyntaxProblem():
                return Reply(error.public, error.code, error.status)
            case StoreError():
                self._tell_right(head, error.problem is Problem.NO_PERMISSION, str(error))
                return self.refusal(error)
        log.error("%s: %s: %s failed", self.stream.id, self.user, head.name.decode("ascii"), exc_info=error)
        if head.name.removeprefix(b"UID ") in CHANGES:
            unless_committed(self._before, error)
        return Reply(BROKEN[1], BROKEN[0], NO)

    def _tell_right(self, head: Head, lacking: bool, why: str) -> None:
        if lacking and head.name in ADMINISTRATION:
            self.authenticator.turned.lacks_right(
                "imap", self.stream.peer, self.user,
                f"{head.name.decode('ascii')}: {why}{by_app_password(self.app_password)}", session=self.stream.id)

    def _answer_bad(self, tag: bytes | None, problem: SyntaxProblem) -> None:
        self.stream.write(responses.problem(tag, problem))
        if problem.status == BAD:
            self._count_bad()

    def _count_bad(self) -> None:
        self._bad_commands += 1
        if self._bad_commands >= self.settings.bad_commands:
            raise Farewell("Too many bad commands")

    def describe(self) -> dict[str, str]:
        """See `Stream.describe`."""
        mailbox = "" if self.view is None else str(self.view.mailbox.entry.name)
        state = "idling" if self._listening else self.state.name.lower().replace("_", " ")
        return {"state": state, "mailbox": mailbox, "client": self.client}

    def event_of(self, entry: MailboxEntry) -> str:
        """The user, if a script must run for what this command does in the mailbox (RFC 6785); else ""."""
        return self.user if self.store.runs_script(entry) else ""

    def progress(self) -> Progress:
        """The progress of a command that can be left off when the connection is lost; for `patiently`."""
        return Progress(lambda: self.stream.lost)

    async def change(self, units: float, work: Callable[[], T], *, kind: str = "changes") -> T:
        """The result of work that is so much (`slices.units`). It is done at once when it is little, and need not
        wait."""
        if units <= QUICK_UNITS:
            heard, freeze = self._heard_of, self.store.write_freeze
            freeze.hurried = True               # as in `offload.at_once`, which would be a call for each click
            try:
                result = work()
                self._heard_of = heard          # nobody else was heard meanwhile, and no such work shares mailboxes
                return result
            except NotAtOnce:
                pass
            finally:
                freeze.hurried = False
            kind = "held" if kind == "changes" else kind
        return await self.patiently(offload.run(self.store, kind, work, user=self.user))

    async def patiently(self, work: Awaitable[T], progress: Progress | None = None) -> T:
        """The result of work that may take long and writes nothing. Meanwhile the client hears that it goes on, and how
        far it is. Raises ConnectionLost when the work has been left off."""
        progress = progress or Progress()
        self._timer = self.clock.callLater(PROGRESS, self._tell_progress, progress)
        try:
            return await work
        except Abandoned:
            raise ConnectionLost from None
        finally:
            self._timer.cancel()

    def _tell_progress(self, progress: Progress) -> None:
        self.stream.write(responses.ok(None, "Still at work", responses.in_progress(
            self.tag, min(progress.done, progress.total), progress.total)))
        self.stream.flush()
        self._timer = self.clock.callLater(PROGRESS, self._tell_progress, progress)

    def forget_message(self) -> None:
        """Forget what has arrived of a message that is not delivered."""
        if self.arriving is not None:
            arriving, self.arriving = self.arriving, None
            arriving.abort()
