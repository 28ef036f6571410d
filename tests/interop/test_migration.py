"""docs/migration.md, as it is written: what survives, a user who moves while others go on, and the way back."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import MEMORY
from tests.support import ROOT
from tests.support.clients import clients
from tests.support.clients.clients import Account, Message
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes.ports import free_port
from tests.support.servers.backends import BackEnd
from tests.support.servers.certificates import Authority
from tests.support.servers.nginx import Nginx
from tests.support.servers.oldservers import OWNER, Cyrus, Dovecot, account
from tests.support.servers.server import PASSWORD

PAGE = (ROOT / "docs/migration.md").read_text("utf-8")
FLAGS = (r"\Seen", r"\Answered", r"\Flagged", "$Forwarded", "work")
OLD, NEW = "old.example.org", "new.example.org"
NAMES = ("INBOX", "Archive/2024", "Work", "Sent")
HERE = ("here", "files", "cy", "hosted")        # users whose mail is here from the beginning, to look at


class Place:
    """A Dovecot, an onecopy whose front knows who is where, and nginx in front of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dovecot = Dovecot({"alice": "maildir", "bob": "mdbox"})
        self.server = BackEnd(folder, (), {
            "front.port": str(front := free_port()), "imap.proxy_networks": "127.0.0.1", "login.slow_first": "0"})
        self.server.options["front.hosts"] = (
            f"{OLD}=127.0.0.1:{self.dovecot.behind},{NEW}=127.0.0.1:{self.server.imap}")
        for host, users in ((OLD, ("alice", "bob")), (NEW, HERE)):
            self.server.command("user", "add", "--password-stdin", "--host", host, *users,
                                octets=PASSWORD.encode() + b"\n")
        (folder / "master.secret").write_text(PASSWORD)
        self.nginx = Nginx(folder, front, Authority(folder, "authority").server(), self.server.root / "front-secret",
                           {"starttls only;": "starttls on;"})     # on loopback, in the clear

    def account(self, user: str) -> Account:
        """A user, wherever that one's mail is."""
        return account(self.nginx.imap, user)

    def typed(self, title: str) -> Iterator[list[str]]:
        """The commands that a section of the page shows, each as the words that are typed."""
        section = PAGE.partition(f"# {title}\n")[2].partition("\n##")[0]
        for line in re.findall(r"^ {4,}(onecopy .*)", section, re.MULTILINE):
            yield line.replace("/srv/back", str(self.folder / "back")).split()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        folder.chmod(0o711)
        place = Place(folder)
        with place.dovecot as dovecot, place.server as server, place.nginx:
            fill(dovecot.account("alice"))
            dovecot.account("bob").put("INBOX", clients.ordinary(2, FLAGS))
            yield place
            assert server.stop() == 0
            server.check()


def fill(side: Account) -> None:
    """All that the table has a row for."""
    with side.login() as imap:
        use = b"CREATE-SPECIAL-USE" in imap.ok("CAPABILITY").find(b"CAPABILITY .*")[0]
        imap.ok(r"CREATE Sent (USE (\Sent))" if use else "CREATE Sent")
    side.create("Archive/2024", "Work")
    for number, name in enumerate(NAMES):
        side.put(name, clients.ordinary(6, FLAGS, first=100 * number, largest=2000))
        side.run(name, r"UID STORE 2 +FLAGS.SILENT (\Deleted)", "EXPUNGE")
    with side.login() as imap:
        imap.ok("SUBSCRIBE Archive/2024")
        imap.ok("SETACL Work bob lrs")


def compared(old: Account, new: Account) -> dict[str, str]:
    """What has survived, in the words of the table."""
    there, here = ({name: side.contents(name) for name in NAMES}
                   for side in (old, new))

    def each(fact: Callable[[Message], object]) -> list[object]:
        """That of all messages of each side, in order."""
        return [[(name, fact(message)) for name, box in sorted(side.items()) for _, message in sorted(box.items())]
                for side in (there, here)]

    facts = {"octets": each(lambda message: message.octets), "internal dates": each(lambda message: message.date),
             "flags": each(lambda message: {flag for flag in message.flags if flag.startswith("\\")}),
             "keywords": each(lambda message: {flag for flag in message.flags if not flag.startswith("\\")}),
             "UIDs, UIDVALIDITY": [({name: sorted(box) for name, box in boxes.items()}, validities(side))
                                   for boxes, side in ((there, old), (here, new))],
             "subscriptions": [listed(side, 'LSUB "" "*"') for side in (old, new)],
             "special use": [listed(side, 'LIST (SPECIAL-USE) "" "*"') for side in (old, new)],
             "rights of others": [rights(side) for side in (old, new)]}
    assert all(fact[0] for fact in facts.values())
    return {name: "kept" if fact[0] == fact[1] else "lost" for name, fact in facts.items()}


def validities(side: Account) -> list[bytes]:
    with side.login() as imap:
        return [imap.ok(f"STATUS {name} (UIDVALIDITY)").find(rb"UIDVALIDITY (\d+)")[1]
                for name in NAMES]


def listed(side: Account, command: str) -> set[bytes]:
    with side.login() as imap:
        return {each.text.split(b" ")[-1].strip(b'"') for each in imap.ok(command).untagged}


