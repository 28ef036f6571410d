"""onecopy messages withdraw: one message out of every mailbox, and back"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import Problem, StoreError
from store.mailboxes import expunge
from store.mailboxes.deletion import undelete_messages
from store.message import envelopes
from store.store import Store
from store.tables.index import Rows
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.options import duration
from tools.cli.output import print_json, print_table, when
from tools.cli.progressbar import changing_bar
from tools.commands.messages.changemessages import on_record
from tools.commands.messages.chosenmessages import SLICE, refuse


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("messages withdraw", withdraw, "take a message out of every mailbox of the store, by its Message-ID; "
                  "--undo brings it back until the purge (store.purge_delay); exit status 1 if there is none, or a "
                  "mailbox was left out")
    made.add_argument("message_id", metavar="MESSAGE-ID", nargs="+", help="as it stands in the header; several: any of "
                                                                          "them")
    made.add_argument("--undo", action="store_true", help="bring it back where it was taken out")
    made.add_argument("--since", type=typed(duration), metavar="TIME", default=duration("1d"),
                      help="with --undo: what went so long ago at most (1d), by a user's own hand, too")
    made.add_argument("--at", type=int, metavar="TIME", help="a Unix time: messages that came later are left out")
    made.add_argument("--dry-run", action="store_true", help="only say where it is")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--json", action="store_true")


def withdraw(invocation: Invocation) -> int:
    """onecopy messages withdraw"""
    arguments, problems, rows = invocation.arguments, list[str](), list[dict[str, Any]]()
    wanted = _Wanted(frozenset(each.strip().strip("<>").encode() for each in arguments.message_id))
    with invocation.store() as store:
        places = _expunged if arguments.undo else _there
        found = list(places(store, wanted, arguments, problems))
        if found and not arguments.dry_run:
            what = "Bring {} back in {} mailboxes?" if arguments.undo else "Take {} out of {} mailboxes?"
            count = sum(len(uids) for _, uids in found)
            invocation.confirm(what.format(f"{count} messages", len(found)), final=False)
        with nullcontext() if arguments.dry_run else on_record(
                invocation, "messages withdraw", sorted({entry.name.owner for entry, _ in found})):
            for entry, uids in found:
                try:
                    done = uids.tolist() if arguments.dry_run else _change(store, entry, uids, arguments)
                except StoreError as error:
                    refuse(problems, entry, error)
                    continue
                rows.append({"user": entry.name.owner or "public/", "mailbox": entry.name.path, "uids": done})
    if arguments.json:
        print_json({"dry_run": arguments.dry_run, "undo": arguments.undo, "time": when(time.time()), "mailboxes": rows})
    elif rows:
        print_table(rows, ("user", "mailbox", "uids"))
    else:
        print("there is no such message")
    return int(bool(problems) or not rows)


def _change(store: Store, entry: MailboxEntry, uids: NDArray[np.uint32], arguments: Any) -> list[int]:
    """The UIDs that went, or those that came back."""
    if arguments.undo:
        done = undelete_messages(store, entry, since=_since(arguments), uids=uids.tolist())
    else:
        done = expunge.remove(store, entry, uids)
        store.partition_of(entry).flush()
    store.news.tell([entry.id])
    return done


def _since(arguments: Any) -> int:
    return int((arguments.at or time.time()) - arguments.since)


@define
class _Wanted:
    """Tells which records are of the messages with these Message-IDs. A message is looked at once, however many
    mailboxes of a partition have it."""

    ids: frozenset[bytes]
    _known: dict[tuple[str, int], bool] = field(factory=dict)

    def uids(self, store: Store, entry: MailboxEntry, rows: Rows) -> NDArray[np.uint32]:
        """Those of the records. Raises StoreError CORRUPT."""
        keys = [(entry.partition, serial) for serial in rows["serial"].tolist()]
        new = np.array([at for at, key in enumerate(keys) if key not in self._known], np.intp)
        for begin in range(0, len(new), SLICE):
            some = new[begin:begin + SLICE]
            for at, cached in zip(some.tolist(), store.cached(entry, rows[some]), strict=True):
                found = envelopes.string(envelopes.split(cached.envelope)[envelopes.MESSAGE_ID]) or b""
                self._known[keys[at]] = found.strip().strip(b"<>") in self.ids
        return np.asarray(rows["uid"][np.array([self._known[key] for key in keys], np.bool_)])


def _there(store: Store, wanted: _Wanted, arguments: Any, problems: list[str]
           ) -> Iterator[tuple[MailboxEntry, NDArray[np.uint32]]]:
    """The mailboxes that have it, and its UIDs there."""
    entries = sorted(store.mailboxes.all(), key=lambda entry: entry.name)
    with changing_bar() as tell:
        for done, entry in enumerate(entries):
            tell(str(entry.name), done, len(entries))
            try:
                rows = store.open_mailbox(entry).rows
                uids = wanted.uids(store, entry, rows[rows["saved"] <= arguments.at] if arguments.at else rows)
            except StoreError as error:
                if error.problem is not Problem.NO_MAILBOX:         # it was deleted just now
                    refuse(problems, entry, error)
                continue
            if len(uids):
                yield entry, uids


def _expunged(store: Store, wanted: _Wanted, arguments: Any, problems: list[str]
              ) -> Iterator[tuple[MailboxEntry, NDArray[np.uint32]]]:
    """The mailboxes that had it, and the UIDs it had."""
    since = _since(arguments)
    for partition in store.partitions.values():
        by_mailbox: dict[MailboxId, list[NDArray[np.uint32]]] = {}
        for item in partition.removed.all():
            entry = store.mailboxes.find_id(item.mailbox)
            if entry is None or item.when < since:
                continue
            try:
                by_mailbox.setdefault(item.mailbox, []).append(wanted.uids(store, entry, item.rows))
            except StoreError as error:
                refuse(problems, entry, error)
        for mailbox, uids in by_mailbox.items():
            entry = store.mailboxes.find_id(mailbox)
            if entry is not None and any(map(len, uids)):
                yield entry, np.concatenate(uids)
