"""onecopy quota warn"""

from store.errors import StoreError
from store.housekeeping import notices
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.output import print_json
from tools.cli.progressbar import counted
from tools.exits import Failure


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("quota warn", warn, "send the notices that are due to users who have reached the warning threshold")
    made.add_argument("--dry-run", action="store_true", help="only say who would get one")
    made.add_argument("--json", action="store_true")


def warn(invocation: Invocation) -> int:
    """onecopy quota warn"""
    arguments = invocation.arguments
    sent: list[str] = []
    with invocation.store() as store:
        due = {root: partition for partition, root in notices.pending(store)}

        def send(root: str) -> None:
            if arguments.dry_run or notices.send(store, (due[root], root)):
                sent.append(root)

        try:
            notices.template(store.settings)
        except StoreError as error:
            raise Failure(error.public, 1) from None
        status = each(counted(list(due), "notices"), send)
    if arguments.json:
        print_json([{"root": root} for root in sent])
    else:
        for root in sent:
            print(root)
    return status
