"""Either back end dies at any step of a move; whichever it is, nothing is lost or doubled, and never are both the right
one. A step is a transaction, a flush of a log, or a message to the other side; the process dies before or behind it.

What a killed process leaves is what the databases' logs have on disk; see `reopen_after_crash`.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import define, field

from mboxlist.engine.kv import Env
from mboxlist.names import MailboxName
from store import hosting
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import namespace, subscribing
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.store import Store
from store.usermove import sourceside, targetside
from store.usermove.messageformat import Wire
from store.usermove.sourceside import send
from store.values import Flag, FlagAction, Flags
from tests.store.usermove.test_usermove import everything
from tests.support.faults.planted import Faults
from tests.support.stores.movepair import ONE, TWO, Killed, Line, make_two, two_back_ends
from tests.support.stores.stores import deliver, reopen_after_crash

pytestmark = pytest.mark.few_folders
INBOX = MailboxName("alice", "INBOX")


@define(eq=False)
class Death:
    """Kills one of the stores at its n-th step. From then on nothing that it does has any effect."""

    store: Store
    at: int
    steps: int = 0
    dead: bool = False
    names: list[str] = field(factory=list)

    def step(self, name: str) -> None:
        """It comes to a step; it dies there, or it is dead. Raises Killed."""
        if not self.dead:
            self.steps += 1
            self.names.append(name)
            self.dead = self.steps == self.at
        if self.dead:
            raise Killed


@define(eq=False)
class Watched:
    """Our end of a connection: what goes over it is a step of ours."""

    wire: Wire
    death: Death | None

    def read(self, count: int) -> bytes:
        return self.wire.read(count)

    def write(self, data: bytes) -> None:
        if self.death is not None:
            self.death.step("say")
        self.wire.write(data)

    def limit(self, seconds: float) -> None:
        self.wire.limit(seconds)

    def close(self) -> None:
        self.wire.close()


@contextlib.contextmanager
def watched(death: Death) -> Iterator[None]:
    """Every transaction and flush of that store is a step."""
    own = {id(death.store.mailboxes.env), *(id(each.env) for each in death.store.partitions.values())}
    with Faults() as faults:
        faults.before(Env, "begin", lambda env, **_: id(env) in own and death.step("transaction"))
        faults.before(Env, "flush", lambda env: id(env) in own and death.step("flush"))
        yield


def fill(store: Store) -> None:
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\nx\r\n" % number, "user/alice/INBOX", "user/bob/INBOX")
    namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    change_flags(store, store.entry(INBOX), [2], FlagAction.ADD, Flags(Flag.SEEN, ("later",)))
    remove(store, store.entry(INBOX), [1])
    subscribing.subscribe(store, "alice", "Archive")
    for partition in store.partitions.values():
        partition.flush()
    store.mailboxes.env.flush()


def hosts_of(one: Store, two: Store) -> list[bool]:
    """Whether each of them says that alice is there."""
    found = []
    for store in (one, two):
        account = store.directory.find("alice")
        found.append(account is not None and hosting.is_here(store, account))
    return found


def play(folder: Path, which: int, at: int) -> tuple[list[str], bool]:
    """One move in which that store dies at that step; the steps until then, and whether it died."""
    stores = list(make_two(folder))
    try:
        fill(stores[0])
        wanted = everything(stores[0])
        death = Death(stores[which], at)
        line = Line(stores[1], ONE, lambda wire: Watched(wire, death if which == 0 else None))
        with watched(death), contextlib.suppress(Killed, StoreError):
            send(stores[0], "alice", TWO, line.connect, tries=0)
        line.ended()
        assert sum(hosts_of(*stores)) <= 1
        if death.dead:
            for partition in stores[which].partitions.values():
                partition.unwritten.changed.clear()         # who is killed writes no store.idx
            stores[which] = reopen_after_crash(stores[which])
        go_on(*stores, wanted)
    finally:
        for store in stores:
            store.close()
    return death.names, death.dead


def go_on(one: Store, two: Store, wanted: dict) -> None:
    """After a death: never are both the right one; the same again brings the move to its end; and alice comes back."""
    here, there = hosts_of(one, two)
    assert not (here and there)
    cut_off = one.mailboxes.moves.find("alice") is not None
    assert here or there or cut_off             # one of them has the user, or knows how to go on
    if here:
        deliver(one, b"Subject: late\r\n\r\nx\r\n", "user/alice/INBOX")
        wanted = everything(one)
    assert [str(each) for each in (*check(one), *check(two))] == []
    line = Line(two, ONE)
    if here or cut_off:
        send(one, "alice", TWO, line.connect)
    line.ended()
    assert hosts_of(one, two) == [False, True]
    assert _without_epoch(everything(two)) == _without_epoch(wanted)
    assert one.names("alice") == [] and list(one.mailboxes.moves.all()) == []
    assert [str(each) for each in (*check(one), *check(two))] == []
    line = Line(one, TWO)                       # what waits there for the purge is no hindrance
    send(two, "alice", ONE, line.connect)
    line.ended()
    assert _without_epoch(everything(one)) == _without_epoch(wanted)


def _without_epoch(found: dict) -> dict:
    """An unclean end has UIDNEXT and HIGHESTMODSEQ skip ahead."""
    return {**found, "mailboxes": {name: (*values[:5], *values[8:]) for name, values in found["mailboxes"].items()}}


EVERY = os.environ.get("MOVE_CRASHES") == "all"


@pytest.mark.long
@pytest.mark.parametrize(("which", "first", "each"), [(0, 26, 3), (1, 25, 1)],
                         ids=["the one that a user leaves", "the other one"])
def test_either_side_dies_at_any_step(tmp_path, which, first, each):
    """From `first` on, which is shortly before the copy is `ready`, some; MOVE_CRASHES=all tries all."""
    at, died = 1 if EVERY else first, True
    while died:
        folder = tmp_path / str(at)
        folder.mkdir()
        steps, died = play(folder, which, at)
        shutil.rmtree(folder)
        assert len(steps) == at or not died
        at += 1 if EVERY else each
    assert at > first + 6 and {"flush", "transaction"} <= set(steps)


def test_when_the_other_one_has_lost_the_copy_ours_stays(tmp_path, faults):
    with two_back_ends(tmp_path) as (one, two):
        fill(one)
        wanted = everything(one)
        line = Line(two, ONE)
        faults.around(sourceside, "finish", lambda *_: None)
        send(one, "alice", TWO, line.connect)
        line.ended()                            # or the other one may still be at it
        faults.mend()
        targetside.drop(two, "alice", one.mailboxes.moves.find("alice").id, ONE)
        with pytest.raises(StoreError) as refused:
            send(one, "alice", TWO, line.connect)
        line.ended()
        assert refused.value.problem is Problem.GONE
        assert everything(one)["mailboxes"] == wanted["mailboxes"]
        assert hosts_of(one, two) == [False, False]
