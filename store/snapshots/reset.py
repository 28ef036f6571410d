"""A snapshot put back: the databases of the whole store become those of an earlier moment, or those of now that were
lost.

Nobody else is in the store meanwhile. The new databases are made beside the present ones, as `index.restored`; only
when all are whole the present ones are set aside, to `set-aside/<time>/` in the store and in each partition, and the
new ones get their place. The list of mailboxes goes first and comes last: a store without it cannot be opened, so what
is cut off is found by the next `restore`, which `finish`es it. Nothing is deleted.

What has been shown must never come to mean something else. So the epochs, mailbox ids and arrival serials go on behind
those of the databases that are set aside, and so do the UIDs and MODSEQs of every mailbox; on top of that each mailbox
skips ahead at the first open, as after every unclean end. What those databases no longer tell (they cannot be read) the
`store.idx` tell, which are a minute old at most.
"""

import contextlib
import itertools
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import define, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.btree import Table, Txn, salvage
from mboxlist.engine.disk import replace_file, sync_file, sync_folder
from mboxlist.engine.hotcopy import Logs, log_number
from mboxlist.engine.kv import Env
from mboxlist.engine.logfiles import KEPT_LOG
from mboxlist.engine.transact import Failure, transact
from mboxlist.entry import MailboxId
from mboxlist.setaside import ASIDE
from mboxlist.table import LAST_IDENTITY, MailboxList
from store.errors import Problem, StoreError, disk_problem
from store.events import receivers
from store.partition.filejournal import is_journal
from store.partition.marks import RESTORING, read_epoch, require_no_standby
from store.partition.messagereading import digest_in
from store.partition.processes import ProcessRegistry
from store.partition.serials import META, META_KEY, SERIALS
from store.settings import Settings
from store.snapshots import taking
from store.snapshots.taking import LIST, Progress, Snapshot
from store.tables.state import MailboxState, state_key
from store.userarea import idxfile, idxreading
from store.userarea.paths import owner_of

log = logging.getLogger(__name__)

NEW = ".restored"
MARK = ""               # in the note of what is to be moved where: not moved, but made
CACHE = 64 << 20


@frozen
class Restored:
    """What was done, or would be: which snapshot; how far the log was followed, by environment; where the databases of
    before are; and message files that only those knew, also set aside, by partition."""

    snapshot: Snapshot
    logs: dict[str, Logs]
    aside: str
    files: dict[str, int] = field(factory=dict)


def choose(root: Path, settings: Settings, *, name: str | None = None, until: float | None = None) -> Snapshot:
    """The snapshot of that name; or the newest that is whole, and not newer than the Unix time `until`.

    Raises StoreError UNAVAILABLE.
    """
    folder = taking.folder(root, settings)
    found = taking.listed(folder, every=name is not None)
    if name is not None:
        found = [each for each in found if each.name == name]
        if not found:
            why = taking.unreadable(folder).get(name)
            raise StoreError(Problem.UNAVAILABLE, f"The snapshot {name} cannot be read: {why}" if why else
                             f"There is no snapshot {name} in {folder}")
    if until is not None:
        found = [each for each in found if each.manifest.moment <= until]
    for each in found:
        wrong = taking.altered(each)
        if not wrong:
            return each
        log.error("the snapshot %s is damaged: %s", each.name, "; ".join(wrong))
        if name is not None:
            raise StoreError(Problem.UNAVAILABLE, f"The snapshot {name} is damaged: {wrong[0]}")
    raise StoreError(Problem.UNAVAILABLE, f"There is no {'older ' if until is not None else ''}snapshot in {folder}")


def restore(root: Path, settings: Settings, snapshot: Snapshot, *, exact: bool = False, until: int | None = None,
            dry_run: bool = False, progress: Progress = lambda what, done, total: None) -> Restored:
    """Make the store in `root` what it was: with all that the logs have, or up to the Unix time `until`, or `exact`ly
    when the snapshot was made. Recovered by the next who opens it.

    Raises StoreError STORE_IN_USE, UNAVAILABLE, DISK_FULL.
    """
    if until is not None and until < snapshot.manifest.moment:
        raise StoreError(Problem.UNAVAILABLE, f"The snapshot {snapshot.name} is newer than that")
    try:
        with nobody_else(root):
            finish(root)
            work = _Restoring(root, settings, snapshot, exact, until, progress)
            try:
                work.prepare()
                if not dry_run:
                    work.put_in_place()
            finally:
                work.clear()
            return Restored(snapshot, work.logs, work.aside, work.files)
    except OSError as error:
        raise disk_problem(error) from error
    except Failure as error:
        raise StoreError(Problem.UNAVAILABLE, f"The snapshot {snapshot.name} cannot be put back: {error}") from error


