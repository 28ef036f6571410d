"""Limits of domains, and what their users hold together, as one process knows them.

The total is a sum over the users' rows, not a counter. A process remembers the sums of those domains that have limits
for `FRESH` seconds, and adds what it charges itself meanwhile; so the limit of a domain may be passed by as much as the
other processes take in within that time. New limits reach the other processes as soon.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from attrs import define, evolve

from mboxlist.names import PUBLIC
from store.settings import Settings
from store.tables.quotatable import UNLIMITED, QuotaTable, QuotaUse, domain_of

FRESH = 10                  # seconds between two sums, made in a thread; see `housekeeping`
STALE = 60                  # seconds after which a sum is made at once: in a process that does not keep house


NO_LIMITS = QuotaUse(octet_limit=UNLIMITED, message_limit=UNLIMITED)


class NotSummed(Exception):
    """The sum of the domain must be made first, with no transaction open: it would wait for the transaction's locks."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        super().__init__(domain)


@define
class Total:
    """`use` has the limits of a domain and, if `summed` is not None, the sum made at that time.

    `octets` and `messages` are what this process charged since.
    """

    use: QuotaUse
    summed: float | None = None
    octets: int = 0
    messages: int = 0


class Domains:
    """See the module's text. `limited` has the domains that have limits, "" for the default one; nearly always none."""

    def __init__(self, tables: Callable[[], Iterable[QuotaTable]], settings: Settings,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.limited: dict[str, Total] = {}
        self.clock = clock
        self._tables = tables
        self._settings = settings
        self.refresh()

    def follow(self, settings: Settings) -> None:
        """Have these settings from now on."""
        self._settings = settings

    def refresh(self) -> None:
        """Read the limits, and sum up the domains that were asked for. For a thread, if there are many users."""
        found: dict[str, Total] = {}
        for domain, limits in self._limits().items():
            old = self.limited.get(domain)
            found[domain] = Total(limits) if old is None else evolve(
                old, use=evolve(limits, octets=old.use.octets, messages=old.use.messages, discount=old.use.discount))
        self.limited = found
        for domain, total in found.items():
            if total.summed is not None:
                self.sum_up(domain)

    def _limits(self) -> Mapping[str, QuotaUse]:
        """All partitions have the limits; the first one decides."""
        found: dict[str, QuotaUse] = {}
        for table in self._tables():
            for domain, limits in table.domains():
                found.setdefault(domain, limits)
        return found

    def sum_up(self, domain: str) -> None:
        """Find out what the users of a domain that has limits use now. No transaction may be open in this thread."""
        total = self.limited.get(domain)
        if total is None:
            return
        octets, messages = total.octets, total.messages
        use = self.find(domain)
        total.use = evolve(total.use, octets=use.octets, messages=use.messages, discount=use.discount)
        total.summed = self.clock()
        total.octets -= octets              # what was charged meanwhile may be counted twice, and is never left out
        total.messages -= messages

    def find(self, domain: str) -> QuotaUse:
        """Limits and use of a domain as they are now, summed over all its users."""
        octets = messages = discount = 0
        for table in self._tables():
            use = table.domain(domain)
            octets, messages, discount = octets + use.octets, messages + use.messages, discount + use.discount
        return evolve(self._limits().get(domain, NO_LIMITS), octets=octets, messages=messages, discount=discount)

    def of(self, root: str) -> str | None:
        """The domain of a quota root, if it has limits."""
        domain = domain_of(root)
        return domain if domain in self.limited and not root.startswith(PUBLIC) else None

    def full(self, domain: str, octets: int, messages: int, pending: Iterable[tuple[str, int, int]] = ()
             ) -> QuotaUse | None:
        """The domain's limits, if that much more does not fit; `pending`: what the transaction has charged already.

        Raises NotSummed.
        """
        total = self.limited.get(domain)
        if total is None or not self._settings.quota_enforce:
            return None
        if total.summed is None or self.clock() - total.summed > STALE:
            raise NotSummed(domain)
        more, count = total.octets + octets, total.messages + messages
        for other, charged, number in pending:
            if other == domain:
                more, count = more + charged, count + number
        return None if total.use.has_room(more, count, self._settings) else total.use

    def add(self, charged: Iterable[tuple[str, int, int]]) -> None:
        """A transaction that charged this (domain, octets, messages) has been committed."""
        for domain, octets, messages in charged:
            total = self.limited.get(domain)
            if total is not None:
                total.octets += octets
                total.messages += messages
