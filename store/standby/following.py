"""A standby follows: again and again it asks how far the logs are, and has all that is new.

One round brings the store from one moment to a later one: the small files, the octets of all logs, and the message
files that these tell of. All of it is on disk before `standby.json` says so, and until then it counts for nothing. A
message file that is there no more was purged since; then the round goes on to a later moment, when the log has that,
too.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from attrs import Factory, define, evolve, field

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import file_id
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.hotcopy import Position
from mboxlist.engine.logfiles import log_name
from mboxlist.engine.transact import Failure
from store.errors import Problem, StoreError
from store.standby import applying, logrecords, seeding, standbyjournal, switching
from store.standby.copyformat import Quick, is_environment, small_folders
from store.standby.filecopies import FileCopies, copy_small, drop
from store.standby.sourcepeer import Ends, SourcePeer
from store.standby.standbyjournal import Journal
from store.standby.standbystate import FOLLOWING, StandbyState
from store.usermove.messageformat import Message

log = logging.getLogger(__name__)

WAIT = 10.0                 # seconds that one question waits for news
BEGINNING = 1, 0            # of a log
AGAIN = 3                   # times that a round goes on for a message file that has been purged


class Reseed(Exception):
    """What is here does not lead to what is there: the databases are to be copied again. The text says why."""


@define
class Follower:
    """Follows over one connection. `state` is what is on disk here and there; `newest` is later by an answer that came
    `ahead`, which is on disk here only, as far as is known."""

    root: Path
    source: SourcePeer
    state: StandbyState
    came: Callable[[str, bytes], None] = lambda environment, octets: None      # is told what comes of the logs
    shown: Callable[[StandbyState, float, int], None] = lambda state, current, small: None  # hears of what is in place:
    further: Callable[[], Mapping[str, float] | None] = lambda: None    # `Cascade.show`. The standbys of this one
    newest: StandbyState = field(default=Factory(lambda self: self.state, takes_self=True), init=False)
    lag: float = field(default=0.0, init=False)             # seconds that the other side is behind itself
    step: str = field(default="", init=False)               # whether answers wait for us (`instep.Step`)
    _number: int = field(default=0, init=False)             # of what we have, as the other side counts,
    _is_as_told: bool = field(default=False, init=False)    # and whether that is what came with it
    _has_asked: bool = field(default=False, init=False)     # what comes next,
    _asked: float = field(default=0.0, init=False)          # and when; monotonic, as is
    _current: float = field(default=0.0, init=False)        # when what `state` has was all that there was,
    _next_current: float = field(default=0.0, init=False)   # or what came ahead
    _waiting: list[Quick] = field(factory=list, init=False)     # what is in the journal, and not in its place,
    _ahead: tuple[Quick, Message] | None = field(default=None, init=False)      # and must not be there yet
    _journal: Journal = field(init=False)
    _gone: set[Path] = field(factory=set, init=False)       # small files that are no more,
    _dropped: int = field(default=0, init=False)            # and how many rounds have removed some

    @_journal.default
    def _journal_of_root(self) -> Journal:
        return Journal(self.root)

    def begin(self) -> None:
        """Before the first round. Raises Reseed, StoreError, OSError."""
        begun = self.source.begin(self.state.lineage, self.state.only)
        if (begun.host, begun.identity) != (self.state.host, self.state.identity):
            raise StoreError(Problem.UNAVAILABLE, f"{begun.host} has another store than the one that was followed")
        self.state = seeding.require_no_more(self.root, self.state, self.source, begun)
        if (found := begun.state(self.state)) != self.state:
            found.save(self.root)               # a promotion of this one counts further
            self.state = found
        if self.state.phase != FOLLOWING:
            raise Reseed("its beginning was cut off")
        self.state = standbyjournal.replay(self.root, self.state, ahead=False)
        applying.cut(self.root, self.state)
        try:
            sums = self.state.sums(self.root)
        except StoreError as error:
            raise Reseed(str(error)) from error
        self.newest = self.state
        self._compare(self.source.ends(self.state.ends, sums))
        self.source.is_followed()
        self.state = evolve(self.state, small={})       # those that were no more when the last connection ended, too
        self.newest = self.state

    def ask(self, wait: float = WAIT) -> None:
        """Say that all that came is on disk here, and have the next `round` be under way. Raises StoreError."""
        if not self._has_asked:
            self._asked = time.monotonic()
            self.source.ask_next(self.newest, self._number, wait, known=self._is_as_told, further=self.further())
            self._has_asked = True

    def round(self, wait: float = WAIT, *, go_on: bool = False) -> bool:
        """Have what is new, after so many seconds if nothing is; whether anything was. What little came is in a journal
        then. Who is to `go_on` asks again as soon as it is: answers there may wait for that. Raises Reseed, StoreError,
        OSError."""
        self.ask(wait)
        self._put()                     # while the other side is at it
        if self._number:
            self.shown(self.state, self._current, self._dropped)
        if self._journal.is_due():
            self._journal.begin_emptying(self.state, self._last)
        found = self.source.next(self.newest)
        self._has_asked = False
        there, quick, self.step = found.there, found.quick, found.step
        self._compare(there)
        self._be_sure()
        self._is_as_told, self.lag = True, found.lag
        current = self._asked - found.lag
        if there.ends == self.state.ends and there.small == self.state.small:
            self._drop()
            self.state = evolve(self.state, moment=there.moment, first=there.first, tables=there.tables,
                                epochs=there.epochs)
            self.newest = self.state
            self._number, self._current = found.number, current
            return False
        gone = self._small_files(there) if there.small != self.state.small else set()
        if quick is not None and self._large(quick):
            self._tell(quick)
            self._journal.append(found.said)
            self._number = found.number
            self._drop()
            if go_on:
                self.ask(wait)
            self.newest = quick.after(self.state, there.small)
            if quick.ahead:
                self._ahead, self._next_current = (quick, found.said), current
            else:
                self._waiting.append(quick)
                self.state, self._current = self.newest, current
        else:
            self._long_round(there)
            self._is_as_told, self._current = False, current
            self._number = found.number
            self._drop()
        self._gone = gone
        return True

    def finish(self) -> None:
        """Have all that came in its place, on disk, but for what came ahead. Raises OSError."""
        self._put()
        self._journal.empty(self.state, self._last)

    def close(self) -> None:
        """End. What is in the journal stays for the next follower."""
        self._journal.close()

    def _small_files(self, there: Ends) -> set[Path]:
        """Have those that are others; which are no more."""
        changed = [folder for folder in small_folders(there.ends)
                   if there.small.get(folder) != self.state.small.get(folder)]
        gone = {path for folder in changed for path in copy_small(self.source, self.root, folder)}
        self._gone = {path for path in self._gone if path in gone or str(path.parent.relative_to(self.root)) not in
                      changed}          # without those that have come again
        return gone

    @property
    def _last(self) -> Message | None:
        """The answer that stays in a journal."""
        return None if self._ahead is None else self._ahead[1]

    def _be_sure(self) -> None:
        """The other side has said more: it has on disk what came ahead."""
        if self._ahead is not None:
            self._waiting.append(self._ahead[0])
            self._ahead, self._current = None, self._next_current
            applied = self.state.applied        # perhaps later than those of `newest`
            self.state = self.newest if self.newest.applied is applied else evolve(self.newest, applied=applied)

    def _put(self) -> None:
        while self._waiting:
            standbyjournal.put(self.root, self._waiting[0])
            del self._waiting[0]

    def _tell(self, quick: Quick) -> None:
        try:
            for each in quick.logs:
                self.came(each.environment, each.octets)
        except ValueError as error:
            raise Reseed(f"what comes of a log cannot be read: {error}") from error

    def _large(self, quick: Quick) -> bool:
        """Have the message files that did not come with the others, on disk; whether all are there."""
        names: dict[str, list[bytes]] = {}
        for each in quick.large():
            names.setdefault(each.partition, []).append(each.digest)
        return not any(FileCopies(self.source, self.root / "partitions" / partition).needed(digests)
                       for partition, digests in names.items())

    def _long_round(self, there: Ends) -> None:
        """Have all up to there, piece by piece. A partition that was added begins with its log, one that was removed
        goes."""
        self.finish()
        at, before = self.state.ends, set(self.state.ends)
        for name in there.ends.keys() - before:
            switching.begin_partition(self.root, name)
            at = {**at, name: BEGINNING}
        for _ in range(AGAIN):
            missing = self._logs(at, there)
            at = there.ends
            if not missing:
                break
            there = evolve(self.source.ends(at, {}), small=there.small)
            self._compare(there)
            if there.ends.keys() != at.keys():
                raise Reseed("other partitions are there")
        applied = {name: place for name, place in self.state.applied.items() if name in there.ends}
        for name in there.ends.keys() - before:
            applied[name] = self._make_tables(name, there)
        self.state = evolve(self.state, ends=there.ends, first=there.first, tables=there.tables, moment=there.moment,
                            epochs=there.epochs, small=there.small, applied=applied)
        self.newest = self.state
        self.state.save(self.root)
        for name in before - there.ends.keys():
            log.warning("%s is no more", name)
            switching.drop_partition((self.root / name).parent)

    def _make_tables(self, name: str, there: Ends) -> Position:
        """Make those of a partition that was added, of its whole log; up to where. Raises Reseed, OSError."""
        try:
            applying.apply_to(self.root / name, there.ends[name])
        except Failure as error:
            raise Reseed(f"what came of {name} cannot be recovered: {error}") from error
        for table, there_id in there.tables[name].items():
            path = self.root / name / table
            if not path.exists() or file_id(path) != there_id:
                raise Reseed(f"{table} of {name} is a table that its log does not have")
        return there.ends[name]

    def _drop(self) -> None:
        """Remove the small files that were no more in the round before: the end of what they tell of has come."""
        self._dropped += bool(self._gone)
        drop(self._gone)
        self._gone = set()

    def _compare(self, there: Ends) -> None:
        """Partitions may be added and removed. Raises Reseed."""
        before = self.newest
        for name in there.unlike:
            if name in there.ends:
                raise Reseed(f"the log of {name} does not go on from what is here")
        for name, end in there.ends.items():
            if name not in before.ends:
                if not is_environment(name) or there.first[name] != BEGINNING[0]:
                    raise Reseed(f"{name} is there, and its log not from its beginning")
            elif end < before.ends[name]:
                raise Reseed(f"the log of {name} is shorter than what is here")
        for name, tables in there.tables.items() if there.tables is not before.tables else ():
            known = before.tables.get(name, {})
            for table, there_id in tables.items():
                if known.get(table, there_id) != there_id:
                    raise Reseed(f"{table} of {name} is a table that its log does not have")

    def _logs(self, at: dict[str, Position], there: Ends) -> int:
        """Have what the logs have up to there, and the message files of which it tells, on disk; how many of these are
        no more."""
        missing = 0
        for name, end in there.ends.items():
            for path, start in self._log(name, at[name], end):
                if name.startswith("partitions/"):
                    missing += self._message_files(self.root / name, path, start)
            if end != at[name]:
                sync_folder(self.root / name)
        return missing

    def _log(self, environment: str, start: Position, end: Position) -> Iterator[tuple[Path, int]]:
        """Copy that part of a log: each file, once it is on disk, and where in it what is new begins."""
        for number in range(start[0], end[0] + 1):
            path, begin = self.root / environment / log_name(number), start[1] if number == start[0] else 0
            with privatefiles.open_file(path, "r+b" if path.exists() else "xb") as file:
                file.truncate(begin)
                file.seek(begin)
                at = begin
                while octets := self.source.log(environment, number, at):
                    file.write(octets)
                    at += len(octets)
                file.flush()
                os.fsync(file.fileno())
            if number == end[0] and at < end[1]:
                raise StoreError(Problem.UNAVAILABLE, f"The log of {environment} ended early")
            if number == end[0] and at > end[1]:
                with privatefiles.open_file(path, "r+b") as file:
                    file.truncate(end[1])
            yield path, begin

    def _message_files(self, index: Path, path: Path, start: int) -> int:
        with privatefiles.open_file(path) as file:
            file.seek(start)
            octets = file.read()
        try:
            self.came(str(index.relative_to(self.root)), octets)
            digests = list(dict.fromkeys(logrecords.digests(octets)))
        except ValueError as error:
            raise Reseed(f"{path.name} cannot be read: {error}") from error
        return len(FileCopies(self.source, index.parent).needed(digests)) if digests else 0
