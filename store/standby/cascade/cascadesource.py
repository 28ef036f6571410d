"""A standby's other side at a standby: the answers of `source.copysource`, made of what is on disk here."""

import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from mboxlist.engine.generations import LogEnd
from mboxlist.engine.hotcopy import Position
from store import VERSION
from store.errors import Problem, StoreError
from store.partition.messagefiles import MessageFiles
from store.problems import problems
from store.snapshots.taking import LIST
from store.standby import standbystate, succession
from store.standby.cascade.cascade import Cascade, Heard, Shown
from store.standby.cascade.keptlogs import log_file
from store.standby.copyformat import SENT_OCTETS, Packing, further_of, positions, small_folders
from store.standby.source.copysource import PARTITIONS, ROUND, WAIT
from store.standby.source.fileanswers import Answer, FileAnswers
from store.standby.source.instep import Step
from store.standby.source.quickanswers import QuickAnswers, octets_of, open_there
from store.standby.standbystate import StandbyState, host_of
from store.standby.succession import Lineage, contested
from store.standby.switching import partitions_of
from store.usermove.messageformat import ANSWER_OCTETS, BadMessage, Message, Wire, encode, receive
from store.usermove.peer import said_of


@frozen
class _Folder:
    """Of an environment."""

    folder: Path


@frozen
class _Sent:
    """What went with an answer, the one of that number."""

    number: int = 0
    ends: dict[str, Position] = field(factory=dict)
    small: dict[str, int] = field(factory=dict)
    current: float = 0.0


