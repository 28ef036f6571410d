"""Quota roots: which mailbox is charged to which, limits, and what the servers ask about them.

The figures of each mailbox (`MailboxState.quota_root`) say which root it is charged to; they are changed together with
the use of both roots, in one transaction. Which root it should be follows from its name and the rows of `quota.db`.

The list, in which names are, is another environment: a mailbox is renamed there first, and its use moves after that. A
crash in between leaves it charged to the root of its old name, with sums that are right; the next start moves it
(`agree`). So it is when a root of many mailboxes is made or removed, some in each transaction: those mailboxes are on
record as pending (`_put_on_record`), and what is cut off is finished, or for a root that was being removed undone. What
changes a root on several partitions is done on all of them or on none (`everypartition`).
"""

import logging
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry
from mboxlist.names import PUBLIC, SEPARATOR, MailboxName, legal_owner, legal_path
from store import hosting
from store.addresses import canonical_domain
from store.errors import Problem, StoreError
from store.problems import nothing_shown, problems
from store.quota import limitturns
from store.quota.everypartition import all_or_none
from store.tables.domainlimits import NotSummed
from store.tables.quotatable import DEFAULT, DOMAIN, UNLIMITED, LimitsTurn, QuotaUse

if TYPE_CHECKING:           # who only asks loads nothing that is for messages
    from store.partition.partition import Partition
    from store.partition.transactions import WriteTxn
    from store.quota.overview import Overview
    from store.store import Store

log = logging.getLogger(__name__)

ARRANGED = 64           # mailboxes that one transaction has charged to another root: about 5 ms


@frozen
class Warned:
    """A quota root that has reached the threshold of warnings, and what to tell its user."""

    root: str
    text: str


# Names

def parse(store: "Overview", text: str) -> tuple[str, str]:
    """Owner ("" for public mailboxes) and path ("" for all that have no root of their own) of a root as it is written.

    A domain is an owner that begins with "@". Raises StoreError BAD_NAME.
    """
    owner, separator, path = text.partition(SEPARATOR)
    try:
        if owner.startswith(DOMAIN):
            legal_owner(owner[1:] + separator)
            return DOMAIN + canonical_domain(owner[1:]), ""
        if separator and owner + SEPARATOR == PUBLIC:
            return "", legal_path(path)
        return legal_owner(owner), legal_path(path) if separator else ""
    except ValueError as error:         # a NameProblem, or no domain
        raise StoreError(Problem.BAD_NAME, f"{text} is not the name of a quota root: {error}") from error


def root_of(name: MailboxName, roots: Collection[str]) -> str:
    """The root that a mailbox of that name is charged to, when these have rows: the nearest at or above it."""
    owner, path = name.owner or PUBLIC[:-1], name.path
    if name.owner + SEPARATOR == PUBLIC:            # what would be its own roots are those of public mailboxes
        return name.owner
    while path and roots:
        if (root := owner + SEPARATOR + path) in roots:
            return root
        path = path.rpartition(SEPARATOR)[0]
    return name.owner or PUBLIC + name.path.partition(SEPARATOR)[0]


def root_for(partition: "Partition", name: MailboxName) -> str:
    """The root that a mailbox of that name on the partition is charged to."""
    return root_of(name, partition.quotas.roots_below(name.owner))


def _partitions(store: "Store", root: str) -> "list[Partition]":
    """Where the mailboxes of the root's owner are or will be, or the root has a row, as it still has where they have
    just been moved away; a domain is everywhere. Raises StoreError BAD_NAME, NO_USER, UNAVAILABLE."""
    owner, _ = parse(store, root)
    if owner.startswith(DOMAIN):
        return list(store.partitions.values())
    names = _all_here(store, owner)
    account = store.directory.find(owner) if owner else None
    if account is not None:
        names.add(account.partition)
    if owner and not names:
        raise StoreError(Problem.NO_USER)
    return [partition for name, partition in store.partitions.items()
            if name in names or not (owner or names) or partition.quotas.has(root)]


