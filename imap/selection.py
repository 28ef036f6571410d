"""What a session has selected: the mailbox, the view of it, the user's rights on it, and what the client hears of its
changes (RFC 3501 §3.3, §5.2)."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from unicodedata import is_normalized, normalize

from imap.client import Client
from imap.lines import Positions
from imap.refusals import OUR_FAULT, code
from imap.settings import Settings
from imap.snapshotnames import RIGHTS, SnapshotAccess
from imap.snapshotnames import ROOT as SNAPSHOTS
from imap.states import Farewell, Refused, Reply
from imap.view import Belief, View
from imap.wire import responses
from imap.wire.commands import State
from imap.wire.responses import BAD, NO
from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName, NameProblem
from store import offload
from store.errors import Problem, StoreError
from store.mailboxes import authorization as rights
from store.mailboxes import uidskip
from store.net.linestates import Clock
from store.net.stream import Stream
from store.news.turns import Turns
from store.partition.recordbuffers import Step
from store.partition.views import MANY
from store.problems import tell_refusal
from store.readable import Place, Readable
from store.store import Store
from store.tables.state import Mailbox, MailboxState

log = logging.getLogger(__name__)

T = TypeVar("T")

QUICK = 5000                # messages that are gone through without a thread
CHANGING = frozenset("istwe")   # who has none of these rights opens a mailbox read-only (RFC 4314 §5.2)


class Selection(Client):
    """What a `Session` knows of it; the rest of a session carries out commands."""

    def __init__(self, stream: Stream, store: Store, settings: Settings, clock: Clock) -> None:
        super().__init__(stream, store, settings, clock)
        self.view: View | None = None
        self.decoding: object = None            # verbs.binary.Decoding: a part of which portions are asked for
        self.snapshots = SnapshotAccess(self)
        self._unsubscribe: Callable[[], None] | None = None
        self._reported: bool | None = None          # whether this command has reported news already, and expunges too
        self._expunged = False                  # and there were expunges
        self._numbers_kept = False              # whether none may be told although the command is one that may
        self._listening = self._woken = False   # in IDLE; and whether a look at the mailbox is due
        self._turns = Turns.of(clock)
        self._heard_of = False                  # whether the selected mailbox may be shared in another way since then
        self._list_version = 0, 0               # of the list of mailboxes, when that was last looked at

    async def of_many(self, messages: int, work: Callable[[], T]) -> T:
        """The result of work on arrays that goes through so many messages: in a thread, unless they are few. One call
        into C may take as long as many of Python's."""
        return work() if messages <= QUICK else await offload.run(self.store, "views", work, user=self.user)

    def refusal(self, error: StoreError, *, as_target: bool = False) -> Reply:
        """The reply to a command that the store refused; `as_target`: the mailbox was to receive messages."""
        if error.problem in OUR_FAULT:
            tell_refusal(log, logging.ERROR, f"{self.stream.id}: {self.user}", error)
        return Reply(error.public[:1].upper() + error.public[1:], code(error, as_target=as_target), NO)

    # Mailboxes

    def name(self, text: str) -> MailboxName:
        """The mailbox name that the client means. Raises StoreError BAD_NAME, NO_PERMISSION.

        It is in NFC (RFC 9051 §6.3.4, RFC 5198 §2), unless there is a mailbox with just the name that was written, of
        which the user may know. In a snapshot there is nothing for who has not asked `snapshots` first: NO_PERMISSION.
        """
        if text.startswith(SNAPSHOTS) and self.snapshots.concerns(text):
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

    def place(self, partition: str) -> Place:
        """Where the messages of the selected mailbox lie, of which that is the partition. Raises StoreError
        UNAVAILABLE."""
        if self.snapshots.snapshot is not None:
            return self.snapshots.snapshot.partition(partition)
        return self.store.partitions.get(partition) or self.store.partition(partition)

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
            self.have_enabled(self.enabled | {b"CONDSTORE"})
            if self.view is not None:
                self._tell_modseq(self.view)

    def _tell_modseq(self, view: View) -> None:
        self.stream.write(responses.ok(None, "Highest mod-sequence", responses.highestmodseq(view.modseq)))

    async def select(self, entry: MailboxEntry, *, read_only: bool) -> View:
        """Select the mailbox; none is selected before. Raises StoreError NO_MAILBOX, CORRUPT."""
        mailbox = self.store.open_again(entry, self.user)
        if mailbox is None:
            if uidskip.unstored(self.store, [entry]):
                await self.patiently(uidskip.stored(self.store, [entry]))       # it waits during a write freeze
            mailbox = self.store.open_at_once(entry, self.user)
        if mailbox is None:
            mailbox = await self.patiently(offload.run(
                self.store, "views", self.store.open_mailbox, entry, self.user, user=self.user))
        held = rights.rights(self.store, self.user, entry)
        read_only |= self.store.is_read_only(entry) or not set(held) & CHANGING
        view = View(mailbox, read_only, *rights.changeable(self.store, self.user, entry))
        self.view = view
        self._claim_recent(view, view.mailbox.state.recent)
        self.state = State.SELECTED
        self._unsubscribe = self.store.news.subscribe(entry.id, self._heard, self._is_behind)
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
            self.stream.write(responses.CLOSED)

    def leave(self) -> None:
        """No mailbox is selected any more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self.snapshots.snapshot is not None:
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
        if self._heard_of or entry.acl or entry.name.owner != self.user:      # as `_is_shared`: each command asks twice
            self._heard_of = False
            self._follow_rights(self.view)
        return self.view

    def _is_shared(self, view: View) -> bool:
        entry = view.mailbox.entry
        return bool(entry.acl) or entry.name.owner != self.user

    def _follow_rights(self, view: View) -> None:
        """The user's rights on a shared mailbox may have changed since it was selected (RFC 4314 §2.1, §4)."""
        own = not view.mailbox.entry.acl and view.mailbox.entry.name.owner == self.user
        version = self.store.mailboxes.version()
        if own and version == self._list_version:
            return
        self.require_login()
        self._list_version = version
        known, mailboxes = view.mailbox.entry, self.store.mailboxes
        entry = known if mailboxes.is_still(known) else mailboxes.find_id(known.id)     # which may wait for a lock
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
        if self.store.is_read_only(view.mailbox.entry):
            raise StoreError(Problem.READ_ONLY)
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
        except StoreError as error:                 # while it is moved, or locked, or not to be written to until it is
            if error.problem not in (Problem.BUSY, Problem.CORRUPT):        # repaired: others may be told of these, too
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
        if view.other_rights:
            view.other_rights = False
            self.stream.write(view.flags_line())
        try:
            partition = self.store.partitions.get(view.mailbox.entry.partition)
            new = None if partition is None else partition.views.glance(view.mailbox)
            new = new or self.store.refresh_at_once(view.mailbox)
            if read := new is None:
                new = await offload.run(self.store, "views", self.store.refresh, view.mailbox, user=self.user)
        except StoreError as error:
            if error.problem is Problem.NO_MAILBOX:
                self.require_login()
                raise Farewell("The selected mailbox has been deleted", b"NONEXISTENT") from error
            tell_refusal(log, logging.ERROR, f"{self.stream.id}: {self.user}", error)
            return
        if new is view.mailbox and always is None and belief is None and not (expunges and view.has_vanished):
            return
        if read or len(view.rows) >= MANY and max(0 if always is None else len(always),
                                                  0 if belief is None else len(belief.positions)) > QUICK:
            merged = await offload.run(self.store, "views", partial(
                view.merge, new, expunges=expunges, always=always, belief=belief), user=self.user)
        else:
            merged = view.merge(new, expunges=expunges, always=always, belief=belief)
        if merged.more:
            self._claim_recent(view, new.state.recent)
        self._expunged |= len(merged.expunged) > 0
        for piece in view.responses(merged, by_uid=by_uid, enabled=self.enabled):
            self.stream.write(piece)
            if self.stream.behind:
                await self.stream.drain(self.settings.command_time)
                if self._listening:             # in IDLE, and perhaps hundreds with it
                    await self.stream.take_turn(self._turns)

    def tell_own(self, step: Step, at: int, *, by_uid: bool, silent: bool) -> bool:
        """Tell of the change that this command has just made to the message at that place, if it follows on what the
        client knows; whether it has been told. Nobody looks at the mailbox then: what others have changed since is told
        by the next command. A client that asked for silence knows its flags."""
        view, enabled = self.selected(), self.enabled
        modseqs = b"CONDSTORE" in enabled
        if view.has_vanished or view.other_rights or modseqs and silent:
            return False
        partition = self.store.partitions.get(view.mailbox.entry.partition)
        new = None if partition is None else partition.views.stepped(view.mailbox, step)
        if new is None:
            return False
        self._reported = by_uid
        view.take_over(new)
        if not silent:
            self.stream.write(view.flags_line_of(at, by_uid=by_uid or b"IMAP4REV2" in enabled, modseqs=modseqs))
        return True

    def follow_own(self, before: MailboxState, after: MailboxState, *, by_uid: bool) -> bool:
        """As `tell_own`, of a change of many messages that a client has asked to be silent; these are the figures
        before and after it."""
        view = self.selected()
        if view.has_vanished or view.other_rights or b"CONDSTORE" in self.enabled:
            return False
        partition = self.store.partitions.get(view.mailbox.entry.partition)
        new = None if partition is None else partition.views.handed(view.mailbox, before, after)
        if new is None:
            return False
        self._reported = by_uid
        view.take_over(new)
        return True

    def needs_no_look(self) -> None:
        """All that is to be told of the selected mailbox has been told, and is of now: the end of the command need not
        look again."""
        self._reported = False

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

    def _is_behind(self) -> bool:
        """Whether the selected mailbox is not what it was, or may be shared in another way, untold."""
        if self.view is None or self._is_shared(self.view):
            return self.view is not None
        return self._glance(self.view.mailbox) is not self.view.mailbox

    def _glance(self, mailbox: Mailbox) -> Mailbox | None:
        """See `MailboxViews.glance`."""
        partition = self.store.partitions.get(mailbox.entry.partition)
        return partition.views.glance(mailbox) if partition is not None else None

    def _heard(self) -> None:
        """The selected mailbox may have changed. We are in the middle of other work: the look comes in its own turn."""
        self._heard_of = True
        if self._listening and not self._woken:
            self._woken = True
            self._turns.add(self.clock, self._wake)

    def _wake(self) -> None:
        """Its turn has come. Who has left IDLE meanwhile looks by himself."""
        self._woken = False
        if self._listening:
            self.stream.wake()
