"""`pytest --quick`: the tests that need no other process and no long loop.

Left out are whole folders (FOLDERS); tests that name what starts a process, they themselves, a fixture of theirs, or
what of tests/ they call; those marked `long` by hand; and functions of tests that a run has measured (MEASURED): one
case of theirs takes more than LONG seconds of the processor. A quick test that starts a process fails; one that takes
long is named at the end, as a line for that file. So what is run goes by what is written, never by the machine.
"""

import multiprocessing.process
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from attrs import define, field

from tests.support import ROOT

FOLDERS = ("interop", "crash", "tools/spark")       # of tests/
SHARED = ("imap", "pop3", "lmtp")                   # of tests/: one store for all of a folder's
EVERY_TESTS = "tests.conftest"                      # the module with the fixtures of every test
STARTING = ("subprocess", "multiprocessing", "concurrent.futures.process")
FORKS = {"fork", "forkpty", "posix_spawn", "system"}        # of os
EVENTS = {"subprocess.Popen", *(f"os.{name}" for name in FORKS)}
LONG = 0.2
MEASURED = ROOT / "tests/data/long_tests.txt"
CPU = "seconds of the processor"

Wrapper = Generator[None, object, object]


def is_left_out(path: Any) -> bool:
    """Whether it is, or is in, a folder without a quick test."""
    return any(path.is_relative_to(ROOT / "tests" / folder) for folder in FOLDERS)


def is_quick(item: pytest.Item) -> bool:
    """Whether it needs no process, and takes no time worth mentioning."""
    return needs_no_process(item) and function_of(item.nodeid) not in measured()


def function_of(nodeid: str) -> str:
    """All cases of a test: its name without parameters."""
    return nodeid.partition("[")[0]


@cache
def measured() -> frozenset[str]:
    """The functions of tests that take long, as a run has found."""
    return frozenset(MEASURED.read_text().split())


def needs_no_process(item: pytest.Item) -> bool:
    """Whether it is not marked `long`, and names nothing that starts a process."""
    fixtures = [each[-1].func for each in item._fixtureinfo.name2fixturedefs.values()]      # type: ignore[attr-defined]
    return not item.get_closest_marker("long") and not any(map(starts, (item.function, *fixtures)))     # type: ignore[attr-defined]


class FewFolders:
    """The tests in whose stores folders of message files are made when they are needed: those that need no process,
    those of a folder that has one store for all, and those that are marked. The others have all folders from the
    beginning, as what is installed. What has a fixture that is shared goes by all tests of its module."""

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        self._tests: dict[Path, list[pytest.Item]] = {}
        for item in items:
            self._tests.setdefault(item.path, []).append(item)
        self._modules: dict[Path, bool] = {}

    def __contains__(self, item: pytest.Item) -> bool:
        path = item.path
        if path not in self._modules:
            self._modules[path] = not is_left_out(path) and (
                any(path.is_relative_to(ROOT / "tests" / folder) for folder in SHARED)
                or all(_has_few(test) for test in self._tests[path]))
        return self._modules[path] or not is_left_out(path) and _has_few(item) and not _shares(item)


def _has_few(item: pytest.Item) -> bool:
    return not item.get_closest_marker("all_folders") and (
        needs_no_process(item) or item.get_closest_marker("few_folders") is not None)


def _shares(item: pytest.Item) -> bool:
    """Whether it has a fixture of ours that other tests have, too; those that each test has make no store."""
    return any(each[-1].scope != "function" and _is_ours(each[-1].func) and _module(each[-1].func) != EVERY_TESTS
               for each in item._fixtureinfo.name2fixturedefs.values())     # type: ignore[attr-defined]


@cache
def starts(what: object) -> bool:
    """Whether a function or class names what starts a process, or calls something of tests/ that does."""
    seen, due = {id(what)}, [what]
    while due:
        for name in _named(due.pop()):
            if isinstance(name, str):
                return True
            if id(name) not in seen:
                seen.add(id(name))
                due.append(name)
    return False


def _named(what: object) -> "list[object]":
    """The functions and classes of tests/ that it names; a str for what starts a process."""
    if isinstance(what, type):
        return [function for kind in what.__mro__ if _is_ours(kind) for function in _functions(kind)]
    found = _innermost(what)
    return _names_of(found) if isinstance(found, FunctionType) else []


def _functions(kind: type) -> Iterator[object]:
    for value in vars(kind).values():
        for each in (value, *(getattr(value, inner, None) for inner in ("__func__", "fget", "function"))):
            if isinstance(each, FunctionType):
                yield each


def _innermost(what: object) -> object:
    """Without its decorators."""
    what = unwrap(what)     # type: ignore[arg-type]
    return getattr(getattr(what, "hypothesis", None), "inner_test", what)


def _names_of(function: FunctionType) -> list[object]:
    names, found = set(_names_in(function.__code__)), list[object]()
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for name in names:
        value = cells[name].cell_contents if name in cells else function.__globals__.get(name)
        if isinstance(value, ModuleType) and value.__name__.startswith("tests."):
            found += [getattr(value, each) for each in names if hasattr(value, each)]
        elif _module(value).startswith(STARTING) or value is os and names & FORKS:
            found.append(name)
        elif _is_ours(value):
            plain = isinstance(value, FunctionType | type) or hasattr(value, "__wrapped__")
            found.append(value if plain else type(value))
    return found


def _names_in(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _module(value: object) -> str:
    return value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))


def _is_ours(value: object) -> bool:
    return _module(value).startswith("tests.")


@define(eq=False)
class Watch:
    """Sees to it that quick tests are quick."""

    _running: bool = False
    _started: list[str] = field(factory=list)
    _long: dict[str, float] = field(factory=dict)

    def begin(self) -> None:
        """There is no end to it: the interpreter forgets no hook."""
        def started(event: str, _: object) -> None:
            if self._running and event in EVENTS:
                self._started.append(event)

        start = multiprocessing.process.BaseProcess.start

        def start_noted(process: Any) -> None:
            started("os.fork", ())
            start(process)

        sys.addaudithook(started)
        multiprocessing.process.BaseProcess.start = start_noted        # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Wrapper:
        """What fixtures start counts, too."""
        return (yield from self._watched())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Wrapper:
        """The time is that of the test itself: what a fixture takes is shared by others."""
        before = os.times()
        try:
            return (yield from self._watched())
        finally:
            item.user_properties.append((CPU, sum(os.times()[:4]) - sum(before[:4])))

    def _watched(self) -> Wrapper:
        self._running, self._started = True, []
        try:
            result = yield
        finally:
            self._running = False
        assert not self._started, f"a quick test starts a process ({self._started[0]}): mark it `long`"
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Where there are several processes, this is that of the report."""
        taken = dict(report.user_properties).get(CPU, 0.0)
        if report.when == "call" and taken > LONG:      # type: ignore[operator]
            name = function_of(report.nodeid)
            self._long[name] = max(taken, self._long.get(name, 0.0))        # type: ignore[call-overload]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """For those that are long by measure."""
        if self._long:
            terminalreporter.section(f"tests that took more than {LONG} s: lines for {MEASURED.relative_to(ROOT)}")
            for name in sorted(self._long):
                terminalreporter.write_line(name)
