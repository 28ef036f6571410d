"""App passwords and second factors: files that let nobody in, since they are damaged, and files of nobody."""

from collections.abc import Iterator

from store.accounts.apppasswords.accessfiles import FOLDER, AccessFiles
from store.errors import Problem, StoreError
from store.store import Store
from store.values import Finding, Repair

DAMAGED = "the app passwords and the second factor cannot be read"


def look(store: Store) -> Iterator[Finding]:
    """All findings of the folder `access/`. Users of an outside directory may have no row here: they are somebody."""
    files = AccessFiles(store.root)
    damaged = []
    for name in files.names():
        try:
            found = files.named(name)
        except StoreError as error:
            if error.problem is Problem.CORRUPT:
                damaged.append(name)
            else:
                yield Finding(DAMAGED, f"{FOLDER}/{name}", Repair.OWNER.of())
            continue
        if found is not None and not store.directory.remote and store.directory.find(found.user) is None:
            yield Finding("app passwords or a second factor are there of a user who is not", f"user {found.user}",
                          Repair.ACCESS.of(found.user))
    users = files.users_of(damaged, (account.user for account in store.directory.all())) if damaged else {}
    for name in damaged:
        user = users.get(name)
        yield Finding(DAMAGED, f"{FOLDER}/{name}" if user is None else f"user {user}", Repair.ACCESS.of(user or name))
