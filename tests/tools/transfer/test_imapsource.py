"""What the import understands of another IMAP server's answers, and what a hostile server can do: one clear error."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from store.values import Flag, Flags, InternalDate, Secret
from tools.transfer.servers import imapconnection
from tools.transfer.servers.imapconnection import Connection, Gone, Literal, Refused, octets_of, tunnelled
from tools.transfer.servers.imapsource import ImapServer
from tools.transfer.sourcevalues import Box, Mail, Unreadable, UserTime

GREETING = b"* PREAUTH ready\r\n"


@contextmanager
def answering(*octets: bytes) -> Iterator[Connection]:
    """A connection to a server that sends these octets, whatever it is asked, and ends the connection."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs:
            try:
                for some in (GREETING, *octets):
                    theirs.sendall(some)
                theirs.shutdown(socket.SHUT_WR)
                while theirs.recv(1 << 16):
                    pass
            except OSError:
                pass                        # the client has had enough

    thread = Thread(target=serve)
    thread.start()
    connection = Connection(ours).greeted()
    try:
        yield connection
    finally:
        connection.drop()
        thread.join()


@pytest.mark.parametrize(("line", "values"), [
    (rb'LIST (\HasNoChildren \Sent) "/" INBOX', ["LIST", [r"\HasNoChildren", r"\Sent"], b"/", "INBOX"]),
    (rb'LIST () NIL "a \"b\" \\c (d"', ["LIST", [], None, b'a "b" \\c (d']),
    (b'LIST () "." {4}\r\na\r\nb', ["LIST", [], b".", b"a\r\nb"]),
    (b'LIST () "." "\xe9t\xe9"', ["LIST", [], b".", b"\xe9t\xe9"]),
    (b"7 FETCH (UID 4 BODY[HEADER.FIELDS (MESSAGE-ID)] {2}\r\n\0\n FLAGS (\\Seen a[b \\*))",
     ["7", "FETCH", ["UID", "4", "BODY[HEADER.FIELDS (MESSAGE-ID)]", b"\0\n", "FLAGS", ["\\Seen", "a[b", "\\*"]]]),
    (b"7 FETCH (BODY[] ~{0}\r\n BINARY[1]<0> NIL)", ["7", "FETCH", ["BODY[]", b"", "BINARY[1]<0>", None]]),
    (b'NAMESPACE (("" "/")("#x" "/")) NIL ()', ["NAMESPACE", [[b"", b"/"], [b"#x", b"/"]], None, []]),
])
def test_answers(line: bytes, values: list[object]) -> None:
    def plain(value: object) -> object:
        if isinstance(value, list):
            return [plain(each) for each in value]
        return value.octets() if isinstance(value, Literal) else value

    with answering(b"* " + line + b"\r\nc1 OK done\r\n") as connection:
        answer, = connection.run(b"NOOP")
        assert plain(answer.values()) == values


@pytest.mark.parametrize("line", [
    b"LIST (", b"LIST )", b'LIST () "/" "a', b'LIST "/', b"LIST " + b"(" * 5000 + b")" * 5000,
])
def test_nonsense_is_one_error(line: bytes) -> None:
    with answering(b"* " + line + b"\r\nc1 OK done\r\n") as connection:
        answer, = connection.run(b"NOOP")
        with pytest.raises(Unreadable, match="cannot be read"):
            answer.values()


@pytest.mark.parametrize(("octets", "error"), [
    ((b"* OK " + b"x" * (2 << 20) + b"\r\n",), "too long"),
    ((b"* 1 FETCH (BODY[] {999999999999}\r\n",), "too long"),
    ((b"* 1 FETCH (" + b"{0}\r\n" * 2000,), "too many literals"),
    ([b"* LIST " + b"x" * 1000 + b"\r\n"] * 70_000, "more than can be held"),
    ([b"* METADATA INBOX (/shared/a {1000000}\r\n" + b"x" * 1_000_000 + b")\r\n"] * 70, "more than can be held"),
])
def test_what_is_too_much_is_not_held(octets: tuple[bytes, ...], error: str) -> None:
    with answering(*octets) as connection, pytest.raises(Unreadable, match=error):
        connection.run(b"NOOP")


