"""News between processes: a datagram that names the mailboxes that may have changed. A hint, never the truth.

The processes of a server see in memory that they share (`changeboard`) who listens to what: a datagram goes only to
those in which somebody may listen to one of these mailboxes. What was changed is shown there too, for who reads the
mailbox later.

Behind these there may be, after a 0, what a transaction changed of a mailbox (`changes.Change`): who has it open then
reads these chunks of its index, and not all of them. Who has missed a change finds a gap in the MODSEQs, and reads all.

Every process that has had listeners binds a socket `run/news/<pid>`, and tells those that are there that it is there,
too; one that changed something sends what an event loop does in one turn in one datagram: to wake another process costs
as much as a small command. What a full buffer has no room for (on many systems it holds ten datagrams) is kept, joined,
and sent again. And since a hint can be lost all the same, listeners are called every POLL seconds without one.
"""

import contextlib
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from mboxlist.engine.troubles import TROUBLES
from mboxlist.entry import MailboxId
from store.changes import Change, News
from store.news.changeboard import Board
from store.news.turns import Turns

log = logging.getLogger(__name__)

RETRY = 0.01        # seconds before news that found no room are sent again
TRIES = 20          # how often, by a process without a reactor
POLL = 60           # seconds; the mailboxes that are listened to are spread over them
MOST_KEPT = 10_000  # mailboxes of which news are kept for one process that does not take them
_MOST = 300         # mailboxes named in one datagram,
_TOGETHER = 100     # and changes
_NOBODY = (0,)      # is said to others to tell them that one is there: no mailbox has that number
_FRESH = 1_000_000_000      # nanoseconds since the last change of the folder in which another could look the same


