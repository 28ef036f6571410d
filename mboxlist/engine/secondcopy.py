"""Answers that wait until another machine has the change on its disk, too: a standby in synchronous mode.

One process has the connections to the standbys. What all processes must know of them is in memory that they share: one
octet says whether answers wait, and a number says what the standbys have. The number is a moment of the system's
monotonic clock, in nanoseconds: the standbys have everything that had been committed then. Before a change is
acknowledged, its process takes the time after the commit, tells that one process by a datagram, and waits until the
number is not smaller. All who wait at the same time share one round trip.

Each process that waits has a socket `run/second/<pid>-<n>`, and hears there that the number has grown.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import mmap
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.transact import Unflushed

COUNT = 1                   # in the shared memory: behind the state how many standbys are waited for, or have been,
FREE = 2                    # of how many partitions changes do not wait, since no standby has them,
NUMBER = 8                  # the number,
FREE_AT = 16                # and digests of the names of those partitions,
KEY = 8                     # each so long,
MOST_FREE = 255             # and so many at most: changes of others wait
OCTETS = FREE_AT + KEY * MOST_FREE
STATE_AT = 8                # where in that memory the state is, behind the write freeze's,
IS_REFUSING = 2             # and what it is then: this is asked for each transaction, without a call
FOLDER = "second"           # in `run/`, with the sockets,
LOCK = "second.lock"        # and beside it a file that is locked for as long as that one process lives
SOURCE = "source-%d"        # the sockets of that process, one for each standby that is waited for
SOURCES = 8                 # of them, at most
STEP = 0.002                # seconds between two looks of a thread that waits,
LOOKS = 500                 # after so many of which it looks whether that one process is alive
LONGEST = 60.0              # seconds that anybody waits: then there is no answer
_NUMBER = struct.Struct("<q")
_TICKET = struct.Struct("<q")
_names = itertools.count()


class State(IntEnum):
    """What an answer waits for."""

    ALONE = 0               # it waits for this machine's disk only
    WAITING = 1             # it waits for the standbys, too
    REFUSING = IS_REFUSING  # nothing begins that changes anything: a standby is away, and the setting says so


Then = Callable[[State], None]      # WAITING: it is there; ALONE: the standby is away; REFUSING: nobody knows


@define(eq=False)
class SecondCopy:
    """What this process knows of the second copy. `shared` has room for OCTETS from STATE_AT on; `folder` is
    `run/second`."""

    shared: mmap.mmap
    folder: Path
    _exempt: threading.local = field(factory=threading.local, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _socket: socket.socket | None = field(default=None, init=False)
    _directory: int = field(default=-1, init=False)
    _name: str = field(default="", init=False)
    _waiting: list[tuple[int, float, Then]] = field(factory=list, init=False)       # of the event loop
    _reactor: Any = field(default=None, init=False)
    _reads: bool = field(default=False, init=False)         # the event loop does

    @property
    def state(self) -> State:
        """What an answer waits for now."""
        return State(self.shared[STATE_AT])

    @property
    def refuses(self) -> bool:
        """Whether this thread may change nothing."""
        return self.shared[STATE_AT] == State.REFUSING and not self.is_exempt()

    @property
    def number(self) -> int:
        """The moment of which the standbys have everything."""
        found: int = _NUMBER.unpack_from(self.shared, STATE_AT + NUMBER)[0]      # aligned: never half of it
        return found

    def is_free(self, key: bytes) -> bool:
        """Whether no standby that answers wait for has the partition of that `part_key`."""
        start = STATE_AT + FREE_AT
        return any(self.shared[at:at + KEY] == key
                   for at in range(start, start + KEY * self.shared[STATE_AT + FREE], KEY))

    def is_exempt(self) -> bool:
        """Whether this thread serves a standby: its changes neither wait nor are refused."""
        return getattr(self._exempt, "is_so", False)

    @contextlib.contextmanager
    def exempt(self) -> Iterator[None]:
        """A context in which this thread serves a standby. It holds until the outermost of such blocks ends."""
        before, self._exempt.is_so = self.is_exempt(), True
        try:
            yield
        finally:
            self._exempt.is_so = before

    # For the one process that has the connections

    def lead(self) -> "Lead":
        """Make this process the one that has the connections. Raises OSError."""
        privatefiles.make_folder(self.folder, exist_ok=True)
        handle = privatefiles.open_handle(self.folder.with_name(LOCK), os.O_RDWR | os.O_CREAT)
        fcntl.flock(handle, fcntl.LOCK_EX)
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)
        return Lead(self, handle)

    def put(self, state: State, number: int) -> None:
        """Make this known to all processes. For the one process."""
        self.put_number(number)
        self.shared[STATE_AT] = state

    def put_number(self, number: int) -> None:
        """Make known to all processes that the standbys have this. For the one process."""
        _NUMBER.pack_into(self.shared, STATE_AT + NUMBER, number)

    def put_free(self, names: Iterable[str]) -> None:
        """Changes of these partitions neither wait nor are refused from now on. Those of all others do, at every moment
        of this call. For the one process."""
        keys = [part_key(name) for name in sorted(names)[:MOST_FREE]]
        self.shared[STATE_AT + FREE] = 0
        for number, key in enumerate(keys):
            self.shared[STATE_AT + FREE_AT + KEY * number:STATE_AT + FREE_AT + KEY * (number + 1)] = key
        self.shared[STATE_AT + FREE] = len(keys)

    def forget(self) -> None:
        """Nobody else has the store open: forget what a process that ended has left."""
        self.put(State.ALONE, 0)
        self.put_free(())

    # For who waits

    def ask(self) -> int:
        """Ask for everything that has been committed so far; returns the number to wait for."""
        ticket = time.monotonic_ns()
        octets = _TICKET.pack(ticket)
        with self._lock:
            sender = self._open()
        for number in range(self.shared[STATE_AT + COUNT]):
            try:
                sender.sendto(octets, self._address(SOURCE % number))
            except FileNotFoundError:
                break
            except OSError:         # it has many already, and looks; or it has ended
                continue
        return ticket

    def wait(self, ticket: int) -> None:
        """Return when the standbys have it, or when they are away and that does not matter. For a thread. Raises
        Unflushed."""
        deadline, looks = time.monotonic() + LONGEST, 0
        while (state := self.state) == State.WAITING and self.number < ticket:
            with self._changed:
                self._changed.wait(STEP)
            looks += 1
            if looks % LOOKS == 0 and (time.monotonic() > deadline or self._is_deserted()):
                raise unknown()
        if state == State.REFUSING and self.number < ticket:
            raise unknown()

    def serve(self, reactor: Any) -> None:
        """Note that this process has an event loop, in which `when` can be called."""
        self._reactor = reactor

    @property
    def serves(self) -> bool:
        """Whether `when` can be called."""
        return self._reactor is not None

    def when(self, ticket: int, then: Then) -> None:
        """Have `then` called in the event loop when that is so."""
        if not self._reads:
            self._reads = True
            self._reactor.addReader(self)
            self._reactor.callLater(1, self._look_again)
        self._waiting.append((ticket, time.monotonic() + LONGEST, then))
        if self.state != State.WAITING or self.number >= ticket:        # it is there already
            self._reactor.callLater(0, self._look)

    def _look_again(self) -> None:
        """Look again, since a datagram may have been lost."""
        self._look()
        self._reactor.callLater(1, self._look_again)

    def _look(self) -> None:
        state, number, now = self.state, self.number, time.monotonic()
        waiting, self._waiting = self._waiting, []
        for ticket, deadline, then in waiting:
            if number >= ticket:
                then(State.WAITING)
            elif state != State.WAITING:
                then(state)
            elif now > deadline:
                then(State.REFUSING)
            else:
                self._waiting.append((ticket, deadline, then))

    def _open(self) -> socket.socket:
        if self._socket is None:
            privatefiles.make_folder(self.folder, exist_ok=True)
            self._directory = privatefiles.open_folder(self.folder)
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._name = f"{os.getpid()}-{next(_names)}"
            made.bind(self._address(self._name))
            self._socket = made
        return self._socket

    def _address(self, name: str) -> str:
        return f"/proc/self/fd/{self._directory}/{name}"        # an address holds only 107 octets

    def _is_deserted(self) -> bool:
        """Whether the one process has ended; then nobody waits any more."""
        try:
            handle = privatefiles.open_handle(self.folder.with_name(LOCK), os.O_RDWR)
        except OSError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            os.close(handle)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            if self._reads:
                self._reactor.removeReader(self)
            with contextlib.suppress(OSError):
                (self.folder / self._name).unlink(missing_ok=True)
            self._socket.close()
            os.close(self._directory)
            self._socket = None

    # What the reactor calls

    def fileno(self) -> int:
        """The socket's descriptor."""
        return -1 if self._socket is None else self._socket.fileno()

    def doRead(self) -> None:
        """The number has grown, or the state has changed."""
        with contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.recv(64)           # when there is more, the reactor calls again
        with self._changed:
            self._changed.notify_all()
        self._look()

    def connectionLost(self, reason: object) -> None:
        """The reactor has ended."""

    def logPrefix(self) -> str:
        """For Twisted's log."""
        return "second copy"


