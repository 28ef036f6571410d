"""The disk of either back end is full from any step of a move on. A step is a transaction, a flush of a log, or a write
of a message that comes. Nothing is lost or doubled, never are both the right one, and once there is room the same
command brings the move to its end.
"""

import contextlib
import errno
from collections.abc import Iterator

import pytest
from attrs import define

from mboxlist.engine.kv import Env
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import interrupted
from store.partition.staged import Staged
from store.store import Store
from store.usermove.sourceside import send
from tests.store.usermove.test_usermove import everything
from tests.store.usermove.test_usermove_crash import fill, hosts_of
from tests.support.faults.planted import Faults
from tests.support.stores.movepair import Line
from tests.support.stores.stores import deliver

pytestmark = pytest.mark.few_folders


@define(eq=False)
class FullDisk:
    """That of one store, from its n-th step on."""

    store: Store
    at: int
    steps: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps >= self.at:
            raise OSError(errno.ENOSPC, "No space left on device")

    @contextlib.contextmanager
    def met(self) -> Iterator[None]:
        """It is full meanwhile."""
        own = {id(self.store.mailboxes.env), *(id(each.env) for each in self.store.partitions.values())}
        folder = str(self.store.root)
        with Faults() as faults:
            faults.before(Env, "begin", lambda env, **_: id(env) in own and self.step())
            faults.before(Env, "flush", lambda env: id(env) in own and self.step())
            faults.before(Staged, "write", lambda staged, *_: str(staged.files.folder).startswith(folder)
                          and self.step())
            yield


def housekeeping(store: Store) -> None:
    """What it does about what was cut off, but for the move."""
    for item in list(store.mailboxes.pending.all()):
        interrupted.finish(store, item)


@pytest.mark.parametrize("which", [0, 1], ids=["the one that a user leaves", "the other one"])
def test_either_disk_is_full_from_any_step_on(ends, which):
    """There and back, with one more step before each time."""
    source, target = ends
    fill(source)
    at, seen = 1, set()
    while True:
        deliver(source, b"Subject: new %d\r\n\r\nx\r\n" % at, "user/alice/INBOX")     # so that there is a file to send
        wanted = everything(source)
        disk = FullDisk((source, target)[which], at)
        line = Line(target, source.settings.host)
        refused = None
        with disk.met():
            try:
                send(source, "alice", target.settings.host, line.connect, tries=0)
            except StoreError as error:
                refused = error
            line.ended()
        hosts = hosts_of(source, target)
        assert sum(hosts) <= 1 and (sum(hosts) == 1 or source.mailboxes.moves.find("alice") is not None)
        if disk.steps < at:
            assert refused is None and hosts == [False, True]
            break
        assert refused is not None, disk.steps
        assert refused.problem in (Problem.DISK_FULL, Problem.UNAVAILABLE)
        seen.add((tuple(hosts), refused.problem))
        for store in ends:
            housekeeping(store)
        if hosts[0]:
            assert everything(source) == wanted
            deliver(source, b"Subject: late %d\r\n\r\nx\r\n" % at, "user/alice/INBOX")
            wanted = everything(source)
        assert [str(each) for each in (*check(source), *check(target))] == []
        if hosts != [False, True] or source.mailboxes.moves.find("alice") is not None:
            send(source, "alice", target.settings.host, line.connect)
            line.ended()
        assert hosts_of(source, target) == [False, True] and everything(target) == wanted
        assert source.names("alice") == [] and not [*source.mailboxes.moves.all(), *target.mailboxes.moves.all()]
        assert [str(each) for each in (*check(source), *check(target))] == []
        source, target, at = target, source, at + 1
    assert at > 20 and {(True, False), (False, True)} <= {hosts for hosts, _ in seen}
    assert which or ((False, False), Problem.DISK_FULL) in seen         # gone, and there is no room to say so
