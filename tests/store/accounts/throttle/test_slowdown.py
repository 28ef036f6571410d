"""Failed logins slow the next ones down: of all processes together, and nobody who is known where he is."""

import os
import threading
from contextlib import contextmanager
from itertools import count

import pytest

from store.accounts.throttle.failurecounts import ADDRESS, NETWORK, PAIR, USER, Count, FailureCounts, Name
from store.accounts.throttle.formerlogins import FormerLogins
from store.accounts.throttle.loginmemory import LoginMemory, Part
from store.accounts.throttle.slowdown import NOWHERE, Place, Scale, SlowDown
from store.errors import Problem, StoreError
from store.values import Secret

SCALE = Scale(first=1.0, longest=30.0, half_life=600.0, free_of_address=5, free_of_user=3, free_of_network=20)
HERE, THERE = "192.0.2.1", "198.51.100.1"
NEAR = "192.0.2.99"                 # another address of the network of HERE
REFUSED = -1


class Clocked(SlowDown):
    """One process; those that share `memory` and `now` are one server."""

    def __init__(self, scale=SCALE, memory=None, now=None):
        self.now = now or [1000.0]
        self.passwords = count()
        super().__init__(scale, memory or LoginMemory.private(), lambda: self.now[0])

    def guess(self, address=HERE, user="alice", password=None):
        """A login that fails; how long it waited, or REFUSED."""
        try:
            turn = self.take(Place.of(address) if address else NOWHERE, user)
        except StoreError as error:
            assert error.problem is Problem.LIMIT
            return REFUSED
        self.now[0] += turn.wait
        self.failed(turn, Secret(b"%d" % next(self.passwords) if password is None else password))
        return round(turn.wait)

    def right(self, address=HERE, user="alice"):
        """One that is right; how long it waited."""
        turn = self.take(Place.of(address), user)
        self.succeeded(turn, user)
        return round(turn.wait)

    def waits(self, address, user):
        return round(self.delay(Place.of(address) if address else NOWHERE, user))


@pytest.fixture
def slow():
    return Clocked()


@pytest.fixture
def server():
    """Makes processes that share what they know."""
    memory, now = LoginMemory.shared(), [1000.0]
    yield lambda scale=SCALE: Clocked(scale, memory, now)
    os.close(memory.handle)


def test_it_grows_by_user(slow):
    assert [slow.guess(f"203.0.{number}.1") for number in range(10)] == [0, 0, 0, 1, 2, 4, 8, 16, 30, 30]
    assert slow.waits(HERE, "bob") == 0


def test_it_grows_by_address(slow):
    assert [slow.guess(user=f"user{number}") for number in range(12)] == [0] * 5 + [1, 2, 4, 8, 16, 30, 30]
    assert slow.waits(THERE, "user99") == 0


@pytest.mark.parametrize(("peer", "network", "other"), [
    ("192.0.2.%d", "192.0.2.0/24", "192.0.3.1"), ("2001:db8:1:%x::1", "2001:db8:1::/48", "2001:db8:2::1"),
    ("::ffff:192.0.2.%d", "192.0.2.0/24", "192.0.3.1")])
def test_it_grows_by_network(slow, peer, network, other):
    found = [slow.guess(peer % (number + 1), f"user{number}") for number in range(23)]
    assert found == [0] * 20 + [1, 2, 4]
    assert slow.waits(peer % 200, "zoe") == 8 and slow.waits(other, "zoe") == 0
    assert Name(NETWORK, network).text in {row.name for row, _ in slow.rows()}


def test_addresses_of_one_customer_are_one(slow):
    for number in range(5):
        slow.guess(f"2001:db8::{number:x}", f"user{number}")
    assert slow.waits("2001:db8::ffff", "zoe") == 1 and slow.waits("2001:db8:0:1::1", "zoe") == 0


def test_a_crowd_has_a_handful_of_guesses_in_a_minute(server):
    """200 addresses and three processes, each as fast as it can: the finding was 362 guesses in a minute."""
    processes = [server() for _ in range(3)]
    now, end, looked = processes[0].now, 1060.0, 0
    waiting = []
    while now[0] < end:
        for number in range(200):
            try:
                turn = processes[number % 3].take(Place.of(f"203.0.{number}.7"), "alice")
            except StoreError:
                continue
            waiting.append((now[0] + turn.wait, turn, processes[number % 3]))
        waiting.sort(key=lambda each: each[0])
        if waiting and waiting[0][0] <= now[0] + 1:
            when, turn, process = waiting.pop(0)
            now[0] = max(now[0], when)
            looked += now[0] < end
            process.failed(turn, Secret(b"%d" % looked))
        else:
            now[0] += 1
    assert 4 <= looked <= 10, looked
    first_hour = looked
    while now[0] < end + 3600:
        try:
            turn = processes[0].take(Place.of("203.0.113.7"), "alice")
        except StoreError:
            now[0] += 1
            continue
        now[0] += turn.wait
        looked += 1
        processes[0].failed(turn, Secret(b"%d" % looked))
    assert looked - first_hour <= 130               # two a minute


