"""`tools/bench sizing`: what users and messages take on disk and in the logs, how long recovery is, and from these what
back ends need for as many users as are asked for.

What is measured is measured on a fresh store without syncing; octets do not depend on that. What follows from it is a
projection: the figures of one user and one message, times how many there are.
"""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.kv import Env
from mboxlist.entry import MailboxEntry
from store.delivery.commit import Target, commit
from store.mailboxes.flagchanges import change_flags
from store.opening import make_empty_store, open_store
from store.settings import Settings
from store.store import Store
from store.users.newuser import add_user
from store.values import Flag, FlagAction, Flags, InternalDate
from tools.cli.output import print_json, print_table

MEASURED_USERS = 20_000
MEASURED_MESSAGES = 20_000
FANNED = 2000               # messages to eleven mailboxes each
PEAK = 4                    # times the mean of a day is what the busiest minutes have
DAY = 86400
FILE_BLOCK = 4096           # octets that a file system gives out


@frozen
class Load:
    """What is assumed of the users, all back ends together."""

    users: int = 1_000_000
    kept: int = 2000            # messages of a user,
    size: int = 75 << 10        # octets of one,
    sharing: float = 3.0        # mailboxes of one back end that have each
    arriving: int = 40          # messages for a user in a day
    flags: int = 120            # changes of a flag, copies and expunges of a user's messages in a day

    def __str__(self) -> str:
        return (f"{self.users:,} users with {self.kept:,} messages of {self.size:,} octets, each in {self.sharing:g} "
                f"mailboxes; for each user {self.arriving} messages and {self.flags} changes in a day, {PEAK} times as "
                "many in the busiest minutes")


@frozen
class Unit:
    """What was measured: octets of databases and of logs for one of each, and seconds of recovery."""

    user: float                 # databases of the list and the partition, for a user with an INBOX
    reference: float            # of the partition, for a message in one more mailbox
    message: float              # of the partition, for a message file and its first reference
    log_delivery: float
    log_change: float
    recovery_rate: float        # octets of log that recovery goes through in a second
    open_time: float            # seconds to open a store of MEASURED_USERS that was closed well

    def rows(self) -> list[dict[str, object]]:
        """The figures, to print."""
        return [
            {"what": "databases, a user with an INBOX", "value": round(self.user), "unit": "octets"},
            {"what": "databases, a message and its first mailbox", "value": round(self.message), "unit": "octets"},
            {"what": "databases, each further mailbox", "value": round(self.reference), "unit": "octets"},
            {"what": "log, a delivery", "value": round(self.log_delivery), "unit": "octets"},
            {"what": "log, a flag changed", "value": round(self.log_change), "unit": "octets"},
            {"what": "recovery", "value": round(self.recovery_rate / (1 << 20), 1), "unit": "MiB of log a second"},
            {"what": f"opening a store of {MEASURED_USERS} users that was closed well",
             "value": round(self.open_time, 2), "unit": "s"}]


def projected(load: Load, unit: Unit, back_ends: int) -> dict[str, object]:
    """What each of so many back ends has, when the users are spread evenly."""
    users = load.users / back_ends
    references = users * load.kept
    messages = references / load.sharing
    databases = users * unit.user + messages * unit.message + (references - messages) * unit.reference
    arriving, changes = users * load.arriving / load.sharing, users * load.flags
    log = (arriving * unit.log_delivery + changes * unit.log_change) / DAY
    minute = log * PEAK * 2 * Settings().checkpoint_interval        # as much as recovery goes through at most
    return {"back_ends": back_ends, "users": round(users), "message_files": round(messages),
            "files_gib": round(messages * (load.size + FILE_BLOCK / 2) / (1 << 30)),
            "databases_gib": round(databases / (1 << 30), 1), "log_gib_a_day": round(log * DAY / (1 << 30), 1),
            "deliveries_a_second_peak": round(arriving / DAY * PEAK, 1),
            "changes_a_second_peak": round(changes / DAY * PEAK, 1),
            "recovery_s": round(
                unit.open_time * users / MEASURED_USERS + minute / unit.recovery_rate, 1)}


