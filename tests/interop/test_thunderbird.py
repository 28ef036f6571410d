"""A real Thunderbird that is given an address and a password and finds out the rest by itself: it asks the web server
that docs/mail-programs.md puts in front.

What it does is begun with the commands of its menus; what came of it is read by another connection. With
PICTURES=FOLDER the pictures of docs/mail-programs are made in that folder.
"""

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from attrs import frozen

from tests.support import ROOT
from tests.support.clients.cachingclient import truth
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.thunderbird import Thunderbird
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.backends import MESSAGE_ID, body
from tests.support.servers.certificates import Authority
from tests.support.servers.failoverwork import Work
from tests.support.servers.server import PASSWORD, Server
from tests.support.servers.standbymachines import two_machines

PICTURES = os.environ.get("PICTURES", "")
LIMIT = 300.0
PAGE = ROOT / "docs/mail-programs.md"
NAMES = ("mail.example.org", "autoconfig.example.org", "autodiscover.example.org")

_SEARCH = """new Promise(done => {{
    const found = [], session = Cc["@mozilla.org/messenger/searchSession;1"].createInstance(Ci.nsIMsgSearchSession);
    session.addScopeTerm(Ci.nsMsgSearchScope.onlineMail, at("INBOX"));
    const term = session.createTerm(), value = term.value;
    value.attrib = term.attrib = Ci.nsMsgSearchAttrib.Body;
    value.str = {};
    term.value = value;
    term.op = Ci.nsMsgSearchOp.Contains;
    session.appendTerm(term);
    session.registerListener({{
        onSearchHit: message => found.push(message.mime2DecodedSubject), onSearchDone: () => done(found),
        onNewSearch() {{}}
    }});
    session.search(msgWindow);
}})"""


def message(day: int, subject: str, text: str, before: int = 0) -> bytes:
    """With `before` an answer to that of that day."""
    answer = f"In-Reply-To: <{before}@example.org>\r\nReferences: <{before}@example.org>\r\n" if before else ""
    return (f"From: Bob <bob@example.org>\r\nTo: alice@example.org\r\nSubject: {subject}\r\n"
            f"Date: Wed, {day:02} Mar 2024 10:00:00 +0000\r\nMessage-ID: <{day}@example.org>\r\n{answer}\r\n"
            f"{text}\r\n").encode()


MAIL = (message(6, "Lunch", "At noon?"), message(7, "Re: Lunch", "Yes, gladly.", before=6),
        message(8, "Invoice", "Please pay for the aubergines."), message(9, "Flagged", "Text."),
        message(10, "Archived", "Text."), message(11, "Moved", "Text."), message(12, "Deleted", "Text."))


@frozen
class Person:
    """Somebody at Thunderbird."""

    program: Thunderbird
    server: Server

    def command(self, name: str, *values: str) -> None:
        """What an entry of a menu does."""
        self.program.value(f"(pane.commandController.doCommand({', '.join([json.dumps(name), *values])}), true)")

    def flags(self, mailbox: str) -> dict[str, set[str]]:
        """What the server has: the flags of each message by its subject."""
        found = {}
        with Imap(self.server.imap, "alice", PASSWORD) as imap:
            if imap.command(f'EXAMINE "{mailbox}"').status == "OK":
                for response in imap.command("FETCH 1:* (FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT)])").untagged:
                    flags = re.search(rb"FLAGS \(([^)]*)\)", response.text)
                    if flags and response.literals:
                        subject = response.literals[0].decode().partition(":")[2].strip()
                        found[subject] = set(flags[1].decode().split())
        return found

    def comes(self, there: Callable[[], bool]) -> None:
        """Wait until it is so in the store."""
        wait.until(there, "it is so in the store", pid=self.server.pid, limit=LIMIT)

    def picture(self, name: str) -> None:
        """For the documentation, if it is wanted."""
        if PICTURES:
            (Path(PICTURES) / f"{name}.png").write_bytes(self.program.screenshot())


