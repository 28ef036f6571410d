"""Users and limits of quota come back from an archive. Who is there, and what limits there are, stays."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from attrs import evolve

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.names import NameProblem, legal_owner
from store import hosting
from store.accounts.builtin import BuiltinDirectory, User
from store.accounts.domainrows import DomainRules
from store.backup.archive import SMALL_OCTETS
from store.backup.tarmembers import Member
from store.errors import StoreError
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.quota import limitturns
from store.store import Store
from store.tables.quotatable import DEFAULT, LimitsTurn

Place = Callable[[str], Partition]


def lines(member: Member) -> list[dict[str, Any]]:
    """The rows of a member. Raises Cut, ValueError."""
    found = [json.loads(line) for line in member.octets(SMALL_OCTETS).splitlines()]
    if not all(isinstance(line, dict) for line in found):
        raise ValueError("a row is no object")
    return found


def restore_users(store: Store, rows: Iterable[dict[str, Any]], users: frozenset[str] | None, place: Place,
                  tell: Callable[[str], None]) -> int:
    """Add the users that are not there, all or these, and their subscriptions; how many."""
    directory = store.directory
    if directory.remote:
        return 0
    new: list[tuple[User, list[str]]] = []
    for row in rows:
        try:
            if "domain" in row:
                if users is None:
                    _restore_domain(directory.domains, row)
            elif (users is None or row["user"] in users) and directory.user(row["user"]) is None:
                found = User.from_bytes(legal_owner(str(row["user"])), row["row"].encode())
                account = evolve(found.account, partition=place(found.account.partition).name)
                new.append((evolve(found, account=account), [str(name) for name in row["subscriptions"]]))
        except (NameProblem, ValueError, KeyError, TypeError, AttributeError) as error:
            tell(f"an account cannot be read: {error}")
    try:
        transact(store.mailboxes.env, lambda txn: _write(store, directory, new, txn))
        done = len(new)
    except StoreError:
        done = sum(_write_one(store, directory, each, tell) for each in new)
    store.mailboxes.env.flush()
    return done


def _restore_domain(domains: DomainRules, row: dict[str, Any]) -> None:
    """What holds for a domain, as far as nothing holds now. Raises ValueError, KeyError."""
    domain, there = row["domain"], domains.row(row["domain"])
    if row["access"] and not there.access:
        domains.set_access(domain, str(row["access"]))
    if row.get("sieve") and not there.sieve:
        domains.set_sieve(domain, str(row["sieve"]))


def _write(store: Store, directory: BuiltinDirectory, new: Iterable[tuple[User, list[str]]], txn: Txn) -> None:
    for user, subscriptions in new:
        if directory.user(user.account.user, txn) is None:
            directory.write(user, txn)
            for name in subscriptions:
                store.mailboxes.subscriptions.add(user.account.user, name, txn)


def _write_one(store: Store, directory: BuiltinDirectory, new: tuple[User, list[str]], tell: Callable[[str], None]
               ) -> bool:
    user = new[0].account.user
    try:
        transact(store.mailboxes.env, lambda txn: _write(store, directory, [new], txn))
    except StoreError as refused:
        tell(f"user {user}: {refused.public}")
        return False
    return True


def restore_limits(store: Store, rows: Iterable[dict[str, Any]], users: frozenset[str] | None, place: Place
                   ) -> set[str]:
    """Set the limits of roots that have none; the owners of whose mailboxes some have a root of their own. Those of a
    user who is on another back end are that one's. Raises StoreError."""
    wanted: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    owners = set()
    for row in rows:
        root = str(row.get("root", ""))
        owner = root.partition("/")[0]
        owner = "" if owner == "public" else owner
        limits = row.get("octets"), row.get("messages")
        if not root or users is not None and owner not in users:
            continue
        if all(isinstance(limit, int) and DEFAULT <= limit < 1 << 63 for limit in limits):
            there = owner, place(str(row.get("partition", ""))).name
            wanted.setdefault(there, {})[root] = limits     # type: ignore[assignment]
            if "/" in root:
                owners.add(owner)
    for (owner, name), roots in wanted.items():
        with limitturns.in_turn(store, owner) as turn:
            if not hosting.is_elsewhere(store, owner, None):
                store.partition(name).transact(partial(_set, turn, roots))
    for name in sorted({name for _, name in wanted}):
        store.partition(name).flush()
    store.domains.refresh()
    return owners


def _set(turn: LimitsTurn, roots: dict[str, tuple[int, int]], txn: WriteTxn) -> None:
    quotas = txn.partition.quotas
    for root, (octets, messages) in sorted(roots.items()):
        use = quotas.find(root, txn.handle)
        if (use.octet_limit, use.message_limit) == (DEFAULT, DEFAULT) or not quotas.has(root, txn.handle):
            quotas.set_limits(root, octets, messages, txn.handle, turn)
