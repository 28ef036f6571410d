"""Mail that keeps coming while something else goes on."""

import threading
from collections.abc import Sequence

from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.servers.server import Server
from tests.support.stores import messages

LIMIT = 180                              # seconds until more is taken: far more than it takes
LATER = {450, 451, 452}                 # "not now" (RFC 5321 §4.2.3)


class Mail(threading.Thread):
    """Delivers to `users`, one message after the other, until told to end; whenever it breaks, over a new connection.

    `taken` are those that the first user got, `refused` the replies of those that were put off, and `broken` counts
    connections that ended, or were not to be had.
    """

    def __init__(self, server: Server, *users: str, part: int, size: int) -> None:
        super().__init__(daemon=True)
        self.taken: list[bytes] = []
        self.refused: list[int] = []
        self.broken = 0
        self._server, self._users, self._part, self._size = server, users, part, size
        self._enough = threading.Event()
        self._wrong: list[Sequence[object]] = []

    def run(self) -> None:
        number = 0
        while not self._enough.is_set():
            try:
                with Lmtp(self._server.lmtp) as lmtp:
                    while not self._enough.is_set():
                        number += 1
                        self._deliver(lmtp, messages.make(self._part, number, self._size))
            except (OSError, AssertionError):           # it has gone, or greets with "not now"
                self.broken += 1
                self._enough.wait(0.01)

    def _deliver(self, lmtp: Lmtp, body: bytes) -> None:
        replies = lmtp.deliver("sender@example.org", self._users, body)
        if not {reply.code for reply in replies} <= {250, *LATER}:
            self._wrong.append(replies)
        if replies[0].code == 250:
            self.taken.append(body)
        else:
            self.refused.append(replies[0].code)

    def more(self, count: int) -> None:
        """Wait until so many more have been taken. Raises AssertionError."""
        wanted = len(self.taken) + count
        wait.until(lambda: len(self.taken) >= wanted, "mail is taken", pid=self._server.pid, limit=LIMIT)

    def end(self) -> None:
        """No more. Raises AssertionError: something was refused for ever."""
        self._enough.set()
        self.join(LIMIT)
        assert not self.is_alive() and not self._wrong, self._wrong
