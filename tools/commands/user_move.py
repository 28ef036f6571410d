"""onecopy user move"""

import sys
from contextlib import closing

import attrs

from store.errors import StoreError
from store.operations.operationrecord import WHAT_IS_LEFT, Begun
from store.partitions import volumes
from store.store import Store
from store.usermove.sendmailboxes import MailboxSender
from store.usermove.sourceside import require_movable, send
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.lookup import account
from tools.cli.output import print_json, size
from tools.cli.progressbar import counted
from tools.commands.partitions import move_owners, progress
from tools.exits import Failure
from tools.server.control.backendlink import Place
from tools.serversettings import Exchange

#: What was sent of the user has been given up, or is removed by the other back end's next start.
UNDONE = "it is undone, the user is here as before; run the command again"


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("user move", move_users, "move users' mail to another partition, or to another back end, while they "
                                           "use it; what was cut off is finished when it is done again")
    made.add_argument("users", nargs="+", metavar="USER")
    made.add_argument("--to", metavar="PARTITION|HOST", required=True,
                      help="a partition of this store, or one of the back ends in exchange.peers")
    made.add_argument("--dry-run", action="store_true", help="to a back end: say what would be moved, and move nothing")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def move_users(invocation: Invocation) -> int:
    """onecopy user move"""
    arguments = invocation.arguments
    with invocation.store() as store:
        to = str(arguments.to)
        place = _place(invocation, store, to)
        if place is None and arguments.dry_run:
            raise Failure(f"--dry-run is for moves to back ends, and {to} is a partition")
        owners: list[str] = []
        status = each(arguments.users, lambda user: owners.append(account(store, user).user))
        if place is None:
            return max(status, move_owners(invocation, store, owners, to))
        if arguments.dry_run:
            done, rows = _count(store, owners, to.lower(), place, as_json=arguments.json)
        else:
            with store.begun("user move", {"users": owners, "to": to.lower()}, stops=True,
                             holds=owners) as operation:
                done, rows = _move(store, owners, to.lower(), place, operation, as_json=arguments.json)
    if arguments.json:
        print_json(rows)
    return max(status, done)


def _place(invocation: Invocation, store: Store, to: str) -> Place | None:
    """How to reach the back end of that name; None for a partition. Raises Failure, StoreError UNAVAILABLE."""
    names = [peer.partition("=")[0].strip().lower()
             for peer in invocation.config.settings("exchange", Exchange).peers]
    if to in store.partitions:
        if to.lower() in names:
            raise Failure(f"{to} is a partition and a back end: give one of them another name")
        return None
    if to.lower() not in names:
        volumes.named(store, to)             # says that there is no such partition
        raise Failure(f"{to} is neither a partition nor among exchange.peers")
    return Place.of(invocation.config, store.settings.host)


Rows = list[dict[str, object]]


def _move(store: Store, users: list[str], to: str, place: Place, operation: Begun, *, as_json: bool
          ) -> tuple[int, Rows]:
    """The status, and a row for each user who was moved."""
    rows = Rows()
    with progress(len(users)) as tell:
        def work(user: str) -> None:
            row = store.directory.user(user)
            if row is not None and row.account.host.lower() == to and store.mailboxes.moves.find(user) is None:
                print(f"{user}: is on {to} already", file=sys.stderr if as_json else sys.stdout, flush=True)
                return
            try:
                gone = send(store, user, to, lambda: place.connect(to), lambda so_far: tell(user, so_far))
            except StoreError:
                operation.again = UNDONE if store.mailboxes.moves.find(user) is None else WHAT_IS_LEFT
                raise
            done = gone.moved
            rows.append({"user": user, "to": to, **attrs.asdict(done), "held": round(gone.held, 3)})
            if not as_json:
                print(f"{user}: {done.mailboxes} mailboxes, {done.messages} messages, {done.files} files sent "
                      f"({size(done.octets)}), held for {gone.held:.2f} s", flush=True)

        return each(users, work, operation), rows


def _count(store: Store, users: list[str], to: str, place: Place, *, as_json: bool) -> tuple[int, Rows]:
    """The status, and a row for each user who would be moved."""
    rows = Rows()

    def work(user: str) -> None:
        require_movable(store, user, to)
        with closing(place.connect(to)) as peer:
            mailboxes, messages, files, octets = MailboxSender(store, user, to, peer).count()
        rows.append({"user": user, "to": to, "mailboxes": mailboxes, "messages": messages, "files": files,
                     "octets": octets, "dry_run": True})
        if not as_json:
            print(f"{user}: {mailboxes} mailboxes, {messages} messages; {files} files to send ({size(octets)})",
                  flush=True)

    return each(counted(users, "users", len(users)), work), rows
