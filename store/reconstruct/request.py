"""What somebody wants to be reconstructed."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

if TYPE_CHECKING:           # what a small reconstruct does without
    from store.accounts.builtin import User
    from store.rebuild.outcome import Outcome
    from store.settings import Settings
    from store.store import Store
    from store.values import Finding

Progress = Callable[[str, int, int], None]      # what is done, how much of it, out of how much


def silent(what: str, done: int, total: int) -> None:
    """Nobody watches."""


class Refused(Exception):
    """This cannot be reconstructed, or not in this way; the text says why."""


class Planner(Protocol):
    """Reads the whole user area, and writes down what the store should be: the plan of a rebuild."""

    def make(self, request: "Request", folder: Path) -> "Outcome":
        """Write a plan into the folder. Raises Refused, StoreError, OSError."""

    def apply(self, request: "Request", folder: Path, users: "list[User]") -> "Outcome":
        """Do what the plan in the folder says, to a store that is down, with these accounts, or to one that is in use.
        Raises Refused, StoreError, OSError."""


@frozen
class Request:
    """What is wanted, and of what. `what` is a user, or a mailbox with those below it, as people name them; without it
    the whole store is meant, or one partition.

    `open_store` opens the store beside others, `user_of` is the user id of an address, `faults` what a check finds;
    `watched` has somebody see the progress.
    """

    root: Path
    program: str
    settings: "Callable[[], Settings]"
    open_store: "Callable[[], AbstractContextManager[Store]]"
    user_of: "Callable[[Store, str], str]"
    faults: "Callable[[Store], list[Finding]]"
    planner: Callable[[], Planner]
    watched: Callable[[], AbstractContextManager[Progress]]
    what: str | None = None
    all: bool = False
    partition: str | None = None
    mboxlist: bool = False
    check: bool = False
    force: bool = False
    deep: bool = False
    cache: bool = False
    uids: Callable[[int], bool] | None = None
    quota: bool = False
    rights: bool = False
    plan: Path | None = None
    apply: Path | None = None
    users: Path | None = None
    engine: str | None = None

    def begun(self, kind: str, arguments: dict[str, Any]) -> AbstractContextManager[object]:
        """It is on record while the block lasts: see `operationrecord.begun`. Raises StoreError."""
        from store.operations.operationrecord import begun  # here: what only looks needs none, and starts sooner
        return begun(self.root, kind, self.program, arguments)

    def correcting(self) -> AbstractContextManager[object]:
        """`begun` for one that corrects a store that is whole: what was cut off is done again. Raises StoreError."""
        if self.check:
            return nullcontext()
        return self.begun("reconstruct mailboxes", {name: getattr(self, name) for name in (
            "what", "all", "partition", "force", "deep", "cache", "quota", "rights")})

    def making(self) -> AbstractContextManager[object]:
        """`begun` for one that makes all databases, or the list. Raises StoreError."""
        return self.begun("reconstruct", {"all": not self.mboxlist, "mboxlist": self.mboxlist,
                                          "users": None if self.users is None else str(self.users.absolute())})
