"""Ways to harm the databases of a store, and what is known of its content."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mboxlist.engine import damagemarks, kv, regions
from mboxlist.engine.transact import Failure
from store.errors import StoreError
from store.partition import processes
from store.recovery import environmentrebuild as recovery
from store.store import Store
from tests.support.stores.small import few_folders

BROKEN = (Failure, StoreError)
LIST, INDEX = "mboxlist", "partitions/primary/index"
ENVIRONMENTS = (LIST, INDEX)
SECOND = "second"               # another partition, of large stores
CHECKED = "checked"             # what is told by `onecopy check` or `onecopy scrub`, and not by a start

#: By mailbox: UID -> what a client sees of the message: octets, flags, internal date.
Ledger = dict[str, dict[int, tuple[bytes, int, int]]]
#: Harms the store in that folder, and says what: an environment and, in it, files of which one must be named.
Way = Callable[[Path, Random], "dict[str, list[str]]"]


def ledger(store: Store) -> Ledger:
    """What everybody can see."""
    found: Ledger = {}
    for entry in store.mailboxes.all():
        mailbox = store.open_mailbox(entry)
        messages = found[str(entry.name)] = {}
        for row in mailbox.rows:
            with store.open_message(entry, row) as file:
                messages[int(row["uid"])] = file.read(0, file.size), int(row["flags"]), int(row["received"])
    return found


def differences(before: Ledger, after: Ledger) -> list[str]:
    """What was acknowledged and is not there, and what is shown and was never there."""
    wrong = [f"{name} is gone" for name in before.keys() - after.keys()]
    wrong += [f"{name} is new" for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        was, now = before[name], after[name]
        wrong += [f"{name}: UID {uid} is lost" for uid in was.keys() - now.keys()]
        wrong += [f"{name}: UID {uid} is nobody's" for uid in now.keys() - was.keys()]
        wrong += [f"{name}: UID {uid} is another message" for uid in was.keys() & now.keys() if was[uid] != now[uid]]
    return sorted(wrong)


def image(store: Store, copy: Path, *, from_first_log: bool) -> None:
    """The store as it would be if all processes were killed now; without the logs that recovery does not need."""
    envs = {LIST: store.mailboxes.env, INDEX: store.partitions["primary"].env}
    unneeded = {path for env in envs.values() for path in env.logs.unneeded()}
    kept = {name: env.logs.kept() for name, env in envs.items()}
    shutil.copytree(store.root, copy)
    for path in () if from_first_log else unneeded:
        first = kept[str(path.parent.relative_to(store.root))]
        if first is None or int(path.name[4:]) < first:
            (copy / path.relative_to(store.root)).unlink()
    let_go(copy)


def let_go(root: Path) -> None:
    """Whoever died in the store is forgotten, as the supervisor does it."""
    shutil.rmtree(root / "run" / "inside", ignore_errors=True)
    assert processes.look(root / "run") == ([], [])


def copy(source: str, target: str) -> None:
    """Message files, which are never modified, get a second name."""
    if "/messages/" in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def named(told: list[dict[str, Any]], said: dict[str, list[str]]) -> bool:
    """Whether the reports name each environment that was harmed, and one of the files."""
    text = {event["environment"]: str(event) for report in told for event in report["environments"]}
    notes = str([report["notes"] for report in told])
    text |= {environment: notes for environment in said.keys() - text.keys() if f"/{environment}" in notes}
    return all(environment in text and (not files or any(file in text[environment] for file in files))
               for environment, files in said.items())


@contextmanager
def small() -> Iterator[None]:
    """Stores that are opened meanwhile have small logs, use their shared memory as it is needed, and few folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv, "LOG_FILE", 256 << 10)
        patch.setattr(kv, "LOG_BUFFER", 32 << 10)
        patch.setattr(regions, "reserve", lambda folder: None)
        few_folders(patch.setattr)
        patch.setattr(recovery, "make_folders", lambda folder: None)
        yield


# Ways

