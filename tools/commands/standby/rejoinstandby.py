"""onecopy standby rejoin"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from mboxlist.setaside import ASIDE
from store import values
from store.errors import Problem, StoreError
from store.partition import processes
from store.partitions import volumes
from store.rejoin import returning, sendinghome, sendingpartition
from store.rejoin.sendinghome import HomePeer, Promoted, SendingHome
from store.rejoin.stranded import Stranded
from store.snapshots.taking import NAME
from store.standby import promotion, seeding, standbyprocess, standbystate, succession
from store.standby.reading import readingcopies
from store.standby.sourcepeer import SourcePeer
from store.standby.standbystate import RECOVERED, RETURNING, StandbyState
from store.standby.succession import Lineage
from store.store import Store
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json, print_table, printable
from tools.cli.progressbar import changing_bar
from tools.cli.storeaccess import opened
from tools.commands.standby.sourceconnection import connect, read_address, written

LIST = "done-here.txt"      # what is not done again, in the folder of what is set aside


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("standby rejoin", rejoin, "bring the mail that only this machine has to the one that was promoted in "
                                            "its place, and become the standby of that one; what was cut off goes on")
    made.add_argument("--from", dest="source", metavar="HOST:PORT", required=True, type=typed(read_address),
                      help="the machine that was promoted, and its exchange.port; HOST=ADDRESS:PORT where the name "
                           "leads elsewhere")
    made.add_argument("--rate", type=typed(values.size), default=0, metavar="SIZE",
                      help="octets a second that come, at most; default: as fast as they can")
    made.add_argument("--dry-run", action="store_true", help="only say what would be brought, and what would not")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--json", action="store_true")


def rejoin(invocation: Invocation) -> int:
    """onecopy standby rejoin"""
    arguments, root = invocation.arguments, invocation.config.root
    found: dict[str, Any] = {}
    with _alone(root), contextlib.closing(connect(invocation, arguments.source, arguments.rate)) as source:
        state = returning.going_on(root, written(arguments.source))
        if state is None:
            returns = Return(invocation, source)
            standby = standbystate.read(root)
            found = returns.prepare() if standby is None else returns.leave(standby)
            if arguments.dry_run:
                _show(invocation, found)
                return 0
            state = returns.follow()
        elif arguments.dry_run:
            raise StoreError(Problem.STORE_IN_USE, f"All was brought to {state.host}; the copy of it goes on without "
                                                   "--dry-run")
        if state.phase == RETURNING:
            with changing_bar(octets=True) as progress:
                state = seeding.seed(root, state, source, progress)
            returning.ended(root)
    _show(invocation, found)
    if not arguments.json:
        print(f"{root} is a standby of {state.host}; onecopy standby follow has it follow")
    return 0


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """No server serves the store, and nobody else copies into it. Raises StoreError STORE_IN_USE."""
    privatefiles.make_folder(root / "run", exist_ok=True)
    handle = processes.claim(root / "run" / "server.pid")
    try:
        with standbyprocess.alone(root):
            yield
    finally:
        os.close(handle)


@define(eq=False)
class Return:
    """The way of a store until it is a standby."""

    invocation: Invocation
    source: SourcePeer
    identity: str = ""
    lineage: Lineage = Lineage()
    aside: Path = Path()
    _is_asked: bool = field(default=False, init=False)
    _gone_over: StandbyState | None = field(default=None, init=False)

    def prepare(self) -> dict[str, Any]:
        """Find out what only this store has; and, unless only that is asked for, bring it. What is said of it."""
        root, peer = self.invocation.config.root, HomePeer(self.source.peer)
        self.aside = root / ASIDE / time.strftime(NAME, time.gmtime())
        with opened(self.invocation.config, self.invocation.arguments.program) as store:
            ours = succession.read(root).lineage
            promoted = peer.promoted(ours)
            self.lineage, self.identity = promoted.lineage, promoted.identity
            if self.identity != store.mailboxes.identity:
                raise StoreError(Problem.UNAVAILABLE, f"{peer.peer.host} has another store")
            if not self.lineage.contests(ours) and self.lineage.number <= ours.number:
                raise StoreError(Problem.UNAVAILABLE, f"{peer.peer.host} has not taken the place of this machine")
            found, said = _look(store, peer, promoted, ours)
            return said if self.invocation.arguments.dry_run else {**said, **self._bring(store, peer, found, said)}

    def leave(self, standby: StandbyState) -> dict[str, Any]:
        """Likewise where this is a standby, which may have more than the one that was promoted. One that has no more
        goes over to it at once."""
        root, peer = self.invocation.config.root, HomePeer(self.source.peer)
        other, promoted, dry_run = peer.other(), peer.promoted(standby.lineage), self.invocation.arguments.dry_run
        if promoted.identity != standby.identity:
            raise StoreError(Problem.UNAVAILABLE, f"{peer.peer.host} has another store")
        if not returning.has_more(root, standby, self.source, other):
            if dry_run:
                return _said(Stranded())
            self._gone_over = seeding.go_over(root, self.source, written(self.invocation.arguments.source))
            return {**_said(Stranded()), "brought": 0, "there": 0, "kept": 0, "aside": "", "refused": []}
        if standby.phase != RECOVERED:          # else that was begun, or a promotion
            with returning.copied(root) as place, opened(self.invocation.config.at(place),
                                                         self.invocation.arguments.program) as store:
                _, said = _look(store, peer, promoted, standby.lineage)
                if dry_run:
                    return said
                self._ask(said)
        elif dry_run:
            raise StoreError(Problem.STORE_IN_USE, "It was begun, or a promotion was: go on without --dry-run")
        readingcopies.end(root)
        promotion.give_way(root, peer.peer.host, other)
        return self.prepare()

    def _ask(self, said: dict[str, Any]) -> None:
        if not self._is_asked:
            if not self.invocation.arguments.json:
                _print(said)
            whole = "".join(f"partition {each['partition']}, " for each in said["partitions"])
            self.invocation.confirm(f"Bring {whole}{said['messages']} messages to {self.source.peer.host}, and make "
                                    "this its standby?")
        self._is_asked = True

    def _bring(self, store: Store, peer: HomePeer, found: Stranded, said: dict[str, Any]) -> dict[str, Any]:
        self._ask(said)
        peer.passed(store)
        names = [each["partition"] for each in said["partitions"]]
        with changing_bar(octets=True) as progress, store.alone() if names else contextlib.nullcontext():
            for name in names:
                sendingpartition.send(store, peer, name, self.invocation.arguments.rate, progress)
        with changing_bar() as progress:
            home = SendingHome(store, peer, progress)
            home.bring(found.mail)
        kept = sendinghome.keep(store, home.refused, self.aside)
        if found.done:
            privatefiles.make_folder(self.aside, parents=True, exist_ok=True)
            replace_file(self.aside / LIST, "".join(f"{each}\n" for each in found.done).encode())
        return {"brought": home.brought, "there": home.there, "kept": kept,
                "aside": str(self.aside) if kept or found.done else "",
                "refused": [f"{each.mail.view.entry.name}: {each.why}" for each in home.refused]}

    def follow(self) -> StandbyState:
        """All has been brought: it is a standby from here on."""
        return self._gone_over or returning.follow(self.invocation.config.root, self.identity, self.source,
                                written(self.invocation.arguments.source), self.lineage, self.aside)


def _look(store: Store, peer: HomePeer, promoted: Promoted, ours: Lineage) -> tuple[Stranded, dict[str, Any]]:
    """What only this store has: mail, and what is said of it and of whole partitions."""
    names = promoted.absent.keys() & store.partitions.keys()
    without = sendingpartition.come_with_it(store, peer, {*names, *promoted.home})
    found = sendinghome.find(store, peer, promoted, ours, without)
    return found, {**_said(found), "partitions": [attrs.asdict(volumes.figures(store.partitions[name]))
                                                  for name in sorted(names)]}


def _said(found: Stranded) -> dict[str, Any]:
    return {"partitions": [], "messages": found.messages, "octets": found.octets,
            "done": [str(each) for each in found.done], "mail": [
        {"mailbox": str(each.view.entry.name), "uid": int(row["uid"]), "size": int(row["size"]),
         "digest": row["digest"].tobytes().hex()} for each in found.mail for row in each.rows]}


def _print(said: dict[str, Any]) -> None:
    if said["partitions"]:
        print("Partitions that are only here, and to be brought whole:")
        print_table(said["partitions"], ("partition", "mailboxes", "messages", "octets"), ("octets",))
    if said["mail"]:
        print("Only here, and to be brought:")
        print_table(said["mail"], ("mailbox", "uid", "size", "digest"), ("size",))
    if said["done"]:
        print("Done only here, and not to be done again there:")
        print("".join(f"  {printable(each)}\n" for each in said["done"]), end="")
    if not said["mail"] and not said["done"] and not said["partitions"]:
        print("Nothing is only here.")


def _show(invocation: Invocation, said: dict[str, Any]) -> None:
    if invocation.arguments.json:
        print_json(said)
    elif "brought" not in said:
        if said:
            _print(said)
    else:
        print(f"{said['brought']} messages were brought, {said['there']} were there already")
        for each in said["refused"]:
            print(f"not taken: {printable(each)}")
        if said["aside"]:
            print(f"What else was only here is listed, or kept, in {said['aside']}")
