"""Rows of the list that are lost, or say what the partitions do not.

The figures of a mailbox (state.db) and its `store.idx` say which mailbox it is, where, and what it is called. A row of
the list that agrees with neither is wrong; a mailbox that has figures and no row has lost its row: nothing that the
store does leaves one, but for mailboxes that are being made, moved, imported or destroyed, whose figures say so.
"""

from collections.abc import Callable, Iterator
from functools import partial

from attrs import define, evolve, field

from mboxlist.acl import RIGHTS
from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, PUBLIC, SEPARATOR, MailboxName
from mboxlist.usermoves import Phase
from store.mailboxes import deletion
from store.mailboxes.deletion import DOOMED
from store.mend.idxfiles import UserArea
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.quota import roots
from store.rebuild.desired import DesiredMailbox, enlist, entry_of, listed
from store.rebuild.outcome import Correction
from store.rebuild.userareascan import free_name
from store.store import Store
from store.tables.state import MailboxState


def correct_list(store: Store) -> list[Correction]:
    """Have the list, and the partitions, say the same. Flushed. Raises StoreError."""
    rows = _Rows(store, UserArea(store))
    done = [correction for work in (rows.wrong, rows.named, rows.lost, rows.deleted, rows.doubled, rows.notes)
            for correction in work()]
    store.mailboxes.env.flush()
    for partition in store.partitions.values():
        partition.flush()
    return done


