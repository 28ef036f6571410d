"""Sizes are printed in one way by every command of the registry: "2.2 MiB" for people, plain numbers of octets with
--bytes, and always such numbers in JSON; and every size that is printed can be read."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.values import readable, size
from tests.support.processes.program import QUICK
from tools.cli import program, registry
from tools.cli.commandtree import tree

OCTETS = 2_345_678
MESSAGE = b"From: ada@example.org\r\nMessage-Id: <1@example.org>\r\nSubject: large\r\n\r\n"
MESSAGE += b"x" * 70 + b"\r\n"
MESSAGE += (b"y" * 70 + b"\r\n") * ((OCTETS - len(MESSAGE)) // 72)
MESSAGE += b"z" * (OCTETS - len(MESSAGE) - 2) + b"\r\n"

# How each command is called, on the store that is made below; {work} is a folder, {snapshot} the name of one;
# None: it needs a server, another program or Spark.
CALLS = {
    "user list": "",
    "user scram": "", "logins": None,
    "user show": "alice", "user domain": "", "user purge": "--dry-run", "user undelete": "carol",
    "directory status": None, "directory test": None,
    "mailbox list": "alice", "mailbox info": "alice INBOX", "mailbox status": "--all", "mailbox acl": "alice INBOX",
    "mailbox undelete": "alice Old --dry-run", "mailbox subscribe": "alice",
    "mailbox unsubscribe": None, "deliver": "bob", "path": "alice INBOX 1", "hashdir": "alice",
    "undelete": "alice INBOX --list",
    "doctor": None,
    "messages search": "-u alice", "messages fetch": None, "messages flag": "-u alice --add seen --dry-run all",
    "messages copy": "-u alice --to Archive --dry-run all", "messages move": "-u alice --to Archive --dry-run all",
    "messages expunge": "-u alice --dry-run all", "messages withdraw": "1@example.org --dry-run",
    "sieve list": "alice", "sieve show": "alice", "sieve check": "--all", "sieve get": None, "sieve stats": None,
    "sieve test": "alice",
    "purge": "--dry-run", "uidl import": None, "uidl list": "alice", "partition list": "",
    "quota show": "", "quota set": "bob --octets 7654321", "quota remove": None, "quota check": "",
    "quota warn": "--dry-run", "quota sharing": "--by partition", "quota report": None, "expire run": "--all --dry-run",
    "expire rules": "", "expire last": "", "check": "", "scrub": "", "snapshot create": "", "snapshot list": "",
    "snapshot verify": "", "snapshot restore": "--dry-run --exact",
    "snapshot browse": "alice {snapshot} INBOX", "snapshot copy": "alice {snapshot} INBOX --dry-run",
    "snapshot diff": "{snapshot}", "snapshot remove": "{snapshot} --dry-run --force",
    "standby create": None, "standby status": None, "standby promote": None, "standby rejoin": None,
    "standby copy": None,
    "recover": "--dry-run", "reconstruct": "alice --check", "relink": "--check",
    "backup": "--to {work}/made.tar", "restore": "{work}/backup.tar --dry-run",
    "export": "alice --format maildir --to {work}/maildir", "import mbox": "bob {work}/mbox --dry-run",
    "import maildir": "bob {work}/maildir0 --dry-run", "import imap": None, "import dovecot": None,
    "import cyrus": None, "config show": "", "config check": "", "config diff": "", "config reload": None,
    "config certificate": None,
    "connections": None, "status": "",
    "audit show": None, "audit verify": "", "audit head": "", "audit remove": "--before 2020-01 --dry-run",
    "token create": "--role auditor", "token list": "",
    "log level": None, "log levels": None, "transcript": "",
    "access list": "", "access create": "alice --name phone",
    "outbox list": "", "outbox show": None, "outbox retry": None, "outbox discard": None,
    "log show": None, "log errors": None, "dump": "", "batch": None, "user hash": None,
    "mailbox metadata": "alice INBOX",
    "messages deduplicate": "-u alice --dry-run all",
    "stats": "", "explain message": "<1@example.org>", "explain access": "bob alice INBOX",
    "explain quota": "alice", "explain login": "alice --from 192.0.2.1",
    "partition drain": "volume --to primary", "partition give-up": None, "user move": "dora --to volume",
    "spark sharing": None, "spark sql": None, "facts export": None,
    "spark generate": None,
}
# Commands with nothing to print, and those of which others say why (NO_JSON in test_all_commands).
SILENT = {"init", "serve", "drain", "user add", "user set", "user rename", "user remove", "directory flush",
          "mailbox create", "mailbox rename", "mailbox delete", "expire set", "partition add",
          "partition remove", "spark shell", "token revoke", "access revoke", "access reset",
          "sieve put", "sieve activate", "sieve rename", "sieve delete",
          "man", "completion", "standby follow", "standby forget", "standby serve"}
AMOUNT = re.compile(r"\d (?:octets|KiB|MiB|GiB|TiB)\b")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, str]]:
    """Its root, a folder beside it, and a snapshot: large messages here and there, limits, and what was deleted."""
    work = tmp_path_factory.mktemp("sizes")
    root = work / "store"
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {**QUICK, "ONECOPY_STORE_SPECIAL_MAILBOXES": ""}.items():
            patched.setenv(name, value)

        def run(words: str, octets: bytes = b"") -> str:
            (work / "in").write_bytes(octets)
            out = StringIO()
            with (work / "in").open() as stream, pytest.MonkeyPatch.context() as streams, redirect_stderr(out):
                streams.setattr("sys.stdin", stream)
                streams.setattr("sys.stdout", out)
                assert program.main([*words.format(work=work).split(), "--root", str(root)]) in (0, 1), out.getvalue()
            return out.getvalue()

        run("init")
        for user in ("alice", "bob", "carol", "dora"):
            run(f"user add {user} --password-stdin", b"secret\n")
        run("mailbox create alice Old Work")
        run("quota set alice --octets 3000000")
        run("quota set alice/Work --octets 8765432")
        run("quota set @example.org --octets 9876543")
        for words in ("alice carol dora", "alice --mailbox Old", "alice --mailbox Work"):
            run(f"deliver {words}", MESSAGE)
        run("mailbox delete alice Old --yes")
        run("user remove carol --yes")
        run(f"partition add volume --path {work}/volume")
        run("user move dora --to volume")
        made = json.loads(run("snapshot create --json"))["snapshot"]
        run("backup --to {work}/backup.tar")
        run("export alice --format maildir --to {work}/maildir0")
        (work / "mbox").write_bytes(b"From ada@example.org Tue Nov 24 12:00:00 2026\n" + MESSAGE)
        yield root, work, made


NODES = {node.name: node for node in tree().walk()}
RUN = [name for name, arguments in CALLS.items() if arguments is not None]


def flags(name: str) -> set[str]:
    return {word for action in NODES[name].actions for word in action.option_strings}


@pytest.fixture
def said(store: tuple[Path, Path, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
         ) -> Callable[..., str]:
    """Runs a command with the arguments above, and more; what it prints."""
    root, work, made = store
    for name, value in {**QUICK, "ONECOPY_STORE_SPECIAL_MAILBOXES": ""}.items():
        monkeypatch.setenv(name, value)

    def run(name: str, *more: str) -> str:
        arguments = CALLS[name]
        assert arguments is not None
        (work / "made.tar").unlink(missing_ok=True)
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(MESSAGE)))
        words = arguments.format(work=work, snapshot=made).split()
        status = program.main([*name.split(), *words, *more, "--root", str(root)])
        out, error = capsys.readouterr()
        assert status in (0, 1), error
        return out

    return run


def test_every_command_is_called_or_prints_no_data() -> None:
    assert CALLS.keys() | SILENT == {command.name for command in registry.COMMANDS}
    assert not CALLS.keys() & SILENT


def values(found: object, key: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(found, dict):
        for name, value in found.items():
            yield from values(value, name)
    elif isinstance(found, list):
        for value in found:
            yield from values(value, key)
    else:
        yield key, found


@pytest.mark.parametrize("name", RUN)
def test_sizes_have_units_for_people_and_none_for_programs(name: str, said: Callable[..., str]) -> None:
    shown = said(name)
    assert not re.findall(r"(?<![-/.\w])-[12](?![-/.\w])", shown), shown
    if name not in ("config show", "config diff", "path"):      # values as one writes them; paths
        assert not re.findall(r"(?<![-/.:@\w])(?!10000)\d{6,9}(?![-/.:@\w])", shown), shown
        assert "--bytes" in flags(name) or not AMOUNT.search(shown), shown
    if "--bytes" in flags(name):
        assert not AMOUNT.search(said(name, "--bytes"))
    if "--json" in flags(name):
        found = list(values(json.loads(said(name, "--json") or "null")))
        assert not [pair for pair in found if pair[1] in (-1, -2) or
                    (isinstance(pair[1], str) and re.fullmatch(r"[\d.]+ (octets|[KMGT]iB)", pair[1]))]


@given(st.integers(0, 1 << 60))
def test_what_is_printed_can_be_read(octets: int) -> None:
    read = size(readable(octets))
    assert abs(read - octets) <= octets / 10 and readable(read) == readable(octets)


def test_every_size_that_is_given_is_read_in_that_way() -> None:
    found = [(name, action) for name, node in NODES.items() for action in node.actions
             if action.metavar in ("SIZE", "OCTETS")]
    assert len(found) >= 4
    for name, action in found:
        assert action.metavar == "SIZE", name
        assert callable(action.type)
        assert action.type("1.5 GiB") == 3 << 29 and action.type("64M") == 64 << 20
        for wrong in ("-1", "-2", "much"):
            with pytest.raises(Exception, match="not a size"):
                action.type(wrong)
