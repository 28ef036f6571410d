"""Root runs every command beside a server that is another user: afterwards nothing in the store is root's."""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MEMORY
from tests.support.clients.admission import IMAP, LMTP, Knock
from tests.support.processes import command, otheruser
from tests.support.processes.otheruser import USER
from tests.support.servers.server import Server
from tools.cli import registry

LIMIT = 1200               # seconds; it takes one minute on a machine that has nothing else to do
MESSAGE = "From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
NO_SPARK = "--master spark://127.0.0.1:1"       # where nothing listens: the command begins, and then fails

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tests/tools/cli/test_acting.py does it without root")

# Each command with its exit status (*: any), in an order in which they have something to do. @ is a folder that is
# USER's, # one that only root can read. First those beside the server, then those that need it to be gone.
BESIDE = f"""
2 serve
0 user add --password-stdin bob carol
0 user list
0 user show bob
0 user set bob --status active
0 user domain
0 user hash --password-file #/password
0 user scram
0 user rename carol dora
0 deliver alice bob dora
0 user remove --yes dora
0 user restore dora
0 user purge --dry-run --yes
0 mailbox create bob Folder
0 mailbox list bob
0 mailbox info bob Folder
0 mailbox status -u bob
0 mailbox rename bob Folder Other
0 mailbox acl bob Other alice lr
0 mailbox metadata bob Other /shared/comment hello
0 mailbox subscribe bob Other
0 mailbox unsubscribe bob Other
0 mailbox delete --yes bob Other
0 mailbox undelete bob Other
* doctor --name localhost
0 messages search -u bob since 7d
0 messages fetch -u bob all
0 messages flag -u bob --add seen all
0 messages copy -u bob --to Copies --create all
0 messages move -u bob --to INBOX mailbox Copies all
0 messages deduplicate -u bob --yes all
0 messages expunge -u bob --yes seen uid 2
1 messages withdraw none@example.org --yes
0 sieve list bob
1 sieve put bob main
1 sieve get bob main
1 sieve check
0 sieve test bob
0 sieve show bob
0 sieve stats
0 sieve activate bob
1 sieve rename bob main other
1 sieve delete bob main
0 uidl list bob
0 uidl import --numbers bob @/uidls
2 uidl import --numbers bob #/uidls
0 path bob INBOX 1
0 hashdir bob
0 directory flush
2 directory status
0 directory test bob
0 quota set --octets 1M bob
0 quota show bob
0 quota check
0 quota warn
0 quota sharing
0 quota report --html @/report.html --json
1 quota remove bob
0 expire set --user bob @/rules
0 expire rules
0 expire run bob
0 expire last
0 purge
0 undelete bob INBOX --list
1 user undelete bob --dry-run
0 partition add second
0 partition list
0 user move --to second bob
0 partition drain second --to primary
0 check
0 scrub
0 snapshot create
0 snapshot list
0 snapshot verify
0 snapshot diff NAME
0 snapshot browse bob NAME INBOX
0 snapshot copy bob NAME INBOX --dry-run
2 standby status
2 standby follow
2 standby promote --yes
2 standby rejoin --from none.example.org:1 --yes
2 standby copy --to @/reading
2 standby serve
1 standby forget none.example.org
1 partition give-up none --yes
2 standby create --from none.example.org:1
0 snapshot remove NAME --force --yes
0 reconstruct bob
0 relink
0 backup --to @/backup.tar
0 backup --to @/backups/
0 restore @/backup.tar --user bob
0 export bob --format maildir --to @/maildir
0 export bob --format mbox --to @/mbox
1 import maildir bob #/maildir
0 import mbox bob #/mbox
1 import imap bob --host 127.0.0.1 --port 1 --password-file #/password
1 import dovecot bob --doveadm /none
1 import cyrus bob --bin /none
2 spark shell {NO_SPARK}
2 spark sql {NO_SPARK} SELECT
0 facts export @/facts
2 spark sharing {NO_SPARK}
0 spark generate @/generated --messages 10 --users 2 --processes 1
0 config show
0 config check
1 config diff
0 config reload
2 config certificate
0 connections
0 status
0 stats
0 log show
0 log errors --since 1h
0 dump
0 dump state
0 batch @/commands
0 outbox list
2 outbox show none
2 outbox retry none
2 outbox discard none --yes
* explain message --recipient bob
0 explain access bob alice INBOX
0 explain quota bob
0 explain login bob
0 token create --role auditor --json
0 token list
1 token revoke none
0 access create bob --name phone --json
0 access list
1 access revoke bob none
1 access reset bob
0 logins
0 log level imap debug
0 log levels
0 transcript bob
0 transcript
0 audit show
0 audit verify
0 audit head
0 audit remove --before 2020-01 --yes
0 man onecopy
0 completion bash
0 drain
"""
DOWN = """
0 status
0 snapshot create
0 snapshot restore --yes
0 recover
0 reconstruct --all --force
0 check --repair
0 partition remove second --yes
2 init
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        os.chmod(name, 0o711)
        yield Path(name)


def places(folder: Path) -> tuple[Path, Path]:
    """A folder of USER's, and one of root's with what commands read."""
    theirs, roots = folder / "theirs", folder / "roots"
    user = pwd.getpwnam(USER)
    for place in (theirs, roots):
        place.mkdir(mode=0o700)
    os.chown(theirs, user.pw_uid, user.pw_gid)
    for place in (theirs, roots):
        (place / "uidls").write_text("1 one\n")
    (theirs / "commands").write_text("user show bob\n")
    (theirs / "rules").write_text("old.folderpattern: user/*\nold.messagedays: 1\n")
    (roots / "password").write_text("secret\n")
    (roots / "mbox").write_text("From a@example.org Thu Feb  1 09:30:00 2024\nSubject: mbox\n\ntext\n")
    for part in ("cur", "new", "tmp"):
        (roots / "maildir" / part).mkdir(parents=True)
    (roots / "maildir" / "cur" / "1.a:2,S").write_text(MESSAGE)
    (roots / "elsewhere").write_text("root's secret")
    (roots / "maildir" / "cur" / "2.b:2,S").symlink_to(roots / "elsewhere")
    for path in roots.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return theirs, roots


def roots_own(top: Path, *beside: str) -> list[str]:
    """What belongs to somebody else than USER, or can be reached by others. `beside`: words of find(1) for what is not
    looked at."""
    return subprocess.run(["find", top, *beside, "(", "!", "-user", USER, "-o", "-perm", "/077", "!", "-type", "s", "!",
                           "-type", "l", ")", "-printf", "%u %m %p\\n"], capture_output=True, text=True
                          ).stdout.splitlines()


def run(server: Server, steps: str, theirs: Path, roots: Path) -> list[str]:
    """What went otherwise than expected."""
    wrong, snapshot = [], ""
    for number, line in enumerate(steps.split("\n")[1:-1]):
        status, *words = line.replace("@", str(theirs)).replace("#", str(roots)).replace("NAME", snapshot).split()
        octets = "secret\n" if words[:2] == ["user", "add"] else MESSAGE
        found, out, error = command.run(words, server.environment(), octets.encode(), LIMIT)
        if words == ["snapshot", "create"]:
            snapshot = out.split()[0].rstrip(":")
        # Into thousands of folders of messages it is looked each tenth time, and in the end.
        left = roots_own(server.root, *([] if number % 10 == 0 else ["-path", "*/messages/?", "-prune", "-o"]))
        if status not in ("*", str(found)) or left or "[Errno 13]" in error or "Traceback" in error:
            wrong.append(f"onecopy {' '.join(words)}: status {found}, {out[-300:]}{error[-600:]}, {left}")
    return wrong


def every_command(folder: Path) -> None:
    theirs, roots = places(folder)
    server = Server(folder, [], {"workers.user": USER, "workers.all": "1", "store.purge_delay": "0"})
    assert roots_own(server.root) == []
    server.add_users(["alice"])
    with server:
        wrong = run(server, BESIDE, theirs, roots)
        assert server.wait() == 0, "\n".join([*wrong, server.said()])       # it was drained
        assert "all are started again" not in server.log.read_text(), server.said()
    wrong += run(server, DOWN, theirs, roots)
    assert wrong == [], "\n".join(wrong)
    with server:
        with Knock(server, LMTP) as client:
            client.ask(b"LHLO client.example.org\r\n", b"MAIL FROM:<>\r\n", b"RCPT TO:<alice>\r\n", b"DATA\r\n")
            assert client.ask(MESSAGE.encode() + b".\r\n").startswith(b"250")
        with Knock(server, IMAP) as client:
            assert client.log_in().startswith(b"l OK")
        assert server.stop() == 0
    assert roots_own(server.root) == []
    assert b"root's secret" not in b"".join(path.read_bytes() for path in server.messages)


def what_root_left_is_mended(folder: Path) -> None:
    """As earlier versions left it: files of root, with modes of their own."""
    server = Server(folder, [], {"workers.user": USER, "workers.all": "1"})
    server.add_users(["alice"])
    index = server.root / "partitions" / "primary" / "index"
    for path in (index / "state.db", *server.root.rglob("store.idx")):
        os.chown(path, 0, 0)
    (index / "quota.db").chmod(0o644)
    (index / "cache.db").chmod(0o000)
    secret = folder / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    os.link(secret, server.root / "run" / "planted")
    found, out, error = command.run(["check"], server.environment(), b"", LIMIT)
    assert found == 1 and "Errno" not in error
    assert "it belongs to root, not to nobody: root alone can give it back (repair: onecopy check --repair)" in out
    for name in ("index/quota.db: others than the owner can reach it (mode 0644)",
                 "index/cache.db: its owner cannot use it (mode 0000)"):
        assert name in out, out
    found, out, error = command.run(["check", "--repair"], server.environment(), b"", LIMIT)
    assert found == 1                           # a name of somebody else's file is no reason to give that away
    assert "run/planted: it belongs to root" in out and "it has another name" in out, out + error
    assert secret.stat().st_uid == 0 and secret.read_text() == "root's"
    (server.root / "run" / "planted").unlink()
    assert server.command("check") == "nothing wrong was found\n"
    assert roots_own(server.root) == []


def test_as_root(folder: Path) -> None:
    cases = every_command, what_root_left_is_mended
    otheruser.each(f"{Path(__file__).resolve()}::test_as_root", cases, folder, 0o711, LIMIT)


def test_every_command_is_tried() -> None:
    lines = [line.split() for line in f"{BESIDE}{DOWN}".split("\n") if line]
    tried = {" ".join(words[1:at]) for words in lines for at in (2, 3)}
    assert {command.name for command in registry.COMMANDS} - tried - {"expire run"} == set()
