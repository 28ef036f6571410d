"""`tools/bench sharing`: whether time tells that others hold a message already.

A server of one process on a fresh store. A stranger gets half of the messages first; then another user, or a relay,
brings all of them, in random order, and notes how long each answer took. The AUC is the chance that a known message
took less time than an unknown one: 0.5 tells nothing, 1 or 0 everything.
"""

import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.benchmarks import benchserver
from tools.benchmarks.bystander import Client
from tools.cli.output import print_json, print_table
from tools.cli.storeaccess import init

STRANGER, ATTACKER = 0, 1       # numbers of the users
READ_OCTETS = 1 << 16
TOGETHER = 4                    # messages of one MULTIAPPEND
Send = Callable[[Sequence[bytes]], None]


class Relay:
    """An LMTP connection."""

    def __init__(self, port: int, user: int) -> None:
        self._socket = socket.create_connection((benchserver.ADDRESS, port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._recipient = (benchserver.USER % user).encode()
        self._answer()
        self._ask(b"LHLO relay.example.org\r\n")

    def begin(self) -> None:
        """Up to DATA."""
        self._ask(b"MAIL FROM:<a@example.org>\r\n")
        self._ask(b"RCPT TO:<%b>\r\n" % self._recipient)
        self._ask(b"DATA\r\n")

    def message(self, texts: Sequence[bytes]) -> None:
        """The octets, and the final dot. Raises ConnectionError when it is refused."""
        answer = self._ask(b"".join(texts) + b".\r\n")
        if not answer.startswith(b"250"):
            raise ConnectionError(f"refused: {answer!r}")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _ask(self, line: bytes) -> bytes:
        self._socket.sendall(line)
        return self._answer()

    def _answer(self) -> bytes:
        data = b""
        while not data.endswith(b"\n") or data.splitlines()[-1][3:4] == b"-":
            more = self._socket.recv(READ_OCTETS)
            if not more:
                raise ConnectionError("the server has ended the connection")
            data += more
        return data


def append(client: Client, texts: Sequence[bytes]) -> None:
    """APPEND, or MULTIAPPEND, in one piece. Raises ConnectionError when it is refused."""
    first, rest = texts[0], texts[1:]
    octets = b"APPEND INBOX {%d+}\r\n" % len(first) + first + b"".join(
        b" {%d+}\r\n" % len(text) + text for text in rest)
    answer = client.command(octets)
    if not answer.startswith(b"x OK"):
        raise ConnectionError(f"refused: {answer!r}")


def contents(count: int, size: int, seed: int) -> list[bytes]:
    """So many different messages of that size."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        head = b"From: a@example.org\r\nSubject: %d\r\nMessage-ID: <%d.%d@example.org>\r\n\r\n" % (number, seed, number)
        lines = [chance.randbytes(36).hex().encode() for _ in range(max(1, (size - len(head)) // 74))]
        found.append(head + b"\r\n".join(lines) + b"\r\n")
    return found


def auc(shorter: Sequence[float], longer: Sequence[float]) -> float:
    """The chance that one of the first is less than one of the others, of those that are equal a half."""
    ranked = sorted([(value, 0) for value in shorter] + [(value, 1) for value in longer])
    total = at = 0.0
    place = 0
    while place < len(ranked):
        end = place
        while end < len(ranked) and ranked[end][0] == ranked[place][0]:
            end += 1
        middle = (place + 1 + end) / 2
        at += middle * sum(1 for _, which in ranked[place:end] if not which)
        place = end
    total = at - len(shorter) * (len(shorter) + 1) / 2
    return 1 - total / (len(shorter) * len(longer))


def timed(known: Sequence[Sequence[bytes]], new: Sequence[Sequence[bytes]], send: Send, before: Callable[[], None],
          seed: int) -> tuple[list[float], list[float]]:
    """Seconds of each try, of the known and of the new ones."""
    tries = [(each, 0) for each in known] + [(each, 1) for each in new]
    random.Random(seed).shuffle(tries)
    seconds: tuple[list[float], list[float]] = ([], [])
    for texts, which in tries:
        before()
        begun = time.perf_counter()
        send(texts)
        seconds[which].append(time.perf_counter() - begun)
    return seconds


def measure(ports: dict[str, int], tries: int, size: int) -> list[dict[str, Any]]:
    """A row for each way in which messages come."""
    rows = []
    for number, (way, together) in enumerate((("APPEND", 1), ("MULTIAPPEND", TOGETHER), ("LMTP", 1))):
        count = tries // together
        texts = contents(count * together, size, number)
        groups = [texts[at:at + together] for at in range(0, len(texts), together)]
        known, new = groups[:count // 2], groups[count // 2:]
        relay = Relay(ports["lmtp"], STRANGER)
        for each in known:
            for text in each:
                relay.begin()
                relay.message([text])
        relay.close()
        time.sleep(1)
        if way == "LMTP":
            relay = Relay(ports["lmtp"], ATTACKER)
            found = timed(known, new, relay.message, relay.begin, number)
            relay.close()
        else:
            client = Client(ports["imap"], ATTACKER)
            found = timed(known, new, lambda texts, client=client: append(client, texts), lambda: None,  # type: ignore
                          number)
            client.close()
        rows.append({"way": way, "tries": len(groups), "known_us": _median(found[0]), "new_us": _median(found[1]),
                     "auc": round(auc(*found), 3)})
    return rows


def _median(seconds: Sequence[float]) -> int:
    return round(1e6 * sorted(seconds)[len(seconds) // 2])


def run(parent: Path | None, tries: int, size: int, conceal: Sequence[str], *, as_json: bool) -> None:
    """Print the table, for each of these values of `store.conceal_sharing`."""
    rows: list[dict[str, Any]] = []
    for setting in conceal:
        folder = Path(tempfile.mkdtemp(prefix="onecopy-bench-", dir=parent))
        try:
            init(folder / "store")
            benchserver.make_users(folder / "store", 2)
            ports = dict(zip(benchserver.SERVERS, benchserver.free_ports(len(benchserver.SERVERS)), strict=True))
            state = {"folder": str(folder), "root": str(folder / "store"), "ports": ports, "workers": 1, "users": 2,
                     "options": ["--store-conceal-sharing", setting], "pid": 0}
            benchserver.start(folder / "bench.json", state)
            try:
                rows += [{"conceal_sharing": setting, **row} for row in measure(ports, tries, size)]
            finally:
                benchserver.stop(state)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        print_json(rows)
    else:
        print_table(rows, tuple(rows[0]))
