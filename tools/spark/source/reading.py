"""Reading a store without its databases: the work is divided into tasks, and a task gives record batches. No Spark.

    for task in tasks(roots("/srv/a,/srv/b"), "references", Wanted(owners=frozenset({"alice"}))):
        for batch in rows.batches(task):
            ...

A task is small and can be pickled; whoever reads it must see the partition's folder under the same name. It is a part
of the hash folders of one partition, with at most `Sizes.files` message files, or `Sizes.mailboxes` mailboxes of at
most `Sizes.octets`. (One file is never divided.) Nothing but `store.idx`, message files and file journals is read. What
cannot be read becomes a row with `damage`, and what goes away while it is being read is left out.

A store that nobody has opened since it crashed, or a copy of one in use, may have messages in a file journal only: of a
message file that is empty or damaged counts what the journal has (`in_journal`).
"""

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path

from attrs import frozen

from mboxlist.names import PUBLIC
from store.errors import StoreError
from store.partition.filecontent import likely_digests
from store.partition.filejournal import LeftMessages, is_journal
from store.userarea import idxreading
from store.userarea.idxfile import NAME
from store.userarea.idxreading import Salvaged
from store.userarea.paths import DELETED
from tools.spark.source.schema import schema

SAMPLED_FOLDERS = 64            # message folders that are counted to know how full they all are
STAGING = "staging"             # a place of a task: messages that have no name yet
_PUBLIC = PUBLIC[:-1]           # folder of public mailboxes below users/
_HEX = "0123456789abcdef"


@frozen
class Wanted:
    """What a reader wants to see; None: all. Rows that it does not want may come nevertheless where leaving them out
    would save no reading. `digests` are beginnings of digests, `columns` names of columns in their order, () for all.

    With `owners` only the folders are read in which their mailboxes belong, and deleted mailboxes.
    """

    partitions: frozenset[str] | None = None
    owners: frozenset[str] | None = None
    digests: frozenset[str] | None = None
    columns: tuple[str, ...] = ()


ALL = Wanted()


@frozen
class Task:
    """A part of a table. `places` are, of messages: beginnings of digests (of 3 digits or more), and `STAGING`; of all
    other tables: folders below users/."""

    table: str
    store: str
    partition: str
    folder: str
    places: tuple[str, ...]
    wanted: Wanted = ALL


class Beginnings:
    """Beginnings of digests, however many there are."""

    def __init__(self, digests: Iterable[str]) -> None:
        self._digests = frozenset(digests)
        self._lengths = sorted(set(map(len, self._digests)))
        self._cut: dict[int, frozenset[str]] = {}

    def match(self, digest: str) -> bool:
        """Whether one of them begins that digest."""
        return any(digest[:length] in self._digests for length in self._lengths)

    def touches(self, head: str) -> bool:
        """Whether a digest that begins with `head` may match."""
        size = len(head)
        if size not in self._cut:
            self._cut[size] = frozenset(digest[:size] for digest in self._digests)
        return head in self._cut[size] or self.match(head)


@frozen
class Found:
    """A file that was come upon, or (with `problem`) something that cannot be looked at. `path` is whole, `below` what
    of it is below the partition's folder."""

    path: str
    below: str
    problem: str = ""


# Where stores and partitions are

def roots(path: str | Sequence[str]) -> list[str]:
    """The stores that a path names: one folder, several with commas between them, or a pattern with * ? [].

    Each is a store's folder, or the folder of one partition. Raises ValueError for what is neither.
    """
    found: dict[str, None] = {}
    for text in path.split(",") if isinstance(path, str) else path:
        text = text.strip().removeprefix("file://")
        if not text:
            continue
        matches = sorted(glob.glob(text)) if glob.has_magic(text) and not os.path.isdir(text) else [text]
        stores = [match for match in matches if _is_store(match) or _is_partition(match)]
        if not stores:
            raise ValueError(f"there is no store in {text}")
        found |= dict.fromkeys(os.path.abspath(match) for match in stores)
    if not found:
        raise ValueError("which store? Give the path of one, or of several with commas between them")
    return list(found)


def partitions(root: str) -> list[tuple[str, str]]:
    """The partitions of a store: name and folder, whose volume may be missing."""
    if not _is_store(root):
        return [(os.path.basename(root), root)]
    with os.scandir(os.path.join(root, "partitions")) as entries:
        return sorted((entry.name, entry.path) for entry in entries if not entry.name.startswith("."))


def _is_store(root: str) -> bool:
    return os.path.isdir(os.path.join(root, "partitions"))


def _is_partition(folder: str) -> bool:
    return os.path.isdir(os.path.join(folder, "messages")) or os.path.isdir(os.path.join(folder, "users"))


# Planning