@pytest.mark.parametrize("octets", [b"", b"* OK half a li", b"* 1 FETCH (BODY[] {10}\r\nabc", b"* BYE full\r\n"])
def test_an_end_is_told_from_nonsense(octets: bytes) -> None:
    with answering(octets) as connection, pytest.raises(Gone):
        connection.run(b"NOOP")


def test_a_large_literal_is_not_in_memory() -> None:
    size = imapconnection.MEMORY_OCTETS + 5
    with answering(b"* 1 FETCH (BODY[] {%d}\r\n" % size, b"x" * size, b")\r\nc1 OK done\r\n") as connection:
        answer, = connection.run(b"NOOP")
        literal, = answer.literals
        assert isinstance(literal.file.fileno(), int)           # a file has got it
        assert octets_of(literal) == b"x" * size and answer.values()[2] == ["BODY[]", literal]


def test_what_cannot_be_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imapconnection, "COLLECTED_OCTETS", 5)
    with answering(b"* METADATA INBOX (/shared/a {6}\r\nabcdef)\r\nc1 OK done\r\n") as connection:
        answer, = connection.answers(connection.send(b"NOOP"))
        with pytest.raises(Unreadable, match="more than can be held"):
            octets_of(answer.literals[0])


def test_annotations_that_are_not_wanted_are_not_asked_for() -> None:
    def connect() -> Connection:
        made = Connection(ours)
        made.capabilities = frozenset(("METADATA",))
        return made

    for annotated in (True, False):
        ours, theirs = socket.socketpair()
        theirs.sendall(b"c1 OK\r\nc2 OK\r\n")
        old = ImapServer(connect, print, annotated=annotated)
        old.opened(Box("INBOX", b"INBOX"))
        assert (b"GETMETADATA" in theirs.recv(1000)) == annotated
        old.close()
        theirs.close()


def test_what_came_before_tls_is_forgotten() -> None:
    """Octets that an attacker has put behind the answer to STARTTLS are read by nobody (RFC 3501 §6.2.1)."""
    context = imapconnection.tls_context(None, verify=False)
    with answering(b"c1 OK begin\r\n* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\nc2 OK\r\n") as connection:
        with pytest.raises(OSError):
            connection.start_tls("example.org", context)
        assert connection.capabilities == frozenset()


def test_logging_in() -> None:
    with answering(b"* CAPABILITY IMAP4rev1\r\nc1 OK\r\n", b"c2 NO [AUTHENTICATIONFAILED] no\r\n") as connection:
        with pytest.raises(Refused, match="AUTHENTICATIONFAILED"):
            connection.log_in("alice", Secret(b"secret"))
    with answering(b"* CAPABILITY IMAP4rev1\r\nc1 OK\r\n") as connection, pytest.raises(Refused, match="in one line"):
        connection.log_in("alice", Secret(b"sec\r\nret"))
    with answering(b"* CAPABILITY AUTH=PLAIN\r\nc1 OK\r\n+ \r\nc2 OK\r\n* CAPABILITY IMAP4rev1 ACL\r\nc3 OK\r\n"
                   ) as connection:
        connection.log_in("alice", Secret(b"secret"), "admin")
        assert connection.capabilities == {"IMAP4REV1", "ACL"}


@pytest.mark.parametrize("code", [b"UNAVAILABLE", b"INUSE", b"THROTTLED", b"OVERQUOTA"])
def test_a_server_that_wants_less_is_asked_again_later(code: bytes) -> None:
    """RFC 5530, and what hosted servers say who has had too much for now: no mailbox or message is given up for it."""
    told: list[str] = []
    waits: list[float] = []
    busy = b"c%%d NO [%b] Too many requests\r\n" % code
    with answering(CAPABILITY, busy % 2) as first, answering(CAPABILITY, SELECTED, busy % 3) as second, answering(
            CAPABILITY, SELECTED, b"* 1 FETCH (UID 2 BODY[] {5}\r\nab\r\nc)\r\nc3 OK done\r\n") as third:
        left = iter((first, second, third))
        there = ImapServer(lambda: next(left), told.append, sleep=waits.append)
        box = there.opened(Box("Old", b"Old"))
        mail = Mail("Old: UID 2", InternalDate(0), Flags(), 5, 2)
        assert [b"".join(data) for _, data in there.read(box, [mail], told.append)] == [b"ab\r\nc"]
    assert told == []


