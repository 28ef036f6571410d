"""STARTTLS and STLS: what came before the handshake is forgotten (RFC 3207 §4.2, RFC 2595 §2.1 and §4)."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.servers.server import PASSWORD, Server

TIME = 180


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with TemporaryDirectory(prefix="onecopy-") as folder, Server(Path(folder), ["alice"]) as server:
        yield server


def trusting() -> ssl.SSLContext:
    """The certificate is the self-signed one that `init` made."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def lines_until(file: "socket.SocketIO", wanted: bytes) -> list[bytes]:
    """All lines up to and with the first that begins so."""
    lines = []
    while not lines or not lines[-1].startswith(wanted):
        line = file.readline()
        assert line, f"the server has gone after {lines}"
        lines.append(line)
    return lines


CONVERSATIONS = {
    # port, greeting, what comes before and the end of its answer; STARTTLS with what is smuggled in, and the go-ahead;
    # then under TLS a command whose answer tells whether those were obeyed, and the answers if they were not
    "imap": ("imap", b"* OK", b"", b"", b"a STARTTLS\r\nb LOGIN alice secret\r\nc SELECT INBOX\r\n", b"a OK",
             b"d STATUS INBOX (MESSAGES)\r\n", [b"d BAD", b"d NO"]),
    "pop3": ("pop3", b"+OK", b"", b"", b"STLS\r\nUSER alice\r\nPASS secret\r\n", b"+OK",
             b"STAT\r\n", [b"-ERR"]),
    "lmtp": ("lmtp", b"220 ", b"LHLO client.example.org\r\n", b"250 ",
             b"STARTTLS\r\nLHLO client.example.org\r\nMAIL FROM:<>\r\n", b"220 ", b"RCPT TO:<alice>\r\n", [b"503"]),
}


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_what_came_before_the_handshake_is_forgotten(server: Server, conversation: tuple) -> None:
    name, greeting, before, end, smuggled, go_ahead, then, answers = conversation
    with socket.create_connection(("127.0.0.1", getattr(server, name)), TIME) as plain:
        with plain.makefile("rb", 0) as file:
            lines_until(file, greeting)
            if before:
                plain.sendall(before)
                lines_until(file, end)
            plain.sendall(smuggled)
            assert len(lines_until(file, go_ahead)) == 1
        with trusting().wrap_socket(plain) as secure, secure.makefile("rb") as file:
            secure.sendall(then)
            line = file.readline()
            assert any(line.startswith(answer) for answer in answers), line


@pytest.mark.parametrize(("name", "greeting", "login", "answer"), [
    ("imap", b"* OK", b"a LOGIN alice secret\r\n", b"a OK"),
    ("pop3", b"+OK", b"USER alice\r\nPASS secret\r\n", b"+OK"),
])
def test_implicit_tls(server: Server, name: str, greeting: bytes, login: bytes, answer: bytes) -> None:
    port = int(server.options[f"{name}.tls_port"])
    with socket.create_connection(("127.0.0.1", port), TIME) as plain, trusting().wrap_socket(plain) as secure, \
            secure.makefile("rb") as file:
        lines_until(file, greeting)
        secure.sendall(login.replace(b"secret", PASSWORD.encode()))
        for _ in range(login.count(b"\r\n")):
            assert file.readline().startswith(answer)


@pytest.mark.parametrize("header", [b"PROXY TCP4 192.0.2.1 127.0.0.1 1234 143\r\n",
                                    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)], ids=["v1", "v2"])
@pytest.mark.parametrize("option", ["imap.port", "imap.tls_port", "pop3.port", "pop3.tls_port", "lmtp.port"])
def test_a_proxy_header_of_somebody_who_is_no_proxy_ends_the_connection(server: Server, option: str, header: bytes
                                                                        ) -> None:
    """In the clear and before TLS alike; the log has one line with the address."""
    before = server.log.read_text()
    where = "127.0.0.1", int(server.options[option])
    with socket.create_connection(where, TIME) as plain, plain.makefile("rb") as file:
        if not option.endswith("tls_port"):
            assert file.readline()
        plain.sendall(header + b"a NOOP\r\n")
        try:
            assert file.read() == b""
        except ConnectionResetError:
            pass
    line, = (line for line in server.log.read_text()[len(before):].splitlines() if "PROXY" in line)
    assert "refused: proxy address=127.0.0.1 " in line
    assert "a PROXY header, and no proxy_networks name that address" in line