def own_address() -> str:
    """An address of loopback at which nobody listens on the port of HTTPS."""
    for _ in range(100):
        address = f"127.{Random().randrange(1, 255)}.{Random().randrange(1, 255)}.1"
        with socket.socket() as probe:
            try:
                probe.bind((address, 443))
            except OSError:
                continue
        return address
    raise AssertionError("port 443 is taken on all of loopback")


@pytest.fixture(scope="module")
def alice(memory_path: Path) -> Iterator[Person]:
    """With mail, a mailbox that bob shares, and a Thunderbird that knows nothing yet."""
    folder = memory_path
    authority, http = Authority(folder, "authority"), free_port()
    certificate = authority.back_end(*NAMES, "smtp.example.org")
    with Server(folder, ("alice", "bob"), {
            "tls.certificate": str(certificate), "store.special_mailboxes": "Drafts, Sent, Junk, Trash, Archive",
            "store.default_domain": "example.org", "http.port": str(http), "http.mail_name": NAMES[0],
            "http.submission": "smtp.example.org:465"}) as server:
        for octets in MAIL:
            server.command("deliver", "alice", octets=octets)
        server.command("quota", "set", "alice", "--octets", "1M")
        server.command("mailbox", "create", "bob", "Projects")
        server.command("mailbox", "acl", "bob", "Projects", "alice", "lrs")
        with Imap(server.imap, "bob", PASSWORD) as imap:
            assert imap.append("Projects", message(13, "A plan", "With a beginning.")).status == "OK"
        with Imap(server.imap, "alice", PASSWORD) as imap:
            imap.ok("SUBSCRIBE user/bob/Projects")
        address = own_address()
        front = web_server(folder, address, certificate, http)
        try:
            hosts = {NAMES[0]: "127.0.0.1", NAMES[1]: address, "smtp.example.org": "127.0.0.1"}
            with Thunderbird(folder / "thunderbird", hosts, authority.file) as program:
                yield Person(program, server)
        finally:
            wait.ended(front, "nginx", limit=LIMIT)
        assert server.stop() == 0
        server.check()


def web_server(folder: Path, address: str, certificate: Path, http: int) -> "subprocess.Popen[bytes]":
    """nginx as the page has it, at that address."""
    block = re.search(r"\n(    server \{\n.*?\n    \})\n", PAGE.read_text(), re.DOTALL)
    assert block, "docs/mail-programs.md has no server of nginx"
    text = block[1]
    listening = f"listen {address}:443 ssl; ssl_certificate {certificate}; ssl_certificate_key {certificate};"
    for old, new in {"listen 443 ssl;": listening, "127.0.0.1:8025": f"127.0.0.1:{http}"}.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(f"daemon off;\npid {folder}/nginx.pid;\nevents {{}}\nhttp {{\n"
                                       f"access_log {folder}/access.log;\n{text}\n}}\n")
    process = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "nginx.log"],
                               stdin=subprocess.DEVNULL)

    def accepts() -> bool:
        try:
            with socket.create_connection((address, 443), LIMIT):
                return True
        except ConnectionRefusedError:
            return False

    wait.until(accepts, "nginx accepts", pid=process.pid, limit=LIMIT)
    return process


@pytest.fixture(scope="module")
def configured(alice: Person) -> Person:
    """She has typed her address and her password, and nothing else."""
    alice.program.set_up("alice@example.org", PASSWORD, lambda: alice.picture("thunderbird-found"))
    return alice


def test_configured_by_autoconfig_alone(configured: Person) -> None:
    """Names, ports and TLS are the server's own (TLS is 3, SSL of nsMsgSocketType)."""
    options = configured.server.options
    assert configured.program.value("[account.hostname || account.hostName, account.port, account.socketType, account."
                                    "username]") == [NAMES[0], int(options["imap.tls_port"]), 3, "alice@example.org"]
    assert configured.program.value("MailServices.outgoingServer.servers.map(each => each.serverURI.spec)") == [
        "smtp://alice%40example.org@smtp.example.org:465/"]


