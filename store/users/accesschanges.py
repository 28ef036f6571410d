"""Changes of a user's app passwords and second factor: made where the user is, and heard of by all processes."""

from collections.abc import Callable

from store import hosting
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Access
from store.errors import Problem, StoreError
from store.store import Store


def change_access(store: Store, user: str, work: Callable[[Access], Access]) -> Access:
    """Have what a user has be what `work` makes of it, on disk.

    A user who has gone to another back end has it there: it was sent when the row named that one, under the lock of the
    files, and so nothing is changed here afterwards.

    Raises StoreError BUSY, ELSEWHERE, UNAVAILABLE, CORRUPT, DISK_FULL, READ_ONLY, and what `work` raises.
    """
    def here(before: Access) -> Access:
        store.directory.require_settled(user)
        row = store.directory.user(user)
        if row is not None and not hosting.is_here(store, row.account):
            raise StoreError(Problem.ELSEWHERE, f"{user} is on {row.account.host}")
        return work(before)

    found = AccessFiles(store.root).change(user, here)
    store.directory.noticed(user)
    return found
