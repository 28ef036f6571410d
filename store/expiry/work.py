"""What rules decide is done to a mailbox, in transactions of a bounded number of messages.

A decision is about a view of the mailbox. Each transaction first looks whether anything but deliveries has happened to
the mailbox since; then it does nothing, and the rules decide again. So no message goes that a client has flagged or
expunged something beside in the meantime, and none that has just arrived; and done again, after a crash or beside
another process, the work takes no message twice.
"""

import logging
from collections.abc import Collection, Sequence

import numpy as np
from attrs import define, evolve, field, frozen

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.expiry.decide import Having, Mask, Places, decide
from store.expiry.rulebook import Applied, Rulebook, target_of
from store.expiry.rules import Action
from store.mailboxes import crosspartition, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import take_out
from store.message.collation import casemap
from store.message.fields import LISTED, Lister
from store.partition.transactions import WriteTxn
from store.progress import Progress
from store.search.matching import find, has_field
from store.search.projection import readable
from store.search.searchkeys import Header
from store.store import Store
from store.tables.index import Rows, take
from store.tables.slices import PartlyDone
from store.tables.state import Mailbox, MailboxState

log = logging.getLogger(__name__)

BATCH = 1000                # messages of one transaction
TRIES = 20                  # to find a mailbox in which nothing happens meanwhile
CACHED = 256                # cache records that are read together


class _Changed(Exception):
    """Something happened to the mailbox after the decision."""


@frozen
class Counter:
    """What a rule has done: messages and their octets. `oldest` is the internal date of the oldest, 0 for none."""

    messages: int = 0
    octets: int = 0
    oldest: int = 0

    def plus(self, other: "Counter") -> "Counter":
        oldest = min((when for when in (self.oldest, other.oldest) if when), default=0)
        return Counter(self.messages + other.messages, self.octets + other.octets, oldest)

    @classmethod
    def of(cls, rows: Rows) -> "Counter":
        return cls(len(rows), int(rows["size"].sum()), max(1, int(rows["received"].min()))) if len(rows) else cls()


@frozen
class Reported:
    """Messages that a rule reports."""

    mailbox: str
    uidvalidity: int
    rule: str
    uids: tuple[int, ...]


@define
class Done:
    """What has been done. `counters` by the keys of rules; `more`: there is more to do in this mailbox."""

    counters: dict[str, Counter] = field(factory=dict)
    reported: list[Reported] = field(factory=list)
    problems: list[str] = field(factory=list)
    more: bool = False

    @property
    def messages(self) -> int:
        return sum(counter.messages for counter in self.counters.values())

    def count(self, rule: str, rows: Rows) -> None:
        self.counters[rule] = self.counters.get(rule, Counter()).plus(Counter.of(rows))


@frozen
class Plan:
    """What to do: `now` is Unix time, `only` names of rules (empty: all), `most` messages of one mailbox that go before
    others have their turn (0: all), `batch` those of one transaction; without `change` nothing is done."""

    now: float
    change: bool = True
    only: Collection[str] = ()
    most: int = 0
    batch: int = BATCH


def expire(store: Store, entry: MailboxEntry, book: Rulebook, plan: Plan) -> Done:
    """Do to one mailbox what its rules say. Not flushed. Raises StoreError NO_MAILBOX, CORRUPT, BUSY, UNAVAILABLE;
    PartlyDone with the `Done` of what was done before."""
    done, choice = Done(), book.choice(entry)
    if choice.why_none and not choice.exempt:
        done.problems.append(f"nothing is expired where this holds: {choice.why_none}")
    rules = [one for one in choice.rules if one.rule.hits_something]
    if not rules or not store.status(entry).messages or not _wanted(rules, plan):
        return done
    for _ in range(TRIES):
        try:
            _once(store, store.open_mailbox(entry), rules, plan, done)
        except _Changed:
            continue
        except StoreError as refusal:
            if done.counters:
                raise PartlyDone(refusal, [done]) from refusal
            raise
        return done
    done.problems.append(f"{entry.name}: it changes all the time, and is left for the next time")
    return done


def _wanted(rules: Sequence[Applied], plan: Plan) -> bool:
    return not plan.only or any(one.rule.name in plan.only for one in rules)


