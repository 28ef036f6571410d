"""A peer that has said all it will say and shuts its sending side still hears every answer (RFC 9293 §3.6)."""

import re
import socket
from pathlib import Path

import pytest

from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages

TIMEOUT = 180            # seconds


def talk(port: int, said: bytes) -> bytes:
    """Send everything at once, and shut the sending side; all that comes."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def codes(answers: bytes) -> str:
    return b" ".join(re.findall(rb"(?m)^(\d{3}) ", answers)).decode()


@pytest.mark.parametrize("size", [2000, 1_000_000])         # less and more than what a session reads ahead
def test_all_three_servers_answer(tmp_path: Path, size: int) -> None:
    message = messages.make(1, 4, size)                     # base64: no line begins with a dot
    login = f"LOGIN alice {PASSWORD}".encode()
    with Server(tmp_path, ["alice", "bob"]) as server:
        envelope = b"LHLO client\r\nMAIL FROM:<>\r\nRCPT TO:<alice>\r\nRCPT TO:<bob>\r\n"
        answers = talk(server.lmtp, envelope + b"DATA\r\n" + message + b".\r\nQUIT\r\n")
        assert codes(answers) == "220 250 250 250 250 354 250 250 221"
        answers = talk(server.lmtp, envelope + b"BDAT %d LAST\r\n" % size + message + b"QUIT\r\n")
        assert codes(answers) == "220 250 250 250 250 250 250 221"
        # Not the whole message: nothing is delivered, and nobody is told that it was.
        answers = talk(server.lmtp, envelope + b"BDAT %d LAST\r\n" % (size + 1) + message)
        assert codes(answers) == "220 250 250 250 250"
        assert len(server.messages) == 1
        answers = talk(server.imap, b"1 %b\r\n2 SELECT INBOX\r\n3 FETCH 1:* BODY[]\r\n4 LOGOUT\r\n" % login)
        assert answers.count(message) == 2 and b"\r\n4 OK " in answers
        answers = talk(server.pop3, b"USER alice\r\nPASS %b\r\nSTAT\r\nQUIT\r\n" % PASSWORD.encode())
        assert re.findall(rb"(?m)^\+OK", answers) == [b"+OK"] * 5
        server.check()
