"""Making the plan of a rebuild (`plan`): every message file is read once, and what is left of every `store.idx`.

Nothing of the store is changed, so that it may be in use. The work is done in this process (`localplan`) or by Spark
(`sparkplan`), by the same functions (`plantasks`). A table that is complete stays when the work is cut off, and is not
made again.
"""

import json
import time
from pathlib import Path
from typing import Protocol

from attrs import evolve, frozen

from mboxlist import privatefiles
from store.errors import Problem, StoreError
from store.partition.marks import read_epoch
from tools.spark.rebuild.plan import MANIFEST, BadPlan, Figures, Manifest, Plan
from tools.spark.source import reading

BEGUN = "begun.json"


@frozen
class Scope:
    """What a plan is made of: the store's folder, the names of the partitions, and when it was begun (Unix time)."""

    root: str
    partitions: tuple[str, ...]
    begun: float

    def folder(self, partition: str) -> str:
        """That of a partition."""
        return f"{self.root}/partitions/{partition}"

    def tasks(self, table: str) -> list[reading.Task]:
        """What is to be read of a table of the data source."""
        return reading.tasks([self.root], table, reading.Wanted(partitions=frozenset(self.partitions)))


class Engine(Protocol):
    """What does the work."""

    @property
    def name(self) -> str:
        """Which one it is."""

    def fill(self, plan: Plan, scope: Scope) -> tuple[dict[str, Figures], int]:
        """Write all tables of the plan; what there is of each partition, and how many findings."""


def make_plan(root: Path, folder: Path, engine: Engine, *, partition: str | None = None) -> Manifest:
    """Make the plan of the store in `root`, or of one partition of it, in an empty folder, or in one in which this was
    begun before.

    Raises StoreError NO_STORE, BadPlan when the folder has something else, OSError.
    """
    root, plan = root.absolute(), Plan(folder.absolute())
    names = [name for name, path in reading.partitions(str(root)) if partition in (None, name)
             and (Path(path) / "messages").is_dir()] if (root / "partitions").is_dir() else []
    if not names:
        raise StoreError(Problem.NO_STORE, f"There are no messages in {root}")
    begun = _begin(plan, root, names)
    epochs = {name: read_epoch(root / "partitions" / name) for name in names}
    figures, findings = engine.fill(plan, Scope(str(root), tuple(names), begun))
    manifest = Manifest(str(root), begun, {name: evolve(figures[name], epoch=epoch) for name, epoch in epochs.items()},
                        engine.name, findings)
    plan.write_manifest(manifest)
    return manifest


def _begin(plan: Plan, root: Path, names: list[str]) -> float:
    """When the plan was begun. Raises BadPlan, OSError."""
    privatefiles.make_folder(plan.folder, parents=True, exist_ok=True)
    path, ours = plan.folder / BEGUN, {"root": str(root), "partitions": names}
    if (plan.folder / MANIFEST).exists():
        raise BadPlan(f"{plan.folder} has a plan already")
    try:
        found = json.loads(privatefiles.read(path))
        begun = float(found.pop("begun"))
        if found != ours:
            raise BadPlan(f"{plan.folder} has the beginning of another plan")
    except FileNotFoundError:
        if any(plan.folder.iterdir()):
            raise BadPlan(f"{plan.folder} is not empty, and has no plan") from None
        begun = time.time()
        privatefiles.write(path, json.dumps(ours | {"begun": begun}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPlan(f"{path} cannot be read: {error}") from None
    return begun
