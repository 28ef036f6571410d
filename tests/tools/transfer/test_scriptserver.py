"""ManageSieve's client side (RFC 5804): what it understands, and what a hostile server can do: one clear error."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from store.values import Secret
from tools.transfer.servers import scriptserver
from tools.transfer.servers.scriptserver import LINE_OCTETS, scripts
from tools.transfer.sourcevalues import OldScript, Unreadable, UserTime

GREETING = b'"IMPLEMENTATION" "a server"\r\n"SASL" "PLAIN"\r\n"SIEVE" "fileinto"\r\nOK "ready"\r\n'


@contextmanager
def serving(*answers: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that says these, one after each line that comes; the port, and the lines."""
    listening, lines = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as reading:
            try:
                connection.sendall(GREETING)
                for answer in answers:
                    lines.append(reading.readline())
                    connection.sendall(answer)
            except OSError:
                pass                    # the client has had enough

    thread = Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1], lines
    finally:
        thread.join()
        listening.close()


def fetch(port: int, admin: str = "") -> list[OldScript]:
    return list(scripts("127.0.0.1", port, None, "alice", Secret(b"secret"), admin, UserTime()))


def test_all_scripts_with_the_active_one() -> None:
    with serving(b"OK\r\n", b'"a \\"b\\" \\\\c"\r\n{4+}\r\nmain ACTIVE\r\nOK "two"\r\n', b"{7}\r\nkeep;\r\n\r\nOK\r\n",
                 b'"stop;"\r\nOK (WARNINGS) "old"\r\n', b"OK\r\n") as (port, lines):
        assert fetch(port) == [OldScript('a "b" \\c', b"keep;\r\n"), OldScript("main", b"stop;", active=True)]
    assert lines == [b'AUTHENTICATE "PLAIN" "AGFsaWNlAHNlY3JldA=="\r\n', b"LISTSCRIPTS\r\n",
                     b'GETSCRIPT "a \\"b\\" \\\\c"\r\n', b'GETSCRIPT "main"\r\n', b"LOGOUT\r\n"]


def test_an_administrator_logs_in_for_the_user() -> None:
    with serving(b"OK\r\n", b"OK\r\n", b"OK\r\n") as (port, lines):
        assert fetch(port, "root") == []
    assert lines[0] == b'AUTHENTICATE "PLAIN" "YWxpY2UAcm9vdABzZWNyZXQ="\r\n'      # RFC 4616 §2


def test_no_password_without_tls() -> None:
    context = ssl.create_default_context()
    with serving(b'NO "there is none"\r\n') as (port, lines), pytest.raises(Unreadable, match="there is none"):
        scripts("127.0.0.1", port, context, "alice", Secret(b"secret"), "", UserTime())
    assert lines == [b"STARTTLS\r\n"]


@pytest.mark.parametrize(("answer", "said"), [
    (b'NO (AUTH-TOO-WEAK) "not \x1b[2J so"\r\n', r"not \?\[2J so"), (b'BYE "later"\r\n', "later"), (b"", "has ended"),
    (b'"main"\r\n', "has ended"), (b"{99999999999}\r\n", "."), (b"{900000000}\r\n", "more than can be held"),
    (b"{10}\r\nkeep", "has ended within"), (b"x" * LINE_OCTETS * 2, "too long"),
])
def test_what_ends_it(answer: bytes, said: str) -> None:
    with serving(b"OK\r\n", answer) as (port, _), pytest.raises(Unreadable, match=said):
        fetch(port)


@pytest.mark.parametrize("answer", [
    b'"x"\r\n' * 60, b"{0}\r\n" * 900, b"a " * 900 + b"\r\n", b"{900}\r\n" + b"x" * 900])
def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(scriptserver, "LINES", 50)
    monkeypatch.setattr(scriptserver, "HELD_OCTETS", 8000)
    with serving(b"OK\r\n", answer * 10) as (port, _), pytest.raises(Unreadable, match="more than can be held"):
        fetch(port)


def test_one_that_is_not_given_stops_no_other() -> None:
    """A larger one than can be kept here is one of them: what is wrong with it is said where it would be kept."""
    large = b"#" * (1 << 20)
    with serving(b"OK\r\n", b'"gone" ACTIVE\r\n{3}\r\na\nb\r\n"none"\r\n"large"\r\n"main"\r\nOK\r\n',
                 b'NO (NONEXISTENT) "no such script"\r\n', b"OK\r\n", b"{1048576}\r\n" + large + b"\r\nOK\r\n",
                 b'"stop;"\r\nOK\r\n') as (port, lines):        # and it does not wait for the end
        gone, control, none, heavy, main = fetch(port)
    assert gone.active and gone.problem.startswith("the server says") and "no such script" in gone.problem
    assert control == OldScript("a\nb", b"", problem="its name has control characters")
    assert none.problem and (heavy.text, heavy.problem) == (large, "")
    assert main == OldScript("main", b"stop;") and lines[-1] == b'GETSCRIPT "main"\r\n'


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(Unreadable, match=rf"127.0.0.1:{port}"):
        fetch(port)
