"""Two processes work on the same mailboxes at the same time, as fast as they can, while a third one reads.

Each writes down what it did, and after which MODSEQ of each mailbox. There must be one order in which all of it, done
one after the other on a dictionary, gives what each was answered and what is in the mailboxes in the end.
"""

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.mailboxes import namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.store import Store
from store.tables.state import Mailbox
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge
from tests.support.stores.stores import SMALL, deliver, make_store

WRITERS = 2
OPERATIONS = 500            # of each writer
NAMES = ("INBOX", "Archive")
WORDS = ("a", "b", "c", "d", "e", "f")
_context = multiprocessing.get_context("fork")

Message = tuple[bytes, Flag, frozenset[str]]


@frozen
class Done:
    """What was asked, what was answered, and where in the history of each mailbox: after which MODSEQ, and whether the
    mailbox was changed."""

    what: str
    arguments: tuple[Any, ...]
    answer: Any
    places: dict[str, tuple[int, bool]]


def entries_of(store: Store) -> dict[str, MailboxEntry]:
    return {name: store.entry(MailboxName("alice", name)) for name in NAMES}


def note_places(partition: Partition, into: dict[int, tuple[int, bool]]) -> None:
    """Have each transaction on the partition note the MODSEQs of the mailboxes that it locked."""
    plain = partition.transact

    def transact(work: Callable[[WriteTxn], Any], *, seconds: float | None = None) -> Any:
        def noted(txn: WriteTxn) -> Any:
            into.clear()
            state = txn.state

            def looked_at(mailbox: Any) -> Any:
                found = state(mailbox)
                into.setdefault(mailbox, (found.highestmodseq, False))
                return found

            txn.state = looked_at                   # type: ignore[method-assign]
            result = work(txn)
            into.update({change.mailbox: (change.before, True) for change in txn.changes()})
            return result
        return plain(noted, seconds=seconds)

    partition.transact = transact                   # type: ignore[method-assign, assignment]


class Writer:
    """One of the two."""

    def __init__(self, root: Path, number: int) -> None:
        self.store = open_store(root, SMALL)
        self.entries = entries_of(self.store)
        self.names = {entry.id: name for name, entry in self.entries.items()}
        self.random = random.Random(number)
        self.number = number
        self.done: list[Done] = []
        self.views: dict[str, Mailbox] = {}
        self.places: dict[int, tuple[int, bool]] = {}
        note_places(self.store.partitions["primary"], self.places)

    def run(self) -> list[Done]:
        """All that was done."""
        works = [self.deliver, self.deliver, self.change, self.change, self.expunge, self.copy, self.purge]
        for _ in range(OPERATIONS):
            self.random.choice(works)(self.random.choice(NAMES))
        self.store.close()
        return self.done

    def do(self, what: str, arguments: tuple[Any, ...], work: Callable[[], Any]) -> None:
        """As every caller of the store does, try again when it is busy."""
        self.places.clear()
        while True:
            try:
                answer = work()
                break
            except StoreError as refusal:
                answer = refusal.problem
                if answer is not Problem.BUSY:
                    break
        self.done.append(Done(what, arguments, answer, {
            self.names[mailbox]: place for mailbox, place in self.places.items()}))

    def some(self, name: str) -> list[int]:
        """Some UIDs of a view brought up to date, which must be what there is, whoever of the two changed what."""
        fresh = self.store.open_mailbox(self.entries[name])
        kept = self.views[name] = self.store.refresh(self.views.get(name, fresh))
        if kept.state.highestmodseq == fresh.state.highestmodseq:
            assert kept.rows.tobytes() == fresh.rows.tobytes(), "a refreshed picture is not what there is"
        uids = kept.rows["uid"].tolist()
        return sorted(self.random.sample(uids, min(len(uids), self.random.randint(1, 5))))

    def deliver(self, name: str) -> None:
        body = b"Subject: %d\r\n\r\n" % self.random.randint(1, 80)
        flags = Flags(Flag(self.random.choice([0, 1, 8])), (self.random.choice(WORDS),))

        def work() -> list[int]:
            staged = self.store.stage(self.entries[name])
            staged.write(body)
            outcomes = offload.now(durable.deliver(self.store, staged, [
                Target(self.entries[each], flags) for each in NAMES]))
            for outcome in outcomes:
                if isinstance(outcome, StoreError):
                    raise outcome
            return [outcome.uid for outcome in outcomes if not isinstance(outcome, StoreError)]

        self.do("deliver", (body, flags), work)

    def change(self, name: str) -> None:
        action = self.random.choice(list(FlagAction))
        flags = Flags(Flag(self.random.choice([1, 4, 8, 16])), (self.random.choice(WORDS),))
        uids = self.some(name)
        self.do("change", (name, uids, action, flags),
                lambda: change_flags(self.store, self.entries[name], uids, action, flags).tolist())

    def expunge(self, name: str) -> None:
        uids = self.random.choice([None, self.some(name)])
        self.do("expunge", (name, uids), lambda: expunge(self.store, self.entries[name], uids))

    def copy(self, name: str) -> None:
        other, uids, move = self.random.choice(NAMES), self.some(name), self.random.choice([True, False])
        self.do("copy", (name, other, uids, move), lambda: copy_messages(
            self.store, self.entries[name], self.entries[other], uids, remove=move))

    def purge(self, name: str) -> None:
        """What has no references goes at once, while others may deliver the same content."""
        purge(self.store.partitions["primary"], time.time() + SMALL.purge_delay + 2)


