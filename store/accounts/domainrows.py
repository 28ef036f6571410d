"""What the built-in directory says of domains, and what it has for itself, a secret and how often what an outside
directory said was flushed: rows of `users.db` whose keys no user id can have, since they begin with @."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from attrs import asdict, evolve, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.freezegate import Quiesced
from mboxlist.engine.transact import transact
from mboxlist.table import MailboxNames
from store.accounts.base import NO_USER_ID
from store.addresses import canonical_domain
from store.errors import NotAtOnce
from store.problems import problems

_SECRET = NO_USER_ID.encode()


@frozen
class DomainRow:
    """What holds for the users of a domain who have nothing else: rules of access (`accessrules`;
    mailDomainAllowedServiceAccess), and what holds for their Sieve scripts (`sieverules`); "" for nothing."""

    access: str = ""
    sieve: str = ""

    @classmethod
    def from_bytes(cls, data: bytes | None) -> "DomainRow":
        """Out of its stored form; None for a domain without a row."""
        if data is None:                # of nearly all
            return NO_ROW
        values = json.loads(data)
        return cls(str(values.get("access", "")), str(values.get("sieve", "")))

    def to_bytes(self) -> bytes:
        """The stored form."""
        return json.dumps({name: value for name, value in asdict(self).items() if value}).encode()


NO_ROW = DomainRow()


class DomainRules:
    """The rows of domains (`DomainRow`)."""

    def __init__(self, mailboxes: MailboxNames) -> None:
        self._env = mailboxes.env
        self._table = mailboxes.users
        self._secret = b""
        self.noticed: Callable[[str], None] = lambda domain: None       # its rules have changed

    def access(self, domain: str) -> str:
        """The rules of access of a domain; "" without any. Raises ValueError for what cannot be a domain."""
        return self.row(domain).access

    def row(self, domain: str) -> DomainRow:
        """All that holds for a domain. Waits for no lock: an event loop asks. Raises ValueError for what cannot be a
        domain."""
        return DomainRow.from_bytes(self._table.glance(_key(domain)))

    def set_access(self, domain: str, rules: str) -> None:
        """Set the rules of access, or have none. Raises ValueError for what cannot be a domain."""
        self._set(domain, lambda row: evolve(row, access=rules))

    def set_sieve(self, domain: str, rules: str) -> None:
        """Set what holds for Sieve scripts, or have nothing. Raises ValueError for what cannot be a domain."""
        self._set(domain, lambda row: evolve(row, sieve=rules))

    @problems()
    def _set(self, domain: str, change: Callable[[DomainRow], DomainRow]) -> None:
        key = _key(domain)

        def work(txn: Txn) -> None:
            row = change(DomainRow.from_bytes(self._table.get_to_change(key, txn)))
            if row != DomainRow():
                self._table.put(key, row.to_bytes(), txn)
            else:
                self._table.delete(key, txn)

        transact(self._env, work)
        self._env.flush()
        self.noticed(canonical_domain(domain))

    def all(self) -> Iterator[tuple[str, DomainRow]]:
        """Every domain that has a row."""
        for key, data in self._table.scan(_SECRET, bytes([_SECRET[0] + 1])):
            if key != _SECRET:
                yield key.decode()[1:], DomainRow.from_bytes(data)

    @problems()
    def secret(self) -> bytes:
        """Octets that are always the same in this store, and that nobody else knows. Raises StandsStill."""
        if not self._secret:
            data = self._table.get(_SECRET)
            if data is None or "secret" not in json.loads(data):
                try:
                    data = transact(self._env, self._make_secret)
                except Quiesced:
                    raise NotAtOnce from None
            self._env.flush()
            self._secret = bytes.fromhex(json.loads(data)["secret"])
        return self._secret

    def _make_secret(self, txn: Txn) -> bytes:
        values = self._own(txn)
        if "secret" not in values:
            values["secret"] = os.urandom(32).hex()
            self._table.put(_SECRET, json.dumps(values).encode(), txn)
        return json.dumps(values).encode()

    def _own(self, txn: Txn) -> dict[str, Any]:
        data = self._table.get_to_change(_SECRET, txn)
        return {} if data is None else dict(json.loads(data))

    def epoch(self) -> bytes:
        """Octets that are the same until the next call of `next_epoch` by any process."""
        return self._table.get(_SECRET) or b""

    @problems()
    def next_epoch(self) -> None:
        """What is remembered of an outside directory counts for nothing."""
        def work(txn: Txn) -> None:
            values = self._own(txn)
            values["epoch"] = values.get("epoch", 0) + 1
            self._table.put(_SECRET, json.dumps(values).encode(), txn)

        transact(self._env, work)
        self._env.flush()


def _key(domain: str) -> bytes:
    name = canonical_domain(domain)
    if not name:
        raise ValueError("a domain is needed")
    return (NO_USER_ID + name).encode()
