"""The state of a standby as a store for reading: its databases as they were at one moment, copied and recovered in a
folder of their own, with links to its message files. The standby goes on to follow.

Whoever opens a store with the file `read-only` refuses every change (`store/readonly`). So IMAP is served from there,
backups are made and Spark counts, beside the process that follows, and on another machine than the one that serves.
Message files stay for as long as the copy is there: what is purged at the other machine is removed here only when no
copy can have it (`purgedfiles`).
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine import hotcopy
from mboxlist.engine.transact import Failure
from store.errors import Problem, StoreError
from store.expiry import rulebook
from store.filelock import exclusive, in_turn
from store.partition import processes
from store.partition.marks import READ_ONLY, STANDBY, SUCCESSION, AsOf
from store.readonly.place import UNFINISHED
from store.standby import applying, purgedfiles, standbyjournal, standbystate
from store.standby.cascade import followersrecord
from store.standby.copyformat import TOP, is_small
from store.standby.reading import readingindexes
from store.standby.standbystate import BEGINNING, FOLLOWING, TABLES_LOCK, StandbyState
from store.standby.switching import partitions_of

ACCESS = "access"
LINKED = ACCESS, "tls", rulebook.FOLDER     # folders of the store,
OF_PARTITION = "messages", "staging"        # and of a partition
SMALL = 1 << 20                             # octets; larger files in the store's folder itself are none of ours
_OWN = STANDBY, SUCCESSION, followersrecord.FILE


def make(root: Path, place: Path, progress: Callable[[str, int, int], None] = lambda what, done, total: None, *,
         indexes: bool = False, as_promoted: bool = False) -> StandbyState:
    """Make it in that folder, in the place of an earlier one; the state that it has. `progress` is called with what is
    done next, and how many of how many steps are done. `indexes`: with the `store.idx` of all mailboxes, which Spark
    reads; `as_promoted`: with all that a promotion would have, also where a message file is not in its place yet. One
    that was killed is made again; of one that cannot be made nothing stays: it may be the disk's last room, which the
    process that follows needs.

    Raises StoreError UNAVAILABLE, NO_STORE, STORE_IN_USE, OSError."""
    _require_ours(root, place)
    known = standbystate.read(root)
    if known is None:
        raise StoreError(Problem.NO_STORE, f"There is no standby in {root}")
    privatefiles.make_folder(root / "run", exist_ok=True)
    with exclusive(_lock_of(root, place), Problem.STORE_IN_USE, f"Another process makes a copy in {place}"):
        _remove(place)
        try:
            return _fill(root, place, known, progress, indexes=indexes, as_promoted=as_promoted)
        except (StoreError, OSError):
            shutil.rmtree(place, ignore_errors=True)
            raise


def _lock_of(root: Path, place: Path) -> Path:
    """The file whose lock whoever makes a copy there holds: not in that folder, which is removed and made again."""
    name = hashlib.blake2b(os.fsencode(place.resolve()), digest_size=8).hexdigest()
    return root / "run" / f"copy-{name}.lock"


def _remove(place: Path) -> None:
    """Remove an earlier one, unless somebody has it open; nobody comes in meanwhile. Raises StoreError STORE_IN_USE,
    OSError."""
    with _door(place / "run"):
        if processes.server(place / "run" / "server.pid"):
            raise StoreError(Problem.STORE_IN_USE, f"{place} is being served: stop that first")
        if readers := processes.look(place / "run")[0]:
            raise StoreError(Problem.STORE_IN_USE, f"{place} is being read by {', '.join(map(str, readers))}")
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _door(run: Path) -> Iterator[None]:
    """Nobody comes into the store with that `run` folder, if it has been opened ever. Raises OSError."""
    with in_turn(run / processes.DOOR) if (run / processes.DOOR).exists() else contextlib.nullcontext():
        yield


def _fill(root: Path, place: Path, known: StandbyState, progress: Callable[[str, int, int], None], *, indexes: bool,
          as_promoted: bool) -> StandbyState:
    privatefiles.make_folder(place, parents=True)
    privatefiles.write(place / UNFINISHED, str(root))
    purgedfiles.note_copy(root, place)              # before it has a state: no file goes that this may have
    evolve(known, phase=BEGINNING).save(place)      # so nobody opens it yet
    with in_turn(root / TABLES_LOCK):           # nobody changes tables meanwhile; logs only grow
        state = standbystate.read(root)
        if state is None or state.phase != FOLLOWING:
            raise StoreError(Problem.UNAVAILABLE, f"This standby is {state.phase if state is not None else 'gone'}: it "
                             "cannot be read just now")
        steps = 2 * len(state.ends)
        for done, (name, end) in enumerate(state.ends.items()):
            progress(f"{name}: copying", done, steps)
            privatefiles.make_folder(place / name, parents=True)
            applying.copy_environment(root / name, place / name, end)
        for quick in standbyjournal.beyond(root, state, in_place=not as_promoted, all_of_it=as_promoted):
            standbyjournal.put_logs(place, quick)
            state = quick.after(state)
    try:
        for done, name in enumerate(state.ends, steps // 2):
            progress(f"{name}: recovery", done, steps)
            hotcopy.recover(place / name)
    except Failure as error:
        raise StoreError(Problem.UNAVAILABLE, f"The databases of this standby cannot be recovered: {error}") from error
    _link(root, place, state)
    AsOf(state.host, state.moment, dict(state.ends)).save(place)
    privatefiles.write(place / READ_ONLY, str(root))
    (place / STANDBY).unlink()
    if indexes:
        readingindexes.write(place, progress)
    (place / UNFINISHED).unlink()
    return state


def _require_ours(root: Path, place: Path) -> None:
    """The folder is empty, or has an earlier one, whole or not. Raises StoreError STORE_IN_USE."""
    if not place.exists() or not any(place.iterdir()):
        return
    for name in (UNFINISHED, READ_ONLY):
        with contextlib.suppress(FileNotFoundError):
            if privatefiles.read_text(place / name) != str(root):
                raise StoreError(Problem.STORE_IN_USE, f"{place} is not empty, and has another store in it")
            return
    raise StoreError(Problem.STORE_IN_USE, f"{place} is not empty, and has no copy for reading in it")


def _link(root: Path, place: Path, state: StandbyState) -> None:
    privatefiles.make_folder(place / "run")
    for name in LINKED:
        if name == ACCESS or (root / name).is_dir():        # second factors that come later count, too
            (place / name).symlink_to((root / name).absolute())
    for name in partitions_of(state):
        partition = place / "partitions" / name
        for part in OF_PARTITION:
            privatefiles.make_folder(root / "partitions" / name / part, exist_ok=True)
            (partition / part).symlink_to((root / "partitions" / name / part).absolute())
        privatefiles.make_folder(partition / "users")
        with contextlib.suppress(FileNotFoundError):
            privatefiles.copy(root / "partitions" / name / rulebook.FILE, partition / rulebook.FILE)
    for path in root.iterdir():
        if path.is_file() and path.name not in _OWN and not is_small(TOP, path.name) and path.stat().st_size <= SMALL:
            privatefiles.copy(path, place / path.name)


