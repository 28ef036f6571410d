"""A standby becomes a store that serves: its databases are recovered up to the state that it has whole, and from then
on it is a store after an unclean end, which any start opens.

What the one that it followed may have shown since must never come to mean something else. So each partition counts
several unclean ends at once, for which every mailbox skips UIDs and MODSEQs (`store/tables/state.py`), and arrival
serials, ids of mailboxes and UIDVALIDITYs go on far ahead, too. The standbys of one machine have places, and the later
the place, the farther one goes ahead: so what two of them give out that were both promoted is never the same. A standby
that was long behind goes farther ahead, in steps that are longer than all places together (`skipped`).

The other machine may still run: nobody here can know. Whoever promotes has made sure that it does not, or that nobody
reaches it.
"""

import contextlib
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine import hotcopy
from mboxlist.engine.btree import Table
from mboxlist.engine.damagemarks import log_files
from mboxlist.engine.disk import replace_file, sync_file, sync_folder
from mboxlist.engine.hotcopy import log_number
from mboxlist.engine.kv import Env
from mboxlist.engine.logfiles import LogFiles
from mboxlist.engine.transact import Failure, transact
from mboxlist.entry import MailboxId
from mboxlist.setaside import ASIDE
from mboxlist.table import MailboxList
from store.errors import Problem, StoreError, disk_problem
from store.filelock import in_turn
from store.operations import clockrecord
from store.partition.marks import ABSENT, STANDBY, read_epoch, write_epoch
from store.partition.messagefiles import SPARE, MessageFiles, sync_file_system
from store.partition.messagereading import digest_in
from store.partition.serials import META, META_KEY, SERIALS
from store.partitions import volumes
from store.snapshots.taking import LIST, NAME
from store.standby import applying, longfollowing, standbyjournal, standbystate, succession, switching
from store.standby.cascade import cascade, followersrecord, keptlogs
from store.standby.copyformat import is_small, small_folders
from store.standby.source import instep
from store.standby.sourcepeer import PLACES
from store.standby.standbystate import FOLLOWING, RECOVERED, RETURNING, SWITCHING, TABLES_LOCK, StandbyState, host_of
from store.standby.succession import Other, Succession, with_parting
from store.tables.duplicates import Duplicates
from store.tables.state import UID_SKIP

log = logging.getLogger(__name__)

UNCLEAN_ENDS = 8            # that are counted: 524,288 UIDs of each mailbox
AT_ONCE = 300.0             # seconds behind for which that is enough: 1,700 messages a second in one mailbox. After it
STEP = PLACES + 3           # this many times as much more: 33,554,432 UIDs, for each
STEP_SECONDS = 8 * 3600.0   # begun, 1,100 a second,
STEPS = 8                   # but not so often that UIDs could run out (RFC 9051 §2.3.1.1: 32 bits)
BLOCKS = 1024               # of arrival serials that are left out
IDENTITIES = 1_000_000      # ids of mailboxes, and UIDVALIDITYs, that are left out
CACHE = 64 << 20
PROMOTED = "promoted"       # the folder of these tables, as they were at the promotion:
LIST_TABLES = "annotations.db", "mailboxes.db", "names.db", "rights.db"
GIVEN_UP = "given-up"       # and which partitions have been given up since, a line for each
PROMOTED_STATES, PROMOTED_RECORDS = "state.db", "index.db"


def promote(root: Path) -> StandbyState:
    """Make it a store; which state it has. What was cut off is done again. For who alone is at it. Raises StoreError
    UNAVAILABLE, NO_STORE, DISK_FULL."""
    def promoted(state: StandbyState, before: Succession) -> Succession:
        lineage = state.lineage.promoted()
        return evolve(before, number=lineage.number, line=lineage.line,
                      partings=with_parting(state.partings, lineage, state.parting(root)))

    state = _end(root, promoted)
    log.warning("this standby of %s is a store of its own now", state.host)
    return state


def give_way(root: Path, host: str, other: Other) -> StandbyState:
    """Make it a store that does not serve, since that machine has been promoted in the place of the one that was
    followed here: as that one is when it comes back. See `promote`."""
    state = _end(root, lambda state, before: succession.noted(before, host, other))
    log.warning("this standby of %s is a store that %s has taken the place of", state.host, host)
    return state


