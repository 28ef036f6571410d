"""The log, at its most talkative, holds no password, no literal and no text of a message, whatever is done."""

import base64
from pathlib import Path

from tests.support.clients.admission import IMAP, LMTP, POP3, Knock
from tests.support.servers.server import Server

RIGHT = b"secret"                       # tests.support.server.PASSWORD
WRONG = b"Wr0ngPassw0rd"
TEXT = b"TheTextOfTheMessage"
LITERAL = b"WhatIsInTheLiteral"
SUBJECT = b"TheSubjectLine"
MESSAGE = (b"From: bob@example.org\r\nSubject: %b\r\n\r\n%b\r\n" % (SUBJECT, TEXT))


def encoded(*parts: bytes) -> bytes:
    return base64.b64encode(b"\0".join(parts))


def imap(server: Server, admission: str) -> None:
    with Knock(server, IMAP, admission=admission) as client:
        client.ask(b"a LOGIN alice %b\r\n" % WRONG)
        client.ask(b"b LOGIN {5+}\r\nalice {%d+}\r\n%b\r\n" % (len(WRONG), WRONG))
        client.ask(b"c AUTHENTICATE PLAIN %b\r\n" % encoded(b"", b"alice", WRONG))
        client.ask(b"d LOGIN alice %b trailing\r\n" % WRONG)
        client.ask(b"e %b\r\n" % WRONG)                             # a password where a command should be
    with Knock(server, IMAP, admission=admission) as client:
        assert client.ask(b"a AUTHENTICATE PLAIN %b\r\n" % encoded(b"", b"alice", RIGHT)).startswith(b"a OK")
        client.socket.sendall(b"b APPEND INBOX {%d+}\r\n%b\r\n" % (len(MESSAGE), MESSAGE))
        assert client.file.readline()
        assert client.ask(b"s SELECT INBOX\r\n").startswith(b"s OK")
        assert client.ask(b"f FETCH 1:* (BODY[] ENVELOPE)\r\n").startswith(b"f OK")
        client.ask(b"g SEARCH TEXT {%d+}\r\n%b\r\n" % (len(LITERAL), LITERAL))
        client.ask(b"h SEARCH CHARSET KLINGON TEXT {%d+}\r\n%b\r\n" % (len(LITERAL), LITERAL))
        client.ask(b"i FETCH {%d+}\r\n%b\r\n" % (len(LITERAL), LITERAL))
        client.ask(b"j CREATE {%d+}\r\n%b\r\n" % (len(LITERAL) + 2, LITERAL + b"\0\0"))
        client.socket.sendall(b"k APPEND NoSuchMailbox {%d+}\r\n%b\r\n" % (len(MESSAGE), MESSAGE))
        assert client.ask(b"n NOOP\r\n")


def pop3(server: Server, admission: str) -> None:
    with Knock(server, POP3, admission=admission) as client:
        client.ask(b"USER alice\r\n", b"PASS %b\r\n" % WRONG)
        client.ask(b"PASS %b\r\n" % WRONG, b"%b\r\n" % WRONG)
        client.ask(b"AUTH PLAIN %b\r\n" % encoded(b"", b"alice", WRONG))
    with Knock(server, POP3, admission=admission) as client:
        assert client.ask(b"USER alice\r\n", b"PASS %b\r\n" % RIGHT).startswith(b"+OK")
        client.socket.sendall(b"RETR 1\r\nTOP 1 10\r\nQUIT\r\n")
        assert TEXT in client.rest()


def lmtp(server: Server, admission: str) -> None:
    with Knock(server, LMTP, admission=admission) as client:
        client.ask(b"LHLO client.example.org\r\n")
        client.ask(b"AUTH PLAIN %b\r\n" % encoded(b"", b"alice", WRONG))
        client.ask(b"AUTH PLAIN %b\r\n" % encoded(b"", b"alice", RIGHT))
        client.ask(b"MAIL FROM:<>\r\n", b"RCPT TO:<alice>\r\n", b"DATA\r\n")
        assert client.ask(MESSAGE + b".\r\n").startswith(b"250")
        client.ask(b"MAIL FROM:<>\r\n", b"RCPT TO:<alice>\r\n")
        assert client.ask(b"BDAT %d LAST\r\n%b" % (len(MESSAGE), MESSAGE)).startswith(b"250")
        client.ask(MESSAGE)                                         # a message where commands should be


def drain(server: Server) -> None:
    """One process does everything, and those who have logged in may stay for a moment only."""
    with Knock(server, IMAP) as one, Knock(server, POP3) as other:
        assert one.log_in().startswith(b"l OK") and other.log_in().startswith(b"+OK")
        server.command("drain")
        assert one.rest().startswith(IMAP.stops) and other.rest().startswith(POP3.stops)
    assert server.wait() == 0
    server.command("drain", status=1)                               # there is nothing to drain any more


def test_the_log_tells_nothing_of_what_is_secret(tmp_path: Path) -> None:
    with Server(tmp_path, ["alice"], {"log.level": "debug", "lmtp.auth_users": "alice",
                                      "workers.drain_time": "100ms"}) as server:
        for admission in ("port", "starttls"):
            lmtp(server, admission)
            imap(server, admission)
            pop3(server, admission)
        drain(server)
    said = server.log.read_bytes()
    assert b"alice" in said and b"DEBUG" in said                    # it does tell something
    for secret in (WRONG, TEXT, LITERAL, SUBJECT, encoded(b"", b"alice", WRONG), encoded(b"", b"alice", RIGHT)):
        assert secret.lower() not in said.lower(), secret
    assert RIGHT not in said.replace(b"secrets", b"")
    # and umask 077 holds for what the server makes, whatever it was before
    made = [path for folder in ("run", "partitions/primary/messages") for path in (server.root / folder).rglob("*")]
    assert server.messages and not [path for path in made if path.lstat().st_mode & 0o077]
