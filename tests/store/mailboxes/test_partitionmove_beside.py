"""A user is moved forth and back while, in other processes, mail comes, flags change, messages go, and a session reads.

None of them knows of the moves: each keeps the row of the list that it read at the start.
"""

import contextlib
import multiprocessing
import random
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mboxlist.engine.transact import Deadlock
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.errors import Problem, StoreError
from store.mailboxes import crosspartition, namespace
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partitions import partitionmove, volumes
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.support.stores.stores import SMALL, make_store

MOVES = 5
OLD = 300
INBOX, ARCHIVE, OTHER = MailboxName("alice", "INBOX"), MailboxName("alice", "Archive"), MailboxName("bob", "INBOX")
TRACE = b"Return-Path: <a@example.org>\r\n"
_context = multiprocessing.get_context("fork")


def body(number: int) -> bytes:
    """Each third comes twice, once with trace fields and once without."""
    content = number - number % 3 // 2
    return b"Subject: %d\r\n\r\n" % content + b"x" * (content % 500)


def patiently(work: Any) -> Any:
    while True:
        try:
            return work()
        except StoreError as refusal:
            if refusal.problem is not Problem.BUSY:
                raise


def mail(store: Store, pipe: Connection) -> dict[str, dict[int, bytes]]:
    """Deliver until told to stop: what is in each mailbox, as it was answered."""
    entries = {str(name): store.entry(name) for name in (INBOX, ARCHIVE, OTHER)}
    arrived: dict[str, dict[int, bytes]] = {name: {} for name in entries}
    number = 0
    while not pipe.poll():
        trace = TRACE if number % 2 else b""
        staged = store.stage(entries[random.choice(list(entries))], trace)
        staged.write(body(number))
        outcomes = offload.now(durable.deliver(store, staged, [Target(entry) for entry in entries.values()]))
        for name, outcome in zip(entries, outcomes, strict=True):
            assert isinstance(outcome, Delivered), outcome
            assert outcome.uid > max(arrived[name], default=0)
            arrived[name][outcome.uid] = body(number)
        number += 1
    return arrived


def change(store: Store, pipe: Connection) -> tuple[dict[int, int], list[int], list[tuple[int, int]]]:
    """Set flags, expunge, and copy to another user and back, until told to stop: the flags that messages must have, the
    UIDs that went, and the copies."""
    inbox, other = store.entry(INBOX), store.entry(OTHER)
    flags: dict[int, int] = {}
    gone: list[int] = []
    copies: list[tuple[int, int]] = []
    while not pipe.poll():
        uids = store.open_mailbox(inbox).rows["uid"].tolist()
        if not uids:
            continue
        uid, bits = random.choice(uids), random.choice([1, 2, 4, 16])
        what = random.randrange(10)
        if what == 0:
            assert patiently(lambda: remove(store, inbox, [uid])) == [uid]      # noqa: B023
            gone.append(uid)
            flags.pop(uid, None)
        elif what == 1:
            new, = crosspartition.copy(store, inbox, other, [uid])
            copies.append((uid, new))
        else:
            assert not len(patiently(lambda: change_flags(                      # noqa: B023
                store, inbox, [uid], FlagAction.REPLACE, Flags(Flag(bits)))))   # noqa: B023
            flags[uid] = bits
    return flags, gone, copies


def read(store: Store, pipe: Connection) -> None:
    """What an IMAP session does: it looks again and again, and reads what is new. It tells each place that it sees."""
    view = store.open_mailbox(store.entry(INBOX))
    seen: dict[int, bytes] = {}
    pipe.send(view.entry.partition)
    while not pipe.poll():
        new = store.refresh(view)
        uids = new.rows["uid"].astype(np.int64)
        assert (np.diff(uids) > 0).all() and len(uids) == new.state.messages
        assert new.state.highestmodseq >= view.state.highestmodseq
        if new.entry.partition != view.entry.partition:
            pipe.send(new.entry.partition)
        view = new
        for row in new.rows[-3:]:
            try:
                with store.open_message(view.entry, row) as file:
                    octets = file.read(0, file.size)
            except StoreError:
                assert store.refresh(view).row(int(row["uid"])) is None
                continue
            assert seen.setdefault(int(row["uid"]), octets) == octets


def run(root: Path, work: Any, pipe: Connection) -> None:
    store = open_store(root, SMALL)
    result = work(store, pipe)
    store.close()
    pipe.send(result)


def answer(process: Any, pipe: Connection) -> Any:
    wait([pipe, process.sentinel], timeout=300)
    assert pipe.poll(), "the process ended before it was done, or hangs"
    return pipe.recv()


@pytest.mark.long
def test_nothing_is_lost_and_nothing_comes_twice(tmp_path):
    root = tmp_path / "store"
    store = make_store(root)
    namespace.create_mailbox(store, ARCHIVE)
    volumes.add(store, "second")
    inbox = store.entry(INBOX)
    for number in range(OLD):
        staged = store.stage(inbox)
        staged.write(b"Subject: old %d\r\n\r\n" % number)
        offload.now(durable.deliver(store, staged, [Target(inbox)]))
    store.close()                                   # none is open where processes fork
    pipes = [_context.Pipe() for _ in range(3)]
    processes = [_context.Process(target=run, args=(root, work, pipe), daemon=True)
                 for work, (_, pipe) in zip((mail, change, read), pipes, strict=True)]
    try:
        for process in processes:
            process.start()
        store = open_store(root, SMALL)
        reader = processes[-1], pipes[-1][0]
        assert answer(*reader) == "primary"
        for turn in range(MOVES):
            partitionmove.move_owner(store, "alice", place := "second" if turn % 2 == 0 else "primary")
            assert answer(*reader) == place
        with contextlib.suppress(Deadlock):         # it may not get to hold everything still beside all this
            assert check(store) == []
        for pipe, _ in pipes:
            pipe.send("enough")
        arrived, (flags, gone, copies), _ = [
            answer(process, pipe) for process, (pipe, _) in zip(processes, pipes, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.join()
    found = {str(each): contents(store, each) for each in (INBOX, ARCHIVE, OTHER)}
    old = {uid: b"Subject: old %d\r\n\r\n" % (uid - 1) for uid in range(1, OLD + 1)}
    expected = {name: dict(box) for name, box in arrived.items()}
    expected[str(INBOX)] |= old
    expected[str(OTHER)] |= {new: expected[str(INBOX)][uid] for uid, new in copies}
    for uid in gone:
        del expected[str(INBOX)][uid]
    for each, box in found.items():
        assert {uid: octets.removeprefix(TRACE) for uid, (octets, _) in box.items()} == expected[each]
    assert {uid: bits for uid, (_, bits) in found[str(INBOX)].items() if bits} == flags
    assert check(store) == []
    store.close()


def contents(store: Store, name: MailboxName) -> dict[int, tuple[bytes, int]]:
    mailbox = store.open_mailbox(store.entry(name))
    found = {}
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found[int(row["uid"])] = file.read(0, file.size), int(row["flags"])
    return found
