"""onecopy outbox"""

from collections.abc import Callable, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from store.events.outboxtable import DEAD, LATER, STATES, WAITING, OutboxTable, Parcel
from store.store import Store
from tools.cli.controlclient import ask_all, is_up
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json, print_table, when
from tools.exits import Failure, did_you_mean
from tools.outbox.sendall import of_config, outboxes

UNSENT = (WAITING, LATER)
MOST = 1_000_000            # that are counted
AT_A_TIME = 200             # rows of an environment that are in memory, and that one transaction changes
SHOWN, MOST_SHOWN = 20, 1000        # events of a receiver that are shown: by default, and at most


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("outbox list", list_receivers, "list the receivers of events: what waits for each, what it has "
                                                 "refused, and whether it is down; exit status 1 if one is")
    made.add_argument("--json", action="store_true")
    made = parser("outbox show", show, "show the first events that wait for a receiver, or its dead letters")
    made.add_argument("receiver", metavar="RECEIVER", help="its name in the configuration, outbox.NAME")
    made.add_argument("--dead", action="store_true", help="dead letters")
    made.add_argument("--most", type=typed(_count), default=SHOWN, metavar="N", help=f"so many ({SHOWN}), up to "
                      f"{MOST_SHOWN}")
    made.add_argument("--json", action="store_true")
    made = parser("outbox retry", retry, "send dead letters of a receiver again, behind all that waits for it")
    _which(made)
    made = parser("outbox discard", discard, "forget dead letters of a receiver, or with --waiting all that waits for "
                                             "it: it never gets them")
    _which(made)
    made.add_argument("--waiting", action="store_true", help="also what has not been sent yet")
    made.add_argument("--unreadable", action="store_true", help="only rows that cannot be read, waiting or dead: the "
                      "receiver is told that events are missing")
    made.add_argument("--yes", action="store_true", help="do not ask")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= MOST_SHOWN or len(text) > 9:
        raise ValueError(f"not a number from 1 to {MOST_SHOWN}")
    return int(text)


def _which(made: Any) -> None:
    made.add_argument("receiver", metavar="RECEIVER", help="its name in the configuration, outbox.NAME")
    made.add_argument("--id", metavar="ID", help="this one alone, by the id that outbox show has")
    made.add_argument("--dry-run", action="store_true", help="only say how many")
    made.add_argument("--json", action="store_true")


def list_receivers(invocation: Invocation) -> int:
    """onecopy outbox list"""
    configured = of_config(invocation.config)
    asked = ask_all(invocation.config.root, "outbox") if is_up(invocation.config.root) else {}
    running = {each["receiver"]: each for answers in asked.values() for each in answers}
    rows = []
    with invocation.store() as store:
        tables = [outbox for _, outbox in outboxes(store).values()]
        for name in _receivers(invocation, store):
            how = running.get(name, {})
            state = "not configured" if name not in configured else how.get("state", "no server runs")
            rows.append({
                "receiver": name, "to": configured[name].kind if name in configured else "",
                "state": "full" if how.get("full") else state,
                "waiting": sum(outbox.counted(name, MOST, state) for outbox in tables for state in UNSENT),
                "dead": sum(outbox.counted(name, MOST, DEAD) for outbox in tables),
                "next_try": how.get("next_try", 0), "said": how.get("said", "")})
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table([{**row, "next_try": when(row["next_try"]) if row["next_try"] else ""} for row in rows],
                    ("receiver", "to", "state", "waiting", "dead", "next_try", "said"))
    return int(any(row["state"] in ("down", "full") for row in rows))


def show(invocation: Invocation) -> int:
    """onecopy outbox show"""
    arguments = invocation.arguments
    with invocation.store() as store:
        _require_receiver(invocation, store)
        rows = [outbox.each(arguments.receiver, state, AT_A_TIME) for _, outbox in outboxes(store).values()
                for state in ([DEAD] if arguments.dead else UNSENT)]
        found = list(islice(merge(*rows, key=lambda parcel: parcel.order), arguments.most))
    if arguments.json:
        print_json([{"id": each.id, "at": each.at, "kind": each.kind, "tries": each.tries, "said": each.said,
                     "body": each.body} for each in found])
    else:
        print_table([{"id": each.id, "at": when(each.at), "event": each.body.get("event", each.kind),
                      "mailbox": each.body.get("mailboxID", ""), "said": each.said} for each in found],
                    ("id", "at", "event", "mailbox", "said"))
    return 0


def _receivers(invocation: Invocation, store: Store) -> list[str]:
    """Those that are configured, and those for whom something is left."""
    return sorted({*of_config(invocation.config),
                   *(name for _, outbox in outboxes(store).values() for name in outbox.receivers())})


def _require_receiver(invocation: Invocation, store: Store) -> None:
    """Raises Failure when there is none of that name."""
    name, known = invocation.arguments.receiver, _receivers(invocation, store)
    if name not in known:
        raise Failure(f"there is no receiver {name}{did_you_mean(name, known)} (onecopy outbox list shows them)")


def retry(invocation: Invocation) -> int:
    """onecopy outbox retry"""
    return _change(invocation, "sent again", [DEAD], OutboxTable.revive)


def discard(invocation: Invocation) -> int:
    """onecopy outbox discard"""
    if not invocation.arguments.dry_run:
        with invocation.store() as store:
            _require_receiver(invocation, store)        # nobody is asked about what is not there
        invocation.confirm(f"Forget what {invocation.arguments.receiver} has not got?")
    if invocation.arguments.unreadable:
        return _change(invocation, "discarded", STATES, OutboxTable.mend, lambda parcel: not parcel.readable)
    states = STATES if invocation.arguments.waiting else [DEAD]
    return _change(invocation, "discarded", states, lambda outbox, parcel, txn: bool(outbox.remove([parcel], txn)))


def _change(invocation: Invocation, done: str, states: Sequence[bytes],
            work: Callable[[OutboxTable, Parcel, Txn], bool],
            which: Callable[[Parcel], bool] = lambda parcel: True) -> int:
    """Do that to each of the rows that were asked for, some in a transaction. Raises Failure when there is none of that
    id."""
    arguments, count, found = invocation.arguments, 0, False
    with invocation.store() as store:
        _require_receiver(invocation, store)
        for env, outbox in outboxes(store).values():
            for state in states:
                rows = (parcel for parcel in outbox.each(arguments.receiver, state, AT_A_TIME)
                        if arguments.id in (None, parcel.id) and which(parcel))
                while some := list(islice(rows, AT_A_TIME)):
                    found = True
                    count += len(some) if arguments.dry_run else transact(
                        env, partial(_change_some, outbox, some, work))
            env.flush()
        if arguments.id is not None and not found:
            raise Failure(f"nothing of {arguments.receiver} has the id {arguments.id}")
    if arguments.json:
        print_json({"receiver": arguments.receiver, "dry_run": arguments.dry_run, done.replace(" ", "_"): count})
    else:
        print(f"{count} {'would be ' if arguments.dry_run else ''}{done}")
    return 0


def _change_some(outbox: OutboxTable, parcels: list[Parcel], work: Callable[[OutboxTable, Parcel, Txn], bool], txn: Txn
                 ) -> int:
    return sum(work(outbox, parcel, txn) for parcel in parcels)