def _end(root: Path, end: Callable[[StandbyState, Succession], Succession]) -> StandbyState:
    """`end`: what is on record of the promotion."""
    state = standbystate.read(root)
    if state is None:
        raise StoreError(Problem.NO_STORE, f"There is no standby in {root}")
    require_whole(state)
    try:
        cascade.end(root)
        instep.forget(root)
        state = switching.finish(root, state)
        if state.phase == FOLLOWING:
            with in_turn(root / TABLES_LOCK):
                state = _recover(root, state)
        _remove_begun(root, state)
        names, behind, followers = list(state.ends), _behind(root, state), followersrecord.read(root, state).places
        times = skipped(state.place, behind)
        if state.phase == RETURNING:        # the store that was here; it passes by what the one that it copied gave out
            switching.tidy(root)
            shutil.rmtree(root / PROMOTED, ignore_errors=True)      # what was kept there is of another promotion
            names = [LIST, *sorted(str(path.relative_to(root)) for path in root.glob("partitions/*/index"))]
            times += 1
        for name in names:
            _go_ahead(root, name, times, state)
            if followers and state.phase != RETURNING:
                _keep_logs(root / name)
        cascade.end_logs(root)
        end(state, Succession(state.succession, state.identity, dict(followers),
                              before=host_of(state.address), moment=state.moment, line=state.line, skipped=times,
                              common=state.line, partings=state.partings)).save(root)
        if times >= STEP:
            log.warning("this standby was %.0f s behind: each mailbox skips %d UIDs", behind,
                        times * UNCLEAN_ENDS * UID_SKIP)
        clockrecord.know(root, state.moment)
        (root / STANDBY).unlink()
        followersrecord.forget(root)
        sync_folder(root)
    except OSError as error:
        raise disk_problem(error) from error
    except Failure as error:
        raise StoreError(Problem.UNAVAILABLE, f"The databases of this standby cannot be recovered: {error}") from error
    return state


def skipped(place: int, behind: float) -> int:
    """How many times UNCLEAN_ENDS the standby in that place skips that was so many seconds behind."""
    steps = 0 if behind <= AT_ONCE else min(STEPS, math.ceil(behind / STEP_SECONDS))
    return place + 1 + steps * STEP


def _behind(root: Path, state: StandbyState) -> float:
    """The seconds for which the other machine may have gone on without this one, at most. Who comes back (RETURNING)
    passes by the epochs of the other one instead."""
    if state.phase == RETURNING:
        return 0.0
    found = longfollowing.behind(longfollowing.seen(root))
    return time.time() - state.moment if found is None else found


def require_whole(state: StandbyState) -> None:
    """Raises StoreError UNAVAILABLE when not all of the store is there."""
    if state.phase not in (FOLLOWING, SWITCHING, RECOVERED, RETURNING):
        raise StoreError(Problem.UNAVAILABLE, "This standby has not got to its beginning: not all of the store is here")


def _recover(root: Path, state: StandbyState) -> StandbyState:
    state = standbyjournal.replay(root, state)
    applying.cut(root, state)
    switching.set_others_aside(root, state)
    switching.tidy(root)
    for name in state.ends:
        hotcopy.recover(root / name)
    _keep_common_place(root, state)
    found = evolve(state, phase=RECOVERED)     # from here on the logs are its own, and must not be cut
    found.save(root)
    return found


def note_given_up(root: Path, name: str) -> None:
    """Put on record, on disk, that a partition was absent and nobody waits for it any more. Raises OSError."""
    privatefiles.make_folder(root / PROMOTED, exist_ok=True)
    replace_file(root / PROMOTED / GIVEN_UP, "".join(f"{each}\n" for each in sorted({*given_up(root), name})).encode())


def given_up(root: Path) -> list[str]:
    """The partitions that were given up since the promotion: another machine may have them."""
    try:
        return privatefiles.read_text(root / PROMOTED / GIVEN_UP).split()
    except FileNotFoundError:
        return []


def _remove_begun(root: Path, state: StandbyState) -> None:
    """Remove what had not come whole of small files when the process that followed ended."""
    for folder in small_folders(state.ends):
        for path in (root / folder).glob(f"*{SPARE}"):
            if is_small(folder, path.name.removesuffix(SPARE)):
                path.unlink()


def _keep_common_place(root: Path, state: StandbyState) -> None:
    """Keep what both machines have had: the other one finds out what only it has when it comes back (`store/rejoin`).
    """
    top = root / PROMOTED
    shutil.rmtree(top, ignore_errors=True)
    for name in state.ends:
        place = top / name
        privatefiles.make_folder(place, parents=True)
        for table in LIST_TABLES if name == LIST else (PROMOTED_STATES, PROMOTED_RECORDS):
            privatefiles.copy(root / name / table, place / table)
            sync_file(place / table)
        sync_folder(place)
    sync_folder(top)