def test_a_login_that_is_too_soon_is_tried_again() -> None:
    with answering(b"* CAPABILITY IMAP4rev1\r\nc1 OK\r\n", b"c2 NO [UNAVAILABLE] Too many sessions\r\n") as connection:
        with pytest.raises(Gone, match="Too many sessions"):
            connection.log_in("alice", Secret(b"secret"))
    with answering(b"* CAPABILITY AUTH=PLAIN\r\nc1 OK\r\n", b"c2 NO [INUSE] later\r\n") as connection:
        with pytest.raises(Gone, match="later"):
            connection.log_in("alice", Secret(b"secret"))


SELECTED = b"* 2 EXISTS\r\n* OK [UIDVALIDITY 7] .\r\n* OK [UIDNEXT 40] .\r\nc2 OK done\r\n"
CAPABILITY = b"* CAPABILITY IMAP4rev1\r\nc1 OK\r\n"


def source(told: list[str], *connections: Callable[[], Connection]) -> ImapServer:
    left = iter(connections)
    return ImapServer(lambda: next(left)(), told.append, sleep=lambda seconds: None)


def test_flags_without_a_uid_are_of_no_message_that_was_asked_for() -> None:
    """A FETCH answer with a sequence number only is news of some other message than the one with that UID."""
    told: list[str] = []
    news = b"* 2 FETCH (FLAGS (\\Deleted))\r\n"
    with answering(CAPABILITY, SELECTED, news,
                   b'* 1 FETCH (UID 2 FLAGS (\\Seen) INTERNALDATE " 1-Feb-2024 09:30:00 +0100" RFC822.SIZE 5)\r\n',
                   news, b"c3 OK done\r\n",
                   news, b"* 1 FETCH (UID 2 BODY[] {5}\r\nab\r\nc)\r\n", news, b"c4 OK done\r\n") as connection:
        there = source(told, lambda: connection)
        box = there.opened(Box("Old", b"Old"))
        mail, = there.mails(box, told.append)
        assert (mail.uid, mail.flags.system, mail.received.seconds) == (2, Flag.SEEN, 1706776200)
        assert [(mail.uid, b"".join(data)) for mail, data in there.read(box, [mail], told.append)] == [
            (2, b"ab\r\nc")]
        assert (box.uidvalidity, box.uidnext, told) == (7, 40, [])


def test_nonsense_stops_one_mailbox_and_its_connection() -> None:
    """The answers that are left behind it are not taken for those to the next command."""
    told: list[str] = []
    with answering(CAPABILITY, SELECTED, b"* 1 FETCH (UID 2 FLAGS (\r\n") as first, answering(
            CAPABILITY, SELECTED, b"c3 OK done\r\n") as second:
        there = source(told, lambda: first, lambda: second)
        box = there.opened(Box("Old", b"Old"))
        with pytest.raises(Unreadable, match="cannot be read"):
            there.mails(box, told.append)
        assert there.mails(there.opened(Box("Other", b"Other")), told.append) == []


def test_a_program_is_the_server() -> None:
    speaks = """
import sys
print("* PREAUTH ready", end="\\r\\n", flush=True)
for line in sys.stdin:
    tag = line.split()[0]
    print("* CAPABILITY IMAP4rev1 X", end="\\r\\n")
    print(tag, "OK done", end="\\r\\n", flush=True)
"""
    connection = tunnelled([sys.executable, "-c", speaks], UserTime())
    connection.capability()
    assert connection.capabilities == {"IMAP4REV1", "X"}
    connection.drop()
    assert isinstance(connection.way, subprocess.Popen) and connection.way.returncode == 0
    with pytest.raises(OSError):
        tunnelled(["/nowhere/imap"], UserTime())
    with pytest.raises(Gone):
        tunnelled([sys.executable, "-c", ""], UserTime())
