"""The list of mailboxes by itself, and whether the partitions agree with it."""

from collections.abc import Iterator, Mapping

from mboxlist.acl import RIGHTS
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import SEPARATOR
from mboxlist.usermoves import Phase
from store.partition.marks import absent
from store.partition.partition import Partition
from store.quota.roots import root_of
from store.store import Store
from store.values import RECONSTRUCT, Finding, Repair


def look(store: Store) -> Iterator[Finding]:
    """What is wrong at this moment; a change that is under way may be among it."""
    deleted = {entry.id: (when, entry) for when, entry in store.mailboxes.deleted.all()}
    yield from _look_at_list(store, deleted)
    yield from _look_at_aliases(store)
    roots = {name: {root for root, _ in partition.quotas.all() if SEPARATOR in root}
             for name, partition in store.partitions.items()}
    known = {mailbox: entry.partition for mailbox, (_, entry) in deleted.items()}
    coming = store.mailboxes.moves.mailboxes(Phase.COMING, Phase.READY)         # of users who are not here yet
    gone = {move.user for move in store.mailboxes.moves.all() if move.phase is Phase.GONE}      # what they left goes
    renamed = {renaming.owner for renaming in store.mailboxes.renames.all()}        # charged to other roots at its end
    for entry in store.mailboxes.all():
        known[entry.id] = entry.partition
        partition = store.partitions.get(entry.partition)
        if partition is not None and entry.name.owner not in gone:
            yield from _look_at_entry(partition, entry, roots[partition.name], settled=entry.name.owner not in renamed)
    for mailbox in store.mailboxes.annotations.mailboxes():
        if mailbox not in known and mailbox not in coming:
            yield Finding("annotations of a mailbox that is not in the list", f"mailbox {mailbox}")
    for when, entry in deleted.values():
        partition = store.partitions.get(entry.partition)
        state = partition.any_state(entry.id) if partition is not None else None
        if state is not None and not state.removed:
            yield Finding(f"was deleted at {when}, but its figures do not say so", f"{entry.name} (deleted)")
    for partition in store.partitions.values():
        for mailbox, state in partition.all_states():
            there = known.get(mailbox)
            if there is None and mailbox not in coming and not (state.moving and state.removed):    # see `publish`
                yield Finding("records of a mailbox that is not in the list", f"mailbox {mailbox}")
            elif there is not None and there != partition.name and not state.moving and not state.removed:
                yield Finding(f"records of a mailbox that is on {there} by the list",
                              f"mailbox {mailbox} on {partition.name}")


def _look_at_list(store: Store, deleted: Mapping[MailboxId, tuple[int, MailboxEntry]]) -> Iterator[Finding]:
    ids: dict[int, MailboxEntry] = {}
    last_id, last_validity = store.mailboxes.last_identity()
    missing = absent(store.root)
    for name, host in missing.items():
        yield Finding(f"is only on {host}, whose place this machine has taken: its mailboxes cannot be used",
                      f"partition {name}", Repair.BRING_HOME.of())
    for entry in store.mailboxes.all():
        where = str(entry.name)
        if entry.id in ids:
            yield Finding(f"has the same id as {ids[entry.id].name}", where)
        elif store.mailboxes.find_id(entry.id) != entry:
            yield Finding("is not found by its id", where)
        if entry.id in deleted:
            yield Finding("is also on record as deleted", where)
        if entry.id > last_id:
            yield Finding(f"has the id {entry.id}, and the last one given is {last_id}", where)
        if entry.uidvalidity > last_validity:
            yield Finding(f"has UIDVALIDITY {entry.uidvalidity}, and the last one given is {last_validity}", where)
        ids[entry.id] = entry
        if entry.partition not in store.partitions and entry.partition not in missing:
            elsewhere = any(partition.any_state(entry.id) for partition in store.partitions.values())
            yield Finding(f"is on partition {entry.partition}, which does not exist", where,
                          RECONSTRUCT if elsewhere else Repair.ADD_PARTITION.of(entry.partition))
        if any(set(rights) - set(RIGHTS) for rights in entry.acl.values()):
            yield Finding("its ACL has rights that do not exist", where)
    for identifier, name, too_much in store.mailboxes.granted.differences(store.mailboxes.all()):
        yield Finding(f"{identifier} may look it up by the table of rights alone" if too_much else
                      f"{identifier} may look it up, not by the table of rights", name)


def _look_at_aliases(store: Store) -> Iterator[Finding]:
    for alias, user, too_much in store.directory.wrong_aliases():
        yield Finding(f"user {user} has it by the table of aliases alone" if too_much else
                      f"user {user} has it, not by the table of aliases", f"alias {alias}")


def _look_at_entry(partition: Partition, entry: MailboxEntry, roots: set[str], *, settled: bool) -> Iterator[Finding]:
    where, state = str(entry.name), partition.any_state(entry.id)
    if state is None:
        yield Finding("has no figures", where)
        return
    if state.removed:
        yield Finding("is in the list, and its figures say that it was deleted", where)
    if state.uidvalidity != entry.uidvalidity:
        yield Finding(f"UIDVALIDITY is {state.uidvalidity} in its figures and {entry.uidvalidity} in the list", where)
    wanted = root_of(entry.name, roots)
    if settled and state.quota_root != wanted and not state.moving:
        yield Finding(f"is charged to quota root {state.quota_root}, its name says {wanted}", where)