@define(eq=False)
class Lead:
    """The part of that one process: see `SecondCopy.lead`."""

    second: SecondCopy
    _handle: int

    def source(self, number: int) -> "Asked":
        """The `Asked` for the standby that has this number, from 0 on. Raises OSError."""
        made = Asked(self.second.folder, number)
        self.second.shared[STATE_AT + COUNT] = max(self.second.shared[STATE_AT + COUNT], number + 1)
        return made

    def close(self) -> None:
        """It has them no longer."""
        os.close(self._handle)


class Asked:
    """The socket on which the thread of one standby hears that somebody waits, and from which it answers."""

    def __init__(self, folder: Path, number: int) -> None:
        self._path = folder / (SOURCE % number)
        self._path.unlink(missing_ok=True)
        self._directory = privatefiles.open_folder(folder)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(f"/proc/self/fd/{self._directory}/{self._path.name}")
        self._poll = select.poll()      # half the calls of a socket with a time limit
        self._poll.register(self._socket, select.POLLIN)
        self._senders: set[str] = set()
        self._newest = 0            # the newest moment that anybody waits for, as its own thread knows,
        self._overheard = 0         # and another one,
        self._answered = 0          # and the moment of which all have been told

    def wait(self, seconds: float) -> None:
        """Return when somebody has begun to wait, or after so many seconds."""
        if self._poll.poll(max(seconds, 1e-4) * 1000):
            with contextlib.suppress(BlockingIOError):      # another thread was quicker
                self._newest = max(self._newest, self._take())

    def newest(self) -> int:
        """The newest moment that anybody waits for; it also takes what has come. For another thread: the standby's own
        thread reads nothing while it waits for the standby's next question."""
        self._overheard = self._all_taken(self._overheard)
        return max(self._newest, self._overheard)

    def answer(self, number: int) -> None:
        """That number has been put: wake all who wait, unless they have heard of it, or of a later one. Who begins to
        wait after this finds the number there."""
        told = self.is_awaited(self._answered)
        if told:                # at once: who they are is known
            self.tell()
        known = len(self._senders)
        self._newest = self._all_taken(self._newest)
        if len(self._senders) > known or not told and self.is_awaited(self._answered):
            told = True
            self.tell()
        if told:
            self._answered = number

    def is_awaited(self, number: int) -> bool:
        """Whether somebody waits for a later moment than that, as far as this process has heard."""
        return max(self._newest, self._overheard) > number

    def _all_taken(self, newest: int) -> int:
        with contextlib.suppress(OSError):          # there is no more, or it has been closed
            while True:
                newest = max(newest, self._take())
        return newest

    def _take(self) -> int:
        octets, sender = self._socket.recvfrom(64)
        self._senders.add(sender[sender.rfind("/") + 1:])
        moment: int = _TICKET.unpack(octets)[0]
        return moment

    def tell(self) -> None:
        """Wake all who wait, or have waited."""
        for sender in tuple(self._senders):
            try:
                self._socket.sendto(b"+", socket.MSG_DONTWAIT, f"/proc/self/fd/{self._directory}/{sender}")
            except BlockingIOError:         # it has some to read
                pass
            except OSError:                 # it has ended
                self._senders.discard(sender)

    def close(self) -> None:
        """Close it: nobody is heard any more."""
        self.tell()
        self._socket.close()
        self._path.unlink(missing_ok=True)
        os.close(self._directory)


def part_key(name: str) -> bytes:
    """The key of the partition of that name in the shared memory."""
    return hashlib.blake2b(name.encode(), digest_size=KEY).digest()


def unknown() -> Unflushed:
    """The error for a change that is committed here, and may not be at the standby."""
    return Unflushed(errno.ENOLINK, "no standby has said that it has the change on disk")


def refused() -> OSError:
    """The error for a change while a standby is away that must be there."""
    return OSError(errno.ENOLINK, "a standby is away, and exchange.without_standby is refuse")