def _all_here(store: "Store", owner: str) -> set[str]:
    """The partitions on which the owner has mailboxes. Raises StoreError UNAVAILABLE where one of them is not here: it
    would come back with the limits of before."""
    names = {entry.partition for entry in store.names(owner)}
    for missing in sorted(names - store.partitions.keys()):
        store.partition(missing)
    return names


# Use and limits

def quota(store: "Overview", root: str) -> QuotaUse:
    """Use and limits of a quota root, a domain's among them, summed over all partitions. Raises StoreError BAD_NAME."""
    if root.startswith(DOMAIN):
        return store.domains.find(_domain(store, root))
    inbox = store.mailboxes.find(MailboxName(root.partition(SEPARATOR)[0], "INBOX"))
    uses = [partition.quotas.find(root) for name, partition in store.partitions.items()
            if partition.quotas.has(root) or (inbox is not None and name == inbox.partition)]
    if not uses:
        return [partition.quotas.find(root) for partition in store.partitions.values()][0]
    return evolve(uses[0], octets=sum(use.octets for use in uses), messages=sum(use.messages for use in uses),
                  discount=sum(use.discount for use in uses), refused=max(use.refused for use in uses),
                  warned=max(use.warned for use in uses))


def _domain(store: "Overview", root: str) -> str:
    """The domain of such a root as `quota` names it: "" for the default one."""
    domain = parse(store, root)[0][1:]
    return "" if domain == store.settings.default_domain else domain


def set_quota(store: "Store", root: str, octets: int | None = None, messages: int | None = None) -> None:
    """Change the limits that are given (`quotatable.DEFAULT` and `quotatable.UNLIMITED` are allowed).

    "alice/Archive" gets a root of its own by that, if it has none, whether or not the mailbox is there: the use of that
    mailbox and those below it moves to the root. Raises StoreError BAD_NAME, NO_USER, BUSY, UNAVAILABLE.
    """
    root = _whole_name(store, root)
    with _turn(store, root) as turn, all_or_none(
            store, root, _partitions(store, root), "quota set",
            {"composite": None, "octets": octets, "messages": messages}, partial(_put_back, store, turn, root)):
        _change_limits(store, turn, root, octets, messages)


def change_limits(store: "Store", root: str, octets: int | None = None, messages: int | None = None) -> None:
    """`set_quota`, for who has put on record what it does."""
    root = _whole_name(store, root)
    with _turn(store, root) as turn:
        _change_limits(store, turn, root, octets, messages)


@contextmanager
def _turn(store: "Store", root: str) -> Iterator[LimitsTurn]:
    """The turn of the root's owner. Raises StoreError BUSY for a user who is being renamed, ELSEWHERE for one whom
    another back end has, READ_ONLY for a domain."""
    owner = parse(store, root)[0]
    with limitturns.in_turn(store, owner) as turn:
        if owner.startswith(DOMAIN):
            store.require_writable()
        else:
            hosting.require_here(store, owner, None)
            store.directory.require_settled(owner)
        yield turn


def _change_limits(store: "Store", turn: LimitsTurn, root: str, octets: int | None, messages: int | None) -> None:
    owner, path = parse(store, root)
    if path or owner.startswith(DOMAIN):
        octets, messages = _explicit(octets), _explicit(messages)
    for partition in _partitions(store, root):
        _change_on(store, partition, root, lambda txn: txn.partition.quotas.set_limits(
            root, octets, messages, txn.handle, turn))
    _note_limits(store, root)


def _change_on(store: "Store", partition: "Partition", root: str, change: "Callable[[WriteTxn], None]") -> None:
    owner, path = parse(store, root)

    def work(txn: "WriteTxn") -> Sequence[MailboxEntry]:
        change(txn)
        return _arrange(store, owner, txn.partition.quotas.roots_below(owner, txn.handle), txn) if path else ()

    if path:
        _put_on_record(store, owner, partition, {*partition.quotas.roots_below(owner), root})
    _until_unchanged(store, partition, work)