@contextlib.contextmanager
def nobody_else(root: Path) -> Iterator[None]:
    """Nobody is in the store, or comes in. Raises StoreError STORE_IN_USE, UNAVAILABLE."""
    if not (root / "partitions").is_dir():
        raise StoreError(Problem.NO_STORE, f"There is no store in {root}")
    require_no_standby(root)
    process_registry = ProcessRegistry(root / "run", "onecopy snapshot restore")
    try:
        if not process_registry.alone:
            raise StoreError(Problem.STORE_IN_USE, "Other processes are in the store: stop the server first")
        yield
    finally:
        process_registry.leave()


def finish(root: Path) -> bool:
    """Finish what was cut off when it was decided already; whether there was anything. For who is alone in it."""
    note = root / RESTORING
    if not note.exists():
        return False
    for source, target in json.loads(privatefiles.read(note)):
        if source == MARK:
            _mark(Path(target))
        elif Path(source).exists() and not Path(target).exists():
            privatefiles.make_folder(Path(target).parent, parents=True, exist_ok=True)
            Path(source).rename(target)
            sync_folder(Path(target).parent)
            sync_folder(Path(source).parent)
    note.unlink()
    sync_folder(root)
    return True


def _mark(path: Path) -> None:
    """A snapshot that somebody has removed since needs none."""
    if path.parent.is_dir():
        privatefiles.touch(path)
        sync_folder(path.parent)


def undo(root: Path) -> bool:
    """Remove the new databases of a restore that was cut off before it was decided; whether there were any. For who is
    alone in the store. Raises OSError."""
    found = [path for pattern in (LIST + NEW, "partitions/*/index" + NEW) for path in root.glob(pattern)]
    for path in found:
        shutil.rmtree(path)
    return bool(found)


@define
class _Before:
    """What the present databases of a partition tell: the figures of mailboxes by id, the epoch, the first serial that
    was not given out.

    A mailbox that was undeleted has another UIDVALIDITY than in the snapshot, and its UIDs and MODSEQs have gone on
    under both; one that was moved has gone on in another partition. So figures count whatever UIDVALIDITY they were
    written with, and of all partitions.
    """

    figures: dict[int, tuple[int, int]]         # UIDNEXT, HIGHESTMODSEQ; the one dictionary of all partitions
    epoch: int = 1
    serial: int = 1

    @classmethod
    def read(cls, folder: Path, recorded: int, figures: dict[int, tuple[int, int]]) -> "_Before":
        """Of the partition in that folder, into `figures`, too; `recorded` is the epoch of the snapshot."""
        before = cls(figures, epoch=max(recorded, read_epoch(folder)))
        try:
            rows = list(salvage(folder / "index" / "state.db"))
        except Failure:
            rows = []
        for key, data in rows:
            with contextlib.suppress(Exception):        # damaged: what cannot be read tells nothing
                if key == META_KEY:
                    epoch, serial, _ = META.unpack(data)
                    before.epoch, before.serial = max(before.epoch, epoch), serial
                elif len(key) == 4:
                    state = MailboxState.from_bytes(data, before.epoch)
                    before._note(int.from_bytes(key, "big"), state.uidnext, state.highestmodseq)
        if not rows:
            before._read_files(folder)
        return before

    def _read_files(self, folder: Path) -> None:
        for path in (folder / "users").rglob(idxfile.NAME):
            with contextlib.suppress(StoreError):
                head = idxreading.read_head(path)
                self._note(head.id, head.uidnext, head.highestmodseq)

    def _note(self, mailbox: int, uidnext: int, modseq: int) -> None:
        known = self.figures.get(mailbox, (0, 0))
        self.figures[mailbox] = max(uidnext, known[0]), max(modseq, known[1])


