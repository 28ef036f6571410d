"""Folders to work in end with their process, also with one that is killed: the next process, or the next start of the
store, removes what it has left, and nothing of those who are at work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from store.filelock import SCRATCH, scratch, sweep, temporary
from store.opening import open_store
from tests.support import ROOT
from tests.support.stores.stores import SMALL, make_store

AT_WORK = """
import sys
from pathlib import Path
from store.filelock import scratch
with scratch(Path(sys.argv[1]), "plan") as folder:
    (folder / "below").mkdir()
    (folder / "below" / "file").write_text("much")
    print(folder, flush=True)
    sys.stdin.read()
"""


def at_work(parent: Path) -> "tuple[subprocess.Popen[str], Path]":
    process = subprocess.Popen([sys.executable, "-c", AT_WORK, parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_it_goes_with_the_block(tmp_path: Path) -> None:
    with scratch(tmp_path, "plan") as folder:
        (folder / "file").write_text("x")
        assert folder.parent == tmp_path / SCRATCH and folder.stat().st_mode & 0o777 == 0o700
        with scratch(tmp_path, "plan") as other:
            assert other != folder and folder.exists()
        sweep(tmp_path)
        assert folder.exists() and not other.exists()
    with pytest.raises(KeyError), scratch(tmp_path, "plan"):
        raise KeyError
    assert not list((tmp_path / SCRATCH).iterdir())


def test_the_next_one_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    dead, left = at_work(tmp_path)
    living, busy = at_work(tmp_path)
    killed(dead)
    assert (left / "below" / "file").exists()
    with scratch(tmp_path, "recover") as folder:
        assert sorted((tmp_path / SCRATCH).iterdir()) == sorted([busy, folder])
    killed(living)


def test_a_start_of_the_store_removes_it_and_what_earlier_versions_left(tmp_path: Path) -> None:
    store = make_store(tmp_path / "mail")
    store.close()
    dead, left = at_work(store.root)
    killed(dead)
    for name in (".plan-abc", ".recover-abc"):
        (store.root / name / "below").mkdir(parents=True)
    open_store(store.root, SMALL).close()
    assert not left.exists() and not list(store.root.glob(".plan-*")) and not list(store.root.glob(".recover-*"))


def test_where_there_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary("restore") as folder:
        assert folder.parents[1] == tmp_path / f"onecopy-{os.getuid()}"
    own = folder.parents[1]
    own.chmod(0o777)                    # somebody else made it first
    with pytest.raises(PermissionError), temporary("restore"):
        pass
