"""Listening sockets: what is made, and what is said when one cannot be."""

import socket
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import succeed

from tests.support.processes.environment import PLAIN
from tests.support.processes.ports import free_port
from tools.cli import options as config
from tools.exits import Failure
from tools.server.process import sockets
from tools.server.process.listeners import Server
from tools.server.process.sockets import Purpose

NONE = {"imap.port": "0", "imap.tls_port": "0", "pop3.port": "0", "pop3.tls_port": "0", "lmtp.port": "0",
        "imap.address": "127.0.0.1", "pop3.address": "127.0.0.1"}


def bind(**options: str) -> list[sockets.Listening]:
    given = {name.replace("_", ".", 1): value for name, value in options.items()}
    return sockets.bind(config.load({**NONE, **given}, PLAIN))


def test_all_of_them(tmp_path: Path) -> None:
    ports = [str(free_port()) for _ in range(5)]
    path = tmp_path / "lmtp"
    made = bind(imap_port=ports[0], imap_tls_port=ports[1], pop3_port=ports[2], pop3_tls_port=ports[3],
                lmtp_port=ports[4], lmtp_socket=str(path), lmtp_socket_mode="0600")
    assert [str(each) for each in made] == [
        f"imap on 127.0.0.1:{ports[0]}", f"imaps on 127.0.0.1:{ports[1]}", f"pop3 on 127.0.0.1:{ports[2]}",
        f"pop3s on 127.0.0.1:{ports[3]}", f"lmtp on 127.0.0.1:{ports[4]}", f"lmtp on {path}"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for port in ports:
        socket.create_connection(("127.0.0.1", int(port))).close()
    sockets.close(made)
    assert made == [] and not path.exists()


def test_those_of_lmtp(tmp_path: Path) -> None:
    ports = [str(free_port()) for _ in range(4)]
    paths = [tmp_path / name for name in ("mail", "guaranteed", "verify")]
    made = bind(lmtp_port=ports[0], lmtp_tls_port=ports[1], lmtp_guaranteed_port=ports[2], lmtp_verify_port=ports[3],
                lmtp_socket=str(paths[0]), lmtp_guaranteed_socket=str(paths[1]), lmtp_verify_socket=str(paths[2]),
                lmtp_socket_mode="0660")
    assert [str(each) for each in made] == [
        f"lmtp on 127.0.0.1:{ports[0]}", f"lmtps on 127.0.0.1:{ports[1]}", f"lmtp (guaranteed) on 127.0.0.1:{ports[2]}",
        f"lmtp (verification) on 127.0.0.1:{ports[3]}", f"lmtp on {paths[0]}", f"lmtp (guaranteed) on {paths[1]}",
        f"lmtp (verification) on {paths[2]}"]
    assert [(each.tls, each.purpose) for each in made] == [
        (False, Purpose.MAIL), (True, Purpose.MAIL), (False, Purpose.GUARANTEED), (False, Purpose.VERIFICATION),
        (False, Purpose.MAIL), (False, Purpose.GUARANTEED), (False, Purpose.VERIFICATION)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o660}
    sockets.close(made)
    assert not list(tmp_path.iterdir())


def test_the_second_of_two_paths_in_use_leaves_nothing_open(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "two"))
        other.listen()
        with pytest.raises(Failure, match="two: Address already in use"):
            bind(lmtp_socket=str(tmp_path / "one"), lmtp_verify_socket=str(tmp_path / "two"))
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


def test_every_address() -> None:
    port = free_port()
    made = bind(lmtp_port=str(port), lmtp_address="*")
    socket.create_connection(("127.0.0.1", port)).close()
    assert len(made) == 1 or socket.create_connection(("::1", port)).close() is None
    sockets.close(made)


def test_a_port_in_use_leaves_nothing_open() -> None:
    port, other = free_port(), free_port()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(Failure, match=f"^cannot listen on 127.0.0.1:{port}: Address already in use$") as failure:
            bind(imap_port=str(other), lmtp_port=str(port))
        assert failure.value.status == 2
    sockets.close(bind(imap_port=str(other), lmtp_port=str(port)))


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(Failure, match="^cannot listen on 192.0.2.1:"):
        bind(lmtp_address="192.0.2.1", lmtp_port=str(free_port()))


def test_nothing_to_serve() -> None:
    with pytest.raises(Failure, match="nothing to serve"):
        bind()


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    made = bind(lmtp_socket=str(path))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    sockets.close(made)


def test_a_socket_in_use_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(Failure, match="lmtp: Address already in use"):
            bind(lmtp_socket=str(path))
        assert path.exists()


def test_a_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    path.write_text("precious")
    with pytest.raises(Failure, match="not a socket"):
        bind(lmtp_socket=str(path))
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="too long"):
        bind(lmtp_socket=str(tmp_path / ("x" * 120)))


@pytest.mark.parametrize("leave", [True, False])
def test_a_server_that_is_drained_leaves_its_sockets_to_the_next(leave: bool) -> None:
    """Else both take who is new, and one sends him away."""
    stopped = list[int]()
    server: Any = Server(SimpleNamespace(seconds=lambda: 0.0), None, None, {})  # type: ignore[arg-type]
    server.ports += [SimpleNamespace(stopListening=lambda number=number: succeed(stopped.append(number)))
                     for number in range(2)]
    with pytest.raises(StopIteration):
        server.drain(10.0, lambda: False, leave=leave).send(None)
    assert sorted(stopped) == ([0, 1] if leave else [])
    assert len(server.ports) == (0 if leave else 2)