class Reader:
    """Looks at the mailboxes, one view after the other, each brought up to date from the last."""

    def __init__(self, root: Path) -> None:
        self.store = open_store(root, SMALL)
        self.entries = entries_of(self.store)
        self.views: dict[str, Mailbox] = {}
        self.seen: dict[str, set[int]] = {name: set() for name in NAMES}
        self.looked = 0

    def look(self) -> None:
        for name, entry in self.entries.items():
            old = self.views.get(name)
            new = self.store.open_mailbox(entry) if old is None else self.store.refresh(old)
            self.views[name] = new
            uids = new.rows["uid"].astype(np.int64)
            assert (np.diff(uids) > 0).all(), "UIDs do not ascend"
            assert not len(uids) or uids[-1] < new.state.uidnext
            assert not len(uids) or int(new.rows["modseq"].max()) <= new.state.highestmodseq
            assert new.state.messages == len(uids)
            if old is not None:
                assert new.state.highestmodseq >= old.state.highestmodseq
                arrived = set(uids.tolist()) - set(old.rows["uid"].tolist())
                assert not arrived & self.seen[name], "a UID came back"
                assert min(arrived, default=old.state.uidnext) >= old.state.uidnext, "a UID came late"
            self.seen[name] |= set(uids.tolist())
            self.looked += old is not new
            if len(new.rows):
                self.read(entry, new)

    def read(self, entry: MailboxEntry, view: Mailbox) -> None:
        """The newest message can be read, unless it is gone by now."""
        row = view.rows[-1]
        try:
            with self.store.open_message(entry, row) as file:
                assert file.read(0, file.size).startswith(b"Subject: ")
        except StoreError:
            assert self.store.open_mailbox(entry).row(int(row["uid"])) is None, "a message has no file"


def write(root: Path, number: int, start: Any, pipe: Connection) -> None:
    writer = Writer(root, number)
    start.wait()
    pipe.send(writer.run())


def read(root: Path, start: Any, pipe: Connection) -> None:
    reader = Reader(root)
    start.wait()
    while not pipe.poll():
        reader.look()
    reader.look()
    reader.store.close()
    pipe.send(reader.looked)