@frozen
class Sizes:
    """How large tasks are, and how exactly that is found out."""

    files: int = 4096               # message files of one task; planned for half, since it is an estimate
    mailboxes: int = 1024           # mailboxes of one task
    octets: int = 16 << 20          # octets of store.idx of one task, unless one file has more
    exact_folders: int = 4096       # user folders that are all looked at; of more,
    sampled_users: int = 512        # a sample of these


def tasks(stores: Sequence[str], table: str, wanted: Wanted = ALL, sizes: Sizes = Sizes()) -> list[Task]:
    """What is to be read of a table, of the stores in these folders (`roots`).

    Raises ValueError for a table or a column that there is not.
    """
    schema(table, wanted.columns)
    places = _message_places if table == "messages" else _user_places
    return [Task(table, root, name, folder, some, wanted) for root in stores for name, folder in partitions(root)
            if wanted.partitions is None or name in wanted.partitions
            for some in places(folder, wanted, sizes)]


def _message_places(folder: str, wanted: Wanted, sizes: Sizes) -> list[tuple[str, ...]]:
    """Beginnings of digests, `Sizes.files` or fewer to a task if they are as many everywhere (digests are)."""
    top = os.path.join(folder, "messages")
    if not os.path.isdir(top):
        return [("",)]                  # a row that says so
    every = [f"{number:03x}" for number in range(1 << 12)]
    mean, begin = _mean(folder), 3
    while mean > sizes.files / 2 and begin < 8:
        mean, begin = mean / 16, begin + 1
    beginnings = [head + "".join(digits) for head in every for digits in product(_HEX, repeat=begin - 3)]
    if wanted.digests is not None:
        begins = Beginnings(wanted.digests)
        beginnings = [head for head in beginnings if begins.touches(head)]
    per_task = max(1, int(sizes.files / 2 / max(mean, 0.5)))
    return [tuple(beginnings[at:at + per_task]) for at in range(0, len(beginnings), per_task)] + [(STAGING,)]


def estimated_messages(root: str) -> int:
    """About how many message files a store has: by a sample of their folders, all of which are as full."""
    return round(sum(_mean(folder) for _, folder in partitions(root)) * (1 << 12))