@define
class _Restoring:
    """See `restore`."""

    root: Path
    settings: Settings
    snapshot: Snapshot
    exact: bool
    until: int | None
    progress: Progress
    logs: dict[str, Logs] = field(factory=dict)
    files: dict[str, int] = field(factory=dict)
    _last: dict[str, int] = field(factory=dict)                 # the last log file of what is put back
    aside: str = ""         # where the databases of before go, below the store and each partition

    @property
    def names(self) -> Sequence[str]:
        """The environments, the list last."""
        return sorted(self.snapshot.manifest.environments, key=lambda name: name == LIST)

    def _new(self, name: str) -> Path:
        place = self.root / name
        return place.with_name(place.name + NEW)

    def prepare(self) -> None:
        """Make the new databases beside the others."""
        for name in self.names:
            if name != LIST and not (self.root / name).parent.is_dir():
                raise StoreError(Problem.UNAVAILABLE, f"{(self.root / name).parent} is not there: is its volume?")
        self.clear()
        self.aside = self._free_name()
        before = self._read_before()
        done = 0
        for name in self.names:
            self.progress(name, done, self.snapshot.size)
            done += self.snapshot.manifest.environments[name].size
            new = self._new(name)
            privatefiles.make_folder(new)
            logs = [] if self.exact else [self.root / name]
            if not self.exact and self.settings.log_archive is not None:
                logs.append(self.settings.log_archive / name)
            self.logs[name] = taking.put_back(self.snapshot, name, new, logs, until=self.until)
            self._last[name] = max(log_number(path.name) for path in new.iterdir())
            if name == LIST:
                self._skip_in_list(new)
            else:
                self._skip_in_partition(new, (self.root / name).parent, name, before[name])

    def _read_before(self) -> dict[str, _Before]:
        """By the partition's environment; also of partitions that are newer than the snapshot."""
        figures: dict[int, tuple[int, int]] = {}
        recorded = {name: part.epoch for name, part in self.snapshot.manifest.environments.items()}
        found = {}
        for folder in (self.root / "partitions").glob("[!.]*"):
            name = f"partitions/{folder.name}/index"
            found[name] = _Before.read(folder, recorded.get(name, 0), figures)
        return found

    def _free_name(self) -> str:
        """One that no earlier restore has used anywhere."""
        places = {self.root, *((self.root / name).parent for name in self.names)}
        if self.settings.log_archive is not None:
            places |= {self.settings.log_archive / name for name in self.names}
        for seconds in itertools.count(int(time.time())):
            name = f"{ASIDE}/{time.strftime(taking.NAME, time.gmtime(seconds))}"
            if not any((place / name).exists() for place in places):
                return name
        raise AssertionError("unreachable")

    def _env(self, folder: Path) -> Env:
        return Env(folder, cache=CACHE, locks=20_000, recover=True, broken=lambda: None)

    def _skip_in_partition(self, new: Path, folder: Path, name: str, before: _Before) -> None:
        """Neither an epoch, nor a serial, nor a UID or MODSEQ comes again."""
        env = self._env(new)
        try:
            states = env.table("state.db", page=4096)
            epoch, serial, version = META.unpack(states.get(META_KEY) or b"")
            known = max(epoch, before.epoch)
            first = max(serial, before.serial) + SERIALS
            changed = [(META_KEY, META.pack(known, first, version))]
            for key, data in states.scan(b"\x00\x00\x00\x01"):
                state = MailboxState.from_bytes(data, known)
                mailbox = int.from_bytes(key, "big")
                if mailbox in before.figures:           # one more: or its store.idx would pass for one of this mailbox
                    uidnext, modseq = before.figures[mailbox]
                    highest = max(modseq, state.highestmodseq) + 1
                    changed.append((key, evolve(state, uidnext=max(uidnext, state.uidnext), highestmodseq=highest,
                                                changed=highest).to_bytes()))
            for at in range(0, len(changed), 1000):
                transact(env, lambda txn, some=changed[at:at + 1000]: _put(states, some, txn))   # type: ignore[misc]
            env.flush()
            if self.exact or self.until is not None:
                self._set_files_aside(env, states, folder)
            env.checkpoint()
        finally:
            env.close()
        _forget_memory(new)
        privatefiles.touch(new / "unclean")
        env_keep(new, self.snapshot.manifest.environments[name].first_log)

    def _set_files_aside(self, env: Env, states: Table, folder: Path) -> None:
        """Message files that came later would be swept, or be found as unknown, and what later mailboxes left in the
        user area would be brought back: they are noted, to be set aside."""
        known = env.table("messages.db")
        later = [Path(entry.path) for first in os.scandir(folder / "messages") for second in os.scandir(first.path)
                 for entry in os.scandir(second.path) if known.get(digest_in(entry.name)) is None]
        self.files[folder.name] = len(later)
        later += [path for path in (folder / "users").rglob(idxfile.NAME)
                  if (mailbox := owner_of(path)) is not None and states.get(state_key(mailbox)) is None]
        privatefiles.write(folder / f"index{NEW}" / "later", "".join(f"{path.relative_to(folder)}\n" for path in later))

    def _skip_in_list(self, new: Path) -> None:
        mailbox, validity = 0, 0
        with contextlib.suppress(Failure, ValueError):
            for key, data in salvage(self.root / LIST / "mailboxes.db"):
                if key == LAST_IDENTITY[0]:
                    mailbox, validity = LAST_IDENTITY[1].unpack(data)
                    break
        mailboxes = MailboxList(new, cache=CACHE, recover=True)
        try:
            last = mailboxes.last_identity()
            if mailbox > last[0] or validity > last[1]:
                transact(mailboxes.env, lambda txn: mailboxes.skip_identities(
                    MailboxId(max(mailbox, last[0])), max(validity, last[1]), txn))
                mailboxes.env.flush()
            mailboxes.env.checkpoint()
        finally:
            mailboxes.close()
        _forget_memory(new)
        env_keep(new, self.snapshot.manifest.environments[LIST].first_log)

    def put_in_place(self) -> None:
        """From the note on there is no way back: what is cut off then is finished by the next who restores."""
        moves = [(self.root / LIST, self.root / self.aside / LIST)]
        marks = self._superseded() if self.exact or self.until is not None else []
        for name in self.names:
            place = self.root / name
            if name != LIST:
                moves.append((place, place.parent / self.aside / "index"))
                moves += self._later(place.parent)
            if self.settings.log_archive is not None:
                moves += _of_another_life(self.settings.log_archive / name, self._last[name], self.aside)
            moves.append((self._new(name), place))
        text = json.dumps([*((MARK, str(path.absolute())) for path in marks),
                           *((str(source.absolute()), str(target.absolute())) for source, target in moves)])
        receivers.note_missed(self.root, "a snapshot was restored")
        replace_file(self.root / RESTORING, text.encode())
        finish(self.root)
        log.warning("the snapshot %s has been put back; what was there before is in %s", self.snapshot.name, self.aside)

    def _later(self, folder: Path) -> list[tuple[Path, Path]]:
        note = folder / f"index{NEW}" / "later"
        if not note.exists():
            return []
        aside = folder / self.aside
        staging = aside / "staging"
        privatefiles.make_folder(staging, parents=True, exist_ok=True)
        for path in (folder / "staging").iterdir():     # the first open sweeps what it does not know
            with contextlib.suppress(FileExistsError):
                if not is_journal(path.name):
                    os.link(path, staging / path.name)
        paths = privatefiles.read_text(note).splitlines()
        note.unlink()
        return [(folder / path, aside / path) for path in paths]

    def _superseded(self) -> list[Path]:
        """The marks of newer snapshots: these are of what is set aside, and no log of what comes now follows them. They
        are made after the decision: one that is not put back after all has superseded nothing."""
        return [each.path / taking.SUPERSEDED for each in taking.listed(taking.folder(self.root, self.settings))
                if each.time > self.snapshot.time]

    def clear(self) -> None:
        """Remove new databases that did not get their place."""
        if not (self.root / RESTORING).exists():
            for name in self.names:
                shutil.rmtree(self._new(name), ignore_errors=True)


def _put(states: Table, some: Sequence[tuple[bytes, bytes]], txn: Txn) -> None:
    for key, data in some:
        states.put(key, data, txn)


def env_keep(folder: Path, first: int) -> None:
    """As `LogFiles.keep`, of one that is not open."""
    privatefiles.write(folder / KEPT_LOG, f"{first}\n")


def _forget_memory(folder: Path) -> None:
    """The shared memory goes: the next who opens it makes its own. All is on disk then."""
    for region in folder.glob("__db.*"):
        region.unlink()
    for path in folder.iterdir():
        sync_file(path)
    sync_folder(folder)


def _of_another_life(archive: Path, last: int, aside: str) -> list[tuple[Path, Path]]:
    """Archived logs from number `last` on do not belong to what comes now, which gives its logs the same names."""
    found = sorted(archive.glob("log.*")) if archive.is_dir() else []
    return [(path, archive / aside / path.name) for path in found if log_number(path.name) >= last]