def _put_back(store: "Store", turn: LimitsTurn, root: str, partition: "Partition", before: "QuotaUse | None") -> None:
    """Have the root be as it was on the partition; None: it was not there. A user's is always, if only by default."""
    if before is None and (SEPARATOR in root or root.startswith(DOMAIN)):
        _take_from(store, partition, root)
    elif before is not None or partition.quotas.has(root):
        _change_on(store, partition, root, lambda txn: txn.partition.quotas.put_back(
            root, before or QuotaUse(), txn.handle, turn))


def _whole_name(store: "Overview", root: str) -> str:
    owner, path = parse(store, root)
    return (owner or PUBLIC[:-1]) + SEPARATOR + path if path else owner


def _note_limits(store: "Store", root: str) -> None:
    if root.startswith(DOMAIN):
        store.domains.refresh()
    _writing().note_limits(store, root)


def _explicit(limit: int | None) -> int | None:
    """The defaults are for users."""
    return UNLIMITED if limit == DEFAULT else limit


def remove_quota_root(store: "Store", root: str) -> None:
    """Have a mailbox, and those below it, charged to the root above again; or take a domain's limits away.

    Raises StoreError BAD_NAME when there is no such root, BUSY, UNAVAILABLE.
    """
    root = _whole_name(store, root)
    store.require_writable()
    with _turn(store, root) as turn, all_or_none(store, root, list(store.partitions.values()), "quota remove", {},
                                                 partial(_put_back, store, turn, root)):
        _take_root(store, root)


def take_root(store: "Store", root: str) -> None:
    """`remove_quota_root`, for who has put on record what it does."""
    store.require_writable()
    root = _whole_name(store, root)
    with _turn(store, root):
        _take_root(store, root)


def _take_root(store: "Store", root: str) -> None:
    if root.startswith(DOMAIN):
        if _domain(store, root) not in store.domains.limited:
            raise StoreError(Problem.BAD_NAME, f"{root} has no limits")
    elif SEPARATOR not in root:
        raise StoreError(Problem.BAD_NAME, f"{root} is not a quota root that was made for a mailbox: the store's "
                         f"limits hold again after onecopy quota set {shlex.quote(root)} --octets default "
                         "--messages default")
    elif SEPARATOR not in root.removeprefix(PUBLIC) or not any(
            partition.quotas.has(root) for partition in store.partitions.values()):
        raise StoreError(Problem.BAD_NAME, f"{root} is not a quota root that was made for a mailbox")
    else:
        _all_here(store, parse(store, root)[0])
    for partition in store.partitions.values():
        _take_from(store, partition, root)
    _note_limits(store, root)


def _take_from(store: "Store", partition: "Partition", root: str) -> None:
    owner, _ = parse(store, root)

    def work(txn: "WriteTxn") -> Sequence[MailboxEntry]:
        quotas = txn.partition.quotas
        if owner.startswith(DOMAIN):
            quotas.forget(root, txn.handle)
            return ()
        moved = _arrange(store, owner, set(quotas.roots_below(owner, txn.handle)) - {root}, txn)
        if len(moved) < ARRANGED:                   # the root goes with the last ones
            left = quotas.find(root, txn.handle)
            if left.octets or left.messages:        # a mailbox that is being made, or deleted, at this moment
                raise StoreError(Problem.BUSY, "A mailbox is being changed, try again")
            quotas.forget(root, txn.handle)
        return moved

    if not owner.startswith(DOMAIN):
        _put_on_record(store, owner, partition, set(partition.quotas.roots_below(owner)) - {root})
    _until_unchanged(store, partition, work)


def _writing() -> ModuleType:
    from store.userarea import writing  # here: see above
    return writing


# Names that change

def recharge(store: "Store", owner: str) -> None:
    """Have each mailbox of the owner charged to the root that its name says; call it when names have changed."""
    for partition in store.writable.values():
        _until_unchanged(store, partition, lambda txn: _arrange(
            store, owner, txn.partition.quotas.roots_below(owner, txn.handle), txn))


def recharge_renamed(store: "Store", owner: str) -> None:
    """`recharge`, where there is nothing to be done unless the owner has more than one root."""
    if not owner or _has_more_roots(store, owner):
        recharge(store, owner)