@define(eq=False)
class CascadeSource:
    """What the machine `host` hears: whether this one has been promoted, and, if it `may_follow`, what a standby asks.
    `run` answers until the connection ends."""

    cascade: Cascade
    host: str
    may_follow: bool = True
    _only: frozenset[str] = field(default=frozenset(), init=False)      # the partitions that it wants; else all
    _shown: Shown | None = field(default=None, init=False)     # what it was told last
    _packing: Packing = field(factory=Packing, init=False)
    _quick: QuickAnswers = field(init=False)
    _files: FileAnswers = field(init=False)
    _sent: _Sent = field(factory=_Sent, init=False)
    _further: dict[str, float] = field(factory=dict, init=False)
    _seldom: dict[str, Any] = field(factory=dict, init=False)

    @_quick.default
    def _quick_of_standby(self) -> QuickAnswers:
        return QuickAnswers(self._find)

    @_files.default
    def _files_of_standby(self) -> FileAnswers:
        return FileAnswers(self.cascade.root, lambda name: self._partition(name).folder, self._find)

    def run(self, wire: Wire) -> None:
        """Until the caller has had enough. Raises BadMessage, Ended, OSError."""
        actions = self.actions()
        try:
            while True:
                message = receive(wire.read)
                action = actions.get(message.text("op"))
                try:
                    with problems():
                        answer = self._no_home(message) if action is None else action(message)
                except StoreError as refusal:
                    wire.write(encode(said_of(refusal)))
                else:
                    wire.write(encode(*answer, ANSWER_OCTETS))
        finally:
            self.close()

    def _no_home(self, message: Message) -> Answer:
        """Asked by a machine that brings its mail home to the one that was promoted (`store/rejoin`)."""
        if not self.may_follow or not message.text("op").startswith("home "):
            raise BadMessage("a standby does not answer that")
        raise StoreError(Problem.UNAVAILABLE, "This machine is a standby: go to the one that was promoted")

    def actions(self) -> dict[str, Callable[[Message], Answer]]:
        """By the names that a standby uses."""
        following = {**self._files.actions(), "copy snapshot": self._snapshot, "copy database": self._database,
                     "copy staged": self._staged, "copy ends": self._ends, "copy log": self._log,
                     "copy next": self._next}

        def of_this_life(action: Callable[[Message], Answer]) -> Callable[[Message], Answer]:
            def act(message: Message) -> Answer:
                if self._shown is None:
                    raise BadMessage("it has not begun")
                self.cascade.now(self._shown.life)
                return self._packing.pack(*action(message))
            return act

        any_machine: dict[str, Callable[[Message], Answer]] = {"copy succession": self._succession}
        if not self.may_follow:
            return any_machine
        return {**any_machine, "copy begin": self._begin, "copy place": self._place,
                **{name: of_this_life(action) for name, action in following.items()}}

    def close(self) -> None:
        """The connection has ended."""
        self._quick.close()
        self.cascade.has_done(self)

    def _succession(self, message: Message) -> Answer:
        """Asked by any machine that has served the store, or may."""
        state = standbystate.read(self.cascade.root)
        if state is None:
            return {"identity": "", "skipped": 0, **Lineage().fields()}, b""
        return {"identity": state.identity, "skipped": state.skipped, "serves": host_of(state.serves),
                **state.lineage.fields()}, b""

    # Beginning

    def _begin(self, message: Message) -> Answer:
        if message.text("version") != VERSION:
            raise StoreError(Problem.UNAVAILABLE, f"This standby has version {VERSION} of onecopy, and the one that is "
                                                  f"to follow {message.text('version')}: both must have the same one")
        shown, lineage = self.cascade.now(), Lineage.of(message)
        state = shown.state
        above = (state.address, *state.above)
        if self.host in map(host_of, above):
            raise StoreError(Problem.STORE_IN_USE, f"This standby follows {self.host} itself")
        if state.lineage.contests(lineage):
            raise StoreError(Problem.STORE_IN_USE, contested("the machine that was followed there", state.host))
        if lineage.number > state.lineage.number:
            raise StoreError(Problem.UNAVAILABLE, "This standby does not know that another machine has been promoted")
        partitions = self._choose(message.texts("only", PARTITIONS), state)
        place = self.cascade.place(self.host, state)        # before it has anything that it could serve
        self._packing.is_wanted, self._shown = message.truth("compress"), shown
        return {"host": state.host, "identity": state.identity, **partitions, "place": place,
                "epochs": self._part_of(state).epochs, "mailbox": 0, "validity": 0, "above": above,
                "skipped": state.skipped,
                "partings": succession.said_of(state.partings), **state.lineage.fields()}, b""

    def _choose(self, names: Sequence[str], state: StandbyState) -> dict[str, Any]:
        """The other one wants only these partitions, or all that are here: what it is told of them. Raises StoreError
        UNAVAILABLE when one is not here."""
        here = set(partitions_of(state))
        if missing := sorted(set(names) - here):
            raise StoreError(Problem.UNAVAILABLE, "; ".join([
                *(standbystate.unprotected(name, state.others[name]) for name in missing if name in state.others),
                *(f"there is no partition {name}" for name in missing if name not in state.others),
                f"this standby has {', '.join(sorted(here))}"]))
        self._only = frozenset(names)
        return {"partitions": sorted(names or here), "unprotected": sorted(here - self._only) if names else [],
                "absent": state.others, "given_up": []}

    def _has(self, environment: str) -> bool:
        return not self._only or environment == LIST or environment.split("/")[1] in self._only

    def _part_of(self, state: StandbyState) -> StandbyState:
        """What the other one hears of: the list, and all partitions or some."""
        if not self._only:
            return state
        return evolve(state, ends={name: end for name, end in state.ends.items() if self._has(name)},
                      first={name: file for name, file in state.first.items() if self._has(name)},
                      tables={name: tables for name, tables in state.tables.items() if self._has(name)},
                      epochs={name: epoch for name, epoch in state.epochs.items() if name in self._only})

    def _place(self, message: Message) -> Answer:
        """Asked by one that follows this one, for one that is to follow it."""
        return {"place": self.cascade.place(message.text("host"), self.cascade.now().state)}, b""

    def _snapshot(self, message: Message) -> Answer:
        self.cascade.has_done(self)
        name, found = self.cascade.copy(self, message.number("age"))
        parts = {each: part for each, part in found.manifest.environments.items() if self._has(each)}
        return {"snapshot": name}, evolve(found.manifest, environments=parts).to_bytes()

    def _database(self, message: Message) -> Answer:
        found = self.cascade.copy_of(message.text("snapshot"))
        name, part = message.text("file"), found.manifest.environments.get(message.text("environment"))
        if part is None or name not in [file.name for file in part.files]:
            raise StoreError(Problem.GONE, f"There is no {name} in the copy {found.path.name}")
        return {}, octets_of(found.path / message.text("environment") / name, message.number("at"))

    # Files

    def _partition(self, name: str) -> MessageFiles:
        if self._shown is None or f"partitions/{name}/index" not in self._part_of(self._shown.state).ends:
            raise StoreError(Problem.GONE, f"There is no partition {name}")
        return MessageFiles(self.cascade.root / "partitions" / name)

    def _find(self, partition: str, digest: bytes) -> int:
        return open_there(self._partition(partition).path(digest))

    def _staged(self, message: Message) -> Answer:
        """A standby has every message file in its place."""
        return {}, b""

    # Following

    def _ends(self, message: Message) -> Answer:
        known, sums = positions(message.fields.get("known")), message.fields.get("sums")
        if not isinstance(sums, dict) or not all(isinstance(each, int) for each in sums.values()):
            raise BadMessage("there are no sums")
        shown = self._now()
        state = self._part_of(shown.state)
        unlike = [name for name, end in known.items() if name not in state.ends or not self._goes_on(name, end, sums)]
        return {"ends": state.ends, "first": state.first, "tables": state.tables, "moment": state.moment,
                "small": self._signatures(shown), "unlike": unlike, "epochs": state.epochs}, b""

    def _goes_on(self, name: str, end: Position, sums: dict[str, int]) -> bool:
        """Whether the log goes on from that place, and is what the other one has there."""
        path = log_file(self.cascade.root / name, end[0])
        return path.exists() and (name not in sums or LogEnd.of(path.parent, end) == LogEnd(*end, sums[name]))

    def _now(self) -> Shown:
        """What there is now, of which the other one is told."""
        if self._shown is None:
            raise BadMessage("it has not begun")
        self._shown = self.cascade.now(self._shown.life)
        return self._shown

    def _next(self, message: Message) -> Answer:
        """What has come since, and how many seconds this standby is behind itself."""
        number = message.number("number")
        if number not in (0, self._sent.number):
            raise BadMessage("that number was not sent")
        if number:
            if "further" in message.fields:
                self._further = further_of(message)
            self.cascade.hears(self.host, Heard(
                self._sent.ends, self._sent.current, time.monotonic(), self._further, self._only))
        if "known" in message.fields:
            told = message.fields.get("small")
            known, small = positions(message.fields["known"]), dict(told) if isinstance(told, dict) else {}
        elif number:
            known, small = self._sent.ends, self._sent.small
        else:
            raise BadMessage("what is known was not said")
        self.cascade.has_done(self)
        return self._said(known, self._news(known, small, min(WAIT, message.number("wait") / 1000)))

    def _news(self, known: dict[str, Position], small: dict[str, int], seconds: float) -> Shown:
        """What there is, once there is more than that, or after so long; what comes in a moment comes together."""
        deadline = time.monotonic() + seconds
        time.sleep(min(ROUND, seconds))
        shown = self._now()
        while ((left := deadline - time.monotonic()) > 0 and self._part_of(shown.state).ends == known
               and self._signatures(shown) == small):
            shown = self.cascade.later(shown, left)
        self._shown = shown
        return shown

    def _said(self, known: dict[str, Position], shown: Shown) -> Answer:
        state, number = self._part_of(shown.state), self._sent.number + 1
        small = self._signatures(shown)
        said: dict[str, Any] = {
            "number": number, "ends": state.ends, "moment": state.moment, "known": known, "small": small,
            "step": Step.FOLLOWS.value, "lag": max(0.0, time.monotonic() - shown.current)}
        seldom = {"first": state.first, "tables": state.tables, "epochs": state.epochs}
        if seldom != self._seldom:
            said |= seldom
            self._seldom = seldom
        try:
            quick = self._quick.between(known, state.ends, {name: _Folder(self.cascade.root / name)
                                                            for name in state.ends})
        except FileNotFoundError:           # a log file that is kept for it: it asks for that
            quick = None
        self._sent = _Sent(number, state.ends, small, shown.current)
        return (said, b"") if quick is None else ({**said, **quick[0]}, quick[1])

    def _log(self, message: Message) -> Answer:
        """Octets of a log, up to where it was told to be on disk."""
        name, number, at = message.text("environment"), message.number("file"), message.number("at")
        end = None if self._shown is None else self._part_of(self._shown.state).ends.get(name)
        if end is None or number > end[0]:
            raise BadMessage("nobody has been told of that part of a log")
        path = log_file(self.cascade.root / name, number)
        most = min(SENT_OCTETS, end[1] - at) if number == end[0] else SENT_OCTETS
        try:
            return {"last": number == end[0]}, octets_of(path, at, max(0, most))
        except FileNotFoundError:
            raise StoreError(Problem.GONE, f"{path.name} of {name} is there no more") from None

    def _signatures(self, shown: Shown) -> dict[str, int]:
        """A number for each folder of small files, which is another one when something in it may have changed."""
        return {folder: zlib.crc32(f"{shown.state.small.get(folder)} {shown.small}".encode())
                for folder in small_folders(self._part_of(shown.state).ends)}