def test_what_is_listed(configured: Person) -> None:
    """Mailboxes by their special use (RFC 6154), messages with an answer below what it answers."""
    configured.program.open("INBOX")
    configured.program.until(f"at('INBOX').getTotalMessages(false) == {len(MAIL)}")
    assert configured.program.value("""["Drafts", "SentMail", "Archive", "Junk", "Trash"].map(each => account.rootFolder
        .getFolderWithFlags(Ci.nsMsgFolderFlags[each])?.URI.split("/").pop())""") == [
        "Drafts", "Sent", "Archive", "Junk", "Trash"]
    configured.program.until("mail('INBOX', 'Re: Lunch') && mail('INBOX', 'Lunch')")
    assert configured.program.value("""at("INBOX").msgDatabase.getThreadContainingMsgHdr(mail("INBOX", "Lunch"))
        .getChildHdrAt(1).messageId""") == "7@example.org"


def test_a_message_is_read(configured: Person) -> None:
    assert "aubergines" in configured.program.choose("INBOX", "Invoice")
    configured.picture("thunderbird-message")
    configured.comes(lambda: configured.flags("INBOX")["Invoice"] == {"\\Seen"})


def test_flags(configured: Person) -> None:
    configured.program.choose("INBOX", "Flagged")
    configured.comes(lambda: configured.flags("INBOX")["Flagged"] == {"\\Seen"})
    configured.command("cmd_markAsFlagged")
    configured.comes(lambda: configured.flags("INBOX")["Flagged"] == {"\\Seen", "\\Flagged"})
    configured.command("cmd_markAsUnread")
    configured.comes(lambda: configured.flags("INBOX")["Flagged"] == {"\\Flagged"})


@pytest.mark.parametrize(("subject", "command", "more", "mailbox"), [
    ("Archived", "cmd_archive", (), "Archive/2024"), ("Moved", "cmd_moveMessage", ("at('Junk')",), "Junk"),
    ("Deleted", "cmd_delete", (), "Trash")])
def test_a_message_is_moved(configured: Person, subject: str, command: str, more: tuple[str, ...], mailbox: str
                            ) -> None:
    configured.program.choose("INBOX", subject)
    configured.command(command, *more)
    configured.comes(lambda: subject in configured.flags(mailbox) and subject not in configured.flags("INBOX"))


def test_search_at_the_server(configured: Person) -> None:
    configured.program.open("INBOX")
    assert configured.program.value(_SEARCH.format('"aubergines"')) == ["Invoice"]
    assert configured.program.value(_SEARCH.format('"nothing of this"')) == []


def test_a_mailbox_that_is_shared(configured: Person) -> None:
    """Read in it; what alice has read is no matter of bob's."""
    assert "With a beginning." in configured.program.choose("user/bob/Projects", "A plan")
    configured.comes(lambda: configured.flags("user/bob/Projects")["A plan"] == {"\\Seen"})
    configured.picture("thunderbird-shared")
    with Imap(configured.server.imap, "bob", PASSWORD) as imap:
        imap.select("Projects", examine=True)
        assert b"\\Seen" not in imap.ok("FETCH 1 (FLAGS)").untagged[0].text


def test_quota(configured: Person) -> None:
    """RFC 9208: the numbers are ours."""
    with Imap(configured.server.imap, "alice", PASSWORD) as imap:
        used, limit = map(int, imap.ok("GETQUOTAROOT INBOX").find(rb"STORAGE (\d+) (\d+)").groups())
    configured.program.open("INBOX")
    configured.program.value("(at('INBOX').updateFolder(msgWindow), true)")
    quota = "at('INBOX').QueryInterface(Ci.nsIMsgImapMailFolder).getQuota()"
    told = f"JSON.stringify({quota}.map(each => [each.usage, each.limit]))"     # empty while it asks again
    configured.program.until(f"{told} == '[[{used},{limit}]]'")