class NewsSocket:
    """This process's socket. Call `start` once the reactor is there, `stop` at the end. It is a descriptor that Twisted
    can read (IReadDescriptor); it does not say so, since each command would load Twisted then.

    Paths are given relative to an open folder, since an address holds only 107 octets.
    """

    def __init__(self, root: Path, news: News, board: Board | None = None) -> None:
        self._folder = root / "run" / "news"
        privatefiles.make_folder(self._folder, exist_ok=True)
        self._news = news
        self._board = board
        self._directory = privatefiles.open_folder(self._folder)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._name = f"{os.getpid()}"
        self._peers: list[str] = []
        self._strangers = False                     # whether some of these have no part of the board
        self._looked = -1                           # when the folder was changed that `_peers` are from; -1: look again
        self._kept: dict[str, set[int]] = {}        # by process
        self._lock = threading.Lock()
        self._reactor: Any = None
        self._tick = 0
        self._bound = False
        self._thread = 0                            # that of the reactor
        self._collected: dict[int, None] = {}       # mailboxes of which the others are to hear when this turn ends,
        self._changes: list[Change] = []            # and what was changed in them
        news.forward = self._send
        if board is not None:
            news.interest, news.shown = board.listen, board.changes_of
            for number in news.subscribed():
                board.listen(number, 1)

    def start(self, reactor: Any) -> None:
        """Listen, as soon as anybody does in this process."""
        (self._folder / self._name).unlink(missing_ok=True)
        self._reactor, self._thread = reactor, threading.get_ident()
        self._news.listen_in_this_thread(reactor.callFromThread)
        self._news.first = self._listen
        if self._news.subscribed():
            self._listen()
        self._polling = reactor.callLater(1, self._poll)

    def _listen(self) -> None:
        if self._bound:
            return
        try:
            self._socket.bind(self._address(self._name))
        except OSError as error:            # listeners are called from time to time in any case
            TROUBLES.met("news of other processes cannot be heard", str(error))
            return
        self._bound = True
        self._reactor.addReader(self)
        self._look()
        if kept := [peer for peer in self._peers if not self._send_to(peer, _NOBODY)]:
            self._keep(kept, _NOBODY)

    def stop(self) -> None:
        """Listen no more."""
        self._polling.cancel()
        self._send_collected()
        self._news.first = lambda: None
        if self._bound:
            self._reactor.removeReader(self)
        with contextlib.suppress(OSError):          # who sends to it takes the name away
            (self._folder / self._name).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Tell nobody any more."""
        self._news.forward = lambda mailboxes, changes: None
        self._socket.close()
        os.close(self._directory)

    def _address(self, name: str) -> str:
        return f"/proc/self/fd/{self._directory}/{name}"

    def _send(self, mailboxes: Collection[int], changes: Sequence[Change] = ()) -> None:
        if self._board is not None:
            self._board.note(changes)
            if self._looked == -1 or not self._bound:       # who is bound hears of others
                self._look()
            if not self._strangers and not self._board.wanted(mailboxes):
                return
        if threading.get_ident() != self._thread:
            self._send_now(mailboxes, changes)
            return
        if not self._collected:
            self._reactor.callLater(0, self._send_collected)
        self._collected.update(dict.fromkeys(mailboxes))
        self._changes += changes
        if len(self._collected) >= _MOST or len(self._changes) >= _TOGETHER:
            self._send_collected()

    def _send_collected(self) -> None:
        if self._collected:
            mailboxes, changes = self._collected, self._changes
            self._collected, self._changes = {}, []
            self._send_now(mailboxes, changes)

    def _send_now(self, mailboxes: Iterable[int], changes: Sequence[Change]) -> None:
        self._look()
        board, named = self._board, list(mailboxes)
        peers = [name for name in self._peers if board is None or board.wants(int(name), named) is not False]
        if not peers:
            return
        more = _packed(changes) if changes else b""
        kept = [peer for peer in peers if not self._send_to(peer, named, more)]
        if kept:
            self._keep(kept, named)

    def _look(self) -> None:
        """See which processes there are."""
        changed = os.fstat(self._directory).st_mtime_ns
        if changed == self._looked and time.time_ns() - changed >= _FRESH:
            return
        try:
            self._peers = [name for name in os.listdir(self._directory) if name != self._name and name.isdigit()]
            self._looked = changed
        except OSError as error:        # no more descriptors: those that were there hear of it
            TROUBLES.met("which processes there are cannot be looked up", str(error))
        if self._board is not None:
            self._strangers = any([self._board.wants(int(name), ()) is None for name in self._peers])

    def _send_to(self, peer: str, mailboxes: Sequence[int], more: bytes = b"") -> bool:
        """Whether there was room."""
        try:
            for at in range(0, len(mailboxes), _MOST):
                part = mailboxes[at:at + _MOST]
                self._socket.sendto(struct.pack(f"<{len(part)}I", *part) + more, self._address(peer))
        except BlockingIOError:
            return False
        except ConnectionRefusedError:                  # its process was killed
            with contextlib.suppress(OSError):
                (self._folder / peer).unlink(missing_ok=True)
            self._looked = -1
        except OSError:
            log.debug("no news to %s", peer, exc_info=True)
        return True

    def _keep(self, peers: Iterable[str], mailboxes: Iterable[int]) -> None:
        with self._lock:
            waiting = bool(self._kept)
            for peer in peers:
                kept = self._kept.setdefault(peer, set())
                if len(kept) < MOST_KEPT:
                    kept.update(mailboxes)
        if self._reactor is None:
            for _ in range(TRIES):
                time.sleep(RETRY)
                if not self._send_kept():
                    break
            self._kept.clear()
        elif not waiting:
            self._reactor.callFromThread(self._reactor.callLater, RETRY, self._retry)

    def _send_kept(self) -> bool:
        """Whether some of it found no room again."""
        with self._lock:
            for peer, mailboxes in tuple(self._kept.items()):
                if self._send_to(peer, tuple(mailboxes)):
                    del self._kept[peer]
            return bool(self._kept)

    def _retry(self) -> None:
        if self._send_kept():
            self._reactor.callLater(RETRY, self._retry)

    def _poll(self) -> None:
        self._tick = (self._tick + 1) % POLL
        self._news.look([mailbox for mailbox in self._news.subscribed() if mailbox % POLL == self._tick],
                        partial(Turns.of(self._reactor).add, self._reactor))
        self._polling = self._reactor.callLater(1, self._poll)

    # What the reactor calls

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def doRead(self) -> None:
        """Take every datagram that waits."""
        heard: set[int] = set()
        changes: list[Change] = []
        while True:
            try:
                data = self._socket.recv(65536)
            except OSError:
                break
            numbers = struct.unpack(f"<{len(data) // 4}I", data[:len(data) // 4 * 4])
            end = numbers.index(0) if 0 in numbers else len(numbers)
            if not end:
                self._looked = -1                   # somebody is there who was not
            heard.update(numbers[:end])
            changes += _unpacked(numbers[end + 1:])
        self._news.hear(heard, changes)

    def connectionLost(self, reason: object) -> None:
        """Nothing to do: the socket is closed by `stop`."""

    def logPrefix(self) -> str:
        """For Twisted's log."""
        return "news"


def _packed(changes: Sequence[Change]) -> bytes:
    """A 0, and for each change: partition, mailbox, HIGHESTMODSEQ before (lower half, upper half), number of chunks,
    chunks."""
    numbers = [0]
    for each in changes:
        if each.chunks is None:
            continue                    # who reads all is not helped
        numbers += [each.partition, each.mailbox, each.before & 0xFFFFFFFF, each.before >> 32, len(each.chunks),
                    *each.chunks]
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _unpacked(numbers: Sequence[int]) -> list[Change]:
    """What is whole of it."""
    found = []
    while len(numbers) >= 5:
        partition, mailbox, lower, upper, count = numbers[:5]
        chunks, numbers = numbers[5:5 + count], numbers[5 + count:]
        if len(chunks) == count:
            found.append(Change(partition, MailboxId(mailbox), upper << 32 | lower, frozenset(chunks)))
    return found
