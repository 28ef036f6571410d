"""onecopy user move"""

from contextlib import closing

from store.errors import StoreError
from store.operations.operationrecord import WHAT_IS_LEFT, Begun
from store.partitions import volumes
from store.store import Store
from store.usermove.sendmailboxes import MailboxSender
from store.usermove.sourceside import require_movable, send
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.lookup import account
from tools.cli.output import size
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
            return max(status, _count(store, owners, to.lower(), place))
        with store.begun("user move", {"users": owners, "to": to.lower()}, stops=True,
                         holds=owners) as operation:
            return max(status, _move(store, owners, to.lower(), place, operation))


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


def _move(store: Store, users: list[str], to: str, place: Place, operation: Begun) -> int:
    with progress(len(users)) as tell:
        def work(user: str) -> None:
            row = store.directory.user(user)
            if row is not None and row.account.host.lower() == to and store.mailboxes.moves.find(user) is None:
                print(f"{user}: is on {to} already", flush=True)
                return
            try:
                gone = send(store, user, to, lambda: place.connect(to), lambda so_far: tell(user, so_far))
            except StoreError:
                operation.again = UNDONE if store.mailboxes.moves.find(user) is None else WHAT_IS_LEFT
                raise
            done = gone.moved
            print(f"{user}: {done.mailboxes} mailboxes, {done.messages} messages, {done.files} files sent "
                  f"({size(done.octets)}), held for {gone.held:.2f} s", flush=True)

        return each(users, work, operation)


def _count(store: Store, users: list[str], to: str, place: Place) -> int:
    def work(user: str) -> None:
        require_movable(store, user, to)
        with closing(place.connect(to)) as peer:
            mailboxes, messages, files, octets = MailboxSender(store, user, to, peer).count()
        print(f"{user}: {mailboxes} mailboxes, {messages} messages; {files} files to send ({size(octets)})",
              flush=True)

    return each(users, work)
