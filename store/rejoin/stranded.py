"""What only a machine has whose standby has been promoted: mail that came after the common place, and what was done to
the mail of before.

A message that its owner had at the common place, in whichever mailbox, and that is in another one since, was copied or
moved. It is no mail that would be lost, and to deliver it would show it twice: so it is told, and not delivered.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.rejoin.commonplace import CommonPlace
from store.store import Store
from store.tables.index import Rows
from store.tables.state import Mailbox, MailboxState


@frozen(eq=False)
class StrandedMail:
    """The records of messages of one mailbox that only this machine has. `since`: UIDNEXT at the common place, 1 where
    the mailbox was not there."""

    view: Mailbox
    since: int
    rows: Rows


@frozen
class Done:
    """What was done here after the common place, and is not done again: a word, the mailbox, and how often or what to.
    """

    what: str
    mailbox: str
    more: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.mailbox}{f' ({self.more})' if self.more else ''}"


@define(eq=False)
class Stranded:
    """All of it."""

    mail: list[StrandedMail] = field(factory=list)
    done: list[Done] = field(factory=list)

    @property
    def messages(self) -> int:
        """How many."""
        return sum(len(each.rows) for each in self.mail)

    @property
    def octets(self) -> int:
        """What they have."""
        return int(sum(int(each.rows["size"].sum()) for each in self.mail))


Had = Callable[[Sequence[MailboxId], Sequence[bytes]], set[bytes]]


def find(store: Store, common: CommonPlace, had: Had, without: Collection[MailboxId] = frozenset()) -> Stranded:
    """What the store has beyond the common place, but for the mailboxes `without`; `had` says which of some digests
    messages of some mailboxes had then. Raises StoreError."""
    found, owners = Stranded(), dict[str, list[MailboxEntry]]()
    for entry in store.mailboxes.all():
        if entry.id not in without:
            owners.setdefault(entry.name.owner, []).append(entry)
    then = dict[str, list[MailboxId]]()
    for entry in common.entries():
        then.setdefault(entry.name.owner, []).append(entry.id)
    for owner, entries in owners.items():
        _of_owner(store, common, entries, partial(had, then.get(owner, [])), found)
    found.done += _list_changes(store, common, without)
    return found


def find_without(store: Store, known: Callable[[str, Sequence[bytes]], set[bytes]],
                 without: Collection[MailboxId] = frozenset()) -> Stranded:
    """What the store has, where no common place is known: each message of which its owner has none there; `known` says
    which of some digests messages of an owner have there. What was expunged there long ago is among it. Raises
    StoreError."""
    found = Stranded()
    for entry in (each for each in store.mailboxes.all() if each.id not in without):
        view = store.open_mailbox(entry)
        there = known(entry.name.owner, sorted({digest.tobytes() for digest in view.rows["digest"]}))
        lacks = np.array([digest.tobytes() not in there for digest in view.rows["digest"]], np.bool_)
        if lacks.any():
            found.mail.append(StrandedMail(view, 1, view.rows[lacks]))
    found.done.append(Done("nobody knows which flags, rights and mailboxes were changed", "this machine parted from "
                           "one that has lost its place, too", "what was expunged there long ago is brought, too"))
    return found


def _of_owner(store: Store, common: CommonPlace, entries: list[MailboxEntry],
              had: Callable[[Sequence[bytes]], set[bytes]], found: Stranded) -> None:
    beyond = list[StrandedMail]()
    for entry in entries:
        view, then = store.open_mailbox(entry), common.state(entry.id)
        since = 1 if then is None else then.uidnext
        if then is not None:
            found.done += _of_old(view, then)
        if len(new := view.rows[view.rows["uid"] >= since]):
            beyond.append(StrandedMail(view, since, new))
    if not beyond:                  # as with nearly everybody
        return
    old = had(sorted({digest.tobytes() for each in beyond for digest in each.rows["digest"]}))
    for each in beyond:
        known = np.array([digest.tobytes() in old for digest in each.rows["digest"]], np.bool_)
        if known.any():
            found.done.append(Done("messages copied or moved to", str(each.view.entry.name), str(int(known.sum()))))
        if not known.all():
            found.mail.append(evolve(each, rows=each.rows[~known]))


def _of_old(view: Mailbox, then: MailboxState) -> Iterator[Done]:
    old: NDArray[np.void] = view.rows[view.rows["uid"] < then.uidnext]
    name = str(view.entry.name)
    if gone := then.messages - len(old):
        yield Done("messages expunged from", name, str(gone))
    if changed := int((old["modseq"] > then.highestmodseq).sum()):
        yield Done("flags changed in", name, str(changed))


def _list_changes(store: Store, common: CommonPlace, without: Collection[MailboxId]) -> Iterator[Done]:
    for then in common.entries():
        now = store.mailboxes.find_id(then.id)
        if now is None:
            yield Done("mailbox deleted", str(then.name))
        elif now.name != then.name:
            yield Done("mailbox renamed", str(then.name), f"it is {now.name} here")
        elif now.acl != then.acl:
            yield Done("rights changed", str(then.name))
    for now in store.mailboxes.all():
        if common.state(now.id) is None and now.id not in without:
            yield Done("mailbox made", str(now.name))
