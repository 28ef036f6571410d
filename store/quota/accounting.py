"""Who holds which message files: what each user, mailbox, domain and partition costs, and what sharing saves.

A message file is held by the users in whose mailboxes records refer to it; all public mailboxes together count as one
user. The octets of the file, trace header included, are divided among its holders, and a user's part among those of the
user's mailboxes that refer to it. What does not divide goes octet by octet to the first in order of domain, user and
name. So the fair shares of mailboxes add up to those of users, domains and partitions, and all of them, with what waits
for the purge, to the octets of the files in `messages/`, exactly.

No lock is held. Beside a running server each chunk of records is as it was when it was read: a message that is moved
or copied meanwhile may be counted at either place, or at both. The sum of fair shares always equals the octets of the
files that were seen.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from mboxlist.names import PUBLIC, SEPARATOR
from store.partition.partition import Partition
from store.partition.records import every_record
from store.partition.transactions import WriteTxn
from store.store import Store
from store.tables.index import Rows
from store.tables.references import FOREVER

ROOTS_AT_A_TIME = 100       # changed in one transaction

Integers = NDArray[np.int64]


@frozen
class Share:
    """What one holder has.

    `octets` is the sum of RFC822.SIZE of `messages` records: `unique` octets of them are of files that nobody else
    holds, `shared` the others. `fair` is the fair share of files, `freed` the octets of files that would go if the
    holder went. Header fields that a message has in one mailbox alone count in the first three: they are in no file.
    """

    messages: int = 0
    octets: int = 0
    unique: int = 0
    shared: int = 0
    fair: int = 0
    freed: int = 0

    def __add__(self, other: "Share") -> "Share":
        return Share(self.messages + other.messages, self.octets + other.octets, self.unique + other.unique,
                     self.shared + other.shared, self.fair + other.fair, self.freed + other.freed)


@frozen
class Sharing:
    """The accounts of a store.

    Mailboxes go by their canonical names, users by their ids; the user and the domain of public mailboxes are
    "public/". `waiting` is the octets of each partition's files that no mailbox refers to any more.
    """

    mailboxes: dict[str, Share]
    users: dict[str, Share]
    domains: dict[str, Share]
    partitions: dict[str, Share]
    waiting: dict[str, int]

    @property
    def whole(self) -> Share:
        """The whole store."""
        return sum(self.partitions.values(), Share())


def sharing(store: Store, tell: Callable[[int], None] = lambda records: None) -> Sharing:
    """The accounts as they are now. Reads every index record, and takes 200 octets of memory for each while it works on
    a partition; a mailbox is read some megabytes at a time. `tell` hears how many records of a partition are read."""
    default = store.settings.default_domain
    accounts = Sharing({}, {}, {}, {}, {})
    for partition in store.partitions.values():
        entries = sorted((entry for entry in store.mailboxes.all() if entry.partition == partition.name),
                         key=lambda entry: (*_order(entry.name.owner, default), entry.name.path))
        uses, left = _uses(partition, [entry.id for entry in entries], tell)
        shares = _fair_shares(uses, _numbered(map(_user, entries))[1])
        for figures, name in ((accounts.mailboxes, _name), (accounts.users, _user),
                              (accounts.domains, lambda entry: _order(entry.name.owner, default)[0]),
                              (accounts.partitions, lambda entry: entry.partition)):
            _add(figures, *_numbered(map(name, entries)), uses, shares)
        accounts.partitions.setdefault(partition.name, Share())
        accounts.waiting[partition.name] = _waiting(partition, uses, left)
    return accounts


def fair_shares(partition: Partition) -> dict[str, int]:
    """The fair share of each user on the partition, in octets: what the administrator's accounts charge under the
    setting `quota_charge = fair`. All public mailboxes go as "public/"."""
    default = partition.settings.default_domain
    owned = sorted((*_order(_user_of(state.quota_root), default), mailbox) for mailbox, state in partition.all_states()
                   if not state.removed)
    users, groups = _numbered(user for _, user, _ in owned)
    uses, _ = _uses(partition, [mailbox for _, _, mailbox in owned])
    starts, _ = _runs(uses, np.arange(len(owned)))
    total = _summed(groups[uses.place[starts]], _fair_shares(uses, groups), len(users))
    return dict(zip(users, total.tolist(), strict=True))


def reckon(store: Store, partition: str) -> int:
    """Compute what sharing takes off the use of each root on a partition (setting `quota_charge` = fair); how many
    roots there are. For a thread.

    A user's discount is what fair shares are less than the sum of the user's messages. Where a user has more than one
    root it is divided among them by what they use.
    """
    place = store.partitions[partition]
    shares, roots = fair_shares(place), list(place.quotas.all())
    used: dict[str, int] = {}
    for root, use in roots:
        used[_user_of(root)] = used.get(_user_of(root), 0) + use.octets
    changed = []
    for root, use in roots:
        owner = _user_of(root)
        whole = max(0, used[owner] - shares.get(owner, used[owner]))
        discount = whole * use.octets // used[owner] if used[owner] > 0 else 0
        if discount != use.discount:
            changed.append((root, discount))
    for at in range(0, len(changed), ROOTS_AT_A_TIME):
        def work(txn: WriteTxn, piece: list[tuple[str, int]] = changed[at:at + ROOTS_AT_A_TIME]) -> None:
            for root, discount in piece:
                place.quotas.set_discount(root, discount, txn.handle)
        place.transact(work)
    place.flush()
    return len(roots)


def _name(entry: MailboxEntry) -> str:
    return str(entry.name)


def _user(entry: MailboxEntry) -> str:
    return entry.name.owner or PUBLIC


def _user_of(root: str) -> str:
    """The user that a quota root is of; all public mailboxes go as "public/"."""
    return PUBLIC if root.startswith(PUBLIC) else root.partition(SEPARATOR)[0]


def _order(owner: str, default: str) -> tuple[str, str]:
    """Domain and user of a mailbox: in that order remainders are given out."""
    return (PUBLIC, PUBLIC) if owner in ("", PUBLIC) else (owner.partition("@")[2] or default, owner)


def _numbered(names: Iterable[str]) -> tuple[list[str], Integers]:
    """The different names, and which of them each one is; equal names stand together."""
    found: dict[str, int] = {}
    numbers = [found.setdefault(name, len(found)) for name in names]
    return list(found), np.array(numbers, np.int64)


@frozen(eq=False)
class _Uses:
    """A line for each record, in order of file and then of the mailbox's place in the list: arrival serial of the file,
    place, RFC822.SIZE, octets of the file; and the number of the file, counted from 0."""

    serial: NDArray[np.uint64]
    place: Integers
    size: Integers
    octets: Integers
    file: Integers


def _uses(partition: Partition, mailboxes: Sequence[int], tell: Callable[[int], None] = lambda records: None
          ) -> tuple[_Uses, dict[int, int]]:
    """Of all records in these mailboxes; and the files that the other mailboxes, which were deleted, refer to: octets
    by serial."""
    place_of = np.full(max(mailboxes, default=0) + 1, -1, np.int64)
    place_of[np.array(mailboxes, np.int64)] = np.arange(len(mailboxes))
    pieces: list[tuple[NDArray[Any], ...]] = [(np.empty(0, np.uint64), *(np.empty(0, np.int64) for _ in range(3)))]
    left: dict[int, int] = {}
    read = 0
    for owners, rows in every_record(partition):
        read += len(rows)
        tell(read)
        places = place_of[np.minimum(owners, len(place_of) - 1)]
        listed = (places >= 0) & (owners < len(place_of))
        octets = _octets(partition, rows)
        pieces.append((rows["serial"][listed], places[listed], rows["size"][listed].astype(np.int64), octets[listed]))
        left |= zip(rows["serial"][~listed].tolist(), octets[~listed].tolist(), strict=True)
    serial, place, size, octets = (np.concatenate(column) for column in zip(*pieces, strict=True))
    del pieces
    by_file = np.lexsort((place, serial))
    serial = serial[by_file]
    return _Uses(serial, place[by_file], size[by_file], octets[by_file], np.cumsum(_changes(serial)) - 1), left


def _octets(partition: Partition, rows: Rows) -> Integers:
    """Of the message file of each record."""
    private = np.maximum(partition.private_headers.sizes(rows), 0)
    octets: Integers = (rows["size"] + rows["header_length"]).astype(np.int64) - private
    return octets


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a value differs from the one before it; the first does."""
    return np.concatenate((np.ones(min(1, len(values)), np.bool_), values[1:] != values[:-1]))