def rights(side: Account) -> dict[bytes, set[int]]:
    with side.login() as imap:
        words = imap.ok("GETACL Work").untagged[-1].text.split(b" ACL ")[-1].split()[1:]
        found = dict(zip(words[::2], map(set, words[1::2]), strict=True))
        return {name: held for name, held in found.items() if name == b"bob"}


def told() -> dict[str, list[str]]:
    """The table of the page."""
    section = PAGE.partition("## What survives\n")[2].partition("\n\n`tests")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.strip().splitlines()]
    return {row[0]: row[1:] for row in rows[2:]}


def test_what_survives(place: Place, tmp_path: Path) -> None:
    """The page's table is what was found."""
    run, dovecot = place.server.command, place.dovecot
    old = dovecot.account("alice")
    run("import", "dovecot", "here", "--there", "alice", "--dovecot-config", str(dovecot.config))
    run("import", "maildir", "files", str(dovecot.home("alice") / "mail"))
    run("import", "imap", "hosted", "--there", "alice", "--host", "127.0.0.1", "--port", str(dovecot.imap), "--tls",
        "none", "--password-file", str(place.folder / "master.secret"))
    found = [compared(old, place.account("here")), compared(old, place.account("files"))]
    with Cyrus(["cy", "bob"]) as cyrus:
        assert isinstance(cyrus, Cyrus)
        fill(cyrus.account("cy"))
        run("import", "cyrus", "cy", "--imapd-conf", str(cyrus.config), "--bin", str(cyrus.programs))
        found.append(compared(cyrus.account("cy"), place.account("cy")))
    found.append(compared(old, place.account("hosted")))
    assert told() == {name: [each[name] for each in found] for name in found[0]}


def test_a_user_moves_and_comes_back_while_others_go_on(place: Place) -> None:
    """Word by word as the page has it."""
    dovecot = place.dovecot
    old, alice = dovecot.account("alice"), place.account("alice")
    assert alice.contents("INBOX") == old.contents("INBOX")
    everybody, hold, last, here = place.typed("Cut over without downtime")
    assert [words[1] for words in (everybody, hold, last, here)] == ["import", "user", "import", "user"]
    (place.folder / "users.csv").write_text("alice\nbob\n")
    run(place, everybody)
    with place.account("bob").login() as bob, alice.login() as hers:
        bob.ok("SELECT INBOX")
        hers.ok("SELECT INBOX")
        run(place, hold)
        subprocess.run(["doveadm", "-c", dovecot.config, "kick", "alice"], check=True, stdout=subprocess.DEVNULL)
        assert_ended(hers)
        deliver(place, 450)
        with Imap(place.nginx.imap) as refused:
            assert refused.command(f'LOGIN "alice" "{PASSWORD}"').status == "NO"
        run(place, last)
        run(place, here)
        assert bob.ok("UID FETCH 1:* (FLAGS)").untagged
    assert {name: alice.contents(name) for name in NAMES} == {name: old.contents(name) for name in NAMES}
    alice.put("INBOX", clients.ordinary(2, FLAGS, first=900))
    alice.run("INBOX", r"UID STORE 3 +FLAGS.SILENT (\Flagged back)", r"UID STORE 4 +FLAGS.SILENT (\Deleted)",
              "UID EXPUNGE 4")
    deliver(place, 250)
    assert sorted(alice.contents("INBOX")) == [1, 3, 5, 6, 7, 8, 9]
    assert sorted(old.contents("INBOX")) == [1, 3, 4, 5, 6]
    go_back(place)


def go_back(place: Place) -> None:
    """The section about it; what was changed here is there."""
    alice, back = place.account("alice"), place.folder / "back"
    there = {name: alice.contents(name) for name in NAMES}
    marks, open_session = validities(alice), alice.login()
    back.mkdir()
    *away, again = place.typed("The way back")
    for words in away:
        run(place, words)
    assert_ended(open_session)
    home = place.dovecot.home("alice")
    (home / "mail").rename(home / "mail.before")
    shutil.move(back / "alice", home / "mail")
    subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", home / "mail"], check=True)
    run(place, again)
    old = place.dovecot.account("alice")
    assert {name: old.contents(name) for name in there} == there and validities(old) == marks
    assert place.account("alice").contents("INBOX") == there["INBOX"]
    shutil.rmtree(back)


def run(place: Place, words: Sequence[str]) -> None:
    """A command as it is typed, but for where the servers and files are here."""
    assert words[0] == "onecopy"
    changed = [str(place.folder / word) if word in ("users.csv", "master.secret") else word for word in words[1:]]
    if "import" in changed:
        at = changed.index("--host") + 1
        assert changed[at] == OLD
        changed[at:at + 1] = ["127.0.0.1", "--port", str(place.dovecot.imap), "--tls", "none"]
    place.server.command(*changed)


def deliver(place: Place, code: int) -> None:
    """What a relay hears that brings alice a message."""
    with Lmtp(place.server.lmtp) as lmtp:
        lmtp.command("MAIL FROM:<a@example.net>")
        assert lmtp.command("RCPT TO:<alice@example.org>").code == code
        if code == 250:
            assert lmtp.command("DATA").code == 354
            lmtp.send(b"Subject: new\r\n\r\nhello\r\n.\r\n")
            assert lmtp.reply().code == 250


def assert_ended(session: Imap) -> None:
    """Nothing more is answered there."""
    with pytest.raises((OSError, AssertionError, EOFError)):
        session.ok("NOOP")
        session.ok("NOOP")
    session.close()