def _flip(path: Path, random: Random, count: int = 1, first: int = 0) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(count):
        data[random.randrange(min(first, len(data) - 1), len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def _page(path: Path, random: Random, octets: Callable[[int], bytes]) -> None:
    size = int.from_bytes(path.read_bytes()[20:24], "little")
    pages = path.stat().st_size // size
    with path.open("r+b") as file:
        file.seek(random.randrange(pages) * size)
        file.write(octets(size))


def _table(name: str, harm: Callable[[Path, Random], None]) -> Way:
    def way(root: Path, random: Random) -> dict[str, list[str]]:
        environment, _, table = name.rpartition("/")
        harm(root / environment / table, random)
        return {environment: [table]}

    return way


def _each(environments: Iterable[str], harm: Callable[[Path, Random], None]) -> Way:
    def way(root: Path, random: Random) -> dict[str, list[str]]:
        for environment in environments:
            harm(root / environment, random)
        return {environment: [] for environment in environments}

    return way


def _empty(folder: Path, random: Random) -> None:
    for path in folder.iterdir():
        path.unlink()


def _drop_logs(folder: Path, random: Random) -> None:
    for path in damagemarks.logs(folder):
        path.unlink()


def _cut_log(folder: Path, random: Random) -> None:
    log = damagemarks.logs(folder)[-1]
    os.truncate(log, 0)


def _flip_log(folder: Path, random: Random) -> None:
    _flip(damagemarks.logs(folder)[-1], random, 50)


def _flip_end(folder: Path, random: Random) -> None:
    """A bit in the last record, which had been flushed."""
    log = damagemarks.logs(folder)[-1]
    _flip_at(log, len(log.read_bytes().rstrip(b"\0")) - random.randrange(2, 12))


def _cut(path: Path, random: Random) -> None:
    os.truncate(path, random.randrange(path.stat().st_size))


def _zero(path: Path, random: Random) -> None:
    _page(path, random, bytes)


def _junk(path: Path, random: Random) -> None:
    _page(path, random, random.randbytes)


def _root_page(path: Path, random: Random) -> None:
    size = int.from_bytes(path.read_bytes()[20:24], "little")
    _flip_at(path, size + 30)


def _flip_at(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(data)


def _regions(root: Path, random: Random) -> dict[str, list[str]]:
    for environment in ENVIRONMENTS:
        for path in (root / environment).glob("__db.*"):
            path.write_bytes(random.randbytes(8192))
    return {}


TABLES = [f"{INDEX}/{name}.db" for name in (
    "index", "state", "quota", "messages", "cache", "seen", "vanished", "purge")] + [
    f"{LIST}/{name}.db" for name in ("mailboxes", "names", "users", "rights", "subscriptions", "annotations")]

WAYS: dict[str, Way] = {
    **{f"{table} is deleted": _table(table, lambda path, random: path.unlink()) for table in TABLES},
    **{f"{table} is cut off": _table(table, _cut) for table in TABLES[:4]},
    **{f"a page of {table} is zeros": _table(table, _zero) for table in (*TABLES[:4], TABLES[8])},
    **{f"a page of {table} is junk": _table(table, _junk) for table in (*TABLES[:4], TABLES[8])},
    **{f"a bit of {table} is flipped": _table(table, _root_page) for table in (*TABLES[:5], TABLES[8], TABLES[10])},
    "the list's folder is gone": _each([LIST], lambda path, random: shutil.rmtree(path)),
    "the partition's folder is gone": _each([INDEX], lambda path, random: shutil.rmtree(path)),
    "both folders are gone": _each(ENVIRONMENTS, lambda path, random: shutil.rmtree(path)),
    "both folders are empty": _each(ENVIRONMENTS, _empty),
    "the logs are gone": _each(ENVIRONMENTS, _drop_logs),
    "the partition's logs are gone": _each([INDEX], _drop_logs),
    "the newest log is cut off": _each([INDEX], _cut_log),
    "bits of the newest log are flipped": _each([INDEX], _flip_log),
    "a bit at the end of the log is flipped": _each([INDEX], _flip_end),
    "the regions are another's": _regions,
}


def _no_mode(folder: Path, random: Random) -> None:
    for path in (*folder.iterdir(), folder):
        path.chmod(random.choice((0, 0o400, 0o200)))


def _foreign(folder: Path, random: Random) -> None:
    for path in (folder, *folder.iterdir()):
        os.chown(path, 12345, 12345)


OWNERS: dict[str, Way] = {
    "the modes of the list's files are wrong": _each([LIST], _no_mode),
    "the modes of the partition's files are wrong": _each([INDEX], _no_mode),
    "the list's files are another's": _each([LIST], _foreign),
    "the partition's files are another's": _each([INDEX], _foreign),
}


# The user area, beside databases that are sound

def _portable(harm: Callable[[Path, Random], None]) -> Way:
    def way(root: Path, random: Random) -> dict[str, list[str]]:
        there = sorted((root / "partitions/primary/users").rglob("store.idx"))
        paths = random.sample(there, min(3, len(there)))
        for path in paths:
            harm(path, random)
        return {CHECKED: [str(path) for path in paths]}

    return way


PORTABLE: dict[str, Way] = {
    "bits of store.idx are flipped": _portable(lambda path, random: _flip(path, random, 3)),
    "store.idx is cut off": _portable(_cut),
    "store.idx is gone": _portable(lambda path, random: path.unlink()),
}


# Large stores: two partitions, and message files that are harmed

_ALL = (*ENVIRONMENTS, f"partitions/{SECOND}/index")

LARGE: dict[str, Way] = {
    **{name: way for name, way in WAYS.items() if "both folders" not in name},
    **OWNERS, **PORTABLE,
    "the second partition's folder is gone": _each(_ALL[2:], lambda path, random: shutil.rmtree(path)),
    "the second partition's folder is empty": _each(_ALL[2:], _empty),
    "all folders are gone": _each(_ALL, lambda path, random: shutil.rmtree(path)),
    "all folders are empty": _each(_ALL, _empty),
    "a bit of partitions/second/index/index.db is flipped": _table("partitions/second/index/index.db", _root_page),
}


Spoiling = Callable[[Path, Random, list[str]], dict[str, list[str]]]


def _spoil(harm: Callable[[Path, Random], None], folders: Iterable[str] = ()) -> Spoiling:
    """Harms these message files, and takes folders away besides."""
    def way(root: Path, random: Random, digests: list[str]) -> dict[str, list[str]]:
        for digest in digests:
            for path in root.glob(f"partitions/*/messages/{digest[0]}/{digest[1:3]}/{digest}"):
                harm(path, random)
        for folder in folders:
            shutil.rmtree(root / folder)
        return {CHECKED: digests, **{folder: [] for folder in folders}}

    return way


SPOILING: dict[str, Spoiling] = {
    "bits of message files are flipped": _spoil(lambda path, random: _flip(path, random, 2)),
    "message files are cut off": _spoil(_cut),
    "message files are gone": _spoil(lambda path, random: path.unlink()),
    "message files are cut off, and the partition's folder is gone": _spoil(_cut, [INDEX]),
    "message files are gone, and all folders are gone": _spoil(lambda path, random: path.unlink(), _ALL),
}
