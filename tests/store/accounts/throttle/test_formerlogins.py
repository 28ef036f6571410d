"""Where users have logged in from before: known to all processes, and after a restart of the server."""

import os
import stat

import pytest

from store.accounts.throttle.formerlogins import LIFETIME, REFRESH, FormerLogins
from store.accounts.throttle.loginmemory import LoginMemory, Part

HERE, THERE = "192.0.2.1", "198.51.100.1"


@pytest.fixture
def former():
    return known()


def known(memory=None, now=(1e9,)):
    made = FormerLogins.at(memory or LoginMemory.private())
    made.clock = lambda: now[0]
    return made


def test_all_processes_know():
    memory = LoginMemory.shared()
    one, two = known(memory), known(memory)
    one.add(HERE, "alice")
    assert two.has(HERE, "alice")
    assert not two.has(THERE, "alice") and not two.has(HERE, "bob") and not two.has("", "alice")
    os.close(memory.handle)


def test_a_restart_of_the_server(former, tmp_path):
    file = tmp_path / "former"
    assert not former.save(file)                    # nothing has happened
    former.add(HERE, "alice")
    former.add(THERE, "bob")
    assert former.save(file) and not former.save(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and [path.name for path in tmp_path.iterdir()] == ["former"]
    later = known()
    later.load(file)
    assert later.has(HERE, "alice") and later.has(THERE, "bob") and not later.has(HERE, "bob")
    later.add(HERE, "bob")
    later.load(file)                                # the processes have started again
    assert later.has(HERE, "bob")
    octets = file.read_bytes()
    assert b"alice" not in octets and HERE.encode() not in octets


@pytest.mark.parametrize("octets", [b"", b"x" * 7, b"x" * 400, b"onecopy logins 1", b"onecopy logins 1" + b"k" * 41])
def test_a_file_that_is_none(former, tmp_path, octets):
    (tmp_path / "former").write_bytes(octets)
    former.load(tmp_path / "former")
    former.load(tmp_path / "none")
    former.add(HERE, "alice")
    assert former.has(HERE, "alice") and former.save(tmp_path / "former")


def test_the_file_is_not_written_through_a_link(former, tmp_path):
    (tmp_path / "else").write_text("kept")
    (tmp_path / "former.new").symlink_to(tmp_path / "else")
    (tmp_path / "former").symlink_to(tmp_path / "else")
    former.add(HERE, "alice")
    former.save(tmp_path / "former")
    assert (tmp_path / "else").read_text() == "kept" and not (tmp_path / "former").is_symlink()


def test_it_goes_with_time():
    now = [1e9]
    former = known(now=now)
    former.add(HERE, "alice")
    now[0] += REFRESH
    former.add(HERE, "alice")
    now[0] += LIFETIME - 1
    assert former.has(HERE, "alice")
    now[0] += 2
    assert not former.has(HERE, "alice")


def test_a_pair_is_written_once_an_hour(former):
    former.add(HERE, "alice")
    before = bytes(former._octets)
    former.add(HERE, "alice")
    assert bytes(former._octets) == before


def test_memory_is_bounded(former):
    for number in range(40_000):
        former.add(f"place{number}", "alice")
    assert len(former._octets) == Part.FORMER.octets
    assert sum(former.has(f"place{number}", "alice") for number in range(40_000)) > 39_900
