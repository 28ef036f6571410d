"""`tools/bench commands`: what one command of a client costs the process that serves it.

One process serves a fresh store on loopback; one client, in a process of its own, sends each command again and again,
and nobody else is connected. Each command is measured twice. Once the thread of the event loop is profiled: the
numbers of calls are exact, and nearly the same on any machine. Once it is not: CPU time, changes of threads and
octets that the log of the databases grew by. With `strace` installed the system calls are counted as well.
"""

import cProfile
import multiprocessing
import os
import pstats
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

from attrs import frozen
from twisted.internet import reactor as _reactor
from twisted.internet.threads import blockingCallFromThread

import imap.protocol
import imap.settings
import lmtp.protocol
import lmtp.settings
import pop3.protocol
import pop3.settings
from mboxlist import privatefiles
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.passwords import hash_password
from store.net import authentication, sharedsyncs
from store.net.kernelsyncs import KernelSyncs
from store.net.threads import ReactorThreads
from store.opening import make_empty_store, open_store
from store.settings import Settings
from store.users.newuser import add_user
from store.values import Secret
from tools.benchmarks.temporaryserver import give_script
from tools.cli.output import print_json, print_table

reactor: Any = _reactor

ADDRESS, USER, PASSWORD = "127.0.0.1", "bench", "secret"
FILING = "filing"       # a user with a script
TIMES = 200             # how often each command is sent in a measurement
MESSAGES = 300          # in the mailbox that is selected
MESSAGE = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: %d\r\nMessage-ID: <%d@example.org>\r\n\r\n" + (
    b"The text of this message.\r\n" * 290)
SWITCH_SECONDS = 0.0005     # as in the server's processes

Send = Callable[[int], None]


@frozen
class Cost:
    """What one command cost, on average of TIMES."""

    command: str
    functions: float            # calls of Python functions in the loop's thread
    calls: float                # calls into C there
    cpu: float                  # microseconds of all threads
    switches: float             # times that a thread waited
    log: float                  # octets
    system: float | None        # calls of the kernel


