"""An environment that is damaged is set aside and rebuilt: from its own log, a snapshot, or those of its tables that
are whole. See `environments`."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from attrs import define

from mboxlist import privatefiles
from mboxlist.engine import damage, damagemarks, generations
from mboxlist.engine.damage import Mended, look_through
from store.errors import Problem, StoreError
from store.partition.marks import mark_behind
from store.rebuild.emptying import adopt, aside_name, make_folders
from store.rebuild.outcome import Event
from store.recovery.environments import LIST, Recovery
from store.snapshots import taking
from store.snapshots.taking import Snapshot

__all__ = ["EnvironmentRebuild", "look_through"]

log = logging.getLogger(__name__)

MAIN = frozenset({"index.db", "state.db", "messages.db", "mailboxes.db", "users.db"})     # better older than none
EXPENDABLE = frozenset({"cache.db"})        # comes from message files; nothing of it changes before the store is open
KEPT = 2                    # damaged environments that are kept, of each; all that were older are
OLDER = "is older"          # what is said of an older table
FEWER = 6                   # times that a snapshot is tried with fewer files of the log


@define
class EnvironmentRebuild:
    """Of one environment, whose event it tells the recovery. `older`: all of it is older than what was there last."""

    recovery: Recovery
    environment: str
    older: bool = False

    def run(self, found: str, cut: bool, aside: Path | None, *, deep: bool) -> None:
        """Rebuild it. `aside`: it has been set aside already, and what is in its place is half made. `deep`: see
        `damage.look_through`."""
        folder = self.recovery.root / self.environment
        log.error("%s is damaged (%s): it is rebuilt from what there is", self.environment, found)
        event = self.recovery.events[self.environment] = Event(self.environment, found)
        if aside is None and ".db" not in found and not self.older and folder.is_dir():
            bad = damage.look_through(folder, recover=False)
            event.found = "; ".join([found, *(f"{name}: {why}" for name, why in (bad or {}).items())])
        try:
            if aside is None:
                aside = aside_name(folder, self.recovery.began,
                                   "older" if self.older or OLDER in event.found else "damaged")
                self.recovery.begin(self.environment, aside, event.found, cut=cut, older=self.older)
                damage.set_aside(folder, aside)
            event.aside = str(aside)
            done = self._from_snapshot(aside, cut) or damage.mend(folder, aside, cut=cut, deep=deep,
                                                                  shared=EXPENDABLE, older=self.older)
            poor = done.source == "nothing" or MAIN & done.lost.keys()
            if not done.exact and poor and self._has_snapshot():
                done = self._from_old_snapshot(aside) or damage.mend(folder, aside, cut=cut)
            self._prepare(done.exact)
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, f"{self.environment} is damaged, and cannot be mended: {error}"
                             ) from error
        event.source, event.exact, event.lost, event.logs_lost = done.source, done.exact, done.lost, done.logs_lost
        event.complete = 1000 * (damage.apart(lambda: generations.complete_until(
            folder, damagemarks.known_tables(Path(event.aside)), recovered=self.older), folder) or 0)
        log.warning("%s has been rebuilt from %s%s%s; what was there is in %s", self.environment, done.source,
                    f" without {', '.join(f'{name} ({why})' for name, why in done.lost.items())}" if done.lost else "",
                    "" if done.exact else ", and what is missing or newer from the user area", aside)
        for old in sorted(folder.parent.glob(folder.name + ".damaged-*"))[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _prepare(self, exact: bool) -> None:
        if self.environment == LIST:
            return
        partition = (self.recovery.root / self.environment).parent
        privatefiles.touch(partition / "index" / "unclean")     # UIDs and MODSEQs skip ahead
        mark_behind(partition)
        make_folders(partition)
        if not exact:
            self.recovery.adopted[partition.name] = adopt(partition / "staging", partition / "messages")

    def _from_snapshot(self, aside: Path, cut: bool) -> Mended | None:
        """Made from a snapshot and the whole log since; None when that cannot be had."""
        if self.older:
            return self._from_newer_snapshot(aside)
        if cut or damage.has_all_logs(aside):
            return None
        archive = [self.recovery.settings.log_archive / self.environment] if self.recovery.settings.log_archive else []
        newest = max([damagemarks.newest(aside)[0], *(int(path.name[4:]) for path in damagemarks.logs(aside))],
                     default=0)
        folder = self.recovery.root / self.environment
        for snapshot in taking.listed(taking.folder(self.recovery.root, self.recovery.settings)):
            if self.environment not in snapshot.manifest.environments:
                continue
            damage.bring(aside, folder, [])

            def put_back(snapshot: Snapshot = snapshot) -> int:
                return taking.put_back(snapshot, self.environment, folder, [aside, *archive]).last

            last = damage.apart(put_back, folder)
            if last == newest and _goes_on(aside, folder, newest) and damage.look_through(folder, recover=False) == {}:
                self._forget_marks(folder)
                return Mended(aside, exact=True, source=f"the snapshot {snapshot.name} and the log since")
        damage.bring(aside, folder, [])
        return None

    def _from_newer_snapshot(self, aside: Path) -> Mended | None:
        """Made from a snapshot that is newer than the older environment; None when there is none."""
        folder, known = self.recovery.root / self.environment, damagemarks.known_tables(aside)
        there = generations.of_environment(aside, known)
        for snapshot in taking.listed(taking.folder(self.recovery.root, self.recovery.settings)):
            if self.environment not in snapshot.manifest.environments:
                continue
            damage.bring(aside, folder, [])

            def put_back(snapshot: Snapshot = snapshot) -> int:
                taking.put_back(snapshot, self.environment, folder, [])
                return generations.of_environment(folder, known)

            if (damage.apart(put_back, folder) or 0) > there and damage.look_through(folder, recover=False) == {}:
                self._forget_marks(folder)
                return Mended(aside, logs_lost=True, source=f"the snapshot {snapshot.name}, which is newer")
        damage.bring(aside, folder, [])
        return None

    @staticmethod
    def _forget_marks(folder: Path) -> None:
        for name in (damagemarks.TABLES, damagemarks.NEWEST):
            (folder / name).unlink(missing_ok=True)

    def _has_snapshot(self) -> bool:
        return any(self.environment in snapshot.manifest.environments for snapshot in taking.listed(
            taking.folder(self.recovery.root, self.recovery.settings)))

    def _from_old_snapshot(self, aside: Path) -> Mended | None:
        """Made from the newest snapshot that is whole, with as much of the log as there is."""
        folder = self.recovery.root / self.environment
        for snapshot in taking.listed(taking.folder(self.recovery.root, self.recovery.settings)):
            part = snapshot.manifest.environments.get(self.environment)
            if part is None:
                continue
            last = max((int(path.name[4:]) for path in damagemarks.logs(aside)), default=part.end[0])
            for most in [*range(last, part.end[0], -1)][:FEWER] + [None]:
                damage.bring(aside, folder, [])
                logs = [] if most is None else [aside]

                def put_back(snapshot: Snapshot = snapshot, logs: Sequence[Path] = logs,
                             most: int | None = most) -> int:
                    return taking.put_back(snapshot, self.environment, folder, logs, most=most).last

                if damage.apart(put_back, folder) is not None and damage.look_through(folder, recover=False) == {}:
                    self._forget_marks(folder)
                    return Mended(aside, logs_lost=True, source=f"the snapshot {snapshot.name}"
                                  + (", and the log as far as it goes" if logs else ""))
        return None


def _goes_on(aside: Path, folder: Path, newest: int) -> bool:
    """Whether the log that was put back is all that there was, up to its end."""
    there, octets = damagemarks.newest(aside)
    log, put_back = aside / f"log.{newest:010}", folder / f"log.{newest:010}"
    if not log.is_file() or there == newest and log.stat().st_size < octets:
        return False
    written = privatefiles.read(log).rstrip(b"\0")      # what comes behind that is there for records to come
    with privatefiles.open_file(put_back, "rb") as file:
        return file.read(len(written)) == written
