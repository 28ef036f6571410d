"""The conversation with one client: reads commands, has them done, tells what changed meanwhile (RFC 3501 §2.2, §5).

What a command does is in `imap.verbs`; this holds what they share: the account, the view of the selected mailbox, and
the rule that the end of a command tells the news that this command may tell.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from unicodedata import is_normalized, normalize

from attrs import evolve, frozen

from imap.client import Client, farewell
from imap.lines import Positions
from imap.referrals import NOT_HERE, to_mailbox
from imap.refusals import BROKEN, OUR_FAULT, code
from imap.settings import Settings
from imap.snapshotnames import RIGHTS, SnapshotAccess, is_there
from imap.states import Farewell, Refused, Reply, why_not
from imap.view import Belief, View
from imap.wire import responses
from imap.wire.commands import BadCommand, Head, State, parse_head
from imap.wire.framer import Frame, Message, Rejected, Step
from imap.wire.grammar import SyntaxProblem
from imap.wire.responses import BAD, NO, OK
from mboxlist.engine.kv import Commits, Unflushed, unless_committed
from mboxlist.engine.troubles import TROUBLES
from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName, NameProblem
from store import offload
from store.accounts import refusallines
from store.accounts.rejectedlogins import NO_LOGIN
from store.errors import NotAtOnce, Problem, StoreError, disk_problem
from store.mailboxes import authorization as rights
from store.net.linestates import Clock, ConnectionLost, LimitReached, Stopping, TimedOut
from store.net.stream import Stream
from store.partition.transactions import UNITS
from store.partition.views import MANY
from store.problems import tell_refusal
from store.progress import Abandoned, Progress
from store.readable import Readable
from store.store import Store

log = logging.getLogger(__name__)

QUICK = 1000                # messages that are gone through without a thread
QUICK_UNITS = UNITS // 2    # of work that a transaction does without a thread
CHANGING = frozenset("istwe")   # who has none of these rights opens a mailbox read-only (RFC 4314 §5.2)
ADMINISTRATION = frozenset((b"SETACL", b"DELETEACL", b"GETACL", b"LISTRIGHTS", b"SETQUOTA", b"CREATE", b"DELETE",
                            b"RENAME"))     # where it is told to the log that somebody lacks the right
PROGRESS = 10               # seconds after which, and between which, a client hears of long work (RFC 9585 §3)
HELD_BACK = 200             # answers to pipelined commands that may wait to share a packet

T = TypeVar("T")
Verb = Callable[["Session", Any], Awaitable[Reply]]
Receive = Callable[["Session", Message], Awaitable[Step | None]]


@frozen(eq=False)
class Listener:
    """What all sessions of a server share. `receive` takes the message of an APPEND, or says what to do instead."""

    store: Store
    settings: Settings
    clock: Clock
    verbs: Mapping[type[Any], Verb]
    receive: Receive


class Session(Client):
    """One connection, from the greeting to the end."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        super().__init__(stream, listener.store, listener.settings, listener.clock)
        self.view: View | None = None
        self.tag = b""                          # of the command being carried out
        self.decoding: object = None            # verbs.binary.Decoding: a part of which portions are asked for
        self.arriving: Any = None               # verbs.append.Arriving: what has come of the APPEND being read
        self.snapshots = SnapshotAccess(self)
        self._listener = listener
        self._bad_commands = self._held_back = 0
        self._unsubscribe: Callable[[], None] | None = None
        self._reported: bool | None = None          # whether this command has reported news already, and expunges too
        self._expunged = False                  # and there were expunges
        self._before = 0                        # `Commits.total` when the command began
        self._done: Reply | None = None         # what is answered whatever fails from here on: see `done`
        self._numbers_kept = False              # whether none may be told although the command is one that may
        self._listening = self._woken = False   # in IDLE; and whether a look at the mailbox is due
        self._heard_of = False                  # whether the selected mailbox may be shared in another way since then
        self._list_version = 0, 0               # of the list of mailboxes, when that was last looked at

    # The conversation

    async def run(self) -> None:
        """Talk until one side has had enough. Raises ConnectionLost."""
        try:
            await self._converse()
        except ConnectionLost:
            self.ending = "connection lost"
            raise
        finally:
            if self.user:
                self.stream.tell_end("imap", self.user, self.ending)
            self.leave()
            self.forget_message()
            self.end_login()

    async def _converse(self) -> None:
        try:
            self.stream.admit()
            self.stream.write(responses.ok(None, "onecopy is ready", self.capability_code()))
            while self.state is not State.LOGOUT:
                await self._command()
            self.ending = "logout"
        except Stopping:
            own = self.stream.farewell
            last = (farewell(self.login.ended) if self.login is not None and self.login.ended is not None else
                    Farewell(own) if own else Farewell("The server is going down", b"UNAVAILABLE"))
            self.ending = last.public
            self.stream.write(responses.bye(last.public, last.code))
        except TimedOut:
            self.ending = "idle"
            if not self.user:
                self.authenticator.turned.at_admission("imap", self.stream.peer, "", NO_LOGIN)
            self.stream.write(responses.bye("Idle for too long"))
        except LimitReached as limit:
            self.ending = limit.public
            self.authenticator.turned.at_admission("imap", self.stream.peer, self.user or limit.user, limit.public)
            self.stream.write(responses.bye(limit.public, b"LIMIT"))
        except Farewell as last:
            self.ending = last.public
            log.info("%s: %s is sent away: %s", self.stream.id, self.user or "a client", last.public)
            self.stream.write(responses.bye(last.public, last.code))

    async def _command(self) -> None:
        """Read one command, carry it out and answer it."""
        if not self.stream.input_waiting or self._held_back >= HELD_BACK:
            self._held_back = 0
            await self.stream.drain(self.settings.command_time)
        await self.stream.breathe()
        step = await self.reading.command(partial(self._listener.receive, self))
        self._held_back += 1
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
            self.forget_message()

    async def _carry_out(self, frame: Frame) -> None:
        head = parse_head(frame, self.reading.framer.limits, utf8=self.utf8)
        reason = why_not(head.entry, self.state)
        if reason:
            raise BadCommand(head.tag, SyntaxProblem(reason))
        try:
            command = head.value()
        except BadCommand as bad:
            if bad.problem.status == NO and head.name in (b"SELECT", b"EXAMINE"):
                self.close()
            raise
        self.require_login()
        self.tag = head.tag
        self._reported, self._expunged, self._numbers_kept, self._done = None, False, False, None
        self._before = Commits.total
        reply = await self._guarded(head, self._listener.verbs[type(command)](self, command))
        if reply.status == NO and reply.code in NOT_HERE and self.refers_to_mailboxes:
            reply = await self._referred(command, reply)
        expunges = head.entry.expunges and not self._numbers_kept
        selects = head.name in (b"SELECT", b"EXAMINE")
        # A client takes what it hears within a SELECT for the new mailbox's, though nothing may be selected by it.
        if self.view is not None and self._reported is not expunges and (reply.status == OK or not selects):
            self._keep(reply)
            reply = await self._guarded(head, self._with_news(head, reply, expunges=expunges))
        if selects and reply.status == NO:
            self.leave()                # RFC 3501 §6.3.1, however far it has come
        reply = self._with_modseq(reply)
        log.debug("%s: %s: %s: %s", self.stream.id, self.user, head.name.decode("ascii"), reply.status.decode("ascii"))
        self.stream.write(responses.reply(head.tag, reply.status, reply.text, reply.code))
        if reply.status == BAD:
            self._count_bad()
        else:
            self._bad_commands = 0
        if reply.then is not None:
            reply.then()

    async def _referred(self, command: Any, reply: Reply) -> Reply:
        """The reply, or another one when the mailbox that is not here belongs to a user of another back end."""
        named = getattr(command, "mailbox", getattr(command, "target", None))
        if not isinstance(named, str) or is_there(named):
            return reply
        if not (code := await to_mailbox(self.store, self.user, self.name(named))):
            return reply
        return Reply("That mailbox is on another server", code, NO)

    async def _with_news(self, head: Head, reply: Reply, *, expunges: bool) -> Reply:
        await self.tell(expunges=expunges, by_uid=head.name.startswith(b"UID "))
        return reply

    def _with_modseq(self, reply: Reply) -> Reply:
        """The reply, with the HIGHESTMODSEQ that the client is to take for its own when expunges were told, or wait to
        be: it may have seen higher MODSEQs, but not everything up to these (RFC 7162 §3.2, §3.2.7, §6)."""
        view = self.view
        if view is None or b"CONDSTORE" not in self.enabled or not (self._expunged or view.has_vanished):
            return reply
        if reply.status == OK and not reply.code:
            return evolve(reply, code=responses.highestmodseq(view.modseq))
        self._tell_modseq(view)
        return reply

    def _tell_modseq(self, view: View) -> None:
        self.stream.write(responses.ok(None, "Highest mod-sequence", responses.highestmodseq(view.modseq)))

    def done(self, text: str) -> Reply:
        """What the command asked for is done, and on disk; that is the reply. Whatever fails from here on, in what is
        told of it, this stays the reply: it could not be told, and a client finds out at its next command."""
        self._done = Reply(text)
        return self._done

    def _keep(self, reply: Reply) -> None:
        if self._done is not None:
            self._done = reply

    async def _guarded(self, head: Head, work: Awaitable[Reply]) -> Reply:
        """The reply that a command comes to. Whatever goes wrong in it becomes its reply, unless it is `done`."""
        try:
            return await work
        except (ConnectionLost, TimedOut, Stopping, LimitReached, Farewell):
            raise
        except Exception as error:
            if self._done is None:
                try:
                    return self._failure(head, error)
                except Unflushed as unflushed:
                    tell_refusal(log, logging.ERROR, f"{self.stream.id}: {self.user}: no answer",
                                 disk_problem(unflushed))
                    raise Farewell("Whether the last command is done cannot be told", b"UNAVAILABLE") from error
            TROUBLES.met("a client could not be told of what it has changed",
                         f"{self.stream.id}: {self.user}: {head.name.decode('ascii')}: {error}")
            return self._done

    def _failure(self, head: Head, failure: Exception) -> Reply:
        """The reply to a command that was not carried out. Raises Unflushed when it may have been."""
        if isinstance(failure, Unflushed):
            raise failure
        if isinstance(failure, Refused):
            self._tell_right(head, failure.code == b"NOPERM", failure.public)
            return Reply(failure.public, failure.code, failure.status)
        if isinstance(failure, SyntaxProblem):
            return Reply(failure.public, failure.code, failure.status)
        if isinstance(failure, StoreError):
            self._tell_right(head, failure.problem is Problem.NO_PERMISSION, str(failure))
            return self.refusal(failure)
        log.error("%s: %s: %s failed", self.stream.id, self.user, head.name.decode("ascii"), exc_info=failure)
        unless_committed(self._before, failure)
        return Reply(BROKEN[1], BROKEN[0], NO)

    def _tell_right(self, head: Head, lacking: bool, why: str) -> None:
        if lacking and head.name in ADMINISTRATION:
            refusallines.refused(refusallines.RIGHT, self.stream.peer, self.user, "imap",
                                 f"{head.name.decode('ascii')}: {why}")

    def refusal(self, error: StoreError, *, as_target: bool = False) -> Reply:
        """The reply to a command that the store refused; `as_target`: the mailbox was to receive messages."""
        if error.problem in OUR_FAULT:
            tell_refusal(log, logging.ERROR, f"{self.stream.id}: {self.user}", error)
        return Reply(error.public[:1].upper() + error.public[1:], code(error, as_target=as_target), NO)

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

    # Mailboxes

    def name(self, text: str) -> MailboxName:
        """The mailbox name that the client means. Raises StoreError BAD_NAME, NO_PERMISSION.

        It is in NFC (RFC 9051 §6.3.4, RFC 5198 §2), unless there is a mailbox with just the name that was written, of
        which the user may know. In a snapshot there is nothing for who has not asked `snapshots` first: NO_PERMISSION.
        """
        if self.snapshots.concerns(text):
            raise StoreError(Problem.NO_PERMISSION, "A snapshot is only for reading")
        try:
            name = MailboxName.from_client(self.user, text)
            if is_normalized("NFC", text):
                return name
            entry = self.store.mailboxes.find(name)
            if entry is not None and rights.knows(self.store, self.user, entry):
                return name
            return MailboxName.from_client(self.user, normalize("NFC", text))
        except NameProblem as problem:
            raise StoreError(Problem.BAD_NAME, str(problem)) from problem

    def entry(self, text: str, right: str) -> MailboxEntry:
        """The mailbox that the client means, if the user has that right on it.

        Without it, one that the user may not even look up is answered like one that is not there.
        Raises StoreError NO_MAILBOX, BAD_NAME, NO_PERMISSION.
        """
        return self.granted(self.store.entry(self.name(text)), right)

    def granted(self, entry: MailboxEntry, right: str) -> MailboxEntry:
        """The mailbox, if the user has that right on it. Raises StoreError NO_MAILBOX, NO_PERMISSION."""
        if not rights.may(self.store, self.user, entry, right):
            known = rights.may(self.store, self.user, entry, "l")
            raise StoreError(Problem.NO_PERMISSION if known else Problem.NO_MAILBOX)
        return entry

    def rights(self) -> str:
        """The user's rights on the selected mailbox as they are now (RFC 4314 §2.1)."""
        entry = self.selected().mailbox.entry
        return RIGHTS if self.snapshots.snapshot is not None else rights.rights(self.store, self.user, entry)

    @property
    def source(self) -> Readable:
        """What the selected mailbox is read from: the store, or a snapshot."""
        return self.snapshots.snapshot or self.store

    def target(self, text: str) -> MailboxEntry:
        """The mailbox that is to receive messages. Raises Refused, with TRYCREATE when it is not there."""
        try:
            return self.entry(text, "i")
        except StoreError as error:
            reply = self.refusal(error, as_target=True)
            raise Refused(reply.text, reply.code) from error

    def enable_condstore(self) -> None:
        """The client has sent a CONDSTORE-enabling command (RFC 7162 §3.1); after the first it hears where it is."""
        if b"CONDSTORE" not in self.enabled:
            self.enabled.add(b"CONDSTORE")
            if self.view is not None:
                self._tell_modseq(self.view)

    async def select(self, entry: MailboxEntry, *, read_only: bool) -> View:
        """Select the mailbox; none is selected before. Raises StoreError NO_MAILBOX, CORRUPT."""
        mailbox = self.store.open_at_once(entry, self.user)
        if mailbox is None:
            mailbox = await self.patiently(offload.run(
                self.store, "views", self.store.open_mailbox, entry, self.user, user=self.user))
        held = rights.rights(self.store, self.user, entry)
        view = View(mailbox, read_only or not set(held) & CHANGING, *rights.changeable(self.store, self.user, entry))
        self.view = view
        self._claim_recent(view, view.mailbox.state.recent)
        self.state = State.SELECTED
        self._unsubscribe = self.store.news.subscribe(entry.id, self._heard)
        return view

    async def select_past(self, name: str) -> View:
        """Select a mailbox in a snapshot."""
        view = self.view = await self.snapshots.select(name)
        self.state = State.SELECTED
        return view

    def close(self) -> None:
        """Leave the mailbox that is selected, if any, for SELECT, and tell where its responses end (RFC 7162
        §3.2.11)."""
        if self.view is not None:
            self.leave()
            self.stream.write(responses.ok(None, "The mailbox is closed", responses.CLOSED))

    def leave(self) -> None:
        """No mailbox is selected any more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self.snapshots.leave()
        self.decoding = None
        if self.view is not None:
            self.view = None
            self.state = State.AUTHENTICATED

    def selected(self) -> View:
        """The selected mailbox's view. Raises Farewell when the user may not read the mailbox any more."""
        if self.view is None:
            raise Refused("No mailbox is selected", status=BAD)
        if self.snapshots.snapshot is not None:
            self.snapshots.require(self.snapshots.snapshot)
            return self.view
        entry = self.view.mailbox.entry
        if entry.acl or entry.name.owner != self.user or self._heard_of:
            self._heard_of = False
            self._follow_rights(self.view)
        return self.view

    def _follow_rights(self, view: View) -> None:
        """The user's rights on a shared mailbox may have changed since it was selected (RFC 4314 §2.1, §4)."""
        self.require_login()
        own = not view.mailbox.entry.acl and view.mailbox.entry.name.owner == self.user
        version = self.store.mailboxes.version()
        if own and version == self._list_version:
            return
        self._list_version = version
        entry = self.store.mailboxes.find_id(view.mailbox.entry.id)
        if entry is None:
            return                              # `tell` finds that it has been deleted
        if not rights.may(self.store, self.user, entry, "r"):
            raise Farewell("The selected mailbox is not shared with you any more", b"NOPERM")
        view.follow(entry.acl, *rights.changeable(self.store, self.user, entry))

    def writable(self, needed: str = "") -> View:
        """The selected view, for a command that needs these rights to change it. Raises Refused after EXAMINE."""
        view = self.selected()
        if self.snapshots.snapshot is not None:
            raise StoreError(Problem.NO_PERMISSION, "A snapshot is only for reading")
        if view.read_only:
            raise Refused("The mailbox was opened read-only")
        if needed and not set(needed) <= set(self.rights()):
            raise StoreError(Problem.NO_PERMISSION)
        return view

    def _claim_recent(self, view: View, first: int) -> None:
        r"""What no session has been told of is \Recent here, after SELECT nowhere else (RFC 3501 §2.3.2, §6.3.2)."""
        rows = view.mailbox.rows
        if self.rev2 or not len(rows) or int(rows["uid"][-1]) < first:
            return
        if view.read_only:
            view.add_recent(first)
            return
        try:
            view.add_recent(*offload.at_once(self.store, partial(self.store.claim_recent, view.mailbox.entry)))
        except StoreError as error:                 # while it is moved, or locked: others may be told of these, too
            if error.problem is not Problem.BUSY:
                raise
            view.add_recent(first, view.mailbox.state.uidnext)

    # News

    async def tell(self, *, expunges: bool, by_uid: bool = False, always: Positions | None = None,
                   belief: Belief | None = None) -> None:
        """Look at the selected mailbox and tell what changed; see `View.merge`.

        Raises Farewell when it has been deleted: there is no other way to say that nothing is selected any more.
        """
        view = self.selected()
        self._woken = False
        self._reported = expunges
        if self.snapshots.snapshot is not None:        # nothing changes there
            return
        self.stream.write(view.other_rights())
        much = len(view.rows) >= MANY and max(0 if always is None else len(always),
                                              0 if belief is None else len(belief.positions)) > QUICK
        try:
            new = self.store.refresh_at_once(view.mailbox)
            if new is None:
                much = True
                new = await offload.run(self.store, "views", self.store.refresh, view.mailbox, user=self.user)
        except StoreError as error:
            if error.problem is Problem.NO_MAILBOX:
                self.require_login()
                raise Farewell("The selected mailbox has been deleted", b"NONEXISTENT") from error
            tell_refusal(log, logging.ERROR, f"{self.stream.id}: {self.user}", error)
            return
        if new is view.mailbox and always is None and belief is None and not (expunges and view.has_vanished):
            return
        merge = partial(view.merge, new, expunges=expunges, always=always, belief=belief)
        merged = await offload.run(self.store, "views", merge, user=self.user) if much else merge()
        if merged.more:
            self._claim_recent(view, new.state.recent)
        self._expunged |= len(merged.expunged) > 0
        for piece in view.responses(merged, by_uid=by_uid, enabled=self.enabled):
            self.stream.write(piece)
            await self.stream.drain(self.settings.command_time)

    def keep_numbers(self) -> None:
        """This command uses message numbers, whatever its name: it tells of no expunge (RFC 7162 §3.2.10.2)."""
        self._numbers_kept = True

    async def listen(self) -> None:
        """Tell news as they come, until the client says something (RFC 2177). Raises TimedOut, Stopping."""
        self._listening = True
        deadline = self.clock.seconds() + self.settings.idle_time
        try:
            while True:
                self.require_login()
                if self.view is not None:
                    await self.tell(expunges=True)
                if await self.stream.wait(deadline - self.clock.seconds()):
                    return
        finally:
            self._listening = False

    def account_changed(self) -> None:
        """The user may be in other groups now, which has mailboxes shared in another way."""
        self._heard()

    def _heard(self) -> None:
        """The selected mailbox may have changed. We are in the middle of other work: the look comes in its own turn."""
        self._heard_of = True
        if self._listening and not self._woken:
            self._woken = True
            self.clock.callLater(0, self.stream.wake)

    def progress(self) -> Progress:
        """That of a command which can be left off when the connection is lost; for `patiently`."""
        return Progress(lambda: self.stream.lost)

    async def change(self, units: int, work: Callable[[], T], *, kind: str = "changes") -> T:
        """The result of work that is so much (`transactions.units`): at once when it is little, and need not wait."""
        if units <= QUICK_UNITS:
            with suppress(NotAtOnce):
                return offload.at_once(self.store, work)
            kind = "held" if kind == "changes" else kind
        return await self.patiently(offload.run(self.store, kind, work, user=self.user))

    async def patiently(self, work: Awaitable[T], progress: Progress | None = None) -> T:
        """The result of work that may take long and writes nothing: the client hears meanwhile that it goes on, and how
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
        """What has arrived of a message, and not been delivered, goes."""
        if self.arriving is not None:
            arriving, self.arriving = self.arriving, None
            arriving.abort()
