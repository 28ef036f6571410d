"""Quota: what a quota root uses, and what it may use. Use changes in the transaction that changes the records.

`quota.db` has a row for each root:

    alice, alice@example.com        the user's mailboxes, without those that have a root of their own
    alice/Archive                   a mailbox with a root of its own, and those below it
    public/news                     public mailboxes: by their first level, unless one has a root of its own
    @example.com                    a domain: limits only; its use is the sum over its users' rows

The row of a root of its own is there for as long as the root is: it says which mailboxes the root covers. A root
belongs to the name, not to the mailbox that has the name at present. All roots of a domain stand together. Users of the
default domain go without one, so that its name can change.
"""

import struct
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NoReturn

from attrs import evolve, frozen

from mboxlist.engine.btree import Table, Txn
from mboxlist.names import PUBLIC, SEPARATOR
from store.errors import Problem, StoreError
from store.settings import Settings
from store.values import readable

_RECORD = struct.Struct("<qqqqIIq")

DEFAULT = -2                # a limit that is the store's default
UNLIMITED = -1

DOMAIN = "@"                # what the root of a domain begins with
_PUBLIC_KEY = b"\xfe"       # octets that no UTF-8 begins with: what the keys of these roots begin with
_DOMAIN_KEY = b"\xff"


@frozen
class LimitsTurn:
    """Whose turn it is to change limits of that owner ("": public mailboxes, "@DOMAIN": a domain): whoever has it keeps
    others from changing them meanwhile, and from taking them along with a user who moves (`store.quota.limitturns`).
    Without one nobody can change limits."""

    owner: str | None

    def covers(self, root: str) -> bool:
        """Whether the root is one of that owner."""
        owner = root.partition(SEPARATOR)[0]
        return self.owner is None or self.owner == ("" if owner == PUBLIC[:-1] else owner)


#: For a partition that nobody else has open: it is being made, or recovered.
ALONE = LimitsTurn(None)


@frozen
class QuotaUse:
    """Use and limits of one quota root: octets and messages; a limit is DEFAULT, UNLIMITED or a number.

    `refused` is the Unix time of the first delivery that was refused in the present period of grace, 0: none; `warned`
    that of the last notice; `discount` the octets that sharing takes off in the administrator's accounts (setting
    `quota_charge`). Limits are held against `octets`, and these are what users see: the discount moves when others get
    or lose the same messages, and a user who saw it, or met a limit by it, would know that.
    """

    octets: int = 0
    messages: int = 0
    octet_limit: int = DEFAULT
    message_limit: int = DEFAULT
    refused: int = 0
    warned: int = 0
    discount: int = 0

    def to_bytes(self) -> bytes:
        """The stored form."""
        return _RECORD.pack(self.octets, self.messages, self.octet_limit, self.message_limit, self.refused, self.warned,
                            self.discount)

    @classmethod
    def from_bytes(cls, data: bytes) -> "QuotaUse":
        """From the stored form."""
        return cls(*_RECORD.unpack(data))

    def limits(self, settings: Settings) -> tuple[int | None, int | None]:
        """The limits that hold now: octets and messages, None where there is none."""
        octets, messages = self.octet_limit, self.message_limit
        if octets == DEFAULT:
            octets = settings.default_quota or UNLIMITED
        if messages == DEFAULT:
            messages = settings.default_message_quota or UNLIMITED
        return None if octets == UNLIMITED else octets, None if messages == UNLIMITED else messages

    def accounted(self, settings: Settings) -> "QuotaUse":
        """Its use in the administrator's accounts. For no answer to a user, and for no limit."""
        return evolve(self, octets=max(0, self.octets - self.discount * (settings.quota_charge == "fair")), discount=0)

    def has_room(self, octets: int, messages: int, settings: Settings) -> bool:
        """Whether that much more fits."""
        octet_limit, message_limit = self.limits(settings)
        return ((octet_limit is None or self.octets + octets <= octet_limit)
                and (message_limit is None or self.messages + messages <= message_limit))

    def could_hold(self, octets: int, messages: int, settings: Settings) -> bool:
        """Whether that much would fit if the root were empty."""
        octet_limit, message_limit = self.limits(settings)
        return ((octet_limit is None or octets <= octet_limit)
                and (message_limit is None or messages <= message_limit))

    def per_cent(self, settings: Settings) -> int | None:
        """How full it is by the fuller of its limits; None without a limit."""
        octet_limit, message_limit = self.limits(settings)
        if octet_limit is None and message_limit is None:
            return None
        parts = [100 * used // limit if limit else 100 * (used > 0)
                 for used, limit in ((self.octets, octet_limit), (self.messages, message_limit))
                 if limit is not None]
        return max(parts, default=None)

    def deserves_warning(self, settings: Settings) -> bool:
        """Whether the threshold of warnings has been reached (setting `quota_warn`)."""
        part = self.per_cent(settings)
        return part is not None and 0 < settings.quota_warn <= part

    def describe(self, settings: Settings) -> str:
        """Use and limits for a person: "91 % full: 1.8 of 2.0 MiB, 12 of 100 messages"."""
        octet_limit, message_limit = self.limits(settings)
        parts = []
        if octet_limit is not None:
            parts.append(f"{readable(self.octets)} of {readable(octet_limit)}")
        if message_limit is not None:
            parts.append(f"{self.messages} of {message_limit} messages")
        return f"{self.per_cent(settings)} % full: {', '.join(parts)}" if parts else "no limit"


