"""Mail of a Dovecot and a Cyrus comes in as it was: octets, flags, keywords, dates, UIDs; once, however often, and
whatever cuts it off."""

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from attrs import evolve

from tests.conftest import MEMORY
from tests.support.clients import clients
from tests.support.clients.between import Between
from tests.support.clients.clients import Account, Message
from tests.support.servers.oldservers import OWNER, Cyrus, Dovecot, account
from tests.support.servers.server import PASSWORD, PROGRAM, Server
from tests.support.stores.maildir import Maildir

FLAGS = (r"\Seen", r"\Answered", r"\Flagged", r"\Draft", "$Forwarded", "work", "Later")
NAMES = ("Archive", "Archive/2024/&ZeVnLIqe-", "A &- B", "Sent")
OF_FILES = ("A &- B", "Sent")       # an mbox file cannot be a folder as well
USERS = {"maildir": "maildir", "fs": "fs", "mbox": "mbox", "sdbox": "sdbox", "mdbox": "mdbox", "many": "mdbox",
         "back": "maildir"}
_TUID = re.compile(rb"^X-TUID: [!-~]{12}\r\n", re.MULTILINE)       # by which mbsync finds what it has copied
KILLS = int(os.environ.get("IMPORT_KILLS", "2"))


def names_of(user: str) -> tuple[str, ...]:
    return OF_FILES if user == "mbox" else NAMES


def fill(old: Account, *names: str, count: int = 25) -> None:
    """Messages in INBOX and some mailboxes; of each some are gone again, so that UIDs have gaps."""
    old.create(*names)
    for number, name in enumerate(("INBOX", *names)):
        sent = clients.ordinary(count, FLAGS, first=100 * number, largest=3000)
        old.put(name, [*sent, *(message for message in clients.odd() if keeps(message))])
        old.run(name, r"UID STORE 3,7,8 +FLAGS.SILENT (\Deleted)", "EXPUNGE", r"UID STORE 9 +FLAGS.SILENT (\Deleted)",
                "SUBSCRIBE " + clients.quoted(name).decode())


def keeps(message: Message) -> bool:
    """Whether every server gives it back as it came, whatever the format that it keeps it in."""
    return message.octets[-2:] == b"\r\n" and message.octets[:9] == b"Subject: " and b"\x80" not in message.octets


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with Dovecot(USERS) as dovecot:
        assert isinstance(dovecot, Dovecot)
        for user in USERS:
            if user != "back":
                fill(dovecot.account(user), *names_of(user))
        yield dovecot


