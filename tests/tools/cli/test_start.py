"""What a command loads at its start is what it needs; and a server has loaded it all before anybody waits for it."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.opening import open_store
from store.quota import overview, roots
from tests.support import ROOT
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL, deliver, make_store
from tools.cli import program as cli

LIST = """
import json, sys
from tools.cli import program
assert program.main(sys.argv[1:]) == 0
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
# Loaded where it is used, and for threads, administrators or a start alone: a server may load it later.
LATER = {
    "jwt": "tokens, in a thread", "mboxlist.engine.pages": "a start after an unclean end",
    "store.recovery.environments": "the same",
    "store.recovery": "a start that mends", "store.recovery.startrebuild": "the same",
    "store.mend.lostfigures": "the same", "store.message.arrivaldate": "repairs, in a thread",
    "store.reconstruct": "commands alone", "store.mend.correctionrounds": "the same",
    "filecmp": "who archives the log, in a thread",
}


@pytest.fixture(scope="module")
def mail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = make_store(tmp_path_factory.mktemp("start") / "mail")
    deliver(store, b"Subject: one\r\n\r\none\r\n", "user/alice/INBOX")
    store.close()
    return store.root


def loaded(root: Path, *words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-P", "-c", LIST, *words, "--root", str(root)], capture_output=True,
                          text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_a_recount_of_what_is_right_needs_two_tables_and_no_store(mail: Path) -> None:
    found = loaded(mail, "reconstruct", "--quota", "--check")
    assert "store.quota.sums" in found
    assert not {"numpy", "store.store", "store.partition.partition", "store.tables.state", "mboxlist.table", "logging",
                "shutil"} & found


@pytest.mark.parametrize("words", ["--help", "reconstruct -h", "quota show --help"])
def test_help_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                         words: str) -> None:
    for width in (60, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        assert cli.main(words.split()) == 0
        lines = capsys.readouterr().out.splitlines()
        assert width * 2 // 3 < max(map(len, lines)) < width


@pytest.mark.parametrize("words", ["quota show", "quota show alice", "quota check", "user list", "user show alice"])
def test_who_asks_about_users_and_quota_opens_no_store(mail: Path, words: str) -> None:
    found = loaded(mail, *words.split())
    assert "store.quota.overview" in found
    assert not {"numpy", "store.store", "store.partition.partition", "store.tables.index", "store.userarea.writing",
                "twisted",
                "store.accounts.ldap.ldapsettings", "mboxlist.engine.damage"} & found


@pytest.mark.parametrize("words", ["quota show", "user list", "user show bob", "quota check"])
def test_what_is_told_without_opening_the_store_is_what_is_told_with_it(
        tmp_path: Path, faults: Faults, capsys: pytest.CaptureFixture[str], words: str) -> None:
    store = make_store(tmp_path / "mail")
    roots.set_quota(store, "bob", messages=1)
    deliver(store, b"Subject: one\r\n\r\none\r\n", "user/bob/INBOX")
    store.close()
    said = []
    for opened in (False, True):
        if opened:
            faults.around(overview, "look", lambda *_: None)
        status = cli.main([*words.split(), "--json", "--root", str(store.root)])
        said.append((status, capsys.readouterr()))
    assert said[0] == said[1] and "bob" in said[0][1].out


def test_openblas_makes_no_threads(mail: Path) -> None:
    program = LIST.replace("json.dumps(sorted(sys.modules))", "len(__import__('os').listdir('/proc/self/task'))")
    done = subprocess.run([sys.executable, "-P", "-c", program, "reconstruct", "alice", "--root", str(mail)],
                          capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stderr.splitlines()[-1] == "1"


def test_nothing_is_searched_for_cycles_at_the_end(mail: Path) -> None:
    program = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count()))\n" + LIST
    done = subprocess.run([sys.executable, "-P", "-c", program, "user", "list", "--json", "--root", str(mail)],
                          capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert int(done.stdout.splitlines()[-1]) > 10_000


def test_a_recount_of_what_is_wrong_opens_the_store_and_corrects_it(tmp_path: Path) -> None:
    store = make_store(tmp_path / "mail")
    partition = store.partitions["primary"]
    partition.transact(lambda txn: partition.quotas.charge("bob", 17, 2, txn.handle))
    store.close()
    assert "store.store" in loaded(store.root, "reconstruct", "--quota")
    again = open_store(store.root, SMALL)
    assert (roots.quota(again, "bob").octets, roots.quota(again, "bob").messages) == (0, 0)
    again.close()


def test_a_reconstruct_of_what_is_sound_loads_nothing_that_mends(mail: Path) -> None:
    found = loaded(mail, "reconstruct", "user/alice/INBOX")
    assert not found & {"store.mend.orphans", "store.snapshots.taking",
                        "store.snapshots.snapshotreader", "store.reconstruct.wholestore", "store.check.wholecheck",
                        "store.mailboxes.crosspartition", "store.message.arrivaldate", "idna", "email.utils"}


def late() -> Iterator[tuple[str, str]]:
    """What the store and the list load within functions, and where."""
    for path in sorted([*(ROOT / "store").rglob("*.py"), *(ROOT / "mboxlist").rglob("*.py")]):
        functions = [node for node in ast.walk(ast.parse(path.read_text()))
                     if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in (each for function in functions for each in ast.walk(function)):
            if isinstance(node, ast.Import):
                yield from ((alias.name, path.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module in ("store", "mboxlist"):
                yield from ((f"{node.module}.{alias.name}", path.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module, path.name


def test_a_server_has_loaded_before_it_serves_what_others_load_late() -> None:
    """Else the first user to need it would have the event loop wait for it."""
    names = dict(late())
    assert len(names) > 10 and set(names) >= set(LATER)
    program = "import json, sys, tools.server.worker; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    loaded = json.loads(done.stdout)
    assert {name: where for name, where in names.items() if name not in loaded}.keys() <= LATER.keys()
    assert "twisted.internet.reactor" not in loaded         # the supervisor loads it, and each process has its own
