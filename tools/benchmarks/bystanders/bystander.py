"""`tools/bench bystander`: what another user feels while one user does the worst that the limits allow.

A server of one process, on a fresh store of its own. A bystander does NOOP, SELECT and FETCH at a steady beat: first
when all is quiet, then during each attack. Each attack is one command of the longest, widest or deepest kind, sent by
a user with the largest mailbox, the most mailboxes and hostile messages.
"""

import itertools
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, frozen

from mboxlist import privatefiles
from mboxlist.names import MailboxName
from store.mailboxes import namespace
from store.mailboxes.copymessages import copy_messages
from store.opening import open_store
from store.settings import Settings
from store.store import Store
from tools.benchmarks import manymessages, temporaryserver
from tools.benchmarks.bystanders.benchclients import Client
from tools.cli.output import print_json, print_table

QUIET_SECONDS = 5.0
ATTACKER, BYSTANDER = 0, 1      # numbers of the users
BYSTANDERS_MESSAGES = 100
BEAT_SECONDS = 0.02
HEADER_LINES = 262_000
MAILBOXES = 280


@frozen
class Attack:
    """One command. `before` are commands that have been answered before it is measured."""

    name: str
    command: Callable[[], Sequence[bytes]]      # the command's parts: after each but the last a continuation is awaited
    before: tuple[bytes, ...] = (b"SELECT Large",)
    after: tuple[bytes, ...] = ()               # puts back what it changed


@define
class Felt:
    """What the bystander felt: seconds of each round."""

    seconds: list[float]

    @property
    def p99(self) -> float:
        """Milliseconds."""
        return 1000 * (statistics.quantiles(self.seconds, n=100)[98] if len(self.seconds) > 1 else self.seconds[0])

    @property
    def longest(self) -> float:
        """Milliseconds."""
        return 1000 * max(self.seconds)


def attacks(messages: int) -> list[Attack]:
    """Each command at the limits of `imap.wire.limits.Limits`."""
    patterns = b" ".join(b'"' + b"*a" * 60 + b'%db"' % number for number in range(256))
    keys = b" ".join(b"NOT KEYWORD k%d" % number for number in range(1000))
    fields = b" ".join(b"X-%d" % number for number in range(250))
    items = b" ".join(b"BODY.PEEK[HEADER.FIELDS (X-%d)]" % number for number in range(120))
    hostile = b"From: a\r\n" + b"A:\r\n" * 80_000 + b"\r\n"
    several = [b"APPEND Drop {%d}" % len(hostile), *[hostile + b" {%d}" % len(hostile)] * 47, hostile]
    return [
        Attack("LIST of 256 patterns", lambda: [b'LIST "" (' + patterns + b")"]),
        Attack("LIST, STATUS of all", lambda: [b'LIST "" * RETURN (STATUS (MESSAGES UNSEEN SIZE))'], ()),
        Attack("FETCH HEADER.FIELDS, 262,000 lines", lambda: [b"FETCH 1 BODY.PEEK[HEADER.FIELDS (" + fields + b")]"],
               (b"SELECT Hostile",)),
        Attack("FETCH of 120 HEADER.FIELDS", lambda: [b"FETCH 1 (" + items + b")"], (b"SELECT Hostile",)),
        Attack("FETCH BINARY partials", lambda: [b"FETCH 2 (" + b" ".join(
            b"BINARY.PEEK[1]<%d.1000>" % (number * 1000) for number in range(250)) + b")"], (b"SELECT Hostile",)),
        Attack("FETCH of 250 MIME parts", lambda: [b"FETCH 3 (" + b" ".join(
            b"BODY.PEEK[%d.MIME]" % number for number in range(1, 251)) + b")"], (b"SELECT Hostile",)),
        Attack("FETCH ENVELOPE of all", lambda: [b"FETCH 1:* (UID FLAGS ENVELOPE BODYSTRUCTURE)"]),
        Attack("SEARCH of 1,000 keys", lambda: [b"SEARCH " + keys]),
        Attack("SEARCH of 1,000 sets", lambda: [b"SEARCH " + b" ".join(
            b"NOT 1,3:5,7,9,1%d:2%d" % (number, number) for number in range(1000))]),
        Attack("UID SEARCH of 10,000 ranges", lambda: [b"UID SEARCH UID " + b",".join(
            b"%d" % number for number in range(1, 20_000, 2))]),
        Attack("SEARCH TEXT", lambda: [b"SEARCH 1:20000 TEXT nothing-like-it"]),
        Attack("SORT", lambda: [b"SORT (SUBJECT FROM REVERSE DATE) UTF-8 ALL"]),
        Attack("THREAD", lambda: [b"THREAD REFERENCES UTF-8 ALL"]),
        Attack("STORE of all", lambda: [b"STORE 1:* +FLAGS (\\Flagged)"],
               after=(b"STORE 1:* -FLAGS.SILENT (\\Flagged)",)),
        Attack("APPEND of 48 hostile messages", lambda: several, (b"CREATE Drop",), (b"DELETE Drop",)),
        Attack("COPY of all", lambda: [b"COPY 1:* Copies"], (b"SELECT Large", b"CREATE Copies")),
        Attack("MOVE of all", lambda: [b"MOVE 1:* Moved"], (b"SELECT Copies", b"CREATE Moved")),
        Attack("EXPUNGE of all", lambda: [b"EXPUNGE"],
               (b"SELECT Moved", b"STORE 1:* +FLAGS.SILENT (\\Deleted)")),
        Attack("RENAME of 280 mailboxes", lambda: [b"RENAME Tree Renamed"]),
    ]


