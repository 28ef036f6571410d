"""Pages of docs/reference that are made of tables: each table has all that there is, and nothing else."""

import os
import re
import shutil
import socket
from itertools import product
from pathlib import Path

import pytest

from imap.capabilities import AFTER_LOGIN, BASE, SOMETIMES, capabilities
from mboxlist.names import MailboxName
from store.check import layout
from store.check.wholecheck import check
from store.opening import open_store
from store.snapshots import retention
from store.userarea import writing
from tests.support import ROOT
from tests.support.stores import everyfile, small
from tests.support.stores.stores import deliver, make_store
from tools.reference import extensionpage, filepage, loglinepage

PAGES = ROOT / "docs" / "reference"


# Extensions of IMAP

def test_every_capability_has_its_rfc_and_note() -> None:
    announced = set[str]()
    for logged_in, tls, may, administrator, refers in product((False, True), repeat=5):
        announced |= {name.decode().split("=")[0] if name.startswith((b"AUTH=", b"APPENDLIMIT=", b"IMAPSIEVE="))
                      else name.decode()
                      for name in capabilities(logged_in=logged_in, can_start_tls=tls, may_log_in=may,
                                               append_limit=1000, administrator=administrator, refers=refers,
                                               sieve_url="sieve://example.org", mechanisms=["PLAIN"])}
    assert announced == {name.decode() for name in (*BASE, *AFTER_LOGIN, *SOMETIMES)} == extensionpage.NOTES.keys()


def test_the_readme_names_every_extension() -> None:
    """And nothing else."""
    row = next(line for line in (ROOT / "README.md").read_text().split("\n") if line.startswith("| IMAP |"))
    beside = {"AUTH", "LOGINDISABLED", "QUOTA=RES-MESSAGE", "QUOTA=RES-STORAGE", "RIGHTS=kxte"}    # parts of others
    names = {name.decode() for name in (*BASE, *AFTER_LOGIN, *SOMETIMES)} - beside
    written = set(re.findall(r"[A-Z][^\s,]+", re.sub(r" \([^)]*\)| and ", ",", row.split("|")[2])))
    assert written - {"LOGIN"} == names


# Lines of the log

SOURCE = '''
import logging
log = logging.getLogger(__name__)
_named = logging.getLogger("refused")

def f(other, many):
    log.info("%s: %d messages" if many else "%s: a message", other, 2)
    log.log(other, f"took {other:.3f} s" + ", at last")
    _named.warning("kind=%-4s", 1)
    other.warning("not a line")
    log.exception(other)
'''


def test_lines_are_found_where_they_are_written() -> None:
    assert list(loglinepage.written(SOURCE, "store.try")) == [
        ("store.try", "info", "…: … messages / …: a message"), ("store.try", "log", "took … s, at last"),
        ("refused", "warning", "kind=…"), ("store.try", "exception", "…")]


def test_every_module_that_writes_lines_is_in_the_page() -> None:
    """Looked for in another way than the page was made."""
    text, lines = (PAGES / "log-lines.md").read_text("utf-8"), 0
    for folder in loglinepage.OURS:
        for path in (ROOT / folder).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            source = path.read_text("utf-8")
            found = re.findall(r"^\s+log\.(info|warning|error|critical|exception)\(", source, re.MULTILINE)
            if found and not module.startswith(("tools.benchmarks", "tools.packages")):
                part = text.partition(f"\n## {module}\n")[2].partition("\n## ")[0]
                assert {f"| {level} |" in part for level in found} == {True}, module
                lines += len(found)
    assert lines > 150


# Files

EXAMPLES = {"number": "0000000001", "pid": "17", "time": "20261127T010000Z", "month": "2026-11", "id": "0" * 16,
            "xx": "ab", "x": "a", "serial": "0" * 16, "session": "imap-7b-11-1", "process": "keeper"}
PARTICULAR = {"messages/": {"xx": "bc", "digest": "abc" + "0" * 61}, "access/": {"digest": "0" * 32},
              "run/sessions/": {"digest": "0" * 64}, "run/operations/": {"id": "0" * 32}, "outgoing/": {"id": "0" * 32},
              "audit/": {"serial": "000001"}, "log.": {"number": "0000000001"}, "__db.": {"number": "001"},
              "partitions/": {"name": "primary"}}


def test_the_check_takes_each_file_for_one_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it names what belongs there: `store/check/layout.py`."""
    small.few_folders(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    for _, files in filepage.TITLED:
        for pattern, _ in files:
            words = EXAMPLES | {word: value for part, given in PARTICULAR.items() if part in pattern
                                for word, value in given.items()}
            path = Path("store", re.sub(r"<(\w+)>", lambda word, words=words: words.get(word[1], "name"), pattern))
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.parent.name in ("news", "control", "second"):
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(str(path))
            else:
                path.touch()
    store = tmp_path / "store"
    found = layout.look(store, (os.geteuid(), os.getegid()), access=False)
    assert [finding for finding in found if "the folder is missing" not in str(finding)] == []


def test_run_may_be_deleted_while_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says so."""
    small.few_folders(monkeypatch.setattr)
    store = make_store(tmp_path / "store")
    deliver(store, b"Subject: one\r\n\r\nhello\r\n", "user/alice/INBOX")
    store.close()
    shutil.rmtree(store.root / "run")
    store = open_store(store.root, store.settings)
    assert check(store) == [] and store.status(store.entry(MailboxName("alice", "INBOX"))).messages == 1
    store.close()


def test_every_file_of_a_store_is_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.few_folders(monkeypatch.setattr)
    store = make_store(tmp_path / "store")
    deliver(store, b"Subject: one\r\n\r\nhello\r\n", "user/alice/INBOX", "user/bob/INBOX", trace=b"Received: x\r\n")
    writing.write_changed(store, hurry=True)
    retention.make(store)
    store.close()
    assert everyfile.nowhere_described(store.root) == []
    (store.root / "partitions" / "primary" / "index" / "new").touch()
    (store.root / "other").touch()
    assert everyfile.nowhere_described(store.root) == ["other", "partitions/primary/index/new"]
    (store.root / "partitions" / "primary" / "index" / "new").unlink()
    (store.root / "other").unlink()
    paths = {path.relative_to(store.root).as_posix() for path in store.root.rglob("*") if not path.is_dir()}
    copies = re.compile(r"snapshots/[^/]+/(mboxlist|partitions)/.*")
    assert {path for path in paths if filepage.described(path) is None and not copies.fullmatch(path)} == set()
    tables = {path for path in paths if path.endswith(".db") and not copies.fullmatch(path)}
    described = {pattern.replace("<name>", "primary") for _, files in filepage.TITLED for pattern, _ in files}
    assert tables == {path for path in described if path.endswith(".db")}
    assert filepage.described("mboxlist/other.db") is None is filepage.described("run/other")
