"""Scripts run after APPEND, COPY, MOVE and changes of flags (RFC 6785).

The command's transaction has put on record what it did (`store.events.scriptevents`), and the command is answered. The
keeper runs the scripts, some messages of each mailbox in turn, so that nobody waits for those of a large change. What a
script wants for a message is done in one transaction, which also takes the message off the record: once, also when the
process is killed. Copies to another partition come just before; one killed in between brings them again.

What a script does is no event: no script runs for that. A script that fails changes nothing, and its owner finds a note
in the INBOX. One that takes too much is not run for the other messages of its event.
"""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from attrs import define, evolve, field, frozen

from mboxlist.annotations import EVENT_SCRIPT
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName
from store.delivery.alongside import Alongside, placed_here, prepared_here
from store.delivery.commit import Target
from store.delivery.inthread import deliver_here
from store.errors import Problem, StoreError
from store.events.scriptevents import FLAG, ScriptEvent
from store.filtering.disposition import Disposer, flags_of
from store.filtering.filters import HEADER, WAITING, Filters, Recipient
from store.mailboxes.copymessages import copy_within
from store.mailboxes.flagchanges import change_within
from store.message.headers import header_end
from store.metrics.processcounters import Counters
from store.metrics.scriptcounters import LIMIT, SCRIPT, SERVER
from store.partition.messagereading import MessageFile
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptoutcome import KEPT, UNCHANGED, Edition, Filed, Outcome
from store.sieve.scriptrun import FOR_DELIVERY, Run, Tree, run
from store.store import Store
from store.tables.state import Mailbox
from store.values import SYSTEM_NAMES, Flag, Flags, InternalDate

log = logging.getLogger(__name__)

PASSES = 20                 # turns that each mailbox has in a round
SLICE = 0.02                # seconds of a turn
AT_A_TIME = 20              # events that are read together
MOST = 2000                 # events of a mailbox that wait; what comes on top of them is forgotten
PACE = WAITING              # of a run
LARGEST = 32 << 20          # octets of a message that is stored again,
STORED = 128 << 20          # and of all copies that are made so for one message
_LASTING = frozenset((Problem.NO_MAILBOX, Problem.NO_PERMISSION, Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED,
                      Problem.LIMIT, Problem.TOO_BIG))


def waiting(store: Store) -> Iterator[tuple[str, MailboxId]]:
    """The mailboxes in which scripts are to run, with the partitions that have it on record; each some times, one after
    the other."""
    for _ in range(PASSES):
        found = [(name, mailbox) for name, partition in store.writable.items()
                 for mailbox in partition.script_events.mailboxes()]
        if not found:
            return
        yield from found


def run_some(store: Store, item: tuple[str, MailboxId]) -> int:
    """Run the script of a mailbox for some of the messages that wait for it; how many. For a thread. Raises StoreError.
    """
    recorded, mailbox = store.partitions[item[0]], item[1]
    events = recorded.script_events.of(mailbox, AT_A_TIME)
    entry = store.mailboxes.find_id(mailbox)
    name = None if entry is None else script_name(store, entry)
    if not events or entry is None or name is None:
        return recorded.transact(lambda txn: txn.partition.script_events.drop(mailbox, txn.handle))
    if len(events) == AT_A_TIME and recorded.transact(
            lambda txn: txn.partition.script_events.drop(mailbox, txn.handle, first=MOST)):
        log.warning("%s: too many changes wait for its script, the last ones are forgotten", entry.name)
    own = _Turn(store, recorded, entry, name, time.monotonic() + SLICE)
    done = 0
    for event in events:
        done += own.run(event)
        if own.over:
            break
    recorded.flush()
    return done


@frozen
class ScriptName:
    """What an annotation says: of the mailbox, or of the server."""

    name: str
    server: bool


def script_name(store: Store, entry: MailboxEntry) -> ScriptName | None:
    """The script that runs on events in the mailbox (RFC 6785 §2.3.1); None: none does."""
    if not entry.name.owner or not Filters.of(store).settings_of(entry.name.owner).enabled:
        return None
    value = store.mailboxes.annotations.get(entry.id, EVENT_SCRIPT)
    found = ScriptName(store.event_script, True) if value is None else ScriptName(
        value.decode("utf-8", "replace").strip(), False)
    return found if found.name else None