def fill(store: Store, messages: int) -> None:
    """The mailboxes of attacker and bystander."""
    attacker, bystander = temporaryserver.USER % ATTACKER, temporaryserver.USER % BYSTANDER
    large = manymessages.fill(store, attacker, "Large", messages)
    kept = namespace.create_mailbox(store, MailboxName(bystander, "Kept"))
    copy_messages(store, large, kept, store.open_mailbox(large).rows["uid"][:BYSTANDERS_MESSAGES])
    hostile = namespace.create_mailbox(store, MailboxName(attacker, "Hostile"))
    lines = b"".join(b"X-%d: a\r\n" % (number % 1000) for number in range(HEADER_LINES))
    coded = (b"QUJD" * 18 + b"\r\n") * 200_000
    manymessages.deliver(store, hostile, iter([
        lines + b"\r\nThe text.\r\n",
        b"MIME-Version: 1.0\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        + coded,
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"--b\r\n\r\nx\r\n" * 2000 + b"--b--\r\n"]))
    namespace.create_mailbox(store, MailboxName(attacker, "Tree"))
    for number in range(MAILBOXES):
        namespace.create_mailbox(store, MailboxName(attacker, "Tree/" + "a" * 175 + str(number)))


class Bystander:
    """Works in a thread of its own until it is stopped."""

    def __init__(self, port: int) -> None:
        self._client = Client(port, temporaryserver.USER % BYSTANDER)
        self._seconds: list[float] = []
        self._due = time.perf_counter()             # the beat that it waits for
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        """A command at each beat. One that waits counts from its beat on, and so do those whose beats it lets pass."""
        commands = itertools.cycle((b"NOOP", b"SELECT Kept", b"FETCH 1:* (UID FLAGS)"))
        self._due = due = time.perf_counter()
        while not self._stop.is_set():
            time.sleep(max(0.0, due - time.perf_counter()))
            answer = self._client.command(next(commands))
            self._seconds.append(time.perf_counter() - due)
            self._due = due = due + BEAT_SECONDS
            if not answer.startswith(b"x OK"):
                raise ConnectionError(f"the bystander was refused: {answer!r}")

    @contextmanager
    def felt(self) -> Iterator[Felt]:
        """What it feels meanwhile."""
        while time.perf_counter() - self._due > 2 * BEAT_SECONDS:       # it is still behind from what came before
            time.sleep(BEAT_SECONDS)
        begun = len(self._seconds)
        result = Felt([])
        yield result
        result.seconds = self._seconds[begun:]

    def __enter__(self) -> "Bystander":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()


def memory(pid: int) -> float:
    """MiB that the server's processes have for themselves, their shares of what is shared included."""
    pids = [pid, *(int(word) for word in subprocess.run(
        ["pgrep", "-s", str(pid)], capture_output=True, text=True, check=False).stdout.split() if int(word) != pid)]
    total = 0
    for each in pids:
        try:
            text = privatefiles.read_named(f"/proc/{each}/smaps_rollup").decode()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


def attacked(port: int, pid: int, attack: Attack, bystander: Bystander, quiet: Felt) -> dict[str, Any]:
    """One row of the table; `quiet` is what the bystander feels without an attack."""
    client = Client(port, temporaryserver.USER % ATTACKER)
    try:
        for command in attack.before:
            client.command(command)
        parts = attack.command()
        before = memory(pid)
        begun = time.perf_counter()
        with bystander.felt() as felt:
            try:
                answer = client.command(*parts).split(b" ")[1].decode()
            except TimeoutError:
                answer = "over"
            seconds = time.perf_counter() - begun
            time.sleep(0.2)
        grown = memory(pid) - before
        for command in attack.after:
            client.command(command)
    finally:
        client.close()
    return {"attack": attack.name, "answer": answer, "seconds": round(seconds, 2), "p99_ms": round(felt.p99, 1),
            "more_ms": round(felt.p99 - quiet.p99, 1), "longest_ms": round(felt.longest, 1),
            "memory_mib": round(grown, 1)}


def run(parent: Path | None, messages: int, only: str | None, *, as_json: bool) -> None:
    """Print the table."""
    def fill_root(root: Path) -> None:
        store = open_store(root, Settings(mailbox_limit=10_000), who="tools/bench")
        try:
            fill(store, messages)
        finally:
            store.close()

    with temporaryserver.serving(parent, fill=fill_root) as state:
        rows = measure(state["ports"]["imap"], state["pid"], messages, only)
    if as_json:
        print_json(rows)
    else:
        print_table(rows, tuple(rows[0]))


def measure(port: int, pid: int, messages: int, only: str | None) -> list[dict[str, Any]]:
    """The rows: first the quiet one."""
    with Bystander(port) as bystander:
        with bystander.felt() as quiet:
            time.sleep(QUIET_SECONDS)
        rows: list[dict[str, Any]] = [{"attack": "none", "answer": "", "seconds": QUIET_SECONDS,
                                       "p99_ms": round(quiet.p99, 1), "more_ms": 0.0,
                                       "longest_ms": round(quiet.longest, 1), "memory_mib": 0.0}]
        for attack in attacks(messages):
            if only is None or only in attack.name:
                rows.append(attacked(port, pid, attack, bystander, quiet))
    return rows

