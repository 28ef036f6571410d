"""onecopy messages withdraw: one message out of every mailbox, and back"""

import time
from contextlib import nullcontext
from typing import Any

from mboxlist.entry import MailboxEntry
from store.errors import StoreError
from store.mailboxes import expunge
from store.mailboxes.deletion import undelete_messages
from store.search.messageids import ByMessageId
from store.store import Store
from store.values import duration
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json, print_table, when
from tools.cli.progressbar import changing_bar
from tools.commands.messages.changemessages import on_record
from tools.commands.messages.chosenmessages import refuse


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
    wanted = ByMessageId(frozenset(each.strip().strip("<>").encode() for each in arguments.message_id),
                         lambda entry, error: refuse(problems, entry, error))
    with invocation.store() as store:
        with changing_bar() as tell:
            found = list(wanted.expunged(store, _since(arguments)) if arguments.undo else
                         wanted.everywhere(store, arguments.at, tell))
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


def _change(store: Store, entry: MailboxEntry, uids: Any, arguments: Any) -> list[int]:
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
