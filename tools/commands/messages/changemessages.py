"""onecopy messages flag, messages copy, messages move, messages expunge, messages deduplicate"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs

from mboxlist.entry import MailboxEntry
from store.errors import StoreError
from store.mailboxes import crosspartition, expunge, flagchanges, namespace
from store.mailboxes.copymessages import PartlyMoved
from store.store import Store
from store.values import FlagAction, Flags
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import flags_of, mailbox_name, owner
from tools.cli.output import print_json, print_table
from tools.commands.messages.chosenmessages import Chosen, add_choice, chosen, contents, message_ids, refuse, repeated
from tools.exits import Failure

Narrow = Callable[[Store, Chosen], Chosen | None]        # some of those that were chosen, or none
Work = Callable[[Store, Chosen], int]       # how many messages it was done to


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("messages flag", flag, "set and take away flags of messages, as STORE does; exit status 1 if a "
                                         "mailbox was left out")
    _add_change(made)
    made.add_argument("--add", action="append", default=[], metavar="FLAG", help="set this flag: seen, answered, "
                      "flagged, deleted, draft, or a keyword such as $Junk; can be repeated")
    made.add_argument("--remove", action="append", default=[], metavar="FLAG",
                      help="take this flag away; can be repeated")
    for name, what in (("copy", "copy messages into a mailbox"), ("move", "move messages into a mailbox")):
        made = parser(f"messages {name}", copy if name == "copy" else move,
                      f"{what} of each user's own, or of one user; exit status 1 if a mailbox was left out")
        _add_change(made)
        made.add_argument("--to", required=True, metavar="MAILBOX", help="as its owner's client writes it")
        made.add_argument("--to-user", metavar="USER",
                          help="whose mailbox that is; default: that of the messages' owner")
        made.add_argument("--create", action="store_true", help="make it where it is not there")
    made = parser("messages expunge", remove, "remove messages, flagged \\Deleted or not; undelete brings them back "
                  "until the purge (store.purge_delay); exit status 1 if a mailbox was left out")
    _add_change(made)
    made.add_argument("--yes", action="store_true", help="do not ask")
    made = parser("messages deduplicate", deduplicate, "of messages that are several times in one mailbox remove all "
                  "but the first; undelete brings them back until the purge (store.purge_delay); exit status 1 if a "
                  "mailbox was left out")
    _add_change(made)
    made.add_argument("--by", choices=("content", "message-id"), default="content", help="which are the same: those "
                      "with the same octets, but for what relays have put in front (content), or with the same "
                      "Message-ID")
    made.add_argument("--yes", action="store_true", help="do not ask")


def _add_change(made: argparse.ArgumentParser) -> None:
    add_choice(made, least="+")
    made.add_argument("--dry-run", action="store_true", help="only say how many messages it would be")
    made.add_argument("--json", action="store_true")


def flag(invocation: Invocation) -> int:
    """onecopy messages flag"""
    arguments = invocation.arguments
    add, take = flags_of(arguments.add), flags_of(arguments.remove)
    if not (arguments.add or arguments.remove):
        raise Failure("which flags? Give --add or --remove")

    def work(store: Store, found: Chosen) -> int:
        gone, reader = 0, found.entry.name.owner
        for action, flags in ((FlagAction.ADD, add), (FlagAction.REMOVE, take)):
            if flags != Flags():
                gone = len(flagchanges.change_flags(store, found.entry, found.uids, action, flags, reader))
        store.partition_of(found.entry).flush()
        return len(found.rows) - gone

    return _change(invocation, "messages flag", work)


def copy(invocation: Invocation) -> int:
    """onecopy messages copy"""
    return _to_mailbox(invocation, "messages copy", away=False)


def move(invocation: Invocation) -> int:
    """onecopy messages move"""
    return _to_mailbox(invocation, "messages move", away=True)


def _to_mailbox(invocation: Invocation, kind: str, *, away: bool) -> int:
    arguments = invocation.arguments

    def work(store: Store, found: Chosen) -> int:
        whose = found.entry.name.owner if arguments.to_user is None else owner(store, arguments.to_user)
        target = _target(store, whose, arguments)
        if target.id == found.entry.id:
            return 0
        try:
            new = crosspartition.copy(store, found.entry, target, found.uids, remove=away,
                                      reader=found.entry.name.owner)
        finally:
            for entry in (target, found.entry):
                store.partition_of(entry).flush()
            store.news.tell([target.id, found.entry.id])
        return len(new)

    return _change(invocation, kind, work, again=away)      # a copy that is made twice is there twice


def _target(store: Store, whose: str, arguments: Any) -> MailboxEntry:
    name = mailbox_name(whose, arguments.to)
    found = store.mailboxes.find(name)
    if found is None and arguments.create:
        found = namespace.create_mailbox(store, name)
    return found or store.entry(name)


def remove(invocation: Invocation) -> int:
    """onecopy messages expunge"""
    return _change(invocation, "messages expunge", _expunge, ask=True)


def deduplicate(invocation: Invocation) -> int:
    """onecopy messages deduplicate"""
    of = message_ids if invocation.arguments.by == "message-id" else contents
    return _change(invocation, "messages deduplicate", _expunge, ask=True, narrow=lambda store, found: repeated(
        found, of(store, found)))


def _expunge(store: Store, found: Chosen) -> int:
    gone = expunge.remove(store, found.entry, found.uids)
    store.partition_of(found.entry).flush()
    return len(gone)


def on_record(invocation: Invocation, kind: str, owners: list[str]) -> AbstractContextManager[object]:
    """`Invocation.repeatable`, for the messages that there are now; nobody is asked a second time."""
    words = (*invocation.words, *([] if invocation.arguments.at else ["--at", str(int(time.time()))]),
             *(["--yes"] if getattr(invocation.arguments, "yes", True) is False else []))
    return attrs.evolve(invocation, words=words).repeatable(kind, owners, waits=False)


def _meant(store: Store, every: Iterable[Chosen], narrow: Narrow, problems: list[str]) -> Iterator[Chosen]:
    for each in every:
        try:
            meant = narrow(store, each)
        except StoreError as error:
            refuse(problems, each.entry, error)
            continue
        if meant is not None:
            yield meant


def _change(invocation: Invocation, kind: str, work: Work, *, ask: bool = False, again: bool = True,
            narrow: Narrow = lambda store, found: found) -> int:
    """Carry it out in each mailbox; what is refused in one stops no other. `again`: if it is cut off it is done to what
    is left. `narrow`: which of the chosen messages are meant."""
    arguments, problems, rows = invocation.arguments, list[str](), list[dict[str, Any]]()
    with invocation.store() as store:
        found = list(_meant(store, chosen(store, arguments, problems), narrow, problems))
        if ask and found and not arguments.dry_run:
            count = sum(len(each.rows) for each in found)
            invocation.confirm(f"Remove {count} messages in {len(found)} mailboxes?", final=False)
        owners = sorted({each.entry.name.owner for each in found})
        with nullcontext() if arguments.dry_run or not again else on_record(invocation, kind, owners):
            for each in found:
                try:
                    done = len(each.rows) if arguments.dry_run else work(store, each)
                except StoreError as error:
                    refuse(problems, each.entry, error)
                    if not isinstance(error, PartlyMoved):
                        continue
                    done = len(error.new)
                store.news.tell([each.entry.id])
                name = each.entry.name
                rows.append({"user": name.owner or "public/", "mailbox": name.path, "messages": done})
    if arguments.json:
        print_json({"dry_run": arguments.dry_run, "mailboxes": rows})
    elif rows:
        print_table(rows, ("user", "mailbox", "messages"))
    return int(bool(problems))
