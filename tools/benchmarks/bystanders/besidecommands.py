"""What a user feels while an administrator's command is at its largest.

    python -m tools.benchmarks.bystanders.besidecommands [--mailboxes 16000] [--users 10000] [--messages 100000]
    [NAME...]

A server of one process, on a fresh store of its own: one user with many mailboxes, one with many messages, and a domain
of many users. Each command is `onecopy`, a process of its own, as an administrator types it. A bystander does NOOP,
SELECT and FETCH at a steady beat meanwhile, and a relay delivers to another user. For each command: how long it took,
and what the two felt.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from mboxlist.names import MailboxName
from store.mailboxes import namespace
from store.mailboxes.copymessages import copy_messages
from store.opening import PRIMARY, open_store
from store.settings import Settings
from store.store import Store
from tools.benchmarks import manymessages, temporaryserver
from tools.benchmarks.bystanders.benchclients import Relay
from tools.benchmarks.bystanders.bystander import BYSTANDER, BYSTANDERS_MESSAGES, QUIET_SECONDS, Bystander, Felt
from tools.cli.output import print_json, print_table

MANY, LARGE = "many0", "large0"         # who has many mailboxes, and many messages
DOMAIN = "%05d@users.example.org"
RELAYS_BEAT = 0.05
TEXT = b"Subject: beside a command\r\n\r\n%d\r\n"
MAILBOX = "Box %05d"


@frozen
class Command:
    """One that an administrator types, or several, one after the other."""

    name: str
    words: Sequence[str]


COMMANDS = (
    Command("user rename", ("user", "rename", MANY, "renamed")),
    Command("check", ("check",)),
    Command("quota report", ("quota", "report")),
    Command("quota check", ("quota", "check")),
    Command("user list", ("user", "list")),
    Command("mailbox list", ("mailbox", "list")),
    Command("snapshot create", ("snapshot", "create")),
    Command("messages flag", ("messages", "flag", "-u", LARGE, "--add", "flagged", "all")),
    Command("messages expunge", ("messages", "expunge", "-u", LARGE, "--yes", "all")),
    Command("undelete", ("undelete", LARGE, "Large")),
    Command("reconstruct of a user", ("reconstruct", "renamed")),
    Command("reconstruct", ("reconstruct", "--all")),
    Command("expire run", ("expire", "run", "--all")),
    Command("mailbox delete", ("mailbox", "delete", LARGE, "Large", "--yes")),
    Command("purge", ("purge", "--older-than", "0", "--yes")),
    Command("user remove", ("user", "remove", "--now", "--yes", "renamed")),
    Command("user undelete", ("user", "undelete", "renamed")),
    Command("users of a domain removed", ("user", "remove", "--now", "--yes", DOMAIN)),
    Command("scrub", ("scrub",)),
)


def fill(store: Store, mailboxes: int, users: int, messages: int) -> None:
    """The store, as large as that."""
    bystander = temporaryserver.USER % BYSTANDER
    kept = namespace.create_mailbox(store, MailboxName(bystander, "Kept"))
    temporaryserver.fill_with_users(store, 1, [PRIMARY], pattern="many%d")
    temporaryserver.fill_with_users(store, 1, [PRIMARY], pattern="large%d")
    temporaryserver.fill_with_users(store, users, [PRIMARY], pattern=DOMAIN)
    for begun in range(0, mailboxes, 1000):
        namespace.insert_mailboxes(store, [namespace.Wanted(MailboxName(MANY, MAILBOX % number), PRIMARY)
                                           for number in range(begun, min(begun + 1000, mailboxes))])
    large = manymessages.fill(store, LARGE, "Large", messages)
    copy_messages(store, large, kept, store.open_mailbox(large).rows["uid"][:BYSTANDERS_MESSAGES])


class Deliveries:
    """A relay that has a message for a user at each beat."""

    def __init__(self, port: int) -> None:
        self._relay = Relay(port, temporaryserver.USER % BYSTANDER)
        self.refused = 0
        self._seconds: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        due = time.perf_counter()
        for number in itertools.count():
            if self._stop.wait(max(0.0, due - time.perf_counter())):
                return
            self._relay.begin()
            try:
                self._relay.message([TEXT % number])
            except ConnectionError:             # refused for now
                self.refused += 1
            self._seconds.append(time.perf_counter() - due)
            due += RELAYS_BEAT

    @contextmanager
    def felt(self) -> Iterator[Felt]:
        """What the relay feels meanwhile."""
        begun = len(self._seconds)
        result = Felt([])
        yield result
        result.seconds = self._seconds[begun:] or [0.0]

    def __enter__(self) -> "Deliveries":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._relay.close()


def typed(root: str, words: Sequence[str], users: int) -> tuple[int, float]:
    """Run it to its end; its exit status, and seconds of processor time: others may be at work on the machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    named = [DOMAIN % number for number in range(users)]
    all_words = list(itertools.chain.from_iterable(named if word == DOMAIN else [word] for word in words))
    done = subprocess.run([sys.executable, "-P", "-m", "tools.cli.program", *all_words, "--root", root],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.returncode, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(state: dict[str, Any], commands: Sequence[Command], users: int) -> Iterator[dict[str, Any]]:
    """The rows: first the quiet one."""
    with Bystander(state["ports"]["imap"]) as bystander, Deliveries(state["ports"]["lmtp"]) as deliveries:
        for command in (None, *commands):
            begun, refused, (status, cpu) = time.perf_counter(), deliveries.refused, (0, 0.0)
            with bystander.felt() as felt, deliveries.felt() as delivered:
                if command is None:
                    time.sleep(QUIET_SECONDS)
                else:
                    status, cpu = typed(state["root"], command.words, users)
                seconds = time.perf_counter() - begun
                time.sleep(0.3)                         # what waits is answered
            yield {"command": command.name if command else "nothing", "status": status, "seconds": round(seconds, 2),
                   "cpu_seconds": round(cpu, 2), "p99_ms": round(felt.p99, 1), "longest_ms": round(felt.longest, 1),
                   "delivery_p99_ms": round(delivered.p99, 1), "delivery_longest_ms": round(delivered.longest, 1),
                   "refused": deliveries.refused - refused}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="a folder on the disk that is to be measured")
    parser.add_argument("--mailboxes", type=int, default=16_000)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of commands; without any all of them")
    wanted = parser.parse_args()
    chosen = [each for each in COMMANDS if not wanted.names or each.name in wanted.names]

    def fill_root(root: Path) -> None:
        store = open_store(root, Settings(special_mailboxes=()), who="tools/bench")
        try:
            fill(store, wanted.mailboxes, wanted.users, wanted.messages)
        finally:
            store.close()

    with temporaryserver.serving(wanted.dir, fill=fill_root) as state:
        rows = []
        for row in measure(state, chosen, wanted.users):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    if wanted.json:
        print_json(rows)
    else:
        print_table(rows, tuple(rows[0]))


if __name__ == "__main__":
    main()
