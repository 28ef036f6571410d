"""A partition that has lost its databases, or is to lose them, is made anew from its user area and message files while
the server runs and mail for other partitions goes on; who is on it hears that it is for now, and needs no restart."""

import re
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap, Refused
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.mailing import Mail
from tests.support.clients.pop3 import Pop3
from tests.support.readers import trace
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages

pytestmark = pytest.mark.every_file

SENDER = "sender@example.org"
MAILS = 30


@pytest.fixture
def server(disk_path: Path):
    """bob and carol are on the partition `second`; bob has flags, a mailbox, and messages that were expunged."""
    with Server(disk_path, ["alice"], {"workers.imap": "1", "workers.lmtp": "1"}) as server:
        server.command("partition", "add", "second")
        server.command("user", "add", "--password-stdin", "--partition", "second", "bob", "carol",
                       octets=PASSWORD.encode() + b"\n")
        with Lmtp(server.lmtp) as lmtp:
            for number in range(MAILS):
                assert [each.code for each in lmtp.deliver(SENDER, ["alice", "bob", "carol"], messages.make(
                    7, number, 2000))] == [250, 250, 250]
        with Imap(server.imap, "bob", PASSWORD) as imap:
            imap.ok("CREATE Archive")
            imap.select()
            imap.ok("UID STORE 3:5 +FLAGS (\\Flagged todo)")
            imap.ok("UID COPY 1:4 Archive")
            imap.ok("UID STORE 7 +FLAGS (\\Deleted)")
            imap.ok("EXPUNGE")
        yield server


def view(server: Server, user: str) -> dict:
    """Each mailbox of a user: UIDVALIDITY, and UID, flags, date and octets of each message."""
    found = {}
    with Imap(server.imap, user, PASSWORD) as imap:
        for name in ("INBOX", "Archive") if user == "bob" else ("INBOX",):
            validity, _ = imap.select(name)
            rows = sorted(re.sub(rb" ?\\Recent", b"", response.text.partition(b" FETCH ")[2]) for response in imap.ok(
                "UID FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE)").untagged if b" FETCH " in response.text)
            found[name] = validity, rows, {uid: trace.below(body, SENDER) for uid, body in imap.messages().items()}
    return found


def refused(server: Server) -> None:
    """Who is on the partition hears that it is for now: RFC 3463 §3.4 (4.3), RFC 5530 §3 (UNAVAILABLE)."""
    with Lmtp(server.lmtp) as lmtp:
        lmtp.command("LHLO x")
        lmtp.command(f"MAIL FROM:<{SENDER}>")
        assert lmtp.command("RCPT TO:<bob>").code in (450, 451)
        assert lmtp.command("RCPT TO:<alice>").code == 250
    with Imap(server.imap, "bob", PASSWORD) as imap, pytest.raises(Refused, match="UNAVAILABLE"):
        imap.ok("SELECT INBOX")
    with Pop3(server.pop3) as pop3:
        assert pop3.command("USER bob").startswith("+OK")
        answer = pop3.command(f"PASS {PASSWORD}")
        assert answer.startswith("-ERR") and "[SYS/TEMP]" in answer


def test_while_others_get_mail(server: Server) -> None:
    """First by force, while the partition is in use: the processes begin anew once, by themselves. Then all that is
    left of it is the user area and the message files, and nothing begins anew."""
    before = {user: view(server, user) for user in ("bob", "carol")}
    mail = Mail(server, "alice", part=8, size=2000)
    mail.start()
    server.command("reconstruct", "--partition", "second", "--check", "--force", status=1)
    server.command("reconstruct", "--partition", "second", "--force")
    mail.more(4)
    mail.end()
    assert {user: view(server, user) for user in ("bob", "carol")} == before
    folder = server.root / "partitions" / "second"
    assert len(list(folder.glob("index.damaged-*"))) == 1
    assert server.stop() == 0
    for each in (folder / "index").iterdir():
        each.unlink()
    (folder / "rebuild").mkdir()            # as a command that was cut off leaves it: a start does not make it instead
    server.start()
    refused(server)
    assert "partition second: it has no databases" in server.command("reconstruct", "--all", "--check", status=1)
    said, mail = len(server.log.read_text()), Mail(server, "alice", part=8, size=2000)
    mail.start()
    with Imap(server.imap, "bob", PASSWORD) as imap:       # a connection that is there all the time
        assert "3 mailboxes" in server.command("reconstruct", "--partition", "second")
        imap.select()
        assert len(imap.uids()) == MAILS - 1
    mail.more(1)
    mail.end()
    assert not mail.refused and "died" not in server.log.read_text()[said:]
    assert {user: view(server, user) for user in ("bob", "carol")} == before
    with Lmtp(server.lmtp) as lmtp:
        assert lmtp.deliver(SENDER, ["bob"], messages.make(9, 1, 1500))[0].code == 250
    with Imap(server.imap, "bob", PASSWORD) as imap:
        imap.select()
        assert imap.uids()[-1] > MAILS + 1          # what may have been shown meanwhile is not given again
    assert "0 corrections; 0 left" in server.command("reconstruct", "--partition", "second")
    server.check()
    assert not (folder / "rebuild").exists()
