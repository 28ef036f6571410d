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
from tests.support.clients.pop3 import Pop3
from tests.support.processes.ports import free_port
from tests.support.servers.backends import BackEnd
from tests.support.servers.certificates import Authority
from tests.support.servers.courier import PERSONAL, Courier
from tests.support.servers.nginx import Nginx
from tests.support.servers.oldservers import OWNER, QUOTA_KIB, QUOTA_MESSAGES, Cyrus, Dovecot, account
from tests.support.servers.server import PASSWORD

PAGE = (ROOT / "docs/migration.md").read_text("utf-8")
FLAGS = (r"\Seen", r"\Answered", r"\Flagged", "$Forwarded", "work")
OLD, NEW, HOSTED = "old.example.org", "new.example.org", "imap.example.net"
NAMES = ("INBOX", "Archive/2024", "Work", "Sent")
HERE = ("here", "files", "cy", "hosted", "away", "back", "carol")      # users whose mail is here from the beginning


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


@pytest.fixture(scope="module")
def courier() -> Iterator[Courier]:
    with Courier(["hosted", "carol"]) as courier:
        yield courier


def fill(side: Account) -> None:
    """All that the table has a row for, and the server takes."""
    archive, work, sent = map(side.typed, ("Archive/2024", "Work", "Sent"))
    with side.login() as imap:
        extensions = imap.ok("CAPABILITY").find(b"CAPABILITY .*")[0]
        imap.ok(rf"CREATE {sent} (USE (\Sent))" if b"CREATE-SPECIAL-USE" in extensions else f"CREATE {sent}")
    side.create(archive, work)
    for number, name in enumerate(NAMES):
        side.put(name, clients.ordinary(6, FLAGS, first=100 * number, largest=2000))
        side.run(side.typed(name), r"UID STORE 2 +FLAGS.SILENT (\Deleted)", "EXPUNGE")
    with side.login() as imap:
        imap.ok(f"SUBSCRIBE {archive}")
        imap.ok(f"SETACL {work} bob lrs")
        if b"METADATA" not in extensions:
            return
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
             "special use": both(lambda side: listed(side, 'LIST (SPECIAL-USE) "" "*"', needs=b"SPECIAL-USE")),
             "rights of others": both(rights), "annotations": both(annotations),
             "limits of quota, with `--limits`": [side.limits() for side in (old, new)],
             "Sieve scripts, and which is active": [side.scripts() for side in (old, new)]}
    return {name: "none there" if not fact[0] else "kept" if fact[0] == fact[1] else "lost"
            for name, fact in facts.items()}


def validities(side: Account) -> list[bytes]:
    with side.login() as imap:
        return [imap.ok(f"STATUS {side.typed(name)} (UIDVALIDITY)").find(rb"UIDVALIDITY (\d+)")[1]
                for name in NAMES]


def extends(imap: Imap, name: bytes) -> bool:
    """Whether a server has an extension."""
    return name in imap.ok("CAPABILITY").find(b"CAPABILITY .*")[0].split()


def listed(side: Account, command: str, needs: bytes = b"IMAP4rev1") -> set[str]:
    """The names, as they are here, but for those that only lead to others (RFC 3501 §6.3.9)."""
    with side.login() as imap:
        names = [each.text.split(b" ")[-1].strip(b'"').decode() for each in imap.ok(command).untagged
                 if b"\\noselect" not in each.text.lower()] if extends(imap, needs) else []
    return {name.removeprefix(PERSONAL).replace(".", "/") if name.startswith(PERSONAL) else name for name in names}


def rights(side: Account) -> dict[bytes, set[int]]:
    with side.login() as imap:
        answer = imap.ok(f"GETACL {side.typed('Work')}").untagged[-1].text.replace(b'"', b"")
        words = answer.split(b" ACL ")[-1].split()[1:]
        found = dict(zip(words[::2], map(set, words[1::2]), strict=True))
        return {name: held for name, held in found.items() if name == b"bob"}


def annotations(side: Account) -> list[bytes]:
    with side.login() as imap:
        if not extends(imap, b"METADATA"):
            return []
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


def test_what_survives(place: Place, cyrus: Cyrus, courier: Courier) -> None:
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
    fill(courier.account("hosted"))
    run("import", "imap", "away", "--there", "hosted", "--host", "127.0.0.1", "--port", str(courier.imap), "--tls",
        "none", "--password-file", str(place.folder / "master.secret"), *more, "UID%u-%v")
    found.append(compared(Old(courier.account("hosted"), courier.pop3, list), away := New(place, "away")))
    assert told() == {name: [each[name] for each in found] for name in found[0]}
    assert unique_ids_brought_by_hand(courier, away) == unique_ids(courier.pop3, "hosted")


