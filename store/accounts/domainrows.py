"""What the built-in directory says of domains, and what it has for itself, a secret and how often what an outside
directory said was flushed: rows of `users.db` whose keys no user id can have, since they begin with @."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from mboxlist.engine.btree import Txn
from mboxlist.engine.freezegate import Quiesced
from mboxlist.engine.transact import transact
from mboxlist.table import MailboxNames
from store.accounts.base import NO_USER_ID
from store.addresses import canonical_domain
from store.errors import NotAtOnce
from store.problems import problems

_SECRET = NO_USER_ID.encode()


class DomainRules:
    """The rules of access (`accessrules`) for the users of a domain who have none (mailDomainAllowedServiceAccess)."""

    def __init__(self, mailboxes: MailboxNames) -> None:
        self._env = mailboxes.env
        self._table = mailboxes.users
        self._secret = b""
        self.noticed: Callable[[str], None] = lambda domain: None       # its rules have changed

    def access(self, domain: str) -> str:
        """The rules of a domain; "" without any. Waits for no lock: an event loop asks. Raises ValueError for what
        cannot be a domain."""
        data = self._table.glance(_key(domain))
        return str(json.loads(data)["access"]) if data is not None else ""

    @problems()
    def set_access(self, domain: str, rules: str) -> None:
        """Set them, or have none. Raises ValueError for what cannot be a domain."""
        key = _key(domain)

        def work(txn: Txn) -> None:
            if rules:
                self._table.put(key, json.dumps({"access": rules}).encode(), txn)
            else:
                self._table.delete(key, txn)

        transact(self._env, work)
        self._env.flush()
        self.noticed(canonical_domain(domain))

    def all(self) -> Iterator[tuple[str, str]]:
        """Every domain that has rules."""
        for key, data in self._table.scan(_SECRET, bytes([_SECRET[0] + 1])):
            if key != _SECRET:
                yield key.decode()[1:], json.loads(data)["access"]

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
