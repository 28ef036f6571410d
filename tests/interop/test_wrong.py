"""What real clients do wrong, one thing at a time, against a real server."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp, stuffed
from tests.support.clients.pop3 import Pop3
from tests.support.processes import wait
from tests.support.readers import trace
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages

SENDER = "sender@example.org"
LIMIT = 1024 * 1024             # octets of a message
QUOTA = 3 * 1024 * 1024
USERS = ["alice", "bob", "carol"]
SPILLED = messages.make(1, 0, 700 * 1024)       # so big that the server has part of it in a file before the end
SMALL = messages.make(1, 1, 2048)

BROKEN = {
    "no header": b"\r\nonly a body\r\n",
    "nothing": b"",
    "an empty line": b"\r\n",
    "no body and no empty line": b"Subject: no body\r\n",
    "not a header at all": b"this is no header\r\nneither is this\r\n\r\nbody\r\n",
    "eight bits in the header": b"Subject: \xff\xfe gr\xfc\xdfe\r\nFrom: \xe4@\xf6\r\n\r\n\x80\x81\r\n",
    "an endless boundary": b"Content-Type: multipart/mixed; boundary=\"" + b"x" * 900 + b"\"\r\n\r\n--x\r\n",
    "no boundary": b"Content-Type: multipart/mixed\r\n\r\n--\r\n\r\npart\r\n----\r\n",
    "an unclosed quote": b"Content-Type: text/plain; name=\"never closed\r\nTo: \"also <a@example.org\r\n\r\nx\r\n",
    "parts that do not end": b"Content-Type: multipart/mixed; boundary=a\r\n\r\n" + b"--a\r\nContent-Type: "
                             b"multipart/mixed; boundary=a\r\n\r\n" * 50,
    "two hundred levels": b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n)
                                   for n in range(200)) + b"\r\ndeep\r\n",
    "messages in messages": b"Content-Type: message/rfc822\r\n\r\n" * 200 + b"Subject: inner\r\n\r\nx\r\n",
    "ten thousand parts": b"Content-Type: multipart/mixed; boundary=p\r\n\r\n" + b"--p\r\n\r\nx\r\n" * 10_000
                          + b"--p--\r\n",
    "a date that is none": b"Date: yesterday, or so\r\nReferences: <<<>>>\r\n\r\nx\r\n",
    "a very long line": b"Subject: long\r\n\r\n" + b"x" * 300_000 + b"\r\n",
    "a very long header field": b"X-Long: " + b"word " * 30_000 + b"\r\n\r\nx\r\n",
    "base64 that is none": b"Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\n\xff!!!=\r\n",
}
IN_PLACE_OF_NUL = b"\x80"       # in literals, where RFC 3501 §9 allows no NUL
LINE_ENDS = {
    "bare LF": b"Subject: a\nTo: b\n\nline\nline\n\r\n",
    "bare CR": b"Subject: a\rTo: b\r\r\nline\rline\r\r\n",
    "mixed": b"Subject: a\r\nX: b\nY: c\r\n\r\n\r\r\n\n\r\n\n\r\r\n",
    "dots after bare LF": b"Subject: a\r\n\r\nx\n.y\n..\nz\r.w\r..\r\n.\nlast\n..\r\n",
    "NUL": b"Subject: \0nul\0\r\n\r\n\0\0 \0\r\n.\0\r\n\0",
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    options = {"store.message_limit": str(LIMIT), "store.default_quota": str(QUOTA)}
    with TemporaryDirectory(prefix="onecopy-") as folder, Server(Path(folder), USERS, options) as server:
        yield server
        wait.until(lambda: server.staged == [], "nothing is left in staging", pid=server.pid, limit=180)
        server.check()


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """The one server, all mailboxes empty; whatever a test did to it, it is well afterwards."""
    for user in USERS:
        with Imap(shared.imap, user, PASSWORD) as imap:
            if imap.select()[1]:
                imap.ok("STORE 1:* +FLAGS.SILENT (\\Deleted)")
                imap.ok("EXPUNGE")
    yield shared
    with Lmtp(shared.lmtp) as lmtp:
        assert lmtp.command("NOOP").code == 250


def inbox(server: Server, user: str = "alice") -> list[bytes]:
    """The octets of all messages, in order of UID."""
    with Imap(server.imap, user, PASSWORD) as imap:
        return list(imap.messages().values()) if imap.select(examine=True)[1] else []


def deliver(server: Server, message: bytes, *recipients: str) -> None:
    """A delivery that must work."""
    with Lmtp(server.lmtp) as lmtp:
        replies = lmtp.deliver(SENDER, recipients or ["alice"], message)
    assert [reply.code for reply in replies] == [250] * len(replies), replies


# Refusals

def test_an_unknown_user_is_refused_at_rcpt_and_harms_nobody(server: Server) -> None:
    with Lmtp(server.lmtp) as lmtp:
        lmtp.command(f"MAIL FROM:<{SENDER}>")
        refused = lmtp.command("RCPT TO:<nobody@example.org>")
        assert (refused.code, refused.enhanced) == (550, "5.1.1")
        elsewhere = lmtp.command("RCPT TO:<alice@elsewhere.example>")
        assert (elsewhere.code, elsewhere.enhanced) == (550, "5.1.1")
        assert lmtp.command("DATA").code == 503
        lmtp.command("RSET")
        unknown, known = lmtp.deliver(SENDER, ["nobody", "alice"], SMALL)
        assert (unknown.code, known.code) == (550, 250)
    assert [trace.below(found, SENDER) for found in inbox(server)] == [SMALL]


def test_over_quota(server: Server) -> None:
    filling = [messages.make(2, number, LIMIT) for number in range(3)]
    for message in filling[:2]:
        deliver(server, message, "alice")
    with Lmtp(server.lmtp) as lmtp:
        full, other = lmtp.deliver(SENDER, ["alice", "bob"], filling[2])
        assert (full.code, full.enhanced) == (452, "4.2.2")
        assert other.code == 250, other
    with Imap(server.imap, "alice", PASSWORD) as imap:
        answer = imap.append("INBOX", filling[2])
        assert (answer.status, answer.text.split()[0]) == ("NO", "[OVERQUOTA]")
        imap.select()
        answer = imap.command("COPY 1:2 INBOX")
        assert (answer.status, answer.text.split()[0]) == ("NO", "[OVERQUOTA]")
        assert imap.select()[1] == 2
        imap.ok("STORE 1 +FLAGS.SILENT (\\Deleted)")
        imap.ok("EXPUNGE")
    deliver(server, filling[2], "alice")
    assert [trace.below(found, SENDER) for found in inbox(server)] == filling[1:]


def test_too_big_is_refused_at_mail_when_size_says_so(server: Server) -> None:
    with Lmtp(server.lmtp) as lmtp:
        assert int(lmtp.extensions["SIZE"]) == LIMIT
        refused = lmtp.command(f"MAIL FROM:<{SENDER}> SIZE={LIMIT + 1}")
        assert (refused.code, refused.enhanced) == (552, "5.3.4")
        assert lmtp.command(f"MAIL FROM:<{SENDER}> SIZE={LIMIT}").code == 250


def test_too_big_is_refused_after_data_when_size_said_nothing(server: Server) -> None:
    files = len(server.messages)
    with Lmtp(server.lmtp) as lmtp:
        replies = lmtp.deliver(SENDER, ["alice", "bob"], messages.make(3, 0, LIMIT + 1))
        assert [(reply.code, reply.enhanced) for reply in replies] == [(552, "5.3.4")] * 2
        reply, = lmtp.deliver(SENDER, ["alice"], messages.make(3, 1, LIMIT))
        assert reply.code == 250, reply
    assert len(inbox(server)) == 1 and inbox(server, "bob") == []
    assert len(server.messages) == files + 1


def test_too_big_to_append(server: Server) -> None:
    message = messages.make(4, 0, LIMIT + 1)
    with Imap(server.imap, "alice", PASSWORD) as imap:
        refused = imap.append("INBOX", message)             # before the literal is sent
        assert (refused.status, refused.text.split()[0]) == ("NO", "[TOOBIG]")
        imap.send(b"x APPEND INBOX {%d+}\r\n" % len(message) + message + b"\r\n")
        refused = imap.answer(b"x")                         # swallowed
        assert (refused.status, refused.text.split()[0]) == ("NO", "[TOOBIG]")
        assert imap.append("INBOX", message[:-2]).status == "OK"
    assert inbox(server) == [message[:-2]]


# Octets

@pytest.mark.parametrize("message", BROKEN.values(), ids=BROKEN)
def test_broken_mime_is_served_octet_for_octet(server: Server, message: bytes) -> None:
    sent = message if message.endswith(b"\r\n") or not message else message + b"\r\n"
    deliver(server, sent)
    with Imap(server.imap, "alice", PASSWORD) as imap:
        if message:
            assert imap.append("INBOX", message).status == "OK"
        imap.select()
        imap.ok("FETCH 1:* (ENVELOPE BODYSTRUCTURE BODY RFC822.SIZE BODY.PEEK[HEADER] BODY.PEEK[1])")
        imap.ok('SEARCH OR TEXT "deep" BODY "part"')
        delivered, *appended = imap.messages().values()
    assert trace.below(delivered, SENDER) == sent
    assert appended == [message][:len(message)]
    with Pop3(server.pop3, "alice", PASSWORD) as pop3:
        assert pop3.message(1) == delivered
        if message:
            assert pop3.message(2) == sent              # RETR adds the CRLF that its own end needs


@pytest.mark.parametrize("message", LINE_ENDS.values(), ids=LINE_ENDS)
def test_bare_line_ends_and_nul_stay_as_they_are(server: Server, message: bytes) -> None:
    """No line end but CRLF counts: least of all one that would end the message early (RFC 5321 §4.1.1.4)."""
    sent = message if message.endswith(b"\r\n") else message + b"\r\n"
    deliver(server, sent)
    delivered, = inbox(server)
    assert trace.below(delivered, SENDER) == sent.replace(b"\0", IN_PLACE_OF_NUL)
    with Pop3(server.pop3, "alice", PASSWORD) as pop3:
        retrieved = pop3.message(1)
    assert trace.below(retrieved, SENDER) == sent and retrieved.replace(b"\0", IN_PLACE_OF_NUL) == delivered


def test_a_dot_alone_between_bare_line_ends(server: Server) -> None:
    """It does not end what comes in. Going out by POP3 it is doubled, as many clients would take it for the end."""
    message = b"Subject: a\r\n\r\nx\n.\nMAIL FROM:<>\n.\r\nRSET\r\ny\r.\rz\r.\r\nw\n.\r"
    deliver(server, message + b"\r\n")
    delivered, = inbox(server)
    assert trace.below(delivered, SENDER) == message + b"\r\n"
    with Pop3(server.pop3, "alice", PASSWORD) as pop3:
        retrieved = pop3.message(1)
    assert trace.below(retrieved, SENDER) \
        == b"Subject: a\r\n\r\nx\n..\nMAIL FROM:<>\n..\r\nRSET\r\ny\r..\rz\r..\r\nw\n..\r\r\n"


@pytest.mark.parametrize("message", LINE_ENDS.values(), ids=LINE_ENDS)
def test_bare_line_ends_and_nul_can_be_appended(server: Server, message: bytes) -> None:
    with Imap(server.imap, "alice", PASSWORD) as imap:
        assert imap.append("INBOX", message).status == "OK"
    assert inbox(server) == [message.replace(b"\0", IN_PLACE_OF_NUL)]


# Clients that go away

@pytest.mark.parametrize("how", ["close", "abort"])
@pytest.mark.parametrize("tail", [b"", b"\r", b"\r\n", b"\r\n."], ids=repr)
def test_gone_in_the_middle_of_data(server: Server, how: str, tail: bytes) -> None:
    files = len(server.messages)
    lmtp = Lmtp(server.lmtp)
    lmtp.send(f"MAIL FROM:<{SENDER}>\r\nRCPT TO:<alice>\r\nRCPT TO:<bob>\r\nDATA\r\n".encode())
    assert [lmtp.reply().code for _ in range(4)] == [250, 250, 250, 354]
    lmtp.send(stuffed(SPILLED)[:-5] + tail)
    wait.until(lambda: server.staged != [], "the message is being received", pid=server.pid, limit=180)
    getattr(lmtp, how)()
    wait.until(lambda: server.staged == [], "it is swept", pid=server.pid, limit=180)
    assert inbox(server) == inbox(server, "bob") == []
    assert len(server.messages) == files


@pytest.mark.parametrize("how", ["close", "abort"])
@pytest.mark.parametrize("plus", [b"", b"+"], ids=["literal", "literal+"])
@pytest.mark.parametrize("missing", [1, 100_000])
def test_gone_in_the_middle_of_append(server: Server, how: str, plus: bytes, missing: int) -> None:
    files = len(server.messages)
    imap = Imap(server.imap, "alice", PASSWORD)
    imap.send(b"x APPEND INBOX {%d%b}\r\n" % (len(SPILLED), plus))
    if not plus:
        assert imap.response().text.startswith(b"+")
    imap.send(SPILLED[:-missing])
    wait.until(lambda: server.staged != [], "the message is being received", pid=server.pid, limit=180)
    getattr(imap, how)()
    wait.until(lambda: server.staged == [], "it is swept", pid=server.pid, limit=180)
    assert inbox(server) == []
    assert len(server.messages) == files


def test_gone_before_the_answer_is_read(server: Server) -> None:
    """A client that does not wait for the answer may find its message there or not, but never half of it."""
    for turn in range(10):
        lmtp = Lmtp(server.lmtp)
        lmtp.send(f"MAIL FROM:<{SENDER}>\r\nRCPT TO:<alice>\r\nDATA\r\n".encode() + stuffed(SMALL))
        (lmtp.abort if turn % 2 else lmtp.close)()
    for found in inbox(server):
        assert trace.below(found, SENDER) == SMALL


# Lines and literals past their limit

def test_a_line_too_long_for_lmtp(server: Server) -> None:
    with Lmtp(server.lmtp) as lmtp:
        reply = lmtp.command("NOOP " + "x" * 1_000_000)
        assert (reply.code, reply.enhanced) == (500, "5.5.2")
        assert lmtp.command("MAIL FROM:<" + "x" * 100_000 + ">").code // 100 == 5
        assert lmtp.deliver(SENDER, ["alice"], SMALL)[0].code == 250


def test_a_line_too_long_for_pop3(server: Server) -> None:
    with Pop3(server.pop3) as pop3:
        assert pop3.command("USER " + "x" * 50_000).startswith("-ERR")
        pop3.ok("USER alice")
        pop3.ok(f"PASS {PASSWORD}")
        assert pop3.command("LIST " + "1" * 1_000_000).startswith("-ERR")
        pop3.ok("NOOP")


def test_a_line_too_long_for_imap(server: Server) -> None:
    with Imap(server.imap) as imap:
        imap.send(b"x LOGIN alice " + b"x" * 50_000 + b"\r\n")     # long, but not too long (RFC 2971 §3.3)
        assert imap.response().text.split()[1] == b"NO"
        imap.ok(f"LOGIN alice {PASSWORD}")
        imap.send(b"y SEARCH " + b"NOT " * 500_000 + b"ALL\r\n")
        assert imap.response().text.split()[1] == b"BAD"
        imap.ok("NOOP")


def test_a_literal_too_long_for_imap(server: Server) -> None:
    with Imap(server.imap) as imap:
        for size in (10_000_000, 10 ** 30):
            imap.send(b"x LOGIN alice {%d}\r\n" % size)         # refused without being asked for
            assert imap.response().text.split()[:2] in ([b"x", b"BAD"], [b"x", b"NO"])
        imap.ok(f"LOGIN alice {PASSWORD}")
        imap.send(b"y SELECT {%d}\r\n" % 10_000_000)
        assert imap.response().text.split()[:2] in ([b"y", b"BAD"], [b"y", b"NO"])
        imap.send(b"z SELECT {3000000+}\r\n" + b"z LOGOUT\r\n" * 300_000 + b"\r\n")     # swallowed, not obeyed
        assert imap.response().text.split()[:2] in ([b"z", b"BAD"], [b"z", b"NO"])
        imap.ok("NOOP")
