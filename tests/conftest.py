"""What all tests share: where their files lie, and a store."""

import gc
import logging
import os
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from hypothesis import HealthCheck, settings

from mboxlist.engine.troubles import TROUBLES
from store.check.wholecheck import check
from store.store import Store
from tests.support.faults.planted import Faults
from tests.support.faults.unended import Unended
from tests.support.processes import quick, scheduling
from tests.support.processes.environment import forget_the_host
from tests.support.stores import small
from tests.support.stores.folders import disk_folder, remove_empty_folders
from tests.support.stores.stores import make_store

settings.register_profile("onecopy", deadline=None, suppress_health_check=[HealthCheck.too_slow])   # no test is timed
settings.load_profile("onecopy")

small.make()
forget_the_host()

MEMORY = Path("/dev/shm")
FEW_FOLDERS = pytest.StashKey[quick.FewFolders]()
UMASK = os.umask(0o022)         # of whoever runs the tests
os.umask(UMASK)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A command that an earlier test ran in this process has set another umask. The stores of most tests have few
    folders."""
    os.umask(UMASK)
    small.folders_for(few=item in item.config.stash[FEW_FOLDERS])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Nor is that of a fixture the test's."""
    os.umask(UMASK)


@pytest.fixture(scope="module", autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a command has set in this process (the log's level, what its lines show) is not the next module's."""
    switches = {name: getattr(logging, name) for name in (
        "raiseExceptions", "logThreads", "logMultiprocessing", "_srcfile")}
    levels, factory = _levels(), logging.getLogRecordFactory()
    forms = {each: each.formatter for each in logging.getLogger().handlers}
    yield
    logging.setLogRecordFactory(factory)
    for handler, form in forms.items():
        handler.setFormatter(form)
    for name, value in switches.items():
        setattr(logging, name, value)
    for logger, level in {**dict.fromkeys(_levels(), logging.NOTSET), **levels}.items():
        logger.setLevel(level)


def _levels() -> dict[logging.Logger, int]:
    known = (logging.getLogger(), *logging.Logger.manager.loggerDict.values())
    return {each: each.level for each in known if isinstance(each, logging.Logger) and each.level}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What each of several processes gets, in place of what --dist says."""
    return scheduling.Scheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """For the inner loop: see tests/support/processes/quick.py."""
    parser.addoption("--quick", action="store_true", help="only tests that need no other process and no long loop")


def pytest_configure(config: pytest.Config) -> None:
    """Quick tests are watched; what any test leaves without an end is told."""
    config.pluginmanager.register(Unended())
    if config.getoption("quick"):
        watch = quick.Watch()
        watch.begin()
        config.pluginmanager.register(watch)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What has no quick test is not even read."""
    return True if config.getoption("quick") and quick.is_left_out(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What collecting makes stays to the end: neither then nor in the tests is it searched for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is not quick is left out. What takes longest comes first."""
    if config.getoption("quick"):
        items[:] = [item for item in items if quick.is_quick(item)]
    config.stash[FEW_FOLDERS] = quick.FewFolders(items)
    items.sort(key=lambda item: scheduling.order(item.nodeid))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, in memory where that is to be had: a store has 4,096 folders, and a test one store.

    Tests that need a real disk ask for `disk_path`.
    """
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)
        remove_empty_folders(Path(folder))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A fresh store with the users alice and bob; nothing may be wrong with it in the end."""
    store = make_store(tmp_path / "store")
    yield store
    assert check(store) == []
    store.close()


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """The same as `tmp_path`, on a disk."""
    with disk_folder() as folder:
        yield folder


@define
class UnixTime:
    """What `time.time` says."""

    now: float


@pytest.fixture
def unix_time(monkeypatch: pytest.MonkeyPatch) -> UnixTime:
    """The time stands still until the test sets it."""
    clock = UnixTime(time.time())
    monkeypatch.setattr(time, "time", lambda: clock.now)
    return clock


@pytest.fixture(autouse=True)
def no_troubles() -> Iterator[None]:
    """What lasts in one test is not known to the next."""
    yield
    TROUBLES.__init__()  # type: ignore[misc]


@pytest.fixture
def faults() -> Iterator[Faults]:
    """What a test lets go wrong; all is as it was afterwards."""
    with Faults() as planted:
        yield planted
