"""News between processes: a datagram that names the mailboxes that may have changed. A hint, never the truth.

Every process that has listeners binds a socket `run/news/<pid>`; one that changed something sends to all of them.
"""

import logging
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted.internet.interfaces import IReadDescriptor
from zope.interface import implementer

from store.changes import News

log = logging.getLogger(__name__)

_MOST = 300         # mailboxes named in one datagram


@implementer(IReadDescriptor)
class NewsSocket:
    """This process's socket. Call `start` once the reactor is there, `stop` at the end.

    Paths are given relative to an open folder, since an address holds only 107 octets.
    """

    def __init__(self, root: Path, news: News) -> None:
        self._folder = root / "run" / "news"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._news = news
        self._directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._name = f"{os.getpid()}"
        self._peers: list[str] = []
        self._looked = -1
        news.forward = self._send

    def start(self, reactor: Any) -> None:
        """Listen."""
        (self._folder / self._name).unlink(missing_ok=True)
        self._socket.bind(self._address(self._name))
        self._reactor = reactor
        self._news.listen_in_this_thread(reactor.callFromThread)
        reactor.addReader(self)

    def stop(self) -> None:
        """Listen no more."""
        self._reactor.removeReader(self)
        (self._folder / self._name).unlink(missing_ok=True)
        self._socket.close()
        os.close(self._directory)
        self._news.forward = lambda mailboxes: None

    def _address(self, name: str) -> str:
        return f"/proc/self/fd/{self._directory}/{name}"

    def _send(self, mailboxes: Iterable[int]) -> None:
        changed = os.fstat(self._directory).st_mtime_ns
        if changed != self._looked:
            self._looked = changed
            self._peers = [name for name in os.listdir(self._directory) if name != self._name]
        if not self._peers:
            return
        named = list(mailboxes)
        for at in range(0, len(named), _MOST):
            part = named[at:at + _MOST]
            data = struct.pack(f"<{len(part)}I", *part)
            for peer in self._peers:
                self._send_to(peer, data)

    def _send_to(self, peer: str, data: bytes) -> None:
        try:
            self._socket.sendto(data, self._address(peer))
        except ConnectionRefusedError:                  # its process was killed
            (self._folder / peer).unlink(missing_ok=True)
        except OSError:
            log.debug("no news to %s", peer, exc_info=True)

    # What the reactor calls

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def doRead(self) -> None:
        """Take every datagram that waits."""
        heard: set[int] = set()
        while True:
            try:
                data = self._socket.recv(65536)
            except OSError:
                break
            heard.update(struct.unpack(f"<{len(data) // 4}I", data[:len(data) // 4 * 4]))
        self._news.hear(heard)

    def connectionLost(self, reason: object) -> None:
        """Nothing to do: the socket is closed by `stop`."""

    def logPrefix(self) -> str:
        """For Twisted's log."""
        return "news"


