"""The listening sockets: made by the process that starts, before any worker is."""

import errno
import os
import socket
import stat
from collections.abc import Collection, Iterator
from enum import Enum
from pathlib import Path

from attrs import frozen

from mboxlist import privatefiles
from tools.cli.options import Config
from tools.exits import Failure
from tools.serversettings import (
    Exchange,
    FrontListen,
    HttpListen,
    ImapListen,
    LmtpListen,
    ManageSieveListen,
    Pop3Listen,
)

SERVERS = ("imap", "pop3", "lmtp")
HTTP = "http"
BESIDE = {"front": "imap", "managesieve": "imap"}      # what has no processes of its own is served by those of another
BACKLOG = 1024
FOR_RELAYS = "relays of another user connect to it"
EXCHANGE = "exchange"           # with other back ends
_Group = (type[ImapListen] | type[Pop3Listen] | type[LmtpListen] | type[ManageSieveListen] | type[FrontListen]
          | type[HttpListen] | type[Exchange])
_GROUPS: dict[str, _Group] = {"imap": ImapListen, "pop3": Pop3Listen, "lmtp": LmtpListen,
                              "managesieve": ManageSieveListen, "front": FrontListen,
                              HTTP: HttpListen, EXCHANGE: Exchange}


class Purpose(Enum):
    """What a socket is for; the value is how the log names it beside the server."""

    MAIL = ""
    GUARANTEED = "guaranteed"       # LMTP that no quota stops
    VERIFICATION = "verification"   # relays ask about recipients


@frozen(eq=False)
class Listening:
    """A socket that waits for clients of one server."""

    server: str
    socket: socket.socket
    tls: bool = False           # TLS from the first octet
    path: Path | None = None    # of a UNIX socket
    purpose: Purpose = Purpose.MAIL

    def give(self, owner: tuple[int, int]) -> None:
        """Have the name of a UNIX socket belong to that user and group."""
        if self.path is not None:
            privatefiles.share(self.path, stat.S_IMODE(self.path.stat().st_mode), FOR_RELAYS, owner)

    def __str__(self) -> str:
        where = self.path or _text(*self.socket.getsockname()[:2])
        purpose = f" ({self.purpose.value})" if self.purpose.value else ""
        return f"{self.server}{'s' if self.tls else ''}{purpose} on {where}"


def bind(config: Config, servers: Collection[str] = tuple(_GROUPS)) -> list[Listening]:
    """Every configured socket of these servers, listening. Raises Failure, with none of them left open."""
    made: list[Listening] = []
    try:
        for server, group in _GROUPS.items():
            if server not in servers:
                continue
            settings = config.settings(server, group)
            made += _bind_ports(server, settings.address, settings.port)
            if not isinstance(settings, FrontListen | Exchange):
                made += _bind_ports(server, settings.address, settings.tls_port, tls=True)
            if isinstance(settings, LmtpListen):
                made += _bind_ports(server, settings.address, settings.guaranteed_port, Purpose.GUARANTEED)
                made += _bind_ports(server, settings.address, settings.verify_port, Purpose.VERIFICATION)
                made += _bind_paths(server, settings)
    except Failure:
        close(made)
        raise
    if not made:
        raise Failure("there is nothing to serve: all ports are 0")
    return made


def bind_exchange(config: Config) -> list[Listening]:
    """Those for other back ends alone. Raises Failure."""
    settings = config.settings(EXCHANGE, Exchange)
    return list(_bind_ports(EXCHANGE, settings.address, settings.port))


def close(sockets: list[Listening]) -> None:
    """Close all, take the names of UNIX sockets away, and empty the list."""
    for listening in sockets:
        if listening.path is not None:
            listening.path.unlink(missing_ok=True)
        listening.socket.close()
    sockets.clear()


def _bind_ports(server: str, addresses: tuple[str, ...], port: int, purpose: Purpose = Purpose.MAIL, *,
                tls: bool = False) -> Iterator[Listening]:
    for address in addresses if port else ():
        if address == "*":
            yield Listening(server, _bind_port("0.0.0.0", port), tls, purpose=purpose)
            if _has_ipv6():
                yield Listening(server, _bind_port("::", port), tls, purpose=purpose)
        else:
            yield Listening(server, _bind_port(address, port), tls, purpose=purpose)


def _bind_paths(server: str, settings: LmtpListen) -> Iterator[Listening]:
    for path, purpose in ((settings.socket, Purpose.MAIL), (settings.guaranteed_socket, Purpose.GUARANTEED),
                          (settings.verify_socket, Purpose.VERIFICATION)):
        if path is not None:
            path = path.absolute()
            yield Listening(server, _bind_path(path, settings.socket_mode), path=path, purpose=purpose)


def _bind_port(address: str, port: int) -> socket.socket:
    made = None
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(where)
        made.listen(BACKLOG)
    except OSError as error:
        if made is not None:
            made.close()
        raise Failure(f"cannot listen on {_text(address, port)}: {error.strerror}") from None
    made.setblocking(False)
    return made


def _bind_path(path: Path, mode: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        made.bind(str(path))
        privatefiles.share(path, mode, FOR_RELAYS)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise Failure(f"cannot listen on {path}: {error.strerror or error}") from None
    made.setblocking(False)
    return made


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on any more. Raises OSError when the name is in use."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, "it is there and not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        else:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _text(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
