"""docs/migration.md, as it is written: what survives, a user who moves while others go on, and the way back."""

import json
import poplib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from attrs import evolve, frozen
from sievelib.managesieve import Client

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
from tests.support.servers.oldservers import OWNER, QUOTA_KIB, QUOTA_MESSAGES, Cyrus, Dovecot, account
from tests.support.servers.server import PASSWORD

PAGE = (ROOT / "docs/migration.md").read_text("utf-8")
FLAGS = (r"\Seen", r"\Answered", r"\Flagged", "$Forwarded", "work")
OLD, NEW = "old.example.org", "new.example.org"
NAMES = ("INBOX", "Archive/2024", "Work", "Sent")
HERE = ("here", "files", "cy", "hosted", "back")       # users whose mail is here from the beginning, to look at


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

    def json(self, *words: str) -> Any:
        """What a command of ours finds."""
        return json.loads(self.server.command(*words, "--json"))

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


@pytest.fixture(scope="module")
def cyrus() -> Iterator[Cyrus]:
    with Cyrus(["cy", "bob", "alice"]) as cyrus:
        yield cyrus


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
        imap.ok('SETMETADATA Work (/shared/comment "for all" /private/comment {6+}\r\nmy own)')


def unique_ids(port: int, user: str) -> list[bytes]:
    """Those of RFC 1939 §7."""
    pop3 = poplib.POP3("127.0.0.1", port)
    pop3.user(user)
    pop3.pass_(PASSWORD)
    found = [line.split()[1] for line in pop3.uidl()[1]]
    pop3.quit()
    return found


@frozen
class Old:
    """A user of the old server: mailboxes, unique-ids, Sieve scripts."""

    account: Account
    pop3: int
    scripts: Callable[[], object]

    def unique_ids(self) -> list[bytes]:
        return unique_ids(self.pop3, self.account.user)

    def limits(self) -> tuple[int, int]:
        return QUOTA_KIB * 1024, QUOTA_MESSAGES


@frozen
class New:
    """That user here."""

    place: Place
    user: str

    @property
    def account(self) -> Account:
        return self.place.account(self.user)

    def unique_ids(self) -> list[bytes]:
        return unique_ids(self.place.server.pop3, self.user)

    def limits(self) -> tuple[int, int]:
        found, = self.place.json("quota", "show", self.user)
        return found["octet_limit"], found["message_limit"]

    def scripts(self) -> object:
        def text(name: str) -> str:
            return str(json.loads(self.place.server.command("sieve", "get", "--json", "--", self.user, name))["script"])

        return {(row["name"], row["active"], text(row["name"]))
                for row in self.place.json("sieve", "list", self.user)}


def compared(old: Old, new: New) -> dict[str, str]:
    """What has survived, in the words of the table."""
    there, here = ({name: side.account.contents(name) for name in NAMES} for side in (old, new))

    def each(fact: Callable[[Message], object]) -> list[object]:
        """That of all messages of each side, in order."""
        return [[(name, fact(message)) for name, box in sorted(side.items()) for _, message in sorted(box.items())]
                for side in (there, here)]

    def both(fact: Callable[[Account], object]) -> list[object]:
        return [fact(side.account) for side in (old, new)]

    facts = {"octets": each(lambda message: message.octets), "internal dates": each(lambda message: message.date),
             "flags": each(lambda message: {flag for flag in message.flags if flag.startswith("\\")}),
             "keywords": each(lambda message: {flag for flag in message.flags if not flag.startswith("\\")}),
             "UIDs, UIDVALIDITY": [({name: sorted(box) for name, box in boxes.items()}, validities(side.account))
                                   for boxes, side in ((there, old), (here, new))],
             "POP3 unique-ids, with `--uidl-format`": [side.unique_ids() for side in (old, new)],
             "subscriptions": both(lambda side: listed(side, 'LSUB "" "*"')),
             "special use": both(lambda side: listed(side, 'LIST (SPECIAL-USE) "" "*"')),
             "rights of others": both(rights), "annotations": both(annotations),
             "limits of quota, with `--limits`": [side.limits() for side in (old, new)],
             "Sieve scripts, and which is active": [side.scripts() for side in (old, new)]}
    assert all(fact[0] for fact in facts.values()), facts
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


def annotations(side: Account) -> list[bytes]:
    with side.login() as imap:
        answer = imap.ok("GETMETADATA Work (/shared/comment /private/comment)").untagged[-1]
        return sorted([*re.findall(rb'"((?:for|my)[^"]*)"', answer.text), *answer.literals])