def go_ahead(root: Path, times: int) -> None:
    """Have the mailboxes of all partitions skip so often what a promotion skips, when the store is opened next. Raises
    OSError."""
    for folder in root.glob("partitions/[!.]*"):
        if (epoch := read_epoch(folder)):
            write_epoch(folder, epoch + times * UNCLEAN_ENDS)


def _go_ahead(root: Path, name: str, times: int, state: StandbyState) -> None:
    folder, places = root / name, times % STEP      # nobody makes so many mailboxes that steps would count for these
    if name == LIST:
        mailboxes = MailboxList(folder, cache=CACHE, recover=True)
        try:
            mailbox, validity = mailboxes.last_identity()
            transact(mailboxes.env, lambda txn: mailboxes.skip_identities(
                MailboxId(max(mailbox, state.identities[0]) + places * IDENTITIES),
                max(validity, state.identities[1]) + places * IDENTITIES, txn))
            mailboxes.env.flush()
            mailboxes.env.checkpoint()
            if state.phase != RETURNING:
                _mark_absent(root, state, mailboxes)
        finally:
            mailboxes.close()
    else:
        env = Env(folder, cache=CACHE, locks=20_000, recover=True, broken=lambda: None)
        try:
            states = env.table("state.db", page=4096)
            epoch, serial, version = META.unpack(states.get(META_KEY) or b"")
            transact(env, lambda txn: states.put(META_KEY, META.pack(
                epoch, serial + times * BLOCKS * SERIALS, version), txn))
            if state.phase != RETURNING:
                _note_end(env, state)
            env.flush()
            _set_unknown_aside(folder.parent, env.table("messages.db"))
            env.checkpoint()
        finally:
            env.close()
        theirs = state.epochs.get(folder.parent.name, 0)
        write_epoch(folder.parent, max(epoch, theirs, read_epoch(folder.parent)) + times * UNCLEAN_ENDS)
        privatefiles.touch(folder / "unclean")
    for region in folder.glob("__db.*"):        # the next who opens it makes its own
        region.unlink()
    for path in folder.iterdir():
        sync_file(path)
    sync_folder(folder)


def _note_end(env: Env, state: StandbyState) -> None:
    """A relay that had no answer from the machine that was followed tries again here: what it delivered shortly before
    is recognised by that machine's clock, which may show another day, and however long ago that was."""
    arrivals = Duplicates(env.table("arrivals.db"))
    transact(env, lambda txn: arrivals.note_end(math.ceil(state.moment), txn))


def _keep_logs(folder: Path) -> None:
    """Have the log stay for those that follow, as far back as there is any, until there are two snapshots: none of them
    needs to be there just now. Nobody has the environment open."""
    keptlogs.give_back(folder)
    sync_folder(folder)
    LogFiles(folder, list).keep(log_number(log_files(folder)[0].name))


def _mark_absent(root: Path, state: StandbyState, mailboxes: MailboxList) -> None:
    """Mark partitions that this machine was not asked to protect: their mailboxes are in the list, and only the other
    machine has what is in them. Also one that was added since the standby connected last, if the list names it."""
    others = dict(state.others)
    for entry in (*mailboxes.all(), *(entry for _, entry in mailboxes.deleted.all())):
        if volumes.NAME.fullmatch(entry.partition):
            others.setdefault(entry.partition, host_of(state.address))
    for name in others.keys() - set(switching.partitions_of(state)):
        folder = root / "partitions" / name
        privatefiles.make_folder(folder, exist_ok=True)
        replace_file(folder / ABSENT, f"{others[name]}\n".encode())
        sync_folder(folder.parent)
        log.warning("partition %s was not protected by this standby: it is on %s", name, others[name])


def _set_unknown_aside(folder: Path, known: Table) -> None:
    """Message files of which the databases know nothing: what came for a round that had not ended, or was purged. One
    that had not come whole is removed."""
    for path in MessageFiles(folder).folders():
        for entry in _entries(path):
            if entry.name.endswith(SPARE) and digest_in(entry.name.removesuffix(SPARE)):
                os.unlink(entry.path)
    unknown = [entry.path for path in MessageFiles(folder).folders() for entry in _entries(path)
               if (digest := digest_in(entry.name)) and known.get(digest) is None]
    if unknown:
        place = folder / ASIDE / time.strftime(NAME, time.gmtime())
        privatefiles.make_folder(place, parents=True, exist_ok=True)
        for path in unknown:
            os.rename(path, place / os.path.basename(path))
        sync_file_system(folder)
        log.info("%d message files of which the databases know nothing are in %s", len(unknown), place)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        yield from entries
