"""When users may log in again, over several processes (RFC 2449 §6.5)."""

import os
import subprocess
import sys

import pytest

from pop3.logins import Logins
from store.errors import Problem, StoreError

OTHER = """
import sys
from pathlib import Path
from pop3.logins import Logins
Logins(Path(sys.argv[1])).note(7, 1000.5)
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "run" / "pop3.logins"


@pytest.fixture
def logins(file):
    made = Logins(file)
    yield made
    made.close()


def test_a_delay_after_each_login(logins):
    assert logins.wait(7, 1000.0, 60, 0) == 0
    logins.note(7, 1000.0)
    assert logins.wait(7, 1000.0, 60, 0) == 60
    assert logins.wait(7, 1059.5, 60, 0) == 0.5
    assert logins.wait(7, 1060.0, 60, 0) == 0
    assert logins.wait(7, 1000.0, 0, 0) == 0
    assert logins.wait(6, 1000.0, 60, 0) == logins.wait(8, 1000.0, 60, 0) == 0


def test_a_number_of_logins_in_a_minute(logins):
    for moment in (1000.0, 1010.0, 1020.0):
        assert logins.wait(7, moment, 0, 3) == 0
        logins.note(7, moment)
    assert logins.wait(7, 1021.0, 0, 3) == 39
    assert logins.wait(7, 1021.0, 50, 3) == 49          # the longer of the two
    assert logins.wait(7, 1060.0, 0, 3) == 0
    logins.note(7, 1060.0)
    assert logins.wait(7, 1061.0, 0, 3) == 0 and logins.wait(7, 1061.0, 0, 1) == 59


def test_a_clock_that_was_set_back_keeps_nobody_out(logins):
    logins.note(7, 10_000.0)
    assert logins.wait(7, 9_000.0, 60, 1) == 0


def test_another_process_counts_as_well(logins, file):
    subprocess.run([sys.executable, "-c", OTHER, file], check=True,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert logins.wait(7, 1001.0, 60, 1) == 59.5


def test_the_largest_mailbox_id_takes_no_room(logins, file):
    logins.note((1 << 32) - 1, 5.0)
    assert logins.wait((1 << 32) - 1, 5.0, 60, 0) == 60
    assert file.stat().st_blocks * 512 <= 1 << 20


def test_what_cannot_be_written_down_is_no_reason_to_refuse_a_login(tmp_path, caplog):
    (tmp_path / "run").write_text("not a folder")
    logins = Logins(tmp_path / "run" / "pop3.logins")
    logins.note(7, 5.0)
    assert "not counted" in caplog.text
    with pytest.raises(StoreError) as refused:
        logins.wait(7, 5.0, 60, 0)
    assert refused.value.problem is Problem.UNAVAILABLE
