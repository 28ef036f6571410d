"""Mail of several users is imported, one after the other; what is wrong with one stops no other."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from attrs import field, frozen

from store.accounts.base import Account
from store.errors import StoreError
from store.mailboxes import placement
from store.operations.operationrecord import Begun
from store.store import Store
from tools.transfer import besidesmail
from tools.transfer.importmail import Choices, Imported, MailImport
from tools.transfer.mailofothers import reading
from tools.transfer.sourcevalues import OutOfTime, Source, Unreadable, UserTime, Warn
from tools.transfer.userfiles import lines_of

Progress = Callable[[str, int, int], None]          # a mailbox, how many messages are done, out of how many


@frozen
class Job:
    """One user's mail: who gets it here, and how its source is opened."""

    user: str
    begin: Callable[[Warn], Source] = field(repr=False)
    time: UserTime = field(factory=UserTime)        # that it may take


@frozen
class OldUser:
    """A user's name here, the name on the other server, and the password there."""

    here: str
    there: str
    password: str = field(default="", repr=False)


def users_in(path: Path) -> list[OldUser]:
    """The users that a CSV file names. Raises Unreadable."""
    with reading():
        rows = [[cell.strip() for cell in row] for _, row in lines_of(path)]
    found = [OldUser(row[0], row[1] if len(row) > 1 and row[1] else row[0], row[2] if len(row) > 2 else "")
             for row in rows]
    if not found:
        raise Unreadable(f"{path}: it names no users")
    return found


def run(store: Store, jobs: Sequence[Job], account: Callable[[str], Account | None], choices: Choices, warn: Warn,
        progress: Progress, operation: Begun | None = None) -> list[tuple[str, Imported]]:
    """Do the jobs; what has become of each mailbox, with its user. `account` finds a user's account, None for the owner
    of public mailboxes, and may raise StoreError. `operation`, of which the jobs are parts, learns of those that are
    refused for now."""
    found, left = list[tuple[str, Imported]](), ""
    for job in jobs:
        try:
            owner = account(job.user)
            user, partition = (owner.user, owner.partition) if owner else ("", placement.for_new_mail(store))
            with closing(job.begin(warn)) as source:
                for result in MailImport(store, user, partition, source, warn, choices, progress, job.time).all():
                    found.append((job.user, result))
                if owner is not None:
                    _bring_the_rest(store, owner, source, choices, warn)
        except (Unreadable, StoreError, OSError) as error:
            warn(f"{job.user}: {error}")
            if operation is not None and isinstance(error, StoreError):
                left = operation.refused(error) or left
    if left:
        warn(left)
    return found


def _bring_the_rest(store: Store, owner: Account, source: Source, choices: Choices, warn: Warn) -> None:
    """Sieve scripts, which are only looked at in a dry run, and limits. Raises StoreError."""
    parts = list[Callable[[], None]]()
    if (settings := choices.sieve) is not None:
        parts.append(lambda: besidesmail.keep_scripts(store, owner, source, settings, warn, dry_run=choices.dry_run))
    if choices.limits and not choices.dry_run:
        parts.append(lambda: besidesmail.limit(store, owner.user, source.limits()))
    for part in parts:
        try:
            part()
        except OutOfTime:
            raise
        except Unreadable as problem:
            warn(f"{owner.user}: {problem}")
