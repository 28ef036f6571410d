"""onecopy messages search, messages fetch"""

import base64
import itertools
import sys
from typing import Any

from store.errors import StoreError
from store.message.headers import header_end
from store.store import Store
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, print_table
from tools.commands.messages.chosenmessages import Chosen, add_choice, chosen, refuse, shown
from tools.exits import Failure

MOST = 10_000               # messages that are listed unless more are asked for
READ_OCTETS = LONGEST_HEADER = 1 << 20
_COLUMNS = ("user", "mailbox", "uid", "received", "size", "from", "subject")


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("messages search", search, "list the messages of users that search keys of IMAP find; exit status 1 "
                                             "if a mailbox could not be read")
    add_choice(made)
    made.add_argument("--count", action="store_true", help="only how many there are in each mailbox, and their octets")
    made.add_argument("--limit", type=int, default=MOST, metavar="N", help="how many are listed at most; 0: all")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("messages fetch", fetch, "print a message, octet for octet; exit status 1 if there is none")
    add_choice(made, least="+")
    made.add_argument("--header", action="store_true", help="only its header")
    made.add_argument("--json", action="store_true")


def search(invocation: Invocation) -> int:
    """onecopy messages search"""
    arguments, problems = invocation.arguments, list[str]()
    with invocation.store() as store:
        if arguments.count:
            rows, more = [_counted(found) for found in chosen(store, arguments, problems)], False
        else:
            each = (row for found in chosen(store, arguments, problems) for row in _readable(store, found, problems))
            rows = list(itertools.islice(each, arguments.limit or None))
            more = arguments.limit and next(each, None) is not None
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table(rows, ("user", "mailbox", "messages", "octets") if arguments.count else _COLUMNS)
    if more:
        print(f"onecopy: there are more than {arguments.limit}: --limit has them listed", file=sys.stderr)
    return int(bool(problems))


def _counted(found: Chosen) -> dict[str, Any]:
    name = found.entry.name
    return {"user": name.owner or "public/", "mailbox": name.path, "messages": len(found.rows),
            "octets": int(found.rows["size"].sum())}


def _readable(store: Store, found: Chosen, problems: list[str]) -> Any:
    try:
        yield from shown(store, found)
    except StoreError as error:
        refuse(problems, found.entry, error)


def fetch(invocation: Invocation) -> int:
    """onecopy messages fetch"""
    arguments, problems = invocation.arguments, list[str]()
    with invocation.store() as store:
        found = list(itertools.islice(chosen(store, arguments, problems), 2))
        if not found:
            raise Failure("there is no such message", 1)
        if len(found) > 1 or len(found[0].rows) > 1:
            raise Failure("there are several such messages: messages search lists them; name one by mailbox and uid, "
                          "or take them all by onecopy export")
        with store.open_message(found[0].entry, found[0].rows[0]) as file:
            length = header_end(file.read(0, LONGEST_HEADER)) if arguments.header else None
            length = file.size if length is None else length
            pieces = (file.read(at, min(READ_OCTETS, length - at)) for at in range(0, length, READ_OCTETS))
            if arguments.json:
                facts, = shown(store, found[0])
                print_json({**facts, "base64": base64.b64encode(b"".join(pieces)).decode()})
                return 0
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    return 0