def told() -> dict[str, list[str]]:
    """The table of the page."""
    section = PAGE.partition("## What survives\n")[2].partition("\n\n`tests")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.strip().splitlines()]
    return {row[0]: row[1:] for row in rows[2:]}


SCRIPTS = {"main": ('require "fileinto";\r\nif header :contains "subject" "work" {\r\n    fileinto "Work";\r\n}\r\n',
                    True), "out of office": ("# nobody is away\r\nkeep;\r\n", False)}


def scripts_of_dovecot(dovecot: Dovecot) -> object:
    all_of_them = {**SCRIPTS, "-A": ("# named as an option of doveadm\r\n", False)}
    for name, (text, active) in all_of_them.items():
        dovecot.administered("sieve", "put", *(["-a"] if active else []), "-u", "alice", "--", name,
                             octets=text.encode())
    return {(name, active, text) for name, (text, active) in all_of_them.items()}


def scripts_of_cyrus(cyrus: Cyrus) -> object:
    client = Client("127.0.0.1", cyrus.sieve)
    assert client.connect("cy", PASSWORD, starttls=False, authmech="PLAIN")
    for name, (text, _) in SCRIPTS.items():
        assert client.putscript(name, text), client.errmsg
    client.setactive("main")
    client.logout()
    return {(name, active, text) for name, (text, active) in SCRIPTS.items()}


def test_what_survives(place: Place, cyrus: Cyrus) -> None:
    """The page's table is what was found."""
    run, dovecot = place.server.command, place.dovecot
    old = Old(dovecot.account("alice"), dovecot.pop3, lambda: kept)
    kept = scripts_of_dovecot(dovecot)
    more = ("--limits", "--uidl-format")
    run("import", "dovecot", "here", "--there", "alice", "--dovecot-config", str(dovecot.config), "--doveadm",
        str(dovecot.doveadm), *more, "%08Xu%08Xv")
    run("import", "maildir", "files", str(dovecot.home("alice") / "mail"), *more, "%08Xu%08Xv")
    found = [compared(old, New(place, "here")), compared(old, New(place, "files"))]
    fill(cyrus.account("cy"))
    kept = scripts_of_cyrus(cyrus)
    old = Old(cyrus.account("cy"), cyrus.pop3, lambda: kept)
    run("import", "cyrus", "cy", "--imapd-conf", str(cyrus.config), "--bin", str(cyrus.programs), *more, "%v.%u")
    found.append(compared(old, New(place, "cy")))
    run("import", "imap", "hosted", "--there", "cy", "--host", "127.0.0.1", "--port", str(cyrus.imap), "--tls", "none",
        "--password-file", str(place.folder / "master.secret"), "--sieve-port", str(cyrus.sieve), *more, "%v.%u")
    found.append(compared(old, New(place, "hosted")))
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


def test_back_to_an_empty_account_of_cyrus(place: Place, cyrus: Cyrus, tmp_path: Path) -> None:
    """mbsync, with the page's own file, from here: what it keeps, and what it does not, as the page says."""
    text, = re.findall(r"```\n(IMAPStore new\n.*?)```", PAGE, re.DOTALL)
    for host, port in ((NEW, place.nginx.imap), (OLD, cyrus.imap)):
        assert text.count(f"Host {host}\n") == 1
        text = text.replace(f"Host {host}\n", f"Host 127.0.0.1\nPort {port}\nAuthMechs *\n")
    here = place.account("back")
    assert text.count("User alice\n") == 2 and text.count("SSLType IMAPS\n") == 2
    text = text.replace("User alice\n", "User back\n", 1).replace("SSLType IMAPS\n", "SSLType None\n")
    (tmp_path / "back.mbsyncrc").write_text(text)
    (tmp_path / "alice.secret").write_text(PASSWORD)
    here.create("Archive/2024")
    here.put("Archive/2024", clients.ordinary(4, (r"\Seen", r"\Flagged", "work"), first=500))
    words, = re.findall(r"^ {4}(mbsync .*)$", PAGE, re.MULTILINE)
    clients.run(words.split(), tmp_path)
    there = cyrus.account("alice").contents("Archive/2024").values()
    without = [evolve(message, octets=re.sub(rb"X-TUID: \S+\r\n", b"", message.octets)) for message in there]
    assert all(b"X-TUID: " in message.octets for message in there)
    assert without == [evolve(message, flags=[flag for flag in message.flags if flag != "work"])
                       for message in here.contents("Archive/2024").values()]