@define(eq=False)
class _Measured:
    """A store in a temporary folder."""

    root: Path
    store: Store = field(init=False)
    made: int = 0

    def __attrs_post_init__(self) -> None:
        make_empty_store(self.root)
        self.reopen()

    def reopen(self) -> None:
        self.store = open_store(self.root, Settings(sync="none", disk_reserve=0, special_mailboxes=()),
                           who="tools/bench")

    def databases(self) -> int:
        """Octets of all of them, with what is still in memory."""
        for env in self.environments():
            env.checkpoint()
        return sum(path.stat().st_size for path in self.root.rglob("*.db"))

    def environments(self) -> list[Env]:
        """That of the list, and those of the partitions."""
        return [self.store.mailboxes.env, *(partition.env for partition in self.store.partitions.values())]

    def logs(self) -> int:
        """Octets that have been written to logs so far."""
        return sum(env.logged() for env in self.environments())

    def deliver(self, *entries: MailboxEntry) -> None:
        """A message like no other."""
        self.made += 1
        staged = self.store.stage(entries[0])
        staged.write(b"From: Ann Example <a%d@example.org>\r\nTo: b@example.org\r\nSubject: Message number %d\r\n"
                     b"Date: Mon, 1 Feb 2026 08:00:00 +0000\r\nMessage-ID: <%d.%d@example.org>\r\n"
                     b"Content-Type: text/plain; charset=utf-8\r\n\r\nText.\r\n" % (
                         self.made % 997, self.made, os.getpid(), self.made))
        staged.finish()
        staged.spill()
        staged.on_disk = True
        targets = [Target(entry) for entry in entries]
        commit(self.store.partition_of(entries[0]), staged, targets, InternalDate(int(time.time())))
        staged.close()
        staged.place()

    def deliver_each(self, entries: Sequence[MailboxEntry]) -> None:
        """MEASURED_MESSAGES messages, each to one of these mailboxes."""
        for number in range(MEASURED_MESSAGES):
            self.deliver(entries[number % len(entries)])

    def cut_off(self, entries: Sequence[MailboxEntry]) -> None:
        """Measure it in a process that ends without closing anything. The store must be closed here."""
        child = os.fork()
        if not child:
            try:
                self.reopen()
                self.deliver_each(entries)
                self.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    def flush(self) -> None:
        """Write the figures to the logs."""
        for env in self.environments():
            env.flush()

    def opening(self) -> float:
        """Seconds that it takes."""
        begun = time.perf_counter()
        self.reopen()
        return time.perf_counter() - begun


def measure(folder: Path) -> Unit:
    """The figures of this machine."""
    held = _Measured(folder / "store")
    empty = held.databases()
    for number in range(MEASURED_USERS):
        add_user(held.store, f"user{number:07}", "none")
    peopled = held.databases()
    entries = [entry for entry in held.store.mailboxes.all() if entry.name.owner]
    logged = held.logs()
    held.deliver_each(entries)
    filled, written = held.databases(), held.logs()
    for number in range(FANNED):
        held.deliver(*[entries[(number * 7 + at) % len(entries)] for at in range(11)])
    shared, changed = held.databases(), held.logs()
    for entry in entries:
        uids = held.store.open_mailbox(entry).rows["uid"][:1]
        change_flags(held.store, entry, uids, FlagAction.ADD, Flags(Flag.SEEN))
    held.flush()
    message, change = (filled - peopled) / MEASURED_MESSAGES, (held.logs() - changed) / len(entries)
    rate, opened = _recovery(held, entries)
    return Unit((peopled - empty) / MEASURED_USERS, ((shared - filled) / FANNED - message) / 10, message,
                (written - logged) / MEASURED_MESSAGES, change, rate, opened)


def _recovery(held: _Measured, entries: Sequence[MailboxEntry]) -> tuple[float, float]:
    """Octets of log a second, and seconds to open what was closed well."""
    held.store.close()
    opened = held.opening()
    before = held.logs()
    held.store.close()
    held.cut_off(entries)
    recovered = held.opening()
    rate = (held.logs() - before) / max(recovered - opened, 0.001)
    held.store.close()
    return rate, opened


def run(parent: Path | None, load: Load, *, as_json: bool) -> None:
    """Measure, project, print."""
    folder = privatefiles.new_folder("onecopy-sizing-", parent)
    try:
        unit = measure(folder)
    finally:
        shutil.rmtree(folder)
    table = [projected(load, unit, back_ends) for back_ends in (1, 2, 5, 10, 20, 50, 100)]
    if as_json:
        print_json({"measured": unit.rows(), "load": str(load), "projected": table})
        return
    print_table(unit.rows(), ("what", "value", "unit"))
    print(f"\nFor {load}, each back end has:\n")
    print_table(table, tuple(table[0]))