class Measure:
    """The serving side: the client says by `commands` what begins and what ends."""

    def __init__(self, store: Any) -> None:
        self._partition = next(iter(store.partitions.values()))
        self._profile = cProfile.Profile()
        self._before: tuple[float, float, float] = (0, 0, 0)
        self._strace: subprocess.Popen[bytes] | None = None

    def now(self) -> tuple[float, float, float]:
        """CPU seconds, changes of threads, octets of log."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime, used.ru_nvcsw, self._partition.env.logged()

    def begin(self, way: str) -> None:
        """A measurement begins."""
        if way == "profile":
            self._profile = cProfile.Profile()
            self._profile.enable()
        else:
            self._before = self.now()

    def end(self, way: str) -> tuple[float, ...]:
        """What was measured: calls of functions and calls into C; or as `now`."""
        if way != "profile":
            return tuple(after - before for after, before in zip(self.now(), self._before, strict=True))
        self._profile.disable()
        found: Any = pstats.Stats(self._profile)
        counts = {True: 0, False: 0}
        for (file, _, _), (_, calls, *_) in found.stats.items():
            counts[file == "~"] += calls
        return counts[False], counts[True]

    def trace(self, output: Path) -> "subprocess.Popen[bytes]":
        """Count the system calls of this process until it is told to end; for a thread."""
        tracer = subprocess.Popen(["strace", "-c", "-f", "-o", str(output), "-p", str(os.getpid())],
                                  stderr=subprocess.PIPE)
        assert tracer.stderr is not None
        tracer.stderr.readline()                # "attached"
        return tracer

    def listen(self, commands: Connection, folder: Path) -> None:
        """Do what the client says until it ends; for a thread."""
        tracer: subprocess.Popen[bytes] | None = None
        while True:
            try:
                word, way = commands.recv()
            except EOFError:
                reactor.callFromThread(reactor.stop)
                return
            if way == "trace":
                if word == "begin":
                    tracer = self.trace(folder / "trace")
                    commands.send(())
                else:
                    assert tracer is not None
                    tracer.send_signal(signal.SIGINT)
                    tracer.communicate()
                    commands.send((_traced(folder / "trace"),))
            else:
                commands.send(blockingCallFromThread(reactor, self.begin if word == "begin" else self.end, way))


def _traced(output: Path) -> float:
    """How many calls a table of strace counts; its own way of stopping threads is none of them."""
    total = 0
    for line in privatefiles.read_text(output).splitlines():
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] not in ("total", "restart_syscall"):
            total += int(words[3])
    return total


class Client:
    """A connection to one of the servers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((ADDRESS, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._file.readline()

    def ask(self, data: bytes, end: bytes) -> None:
        """Send, and read up to the line that begins so."""
        self._socket.sendall(data)
        while not (line := self._file.readline()).startswith(end):
            if not line or line.startswith((b"x BAD", b"x NO", b"-ERR", b"4", b"5")):
                raise ConnectionError(f"refused: {data[:60]!r}: {line!r}")

    def close(self) -> None:
        """The end of the connection."""
        self._file.close()
        self._socket.close()


def commands(ports: dict[str, int]) -> Iterator[tuple[str, Send]]:
    """Each command by its name, and what sends it for the n-th time."""
    imap_client = Client(ports["imap"])

    def imap_command(text: bytes) -> None:
        imap_client.ask(b"x " + text + b"\r\n", b"x OK")

    imap_command(b"LOGIN %b %b" % (USER.encode(), PASSWORD.encode()))
    append = b"APPEND INBOX {%d+}\r\n%b"
    for number in range(MESSAGES):
        message = MESSAGE % (number, number)
        imap_command(append % (len(message), message))
    imap_command(b"SELECT INBOX")
    yield "NOOP", lambda n: imap_command(b"NOOP")
    yield "UID STORE of one", lambda n: imap_command(
        b"UID STORE %d %bFLAGS (\\Seen)" % (n % MESSAGES + 1, b"+-"[n // MESSAGES % 2:][:1]))
    yield "UID FETCH n BODY.PEEK[]", lambda n: imap_command(b"UID FETCH %d BODY.PEEK[]" % (n % MESSAGES + 1))
    yield "UID FETCH n (FLAGS ENVELOPE)", lambda n: imap_command(b"UID FETCH %d (FLAGS ENVELOPE)" % (n % MESSAGES + 1))
    yield "UID SEARCH UNSEEN", lambda n: imap_command(b"UID SEARCH UNSEEN")
    yield "SELECT again", lambda n: imap_command(b"SELECT INBOX")
    imap_command(b"UNSELECT")

    def session(_: int) -> None:
        client = Client(ports["imap"])
        for command in (b"LOGIN %b %b" % (USER.encode(), PASSWORD.encode()), b"SELECT INBOX", b"LOGOUT"):
            client.ask(b"x " + command + b"\r\n", b"x OK")
        client.close()

    yield "a session: LOGIN, SELECT, LOGOUT", session

    def append_one(n: int) -> None:
        message = MESSAGE % (n, 1_000_000 + n)
        imap_command(append % (len(message), message))

    def append_when_asked(n: int) -> None:
        message = MESSAGE % (n, 3_000_000 + n)
        imap_client.ask(b"x APPEND INBOX {%d}\r\n" % len(message), b"+")
        imap_client.ask(message + b"\r\n", b"x OK")

    yield "APPEND", append_one
    yield "APPEND, asked for the message", append_when_asked
    lmtp_client = Client(ports["lmtp"])
    lmtp_client.ask(b"LHLO example.org\r\n", b"250 ")

    def deliver(user: str, message: bytes) -> None:
        lmtp_client.ask(b"MAIL FROM:<a@example.org>\r\nRCPT TO:<%b>\r\nDATA\r\n" % user.encode(), b"354")
        lmtp_client.ask(message + b".\r\n", b"250")

    yield "LMTP, one recipient", lambda n: deliver(USER, MESSAGE % (n, 2_000_000 + n))
    yield "LMTP, by a script of ten rules", lambda n: deliver(FILING, MESSAGE % (n, 4_000_000 + n))
    pop3_client = Client(ports["pop3"])
    pop3_client.ask(b"USER %b\r\n" % USER.encode(), b"+OK")
    pop3_client.ask(b"PASS %b\r\n" % PASSWORD.encode(), b"+OK")
    yield "RETR", lambda n: pop3_client.ask(b"RETR %d\r\n" % (n % MESSAGES + 1), b".\r\n")


def attack(ports: dict[str, int], server: Connection, results: Connection) -> None:
    """The client: sends everything, and the costs when it is through."""
    traces = shutil.which("strace") is not None
    found = []
    for name, send in commands(ports):
        serial = 0
        measured: dict[str, tuple[float, ...]] = {}
        for way in ("warm", "profile", "plain", *(["trace"] if traces else [])):
            if way != "warm":
                server.send(("begin", way))
                server.recv()
            for _ in range(TIMES):
                send(serial)
                serial += 1
            if way != "warm":
                server.send(("end", way))
                measured[way] = tuple(one / TIMES for one in server.recv())
        (functions, calls), (cpu, switches, log) = measured["profile"], measured["plain"]
        found.append(Cost(name, functions, calls, cpu * 1e6, switches, log, *measured.get("trace", (None,))))
    results.send(found)


def measure(parent: Path | None, sync: str) -> list[Cost]:
    """What each command costs on a fresh store with that `store.sync`."""
    folder = privatefiles.new_folder("onecopy-bench-", parent)
    try:
        make_empty_store(folder / "store")
        store = open_store(folder / "store", Settings(sync=sync), who="tools/bench")
        for user in (USER, FILING):
            add_user(store, user, hash_password(Secret(PASSWORD.encode())))
        give_script(store, FILING)
        threads = ReactorThreads(reactor.callFromThread)
        sharedsyncs.attach(store, threads, KernelSyncs.of(reactor))
        authentication.attach(store, LoginSettings())
        factories = {"imap": imap.protocol.factory(store, imap.settings.Settings(), reactor),
                     "pop3": pop3.protocol.factory(store, pop3.settings.Settings(), reactor),
                     "lmtp": lmtp.protocol.factory(store, lmtp.settings.Settings(), reactor)}
        ports = {name: reactor.listenTCP(0, factory, interface=ADDRESS).getHost().port
                 for name, factory in factories.items()}
        (server, said), (results, told) = multiprocessing.Pipe(), multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=attack, args=(ports, said, told))
        process.start()
        said.close()
        told.close()
        Thread(target=Measure(store).listen, args=(server, folder), daemon=True).start()
        reactor.run(installSignalHandlers=False)
        found: list[Cost] = results.recv()
        process.join()
        threads.stop()
        store.close()
        return found
    finally:
        shutil.rmtree(folder)


def run(parent: Path | None, sync: str, *, as_json: bool) -> None:
    """Measure and print."""
    found = measure(parent, sync)
    rows = [{"command": one.command, "functions": round(one.functions), "calls_into_c": round(one.calls),
             "cpu_us": round(one.cpu), "switches": round(one.switches, 1), "log_octets": round(one.log),
             "system_calls": None if one.system is None else round(one.system, 1)} for one in found]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, list(rows[0]))