def _has_more_roots(store: "Store", owner: str) -> bool:
    return any(partition.quotas.roots_below(owner) for partition in store.partitions.values())


def _until_unchanged(store: "Store", partition: "Partition", work: "Callable[[WriteTxn], Sequence[MailboxEntry]]"
                   ) -> None:
    """Repeat the transaction until it moves nothing: another process may have renamed a mailbox since it looked."""
    while moved := partition.transact(work):
        for entry in moved:
            _writing().note(store, entry)
    partition.flush()


def _arrange(store: "Store", owner: str, roots: Collection[str], txn: "WriteTxn") -> list[MailboxEntry]:
    """Charge the owner's mailboxes here to the roots that their names say, ARRANGED of them at most: those that were
    charged to others. There is none when all are charged as they should."""
    entries = {entry.id: entry for entry in _charged_elsewhere(store, owner, txn.partition, roots)}
    moved = list[MailboxEntry]()
    for mailbox, entry in sorted(entries.items()):
        if len(moved) == ARRANGED:
            break
        state, root = txn.any_state(mailbox), root_of(entry.name, roots)
        if state is None or state.removed or state.moving or state.quota_root == root:
            continue                                # who moves it has its root settled at the end
        txn.charge_root(state.quota_root, -state.octets, -state.messages, enforce=False)
        txn.charge_root(root, state.octets, state.messages, enforce=False)
        txn.set_state(mailbox, None, evolve(state, quota_root=root))
        moved.append(entry)
    return moved


def _put_on_record(store: "Store", owner: str, partition: "Partition", roots: Collection[str]) -> None:
    """Before the owner's mailboxes here are charged to these roots in more than one transaction: if that is cut off,
    the start, or housekeeping, has each charged as its name says (`reconciliation`, `interrupted`)."""
    some = [entry.id for entry in _charged_elsewhere(store, owner, partition, roots)]
    if len(some) > ARRANGED:
        with problems(), nothing_shown():
            transact(store.mailboxes.env, lambda txn: store.mailboxes.pending.note(some, txn))
            store.mailboxes.env.flush()


def _charged_elsewhere(store: "Store", owner: str, partition: "Partition", roots: Collection[str]
                       ) -> list[MailboxEntry]:
    """The owner's mailboxes here that are charged to other roots at this moment: who is not gets no lock."""
    return [entry for entry in store.names(owner)
            if entry.partition == partition.name and _is_charged_elsewhere(partition, entry, roots)]


def _is_charged_elsewhere(partition: "Partition", entry: MailboxEntry, roots: Collection[str]) -> bool:
    try:
        return partition.quota_root(entry.id) != root_of(entry.name, roots)
    except StoreError:                  # it has no figures
        return False


def check_rename(store: "Store", old: MailboxName, new: MailboxName) -> None:
    """Whether a mailbox and those below it fit into the roots of their new names. Raises StoreError OVER_QUOTA."""
    if not store.settings.quota_enforce or old.owner and not _has_more_roots(store, old.owner):
        return
    coming: dict[tuple[str, str], list[int]] = {}
    for entry in [*filter(None, [store.mailboxes.find(old)]), *store.mailboxes.below(old.owner, old.path)]:
        partition, name = store.partition_of(entry), MailboxName(new.owner, new.path + entry.name.path[len(old.path):])
        state, root = partition.state(entry.id), root_for(partition, name)
        if root != state.quota_root and state.messages:
            use = coming.setdefault((entry.partition, root), [0, 0])
            use[0] += state.octets
            use[1] += state.messages
    for (place, root), (octets, messages) in coming.items():
        if not store.partitions[place].quotas.find(root).has_room(octets, messages, store.settings):
            raise StoreError(Problem.OVER_QUOTA)