@define(eq=False)
class _Turn:
    """A mailbox has its turn, until that time (`time.monotonic`)."""

    store: Store
    recorded: Partition         # which has the events
    entry: MailboxEntry
    name: ScriptName
    until: float
    tree: Tree | None = field(init=False)
    view: Mailbox = field(init=False)

    @tree.default
    def _tree(self) -> Tree | None:
        return Filters.of(self.store).on_events(self.entry.name.owner, self.name.name, site_first=self.name.server)

    @view.default
    def _view(self) -> Mailbox:
        return self.store.open_mailbox(self.entry)

    @property
    def over(self) -> bool:
        """Whether it is another one's turn."""
        return time.monotonic() >= self.until

    def run(self, event: ScriptEvent) -> int:
        """Run the script for messages of an event; how many."""
        if self.tree is None:           # RFC 6785 §2.3.1: where there is no such script, none is run
            return self._take(event, event.uids.tolist())
        idle, done = list[int](), 0     # messages for which nothing is to be done
        for uid in event.uids.tolist():
            if done + len(idle) and self.over:
                break
            wanted = self._decide(event, uid)
            if wanted is None or wanted.nothing:
                idle.append(uid)
                continue
            rest = event.uids[event.uids > uid].tolist() if wanted.exhausted else []
            done += wanted.carry_out(self.recorded, event, [*idle, uid, *rest])
            idle.clear()
            if wanted.exhausted:
                break
        return done + (self._take(event, idle) if idle else 0)

    def _take(self, event: ScriptEvent, uids: list[int]) -> int:
        self.recorded.transact(lambda txn: txn.partition.script_events.take(event, uids, txn.handle))
        return len(uids)

    def _decide(self, event: ScriptEvent, uid: int) -> "Wanted | None":
        """What the script wants for a message; None when that is not there any more, or cannot be read."""
        row = self.view.row(uid)
        if row is None:
            return None
        try:
            with self.store.open_message(self.view.entry, row) as file:
                return self._wanted(event, Message.of(self.view, uid, row), file)
        except StoreError as problem:
            if problem.problem is not Problem.CORRUPT:
                raise
            log.error("%s: message %d cannot be read, so no script runs for it: %s", self.entry.name, uid, problem)
            return None

    def _wanted(self, event: ScriptEvent, message: "Message", file: MessageFile) -> "Wanted":
        assert self.tree is not None
        begun = EventRun.begin(self.store, event, message, file)
        counted, began = Counters.of(self.store).scripts, time.perf_counter()
        try:
            wanted = begun.ended(self.tree, file)
            counted.ran(time.perf_counter() - began, begun.state.steps)
            if wanted.failure:
                counted.failures[LIMIT if wanted.exhausted else SCRIPT] += 1
        except StoreError:
            raise
        except Exception as error:          # else the message would stay on record, and with it all that come after it
            counted.failures[SERVER] += 1
            log.exception("a script of %s could not be run for message %d of %s", self.entry.name.owner, message.uid,
                          self.entry.name)
            wanted = Wanted(self.store, message, begun.disposer, Outcome(),
                            failure=f"an error of this server: {type(error).__name__}")
        if wanted.failure:
            wanted.fail(wanted.failure)
        for note in begun.disposer.notes:
            log.info("script of %s: %s", self.entry.name.owner, note)
        return wanted