class History:
    """The mailboxes as dictionaries, and what was done to them."""

    def __init__(self, highest: dict[str, int], logs: list[list[Done]]) -> None:
        self.looks = Counter((name, place) for log in logs for done in log
                             for name, (place, changed) in done.places.items() if not changed)
        self.boxes: dict[str, dict[int, Message]] = {name: {} for name in NAMES}
        self.modseqs: dict[str, dict[int, int]] = {name: {} for name in NAMES}
        self.uidnext = dict.fromkeys(NAMES, 1)
        self.highest = highest

    def is_next(self, done: Done) -> bool:
        """Whether nothing comes before it: who looked at a mailbox at a MODSEQ comes before who changed it then."""
        return all(self.highest[name] == place and not (changed and self.looks[name, place])
                   for name, (place, changed) in done.places.items())

    def replay(self, done: Done) -> None:
        """Do it to the dictionaries."""
        before = {name: dict(box) for name, box in self.boxes.items()}
        assert getattr(self, done.what)(*done.arguments) == done.answer, done
        for name, (_, changed) in done.places.items():
            assert changed == (self.boxes[name] != before[name]), f"{done}: {name}"
            self.highest[name] += changed
            self.modseqs[name].update({uid: self.highest[name] for uid, message in self.boxes[name].items()
                                       if message != before[name].get(uid)})
        self.looks.subtract((name, place) for name, (place, changed) in done.places.items() if not changed)

    def add(self, name: str, message: Message) -> int:
        uid = self.uidnext[name]
        self.uidnext[name] += 1
        self.boxes[name][uid] = message
        return uid

    def deliver(self, body: bytes, flags: Flags) -> list[int]:
        return [self.add(name, (body, flags.system, frozenset(flags.keywords))) for name in NAMES]

    def change(self, name: str, uids: list[int], action: FlagAction, flags: Flags) -> list[int]:
        box, words = self.boxes[name], frozenset(flags.keywords)
        for uid in set(uids) & box.keys():
            body, old, had = box[uid]
            box[uid] = body, *{FlagAction.ADD: (old | flags.system, had | words),
                               FlagAction.REMOVE: (old & ~flags.system, had - words),
                               FlagAction.REPLACE: (flags.system, words)}[action]
        return sorted(set(uids) - box.keys())

    def expunge(self, name: str, uids: list[int] | None) -> list[int]:
        box = self.boxes[name]
        gone = [uid for uid in sorted(box) if box[uid][1] & Flag.DELETED and (uids is None or uid in uids)]
        for uid in gone:
            del box[uid]
        return gone

    def copy(self, name: str, other: str, uids: list[int], move: bool) -> list[int] | Problem:
        if not set(uids) <= self.boxes[name].keys():
            return Problem.GONE
        new = [self.add(other, self.boxes[name][uid]) for uid in uids]
        for uid in uids if move else ():
            del self.boxes[name][uid]
        return new


def answer(process: BaseProcess, pipe: Connection) -> Any:
    """What the process sends before its end."""
    wait([pipe, process.sentinel], timeout=300)
    assert pipe.poll(), "the process ended before it was done, or hangs"
    return pipe.recv()


@pytest.mark.long
def test_all_that_was_done_is_as_if_done_in_turn(tmp_path):
    root = tmp_path / "store"
    store = make_store(root)
    namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    flags = Flags(Flag(0), WORDS)                   # Archive has its keywords in another order than INBOX will have
    deliver(store, b"Subject: first\r\n\r\n", "user/alice/Archive", flags=flags)
    highest = {name: store.status(entry).highestmodseq for name, entry in entries_of(store).items()}
    store.close()                                   # none is open where processes fork
    start = _context.Barrier(WRITERS + 1)
    pipes = [_context.Pipe() for _ in range(WRITERS + 1)]
    works = [_context.Process(target=write, args=(root, number, start, pipes[number][1]), daemon=True)
             for number in range(WRITERS)]
    works.append(_context.Process(target=read, args=(root, start, pipes[-1][1]), daemon=True))
    try:
        for process in works:
            process.start()
        left = [answer(process, pipe) for process, (pipe, _) in zip(works[:WRITERS], pipes, strict=False)]
        pipes[-1][0].send("enough")
        assert answer(works[-1], pipes[-1][0]) > 0, "the reader saw nothing new"
    finally:
        for process in works:
            process.kill()
            process.join()

    history = History(highest, left)
    history.add("Archive", (b"Subject: first\r\n\r\n", flags.system, frozenset(WORDS)))
    history.modseqs["Archive"][1] = highest["Archive"]
    while any(left):
        ready = next((done for done in left if done and history.is_next(done[0])), None)
        assert ready is not None, f"nothing of {[done[0] for done in left if done]} can be next: {history.highest}"
        history.replay(ready.pop(0))

    store = open_store(root, SMALL)
    for name, entry in entries_of(store).items():
        view = store.open_mailbox(entry)
        found = {}
        for row in view.rows:
            with store.open_message(entry, row) as file:
                found[int(row["uid"])] = (file.read(0, file.size), Flag(int(row["flags"])),
                                          frozenset(view.keyword_names(int(row["keywords"]))))
        assert found == history.boxes[name]
        assert {int(row["uid"]): int(row["modseq"]) for row in view.rows} == {
            uid: history.modseqs[name][uid] for uid in found}
        assert (view.state.uidnext, view.state.highestmodseq) == (history.uidnext[name], history.highest[name])
    assert check(store) == []
    store.close()
