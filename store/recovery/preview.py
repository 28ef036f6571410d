"""What the next start would do, found out in copies; and a mark that has the next start read all databases."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

from mboxlist import privatefiles
from mboxlist.engine import damage, damagemarks, generations
from mboxlist.engine.generations import Marks
from store.filelock import scratch
from store.partition.marks import generations_of_list, generations_of_partition
from store.recovery.environments import LIST, Recovery, allow
from store.settings import Settings
from store.snapshots import taking

REASON = "looked at because somebody has asked for it"


@frozen
class Damage:
    """What is wrong with an environment, "" for nothing; and from what a start would rebuild it."""

    environment: str
    wrong: str
    source: str


def look(root: Path, settings: Settings, progress: Callable[[str, int, int], None]) -> Iterator[Damage]:
    """Recover and read each environment in a copy: nothing is changed."""
    names = _names(root)
    for number, name in enumerate(names):
        progress(name, number, len(names))
        wrong = _wrong(root, name)
        yield Damage(name, wrong, _source(root, name, settings) if wrong else "")


def have_all_read(root: Path) -> None:
    """Have the next start read every environment."""
    for name in _names(root):
        if (root / name).is_dir():
            allow(root / name, [])
            damagemarks.suspect(root / name, REASON)


def _names(root: Path) -> list[str]:
    return [LIST, *(f"partitions/{path.name}/index" for path in sorted((root / "partitions").glob("[A-Za-z0-9]*"))
                    if path.is_dir())]


def _wrong(root: Path, environment: str) -> str:
    folder = root / environment
    recovering = Recovery(root, Settings())
    if not folder.is_dir() or damagemarks.missing(folder) or not damagemarks.tables(folder):
        return recovering.wrong(environment)
    with scratch(root, "recover") as copy:
        for path in (*damagemarks.tables(folder), *damagemarks.logs(folder)):
            privatefiles.copy(path, copy / path.name)
        with contextlib.suppress(FileNotFoundError):
            privatefiles.copy(folder / damagemarks.TABLES, copy / damagemarks.TABLES)
        wrong = damage.look_through(copy)
        if wrong == {}:
            return generations.look(copy, Marks(lambda: _marks(root, environment)), untouched=False)[0]
    if wrong is None:
        return "it cannot be recovered"
    return "; ".join(f"{table or 'log'}: {why}" for table, why in wrong.items())


def _marks(root: Path, environment: str) -> list[Path]:
    return generations_of_list(root) if environment == LIST else generations_of_partition((root / environment).parent)


def _source(root: Path, environment: str, settings: Settings) -> str:
    folder = root / environment
    if folder.is_dir() and damage.has_all_logs(folder):
        return "its own log, from the beginning"
    there = taking.listed(taking.folder(root, settings))
    names = [each.name for each in there if environment in each.manifest.environments]
    tables = "its tables that are whole, and the user area"
    return f"the snapshot {names[0]} and the log since, or else from {tables}" if names else tables
