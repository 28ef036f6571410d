"""The standby's side of the connection: a method for each question to the one that serves (`copysource`)."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from mboxlist.engine.hotcopy import Position
from store import VERSION
from store.errors import Problem, StoreError
from store.partitions.volumes import NAME
from store.snapshots.taking import Manifest
from store.standby.copyformat import (
    FOLDERS,
    SELDOM,
    SMALL_FILES,
    Listed,
    Quick,
    Sent,
    is_small,
    pack_list,
    positions,
    read_list,
    read_sent,
    unpacked,
)
from store.standby.standbystate import StandbyState, host_of
from store.standby.succession import Lineage, Parting, contested, partings_of
from store.usermove.messageformat import BadMessage, Message, seconds, whole
from store.usermove.peer import Peer

LONG = 6 * 3600.0           # seconds in which a snapshot is made there
PATIENCE = 120.0            # seconds that any other answer may take
SILENCE = 15.0              # and while it is followed: then it answers each second. A network that is cut ends nothing
MACHINES = 100              # one above the other, at most
PLACES = 61                 # the last place of a standby, the first is 0: each takes UIDs (`promotion.skipped`)


@define
class Rate:
    """How fast octets may come: `limit` of them a second; 0: as fast as they can."""

    limit: int = 0
    _free: float = field(default=0.0, init=False)

    def take(self, octets: int) -> None:
        """So many have come: wait until the next may."""
        if self.limit:
            now = time.monotonic()
            self._free = max(self._free, now) + octets / self.limit
            time.sleep(max(0.0, self._free - now))


@frozen
class Ends:
    """What there is to have: see `StandbyState`. `unlike`: environments whose logs do not go on from ours."""

    ends: dict[str, Position]
    first: dict[str, int]
    tables: dict[str, dict[str, str]]
    epochs: dict[str, int]
    small: dict[str, int]
    moment: float
    unlike: tuple[str, ...]

    @classmethod
    def of(cls, said: Message) -> "Ends":
        """From an answer. Raises BadMessage."""
        fields = said.fields
        ends, tables = positions(fields["ends"]), dict(fields["tables"])
        first = {str(name): whole(number, "file") for name, number in dict(fields["first"]).items()}
        if not set(ends) == set(first) == set(tables) or not all(isinstance(each, dict) for each in tables.values()):
            raise BadMessage("there are other environments than were asked for")
        return cls(ends, first, tables, dict(fields["epochs"]),
                   dict(fields["small"]), seconds(fields["moment"], "moment"), tuple(said.texts("unlike", 10_000)))


    @classmethod
    def of_next(cls, said: Message, state: StandbyState) -> "Ends":
        """From an answer to one that has this: what comes seldom, and small files, are the same unless that is said.
        Raises BadMessage, KeyError, TypeError."""
        fields = said.fields
        if not fields.keys().isdisjoint(SELDOM):
            before = {name: getattr(state, name) for name in (*SELDOM, "small")}
            return cls.of(Message({**before, "unlike": [], **fields}))
        ends = positions(fields["ends"])
        if ends.keys() != state.tables.keys():
            raise BadMessage("there are other environments than were known")
        small = dict(fields["small"]) if "small" in fields else state.small
        return cls(ends, state.first, state.tables, state.epochs, small, seconds(fields["moment"], "moment"), ())


@frozen
class Next:
    """What there is more. `quick`: all of it, if it is little; `number` and `step` are the other side's: of how much it
    has been told, and whether answers there wait for us. `lag`: how many seconds it is behind itself, if it is a
    standby."""

    there: Ends
    quick: Quick | None
    number: int
    step: str
    said: Message
    lag: float = 0.0

    @classmethod
    def of(cls, said: Message, state: StandbyState) -> "Next":
        """From an answer to one that has this. Raises BadMessage, KeyError, TypeError."""
        there = Ends.of_next(said, state)
        quick = Quick.of(said, there.ends) if said.fields.get("quick") else None
        if quick is not None and (quick.known != state.ends or not quick.is_whole()):
            raise BadMessage("what came does not go on from what is here")
        return cls(there, quick, said.number("number"), str(said.fields.get("step", "")), said,
                   seconds(said.fields.get("lag", 0.0), "lag"))


@frozen
class Begun:
    """What the one that serves says of itself: its name, the identity of its list of mailboxes, its partitions, the
    promotions that it knows of, and which of its standbys we are (`place`). `unprotected`: its other partitions, for
    which we did not ask; `absent`: those that it does not have itself, with the machine that has each;
    `given_up`: those that it lacked and has made anew, empty. See `StandbyState` for the others."""

    host: str
    identity: str
    partitions: list[str]
    lineage: Lineage
    place: int
    epochs: dict[str, int]
    identities: tuple[int, int]
    above: tuple[str, ...] = ()
    skipped: int = 0
    partings: dict[str, Parting] = field(factory=dict)
    unprotected: tuple[str, ...] = ()
    absent: dict[str, str] = field(factory=dict)
    given_up: tuple[str, ...] = ()

    def state(self, before: StandbyState) -> StandbyState:
        """With what it says of promotions, and of partitions that are not copied."""
        there = dict.fromkeys(self.unprotected, host_of(self.above[-1] if self.above else before.address))
        return evolve(before, succession=self.lineage.number, line=self.lineage.line, place=self.place,
                      above=self.above, skipped=self.skipped, partings=self.partings,
                      others={**self.absent, **there})


def epochs_of(said: Message) -> dict[str, int]:
    """The epochs of partitions, by their names. Raises BadMessage."""
    found = said.fields.get("epochs")
    if not isinstance(found, dict):
        raise BadMessage("epochs is no object")
    return {str(name): whole(epoch, "epoch") for name, epoch in found.items()}


def absent_of(said: Message) -> dict[str, str]:
    """Partitions that a machine does not have, with the one that has each. Raises BadMessage."""
    found = said.fields.get("absent")
    if not isinstance(found, dict) or not all(isinstance(host, str) and host.isprintable() for host in found.values()):
        raise BadMessage("absent is no object")
    _require_names(found)
    return found


def _partitions(said: Message, field_name: str) -> list[str]:
    found = said.texts(field_name, 10_000)
    _require_names(found)
    return found


def _require_names(names: Iterable[str]) -> None:
    """Folders are made by these names."""
    for name in names:
        if not NAME.fullmatch(name):
            raise BadMessage(f"a partition of the name {name!r}")


@define(eq=False)
class SourcePeer:
    """A connection to the one that serves. Every method raises StoreError: its refusal, or UNAVAILABLE."""

    peer: Peer
    rate: Rate = field(factory=Rate)
    compress: bool = False
    patience: float = PATIENCE

    def begin(self, lineage: Lineage, only: Sequence[str] = ()) -> Begun:
        """The first question; these promotions are known here. One that knows of fewer is not followed, nor is one that
        was promoted from the same state as another that was. `only`: these partitions are wanted, else all."""
        said = self._ask({"op": "copy begin", "version": VERSION, "compress": self.compress, "only": list(only),
                          **lineage.fields()})
        with self._understood():
            validity, mailbox = said.number("validity"), said.number("mailbox")
            begun = Begun(said.text("host"), said.text("identity"), _partitions(said, "partitions"), Lineage.of(said),
                          said.number("place", 0, PLACES + 1), epochs_of(said), (mailbox, validity),
                          tuple(said.texts("above", MACHINES)) if "above" in said.fields else (),
                          said.number("skipped"), partings_of(dict(said.fields["partings"])),
                          tuple(_partitions(said, "unprotected")), absent_of(said),
                          tuple(_partitions(said, "given_up")))
        if begun.lineage.number < lineage.number:
            raise StoreError(Problem.UNAVAILABLE, f"{begun.host} does not know that another machine has been promoted: "
                                                  "it is not followed")
        if begun.lineage.contests(lineage):
            raise StoreError(Problem.STORE_IN_USE, contested("the machine that was followed here", begun.host))
        return begun

    def snapshot(self, age: int) -> tuple[str, Manifest]:
        """A snapshot that is not older than so many seconds, by its name, with what is in it."""
        self.peer.wire.limit(LONG)
        try:
            said = self._ask({"op": "copy snapshot", "age": age})
        finally:
            self.peer.wire.limit(self.patience)
        with self._understood():
            manifest = Manifest.from_bytes(said.octets)
            seconds(manifest.moment, "moment")
            return said.text("snapshot"), manifest

    def database(self, snapshot: str, environment: str, file: str, at: int) -> bytes:
        """Octets of a file of a snapshot; none at its end."""
        return self._ask({"op": "copy database", "snapshot": snapshot, "environment": environment, "file": file,
                          "at": at}).octets

    def all_files(self, partition: str) -> Iterator[tuple[list[Listed], int]]:
        """All message files, some folders at a time, and how many folders these and the ones before are."""
        folder = 0
        while folder < FOLDERS:
            said = self._ask({"op": "copy list", "partition": partition, "folder": folder})
            with self._understood():
                folder = said.number("next", folder + 1, FOLDERS + 1)
                found = read_list(said.octets)
            yield found, min(folder, FOLDERS)

    def staged(self, partition: str) -> list[Listed]:
        """The message files that have not got their places yet."""
        said = self._ask({"op": "copy staged", "partition": partition})
        with self._understood():
            return read_list(said.octets)

    def files(self, partition: str, known: Sequence[Listed]) -> list[Sent | None]:
        """The first of these files, one at least."""
        said = self._ask({"op": "copy files", "partition": partition}, pack_list(known))
        with self._understood():
            sent = list(read_sent(said.octets))
            if not sent or len(sent) > len(known):
                raise BadMessage("other files than were asked for")
        return sent

    def piece(self, partition: str, name: str, at: int) -> Sent:
        """Octets of one file."""
        said = self._ask({"op": "copy piece", "partition": partition, "name": name, "at": at})
        with self._understood():
            return Sent(said.number("size"), said.number("time"), said.octets)

    def small(self, folder: str) -> dict[str, tuple[int, int]]:
        """The small files of a folder: size and time of each."""
        found: dict[str, tuple[int, int]] = {}
        while True:
            after = max(found, default="")
            said = self._ask({"op": "copy small", "folder": folder, "after": after})
            with self._understood():
                some = {str(name): (int(size), int(when)) for name, size, when in said.list("files", SMALL_FILES)}
                if any("/" in name or name <= after or not is_small(folder, name) for name in some):
                    raise BadMessage("other files than were asked for")
            if not some:
                return found
            found |= some

    def small_file(self, folder: str, name: str, at: int) -> bytes:
        """Octets of one of them; none at its end."""
        return self._ask({"op": "copy small file", "folder": folder, "name": name, "at": at}).octets

    def is_followed(self) -> None:
        """From now on an answer comes soon, or the connection is of no use any more."""
        self.peer.wire.limit(min(self.patience, SILENCE))

    def place(self, host: str) -> int:
        """The place of a machine that is to follow this one: the one that serves knows of it then."""
        said = self._ask({"op": "copy place", "host": host})
        with self._understood():
            return said.number("place", 0, PLACES + 1)

    def ask_next(self, state: StandbyState, number: int, wait: float, *, known: bool,
                 further: Mapping[str, float] | None = None) -> None:
        """Say that all of `state` is on disk here, which came with the `number`, and ask what there is more, or for so
        many seconds nothing: the answer is that of `next`. `known`: there is neither more nor less here than came with
        that number. `further`: the standbys of this one, and how many seconds each is behind, if that is to be said.
        """
        asked: dict[str, Any] = {"op": "copy next", "number": number, "wait": int(wait * 1000)}
        if further is not None:
            asked["further"] = dict(further)
        self.peer.tell(asked if known else {**asked, "known": state.ends, "small": state.small})

    def next(self, state: StandbyState) -> "Next":
        """The answer to `ask_next`."""
        said = self.peer.answer()
        self.rate.take(len(said.octets))
        with self._understood():
            found = Next.of(unpacked(said), state)
        return found

    def ends(self, known: Mapping[str, Position], sums: Mapping[str, int]) -> Ends:
        """How far all its logs are on disk, at one moment."""
        said = self._ask({"op": "copy ends", "known": dict(known), "sums": dict(sums)})
        with self._understood():
            return Ends.of(said)

    def log(self, environment: str, file: int, at: int) -> bytes:
        """Octets of a log; none at the end of the file, or at the last of `ends`."""
        return self._ask({"op": "copy log", "environment": environment, "file": file, "at": at}).octets

    def close(self) -> None:
        """End it."""
        self.peer.close()

    def _ask(self, fields: Mapping[str, Any], octets: bytes = b"") -> Message:
        said = self.peer.ask_for(fields, octets)
        self.rate.take(len(said.octets))
        with self._understood():
            return unpacked(said)

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (BadMessage, KeyError, ValueError, TypeError, OverflowError) as error:
            raise self.peer.unclear(str(error)) from error