@define(eq=False)
class _Rows:
    store: Store
    files: UserArea
    _states: dict[tuple[str, MailboxId], MailboxState] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._states = {(name, mailbox): state for name, partition in self.store.partitions.items()
                        for mailbox, state in partition.all_states()}

    def _change(self, work: Callable[[Txn], None]) -> None:
        transact(self.store.mailboxes.env, work)

    def _places(self, mailbox: MailboxId) -> list[str]:
        """The partitions that have figures of it, as of a mailbox in use."""
        return [name for (name, there), state in self._states.items()
                if there == mailbox and not state.removed and not state.moving]

    # Rows that are wrong

    def wrong(self) -> Iterator[Correction]:
        """Another id, partition, UIDVALIDITY or ACL than the mailbox has."""
        mailboxes = self.store.mailboxes
        entries = list(mailboxes.all())
        for entry in entries:
            right = self._right(entry, sum(other.id == entry.id for other in entries) > 1)
            if right is None or right == entry:
                continue

            def write(txn: Txn, entry: MailboxEntry = entry, right: MailboxEntry = right) -> None:
                if mailboxes.find(entry.name, txn) == entry:
                    former = mailboxes.former.find(str(entry.name), txn)
                    mailboxes.write(right, txn, guarded=False)
                    if right.uidvalidity < entry.uidvalidity:       # that was never given
                        mailboxes.former.take_back(str(entry.name), former, txn)

            self._change(write)
            names = [name for name in ("id", "partition", "uidvalidity", "acl")
                     if getattr(entry, name) != getattr(right, name)]
            yield Correction(f"its row in the list was wrong: {', '.join(names)}", str(entry.name))

    def _right(self, entry: MailboxEntry, doubled: bool) -> MailboxEntry | None:
        """The row as it should be; None where nothing tells."""
        right = entry
        if any(set(rights) - set(RIGHTS) for rights in entry.acl.values()):
            held = {name: "".join(letter for letter in rights if letter in RIGHTS)
                    for name, rights in entry.acl.items()}
            right = evolve(right, acl={name: rights for name, rights in held.items() if rights})
        places = self._places(entry.id)
        if doubled or not places:
            file = next((source for source in self.files.all() if source.name == entry.name
                         and not source.head.removed and source.head.store == self.store.mailboxes.identity
                         and (source.partition, source.head.id) in self._states), None)
            if file is not None:
                right = evolve(right, id=MailboxId(file.head.id), partition=file.partition)
                places = self._places(right.id)
        if places and (entry.partition not in self.store.partitions or right.partition not in places):
            right = evolve(right, partition=places[0])
        state = self._states.get((right.partition, right.id))
        if state is not None and not state.removed and not state.moving and state.uidvalidity != right.uidvalidity:
            file = self.files.of(right.partition, right.id)
            last = self.store.mailboxes.last_identity()[1]
            if state.uidvalidity == file.head.uidvalidity if file is not None else right.uidvalidity > last:
                right = evolve(right, uidvalidity=state.uidvalidity)
        return right

    # Rows that are lost

    def lost(self) -> Iterator[Correction]:
        """Mailboxes that have figures and are not in the list."""
        moves = self.store.mailboxes.moves.mailboxes(Phase.COMING, Phase.READY)
        for (name, mailbox), state in self._states.items():
            if state.moving or state.removed == DOOMED or mailbox in moves or self.store.known(mailbox) is not None:
                continue
            if self.store.partitions[name].any_state(mailbox) is None:      # it has been destroyed meanwhile
                continue
            yield from self._enlist(self.store.partitions[name], mailbox, state)

    def _enlist(self, partition: Partition, mailbox: MailboxId, state: MailboxState) -> Iterator[Correction]:
        source = self.files.of(partition.name, mailbox)
        if source is None and not state.messages:
            deletion.destroy_wholly(partition, [mailbox])
            yield Correction("figures of a mailbox that nothing else knows, without messages: they are gone",
                             f"mailbox {mailbox}")
            return
        name = source.name if source is not None else self._name(mailbox, state)
        if not state.removed and self.store.mailboxes.find(name) is not None:
            name = free_name(name, mailbox, [])
        if source is None:
            entry = MailboxEntry(mailbox, name, partition.name, state.uidvalidity, 0)
            desired = DesiredMailbox(entry, state, None, state.removed, None, uidls=None)
        else:
            entry = evolve(entry_of(source, state.uidvalidity), id=mailbox, name=name, uidvalidity=state.uidvalidity)
            desired = listed(evolve(source, head=evolve(source.head, removed=state.removed)), entry)
        self._change(lambda txn: self._add(desired, txn))
        yield Correction("its row in the list was lost", str(name))

    def _add(self, desired: DesiredMailbox, txn: Txn) -> None:
        mailboxes, entry = self.store.mailboxes, desired.entry
        mailboxes.skip_identities(entry.id, entry.uidvalidity, txn)
        enlist(mailboxes, desired, txn)

    def _name(self, mailbox: MailboxId, state: MailboxState) -> MailboxName:
        """That of a mailbox of which no file says it."""
        root = state.quota_root
        owner = "" if root.startswith(PUBLIC) else root.partition(SEPARATOR)[0]
        inbox = MailboxName(owner, INBOX)
        if owner and self.store.mailboxes.find(inbox) is None and all(
                source.name != inbox for source in self.files.all()):
            return inbox
        return MailboxName(owner, f"Recovered ({mailbox})")

    # What hangs on the rows

    def named(self) -> Iterator[Correction]:
        """Mailboxes that are not found by their ids; ids and UIDVALIDITYs that would be given again."""
        mailboxes = self.store.mailboxes
        entries = list(mailboxes.all())
        last, validity = mailboxes.last_identity()
        most = max((entry.id for entry in entries), default=last), max(
            (entry.uidvalidity for entry in entries), default=validity)
        if most[0] > last or most[1] > validity:
            self._change(lambda txn: mailboxes.skip_identities(*most, txn))
            yield Correction("ids or UIDVALIDITYs of mailboxes would have been given again", "mailboxes.db")
        for entry in entries:
            if mailboxes.find_id(entry.id) != entry:
                self._change(partial(mailboxes.write, entry, guarded=False))
                yield Correction("it was not found by its id", str(entry.name))

    def deleted(self) -> Iterator[Correction]:
        """What is in the list is not deleted, what is among the deleted ones is."""
        mailboxes = self.store.mailboxes
        for when, entry in list(mailboxes.deleted.all()):
            partition = self.store.partitions.get(entry.partition)
            if mailboxes.find_id(entry.id) is not None:
                self._change(lambda txn, entry=entry: _forget_deleted(self.store, entry, txn))     # type: ignore[misc]
                yield Correction("it was on record as deleted as well", str(entry.name))
            elif partition is not None and (state := partition.any_state(entry.id)) and not state.removed:
                partition.transact(lambda txn, entry=entry, when=when: deletion.bury(       # type: ignore[misc]
                    txn, entry.id, when))
                yield Correction("its figures did not say that it was deleted", str(entry.name))
        for entry in list(mailboxes.all()):
            partition = self.store.partitions.get(entry.partition)
            if partition is not None and (state := partition.any_state(entry.id)) and state.removed:
                root = roots.root_for(partition, entry.name)
                partition.transact(lambda txn, mailbox=entry.id, root=root: _unbury(    # type: ignore[misc]
                    txn, mailbox, root))
                yield Correction("its figures said that it was deleted", str(entry.name))

    def doubled(self) -> Iterator[Correction]:
        """Figures on another partition than the list says; and mailboxes that are charged to a wrong quota root."""
        owners = set()
        for entry in list(self.store.mailboxes.all()):
            here = self.store.partitions.get(entry.partition)
            if here is None:
                continue
            for name, there in self.store.partitions.items():
                other, state = there.any_state(entry.id), here.any_state(entry.id)
                if there is here or state is None or other is None or other.removed or other.moving:
                    continue
                if other.messages and not state.messages:
                    self._change(lambda txn, entry=entry, name=name: self.store.mailboxes.write(    # type: ignore[misc]
                        evolve(entry, partition=name), txn, guarded=False))
                    deletion.destroy_wholly(here, [entry.id])
                else:
                    deletion.destroy_wholly(there, [entry.id])
                yield Correction(f"it was on {here.name} and on {name}", str(entry.name))
                break
            state = here.any_state(entry.id)
            if state is not None and not state.moving and state.quota_root != roots.root_for(here, entry.name):
                owners.add(entry.name.owner)
        for owner in sorted(owners):
            roots.recharge(self.store, owner)
            yield Correction("mailboxes were charged to another quota root than their names say", f"user {owner}")

    def notes(self) -> Iterator[Correction]:
        """Annotations of mailboxes that are no more."""
        mailboxes = self.store.mailboxes
        coming = mailboxes.moves.mailboxes(Phase.COMING, Phase.READY)
        for mailbox in list(mailboxes.annotations.mailboxes()):
            if self.store.known(mailbox) is None and mailbox not in coming and not any(
                    there == mailbox for _, there in self._states):
                self._change(partial(mailboxes.annotations.forget, mailbox))
                yield Correction("annotations of a mailbox that is no more", f"mailbox {mailbox}")


def _forget_deleted(store: Store, entry: MailboxEntry, txn: Txn) -> None:
    if store.mailboxes.find_id(entry.id, txn) is not None:
        store.mailboxes.deleted.remove(entry.id, txn)


def _unbury(txn: WriteTxn, mailbox: MailboxId, root: str) -> None:
    state = txn.any_state(mailbox)
    if state is not None and state.removed:
        txn.charge_root(root, state.octets, state.messages, enforce=False)
        modseq = state.highestmodseq + 1
        txn.set_state(mailbox, state, evolve(state, removed=0, moving=0, quota_root=root, highestmodseq=modseq,
                                             changed=modseq))
