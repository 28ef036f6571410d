"""The directory of the store's users, where commands change it."""

from store.accounts.builtin import BuiltinDirectory
from store.quota.overview import Overview
from tools.exits import Failure


def directory(store: Overview) -> BuiltinDirectory:
    """The directory, if users can be changed in it. Raises Failure."""
    if not isinstance(store.directory, BuiltinDirectory):
        raise Failure("the users of this store are kept in an outside directory")
    return store.directory
