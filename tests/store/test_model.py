"""The store against plain dictionaries: whatever is done to both, they agree, also after a crash.

Once with one process that does everything, and once with three which take turns in doing and in looking.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.store.model.machine import Machine
from tests.store.model.places import OneProcess, ThreeProcesses

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "10"))


class InOneProcess(Machine):
    """All from this process."""

    place = OneProcess()


class InThreeProcesses(Machine):
    """From three others."""

    place = ThreeProcesses()


@pytest.fixture(scope="module", autouse=True)
def _processes() -> Iterator[None]:
    yield
    InThreeProcesses.place.stop()


TestOneProcess = InOneProcess.TestCase
TestOneProcess.settings = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None,
                                   suppress_health_check=list(HealthCheck))
TestThreeProcesses = InThreeProcesses.TestCase
TestThreeProcesses.settings = settings(TestOneProcess.settings, max_examples=EXAMPLES // 2)
