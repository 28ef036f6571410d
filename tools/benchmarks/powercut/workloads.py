"""What runs when the power goes: mail, and each command that changes much."""

import os
import shlex
import shutil
import threading
from collections.abc import Callable, Mapping
from random import Random

from attrs import define, field, frozen

from tools.benchmarks.powercut import mail
from tools.benchmarks.powercut.ledger import Actor, Ledger, Mailbox, State, Who
from tools.benchmarks.powercut.machine import Machine, Site
from tools.benchmarks.temporaryserver import PASSWORD

MAIN, ONE, TWO = "main", "one", "two"
RECEIVERS = ("mona", "mike", "mary", "max")         # get mail by LMTP alone
CLIENTS = ("carl", "cora")                          # change their mailboxes by IMAP
OTHERS = ("alice", "bob")                           # commands are done to them
MOVED = "dave"                                      # at ONE
SECOND = "second"                                   # a partition of MAIN, empty
PASSWORD_LINE = PASSWORD.encode() + b"\n"
NEW_USER: State = {"INBOX": Mailbox()}
EMPTY, FILLED = 0, 1                                # numbers of disks that are kept


@define(eq=False)
class Run:
    """One load until a cut."""

    machine: Machine
    sites: Mapping[str, Site]
    ledger: Ledger
    base: Mapping[Who, State]               # users as they were before it
    stores: tuple[str, ...]                 # those that are looked at afterwards
    random: Random
    load: mail.Load = field(init=False)
    actor: Actor = field(init=False)        # of the commands
    by_hand: tuple[str, tuple[str, ...]] | None = None      # what an administrator repeats when it was cut off
    finished: threading.Event = field(factory=threading.Event)
    promises: list[tuple[str, ...]] = field(factory=list)   # commands at MAIN that must succeed afterwards

    def __attrs_post_init__(self) -> None:
        self.load = mail.Load(self.ledger)
        self.actor = self.ledger.actor("commands", {who: state for who, state in self.base.items()
                                                    if who[1] in (*OTHERS, MOVED) and who[0] in self.stores})

    def command(self, site: str, *words: str, after: Mapping[Who, State | None] | None = None, octets: bytes = b""
                ) -> None:
        """One that must succeed, and what it makes of users. Raises CutError, Failure."""
        self.actor.begin(f"onecopy {shlex.join(words)}", after or {})
        self.by_hand = site, words
        self.machine.must(self.sites[site], *words, octets=octets)
        self.actor.done()
        if self.ledger.is_open:
            self.by_hand = None

    def mail(self) -> None:
        """Begin all that mail is."""
        clients = {user: self.ledger.actor(user, {(MAIN, user): self.base[MAIN, user]}) for user in CLIENTS}
        mail.begin(self.load, self.sites[MAIN], RECEIVERS, clients, self.random)


@frozen
class Workload:
    """`steps` are commands, after which the cut comes if it has not come before; without any it comes by itself.
    `serving`: the servers that run meanwhile; `after`: those that are started after it."""

    name: str
    steps: Callable[[Run], None] | None = None
    serving: tuple[str, ...] = ()
    after: tuple[str, ...] = (MAIN,)
    disk: int = FILLED
    twice: bool = False                 # the start after the cut is cut off too


def _init(run: Run) -> None:
    run.actor.current.clear()
    run.command(MAIN, "init")
    for user in ("nina", "nora"):
        run.command(MAIN, "user", "add", "--password-stdin", user, after={(MAIN, user): NEW_USER}, octets=PASSWORD_LINE)


def _snapshots(run: Run) -> None:
    for _ in range(2):
        run.command(MAIN, "snapshot", "create")
        run.promises = [("snapshot", "verify")]


def _users(run: Run) -> None:
    for user in ("nina", "nora"):
        run.command(MAIN, "user", "add", "--password-stdin", user, after={(MAIN, user): NEW_USER}, octets=PASSWORD_LINE)
    alice = run.base[MAIN, "alice"]
    run.command(MAIN, "user", "remove", "--yes", "alice", after={(MAIN, "alice"): None})
    run.command(MAIN, "user", "remove", "--yes", "nora", after={(MAIN, "nora"): None})
    run.command(MAIN, "user", "undelete", "alice", after={(MAIN, "alice"): alice})


def _rename(run: Run) -> None:
    names = "alice", "alexandra"
    state = run.base[MAIN, "alice"]
    for old, new in (names, names[::-1]):
        run.command(MAIN, "user", "rename", old, new, after={(MAIN, old): None, (MAIN, new): state})


def _reconstruct_all(run: Run) -> None:
    """All databases of a partition are gone, and the snapshots."""
    root = run.sites[MAIN].root
    for folder in (root / "partitions" / "primary" / "index", *(root / "snapshots").glob("2*")):
        shutil.rmtree(folder)
    os.sync()
    run.command(MAIN, "reconstruct", "--all")


def _reconstruct_partition(run: Run) -> None:
    run.command(MAIN, "reconstruct", "--partition", "primary", "--force")


def _reconstruct_list(run: Run) -> None:
    run.command(MAIN, "reconstruct", "--mboxlist", "--force")


def _restore(run: Run) -> None:
    run.command(MAIN, "snapshot", "restore", "--yes")


def _user_move(run: Run) -> None:
    state = run.base[ONE, MOVED]
    for here, there in ((ONE, TWO), (TWO, ONE)):
        run.command(here, "user", "move", MOVED, "--to", run.sites[there].options["store.host"],
                    after={(here, MOVED): None, (there, MOVED): state})


def _partition(run: Run) -> None:
    run.command(MAIN, "user", "move", "alice", RECEIVERS[0], "--to", SECOND)
    run.command(MAIN, "partition", "drain", SECOND, "--to", "primary")


WORKLOADS = {each.name: each for each in (
    Workload("mail", serving=(MAIN,)),
    Workload("start", serving=(MAIN,), twice=True),
    Workload("init", _init, disk=EMPTY),
    Workload("snapshot create", _snapshots, serving=(MAIN,)),
    Workload("user add, remove", _users, serving=(MAIN,)),
    Workload("user rename", _rename, serving=(MAIN,)),
    Workload("reconstruct --all", _reconstruct_all),
    Workload("reconstruct --partition", _reconstruct_partition),
    Workload("reconstruct --mboxlist", _reconstruct_list),
    Workload("snapshot restore", _restore),
    Workload("user move", _user_move, serving=(ONE, TWO), after=(ONE, TWO)),
    Workload("partition", _partition, serving=(MAIN,)),
)}
