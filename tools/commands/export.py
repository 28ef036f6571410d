"""onecopy export"""

import sys
from pathlib import Path

from attrs import asdict

from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import mailbox, owner
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import changing_bar
from tools.commands.mailbox import OWNER_HELP
from tools.transfer.exportmail import FORMATS, MailExport

COLUMNS = ("mailbox", "path", "messages", "written", "octets", "failed")


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("export", export, "write a user's mailboxes as Maildirs or mbox files, with flags, keywords and "
                  "dates; a second time only what is not there; exit status 1 if a message could not be written, or "
                  "not octet for octet")
    made.add_argument("user", metavar="USER", help=OWNER_HELP)
    made.add_argument("mailboxes", nargs="*", metavar="MAILBOX", help="default: all, and subscriptions")
    made.add_argument("--format", choices=FORMATS, required=True, help="what to write")
    made.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="where the files go; it is made")
    made.add_argument("--layout", choices=("maildir++", "fs"), default="maildir++",
                      help="of Maildirs: folders .A.B, or A/B")
    made.add_argument("--crlf", action="store_true", help="end lines with CRLF in the files, as here; default: LF")
    made.add_argument("--uids", action="store_true", help="X-UID and X-IMAPbase in mbox files")
    made.add_argument("--dry-run", action="store_true", help="only say what would be written, and where")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def export(invocation: Invocation) -> int:
    """onecopy export"""
    arguments, said = invocation.arguments, list[str]()

    def tell(line: str) -> None:
        said.append(line)
        print(f"onecopy: {line}", file=sys.stderr)

    with invocation.store() as store, changing_bar() as progress:
        user = owner(store, arguments.user)
        entries = [mailbox(store, user or arguments.user, name) for name in arguments.mailboxes] or store.names(user)
        job = MailExport(store, arguments.to, tell, arguments.format, arguments.layout, arguments.crlf, arguments.uids,
                         arguments.dry_run, progress)
        rows = [asdict(left) for left in job.mailboxes(entries, None if arguments.mailboxes else user)]
    if arguments.json:
        print_json({"mailboxes": rows, "told": said})
    else:
        print_table(rows, COLUMNS)
    return int(bool(said))
