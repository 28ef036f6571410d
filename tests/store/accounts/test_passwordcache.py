"""A password that one process found right need not be hashed by the others, and nobody can make it so."""

import os
from pathlib import Path

import pytest

from store.accounts.passwordcache import VerifiedPasswords
from store.accounts.throttle import sharedcache
from store.accounts.throttle.loginmemory import LoginMemory, Part
from store.accounts.throttle.sharedcache import Remembered
from store.values import Secret
from tests.support.stores.stores import HASH, make_store

PASSWORD = Secret(b"secret")


@pytest.fixture
def place():
    memory = LoginMemory.shared()
    yield memory
    os.close(memory.handle)


def process(place, now):
    verified = VerifiedPasswords(lambda: now[0])
    shared = Remembered.at(place)
    shared.clock = lambda: now[0]
    verified.share(shared)
    return verified


def test_what_one_has_found_all_know_for_a_time(place):
    now = [1000.0]
    one, two = process(place, now), process(place, now)
    one.add("alice", PASSWORD, "hash")
    assert ("alice", PASSWORD, "hash") in two
    for other in (("alice", Secret(b"Secret"), "hash"), ("bob", PASSWORD, "hash"), ("alice", PASSWORD, "changed")):
        assert other not in two
    two.lifetime = 0                    # login.remember_time is 0 from now on
    assert ("alice", PASSWORD, "hash") not in two
    two.lifetime = 300
    now[0] += 301
    assert ("alice", PASSWORD, "hash") not in two and ("alice", PASSWORD, "hash") not in one
    two.lifetime = 0
    two.add("bob", PASSWORD, "hash")
    assert ("bob", PASSWORD, "hash") not in one


def test_another_start_of_the_server_knows_nothing(place):
    now = [1000.0]
    process(place, now).add("alice", PASSWORD, "hash")
    other = LoginMemory(place.handle, "00" * 32)
    assert ("alice", PASSWORD, "hash") not in process(other, now)


@pytest.mark.parametrize("at", range(sharedcache._PLACE.size))
def test_a_place_that_is_half_written_says_nothing(place, at):
    """Whatever octet of it is another: also one that makes it hold longer."""
    now = [1000.0]
    verified = process(place, now)
    verified._shared.add(digest := verified._digest("alice", PASSWORD, "hash"), 300)
    assert digest in verified._shared
    where = verified._shared._at(digest) + at
    verified._shared._memory[where] ^= 1
    assert digest not in verified._shared


def test_neither_password_nor_digest_is_in_the_memory(place):
    verified = process(place, [1000.0])
    verified.add("alice", PASSWORD, "hash")
    held = os.pread(place.handle, 1 << 30, 0)
    assert any(held) and b"secret" not in held and verified._digest("alice", PASSWORD, "hash") not in held


def test_the_parts_of_the_memory_are_apart(place):
    process(place, [1000.0]).add("alice", PASSWORD, "hash")
    assert [part for part in Part if any(bytes(place.map(part)))] == [Part.RIGHT]


def test_a_changed_password_or_status_counts_at_once(tmp_path: Path, place):
    store, now = make_store(tmp_path / "one"), [1000.0]
    store.directory._verified = process(place, now)
    other = process(place, now)
    user = store.directory.user("alice")
    other.add("alice", PASSWORD, user.password)
    assert store.directory.remembers("alice", PASSWORD) is not None
    store.directory.change("alice", password_hash=HASH.replace(HASH[-6:-2], "AAAA"))
    assert store.directory.remembers("alice", PASSWORD) is None
    store.directory.remove("alice")
    assert store.directory.remembers("alice", PASSWORD) is None
    store.close()
