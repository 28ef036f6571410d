"""What `--quick` leaves out and what the whole run begins with are names of tests: they are there."""

import ast

import pytest

from tests.support import ROOT
from tests.support.processes import quick, scheduling


def functions(file: str) -> set[str]:
    """Names of the tests of a file, as pytest tells them."""
    found = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            name = getattr(each, "name", "")
            found.add(f"{file}::{node.name}::{name}" if isinstance(node, ast.ClassDef) else f"{file}::{name}")
    return found


@pytest.mark.parametrize("file", sorted({name.partition("::")[0] for name in quick.measured()}))
def test_long_tests(file: str) -> None:
    """A state machine's class gets its test from Hypothesis."""
    named = {name for name in quick.measured() if name.startswith(f"{file}::")}
    assert {name for name in named if not name.endswith("::runTest")} <= functions(file)


def test_the_longest_files() -> None:
    for scope in scheduling.LONGEST:
        assert (ROOT / scope).is_file() or scope.removeprefix(scheduling.SPARK) in scheduling.SESSIONS, scope


def test_the_order() -> None:
    first, second, third, last = (scheduling.order(f"tests/{name}") for name in (
        "tools/spark/test_engines.py::test_x[local[2]]", "tools/spark/test_fleet.py::test_y[cluster-1]",
        "crash/test_power.py::test_z[local[2]]", "store/test_acl.py::test_a"))
    assert first < second < third < last