def unique_ids_brought_by_hand(courier: Courier, away: New) -> list[bytes]:
    """As the page says of Courier: from what it answers to UIDL, whose lines are by the number of the message."""
    command, = re.findall(r"Courier makes POP3.*?`onecopy (uidl import alice FILE --numbers)`", PAGE, re.DOTALL)
    file = away.place.folder / "away.uidl"
    with Pop3(courier.pop3, "hosted") as old:
        file.write_bytes(b"".join(line.encode() + b"\r\n" for line in old.lines("UIDL")))
    words = command.replace("alice", away.user).replace("FILE", str(file)).split()
    assert "5 messages have" in away.place.server.command(*words)
    return away.unique_ids()


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


def run(place: Place, words: Sequence[str], host: str = OLD, port: int = 0) -> None:
    """A command as it is typed, but for where the servers and files are here. `port`: default: Dovecot's."""
    assert words[0] == "onecopy"
    changed = [str(place.folder / word) if word in ("users.csv", "master.secret") else word for word in words[1:]]
    if "import" in changed:
        at = changed.index("--host") + 1
        assert changed[at] == host
        changed[at:at + 1] = ["127.0.0.1", "--port", str(port or place.dovecot.imap), "--tls", "none"]
    place.server.command(*changed)


def deliver(place: Place, code: int, user: str = "alice") -> None:
    """What a relay hears that brings a message."""
    with Lmtp(place.server.lmtp) as lmtp:
        lmtp.command("MAIL FROM:<a@example.net>")
        assert lmtp.command(f"RCPT TO:<{user}@example.org>").code == code
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
    """What mbsync keeps, and what it does not, as the page says."""
    here = place.account("back")
    here.create("Archive/2024")
    for name in ("Archive/2024", "INBOX"):
        here.put(name, clients.ordinary(4, (r"\Seen", r"\Flagged", "work"), first=500))
    copied_back(place, here, cyrus.account("alice"), tmp_path)


def copied_back(place: Place, here: Account, old: Account, folder: Path) -> None:
    """By mbsync, with the page's own file, into an empty account."""
    text, = re.findall(r"```\n(IMAPStore new\n.*?)```", PAGE, re.DOTALL)
    for host, port in ((NEW, place.nginx.imap), (OLD, old.mail.server.imap)):
        assert text.count(f"Host {host}\n") == 1
        text = text.replace(f"Host {host}\n", f"Host 127.0.0.1\nPort {port}\nAuthMechs * LOGIN\n")
    assert text.count("User alice\n") == 2 and text.count("SSLType IMAPS\n") == 2
    text = text.replace("User alice\n", f"User {here.user}\n", 1).replace("User alice\n", f"User {old.user}\n")
    (folder / "back.mbsyncrc").write_text(text.replace("SSLType IMAPS\n", "SSLType None\n"))
    (folder / "alice.secret").write_text(PASSWORD)
    words, = re.findall(r"^ {4}(mbsync .*)$", PAGE, re.MULTILINE)
    clients.run(words.split(), folder)
    for name in ("Archive/2024", "INBOX"):
        there = old.contents(name).values()
        assert all(b"X-TUID: " in message.octets for message in there)
        assert [evolve(message, octets=re.sub(rb"X-TUID: \S+\r\n", b"", message.octets)) for message in there] == [
            evolve(message, flags=[flag for flag in message.flags if flag[0] in "\\$"])
            for message in here.contents(name).values()]


def test_from_a_hosted_service_and_back(place: Place, courier: Courier, tmp_path: Path) -> None:
    """Word by word: each night, and when users work here already; then into the account there, which was emptied."""
    old, carol = courier.account("carol"), place.account("carol")
    (place.folder / "users.csv").write_text(f"carol,carol,{PASSWORD}\n")
    nightly, late = place.typed("From a hosted IMAP service")
    with old.login() as imap:
        imap.ok("CREATE INBOX.Archive.2024")
    for name in ("Archive/2024", "INBOX"):
        old.put(name, clients.ordinary(3, FLAGS, largest=2000))
    run(place, nightly, HOSTED, courier.imap)
    assert carol.contents("INBOX") == (there := old.contents("INBOX"))
    deliver(place, 250, "carol")
    carol.run("INBOX", r"UID STORE 1 +FLAGS.SILENT (\Flagged of-here)")
    old.put("INBOX", clients.ordinary(1, (), first=900))
    run(place, late, HOSTED, courier.imap)
    here = carol.contents("INBOX")
    assert sorted(here) == [1, 2, 3, 4, 5]
    assert here[1].flags == {*there[1].flags, r"\Flagged", "of-here"} and (here[2], here[3]) == (there[2], there[3])
    with old.login() as imap:
        imap.select()
        assert imap.messages()[4] == here[5].octets
        imap.ok(r"STORE 1:* +FLAGS.SILENT (\Deleted)")
        imap.ok("EXPUNGE")
        imap.ok("DELETE INBOX.Archive.2024")
    copied_back(place, carol, old, tmp_path)
