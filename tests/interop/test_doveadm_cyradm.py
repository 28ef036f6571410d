"""docs/doveadm-cyradm.md: every command of ours in it is carried out beside a real server, and what it did is judged;
and no name that the real programs print is missing in it."""

import imaplib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.processes import command
from tests.support.servers.backends import BackEnd
from tests.support.servers.server import PASSWORD
from tools.cli import registry

PAGE = (ROOT / "docs/doveadm-cyradm.md").read_text(encoding="utf-8")
UNPACKED = Path(sys.prefix) / "unpacked"
CYRUS = Path("/usr/lib/cyrus/bin")
FIRST = "From: ada@example.org\r\nSubject: a letter\r\nMessage-ID: <1@example.org>\r\n\r\nHello.\r\n"
SECOND = "From: ada@example.org\r\nSubject: the second\r\nMessage-ID: <2@example.org>\r\n\r\nHello again.\r\n"
LAST = "onecopy drain"      # then no server runs


def table(title: str) -> list[tuple[list[str], list[str], str]]:
    """The rows below a title: their names, our commands, and the remark."""
    part = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in part.splitlines()
            if line.startswith("| `")]
    return [(re.findall(r"`([^`]+)`", row[0]), re.findall(r"`(onecopy [^`]+)`", row[1]), "".join(row[2:]).strip("|"))
            for row in rows]


TABLES = ("doveadm", "cyradm", "Programs of Cyrus")
COMMANDS = [each for title in TABLES for _, ours, _ in table(title) for each in ours]


# What the real programs name

def without(printed: set[str], named: list[str]) -> list[str]:
    """Names that no row has, nor rows with words behind them."""
    return sorted(name for name in printed if not any(each == name or each.startswith(f"{name} ") for each in named))


def test_every_subcommand_of_doveadm_is_there() -> None:
    """Those of its help, and of its manual pages, which the packages of plug-ins bring along."""
    named = [name for names, _, _ in table("doveadm") for name in names]
    printed = set[str]()
    said = subprocess.run(["doveadm", "help"], capture_output=True, text=True, check=False)
    for line in (said.stdout + said.stderr).splitlines():
        if (found := re.match(r" {2}([a-z][\w-]*) *(.*)", line)) is not None:
            below = found[2].split("|") if re.fullmatch(r"[a-z][\w-]*(\|[a-z][\w-]*)*", found[2]) else [""]
            printed |= {f"{found[1]} {each}".strip() for each in below}
    assert len(printed) > 60, "doveadm help says something else"
    covered = {name for name in printed if name.split()[0] in named}        # a row for all of a group
    assert without(printed - covered, named) == []
    pages = {path.name.partition(".")[0].removeprefix("doveadm-") for path in Path("/usr/share/man/man1").glob(
        "doveadm-*.1*")} - {"search-query"}
    assert without({page for page in pages if not {page, page.replace("-", " ")} & {*named}
                    and page.replace("-", " ") not in {name.rpartition(" ")[0] for name in named}}, named) == []


def test_every_command_of_cyradm_is_there() -> None:
    top = UNPACKED / "cyradm/usr"
    if not (top / "bin/cyradm").exists():
        raise AssertionError("cyradm is not unpacked: tools/test does that")
    paths = [top / "share/perl5", *top.glob("lib/*/perl5/*"), *top.glob("lib/*/perl5")]
    said = subprocess.run([top / "bin/cyradm"], input="help\n", capture_output=True, text=True, check=False, env={
        **os.environ, "PERL5LIB": ":".join(map(str, paths))}, timeout=180).stdout.removeprefix("cyradm> ")
    printed = {name for line in said.splitlines() if (found := re.match(r"(\S+(?:, \S+)*) {2,}\w", line)) is not None
               for name in found[1].split(", ")}
    assert {"createmailbox", "cm", "xfermailbox"} <= printed, said
    assert without(printed, [name for names, _, _ in table("cyradm") for name in names]) == []


def test_every_program_of_cyrus_is_there() -> None:
    named = [name for names, _, _ in table("Programs of Cyrus") for name in names]
    printed = {path.name for folder in (CYRUS, UNPACKED / "cyrus/usr/lib/cyrus/bin",
                                        UNPACKED / "cyradm/usr/lib/cyrus/bin") for path in folder.iterdir()}
    assert len(printed) > 50
    assert without(printed, named) == []