@define(eq=False)
class EventRun:
    """The run of a script for a message of an event, which is about to begin; `shown` are the flags as scripts see
    them."""

    store: Store
    message: "Message"
    state: Run
    disposer: Disposer
    shown: tuple[str, ...]

    @classmethod
    def begin(cls, store: Store, event: ScriptEvent, message: "Message", file: MessageFile) -> "EventRun":
        """With what a script may ask (RFC 6785 §4)."""
        filters, entry = Filters.of(store), message.entry
        owner, now = entry.name.owner, datetime.now(UTC).astimezone()
        inbox = store.mailboxes.find(MailboxName(owner, INBOX)) or entry
        head = file.read(0, min(HEADER, file.size))
        end = header_end(head)
        mail = ReceivedMail(head[:end if end is not None else len(head)], file.size, file.read)
        settings, address = filters.settings_of(owner), filters.whole_address(owner)
        base = Target(inbox, ignore_quota=True)     # for notes; copies of mail have targets of their own
        envelope = filters.envelope(address, Recipient(base, address))
        state = filters.state(mail, envelope, inbox, now, settings, PACE)
        state.surroundings = evolve(state.surroundings, environment={
            **state.surroundings.environment, "imap.user": event.user,
            "imap.email": filters.whole_address(event.user), "imap.cause": event.cause,
            "imap.mailbox": entry.name.to_client(owner),
            "imap.changedflags": " ".join(event.flags) if event.cause == FLAG else ""})
        state.event = True
        state.flags = shown = names_of(message.flags)
        return cls(store, message, state, filters.disposer(mail, envelope, base, now, settings, 1), shown)

    def ended(self, tree: Tree, file: MessageFile) -> "Wanted":
        """What the script wants."""
        outcome = run([tree], self.state) if (why := _unfit(tree)) == "" else Outcome(failure=why)
        wanted = Wanted(self.store, self.message, self.disposer, exhausted=self.state.exhausted,
                        failure=outcome.failure, outcome=outcome)
        if not outcome.failure:
            wanted.want(outcome, self.shown, file)
        return wanted


def _unfit(tree: Tree) -> str:
    """Why a script cannot run for an event of IMAP (RFC 6785 §2.1, §3.11)."""
    if "imapsieve" not in tree.needs:
        return 'a script for events of IMAP requires "imapsieve"'
    wrong = sorted(tree.needs & FOR_DELIVERY)
    return f"{wrong[0]} is for mail that comes, not for events of IMAP" if wrong else ""


@frozen
class Message:
    """The message of an event, as it was when its script ran."""

    entry: MailboxEntry
    uid: int
    flags: Flags
    date: InternalDate

    @classmethod
    def of(cls, view: Mailbox, uid: int, row: Any) -> "Message":
        """As its record has it."""
        return cls(view.entry, uid, Flags(Flag(int(row["flags"])), view.keyword_names(int(row["keywords"]))),
                   InternalDate(int(row["received"]), int(row["zone"])))


