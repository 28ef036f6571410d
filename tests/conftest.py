"""What all tests share: where their files lie."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.processes.environment import forget_the_host
from tests.support.stores import small

settings.register_profile("onecopy", deadline=None, suppress_health_check=[HealthCheck.too_slow])   # no test is timed
settings.load_profile("onecopy")

small.make()
forget_the_host()

MEMORY = Path("/dev/shm")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What each of several processes gets, in place of what --dist says."""
    from tests.support.processes.scheduling import Scheduling
    return Scheduling(config, log)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, in memory where that is to be had: a store has 4,096 folders, and a test one store.

    Tests that need a real disk ask for `disk_path`.
    """
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)
        remove_empty_folders(Path(folder))


def remove_empty_folders(folder: Path) -> None:
    """Those of the stores in it, as far as they hold nothing: whoever removes a store looks into each of the 4,096."""
    for messages in folder.glob("*/partitions/*/messages"):
        for number in range(16 * 256):
            try:
                os.rmdir(f"{messages}/{number >> 8:x}/{number & 255:02x}")
            except OSError:
                continue


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """The same on a disk."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir="/var/tmp") as folder:
        yield Path(folder)
