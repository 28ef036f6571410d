"""Who may do what with which mailbox (RFC 4314). One's own mailboxes, which is nearly all, cost a comparison."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from itertools import islice

from attrs import evolve

from mboxlist import acl
from mboxlist.annotations import is_hidden
from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import SEPARATOR, MailboxName
from store.accounts.base import NO_USER_ID
from store.errors import Problem, StoreError
from store.problems import problems
from store.store import Store
from store.values import Flag

KNOWN_BY = frozenset("lrikxa")      # who has one of these may know of a mailbox (§4, MYRIGHTS)
_FLAGS = {"s": Flag.SEEN, "t": Flag.DELETED, "w": Flag.ANSWERED | Flag.FLAGGED | Flag.DRAFT}


def rights(store: Store, user: str, entry: MailboxEntry) -> str:
    """The user's rights on the mailbox, letters of RFC 4314 §2.1."""
    owner = entry.name.owner == user != ""
    if not entry.acl:
        return acl.RIGHTS if owner else ""
    account = store.directory.find(user) if user else None
    return acl.rights_of(entry.acl, user, account.groups if account else (), owner=owner)


def may(store: Store, user: str, entry: MailboxEntry, right: str) -> bool:
    """Whether the user has that right on the mailbox. `user` "" is a stranger, whom only `anyone` speaks of."""
    if not entry.acl:
        return entry.name.owner == user != ""
    return right in rights(store, user, entry)


def knows(store: Store, user: str, entry: MailboxEntry) -> bool:
    """Whether the user has any right on the mailbox that tells that it is there."""
    return not KNOWN_BY.isdisjoint(rights(store, user, entry))


def visible(store: Store, user: str) -> Iterator[MailboxEntry]:
    """The mailboxes of others, and public ones, that the user may look up, in order of name."""
    account = store.directory.find(user)
    identifiers = acl.identifiers(user, account.groups if account else ())

    def granted(txn: Txn) -> list[MailboxEntry | None]:
        names = sorted(store.mailboxes.granted.of(identifiers, txn), key=str)
        return [store.mailboxes.find(name, txn) for name in names if name.owner != user]

    for entry in store.mailboxes.at_one_moment(granted):
        if entry is not None and may(store, user, entry, "l"):
            yield entry


def sees_any(store: Store, user: str, name: MailboxName, *, itself: bool = True) -> bool:
    """Whether somebody else's mailbox, or a public one, of that name (`itself`), or below it, is one that the user may
    look up. It takes no longer for those that it may not know of."""
    account = store.directory.find(user)
    identifiers = acl.identifiers(user, account.groups if account else ())
    with closing(store.mailboxes.granted.under(identifiers, name)) as granted:      # type: ignore[type-var]
        return any(entry is not None and may(store, user, entry, "l") for entry in map(store.mailboxes.find, (
            found for found in granted if itself or found.is_below(name))))


def sees_many(store: Store, user: str, most: int) -> bool:
    """Whether the user has more mailboxes of its own, or of others, or subscriptions, than that."""
    account = store.directory.find(user)
    identifiers = acl.identifiers(user, account.groups if account else ())
    counted = (store.mailboxes.below(user), store.mailboxes.subscriptions.of(user),
               store.mailboxes.granted.all_of(identifiers))
    return any(_has_more(items, most) for items in counted)


def _has_more(items: Iterator[object], most: int) -> bool:
    with closing(items):                # type: ignore[type-var]
        return next(islice(items, most, None), items) is not items


def parent(store: Store, name: MailboxName, txn: Txn = None) -> MailboxEntry | None:
    """The nearest mailbox above a name."""
    path = name.path
    while SEPARATOR in path:
        path = path.rpartition(SEPARATOR)[0]
        entry = store.mailboxes.find(MailboxName(name.owner, path), txn)
        if entry is not None:
            return entry
    return None


def may_create(store: Store, user: str, name: MailboxName) -> bool:
    """Whether the user may make a mailbox of that name: below one on which it has `k` (RFC 4314 §4), or of its own."""
    above = parent(store, name)
    if above is None:
        return name.owner == user != ""
    return may(store, user, above, "k")


def changeable(store: Store, user: str, entry: MailboxEntry) -> tuple[Flag, bool]:
    """The system flags that the user may change in the mailbox, and whether keywords too (RFC 4314 §4); "": all."""
    return _changeable(rights(store, user, entry) if user else acl.RIGHTS)


@lru_cache(maxsize=256)
def _changeable(held: str) -> tuple[Flag, bool]:
    flags = Flag(0)
    for right, those in _FLAGS.items():
        if right in held:
            flags |= those
    return flags, "w" in held