def test_as_many_as_come_at_once_are_no_more_than_one_by_one(slow):
    place = Place.of(THERE)
    turns = [slow.take(place, "alice") for _ in range(7)]
    assert [round(turn.wait) for turn in turns] == [0, 0, 0, 1, 3, 7, 15]
    with pytest.raises(StoreError):
        slow.take(place, "alice")
    for turn in turns:                              # nobody has looked at them
        slow.release(turn)
    assert slow.waits(THERE, "alice") == 0


def test_who_has_waited_elsewhere_waits_for_the_rest_only(slow):
    for _ in range(6):
        slow.guess()
    assert slow.waits(HERE, "alice") == 8
    slow.now[0] += 5
    assert slow.waits(HERE, "alice") == 3
    slow.now[0] += 5
    assert slow.guess() == 0 and slow.waits(HERE, "alice") == 16


def test_it_is_forgotten(slow):
    for number in range(7):
        slow.guess(f"203.0.{number}.1")
    slow.now[0] += 600 * 1.1                        # 7 have become 3.3, and the last one is long ago
    assert slow.waits(THERE, "alice") == 0 and slow.guess(THERE) == 0
    assert slow.waits(THERE, "alice") == 2
    slow.now[0] += 1e6
    assert slow.guess(THERE) == slow.guess(THERE) == 0 and not slow.waits(THERE, "alice")


def test_who_is_known_somewhere(slow):
    """What strangers do slows nobody down where he has logged in from, nor in its network; his own failures do."""
    slow.right(HERE, "alice")
    for number in range(50):
        slow.guess(THERE, "alice")
        slow.guess(HERE, f"user{number}")
        slow.now[0] += 30
    assert slow.waits(HERE, "alice") == slow.waits(NEAR, "alice") == 0
    assert slow.waits(HERE, "bob") == 30 or slow.guess(HERE, "bob") >= 0 and slow.waits(HERE, "bob") == 30
    for _ in range(4):
        slow.guess(HERE, "alice")
    assert slow.waits(HERE, "alice") == 2 and slow.waits(NEAR, "alice") == 0
    assert slow.right(HERE, "alice") == 2
    assert slow.waits(HERE, "alice") == 0           # and success makes up for what the two have failed together


def test_a_guest_in_the_network_is_slowed_down(slow):
    slow.right(HERE, "alice")
    assert [slow.guess(NEAR, "alice") for _ in range(6)] == [0, 0, 0, 1, 2, 4]
    assert slow.waits(HERE, "alice") == 0


def test_the_owner_never_waits_for_a_crowd(server):
    one, two = server(), server()
    two.right(HERE, "alice")
    for number in range(300):
        one.guess(f"203.0.{number % 250}.9", "alice")
    assert two.right(HERE, "alice") == 0 and two.right(NEAR, "alice") == 0


def test_an_address_that_does_not_count(slow):
    for _ in range(9):
        slow.guess("", "alice")
    assert slow.waits("", "alice") == 30 and slow.waits("", "bob") == 0


def test_the_same_wrong_password_again_is_no_guess(server):
    """A device that was forgotten when the password was changed; it says how many guesses there were, too."""
    phone, other = server(), server()
    for process in (phone, other) * 10:
        assert process.guess(THERE, password=b"the old one") == 0
    assert phone.waits(THERE, "alice") == 0
    assert [phone.guess(THERE) for _ in range(4)] == [0, 0, 1, 2]
    turn = phone.take(Place.of("203.0.113.1"), "bob")
    assert phone.failed(turn, Secret(b"the old one"))       # another user's is one


def test_what_cannot_be_told_from_others_counts(slow):
    for _ in range(4):                              # SCRAM: the proof is another one each time
        turn = slow.take(Place.of(THERE), "alice")
        slow.now[0] += turn.wait
        assert slow.failed(turn, None)
    assert slow.waits(THERE, "alice") == 2


def test_no_password_is_in_the_memory():
    memory = LoginMemory.shared()
    slow = Clocked(memory=memory)
    slow.guess(password=b"a wrong one that was typed")
    held = os.pread(memory.handle, 1 << 30, 0)
    assert any(held) and b"wrong one" not in held and b"alice" in held      # names are, for administrators
    os.close(memory.handle)