_UNUSED = QuotaUse()
_UNLIMITED = QuotaUse(octet_limit=UNLIMITED, message_limit=UNLIMITED)       # the defaults are for users


# What `QuotaTable.noticed` is called for: a period of grace begins, or ends; limits are others.
EXCEEDED, WITHIN, CHANGED = "exceeded", "within", "changed"


class QuotaTable:
    """`quota.db`. `clock` gives Unix time: it is read when a delivery is refused. `noticed`: what happens to a root, in
    the transaction in which it does: one of EXCEEDED, WITHIN and CHANGED, the root, and its use and limits then.
    `holds_back`: whether at that time nothing may be refused for good because of its age."""

    def __init__(self, table: Table, settings: Settings, clock: Callable[[], float] = time.time,
                 holds_back: Callable[[float], bool] = lambda now: False) -> None:
        self.clock = clock
        self.holds_back = holds_back
        self.noticed: Callable[[str, str, QuotaUse, Txn], None] = lambda what, root, use, txn: None
        self._table = table
        self.follow(settings)

    def follow(self, settings: Settings) -> None:
        """Have these settings from now on."""
        self.settings = settings
        self._enforced = settings.quota_enforce
        self._default_domain = DOMAIN + settings.default_domain.lower()
        self._default_octets = settings.default_quota or UNLIMITED
        self._default_messages = settings.default_message_quota or UNLIMITED

    def find(self, root: str, txn: Txn = None) -> QuotaUse:
        """Use and limits of a root; one that was never used has the default limits."""
        return _use(root, self._table.get(self._key(root), txn))

    def glance(self, root: str) -> QuotaUse:
        """Use and limits as they are at this moment (see `btree.Table.glance`)."""
        return _use(root, self._table.glance(self._key(root)))

    def has_room(self, root: str, octets: int, messages: int) -> bool:
        """Whether that much more fits at this moment, or limits do not matter."""
        if not self._enforced:
            return True
        data = self._table.glance(_DOMAIN_KEY if root == self._default_domain else root_key(root))
        used, count, most, most_messages, _, _, _ = (
            _RECORD.unpack(data) if data is not None
            else _UNLIMITED_RECORD if SEPARATOR in root or root.startswith(DOMAIN) else _UNUSED_RECORD)
        if most == DEFAULT:
            most = self._default_octets
        if most_messages == DEFAULT:
            most_messages = self._default_messages
        return not (0 <= most < used + octets or 0 <= most_messages < count + messages)

    def has(self, root: str, txn: Txn = None) -> bool:
        """Whether there is a row of that root."""
        return self._table.get(self._key(root), txn) is not None

    def charge(self, root: str, octets: int, messages: int, txn: Txn, *, enforce: bool = True, delivery: bool = False
               ) -> None:
        """Add to the use of a root; less than nothing gives back.

        `delivery`: a refusal begins the period of grace, or is for good when that has passed; the transaction must then
        be committed. Raises StoreError OVER_QUOTA, QUOTA_GRACE_ENDED.
        """
        if not octets and not messages:
            return
        key = root_key(root)
        data = self._table.get_to_change(key, txn)
        used, count, octet_limit, message_limit, refused, warned, discount = (
            _RECORD.unpack(data) if data is not None
            else _UNLIMITED_RECORD if SEPARATOR in root else _UNUSED_RECORD)
        used += octets
        count += messages
        most, most_messages = octet_limit, message_limit
        if most == DEFAULT:
            most = self._default_octets
        if most_messages == DEFAULT:
            most_messages = self._default_messages
        if 0 <= most < used or 0 <= most_messages < count:
            if messages > 0 and enforce and self._enforced:
                self.refuse(root, octets, messages, txn, delivery=delivery)
        elif refused and (messages > 0 or self._is_below(used, count, most, most_messages)):
            refused = 0
            self.noticed(WITHIN, root, QuotaUse(used, count, octet_limit, message_limit), txn)
        self._table.put(key, _RECORD.pack(used, count, octet_limit, message_limit, refused, warned, discount), txn)

    @staticmethod
    def _is_below(used: int, count: int, most: int, most_messages: int) -> bool:
        """Whether anything at all would fit."""
        return (most < 0 or used < most) and (most_messages < 0 or count < most_messages)

    def refuse(self, root: str, octets: int, messages: int, txn: Txn, *, delivery: bool, domain: QuotaUse | None = None
               ) -> NoReturn:
        """There is no room for that, or not in the `domain`; see `charge`.

        Raises StoreError OVER_QUOTA, QUOTA_GRACE_ENDED.
        """
        if not delivery:
            raise StoreError(Problem.OVER_QUOTA)
        use = _use(root, self._table.get_to_change(root_key(root), txn))
        if not all(limits.could_hold(octets, messages, self.settings) for limits in (use, domain or use)):
            raise StoreError(Problem.QUOTA_GRACE_ENDED, "The message is bigger than the whole quota")
        now = int(self.clock())
        if not use.refused:
            self._table.put(root_key(root), evolve(use, refused=now).to_bytes(), txn)
            self.noticed(EXCEEDED, root, use, txn)
        elif now - use.refused >= self.settings.quota_grace and not self.holds_back(now):
            raise StoreError(Problem.QUOTA_GRACE_ENDED)
        raise StoreError(Problem.OVER_QUOTA)

    def set_limits(self, root: str, octets: int | None, messages: int | None, txn: Txn, turn: LimitsTurn) -> None:
        """Change the limits that are not None; DEFAULT and UNLIMITED are allowed.

        A period of grace ends when there is room by the new limits.
        """
        assert turn.covers(root)
        old = _use(root, self._table.get_to_change(self._key(root), txn))
        use = evolve(old, octet_limit=old.octet_limit if octets is None else octets,
                     message_limit=old.message_limit if messages is None else messages)
        if use.refused and use.has_room(1, 1, self.settings):
            use = evolve(use, refused=0)
        self._table.put(self._key(root), use.to_bytes(), txn)
        self._notice_limits(root, old, use, txn)

    def _notice_limits(self, root: str, old: QuotaUse, new: QuotaUse, txn: Txn) -> None:
        if (old.octet_limit, old.message_limit) != (new.octet_limit, new.message_limit):
            self.noticed(CHANGED, root, new, txn)
        if old.refused and not new.refused:
            self.noticed(WITHIN, root, new, txn)

    def set_warned(self, root: str, when: int, txn: Txn) -> None:
        """A notice goes out at that Unix time."""
        self._change(root, txn, lambda use: evolve(use, warned=when))

    def set_discount(self, root: str, octets: int, txn: Txn) -> None:
        """So many octets are taken off what the root uses, never more than it uses."""
        self._change(root, txn, lambda use: evolve(use, discount=max(0, min(octets, use.octets))))

    def _change(self, root: str, txn: Txn, change: Callable[[QuotaUse], QuotaUse]) -> None:
        data = self._table.get_to_change(self._key(root), txn)
        if data is not None:
            self._table.put(self._key(root), change(QuotaUse.from_bytes(data)).to_bytes(), txn)

    def take_over(self, root: str, other: QuotaUse, txn: Txn) -> None:
        """Have limits and dates of the root be those that it has on another partition; its use here stays."""
        data = self._table.get_to_change(self._key(root), txn)
        mine = QuotaUse.from_bytes(data) if data is not None else _UNUSED
        self._table.put(self._key(root), evolve(other, octets=mine.octets, messages=mine.messages,
                                                discount=mine.discount).to_bytes(), txn)

    def put_back(self, root: str, before: QuotaUse, txn: Txn, turn: LimitsTurn) -> None:
        """`take_over`, when what changed the limits was undone."""
        assert turn.covers(root)
        old = self.find(root, txn)
        self.take_over(root, before, txn)
        self._notice_limits(root, old, self.find(root, txn), txn)

    def rename(self, old: str, new: str, txn: Txn) -> None:
        """A root has another name; what the other name uses already is added."""
        data = self._table.get_to_change(self._key(old), txn)
        if data is None or old == new:
            return
        use, there = QuotaUse.from_bytes(data), self._table.get_to_change(self._key(new), txn)
        if there is not None:
            also = QuotaUse.from_bytes(there)
            use = evolve(use, octets=use.octets + also.octets, messages=use.messages + also.messages,
                         discount=use.discount + also.discount)
        self._table.put(self._key(new), use.to_bytes(), txn)
        self._table.delete(self._key(old), txn)

    def hand_over(self, old: str, new: str, octets: int, messages: int, txn: Txn) -> None:
        """So much of what a root uses is used by another one, which has the same limits if it is not there yet. Nobody
        has more room by it, or less: no event tells of it."""
        use = _use(old, self._table.get_to_change(self._key(old), txn))
        there = self._table.get_to_change(self._key(new), txn)
        other = evolve(use, octets=0, messages=0, discount=0) if there is None else QuotaUse.from_bytes(there)
        for root, each, sign in ((old, use, -1), (new, other, 1)):
            self._table.put(self._key(root), evolve(each, octets=each.octets + sign * octets,
                                                    messages=each.messages + sign * messages).to_bytes(), txn)

    def take_domains(self, other: "QuotaTable", txn: Txn) -> None:
        """Have the limits of domains that another partition has."""
        for domain, use in list(other.domains()):
            self._table.put(_DOMAIN_KEY + domain.encode(), use.to_bytes(), txn)

    def forget(self, root: str, txn: Txn) -> None:
        """The root is no more."""
        self._table.delete(self._key(root), txn)

    def forget_user(self, user: str, txn: Txn) -> None:
        """The user is no more, and has no mailboxes."""
        for root in (user, *self.roots_below(user, txn)):
            self.forget(root, txn)

    def all(self, txn: Txn = None) -> Iterator[tuple[str, QuotaUse]]:
        """Every root that has a row but those of domains, a domain's together; within a transaction they stay so."""
        for key, data in self._table.scan(b"", _DOMAIN_KEY, txn, hold=txn is not None):
            yield _root(key), QuotaUse.from_bytes(data)

    def roots_below(self, owner: str, txn: Txn = None) -> list[str]:
        """The roots of its own that mailboxes of a user have ("": of public ones, also the first level's)."""
        start = root_key((owner or PUBLIC[:-1]) + SEPARATOR)
        return [_root(key) for key, _ in self._table.scan(start, start[:-1] + bytes((start[-1] + 1,)), txn)]

    def domain(self, domain: str) -> QuotaUse:
        """The use of all users of a domain ("": the default one) here, and its limits."""
        octets = messages = discount = 0
        for _, data in self._table.scan(f"{domain}\0".encode(), f"{domain}\1".encode()):
            found = _RECORD.unpack(data)
            octets += found[0]
            messages += found[1]
            discount += found[6]
        return evolve(self.find(DOMAIN + domain), octets=octets, messages=messages, discount=discount)

    def _key(self, root: str) -> bytes:
        return _DOMAIN_KEY if root == self._default_domain else root_key(root)

    def domains(self) -> Iterator[tuple[str, QuotaUse]]:
        """The domains ("": the default one) that have limits, without their use."""
        for key, data in self._table.scan(_DOMAIN_KEY):
            yield key[1:].decode(), QuotaUse.from_bytes(data)


_UNUSED_RECORD = _RECORD.unpack(_UNUSED.to_bytes())
_UNLIMITED_RECORD = _RECORD.unpack(_UNLIMITED.to_bytes())


def _use(root: str, data: bytes | None) -> QuotaUse:
    """Use and limits of a root, as they are stored; a root that was never used has the default limits."""
    if data is not None:
        return QuotaUse.from_bytes(data)
    return _UNLIMITED if SEPARATOR in root or root.startswith(DOMAIN) else _UNUSED


def domain_of(root: str) -> str:
    """The domain of the user whose root it is, "" for the default one."""
    return root.partition(SEPARATOR)[0].partition("@")[2]


@lru_cache(maxsize=1 << 16)
def root_key(root: str) -> bytes:
    """The key of a root's row."""
    if root.startswith(PUBLIC):
        return _PUBLIC_KEY + root.encode()
    if root.startswith(DOMAIN):
        return _DOMAIN_KEY + root[1:].encode()
    return f"{domain_of(root)}\0{root}".encode()


def _root(key: bytes) -> str:
    if key.startswith(_PUBLIC_KEY):
        return key[1:].decode()
    return key.partition(b"\0")[2].decode()
