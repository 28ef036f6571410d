"""A standby follows for as long as its process runs: it connects again when a connection is lost, copies the databases
again where the logs do not lead on, and has the tables take over what the logs have, in a process of its own.
"""

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import Any

from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.transact import Failure
from store.errors import Problem, StoreError
from store.filelock import in_turn
from store.standby import applying, purgedfiles, seeding, standbystate, switching
from store.standby.cascade.cascade import Cascade
from store.standby.following import Follower, Reseed
from store.standby.purgedfiles import Purging
from store.standby.sourcepeer import SourcePeer
from store.standby.standbystate import TABLES_LOCK, StandbyState

log = logging.getLogger(__name__)

SEEN = "run/standby"        # what it has seen last,
KEPT = "current", "monotonic", "boot", "moment"         # and what of it stays true while it does not follow
BOOT = Path("/proc/sys/kernel/random/boot_id")
WAIT = 1.0                  # seconds that a question waits for news
NOTE_SECONDS = 0.25         # between two notes of what is seen, while much comes
RETRY = 1.0                 # seconds between two tries to connect,
RETRY_COPY = 60.0           # to copy the databases,
RETRY_APPLY = 60.0          # and to have the tables take over what the logs have
NOT_APPLIED = "the logs could not be applied to the tables, and are kept; it is tried again each minute"
COPY_SECONDS = 600.0        # between two copies of the databases, at least: a snapshot is made for each;
COPY_WAITED = 5.0           # where answers wait for this standby, at most: perhaps nothing is changed until then
WAITED_FOR = "joining", "in step"           # as the other side says (`source.instep.Step`);
AWAY = "away"                               # so is each until it joins, also one that answers will wait for
APPLY_OCTETS = 64 << 20     # of logs that wait, after which the tables take them over,
APPLY_SECONDS = 900.0       # or after so long


def seen(root: Path) -> dict[str, Any]:
    """What that process has noted last: see `LongFollowing._note`. Empty when there is nothing."""
    try:
        found = json.loads(privatefiles.read(root / SEEN))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def behind(found: Mapping[str, Any]) -> float | None:
    """Seconds since all that was at the first machine was here, of what `seen` gives; None if nobody knows. The clock
    may have been set meanwhile: it counts only after the machine has begun anew."""
    if "current" not in found:
        return None
    if found.get("boot") == _boot():
        return max(0.0, time.monotonic() - float(found["monotonic"]))
    return max(0.0, time.time() - float(found["current"]))


def _boot() -> str:
    """Another one after each start of the machine."""
    return privatefiles.read_text(BOOT).strip()