def test_processes_that_start_again_know_what_was(server):
    one = server()
    one.right(HERE, "bob")
    for number in range(6):
        one.guess(f"203.0.{number}.1")
    del one
    assert server().waits(THERE, "alice") == 8
    assert server().knows(Place.of(HERE), "bob") and not server().knows(Place.of(THERE), "bob")


def test_memory_is_bounded_and_who_failed_often_is_not_displaced(slow):
    for number in range(8):
        slow.guess(f"203.0.{number}.1", "alice")
    size = slow._counts.memory
    for number in range(60_000):
        slow._counts.put(Name(USER, f"user{number}"), Count(1.0, slow.now[0], slow.now[0]))
    assert slow._counts.memory is size and len(slow.rows()) <= 32_768
    assert slow.waits(THERE, "alice") == 30
    for _ in range(5000):
        slow._counts.put(Name(USER, "zoe"), Count(1e9, slow.now[0], slow.now[0]))
    assert slow.waits(THERE, "zoe") == 30           # and no number is too large for a float


def test_nothing_is_slow_when_told_so():
    slow = Clocked(Scale(first=0))
    assert {slow.guess() for _ in range(100)} == {0} and slow.right() == 0 and slow.rows() == []
    assert slow.waits(HERE, "alice") == 0


def test_turns_and_doubt(slow):
    place = Place.of(HERE)
    assert slow.line(place, "alice") == (HERE, "") and slow.line(NOWHERE, "alice") == ("", "alice")
    first = slow.take(place, "alice")
    assert not first.doubtful
    slow.release(first)
    slow.guess(HERE, "bob")
    turn = slow.take(place, "alice")
    assert turn.doubtful
    slow.succeeded(turn, "alice")
    assert not slow.take(place, "alice").doubtful and slow.line(place, "alice") == (HERE, "alice")
    slow.guess("", "carol")
    assert slow.take(NOWHERE, "carol").doubtful and not slow.take(NOWHERE, "dora").doubtful


def test_administrators_see_and_clear(slow):
    slow.right(HERE, "bob")
    for user in ("alice", "alice", "alice", "bob"):
        slow.guess(HERE, user)
    rows = {(row.kind, row.name): (round(row.count.weight), round(wait)) for row, wait in slow.rows()}
    assert rows == {(USER, "alice"): (3, 1), (ADDRESS, HERE): (3, 0), (NETWORK, "192.0.2.0/24"): (3, 0),
                    (PAIR, f"{HERE} bob"): (1, 0)}
    slow.clear(USER, "alice")
    assert slow.waits(HERE, "alice") == 0 and (USER, "alice") not in {(row.kind, row.name) for row, _ in slow.rows()}
    slow.clear(USER, "nobody")
    assert len(slow.rows()) == 3


def test_a_name_of_any_length_and_octets(slow):
    for user in ("ü" * 500, "a\udcff", "x\0y", " "):
        slow.guess(THERE, user)
    assert len(slow.rows()) == 6


def test_a_process_that_holds_the_lock_for_ever_keeps_nobody_out():
    """It may be stopped in a debugger, in the middle of a change."""
    memory = LoginMemory.shared()
    slow = Clocked(memory=memory)
    into, out = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        slow.memory._lock(2)
        os.write(into[1], b"x")
        os.read(out[0], 1)
        os._exit(0)
    os.read(into[0], 1)
    done = threading.Thread(target=slow.guess, daemon=True)
    done.start()
    done.join(180)
    assert not done.is_alive() and slow.rows()
    os.write(out[1], b"x")
    os.waitpid(child, 0)
    for end in (*into, *out, memory.handle):
        os.close(end)


def test_what_is_remembered_changes_under_its_lock_only(slow, faults):
    """Else what another process counts at that moment would be lost."""
    held, changed = [], []

    @contextmanager
    def locked(real, self, part):
        with real(self, part):
            held.append(part)
            yield
            held.remove(part)

    faults.around(LoginMemory, "locked", locked)
    faults.before(FailureCounts, "put", lambda *_: changed.append(held == [Part.FAILURES]))
    faults.before(FormerLogins, "_put", lambda *_: changed.append(held == [Part.FORMER]))
    slow.right()
    slow.guess(password=b"wrong")
    slow.guess(password=b"wrong")
    slow.right(THERE, "bob")
    slow.clear(PAIR, f"{HERE} alice")
    assert len(changed) > 8 and all(changed)