def test_over_a_failover(configured: Person, tmp_path: Path) -> None:
    """The machine is lost under load, and the standby takes its place at its address and port. It lacks what came last,
    although Thunderbird has seen it. Thunderbird goes on by itself, and has neither more nor less than there is."""
    program, work = configured.program, Work(("bob", "alice"))
    with two_machines(tmp_path) as (one, two):
        two.options.update({name: one.options[name] for name in ("imap.port", "lmtp.port")})
        two.imap, two.lmtp = one.imap, one.lmtp
        two.command("standby", "create", "--from", two.source)
        thread = threading.Thread(target=work.run, args=(one,), daemon=True)
        with two.following() as follower:
            thread.start()
            work.more(6)
            work.pause()
            program.add_account("alice", PASSWORD, "127.0.0.1", one.imap)
            program.choose("INBOX", "0@example.org")
            wait.until(lambda: "\\Seen" in min(shown(one).items())[1][1], "it is read", pid=one.pid, limit=LIMIT)
            before = time.time()
            wait.until(lambda: two.is_current(before), "the standby", pid=os.getpid(), limit=LIMIT)
            follower.kill()
            follower.join()
            work.more(3)
            work.pause()
            first, gone = seen_and_lost(program, one)
            work.more(2)
            one.kill()
            thread.join(LIMIT)
            assert not thread.is_alive() and not work.errors
        two.command("standby", "promote", "--yes")
        two.start()
        with Lmtp(two.lmtp) as lmtp:            # before Thunderbird comes: no UID that it knows may come again
            for number in range(4):
                reply, = lmtp.deliver("relay@example.org", ["alice"], body(f"before-{number}@example.org"))
                assert reply.code == 250
        shows(program, two)
        found = shown(two)
        assert gone in found and "\\Answered" not in found[first][1] and "\\Seen" in found[first][1]
        assert work.delivered.keys() - work.begun - {name.encode() for name, _ in found.values()}, "nothing was lost"
        with Lmtp(two.lmtp) as lmtp, Imap(two.imap, "alice") as imap:
            assert lmtp.deliver("relay@example.org", ["alice"], body("after@example.org", 9))[0].code == 250
            imap.select()
            imap.ok(f"UID STORE {gone} +FLAGS.SILENT (\\Deleted)")
            imap.ok(f"UID EXPUNGE {gone}")
        shows(program, two)
        program.choose("INBOX", "after@example.org")
        configured.command("cmd_markAsFlagged")
        wait.until(lambda: max(shown(two).items())[1][1] == {"\\Seen", "\\Flagged"}, "its flags", pid=two.pid,
                   limit=LIMIT)
        shows(program, two)
        two.check()


def shown(server: Server) -> dict[int, tuple[str, frozenset[str]]]:
    """What there is to show in the INBOX: Message-ID and flags, by UID."""
    with Imap(server.imap, "alice") as imap:
        return {uid: (found[1].decode(), frozenset(flag.decode() for flag in flags))
                for uid, (octets, flags) in truth(imap).items() if (found := MESSAGE_ID.search(octets))}


def shows(program: Thunderbird, server: Server) -> None:
    """It comes to show just that."""
    wait.until(lambda: program.update("INBOX") == shown(server), "Thunderbird has what there is", pid=server.pid,
               limit=LIMIT)


def seen_and_lost(program: Thunderbird, server: Server) -> tuple[int, int]:
    """Changes that Thunderbird sees, and nobody else: a message is answered, and one has gone."""
    with Imap(server.imap, "alice") as imap:
        imap.select()
        first, _, gone, *_ = imap.uids()
        imap.ok(f"UID STORE {first} +FLAGS (\\Answered)")
        imap.ok(f"UID STORE {gone} +FLAGS (\\Deleted)")
        imap.ok(f"UID EXPUNGE {gone}")

    def seen() -> bool:
        known = program.update("INBOX")
        return gone not in known and "\\Answered" in known[first][1]

    wait.until(seen, "Thunderbird sees it", pid=server.pid, limit=LIMIT)
    return first, gone