def _once(store: Store, mailbox: Mailbox, rules: Sequence[Applied], plan: Plan, done: Done) -> None:
    """Raises _Changed when the mailbox is not as it was; what was done before is counted."""
    verdicts = decide([one.rule for one in rules], mailbox.rows, plan.now, having(store, mailbox))
    found = [(rules[verdict.rule], take(mailbox.rows, verdict.places)) for verdict in verdicts
             if not plan.only or rules[verdict.rule].rule.name in plan.only]
    left = plan.most or len(mailbox.rows)
    changed = _Expected(mailbox.state)
    for one, rows in found:
        if one.rule.action is Action.REPORT:
            if not any(item.rule == one.key for item in done.reported):     # it was decided again
                done.count(one.key, rows)
                done.reported.append(Reported(str(mailbox.entry.name), mailbox.state.uidvalidity, one.key,
                                              tuple(rows["uid"].tolist())))
            continue
        if not plan.change:
            done.count(one.key, rows)
            continue
        work = _discard if one.rule.action is Action.DISCARD else _file
        at = 0
        while at < len(rows):
            if left <= 0:
                done.more = True
                return
            some = rows[at:at + min(plan.batch, left)]
            if not work(store, mailbox, one, some, changed, done):
                break
            done.count(one.key, some)
            at += len(some)
            left -= len(some)


@define(eq=False)
class _Expected:
    """The state of the mailbox as it must be, but for arrivals. `then` is HIGHESTMODSEQ after our own change, which
    counts when it has been committed."""

    state: MailboxState
    then: int = 0

    def look(self, state: MailboxState) -> None:
        """Raises _Changed."""
        if (state.changed, state.uidvalidity) != (self.state.changed, self.state.uidvalidity):
            raise _Changed
        self.then = state.highestmodseq + 1

    def committed(self) -> None:
        self.state = evolve(self.state, changed=self.then)


def _discard(store: Store, mailbox: Mailbox, one: Applied, rows: Rows, expected: _Expected, done: Done) -> bool:
    entry = mailbox.entry
    uids = np.ascontiguousarray(rows["uid"])

    def work(txn: WriteTxn) -> None:
        state = txn.state(entry.id)
        expected.look(state)
        there = txn.rows_of(entry.id, uids)
        if len(there) != len(uids):
            raise _Changed
        if (recording := txn.recording) is not None:
            recording.expire(entry.id)
        take_out(txn, entry.id, state, there)

    store.transact(entry, work)
    expected.committed()
    return True


def _file(store: Store, mailbox: Mailbox, one: Applied, rows: Rows, expected: _Expected, done: Done) -> bool:
    """Move messages into the rule's mailbox, which is made when there is none; whether they have been moved."""
    entry = mailbox.entry
    try:
        target = _target(store, entry, one.rule.target)
        if target.id == entry.id:
            return False
        if store.partition_of(target) is store.partition_of(entry):
            copy_messages(store, entry, target, rows["uid"], remove=True, guard=expected.look)
            expected.committed()
        else:
            expected.look(store.status(entry))
            crosspartition.copy(store, entry, target, rows["uid"], remove=True)
            store.partition_of(target).flush()
            expected.state = store.status(entry)
    except StoreError as error:
        if error.problem is Problem.GONE:
            raise _Changed from error
        done.problems.append(f"{entry.name}: {one.key}: {error.public}")
        return False
    return True


def _target(store: Store, entry: MailboxEntry, text: str) -> MailboxEntry:
    name = target_of(entry, text)
    found = store.mailboxes.find(name)
    if found is None and not name.owner:
        raise StoreError(Problem.NO_MAILBOX, f"There is no mailbox {name}")
    return found or namespace.create_mailbox(store, name)


# Header fields

def having(store: Store, mailbox: Mailbox) -> Having:
    """Tells which messages of a mailbox have a text in a field: from the cache where that has the field, else from
    their files. What cannot be read has not."""

    def look(where: Places, name: str, text: str) -> Mask:
        wanted, field_name = casemap(text), name.lower()
        found, left = np.zeros(len(where), np.bool_), np.ones(len(where), np.bool_)
        if field_name.encode() in LISTED:
            found, left = _in_cache(store, mailbox, where, field_name.encode(), wanted)
        if left.any():
            found[left] = find(store, mailbox, Header(field_name, wanted), where[left], Progress())
        return found

    return look


def _in_cache(store: Store, mailbox: Mailbox, where: Places, name: bytes, wanted: str) -> tuple[Mask, Mask]:
    """Of these messages those that have it, and those of which the cache does not say."""
    pick = Lister((name,))
    found, left = np.zeros(len(where), np.bool_), np.zeros(len(where), np.bool_)
    for start in range(0, len(where), CACHED):
        records = readable(store, mailbox.entry, take(mailbox.rows, where[start:start + CACHED]))
        for at, record in enumerate(records, start):
            if record is None or not record.fields:
                left[at] = record is not None
            else:
                found[at] = has_field(pick(record.fields), name, wanted)
    return found, left

