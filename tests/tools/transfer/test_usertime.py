"""A server that answers as slowly as it can holds no import for ever: it is left, and the next user has a turn."""

import itertools
import socket
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from store.accounts.base import Account
from store.store import Store
from store.values import Secret
from tests.tools.transfer.test_importmail import Old
from tools.transfer.importjobs import Job, run
from tools.transfer.importmail import Choices
from tools.transfer.servers import pacedreading, scriptserver
from tools.transfer.servers.imapconnection import Connection, Gone, tunnelled
from tools.transfer.servers.pacedreading import PACE_OCTETS, PACE_SECONDS, Pace
from tools.transfer.sourcevalues import Box, Content, Mail, OutOfTime, UserTime, Warn


def ticking(seconds: float) -> Callable[[], float]:
    """A clock by which so much goes by between two looks."""
    looks = itertools.count()
    return lambda: next(looks) * seconds


def test_an_octet_a_minute_is_too_little() -> None:
    """Each is a sign of life; all of them together are none."""
    pace = Pace(UserTime(), ticking(60.0))
    with pytest.raises(TimeoutError, match="only 31 octets came in 1860 s"):
        for _ in range(1000):
            pace.wait(lambda seconds: 1)


def test_a_slow_line_that_brings_mail_is_no_slow_server() -> None:
    pace = Pace(UserTime(), ticking(PACE_SECONDS))
    for _ in range(10):
        assert pace.wait(lambda seconds: PACE_OCTETS) == PACE_OCTETS


@pytest.mark.long
def test_a_program_that_says_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacedreading, "TIMEOUT_SECONDS", 0.01)
    with pytest.raises(Gone, match="says nothing"):
        tunnelled([sys.executable, "-c", "input()"], UserTime())


def test_the_time_of_a_user_ends_a_wait() -> None:
    """Whatever comes: also scripts. It runs from the first look at it."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"* PREAUTH ready\r\n")
        time, now = UserTime(5.0, lambda: now), 100.0
        connection = Connection(ours, time).greeted()
        theirs.sendall(b"* OK Still here\r\n")
        assert next(connection.answers(b"c1")).status == b"OK"
        theirs.sendall(b"* OK Still here\r\n")
        now = 106.0
        with pytest.raises(OutOfTime, match="--user-time"):
            next(connection.answers(b"c1"))
        connection.drop()
    with pytest.raises(OutOfTime):
        scriptserver.scripts("127.0.0.1", 1, None, "alice", Secret(b"x"), "", time)


class Slow(Old):
    """Its second message takes for ever."""

    def __init__(self, time: UserTime) -> None:
        super().__init__()
        self.time, self.hours = time, 0.0
        time.clock = lambda: self.hours * 3600.0
        for number in range(3):
            self.put(b"Message-ID: <%d@example.org>\r\n\r\n" % number)

    def boxes(self) -> Iterator[Box]:
        yield from super().boxes()
        yield Box("Never")

    def read(self, box: Box, mails: Sequence[Mail], warn: Warn) -> Iterator[Content]:
        for content in super().read(box, mails, warn):
            yield content
            self.hours += 13
            self.time.left()

    def close(self) -> None:
        pass


def test_the_next_user_has_a_turn_and_what_has_come_stays(store: Store) -> None:
    """The report names the mailbox, and the others are not tried one after the other. Another run goes on."""
    told: list[str] = []

    def imported() -> list[tuple[str, str, int]]:
        times = [UserTime(86_400.0), UserTime(100 * 86_400.0)]
        jobs = [Job(user, lambda warn, time=time: Slow(time), time)        # type: ignore[misc, return-value, arg-type]
                for user, time in zip(("alice", "bob"), times, strict=True)]
        done = run(store, jobs, _account(store), Choices(subscriptions=False), told.append, lambda *_: None)
        return [(user, result.mailbox, result.here) for user, result in done]

    first = imported()
    assert [(user, name) for user, name, _ in first] == [("alice", "Old"), ("bob", "Old"), ("bob", "Never")]
    assert first[1][2] == 3
    assert any("alice: it has taken 86400 s" in line for line in told)
    assert not any("Never: it has taken" in line for line in told)


def _account(store: Store) -> Callable[[str], Account | None]:
    return store.directory.find
