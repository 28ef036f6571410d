"""The lock of a maildrop, in one process and over several (RFC 1939 §4)."""

import os
import subprocess
import sys

import pytest

from pop3.maildrop import MaildropLocks
from store.errors import Problem, StoreError

OTHER = """
import sys
from pathlib import Path
from pop3.maildrop import MaildropLocks
locks = MaildropLocks(Path(sys.argv[1]))        # an object that is no more holds nothing
print(locks.take(int(sys.argv[2])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "run" / "pop3.lock"


def other_process(file, mailbox):
    process = subprocess.Popen([sys.executable, "-c", OTHER, file, str(mailbox)], stdin=subprocess.PIPE, text=True,
                               stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    return process, process.stdout.readline().strip() == "True"


def test_one_session_a_maildrop(file):
    locks, others = MaildropLocks(file), MaildropLocks(file)
    assert locks.take(7) and not locks.take(7) and not others.take(7)
    assert others.take(8) and not locks.take(8)
    locks.release(7)
    assert others.take(7)
    others.close()
    assert locks.take(7) and locks.take(8)
    locks.close()


def test_other_processes_are_kept_out_until_theirs_dies(file):
    locks = MaildropLocks(file)
    assert locks.take(1)
    process, taken = other_process(file, 1)
    assert not taken
    process.communicate()
    process, taken = other_process(file, 2)
    assert taken and not locks.take(2)
    process.kill()
    process.communicate()
    assert locks.take(2)
    locks.close()


def test_a_lock_file_that_cannot_be_made(tmp_path):
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(StoreError) as refused:
        MaildropLocks(tmp_path / "run" / "pop3.lock").take(1)
    assert refused.value.problem is Problem.UNAVAILABLE