@define(eq=False)
class LongFollowing:
    """See the module's text. `connect` raises StoreError; `stop` ends it, after a round."""

    root: Path
    connect: Callable[[], SourcePeer]
    stop: Event
    clock: Callable[[], float] = time.time
    cascade: Cascade | None = None      # what those have that follow this one
    _child: int = field(default=0, init=False)              # the process that applies, up to this:
    _until: StandbyState | None = field(default=None, init=False)
    _applied_at: float = field(factory=time.monotonic, init=False)
    _purging: Purging = field(init=False)
    _next_purge: float = field(default=0.0, init=False)     # when purged message files are looked for again
    _looks: bool = field(default=False, init=False)         # the process that applies does so
    _trouble: str = field(default="", init=False)
    _not_applied: str = field(default="", init=False)       # that the last try failed
    _next_copy: float = field(default=0.0, init=False)
    _is_waited_for: bool = field(default=False, init=False)
    _wanted: float = field(default=0.0, init=False)         # since when the databases are to be copied; 0: they are not

    @_purging.default
    def _purging_of_root(self) -> Purging:
        return Purging(self.root)

    def run(self) -> None:
        """Until `stop`. Raises StoreError when going on would not help, OSError of the disk here."""
        try:
            while not self.stop.is_set():
                try:
                    with contextlib.closing(self.connect()) as source:
                        if self._wanted:
                            self._copy(source)
                        self._follow(source)
                except Reseed as why:
                    self._want_copy(str(why))
                except StoreError as error:         # what is busy, full or gone there may be better later
                    if error.problem is Problem.NO_STORE:
                        raise
                    self._met(str(error))
                    self.stop.wait(RETRY_COPY if self._wanted else RETRY)
        finally:
            self._end_child(wait=True)

    def _met(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("the standby does not follow: %s", trouble)
        self._trouble = trouble
        self._note(trouble=trouble)

    def _follow(self, source: SourcePeer) -> None:
        follower = Follower(self.root, source, self._state(), came=self._purging.came)
        if self.cascade is not None:
            self.cascade.withdraw()
            follower.shown, follower.further = self.cascade.show, self.cascade.further
        try:
            follower.begin()
            switching.tidy(self.root)           # the logs lead on: no copy is needed
            log.info("the standby follows %s", follower.state.host)
            self._trouble, noted = "", 0.0
            asked = self.clock(), time.monotonic()
            while not self.stop.is_set():
                has_come = follower.round(WAIT, go_on=self._is_waited_for)
                (began, steady), asked = asked, (self.clock(), time.monotonic())
                follower.ask(WAIT)                  # before all else: answers there may wait for it
                if not has_come or abs(began - noted) > NOTE_SECONDS:
                    noted, lag = began, follower.lag
                    self._note(current=began - lag, monotonic=steady - lag, boot=_boot(), moment=follower.state.moment,
                               step=follower.step)
                if follower.step != AWAY:           # else nobody has said since
                    self._is_waited_for = follower.step in WAITED_FOR
                self._apply(follower)
                if self._purging.is_under_way:
                    self._purging.step()
                if self.cascade is not None:
                    self.cascade.tidy()
            follower.finish()
        finally:
            self._purging.forget()
            follower.close()

    def _state(self) -> StandbyState:
        state = standbystate.read(self.root)
        if state is None:
            raise StoreError(Problem.NO_STORE, f"There is no standby in {self.root}; onecopy standby create makes one")
        return switching.finish(self.root, state)

    def _want_copy(self, why: str) -> None:
        """Have the databases copied by the next connection, when it is time to; the other side waits for nothing
        meanwhile, and would end one that says nothing."""
        log.warning("the databases are copied again: %s", why)
        if self.cascade is not None:
            self.cascade.withdraw()
        self._note(trouble=f"the databases are copied again: {why}")
        self._end_child(wait=True)
        pause = max(0.0, self._next_copy - time.monotonic())
        self.stop.wait(min(pause, COPY_WAITED) if self._is_waited_for else pause)
        self._wanted = time.monotonic()
        self._next_copy = self._wanted + COPY_SECONDS

    def _copy(self, source: SourcePeer) -> None:
        """A copy that was cut off goes on with the snapshot that was made for it."""
        seeding.seed(self.root, self._state(), source, lambda what, done, total: None,
                     age=int(time.monotonic() - self._wanted))
        self._wanted, self._not_applied = 0.0, ""       # the tables are new

    def _note(self, **what: Any) -> None:
        """Have `seen` tell: `current` is the time until which all is here, by the clock of this machine, `moment` that
        of the other one; `trouble`: why it does not follow."""
        before = {key: value for key, value in seen(self.root).items() if key in KEPT}
        known = {"pid": os.getpid(), "trouble": self._not_applied, **before, **what}
        with contextlib.suppress(OSError), privatefiles.replacing(self.root / SEEN, sync=False) as to:
            to.write(json.dumps(known).encode())

    # Applying

    def _apply(self, follower: Follower) -> None:
        """Begin with it when it is due, and end it when it has been done."""
        if self._child:
            if self._end_child() and self._until is not None:
                follower.finish()           # what is on record then is in its place
                follower.state = applying.applied(self.root, follower.state, self._until,
                                                  Path.unlink if self.cascade is None else self.cascade.let_go)
                if self._looks:
                    self._purging.begin(self._until)
                    self._next_purge = time.monotonic() + (purgedfiles.EVERY if self._purging.is_all else 0.0)
            return
        waiting = applying.waiting(follower.state)
        since = time.monotonic() - self._applied_at
        if waiting >= APPLY_OCTETS and (not self._not_applied or since >= RETRY_APPLY) or (
                waiting and since >= APPLY_SECONDS):
            tables = nullcontext(True) if self.cascade is None else self.cascade.tables_at_once()
            with tables as is_free:         # else the new process would have a lock that it waits for
                if is_free:
                    self._begin_child(follower)

    def _begin_child(self, follower: Follower) -> None:
        follower.finish()
        self._until, self._looks = follower.state, time.monotonic() >= self._next_purge
        ours = os.getpid()
        self._child = os.fork()
        if not self._child:
            _apply_and_end(self.root, self._until, ours, looks=self._looks)

    def _end_child(self, *, wait: bool = False) -> bool:
        """Whether it has ended now, and has done it. Who waits has it look for no more purged files: where it has not
        begun, it is ended by that, and has not failed."""
        if not self._child:
            return False
        if wait:
            os.kill(self._child, signal.SIGTERM)
        pid, status = os.waitpid(self._child, 0 if wait else os.WNOHANG)
        if not pid:
            return False
        self._child = 0
        if wait and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM:
            return False
        self._applied_at = time.monotonic()
        self._not_applied = NOT_APPLIED if status else ""
        if status:
            log.error("the standby goes on, but %s", NOT_APPLIED)
        return not status


def _apply_and_end(root: Path, state: StandbyState, parent: int, *, looks: bool) -> None:
    """Apply all, in the new process; it looks for purged files for as long as its parent lives, and until SIGTERM:
    a promotion waits for the tables."""
    status, ended = 1, Event()
    try:
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        with in_turn(root / TABLES_LOCK):
            applying.apply(root, state)
            status = 0
            if looks:
                purgedfiles.note_unknown(root, state, lambda: os.getppid() == parent and not ended.is_set())
    except (Failure, OSError) as error:
        log.error("%s: %s", "the logs cannot be applied to the tables" if status else
                  "which message files have been purged cannot be seen", error)
    finally:
        os._exit(status)
