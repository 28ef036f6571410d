"""A store rebuilt from `messages/` and `users/` alone, when its databases are lost.

Each mailbox comes back as its `store.idx` has it: name, UIDVALIDITY, ACL, special use, quota root and limits, the
owner's subscriptions, and all records with UIDs, flags, keywords and dates. References, quota use and cache records are
made from these and from the message files. It counts as one more unclean end: UIDs and MODSEQs skip ahead of what may
have been shown since the files were written.

What is lost: what happened after the files were written (up to a minute), the log of expunged UIDs, expunged messages
that waited for their purge (their files stay, and are reported), and rules of domains. A user whose INBOX's file has no
account, and whom the caller does not bring (`salvage_users`), has an entry without password, and is inactive.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from mboxlist.engine.transact import transact
from store.accounts.builtin import User
from store.errors import Problem, StoreError, disk_problem
from store.mend.orphans import take_in_lost
from store.opening import open_store
from store.partitions import volumes
from store.rebuild.desired import entry_of, limits_of
from store.rebuild.emptying import Adopted, finished, nobody_else, prepare
from store.rebuild.loader import never_again
from store.rebuild.messagescan import fill
from store.rebuild.outcome import Outcome
from store.rebuild.salvagedusers import add_users, kept_accounts, salvage_users, take_in
from store.rebuild.userareascan import Source, choose, sources
from store.reconstruct.request import Progress, Refused, Request, silent
from store.settings import Settings
from store.store import Store
from store.userarea import writing
from store.userarea.directoryfile import newest
from store.userarea.paths import place_of_deleted, remove_file
from store.values import Finding


def reconstruct_store(request: Request) -> Outcome:
    """All databases, which are lost; and message files that no mailbox has go to one of the administrator's. Raises
    Refused, StoreError."""
    users = accounts(request)
    with request.making(), request.watched() as progress:
        outcome = rebuild(request.root, request.settings(), users=users, progress=progress)
        take_in_everywhere(request, outcome)
    return outcome


def take_in_everywhere(request: Request, outcome: Outcome) -> None:
    """Message files that nothing claims, of all partitions of a store that has been rebuilt. Raises StoreError."""
    with request.open_store() as store:
        for _, partition in sorted(store.partitions.items()):
            take_in_lost(store, partition, outcome)


def accounts(request: Request) -> list[User]:
    """Those of a users.db that has lost its environment: the one that was named, or one that is found. Raises Refused.
    """
    if request.users is None:
        return kept_accounts(request.root)
    if not request.users.is_file():
        raise Refused(f"there is no file {request.users}")
    return salvage_users(request.users)


def rebuild(root: Path, settings: Settings, *, users: Iterable[User] = (), progress: Progress = silent) -> Outcome:
    """Rebuild the databases of the store in `root`. No process may have the store open. `users` are rows for the
    built-in directory.

    Whatever cannot be read becomes a finding. What is cut off leaves a store that cannot be opened, and is done again
    from the beginning. Raises StoreError NO_STORE when there is nothing to begin with,
    STORE_IN_USE when there are databases, DISK_FULL, UNAVAILABLE.
    """
    done = Outcome()
    names = [folder.name for folder in volumes.with_messages(root)]
    if not names:
        raise StoreError(Problem.NO_STORE, f"There are no messages in {root}")
    try:
        with nobody_else(root):
            adopted = prepare(root, names)
            found = [source for name in names for source in sources(root / "partitions" / name, done.findings)]
            store = open_store(root, settings, empty=True)
            try:
                _fill(store, choose(found, done.findings), list(users), adopted, done, progress)
                write_user_area(store, found)
            finally:
                store.close()
            finished(root)
    except OSError as error:
        raise disk_problem(error) from error
    return done


def begin_list(store: Store, found: Sequence[Source], users: Iterable[User], findings: list[Finding]) -> None:
    """Put the accounts into an empty list. No id or UIDVALIDITY of these mailboxes will be given out again."""
    kept = newest(partition.folder for partition in store.partitions.values())
    add_users(store.directory, found, kept.accounts(users), findings)
    take_in(store.mailboxes, store.directory, kept, found)
    never_again(store.mailboxes, max((source.head.id for source in found), default=0),
                max((source.head.uidvalidity for source in found), default=0))


def write_user_area(store: Store, found: Sequence[Source]) -> None:
    """Write every `store.idx`, and remove the files that have been read where mailboxes have others now."""
    for partition in store.partitions.values():
        partition.unwritten.changed.update(mailbox for mailbox, _ in partition.all_states())
        writing.write_round(store, partition, hurry=True)
    for source in found:
        partition = store.partitions[source.partition]
        mailbox = store.known(source.head.id)
        now = writing.right_place(partition, *mailbox) if mailbox is not None else None
        for path in {source.path, place_of_deleted(partition, source.head.id)} - {now}:
            remove_file(partition, path, source.head.id)


def _fill(store: Store, found: Sequence[Source], users: Sequence[User], adopted: Adopted, done: Outcome,
          progress: Progress) -> None:
    """Fill an empty store. Raises StoreError DISK_FULL, UNAVAILABLE, OSError."""
    mailboxes = store.mailboxes
    begin_list(store, found, users, done.findings)
    for name, partition in store.partitions.items():
        wanted = [(source, entry_of(source, source.head.uidvalidity or transact(
            mailboxes.env, mailboxes.next_identity)[1])) for source in found if source.partition == name]
        fill(partition, wanted, limits_of(found, name), done, listed=mailboxes, adopted=adopted.get(name, []),
             progress=progress)
    mailboxes.env.flush()
