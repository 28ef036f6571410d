"""Which back end keeps whose mail, as far as the store itself has to know: who is elsewhere changes nothing here.

A user's row names the back end (`Account.host`), this one is named by `Settings.host`. The servers turn away those who
are elsewhere; whatever is under way when a user goes is refused here, in the transaction that would change the list.
"""


from typing import TYPE_CHECKING

from attrs import evolve

from mboxlist.engine.btree import Txn
from store.accounts.base import Account
from store.accounts.builtin import BuiltinDirectory
from store.errors import Problem, StoreError
from store.offload import run

if TYPE_CHECKING:           # who only asks for quota loads no store
    from store.store import Store


def require_name(store: "Store") -> str:
    """The name of this back end. Raises StoreError NO_PERMISSION without one, or where no directory can note a move."""
    if not store.settings.host:
        raise StoreError(Problem.NO_PERMISSION, "This back end has no name: set store.host")
    directory = store.directory
    outside = type(directory) is not BuiltinDirectory
    if outside and type(directory).set_host is BuiltinDirectory.set_host or not directory.may_set_hosts():
        raise StoreError(Problem.NO_PERMISSION, "The directory cannot be told which back end keeps a user's mail: "
                                                f"see directory.write_dn on {store.settings.host}")
    return store.settings.host


def set_row_host(store: "Store", user: str, host: str, txn: Txn) -> None:
    """The local row of the user names that back end. Raises StoreError NO_USER."""
    found = store.directory.user(user, txn)
    if found is None:
        raise StoreError(Problem.NO_USER, f"There is no user {user}")
    store.directory.write(evolve(found, account=evolve(found.account, host=host)), txn)


def is_here(store: "Store", account: Account) -> bool:
    """Whether this back end keeps the account's mail."""
    return not account.host or not store.settings.host or account.host.lower() == store.settings.host


def is_elsewhere(store: "Store", user: str, txn: Txn = None) -> bool:
    """Whether the user's row names another back end."""
    if not store.settings.host or not user:
        return False
    found = store.directory.user(user, txn)
    return found is not None and not is_here(store, found.account)


def require_here(store: "Store", user: str, txn: Txn) -> None:
    """Raises StoreError ELSEWHERE when the user's row names another back end: then nothing is changed here."""
    if is_elsewhere(store, user, txn):
        raise StoreError(Problem.ELSEWHERE, detail=f"{user} is on another back end")


async def look_up(store: "Store", address: str) -> Account | None:
    """The account that mail to the address is for (the built-in directory answers at once). Raises StoreError
    UNAVAILABLE."""
    known = store.directory.at_once(address)
    return known.account if known is not None else await run(store, "remote", store.directory.fetch, address)


async def find(store: "Store", user: str) -> Account | None:
    """The account of that user id, of which nothing is an alias. Raises StoreError UNAVAILABLE."""
    found = await look_up(store, user)
    return found if found is not None and found.user == user else None
