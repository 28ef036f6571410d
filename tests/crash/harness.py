"""Crashes at every moment of an operation.

It is done once and seen by a `Recorder`; then every state of the disk that a crash could have left on the way is made,
opened, and compared with what had been answered by then.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, evolve, field, frozen

from mboxlist.engine import kv, regions
from mboxlist.names import MailboxName
from store.changes import Change
from store.check.wholecheck import check
from store.events.receivers import Receiver
from store.mailboxes import deletion
from store.opening import make_empty_store, open_store
from store.partition.messagefiles import MessageFiles
from store.recovery.environments import recovery_of
from store.store import Store
from tests.conftest import MEMORY
from tests.crash.contents import contents
from tests.crash.operations import OPERATIONS, Operation
from tests.crash.places import CONTENTS, NEW, PROBES, TRACE, Place, deliver
from tests.crash.places import Answered as Answer
from tests.crash.raised import raised
from tests.crash.views import Picture, differences, retold, view
from tests.support.faults.disk import Disk, Event, Image
from tests.support.faults.recorder import Recorder
from tests.support.stores.heardevents import NAME, Boxes, Copy, hear, there, waiting

SEEDS = 2                       # of states in which a random part of what was not synced is on the disk
LOG_FILE, LOG_BUFFER = 256 << 10, 32 << 10      # small ones: copied often, and the next log file comes soon
_HASHED = {f"{name[0]}/{name[1:3]}" for name in
           (hashlib.blake2b(content, digest_size=32).hexdigest() for content in CONTENTS)}


@frozen
class Answered:
    """A note among the events: the operation gave its answer of that number (from 1)."""

    number: int


@frozen
class Seen:
    """A note among the events: what all could see after a transaction."""

    view: Picture


@frozen
class Reported:
    """A note among the events: a standby has said that it has all answers up to that number."""

    number: int


@frozen
class Moment:
    """A state of the disk was possible here: how many changes of the disk, answers, views and answers that a standby
    has reported had been."""

    how: str                    # which state it is: what stays of the changes that were not synced
    changes: int
    last: str
    answers: int
    views: int
    reported: int = 0


@frozen
class Known:
    """Of contents that a crash has left: what readers see, and what is wrong with them whatever had been answered."""

    found: Picture
    wrong: list[str]


@define
class Recording:
    """An operation from its beginning to its end. `views` are those of the answers, the first one from before."""

    name: str
    title: str
    start: Image                # the closed store
    base: Disk                  # as the operation begins
    events: list[Event]
    views: list[Picture]
    seen: list[Picture] = field(factory=list)
    first: tuple[int, int] = (0, 0)     # answers and views there were as the events begin
    boxes: Boxes = field(factory=dict)  # what a receiver of events knew before
    known: dict[bytes, "Known"] = field(factory=dict)   # by `contents`
    ended: float = field(factory=time.time)             # Unix time, which stands still while states are judged

    @property
    def points(self) -> int:
        """Calls that changed the disk; each is a moment before, and a moment after."""
        return sum(event.kind != "note" for event in self.events)


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder in memory, for a store."""
    path = Path(tempfile.mkdtemp(prefix="onecopy-crash-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        yield path / "store"
    finally:
        shutil.rmtree(path)


def _few_folders(files: MessageFiles) -> Iterator[str]:
    """In the place of `MessageFiles.folders`: of the 4,096 those that the messages here hash to."""
    return (f"{files.folder}/{name}" for name in sorted(_HASHED))


@contextmanager
def small_stores() -> Iterator[None]:
    """Stores that are opened meanwhile have small logs, use their shared memory as it is needed, and few folders."""
    with ExitStack() as undo:
        for where, name, value in ((kv, "LOG_FILE", LOG_FILE), (kv, "LOG_BUFFER", LOG_BUFFER),
                                   (regions, "reserve", lambda folder: None),
                                   (MessageFiles, "folders", _few_folders)):
            undo.callback(setattr, where, name, getattr(where, name))
            setattr(where, name, value)
        yield


@contextmanager
def standing_still(now: float) -> Iterator[None]:
    """The clock, meanwhile: so what a start writes down is the same where it has found the same."""
    real, time.time = time.time, lambda: now
    try:
        yield
    finally:
        time.time = real


def _nothing(place: Place, answered: Answer) -> None:
    """In the place of what an operation does."""


_ALIKE = Operation(_nothing)            # what it has does not matter to the store that an operation begins with


def prepared(operation: Operation) -> Image:
    """The store that the operation begins with, closed. Most begin with the same one."""
    return _prepared(evolve(operation, run=_nothing, **{name: getattr(_ALIKE, name) for name in (
        "between", "alone", "inspect", "finish")}))


@cache
def _prepared(operation: Operation) -> Image:
    with folder() as root, small_stores():
        make_empty_store(root)
        store = open_store(root, operation.settings)
        operation.fill(store)
        operation.prepare(store)
        assert findings(store, operation) == []
        if operation.events:
            hear(store, Receiver(NAME))
        store.close()
        return Disk.of(root).stopped()


def findings(store: Store, operation: Operation) -> list[str]:
    """What `check` finds, for people, except for what it may find."""
    return [f"check: {finding.where}: {finding.what}" for finding in check(store)
            if finding.what != operation.tolerated]


class SeenPlace(Place):
    """A place whose store is looked at after every transaction and before it is closed."""

    def __init__(self, root: Path, operation: Operation, recorder: Recorder) -> None:
        super().__init__(root, operation.settings)
        self.recorder = recorder
        self.views: list[Picture] = []
        self.look = True                # else what is seen is left out
        self._last: Picture = {}

    def open(self) -> Store:
        store = super().open()
        tell = store.news.tell

        def heard(mailboxes: Iterable[int], changes: Sequence[Change] = ()) -> None:
            tell(mailboxes, changes)
            self.recorder.note(Seen(self._look()))

        store.news.tell = heard     # type: ignore[method-assign]
        self.recorder.note(Seen(self._look()))
        return store

    def close(self) -> None:
        self._look()
        super().close()

    def answered(self) -> None:
        """The operation gives an answer."""
        self.views.append(self._look())
        self.recorder.note(Answered(len(self.views) - 1))

    def _look(self) -> Picture:
        if self.look and self._store is not None:
            self._last = view(self._store)
        return self._last


def record(name: str) -> Recording:
    """Do the operation, and see it."""
    operation = OPERATIONS[name]
    with folder() as root, small_stores():
        start = prepared(operation)
        start.write(root)
        recorder = Recorder(root)
        place = SeenPlace(root, operation, recorder)
        with recorder:
            if operation.alone:
                before = open_store(root, operation.settings)
                place.views.append(view(before))
                boxes = there(before)
                before.close()
            else:
                place.open()
                place.views.append(view(place.store))
                boxes = there(place.store)
            begin = len(recorder.events)
            operation.run(place, place.answered)
            end = len(recorder.events)
            if place._store is not None:
                place.close()
        base = recorder.base.copy()
        for event in recorder.events[:begin]:
            base.apply(event)
        whole = base.copy()
        for event in recorder.events[begin:]:
            whole.apply(event)
        replayed, real = whole.stopped().paths, Disk.of(root).stopped().paths
        wrong = sorted(path for path in replayed.keys() | real.keys()
                       if replayed.get(path, b"-") != real.get(path, b"-"))
        assert not wrong, f"{name}: {wrong} changed in a way that the recorder does not see"
        events = recorder.events[begin:end]
        return Recording(name, name, start, base, events, place.views,
                         [event.note.view for event in events if isinstance(event.note, Seen)], boxes=boxes)


def states(recording: Recording, seeds: Iterable[int], *, torn: bool = False, every: bool = False
           ) -> dict[Any, tuple[Image, list[Moment]]]:
    """Every state that a crash can leave, once, with the moments at which it can. Of writes in a row to one file, which
    is half written after each of them, the first, another one and the last are looked at, or `every` one."""
    found: dict[Any, tuple[Image, list[Moment]]] = {}
    disk = recording.base.copy()
    changes, (answers, views), reported, seeds = 0, recording.first, 0, tuple(seeds)

    def add(last: str) -> None:
        images = {"stopped": disk.stopped(), "lost": disk.lost()}
        for seed in seeds if not disk.settled else ():
            images[f"mixed {seed}"] = disk.mixed(Random(f"{recording.title}/{changes}/{seed}"), torn=torn)
        for how, image in images.items():
            found.setdefault(image.key, (image, []))[1].append(Moment(how, changes, last, answers, views, reported))

    add("the beginning")
    among = set(range(len(recording.events))) if every else _not_alike(recording)
    for number, event in enumerate(recording.events):
        if isinstance(event.note, Answered):
            answers += 1
        elif isinstance(event.note, Seen):
            views += 1
        elif isinstance(event.note, Reported):
            reported = event.note.number
        else:
            disk.apply(event)
            changes += 1
        if number in among:
            add(f"{event.kind} {event.path} {event.to}".strip() if event.kind != "note" else type(event.note).__name__)
    return found


def is_mixed(moments: list[Moment]) -> bool:
    """Whether a state comes only of a random part of what was not synced."""
    return all(moment.how.startswith("mixed") for moment in moments)


def _not_alike(recording: Recording) -> set[int]:
    """The numbers of events without those between the first and the last of several writes to one file; but one of
    these stays, chosen at random."""
    found, random = set(), Random(recording.title)
    files = [(event.node if event.kind == "write" else -1, 0 if event.kind == "write" else number)
             for number, event in enumerate(recording.events)]
    for _, run in groupby(range(len(files)), files.__getitem__):
        numbers = list(run)
        found |= {numbers[0], random.choice(numbers), numbers[-1]}
    return found


def judge(recording: Recording, image: Image, moments: list[Moment], *, every: bool = False) -> list[str]:
    """What is wrong with the store that is opened in this state of the disk. Each store is compared with what had been
    answered; contents that have been there before are checked and used again only with `every`."""
    operation = OPERATIONS[recording.name]
    with folder() as root, small_stores(), standing_still(recording.ended):
        image.write(root)
        wrong = [*judged(root, operation, recording, moments, every=every)]
        if wrong:
            kept = os.environ.get("CRASH_KEEP")
            if kept:
                image.write(Path(tempfile.mkdtemp(prefix="state-", dir=kept)) / "store")
        wrong = [what.replace(f"{root}/", "") for what in wrong]
    first = moments[0]
    where = f"{recording.title}: {first.how} after change {first.changes} ({first.last}), {first.answers} answers"
    return [f"{where}: {what}" for what in wrong]


def judged(root: Path, operation: Operation, recording: Recording, moments: list[Moment], *, again: bool = False,
            every: bool = False) -> list[str]:
    try:
        store = open_store(root, operation.settings)
    except Exception as error:
        return [raised("it does not open", error)]
    try:
        recovery = recovery_of(store)
        wrong = [f"it was taken for an older one: {event.found}" for event in (
            recovery.events.values() if recovery is not None else ()) if "is older" in event.found]
        left = [str(path) for path in root.glob("partitions/*/staging/*")]
        wrong += [f"there is {', '.join(left)}"] if left else []
        key = contents(store)
        before = None if every else recording.known.get(key)
        found = view(store) if before is None else before.found
        for context in sorted({(moment.answers, moment.views) for moment in moments}):
            wrong += as_answered(operation, recording, found, context[0], again=again)
            wrong += operation.inspect(store, context[0])
            for each in recording.seen[:context[1]]:
                wrong += retold(each, found)
        if before is None:
            before = recording.known[key] = Known(found, _used(store, operation, recording, found))
        wrong += before.wrong
    except Exception as error:
        return [raised("it does not work", error)]
    finally:
        leave(store)
    return wrong


def _used(store: Store, operation: Operation, recording: Recording, found: Picture) -> list[str]:
    """What is wrong when the store is checked, and goes on."""
    wrong = findings(store, operation)
    if operation.events:
        wrong += told(store, recording.boxes)
    wrong += goes_on(store, operation, found)
    if operation.finish is not None:            # else nothing has changed since `goes_on` had the store checked
        wrong += operation.finish(store, recording.views[-1])
        wrong += [f"done again, {finding}" for finding in findings(store, operation)]
    return wrong


def told(store: Store, boxes: Boxes) -> list[str]:
    """Whether the events that wait, in their order, make of what was there what is there: so none is missing of what
    lasts, and there is none of what does not."""
    copy = Copy(boxes)
    for body in waiting(store):
        copy.hear(body)
    missed = [each.missed for each in store.recorder.receivers.all if each.missed]
    wrong = [f"the receiver of events is told that some are missing: {why}" for why in missed]
    return wrong if copy.boxes == there(store) else [
        *wrong, f"a receiver of events knows {copy.boxes}, and there is {there(store)}"]


def leave(store: Store) -> None:
    """Close the store, whose folder will not be used again: without the files of the user area, which take long, and as
    if another process were in it still, for which nothing is made ready for a next start."""
    for partition in store.partitions.values():
        partition.unwritten.take()
    store._processes.leaving = lambda: False        # type: ignore[method-assign]
    store.close()


def as_answered(operation: Operation, recording: Recording, found: Picture, answers: int, *, again: bool = False
                ) -> list[str]:
    """Everything answered is there, and of what was under way all or nothing.

    `again`: it was not what was recorded; a mailbox that was made or brought back then has another UIDVALIDITY.
    """
    before = recording.views[answers]
    after = recording.views[min(answers + 1, len(recording.views) - 1)]
    allowed = [before, after, *operation.between(before, after)]
    first = recording.views[0]
    known = found if not again else {name for name, box in first.items() if all(
        each[name].uidvalidity == box.uidvalidity for each in recording.views if name in each)}
    told = [differences(found, each, known) for each in allowed]
    return [] if [] in told else [f"it is neither as answered ({'; '.join(told[0])}) nor as it would have been "
                                  f"({'; '.join(told[1])})"]


def goes_on(store: Store, operation: Operation, found: Picture) -> list[str]:
    """New and known messages can be delivered to all mailboxes, and what was expunged can be brought back."""
    names = [MailboxName.parse(name) for name in found]
    if names:
        deliver(store, PROBES[0], *names, trace=TRACE, ignore_quota=True)
        deliver(store, NEW[0], *names, ignore_quota=True)
        for name in names:
            deletion.undelete_messages(store, store.entry(name))
    wrong = [f"after going on, {finding}" for finding in findings(store, operation)]
    after = view(store)
    for name, box in found.items():
        here = after[name].messages
        if here[:len(box.messages)] != box.messages:
            wrong.append(f"after going on {name} is another: {here[:len(box.messages)]} instead of {box.messages}")
        if len(here) != len(box.messages) + 2 + len(box.expunged):
            wrong.append(f"after going on {name} has {len(here)} messages, had {len(box.messages)}, "
                         f"expunged {len(box.expunged)}")
        if len({message.uid for message in here}) != len(here):
            wrong.append(f"{name}: a UID twice")
    return wrong


def recordings_of_recovery(recording: Recording, some: Iterable[tuple[Image, list[Moment]]]) -> Iterator[Recording]:
    """The store being opened in these states of the disk: what comes of another crash while it recovers from the first.

    Nothing more may get lost, so each has the answers and views of its moment.
    """
    operation = OPERATIONS[recording.name]
    for image, moments in some:
        moment = moments[-1]
        with folder() as root:
            image.write(root)
            recorder = Recorder(root)
            with recorder, small_stores(), standing_still(recording.ended):
                open_store(root, operation.settings).close()
        yield evolve(recording, base=recorder.base, events=recorder.events,
                     first=(moment.answers, moment.views), title=f"recovery from {moment.how} after change "
                     f"{moment.changes} ({moment.last}) of {recording.name}")