def agree(store: "Store") -> None:
    """After an unclean end: mailboxes that were renamed, or whose roots were being made, are charged as they should."""
    for partition in store.partitions.values():
        roots = {root for root, _ in partition.quotas.all() if SEPARATOR in root}
        states = dict(partition.all_states())
        owners = {entry.name.owner for entry in store.mailboxes.all()
                  if entry.id in states and entry.partition == partition.name
                  and states[entry.id].quota_root != root_of(entry.name, roots)}
        for owner in sorted(owners):
            log.info("the mailboxes of %s are charged to other quota roots than before the end", owner or "all")
            recharge(store, owner)


# What servers ask

def has_room(store: "Store", entry: MailboxEntry, octets: int) -> bool:
    """Whether one more message, of at least that size, fits."""
    partition, root = store.quota_of(entry)
    return fits(store, partition, root, octets)


def fits(store: "Store", partition: "Partition", root: str, octets: int) -> bool:
    """Whether one more message, of at least that size, fits that is charged to that root on the partition."""
    return partition.quotas.has_room(root, octets, 1) and (
        not store.domains.limited or not store.settings.quota_enforce or _fits_domain(store, root, octets))


def _fits_domain(store: "Store", root: str, octets: int) -> bool:
    domain = store.domains.of(root)
    while domain is not None:
        try:
            return store.domains.full(domain, octets, 1) is None
        except NotSummed:
            store.domains.sum_up(domain)
    return True


def admit(store: "Store", partition: "Partition", root: str, octets: int) -> None:
    """Whether a delivery of at least that size, charged to that root on the partition, would be taken.

    A refusal counts as one: see `QuotaTable.charge`. Not flushed. Raises StoreError OVER_QUOTA, QUOTA_GRACE_ENDED.
    """
    if fits(store, partition, root, octets):
        return

    def work(txn: "WriteTxn") -> StoreError:
        domain = store.domains.of(root)
        full = None if domain is None else store.domains.full(domain, octets, 1)
        try:
            partition.quotas.refuse(root, octets, 1, txn.handle, delivery=True, domain=full)
        except StoreError as refusal:
            return refusal                      # and the transaction is committed

    raise partition.transact(work)


def warning(store: "Store", entry: MailboxEntry, root: str | None = None) -> Warned | None:
    """What the mailbox's owner is to be told of its quota root, once the threshold (`quota_warn`) has been reached.
    `root`: who knows it has just read the mailbox in the place that the entry says."""
    partition = store.partition_of(entry) if root is None else store.partition(entry.partition)
    root = root or partition.quota_root(entry.id)
    use = partition.quotas.glance(root)     # no client waits for somebody's lock to be warned
    if not use.deserves_warning(store.settings):
        return None
    path = root.partition(SEPARATOR)[2]
    return Warned(root, f"{f'The quota of {path}' if path else 'Your mail quota'} is {use.describe(store.settings)}")


def all_roots(store: "Overview") -> list[str]:
    """Every root that has a row, and the domains that have limits: users and what is theirs in order, then domains."""
    found = {root for partition in store.partitions.values() for root, _ in partition.quotas.all()}
    return [*sorted(found), *(DOMAIN + (domain or store.settings.default_domain)
                              for domain in sorted(store.domains.limited))]


def every_root(store: "Overview") -> list[str]:
    """Every root, those of users who have no row among them: users and what is theirs in order, then domains."""
    known = all_roots(store)
    users = {user.user for user in store.directory.all()}
    return [*sorted(users.union(name for name in known if not name.startswith(DOMAIN))),
            *(name for name in known if name.startswith(DOMAIN))]


def with_below(store: "Overview", root: str) -> list[str]:
    """The root, and those of mailboxes if it is a user's."""
    return [root, *(name for name in all_roots(store) if SEPARATOR not in root and name.startswith(root + SEPARATOR))]


def set_all(store: "Store", user: str, octets: Mapping[str, int]) -> None:
    """Set these limits of a user and of mailboxes, by root; the user's other mailboxes have no root of their own any
    more. For who has put that on record. Raises StoreError."""
    with _turn(store, user) as turn:
        for root, limit in octets.items():
            _change_limits(store, turn, root, limit, None)
        for root in with_below(store, user):
            if root not in octets and root != user:
                _take_root(store, root)