@pytest.fixture(scope="module")
def cyrus() -> Iterator[Cyrus]:
    with Cyrus(["cy", "cy.rus"]) as cyrus:
        yield cyrus


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Ours; it runs while mail comes."""
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        server = Server(Path(folder), [*USERS, "cy", "cy.rus", "m2", "f2", "b2"])
        with server:
            yield server
            assert server.stop() == 0
            server.check()


def rights(side: Account, name: str) -> dict[bytes, set[bytes]]:
    """Who else may do what there."""
    with side.login() as imap:
        words = imap.ok(b"GETACL " + clients.quoted(name)).untagged[-1].text.split(b" ACL ")[-1].split()[1:]
        return {who: {bytes([right]) for right in held} - {b"c", b"d"} for who, held in zip(
            words[::2], words[1::2], strict=True) if who != side.user.encode()}


def same(old: Account, new: Account, *names: str) -> None:
    """Both sides have the same under the same UIDs, and the same UIDVALIDITY."""
    for name in ("INBOX", *names):
        there, here = old.contents(name), new.contents(name)
        assert there and here == there, name
        assert status(new, name) == status(old, name)


def status(side: Account, name: str) -> bytes:
    with side.login() as imap:
        text = imap.ok(b"STATUS %b (MESSAGES UIDVALIDITY UIDNEXT)" % clients.quoted(name)).untagged[-1].text
        return b" ".join(sorted(re.findall(rb"[A-Z]+ \d+", text.rpartition(b"(")[2])))


def subscribed(side: Account) -> set[bytes]:
    with side.login() as imap:
        return {response.text.rpartition(b'"/" ')[2].strip(b'"') for response in imap.ok('LSUB "" "*"').untagged}


@pytest.mark.parametrize("form", ["mbox", "sdbox", "mdbox"])
def test_dovecot_through_its_tools(dovecot: Dovecot, server: Server, form: str) -> None:
    old, new, names = dovecot.account(form), account(server.imap, form), names_of(form)
    words = ("import", "dovecot", form, "--dovecot-config", str(dovecot.config), "--json")
    with old.login() as imap:
        imap.ok("SETACL Sent cy lrsp")
    server.command(*words)
    same(old, new, *names)
    assert rights(new, "Sent") == rights(old, "Sent") == {b"cy": {b"l", b"r", b"s", b"p"}}
    assert subscribed(new) == subscribed(old) == {b"INBOX", *(name.encode() for name in names)}

    # What is new there comes, flags follow; what was expunged here does not come back, and what is gone there is said
    old.put("INBOX", fresh := clients.ordinary(3, FLAGS, first=900))
    old.run("INBOX", r"UID STORE 5 FLAGS.SILENT (\Flagged again)", r"UID STORE 6 +FLAGS.SILENT (\Deleted)",
            "UID EXPUNGE 6")
    new.run("INBOX", r"UID STORE 4 +FLAGS.SILENT (\Deleted)", "UID EXPUNGE 4")
    found = json.loads(server.command(*words))
    inbox, = (row for row in found["mailboxes"] if row["mailbox"] == "INBOX")
    assert {name: inbox[name] for name in ("brought", "flags_changed", "removed", "only_here", "missing", "differing")
            } == {"brought": 3, "flags_changed": 1, "removed": 1, "only_here": 1, "missing": 0, "differing": 0}
    there, here = old.contents("INBOX"), new.contents("INBOX")
    assert there.keys() - here.keys() == {4} and here.keys() - there.keys() == {6}
    assert all(here[uid] == there[uid] for uid in here.keys() & there.keys())
    assert Counter(fresh) <= Counter(here.values())


def test_folders_of_files(dovecot: Dovecot, server: Server) -> None:
    server.command("import", "maildir", "m2", str(dovecot.home("maildir") / "mail"))
    same(dovecot.account("maildir"), account(server.imap, "m2"), *NAMES)
    server.command("import", "maildir", "f2", str(dovecot.home("fs") / "mail"))
    same(dovecot.account("fs"), account(server.imap, "f2"), *NAMES)
    old, new = dovecot.account("mbox"), account(server.imap, "b2")
    server.command("import", "mbox", "b2", str(dovecot.home("mbox") / "inbox"))
    server.command("import", "mbox", "b2", str(dovecot.home("mbox") / "mail"))
    for name in ("INBOX", *OF_FILES):
        assert Counter(new.contents(name).values()) == Counter(old.contents(name).values())
    for user, path in (("m2", "maildir"), ("b2", "mbox")):
        before = account(server.imap, user).boxes()
        server.command("import", path, user, str(dovecot.home(path) / "mail"))     # once more
        assert account(server.imap, user).boxes() == before


def test_cyrus_spool(cyrus: Cyrus, server: Server) -> None:
    old, new = cyrus.account("cy"), account(server.imap, "cy")
    fill(old, *NAMES)
    many = [f"keyword{number}" for number in range(40)]         # more than a word of Cyrus's bits has
    old.put("Sent", [Message(b"Subject: many\r\n\r\n", many[::3]), Message(b"Subject: others\r\n\r\n", many[1::3])])
    words = ("import", "cyrus", "cy", "--imapd-conf", str(cyrus.config), "--bin", str(cyrus.programs), "--json")
    server.command(*words)
    same(old, new, *NAMES)
    server.command(*words)
    same(old, new, *NAMES)
    dotted = cyrus.account("cy.rus")
    dotted.put("INBOX", clients.ordinary(2, FLAGS))
    server.command("import", "cyrus", "cy.rus", *words[3:])
    same(dotted, account(server.imap, "cy.rus"))


def test_imap_killed_and_cut(dovecot: Dovecot, server: Server, tmp_path: Path) -> None:
    old, new = dovecot.account("many"), account(server.imap, "many")
    (tmp_path / "password").write_text(PASSWORD)
    random = Random(9)
    with Between(dovecot.imap) as between:
        words = ["import", "imap", "many", "--host", "127.0.0.1", "--port", str(between.port), "--tls", "none",
                 "--admin-user", "master", "--password-file", str(tmp_path / "password"), "--json"]
        for _ in range(KILLS):
            with subprocess.Popen([PROGRAM, *words], env=server.environment(), stdout=subprocess.DEVNULL) as process:
                between.plan([(random.randrange(1000, 250_000), lambda: process.send_signal(signal.SIGKILL))])
                assert process.wait() == -signal.SIGKILL
        between.plan([(size, None) for size in (4000, 30_000, 60_000)])
        found = json.loads(server.command(*words))
        assert between.cut == 3
    same(old, new, *NAMES)
    assert not found["told"] and all(row["missing"] == row["differing"] == 0 for row in found["mailboxes"])
    with new.login() as imap:
        assert imap.ok('LIST (SPECIAL-USE) "" "*"').find(rb"\\Sent").string.endswith(b"Sent")


def test_mbsync_finds_both_equal(dovecot: Dovecot, server: Server, tmp_path: Path) -> None:
    server.command("import", "dovecot", "maildir", "--dovecot-config", str(dovecot.config))
    found = []
    for side, port in (("old", dovecot.imap), ("new", server.imap)):
        here = Maildir(tmp_path / side)
        (tmp_path / f"{side}rc").write_text(f"""\
IMAPStore far
Host 127.0.0.1
Port {port}
User maildir
Pass {PASSWORD}
SSLType None
AuthMechs *

MaildirStore near
Path {here.root}/
Inbox {here.root}/INBOX
SubFolders Verbatim

Channel pull
Far :far:
Near :near:
Patterns *
Create Near
CopyArrivalDate yes
Sync Pull
SyncState *
""")
        clients.run(["mbsync", "--config", tmp_path / f"{side}rc", "pull"], tmp_path)
        found.append({name: Counter(evolve(message, octets=_TUID.sub(b"", message.octets, count=1))
                                    for message in counted.elements()) for name, counted in here.boxes().items()})
    assert sum(map(len, found[0].values())) > 100
    clients.same(found[1], found[0])


def test_an_export_is_a_mailbox_of_dovecot(dovecot: Dovecot, server: Server) -> None:
    server.command("import", "dovecot", "sdbox", "--dovecot-config", str(dovecot.config))
    server.command("export", "sdbox", "--format", "maildir", "--to", str(dovecot.home("back") / "mail"))
    subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", dovecot.home("back")], check=True)
    same(account(server.imap, "sdbox"), dovecot.account("back"), *NAMES)
    assert subscribed(dovecot.account("back")) == subscribed(account(server.imap, "sdbox"))
