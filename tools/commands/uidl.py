"""onecopy uidl import|list: unique-ids of POP3, so that clients know messages again that came from another server"""

import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pop3.settings
from mboxlist import privatefiles
from pop3 import uniqueids
from store.mailboxes import uidllist
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import mailbox
from tools.cli.output import print_json, print_table
from tools.exits import Failure


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
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def _file(text: str) -> Path | None:
    if not text:
        raise ArgumentTypeError("which file?")
    return None if text == "-" else Path(text)


def import_list(invocation: Invocation) -> int:
    """onecopy uidl import"""
    arguments = invocation.arguments
    wanted = _read(arguments.file, numbers=arguments.numbers)
    with invocation.store() as store:
        entry = mailbox(store, arguments.user, "INBOX")
        by_uid = uidllist.by_uid(wanted, store.open_mailbox(entry).rows, numbers=arguments.numbers)
        missing = uidllist.give(store, entry, by_uid)
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


def _read(file: Path | None, *, numbers: bool) -> uidllist.Wanted:
    try:
        if file is None:
            return uidllist.parse(sys.stdin.buffer, numbers=numbers)
        with privatefiles.open_named(file) as lines:
            return uidllist.parse(lines, numbers=numbers)
    except uidllist.BadList as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None


def show(invocation: Invocation) -> int:
    """onecopy uidl list"""
    with invocation.store() as store:
        view = store.open_mailbox(mailbox(store, invocation.arguments.user, "INBOX"))
        own = store.uidls(view.entry)
        form = uniqueids.parse(invocation.config.settings("pop3", pop3.settings.Settings).uidl_format)
        names = uniqueids.UniqueIds(form, view.state.uidvalidity, own)
        found = [{"uid": uid, "uidl": names.of(uid).decode("ascii"), "octets": size, "imported": uid in own}
                 for uid, size in zip(view.rows["uid"].tolist(), view.rows["size"].tolist(), strict=True)]
    if invocation.arguments.json:
        print_json(found)
    else:
        print_table(found, ("uid", "uidl", "octets", "imported"))
    return 0
