"""What all tests share: where their files lie."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("onecopy", deadline=None, suppress_health_check=[HealthCheck.too_slow])   # no test is timed
settings.load_profile("onecopy")

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, in memory where that is to be had: a store has 4,096 folders, and a test one store.

    Tests that need a real disk ask for `disk_path`.
    """
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """The same on a disk."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir="/var/tmp") as folder:
        yield Path(folder)