def test_each_row_has_a_command_or_a_reason() -> None:
    rows = [row for title in TABLES for row in table(title)]
    assert len(rows) > 100
    assert [names for names, ours, remark in rows if not names or not ours and not remark] == []
    assert {each.split()[1] for each in COMMANDS} - {"--version"} <= {
        name.split()[0] for name in registry.BY_NAME}


# Ours

class Store:
    """A server with users, mail and files, and what commands have printed."""

    def __init__(self, server: BackEnd, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.client = imaplib.IMAP4("127.0.0.1", server.imap)
        self.client.login("bob", PASSWORD)

    def __call__(self, typed: str, octets: str = "") -> tuple[int, str, str]:
        """The status of a command of the page, and what it prints."""
        words = [word.replace("/srv", str(self.folder)) for word in shlex.split(typed)[1:]]
        return command.run_here(words, self.server.environment(), octets.encode())

    def json(self, *words: str) -> Any:
        """Of a command that is only looked with."""
        return json.loads(self.server.command(*words, "--json"))

    def count(self, *words: str) -> int:
        """How many messages that query finds."""
        return len(self.json("messages", "search", *words))

    def names(self, user: str = "alice") -> set[str]:
        """Of a user's mailboxes."""
        return {row["mailbox"] for row in self.json("mailbox", "list", user)}

    def is_connected(self) -> bool:
        """Whether bob's client is."""
        try:
            return self.client.noop()[0] == "OK"
        except (imaplib.IMAP4.abort, OSError):
            return False


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("srv")
    (folder / "commands.txt").write_text("mailbox create alice 'By batch'\n")
    for part in ("cur", "new", "tmp"):
        (folder / "maildir" / part).mkdir(parents=True)
    (folder / "maildir/cur/1.a:2,S").write_text(SECOND.replace("\r", ""))
    with BackEnd(folder, ["alice", "bob"]) as server:
        server.command("partition", "add", "second")
        server.command("mailbox", "create", "alice", "Work")
        for user, name, octets in (("alice", "INBOX", FIRST), ("alice", "INBOX", SECOND), ("alice", "Work", FIRST),
                                   ("alice", "Work", FIRST), ("bob", "INBOX", FIRST)):
            server.command("deliver", user, "--mailbox", name, octets=octets.encode())
        yield Store(server, folder)


Judge = Callable[[Store, str], bool]
SAYS_NOTHING: Judge = lambda store, out: out == ""          # noqa: E731
LINES: Judge = lambda store, out: all(json.loads(line) for line in out.splitlines())        # noqa: E731


def says(*words: str) -> Judge:
    """It prints these."""
    return lambda store, out: all(word in out for word in words)


#: What each command has to have done; with the statuses that it may have, if not 0, and standard input.
JUDGED: dict[str, Judge | tuple[Judge, tuple[int, ...]]] = {
    "mailbox acl alice Work": lambda store, out: "alice" in out and "bob" not in out,
    "mailbox acl alice Work bob lrs": lambda store, out: re.search(r"bob +lrs\b", out) is not None,
    "mailbox acl alice Work --remove bob": lambda store, out: "bob" not in out,
    "explain access bob alice Work": says("bob", "Work"),
    "user move alice --to second": lambda store, out: store.json("mailbox", "info", "alice", "Work")[
        "partition"] == "second",
    "directory flush": SAYS_NOTHING,
    "directory test alice --password-stdin": says("imap", "let in"),
    "directory test alice": says("delivery: 250"),
    "backup --to /srv/backup.tar": lambda store, out: (store.folder / "backup.tar").stat().st_size > 0,
    "batch /srv/commands.txt": lambda store, out: "By batch" in store.names(),
    "config show": says("store.purge_delay", "imap.port"),
    "messages copy -u alice --to Archive --create mailbox INBOX subject letter": lambda store, out: store.count(
        "-u", "alice", "mailbox", "Archive") == 1,
    "messages deduplicate -u alice --yes mailbox Work all": lambda store, out: store.count(
        "-u", "alice", "mailbox", "Work") == 1,
    "dump state": LINES,
    "messages expunge -u alice --yes mailbox Archive subject letter": lambda store, out: store.count(
        "-u", "alice", "mailbox", "Archive") == 0,
    "messages fetch -u alice mailbox INBOX uid 1": lambda store, out: out.replace("\r", "") == FIRST.replace("\r", ""),
    "messages flag -u alice --add flagged --remove seen mailbox INBOX all": lambda store, out: store.count(
        "-u", "alice", "mailbox", "INBOX", "flagged", "unseen") == 2,
    "reconstruct alice": says("0 left"),
    "man onecopy-messages": says("deduplicate"),
    "import maildir bob /srv/maildir": lambda store, out: store.count("-u", "bob", "subject", "second", "seen") == 1,
    "connections --user bob --end --yes": lambda store, out: not store.is_connected(),
    "log errors --since 1h": lambda store, out: "Traceback" not in out,
    "config show --json": lambda store, out: "log.file" in json.dumps(json.loads(out)),
    "log show --most 5": lambda store, out: 0 < len(out.splitlines()) <= 5,
    "reconstruct alice --cache": says("2 messages", "0 left"),
    "mailbox create alice Projects": lambda store, out: "Projects" in store.names(),
    "mailbox rename alice Projects Plans": lambda store, out: store.names() & {"Projects", "Plans"} == {"Plans"},
    "mailbox delete alice Plans --yes": lambda store, out: "Plans" not in store.names(),
    "mailbox list alice": says("INBOX", "Work", "Archive"),
    'mailbox metadata alice Work /shared/comment "Our plans"': says("/shared/comment", "Our plans"),
    "mailbox metadata alice Work": says("/shared/comment", "Our plans"),
    "mailbox metadata alice Work /shared/comment --remove": SAYS_NOTHING,
    "hashdir alice": lambda store, out: Path(out.strip()).is_dir(),
    "path alice INBOX 1": lambda store, out: FIRST in Path(out.strip()).read_bytes().decode(),
    "mailbox status --all INBOX": says("alice", "bob", "uidnext"),
    "mailbox status -u alice --total": lambda store, out: out.splitlines()[1].split()[0] == str(len(store.names())),
    "mailbox subscribe alice Work": lambda store, out: "Work" in store.json("mailbox", "subscribe", "alice"),
    "mailbox unsubscribe alice Work": lambda store, out: "Work" not in store.json("mailbox", "subscribe", "alice"),
    "messages move -u alice --to Archive mailbox INBOX subject second": lambda store, out: [
        store.count("-u", "alice", "mailbox", name, "subject", "second") for name in ("INBOX", "Archive")] == [0, 1],
    "logins": lambda store, out: len(out.splitlines()) == 1,
    "status": (says("second"), (0, 1)),
    "connections --protocol front": lambda store, out: "bob" not in out,
    "purge --dry-run": says("primary", "second"),
    "user hash --password-stdin": lambda store, out: out.startswith("scrypt$"),
    "quota show alice": says("alice"),
    "reconstruct alice --quota": lambda store, out: "Traceback" not in out,
    "relink --check": (says("primary"), (0, 1)),
    "config reload": lambda store, out: "restart" not in out,
    "deliver alice --mailbox Work --flag seen --date 2026-01-31": lambda store, out: store.count(
        "-u", "alice", "mailbox", "Work", "seen", "on", "2026-01-31") + store.count(
        "-u", "alice", "mailbox", "Work", "seen", "on", "2026-01-30") == 1,
    "messages search -u alice mailbox INBOX since 7d subject letter": says("a letter"),
    "sieve put alice mine": lambda store, out: "keep;" in store.server.command("sieve", "get", "alice", "mine"),
    "sieve list alice": says("mine"),
    "sieve get alice mine": says("keep;"),
    "sieve activate alice mine": lambda store, out: "yes" in store.server.command("sieve", "list", "alice"),
    "sieve activate alice": lambda store, out: "yes" not in store.server.command("sieve", "list", "alice"),
    "sieve rename alice mine other": lambda store, out: "other" in store.server.command("sieve", "list", "alice"),
    "sieve delete alice other": lambda store, out: "other" not in store.server.command("sieve", "list", "alice"),
    "sieve check": lambda store, out: "Traceback" not in out,
    "sieve list bob": lambda store, out: "mine" not in out,
    "stats --prometheus": (says("# HELP"), (0, 1)),
    "stats --top": lambda store, out: "Traceback" not in out,
    "user show alice": says("alice", "second"),
    "user list": says("alice", "bob"),
    "connections": lambda store, out: "Traceback" not in out,
    "drain": lambda store, out: store.json("status")["server"] is not True,
    "man onecopy-mailbox": says("metadata"),
    "--version": says("onecopy "),
    "user add carol --partition second --password-stdin": lambda store, out: store.json("user", "show", "carol")[
        "partition"] == "second",
    "mailbox delete alice Projects --yes": lambda store, out: "Projects" not in store.names(),
    "user remove carol --yes": lambda store, out: "carol" in store.server.command("user", "list", "--removed"),
    "mailbox rename alice Work Office": lambda store, out: store.names() & {"Work", "Office"} == {"Office"},
    "user move alice --to primary": lambda store, out: store.json("mailbox", "info", "alice", "Office")[
        "partition"] == "primary",
    "mailbox list": says("alice", "bob", "Office"),
    "mailbox acl alice Office anyone lr": lambda store, out: re.search(r"anyone +lr\b", out) is not None,
    "mailbox acl alice Office": says("anyone"),
    "mailbox subscribe bob user/alice/Office": lambda store, out: "user/alice/Office" in store.json(
        "mailbox", "subscribe", "bob"),
    "mailbox acl alice Office --remove anyone": lambda store, out: "anyone" not in out,
    "quota set alice --octets 5M": lambda store, out: "5.0 MiB" in store.server.command("quota", "show", "alice"),
    "mailbox info alice Office": says("quota root", "alice"),
    "mailbox metadata alice Office /private/comment mine": says("/private/comment", "mine"),
    "mailbox metadata alice Office --json": lambda store, out: json.loads(out) == [
        {"entry": "/private/comment", "user": "alice", "value": "mine"}],
    "mailbox unsubscribe bob user/alice/Office": lambda store, out: store.json("mailbox", "subscribe", "bob") == [],
    "reconstruct user/alice/Office": says("1 mailboxes", "0 left"),
    "user move alice --to second --bytes": lambda store, out: store.json("mailbox", "info", "alice", "Office")[
        "partition"] == "second",
    "user show bob": says("bob"),
    "backup verify /srv/backup.tar": says("messages"),
    "check": says("nothing wrong was found"),
    "snapshot create": lambda store, out: len(store.json("snapshot", "list")) == 1,
    "dump mailboxes": says("user/alice/Office"),
    "mailbox create alice Sent --special-use sent": lambda store, out: store.json("mailbox", "info", "alice", "Sent")[
        "special_use"] == "\\Sent",
    "config check": (lambda store, out: "Traceback" not in out, (0, 1)),
    "hashdir bob": lambda store, out: Path(out.strip()).is_dir(),
    "dump seen --limit 10": LINES,
    "user set bob --access '+imap:*'": lambda store, out: "+imap:*" in store.server.command("user", "show", "bob"),
    "partition list": says("primary", "second"),
    "expire run --all --dry-run": lambda store, out: "Traceback" not in out,
    "export bob --format mbox --to /srv/mbox": lambda store, out: any(
        "the second" in path.read_text() for path in (store.folder / "mbox").rglob("*") if path.is_file()),
    "deliver bob": says("bob INBOX 3"),
    "dump index --limit 3": lambda store, out: 0 < len(out.splitlines()) <= 3 and LINES(store, out),
    "quota check": lambda store, out: "Traceback" not in out,
    "reconstruct --all --check": lambda store, out: "Traceback" not in out,
    "restore /srv/backup.tar --user alice --dry-run": (says("mailboxes", "user/alice/INBOX"), (0, 1)),
    "undelete alice Archive": says("1 message"),
}
INPUT = {"deliver": SECOND, "directory": f"{PASSWORD}\n", "user": f"{PASSWORD}\n", "sieve": "keep;\r\n"}


def test_every_command_of_ours_is_tried_and_judged() -> None:
    assert {typed.removeprefix("onecopy ") for typed in COMMANDS} == JUDGED.keys()


def test_our_commands_do_what_the_page_says(store: Store) -> None:
    """In the order of the page, so that each finds what those before it have made."""
    wrong = []
    for typed in [*(each for each in COMMANDS if each != LAST), LAST]:
        judged = JUDGED[typed.removeprefix("onecopy ")]
        judge, statuses = judged if isinstance(judged, tuple) else (judged, (0,))
        status, out, error = store(typed, INPUT.get(typed.split()[1], ""))
        if status not in statuses or "Traceback" in error or not judge(store, out):
            wrong.append(f"{typed}: {status}\n{out}{error}")
    assert not wrong, "\n\n".join(wrong)
    store.server.check()
