"""A command that root runs acts as the owner of the store before it opens anything; what does not is named with why.

What the system does is stood in for here, so that it needs no root: tests/interop/test_commands_as_root.py has that.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.opening import make_empty_store
from tests.support.faults.planted import Faults
from tools import storeowner
from tools.cli import program, registry
from tools.exits import Failure
from tools.storeowner import Owner

OWNER = Owner(4321, 8765)

# What each command needs in order to be understood.
WORDS = {
    "audit remove": ["--before", "2020-01"], "token create": ["--role", "auditor"], "token revoke": ["x"],
    "log level": ["imap", "debug"], "transcript": ["192.0.2.1"],
    "access create": ["alice", "--name", "x"], "access revoke": ["alice", "x"], "access reset": ["alice"],
    "outbox show": ["x"], "outbox retry": ["x"], "outbox discard": ["x", "--yes"],
    "user add": ["--password-stdin", "alice"], "user show": ["alice"], "user set": ["alice", "--status", "active"],
    "user rename": ["alice", "bob"], "user remove": ["alice"], "user restore": ["alice"], "user undelete": ["alice"],
    "user move": ["alice", "--to", "primary"], "directory test": ["alice"], "mailbox create": ["alice", "x"],
    "mailbox list": ["alice"], "mailbox info": ["alice", "x"],
    "mailbox status": ["--all"], "batch": ["-"],
    "mailbox metadata": ["alice", "x"], "messages deduplicate": ["--all", "seen"],
    "mailbox rename": ["alice", "x", "y"],
    "mailbox delete": ["alice", "x"], "mailbox acl": ["alice", "x"], "mailbox undelete": ["alice", "x"],
    "deliver": ["alice"], "path": ["alice", "x", "1"], "hashdir": ["alice"], "undelete": ["alice", "x"],
    **dict.fromkeys(("messages search", "messages fetch", "messages flag", "messages expunge"), ["--all", "seen"]),
    **dict.fromkeys(("messages copy", "messages move"), ["--all", "--to", "x", "seen"]), "messages withdraw": ["x"],
    **dict.fromkeys(("sieve list", "sieve show", "sieve activate", "sieve test"), ["alice"]),
    "sieve rename": ["alice", "x", "y"],
    **dict.fromkeys(("sieve get", "sieve put", "sieve delete"), ["alice", "x"]),
    "uidl import": ["alice", "file"], "uidl list": ["alice"], "partition add": ["x"], "partition drain": ["x"],
    "partition remove": ["x"], "partition give-up": ["x"],
    "quota show": ["alice"], "quota set": ["alice", "--octets", "1"],
    "quota remove": ["alice"], "expire set": ["--user", "alice", "file"], "snapshot diff": ["x"],
    "snapshot browse": ["alice"], "snapshot copy": ["alice", "x", "y"],
    **dict.fromkeys(("standby create", "standby rejoin"), ["--from", "x.example.org:4190"]), "standby forget": ["x"],
    "standby copy": ["--to", "x"],
    "snapshot remove": ["x"], "backup": ["--to", "x"], "restore": ["x"],
    "export": ["alice", "--format", "mbox", "--to", "x"], "import mbox": ["alice", "x"],
    "import maildir": ["alice", "x"], "import imap": ["alice", "--host", "x"], "import dovecot": ["alice"],
    "import cyrus": ["alice"], "spark sql": ["SELECT"], "facts export": ["x"],
    "spark generate": ["x", "--messages", "1", "--users", "1"], "explain message": ["--recipient", "alice"],
    "explain access": ["alice", "bob", "x"], "explain quota": ["alice"], "explain login": ["alice"],
    "mailbox subscribe": ["alice", "x"], "mailbox unsubscribe": ["alice", "x"],
}
ACTING = [each for each in registry.COMMANDS if not each.stays_root]


class Becoming(Exception):
    """Somebody else has been become."""


_watched: list[str] | None = None


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _watched is not None and event in ("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename",
                                          "subprocess.Popen", "socket.connect", "os.link"):
        _watched.append(f"{event} {arguments[0] if arguments else ''}")


sys.addaudithook(_watch)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> Iterator[list[str]]:
    """What the program opens as root, until it becomes the owner of a store."""
    global _watched

    def become(_: object, owner: Owner) -> None:
        raise Becoming(owner)

    faults.around(os, "geteuid", lambda _: 0)
    monkeypatch.setattr(Owner, "of", classmethod(lambda cls, folder: OWNER))
    faults.around(Owner, "become", become)
    faults.around(Owner, "become_but_read_as_root", become)
    _watched = []
    yield _watched
    _watched = None


@pytest.mark.parametrize("name", [each.name for each in ACTING])
def test_every_command_acts_as_the_owner_before_it_touches_anything(name: str, touched: list[str], tmp_path: Path
                                                                    ) -> None:
    root = tmp_path / "store"
    invocation = program.parse([*name.split(), *WORDS.get(name, []), "--root", str(root)])
    touched.clear()                             # modules, and the configuration; some modules come later
    with pytest.raises(Becoming) as became:
        program.run(invocation)
    assert became.value.args == (OWNER,)
    assert [each for each in touched if str(tmp_path) in each or not each.startswith(("open ", "os.listdir "))] == []


def test_what_stays_root_says_why() -> None:
    assert {each.name for each in registry.COMMANDS if each.stays_root} == {
        "init", "serve", "standby serve", "check", "config check", "doctor", "man", "completion", "user hash"}
    assert {each.name for each in registry.COMMANDS if each.reads_as_root} == {
        f"import {source}" for source in ("mbox", "maildir", "imap", "dovecot", "cyrus")}


@pytest.mark.parametrize("words", [["check"], ["check", "--json"]])
def test_check_becomes_the_owner_before_it_opens_the_store(words: list[str], touched: list[str], tmp_path: Path
                                                           ) -> None:
    make_empty_store(tmp_path / "store")
    with pytest.raises(Becoming):
        program.run(program.parse([*words, "--root", str(tmp_path / "store")]))


def test_nobody_opens_the_store_as_root(touched: list[str], tmp_path: Path) -> None:
    """Also where the command has stayed root: its place among those inside would be root's, which no server can look
    at."""
    root = tmp_path / "store"
    make_empty_store(root)
    invocation = program.parse(["doctor", "--root", str(root)])
    touched.clear()
    with pytest.raises(Becoming), invocation.store():
        pass
    assert [each for each in touched if str(root) in each] == []


def test_a_store_of_root_stays_one_of_root(monkeypatch: pytest.MonkeyPatch, faults: Faults, tmp_path: Path) -> None:
    faults.around(os, "geteuid", lambda _: 0)
    monkeypatch.setattr(Owner, "of", classmethod(lambda cls, folder: Owner(0, 0)))
    faults.forbid(Owner, "become")
    storeowner.act(tmp_path, "")
    (tmp_path / "mboxlist").mkdir()
    with pytest.raises(Failure, match="belongs to root, and the server runs as nobody"):
        storeowner.act(tmp_path, "nobody")


def test_who_is_refused_hears_as_whom(monkeypatch: pytest.MonkeyPatch, faults: Faults,
                                      capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def refuse(invocation: object) -> int:
        raise PermissionError(13, "Permission denied", str(tmp_path / "file"))

    invocation = program.parse(["stats", "--root", str(tmp_path)])
    invocation.arguments.command = refuse
    faults.around(os, "geteuid", lambda _: 4321)
    for owner, why in ((4321, "this command acts as user 4321, the owner of the store"),
                       (8765, f"{tmp_path} belongs to user 8765: let root or that user do it")):
        monkeypatch.setattr(Owner, "of", classmethod(lambda cls, folder, owner=owner: Owner(owner, 1)))
        assert program.guarded(lambda: program.run(invocation)) == 1
        assert capsys.readouterr().err == f"onecopy: {tmp_path}/file: Permission denied ({why})\n"
