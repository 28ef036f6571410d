"""onecopy standby forget"""

from store.errors import Problem, StoreError
from store.standby import promotion, succession
from tools.cli.invocation import Invocation, Parsers
from tools.cli.storeaccess import is_store


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("standby forget", forget, "say that a machine which has followed this one will never serve its "
                  "store: then this one serves, whether that one has been promoted or not")
    made.add_argument("host", metavar="HOST", help="its exchange.host or store.host")
    made.add_argument("--yes", action="store_true", help="do not ask")


def forget(invocation: Invocation) -> int:
    """onecopy standby forget"""
    root, host = invocation.config.root, invocation.arguments.host.strip().lower()
    if not is_store(root):
        raise StoreError(Problem.NO_STORE, f"There is no store in {root}")
    known = succession.read(root)
    if host not in (*known.followers, known.successor, known.contender):
        raise StoreError(Problem.GONE, f"{host} is none that has followed this machine")
    if host in (known.successor, known.contender):
        invocation.confirm(f"{host} has been promoted, and may have mail that this machine does not have. Serve here "
                           f"all the same, and never there again?")
        promotion.go_ahead(root, known.ahead + 1)       # no UID that was shown there comes to mean something else here
    succession.forget(root, host)
    print(f"{host} is not asked any more; take it out of exchange.standbys, so that it cannot copy the store")
    return 0
