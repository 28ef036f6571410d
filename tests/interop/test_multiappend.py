"""Several messages in one APPEND over TCP: what was acknowledged outlives the server, what was not is not there."""

from tests.support.clients.imap import Imap
from tests.support.servers.server import Server

COUNT = 500


def message(number):
    """Some are large, so that files are written before the last one comes."""
    return b"Subject: %d\r\n\r\n" % number + b"x" * 70 * (3000 if number % 100 == 7 else 1) + b"\r\n"


def command(count, tag=b"t"):
    parts = [b"%b APPEND INBOX" % tag]
    for number in range(count):
        parts.append(b" {%d+}\r\n%b" % (len(message(number)), message(number)))
    return b"".join(parts)


def test_all_that_was_acknowledged_is_there_after_a_crash(tmp_path):
    with Server(tmp_path, ["alice"]) as server:
        with Imap(server.imap, "alice") as client:
            client.send(command(COUNT) + b"\r\n")
            answer = client.answer(b"t")
            assert answer.status == "OK" and f" 1:{COUNT}]" in answer.text, answer
        server.kill()
        server.start()
        with Imap(server.imap, "alice") as client:
            client.select()
            assert client.messages() == {number + 1: message(number) for number in range(COUNT)}
        server.stop()
        server.check()
        assert server.staged == []


def test_a_command_that_does_not_end_leaves_nothing(tmp_path):
    with Server(tmp_path, ["alice"]) as server:
        with Imap(server.imap, "alice") as client:
            client.send(command(COUNT))
            client.abort()
        with Imap(server.imap, "alice") as client:
            client.send(command(COUNT) + b" {5}\r\n")
            assert client.response().text.startswith(b"+")
        with Imap(server.imap, "alice") as client:
            client.send(command(3) + b" {0}\r\n")
            assert client.answer(b"t").status == "NO"
            assert client.select()[1] == 0
            client.send(command(3, b"u") + b"\r\n")
            assert client.answer(b"u").status == "OK"
            assert client.select()[1] == 3
        server.stop()
        server.check()
        assert server.staged == [] and len(server.messages) == 3