@problems()
def set_acl(store: Store, name: MailboxName, identifier: str, modification: str, *, any_name: bool = False,
            durable: bool = True) -> MailboxEntry:
    """Change what an identifier may do with a mailbox, as SETACL does (RFC 4314 §3.1); the row then. `durable`: it is
    on disk, too; whoever makes many changes flushes once.

    `any_name`: the user need not exist, and it takes no longer, and is no other row, when it does not (§6).
    Raises StoreError NO_MAILBOX, BAD_NAME, and without `any_name` NO_USER for a user that does not exist.
    """
    try:
        identifier = acl.parse_identifier(identifier)
        if any_name:
            identifier = _canonical(store, identifier)
        else:
            identifier = _known(store, identifier, taking=modification in ("", "-") or modification.startswith("-"))
    except acl.AclProblem as problem:
        raise StoreError(Problem.BAD_NAME, str(problem)) from problem

    of = identifier.removeprefix(acl.NEGATIVE)

    def work(txn: Txn) -> MailboxEntry:
        entry, who = store.mailboxes.find(name, txn), identifier
        if entry is None:
            raise StoreError(Problem.NO_MAILBOX)
        row = store.directory.user(of, txn) if acl.is_user(of) else None
        if row is not None and row.renamed_to:          # or whoever gets the old name later would have the rights
            entry = _with_names(entry, _names(row.account.user, row.renamed_to))
            who = identifier.removesuffix(row.account.user) + row.renamed_to
        try:
            after = evolve(entry, acl=acl.changed(entry.acl, who, modification, entry.name.owner))
        except acl.AclProblem as problem:
            raise StoreError(Problem.BAD_NAME, str(problem)) from problem
        store.mailboxes.write(after, txn)
        return after

    changed = transact(store.mailboxes.env, work)
    if durable:
        store.mailboxes.env.flush()
    after_commit(store.news.tell, [changed.id])
    return changed


def _canonical(store: Store, identifier: str) -> str:
    """The identifier with the user id that the name would be. An alias stays what it is: whose it is would be told by
    that, and it may be another's tomorrow. Raises AclProblem."""
    name = identifier.removeprefix(acl.NEGATIVE)
    if not acl.is_user(name):
        return identifier
    user = store.directory.user_id(name)
    if not acl.is_user(user) or user == NO_USER_ID:
        raise acl.AclProblem("Not an identifier")
    return identifier[:len(identifier) - len(name)] + user


def _known(store: Store, identifier: str, *, taking: bool) -> str:
    """A user as the directory names it; rights can also be taken from one who is no more."""
    name = identifier.removeprefix(acl.NEGATIVE)
    if not acl.is_user(name):
        return identifier
    account = store.directory.look_up(name)
    if account is None and not taking:
        raise StoreError(Problem.NO_USER, f"There is no user {name}")
    return identifier if account is None else identifier[:len(identifier) - len(name)] + account.user


def _names(old: str, new: str | None) -> dict[str, str | None]:
    return {old: new, acl.NEGATIVE + old: None if new is None else acl.NEGATIVE + new}


def _with_names(entry: MailboxEntry, names: Mapping[str, str | None]) -> MailboxEntry:
    """The row, in which identifiers have other names, or (None) are not there."""
    after = ((names.get(identifier, identifier), held) for identifier, held in entry.acl.items())
    return evolve(entry, acl=dict(sorted((who, held) for who, held in after if who is not None)))


def speaking_of(store: Store, user: str) -> list[MailboxId]:
    """The mailboxes whose access control lists speak of the user, and the deleted ones: they may come back when
    somebody else has the name. Looks at every row of the list."""
    names = {user, acl.NEGATIVE + user}
    entries = itertools.chain(store.mailboxes.all(), (entry for _, entry in store.mailboxes.deleted.all()))
    return [entry.id for entry in entries if not names.isdisjoint(entry.acl)]


def rename_identifier(store: Store, old: str, new: str | None, mailboxes: Iterable[MailboxId], txn: Txn) -> None:
    """Give a user another name in the access control lists of these mailboxes, deleted or not; or (None) take the user
    out."""
    names = _names(old, new)
    for mailbox in mailboxes:
        now = store.mailboxes.find_id(mailbox, txn)     # it may have been changed since
        if now is not None and not names.keys().isdisjoint(now.acl):
            store.mailboxes.write(_with_names(now, names), txn, guarded=False)
        deleted = store.mailboxes.deleted.find(mailbox, txn)
        if deleted is not None and not names.keys().isdisjoint(deleted[1].acl):
            store.mailboxes.deleted.add(_with_names(deleted[1], names), deleted[0], txn)
            store.mailboxes.noticed(deleted[1])


def annotations(store: Store, entry: MailboxEntry, user: str) -> dict[str, bytes]:
    """The mailbox's annotations that concern the user: those for all, and its own (RFC 5464 §3.2)."""
    return {name: value for name, whose, value in store.mailboxes.annotations.of(entry.id)
            if whose in ("", user) and not is_hidden(name)}


def annotate(store: Store, entry: MailboxEntry, name: str, value: bytes | None, user: str = "") -> None:
    """`annotate_all` of one."""
    annotate_all(store, entry, {(name, user): value})


@problems()
def annotate_all(store: Store, entry: MailboxEntry, values: Mapping[tuple[str, str], bytes | None], *,
                 durable: bool = True) -> None:
    """Set annotations of the mailbox, all or none, by their names and whose they are ("": for all); None removes one.
    `durable`: see `set_acl`.

    Raises StoreError LIMIT, NO_MAILBOX.
    """
    def work(txn: Txn) -> None:
        if any(is_hidden(name) for name, _ in values):
            raise ValueError("Not the name of an annotation")
        if store.mailboxes.find_id(entry.id, txn) is None:
            raise StoreError(Problem.NO_MAILBOX)
        store.mailboxes.guard(entry.name.owner, txn)
        for name, user in sorted(values):
            store.mailboxes.annotations.set(entry.id, name, values[name, user], txn, user)

    try:
        transact(store.mailboxes.env, work)
    except ValueError as problem:
        raise StoreError(Problem.LIMIT, str(problem)) from problem
    if durable:
        store.mailboxes.env.flush()
    after_commit(store.mailboxes.noticed, entry)
