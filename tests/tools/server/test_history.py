"""tools/server/metrics/history: what the server did in each minute of a day and each hour of a month."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tools.server.metrics import history
from tools.server.metrics.history import HOUR, MINUTE, RINGS, History, grouped, read

NOW = 1_800_000_000 // HOUR * HOUR + 30 * MINUTE        # the middle of an hour
VOLUME = [(600, 400)]


def process(name: str, started: float, delivered: int = 0, logins: int = 0, failed: int = 0, open: int = 0,
            refused: int = 0) -> dict[str, Any]:
    return {"process": name, "pid": 7, "started": started, "failed_logins": failed,
            "mail": {"delivered": delivered, "refused for now": refused, "messages": delivered},
            "servers": {"imap": {"open": open, "logins": logins}, "lmtp": {"connections": 1}}}


def values(rows: Any, *names: str) -> list[tuple[int, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_what_came_since_the_last_minute_is_one_record(tmp_path: Path) -> None:
    made = History(tmp_path / history.FILE, NOW - 1)
    made.take([process("a", NOW, 5, logins=2, open=3), process("b", NOW, 1, refused=4)], VOLUME, NOW)
    made.take([process("a", NOW, 7, failed=1, open=1), process("b", NOW, 1, refused=4)], [(500, 500)], NOW + MINUTE)
    assert values(read(tmp_path, "day", NOW + MINUTE), "time", "delivered", "refused", "logins", "failed", "open",
                  "used", "free") == [(NOW, 6, 4, 2, 0, 3, 400, 600), (NOW + MINUTE, 2, 0, 0, 1, 1, 500, 500)]
    assert values(read(tmp_path, "month", NOW + MINUTE), "time", "delivered", "failed", "open", "used") == [
        (NOW - 30 * MINUTE, 8, 1, 3, 500)]
    status = (tmp_path / history.FILE).stat()
    assert stat.S_IMODE(status.st_mode) == 0o600 and status.st_size < 200_000


def test_it_goes_on_after_a_start_and_counts_nothing_twice(tmp_path: Path) -> None:
    """A process that is new counts from 0; one that has not answered for a while is compared with nothing."""
    History(tmp_path / history.FILE, NOW - 1).take([process("a", NOW, 5)], VOLUME, NOW)
    later = History(tmp_path / history.FILE, NOW + 70)
    later.take([process("a", NOW + 70, 2), process("old", NOW - 9000, 1000)], VOLUME, NOW + 2 * MINUTE)
    later.take([process("a", NOW + 70, 2), process("old", NOW - 9000, 1001)], VOLUME, NOW + 3 * MINUTE)
    assert values(read(tmp_path, "day", NOW + 3 * MINUTE), "time", "delivered") == [
        (NOW, 5), (NOW + 2 * MINUTE, 2), (NOW + 3 * MINUTE, 1)]


def test_what_is_old_is_told_no_more(tmp_path: Path) -> None:
    made = History(tmp_path / history.FILE, NOW - 1)
    made.take([process("a", NOW, 5)], VOLUME, NOW)
    made.take([process("a", NOW, 6)], VOLUME, NOW + 86400)          # the same place in the ring
    assert values(read(tmp_path, "day", NOW + 86400), "time", "delivered") == [(NOW + 86400, 1)]
    assert read(tmp_path, "day", NOW + 3 * 86400) == [] == read(tmp_path, "day", NOW - 1)
    assert values(read(tmp_path, "month", NOW + 86400), "delivered") == [(5,), (1,)]
    assert read(tmp_path, "month", NOW + 32 * 86400) == []


@pytest.mark.parametrize("octets", [b"", b"x" * 100, b"\0" * 200_000])
def test_a_file_of_another_form_is_begun_again(tmp_path: Path, octets: bytes) -> None:
    path = tmp_path / history.FILE
    path.write_bytes(octets)
    assert read(tmp_path, "day", NOW) == [] and read(tmp_path / "none", "day", NOW) == []
    History(path, NOW).take([process("a", NOW, 5)], VOLUME, NOW)
    assert values(read(tmp_path, "day", NOW), "delivered") == [(5,)]


def test_a_damaged_record_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / history.FILE
    made = History(path, NOW - 1)
    made.take([process("a", NOW, 5)], VOLUME, NOW)
    made.take([process("a", NOW, 6)], VOLUME, NOW + MINUTE)
    with path.open("r+b") as file:
        file.seek(history._place("day", NOW // MINUTE % RINGS["day"][1]) + 8)
        file.write(os.urandom(8)[:7] + b"\xff")                     # a negative number, or none
    assert values(read(tmp_path, "day", NOW + MINUTE), "delivered") == [(1,)]


def test_parts_of_the_time_are_summed(tmp_path: Path) -> None:
    made = History(tmp_path / history.FILE, NOW - 1)
    for minute in range(25):
        made.take([process("a", NOW, minute + 1, open=minute)], VOLUME, NOW + minute * MINUTE)
    end = NOW + 24 * MINUTE
    parts = grouped(read(tmp_path, "day", end), "day", end, 144)
    assert len(parts) == 144 and parts[:141] == [None] * 141
    assert values(parts[141:], "delivered", "open") == [(5, 4), (10, 14), (10, 24)]
