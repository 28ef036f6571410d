"""How many crashes and failing calls the tests have been through, said at the end of the run; and a store of several
days."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MEMORY
from tests.crash import harm


class Counts:
    """By kind and operation: calls, different states (or faults), and moments at which these can come."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, tuple[int, int, int]]] = {}

    def add(self, kind: str, name: str, points: int, states: int, moments: int) -> None:
        """A test is through with that."""
        self._counts.setdefault(kind, {})[name] = points, states, moments

    def of(self, kind: str) -> dict[str, tuple[int, int, int]]:
        """Those of one kind, by operation."""
        return self._counts.get(kind, {})

    def lines(self) -> list[str]:
        """For people."""
        lines = []
        for kind, counts in self._counts.items():
            points, states, moments = (sum(each) for each in zip(*counts.values(), strict=True))
            what = f"{states} faults" if kind == "failing calls" else f"{moments} crashes, {states} different states"
            lines.append(f"{kind}: {len(counts)} operations, {points} system calls, {what}")
        return lines


_COUNTS = pytest.StashKey[Counts]()


@pytest.fixture
def counts(request: pytest.FixtureRequest) -> Counts:
    """The counts of this run."""
    return request.config.stash.setdefault(_COUNTS, Counts())


@pytest.fixture(scope="module")
def days(request: pytest.FixtureRequest) -> Iterator[Path]:
    """What `make` of the module makes: a store as it was and as it is."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, harm.small():
        request.module.make(Path(folder))
        yield Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print them."""
    lines = config.stash.get(_COUNTS, Counts()).lines()
    if lines:
        terminalreporter.section("crashes")
        for line in lines:
            terminalreporter.write_line(line)
