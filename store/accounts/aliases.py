"""Whose alias an address is: a table beside the users' rows, which have the lists and decide."""

import re
from collections.abc import Iterable, Iterator

from mboxlist.engine.btree import Table, Txn
from mboxlist.names import is_visible
from store.errors import Problem, StoreError

MOST = 1000                 # aliases of one user

_ALIAS = re.compile(r'[^ @"\\<>]+(?:@[^ @"\\<>]+)?')


class Aliases:
    """`aliases.db`: an address, written as user ids are, and the user id. Who calls sees to it that no user has it."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def owner(self, alias: str, txn: Txn = None) -> str | None:
        """The user id of the one whose alias it is."""
        data = self._table.get(alias.encode(), txn)
        return None if data is None else data.decode()

    def add(self, alias: str, user: str, txn: Txn) -> None:
        """Make it an alias of that user. Raises StoreError USER_EXISTS."""
        self.require_free(alias, user, txn)
        self._table.put(alias.encode(), user.encode(), txn)

    def require_free(self, alias: str, user: str, txn: Txn) -> None:
        """It may become an alias of that user. Raises StoreError USER_EXISTS."""
        other = self._table.get_to_change(alias.encode(), txn)
        if other is not None and other.decode() != user:
            raise StoreError(Problem.USER_EXISTS, f"{alias} is an alias of {other.decode()}")

    def remove(self, alias: str, user: str, txn: Txn) -> None:
        """Make it no alias of that user."""
        if self._table.get_to_change(alias.encode(), txn) == user.encode():
            self._table.delete(alias.encode(), txn)

    def all(self) -> Iterator[tuple[str, str]]:
        """Every alias, with its user."""
        for key, data in self._table.scan():
            yield key.decode(), data.decode()


def legal_aliases(addresses: Iterable[str]) -> tuple[str, ...]:
    """Those of one user, in order, each once; they are in canonical form. Raises StoreError BAD_NAME, LIMIT."""
    aliases = sorted(set(addresses))
    for alias in aliases:
        if not _ALIAS.fullmatch(alias) or not is_visible(alias):
            raise StoreError(Problem.BAD_NAME, f"{alias!r} is not an address")
    if len(aliases) > MOST:
        raise StoreError(Problem.LIMIT, f"A user has at most {MOST} aliases")
    return tuple(aliases)
