"""Who has a store open: one server, any number of others, and what a killed process leaves is no obstacle."""

import os
import signal
import subprocess
import sys

import pytest

from store.errors import Problem, StoreError
from store.store import Store
from tests.support.stores import SMALL, make_store

HOLD = """
import sys
from pathlib import Path
from store.store import Store
from tests.support.stores import SMALL
store = Store(Path(sys.argv[1]), SMALL, server=True)
print("open", flush=True)
sys.stdin.read()
"""


def test_one_server_and_its_pid(tmp_path):
    make_store(tmp_path / "store").close()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "store")], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, cwd=os.getcwd()) as server:
        assert server.stdout.readline() == b"open\n"
        with pytest.raises(StoreError) as refused:
            Store(tmp_path / "store", SMALL, server=True)
        assert refused.value.problem is Problem.STORE_IN_USE and str(server.pid) in refused.value.public
        beside = Store(tmp_path / "store", SMALL)           # a tool may come in
        epoch = beside.partitions["primary"].epoch
        beside.close()
        server.send_signal(signal.SIGKILL)
        server.wait()
    again = Store(tmp_path / "store", SMALL, server=True)
    assert again.partitions["primary"].epoch == epoch + 1   # the end was unclean, and has been counted
    again.close()


def test_no_store(tmp_path):
    with pytest.raises(StoreError) as refused:
        Store(tmp_path / "nothing", SMALL)
    assert refused.value.problem is Problem.NO_STORE


def test_a_store_is_not_made_over_another(tmp_path):
    make_store(tmp_path / "store").close()
    with pytest.raises(StoreError) as refused:
        Store.make(tmp_path / "store")
    assert refused.value.problem is Problem.STORE_IN_USE
