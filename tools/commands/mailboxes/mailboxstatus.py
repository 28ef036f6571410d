"""onecopy mailbox status: the figures that STATUS tells (RFC 9051 §6.3.11), of mailboxes of many users"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mboxlist.entry import MailboxEntry
from mboxlist.names import PUBLIC
from mboxlist.patterns import compile_patterns
from store.errors import Problem, StoreError
from store.store import Store
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, print_long_json, print_long_table, print_table
from tools.cli.progressbar import changing_bar
from tools.commands.messages.chosenmessages import add_owners, entries, refuse
from tools.exits import Failure

_SUMMED = ("messages", "recent", "unseen", "deleted", "octets")
_COLUMNS = ("user", "mailbox", *_SUMMED, "uidnext", "uidvalidity", "highestmodseq")


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("mailbox status", status, "show the figures of mailboxes of any users, as STATUS tells them; exit "
                                            "status 1 if there is no such mailbox, or one could not be read")
    add_owners(made, "mailboxes")
    made.add_argument("patterns", metavar="PATTERN", nargs="*",
                      help="only mailboxes of these names, with the wildcards * and %% of LIST")
    made.add_argument("--total", action="store_true", help="only the sum of all, and how many mailboxes there are")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def status(invocation: Invocation) -> int:
    """onecopy mailbox status"""
    arguments, problems, found = invocation.arguments, list[str](), Counter[str]()
    with invocation.store() as store:
        rows = _figures(store, arguments, problems, found)
        if arguments.total:
            for _ in rows:
                pass
            _print_total(found, as_json=arguments.json)
        elif arguments.json:
            print_long_json(rows)
        else:
            print_long_table(rows, _COLUMNS)
    if not found["mailboxes"] and not problems:
        raise Failure("there is no such mailbox: onecopy mailbox list shows what there is", 1)
    return int(bool(problems))


def _figures(store: Store, arguments: Any, problems: list[str], found: Counter[str]) -> Iterator[dict[str, Any]]:
    """A row for each mailbox, which are added up in `found`. What cannot be read is told, and in `problems`."""
    try:
        is_meant = compile_patterns(arguments.patterns or ["*"])
    except ValueError as error:
        raise Failure(f"{' '.join(arguments.patterns)}: {error}") from None
    wanted = [entry for entry in entries(store, arguments) if is_meant(entry.name.path)]
    with changing_bar() as tell:
        for done, entry in enumerate(wanted):
            tell(str(entry.name), done, len(wanted))
            try:
                row = _row(store, entry)
            except StoreError as error:
                if error.problem is not Problem.NO_MAILBOX:         # it was deleted just now
                    refuse(problems, entry, error)
                continue
            found.update({"mailboxes": 1, **{name: row[name] for name in _SUMMED}})
            yield row


def _row(store: Store, entry: MailboxEntry) -> dict[str, Any]:
    r"""Of an own mailbox, where no records need to be read unless some are \Recent. Raises StoreError."""
    state = store.status(entry)
    recent = 0 if state.recent >= state.uidnext else int((store.open_mailbox(entry).rows["uid"] >= state.recent).sum())
    return {"user": entry.name.owner or PUBLIC, "mailbox": entry.name.path, "messages": state.messages,
            "recent": recent, "unseen": state.unseen, "deleted": state.deleted, "octets": state.octets,
            "uidnext": state.uidnext, "uidvalidity": state.uidvalidity, "highestmodseq": state.highestmodseq}


def _print_total(found: Counter[str], *, as_json: bool) -> None:
    total = {name: found[name] for name in ("mailboxes", *_SUMMED)}
    if as_json:
        print_json(total)
    else:
        print_table([total], tuple(total))