def _mean(folder: str) -> float:
    """How many message files of a partition are in one of its folders."""
    folders = [os.path.join(folder, "messages", f"{number:03x}"[0], f"{number:03x}"[1:])
               for number in range(0, 1 << 12, (1 << 12) // SAMPLED_FOLDERS)]
    return sum(map(_count, folders)) / SAMPLED_FOLDERS


def _count(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def _user_places(folder: str, wanted: Wanted, limits: Sizes) -> list[tuple[str, ...]]:
    """Folders below users/, so many to a task that its mailboxes and octets are expected to be enough."""
    top = os.path.join(folder, "users")
    if not os.path.isdir(top):
        return [("",)]                  # a row that says so
    try:
        places = _units(top, wanted)
    except OSError:
        return [("",)]
    if len(places) <= limits.exact_folders:
        sizes = {place: _size(folder, place) for place in places}
    else:
        sample = places[::len(places) // limits.sampled_users]
        found = [_size(folder, place) for place in sample]
        mean = (2 * sum(files for files, _ in found) / len(found), 2 * sum(octets for _, octets in found) / len(found))
        sizes = dict.fromkeys(places, (int(mean[0]) + 1, int(mean[1]) + 1))
    made: list[tuple[str, ...]] = []
    some: list[str] = []
    files = octets = 0
    for place in places:
        more, larger = sizes[place]
        if some and (files + more > limits.mailboxes or octets + larger > limits.octets or len(some) >= limits.files):
            made.append(tuple(some))
            some, files, octets = [], 0, 0
        some.append(place)
        files, octets = files + more, octets + larger
    return [*made, tuple(some)] if some else made


def _units(top: str, wanted: Wanted) -> list[str]:
    """The smallest folders below users/ of which a task is made: second-level hash folders, public mailboxes of the
    first level, deleted mailboxes."""
    if wanted.owners is not None:
        hashes = [owner_place(owner) for owner in wanted.owners if owner]
        found = [place for place in hashes if os.path.isdir(os.path.join(top, place))]
        firsts = [DELETED, *([_PUBLIC] if "" in wanted.owners else [])]
    else:
        found, firsts = [], os.listdir(top)
    for first in firsts:
        path = os.path.join(top, first)
        if first == NAME:
            found.append(first)
        elif os.path.isdir(path) and not os.path.islink(path):
            try:
                found += [f"{first}/{second}" for second in os.listdir(path)]
            except OSError:
                found.append(first)             # a row that says so
    return sorted(set(found))


def owner_place(owner: str) -> str:
    """The folder below users/ in which the mailboxes of that user belong."""
    digest = hashlib.blake2b(owner.encode(), digest_size=2).hexdigest()
    return f"{digest[:2]}/{digest[2:]}/{owner}"


def _size(folder: str, place: str) -> tuple[int, int]:
    """Files and octets of store.idx in a folder below users/."""
    files = octets = 0
    for found in _walk(folder, f"users/{place}"):
        files += 1
        try:
            octets += os.stat(found.path).st_size
        except OSError:
            continue
    return files, octets


# What a task finds

def idx_files(task: Task) -> Iterator[Found]:
    """Every `store.idx` of a task; folders that cannot be listed have a `problem`."""
    for place in task.places:
        yield from _walk(task.folder, f"users/{place}" if place else "users")


def _walk(folder: str, below: str) -> Iterator[Found]:
    """Every store.idx at or below a path, which is below the partition's folder; a folder's own before its children."""
    path = f"{folder}/{below}"
    if os.path.basename(below) == NAME:
        if os.path.isfile(path):
            yield Found(path, below)
        return
    try:
        with os.scandir(path) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except NotADirectoryError:
        return
    except FileNotFoundError as error:
        if below == "users":            # all of it is missing; anything else went away just now
            yield Found(path, below, f"cannot be listed: {error.strerror}")
        return
    except OSError as error:
        yield Found(path, below, f"cannot be listed: {error.strerror}")
        return
    for entry in inside:
        if entry.name == NAME and not entry.is_dir(follow_symlinks=False):
            yield Found(entry.path, f"{below}/{NAME}")
    for entry in inside:
        if entry.is_dir(follow_symlinks=False) and entry.name != NAME:
            yield from _walk(folder, f"{below}/{entry.name}")


def salvaged(found: Found) -> Salvaged | None:
    """What is left of a store.idx; with what cannot be read at all in `findings`. None when it is gone."""
    if found.problem:
        return _nothing(found.problem)
    try:
        return idxreading.read_what_is_left(Path(found.path))
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        return _nothing(f"cannot be read: {getattr(error.__cause__, 'strerror', None) or error}")


def _nothing(problem: str) -> Salvaged:
    left = idxreading.decode(b"")
    left.findings[:] = [problem]
    return left


def message_files(task: Task) -> Iterator[tuple[str, list["os.DirEntry[str]"], str]]:
    """For each hash folder of a task its name ("3/fa"), its entries, and what is wrong with the folder itself. Staged
    files are not among them: see `staged_files`."""
    for place in task.places:
        if place == STAGING:
            continue
        name = f"{place[0]}/{place[1:3]}" if place else ""
        try:
            with os.scandir(f"{task.folder}/messages/{name}") as entries:
                if len(place) <= 3:
                    yield name, list(entries), ""
                else:                   # part of a folder; what no digest names comes with the first part
                    first = not place[3:].strip("0")
                    yield name, [entry for entry in entries if entry.name.startswith(place) or (
                        first and not is_digest(entry.name))], ""
        except OSError as error:
            yield name, [], f"cannot be listed: {error.strerror}"


def staged_files(task: Task) -> Iterator[tuple["os.DirEntry[str]", bytes | None]]:
    """The files in staging/ that have octets, or a file journal has them, and no name in messages/ yet, each with its
    likeliest digest, or None when it cannot be read. Empty ones are made ready for messages to come."""
    if STAGING not in task.places:
        return
    try:
        with os.scandir(f"{task.folder}/{STAGING}") as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in inside:
        try:
            status = entry.stat()
            if not entry.is_file() or is_journal(entry.name):
                continue
            digests = digests_of(task.folder, entry)
            if digests and not any(_same(task.folder, digest.hex(), status) for digest in digests):
                yield entry, digests[0]
        except FileNotFoundError:
            continue
        except OSError:
            yield entry, None


@lru_cache(maxsize=64)
def _left(folder: str) -> LeftMessages | None:
    """What file journals of a partition have that no process of this machine holds. Looked for once: where a store is
    in use, its files have it all."""
    return LeftMessages.of(Path(folder, STAGING))


def in_journal(folder: str, digest: str) -> bytes | None:
    """The octets of the message file of that digest, if a file journal of the partition has them."""
    left = _left(folder)
    return None if left is None or not is_digest(digest) else left.of_content(bytes.fromhex(digest))


def digests_of(folder: str, entry: "os.DirEntry[str]") -> list[bytes]:
    """The digests that a file in staging/ may have, the likeliest first; none of one that is empty. Raises OSError."""
    left = _left(folder)
    digest = left.digest(int(entry.name, 16)) if left is not None and _is_serial(entry.name) else None
    if digest is not None:
        return [digest]
    return likely_digests(Path(entry.path)) if entry.stat().st_size else []


def _is_serial(name: str) -> bool:
    return len(name) == 16 and not name.strip(_HEX)


def _same(folder: str, digest: str, status: os.stat_result) -> bool:
    """Whether that file has its place already."""
    try:
        return os.path.samestat(os.stat(f"{folder}/messages/{digest[0]}/{digest[1:3]}/{digest}"), status)
    except OSError:
        return False


def is_digest(name: str) -> bool:
    """Whether a file of that name is named by a digest."""
    return len(name) == 64 and not name.strip(_HEX)
