"""Expiry on a store of many messages: messages a second, and per second of processor time, looked at and taken.

    .venv/bin/python -m tools.benchmarks.expirycost [MESSAGES] [MAILBOXES] [FOLDER]
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from store import offload
from store.delivery import durable
from store.delivery.commit import Target
from store.expiry.rounds import after
from store.expiry.rulebook import Rulebook, set_mailbox
from store.expiry.work import Plan, expire
from store.mailboxes import firstuse
from store.opening import make_empty_store, open_store
from store.settings import Settings
from store.store import Store
from store.values import Flags, InternalDate

DAYS = 100
RULES = """read.messagedays: 50
read.flagged: not
large.messagesize: 1M
all.foldersize: 10G
"""


def fill(root: Path, messages: int, mailboxes: int) -> Store:
    """A store whose messages have a content for every ten, as internal dates the last DAYS days."""
    make_empty_store(root)
    store = open_store(root, Settings(sync="none", disk_reserve=0, special_mailboxes=(), cache=256 << 20))
    entries = []
    for number in range(mailboxes):
        user = f"user{number}"
        store.directory.add(user, "!")
        entries.append(firstuse.inbox(store, store.directory.find(user)))     # type: ignore[arg-type]
        set_mailbox(store, entries[-1], RULES)
    now, each = int(time.time()), messages // mailboxes
    for number in range(each):
        for start in range(0, mailboxes, 10):
            staged = store.stage(entries[start])
            staged.write(b"From: a@example.org\r\nSubject: %d\r\n\r\n%d\r\n" % (number, start) + b"text " * 200)
            offload.now(durable.deliver(store, staged, [Target(entry, Flags()) for entry in entries[start:start + 10]],
                                        InternalDate(now - DAYS * 86400 * (each - number) // each)))
    return store


def timed(name: str, messages: int, work: Callable[[], int]) -> None:
    """Print what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    taken = work()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{name}: {messages} messages looked at, {taken} taken, {wall:.2f} s, {processor:.2f} s of processor time: "
          f"{messages / wall:,.0f} looked at a second, {messages / processor:,.0f} per processor second"
          + (f"; {taken / wall:,.0f} taken a second, {taken / processor:,.0f} per processor second" if taken else ""))


def run(store: Store, *, change: bool) -> int:
    """One round; how many messages are taken."""
    book, now = Rulebook(store), time.time()
    taken = sum(expire(store, entry, book, Plan(now, change=change)).messages for entry in after(store, ""))
    for partition in store.partitions.values():
        partition.flush()
    return taken


def main(words: list[str]) -> None:
    """The program."""
    messages = int(words[0]) if words else 100_000
    mailboxes = int(words[1]) if len(words) > 1 else 1
    with privatefiles.temporary_folder("onecopy-expiry-", words[2] if len(words) > 2 else None) as folder:
        store = fill(folder / "store", messages, mailboxes)
        for partition in store.partitions.values():
            partition.views.forget()
        print(f"{messages} messages in {mailboxes} mailboxes")
        timed("dry run, nothing in memory", messages, lambda: run(store, change=False))
        timed("dry run, again", messages, lambda: run(store, change=False))
        store.settings = evolve(store.settings, sync="everything")
        timed("in earnest", messages, lambda: run(store, change=True))
        timed("again", messages, lambda: run(store, change=True))
        store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
