"""tools/bench scaling: a short run on a real server, and what is told of what has grown."""

import subprocess
import sys
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.opening import make_empty_store, open_store
from tests.support.stores.stores import SMALL
from tools.benchmarks.compare import scaling
from tools.benchmarks.compare.curves import curves
from tools.benchmarks.compare.dimensions import DIMENSIONS, Dimension, make_store

pytestmark = pytest.mark.long


def test_what_has_grown_is_marked_unless_it_must() -> None:
    costs = {1: {"a": 10.0, "b": 10.0, "c": 10.0, "d": 0.0}, 10: {"a": 14.9, "b": 16.0, "c": 16.0, "d": 1.0}}
    dimension = Dimension("Things", (1, 10), lambda place, value: costs[value], ["c"])
    assert scaling.table(dimension, costs) == [
        "| us of CPU | 1 | 10 | times |", "| --- | ---: | ---: | ---: |",
        "| a | 10.0 | 14.9 | 1.49 |", "| b | 10.0 | 16.0 | **1.60** |", "| c | 10.0 | 16.0 | 1.60 |",
        "| d | 0.00 | 1.00 | 0.00 |"]


def test_the_chart_has_a_line_for_each_operation() -> None:
    svg = curves("Things", "us", (1, 10, 100), {"a": [10.0, 10.0, 10.0], "b & c": [10.0, 100.0, 1000.0]})
    flat, steep = (line for line in svg.splitlines() if line.startswith("<polyline"))
    assert {point.split(",")[1] for point in flat.split('"')[1].split()} == {"280.0"}
    assert [point.split(",")[1] for point in steep.split('"')[1].split()] == ["280.0", "196.7", "113.3"]
    assert "b &amp; c" in svg


def test_a_short_run(tmp_path: Path) -> None:
    """Each operation has a figure, and nothing is left."""
    place, page = tmp_path / "place", tmp_path / "speed.md"
    place.mkdir()
    done = subprocess.run([sys.executable, "-P", "-m", "tools.benchmarks.compare.scaling", "--only", "workers",
                           "--most", "1", "--dir", str(place), "--out", str(page)],
                          capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    assert rows[0] == ["us of CPU", "1", "times"]
    assert [row[0] for row in rows[2:4]] == ["delivery to one of the users", "LOGIN, SELECT INBOX, LOGOUT"]
    assert len(rows) == 10
    assert all(float(row[1].replace(",", "")) > 0 for row in rows[2:])
    assert (tmp_path / "speed/scaling-workers.svg").read_text().startswith("<svg")
    assert list(place.iterdir()) == []


def test_users_and_a_mailbox_are_made(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_empty_store(root)
    make_store(root, 5, messages=70, partitions=2)
    store = open_store(root, SMALL)
    try:
        places = [store.entry(MailboxName(f"bench{number:04}", "INBOX")).partition for number in range(5)]
        assert places == ["primary", "p1", "primary", "p1", "primary"]
        large = store.entry(MailboxName("bench0000", "Large"))
        assert len(store.open_mailbox(large).rows) == 70
        assert list(check(store)) == []
    finally:
        store.close()


def test_values_are_as_the_issue_has_them() -> None:
    assert {name: dimension.values[-1] for name, dimension in DIMENSIONS.items()} == {
        "workers": 4, "messages": 1_000_000, "users": 100_000, "connections": 20_000, "partitions": 8}
