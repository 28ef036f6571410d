"""onecopy snapshot browse, snapshot copy: mail of a user as it was in a snapshot, beside a running server."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from attrs import define, field

from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.progress import Progress
from store.snapshots.mailthen import MailThen, mail_then, snapshots_of
from store.tables.state import Mailbox
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account, mailbox_name
from tools.cli.output import print_json, print_table, when
from tools.cli.progressbar import Tell, bar
from tools.commands.messages.chosenmessages import Chosen, shown
from tools.exits import Failure, advised

MOST = 200                  # messages that are listed unless more are asked for
_COLUMNS = ("uid", "received", "size", "from", "subject", "here")


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("snapshot browse", browse, "the snapshots in which a user has mail; with SNAPSHOT the own mailboxes "
                                             "that the user had then, with MAILBOX the messages in one")
    made.add_argument("user", metavar="USER")
    made.add_argument("snapshot", nargs="?", metavar="SNAPSHOT", help="its name in that list")
    made.add_argument("mailbox", nargs="?", metavar="MAILBOX", help="the name that it had then")
    made.add_argument("--gone", action="store_true", help="only messages that the mailbox has no more")
    made.add_argument("--before", type=int, metavar="UID", help="only messages with smaller UIDs: the next page")
    made.add_argument("--most", type=int, default=MOST, metavar="N", help="how many messages are listed at most, the "
                                                                          "newest first (200)")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("snapshot copy", copy, "bring messages back that a user had when a snapshot was made: those that the "
                                         "mailbox has no more, or those that are named; nothing is removed")
    made.add_argument("user", metavar="USER")
    made.add_argument("snapshot", metavar="SNAPSHOT", help="its name in the list of `snapshot browse USER`")
    made.add_argument("mailbox", metavar="MAILBOX", help="the name that it had then")
    made.add_argument("--uid", type=int, nargs="+", metavar="UID", help="these, by the UIDs that they had, even if the "
                                                                        "mailbox has them")
    made.add_argument("--into", metavar="NAME", help="into this mailbox of the user's; default: the one of that name; "
                                                     "it is made if there is none")
    made.add_argument("--dry-run", action="store_true", help="only say how many would be brought back")
    made.add_argument("--json", action="store_true")


@contextmanager
def _opened(invocation: Invocation) -> Iterator[tuple[str, MailThen]]:
    """The user, and the user's mail in the snapshot. Raises StoreError, Failure."""
    with invocation.store() as store:
        whose = account(store, invocation.arguments.user)
        with ExitStack() as opened:
            try:
                mail = opened.enter_context(mail_then(store, whose, invocation.arguments.snapshot))
            except StoreError as error:
                raise advised(error, f"onecopy snapshot browse {shlex.quote(whose.user)} shows what there is") from None
            yield whose.user, mail


def _own_name(user: str, text: str) -> MailboxName:
    """A mailbox of the user's own. Raises Failure."""
    name = mailbox_name(user, text)
    if name.owner != user:
        raise Failure(f"{text} is no mailbox of {user}'s own", 1)
    return name


def _then(mail: MailThen, user: str, text: str) -> Mailbox:
    """The mailbox as it was. Raises StoreError, Failure."""
    try:
        return mail.mailbox(_own_name(user, text).path)
    except StoreError as error:
        if error.problem is not Problem.NO_MAILBOX:
            raise
        raise StoreError(Problem.NO_MAILBOX, f"There is no mailbox {text} of {user} in that snapshot") from None


@define(eq=False)
class _Shown(Progress):
    """How far it is, for a bar."""

    tell: Tell = field(kw_only=True)

    def step(self, count: int) -> None:
        """Raises Abandoned."""
        super().step(count)
        self.tell(self.done, total=self.total)


def browse(invocation: Invocation) -> int:
    """onecopy snapshot browse"""
    arguments = invocation.arguments
    rows: list[dict[str, object]]
    columns: tuple[str, ...]
    if arguments.snapshot is None:
        with invocation.store() as store:
            rows = [{"snapshot": each.name, "moment": when(each.manifest.moment)}
                    for each in snapshots_of(store, account(store, arguments.user))]
        columns = ("snapshot", "moment")
    elif arguments.mailbox is None:
        with _opened(invocation) as (_, mail):
            rows = [{"mailbox": entry.name.path, "messages": state.messages, "octets": state.octets}
                    for entry, state in mail.mailboxes()]
        columns = ("mailbox", "messages", "octets")
    else:
        rows, columns = _messages(invocation), _COLUMNS
    if arguments.json:
        print_json(rows)
    else:
        print_table(rows, columns)
    return 0


def _messages(invocation: Invocation) -> list[dict[str, object]]:
    arguments = invocation.arguments
    if arguments.most < 1:
        raise Failure("--most is a number from 1 on")
    with _opened(invocation) as (user, mail):
        then = _then(mail, user, arguments.mailbox)
        rows, here = mail.messages(then, before=arguments.before, gone=arguments.gone, most=arguments.most)
        found = [{**{name: each[name] for name in _COLUMNS[:-1]}, "here": bool(there)}
                 for each, there in zip(shown(mail.reader, Chosen(then, rows)), here, strict=True)]
    return found[::-1]


def copy(invocation: Invocation) -> int:
    """onecopy snapshot copy"""
    arguments = invocation.arguments
    if arguments.uid and any(not 0 < uid < 1 << 32 for uid in arguments.uid):
        raise Failure("a UID is between 1 and 4294967295")
    with _opened(invocation) as (user, mail):
        name = _own_name(user, arguments.into or arguments.mailbox)
        then = _then(mail, user, arguments.mailbox)
        uids = arguments.uid or mail.missing(then, name)
        with bar("messages") as tell:
            new = mail.bring_back(then, name, uids, _Shown(tell=tell)) if uids and not arguments.dry_run else []
    if arguments.json:
        print_json({"mailbox": str(name), "messages": len(uids), "uids": new, "dry_run": arguments.dry_run})
    else:
        print(f"{len(uids)} messages {'would come' if arguments.dry_run else 'are'} back in {name}")
    return 0