@define(eq=False)
class Wanted:
    """What a script wants for a message: copies, flags that `come` and that are `gone`, and what `disposer` has of mail
    that leaves. `failure`: why it did not run to its end."""

    store: Store
    message: Message
    disposer: Disposer
    outcome: Outcome
    exhausted: bool = False
    failure: str = ""
    come: Flags = field(default=Flags(), init=False)
    gone: Flags = field(default=Flags(), init=False)
    _copied: list[tuple[MailboxEntry, Flags]] = field(factory=list, init=False)         # by their records
    _stored: list[tuple[Target, bytes]] = field(factory=list, init=False)               # as messages of their own,
    _octets: dict[Edition, bytes] = field(factory=dict, init=False)                     # of which one edition is held

    @property
    def nothing(self) -> bool:
        """Whether the message stays as it is, and nothing else is to be done."""
        return not (self.come != self.gone or self._copied or self._stored or self.disposer.follows
                    or self.disposer.copies)

    @property
    def copies(self) -> list[tuple[MailboxEntry, Flags]]:
        """The mailboxes that get a copy, and its flags there."""
        return [*self._copied, *((target.entry, target.flags) for target, _ in self._stored)]

    def fail(self, why: str) -> None:
        """The message stays as it is, nothing leaves, and the owner of the script hears of it."""
        self.disposer = evolve(self.disposer, notes=[], follows=[], others=[], copies=[])
        self.come = self.gone = Flags()
        self._copied.clear()
        self._stored.clear()
        entry = self.message.entry
        log.warning("a script of %s failed at message %d of %s: %s", entry.name.owner, self.message.uid, entry.name,
                    why)
        self.disposer.tell_owner(why, f"stays in {entry.name.to_client(entry.name.owner)} as it was")

    def want(self, outcome: Outcome, shown: tuple[str, ...], file: MessageFile) -> None:
        r"""What the outcome means (RFC 6785 §3); `shown` are the flags as the script saw them. A message that is not
        kept gets \Deleted; changes of its text are only for copies."""
        kept = [one for one in outcome.files if one.mailbox == KEPT and not one.mailbox_id]
        stays = not self.disposer.send(outcome) or bool(kept)
        for filed in outcome.files:
            if filed.mailbox != KEPT or filed.mailbox_id:
                stays = not self._file(filed, file) or stays
        named = flags_of(kept[-1].flags if kept else shown)
        old = flags_of(shown)
        allowed = partial(self.disposer.allowed, self.message.entry)
        self.come = allowed(_without(named, old))
        self.gone = allowed(_without(old, named))
        if not stays:
            self.come = allowed(Flags(self.come.system | Flag.DELETED, self.come.keywords))

    def _file(self, filed: Filed, file: MessageFile) -> bool:
        """Have a copy filed; whether there is such a mailbox."""
        entry = self.disposer.find(filed)
        if entry is None:
            return False
        flags = self.disposer.allowed(entry, flags_of(filed.flags))
        here = self.store.partition_of(entry) is self.store.partition_of(self.message.entry)
        if here and filed.edition == UNCHANGED:
            self._copied.append((entry, flags))
            return True
        size = file.size if filed.edition.whole is None else len(filed.edition.whole)
        if size > LARGEST or sum([len(octets) for _, octets in self._stored]) + size > STORED:
            self.disposer.notes.append(f"it is not stored again: messages of {LARGEST} octets are, and {STORED} in all")
            return False
        if filed.edition not in self._octets:
            self._octets[filed.edition] = filed.edition.whole or filed.edition.added + file.read(0, file.size)
        self._stored.append((Target(entry, flags, group=1), self._octets[filed.edition]))
        return True

    def carry_out(self, recorded: Partition, event: ScriptEvent, uids: list[int]) -> int:
        """Do it, and take these messages off the record; how many. Raises StoreError when it may be done later."""
        try:
            self._do(recorded, event, uids)
        except StoreError as problem:
            if problem.problem not in _LASTING:
                raise
            self.fail(problem.public)
            self._do(recorded, event, uids)
        for octets, target in self.disposer.copies:
            try:
                deliver_here(self.store.partition_of(target.entry), target, octets, self.message.date)
            except StoreError as problem:
                log.warning("a note, or a copy of what a script sends, could not be filed: %s", problem)
        return len(uids)

    def _do(self, recorded: Partition, event: ScriptEvent, uids: list[int]) -> None:
        place = self.store.partition_of(self.message.entry)

        def work(txn: WriteTxn) -> None:
            if place is recorded and not txn.partition.script_events.take(event, uids, txn.handle):
                raise StoreError(Problem.BUSY, detail="another process has run that script")
            for target, flags in sorted(self._copied, key=lambda each: each[0].id):
                copy_within(txn, self.message.entry, target, self.message.uid, flags)
            if self.come != self.gone:
                change_within(txn, self.message.entry.id, self.message.uid, self.come, self.gone)
            for one in stored:
                one.deliver(txn)
            for follow in self.disposer.follows:
                follow(txn)

        stored: list[Alongside] = []
        try:
            for target, octets in self._stored:
                if (partition := self.store.partition_of(target.entry)) is place:
                    stored.append(prepared_here(place, octets, target, self.message.date))
                else:
                    deliver_here(partition, target, octets, self.message.date)
            place.transact(work)
            for one in stored:
                one.is_delivered()
            if stored:
                place.flush()
        finally:
            placed_here(stored)
        if place is not recorded:           # the mailbox has been moved to another partition since
            place.flush()
            recorded.transact(lambda txn: txn.partition.script_events.take(event, uids, txn.handle))


def names_of(flags: Flags) -> tuple[str, ...]:
    """These flags as scripts write them."""
    return (*(name for bit, name in SYSTEM_NAMES.items() if int(flags.system) & bit), *flags.keywords)


def _without(flags: Flags, others: Flags) -> Flags:
    known = {name.lower() for name in others.keywords}
    return Flags(flags.system & ~others.system, tuple(name for name in flags.keywords if name.lower() not in known))
