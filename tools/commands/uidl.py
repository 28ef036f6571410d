"""onecopy uidl import|list: unique-ids of POP3, so that clients know messages again that came from another server"""

import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable
from pathlib import Path

import pop3.settings
from pop3 import uniqueids
from store.mailboxes.giveuidls import give
from store.store import Store
from store.tables.index import Rows
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import mailbox
from tools.cli.options import Config
from tools.cli.output import print_json, print_table
from tools.exits import Failure

LINE = 200                  # octets of a line, far more than a number, a unique-id and a size have

Wanted = dict[int, tuple[bytes, int | None]]        # by number or UID: unique-id, and the size if it is known


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("uidl import", import_list, "give a user's messages in INBOX the unique-ids that they had at another "
                                              "POP3 server")
    made.add_argument("user", metavar="USER")
    made.add_argument("file", metavar="FILE", type=_file, help="lines with UID and unique-id; - for standard input")
    made.add_argument("--numbers", action="store_true", help="the lines have message numbers instead of UIDs, as the "
                      "other server's answer to UIDL has them: INBOX has the same messages in the same order")
    made.add_argument("--json", action="store_true")
    made = parser("uidl list", show, "show the unique-ids of the messages in a user's INBOX")
    made.add_argument("user", metavar="USER")
    made.add_argument("--json", action="store_true")


def _file(text: str) -> Path | None:
    if not text:
        raise ArgumentTypeError("which file?")
    return None if text == "-" else Path(text)


def import_list(invocation: Invocation) -> int:
    """onecopy uidl import"""
    arguments = invocation.arguments
    wanted = _read(arguments.file)
    with invocation.store() as store:
        entry = mailbox(store, arguments.user, "INBOX")
        rows = store.open_mailbox(entry).rows
        by_uid = _by_uid(wanted, rows, numbers=arguments.numbers)
        missing = give(store, entry, by_uid)
        store.partition_of(entry).flush()
        store.news.tell([entry.id])
    done = len(by_uid) - len(missing)
    if arguments.json:
        print_json({"imported": done, "missing": missing})
    else:
        print(f"{done} messages have the unique-ids of the list"
              + (f"; {len(missing)} UIDs are not there: {', '.join(map(str, missing[:10]))}"
                 + (", ..." if len(missing) > 10 else "") if missing else ""))
    return 1 if missing else 0


def _read(file: Path | None) -> Wanted:
    try:
        if file is None:
            return _parsed(sys.stdin.buffer)
        with file.open("rb") as lines:
            return _parsed(lines)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None


def _parsed(lines: Iterable[bytes]) -> Wanted:
    """What the lines say; those that are empty, a dot, or begin with # or + are passed over. Raises Failure."""
    wanted: Wanted = {}
    for at, line in enumerate(lines, 1):
        words = line[:LINE].split()
        if not words or words == [b"."] or words[0][:1] in (b"#", b"+"):
            continue
        if len(line) > LINE or len(words) > 3 or len(words) < 2 or not words[0].isdigit() or len(words[0]) > 10 \
                or not uniqueids.is_legal(words[1]) or len(words) > 2 and not words[2].isdigit():
            raise Failure(f"line {at}: not a number, a unique-id and perhaps a size")
        number = int(words[0])
        if number in wanted:
            raise Failure(f"line {at}: {number} comes twice")
        wanted[number] = words[1], int(words[2]) if len(words) > 2 else None
    return wanted


def _by_uid(wanted: Wanted, rows: Rows, *, numbers: bool) -> dict[int, bytes]:
    """The unique-ids by UID. Raises Failure where the messages are not those that the list speaks of."""
    if numbers and (beyond := [number for number in wanted if not 1 <= number <= len(rows)]):
        raise Failure(f"there is no message {beyond[0]}: INBOX has {len(rows)}, and must have the same messages in the "
                      f"same order", 1)
    sizes = dict(zip(rows["uid"].tolist(), rows["size"].tolist(), strict=True))
    uids = {number: int(rows["uid"][number - 1]) if numbers else number for number in wanted}
    for number, (_, size) in wanted.items():
        found = sizes.get(uids[number])
        if size is not None and found is not None and found != size:
            raise Failure(f"message {number} has {found} octets, not {size}: it is another one; nothing was changed", 1)
    if any(uid < 1 or uid >> 32 for uid in uids.values()):
        raise Failure("a UID is between 1 and 4294967295")
    return {uids[number]: unique for number, (unique, _) in wanted.items()}


def show(invocation: Invocation) -> int:
    """onecopy uidl list"""
    with invocation.store() as store:
        found = _listed(store, invocation.config, invocation.arguments.user)
    if invocation.arguments.json:
        print_json(found)
    else:
        print_table(found, ("uid", "uidl", "octets", "imported"))
    return 0


def _listed(store: Store, config: Config, user: str) -> list[dict[str, object]]:
    view = store.open_mailbox(mailbox(store, user, "INBOX"))
    own = store.uidls(view.entry)
    settings = config.settings("pop3", pop3.settings.Settings)
    names = uniqueids.UniqueIds(uniqueids.parse(settings.uidl_format), view.state.uidvalidity, own)
    return [{"uid": uid, "uidl": names.of(uid).decode("ascii"), "octets": size, "imported": uid in own}
            for uid, size in zip(view.rows["uid"].tolist(), view.rows["size"].tolist(), strict=True)]