def _runs(uses: _Uses, groups: Integers) -> tuple[NDArray[np.intp], Integers]:
    """Where the lines of another file, or of another group of mailboxes, begin; and the number of the run of each line.

    `groups` is the group of each place; it never falls.
    """
    begins = _changes(uses.file) | _changes(groups[uses.place])
    return np.flatnonzero(begins), np.cumsum(begins) - 1


def _fair_shares(uses: _Uses, users: Integers) -> Integers:
    """What each mailbox that refers to a file bears of it: a number for each run of one file and one mailbox."""
    holders, holder_of = _runs(uses, users)
    boxes, _ = _runs(uses, np.arange(len(users)))
    files = np.flatnonzero(_changes(uses.file))
    of_holders = _divided(uses.octets[files], uses.file[holders])
    return _divided(of_holders, holder_of[boxes])


def _divided(amounts: Integers, parents: Integers) -> Integers:
    """Each amount divided among its children; `parents` is each child's amount, in order."""
    counts = np.bincount(parents, minlength=len(amounts))
    rank = np.arange(len(parents)) - (np.cumsum(counts) - counts)[parents]
    return amounts[parents] // counts[parents] + (rank < amounts[parents] % counts[parents])


def _add(figures: dict[str, Share], names: Sequence[str], groups: Integers, uses: _Uses, shares: Integers) -> None:
    """Add to the figures of the groups, whose names these are."""
    starts, _ = _runs(uses, groups)
    boxes, _ = _runs(uses, np.arange(len(groups)))
    holders = np.bincount(uses.file[starts])
    alone = holders[uses.file[starts]] == 1
    group = groups[uses.place[starts]]
    ends = np.append(starts, len(uses.file))
    octets = np.add.reduceat(uses.size, starts) if len(starts) else starts
    columns = [_summed(group, np.diff(ends), len(names)), _summed(group, octets, len(names)),
               _summed(group[alone], octets[alone], len(names)), _summed(group[~alone], octets[~alone], len(names)),
               _summed(groups[uses.place[boxes]], shares, len(names)),
               _summed(group[alone], uses.octets[starts][alone], len(names))]
    for name, *values in zip(names, *(column.tolist() for column in columns), strict=True):
        figures[name] = figures.get(name, Share()) + Share(*values)


def _summed(groups: Integers, values: NDArray[Any], count: int) -> Integers:
    total = np.zeros(count, np.int64)
    np.add.at(total, groups, values)
    return total


def _waiting(partition: Partition, uses: _Uses, left: Mapping[int, int]) -> int:
    """Octets of the files that only deleted mailboxes refer to, what was expunged, or nothing at all."""
    waiting = dict(left)
    for item in partition.removed.held():
        waiting |= zip(item.rows["serial"].tolist(), _octets(partition, item.rows).tolist(), strict=True)
    for released, digest in partition.refs.waiting(FOREVER):
        record = partition.refs.find(digest)
        if record is not None and not record.references and record.released == released:
            waiting[record.serial] = record.size
    serials = np.fromiter(waiting, np.uint64, len(waiting))
    octets = np.fromiter(waiting.values(), np.int64, len(waiting))
    return int(octets[~np.isin(serials, uses.serial)].sum())
