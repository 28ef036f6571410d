"""Operations of the table beside it: on whole mailboxes and users, and changes that no mailbox shows."""

import time

from mboxlist.names import MailboxName
from store.mailboxes import deletion, namespace, subscribing
from store.quota import roots
from store.store import Store
from store.users import lifecycle
from tests.crash.places import ALICE, ARCHIVE, LATER, NEW, WORK, Answered, Place
from tests.crash.views import Box, Picture
from tests.support.stores.purging import purge_mailboxes


def create(place: Place, answered: Answered) -> None:
    namespace.create_mailbox(place.store, MailboxName("bob", "Drafts"), special_use="\\Drafts")
    answered()
    place.deliver(NEW[0], MailboxName("bob", "Drafts"))
    answered()


def delete(place: Place, answered: Answered) -> None:
    deletion.delete_mailbox(place.store, ARCHIVE)
    answered()
    deletion.delete_mailbox(place.store, WORK)
    answered()


def delete_and_create(place: Place, answered: Answered) -> None:
    deletion.delete_mailbox(place.store, ARCHIVE)
    answered()
    namespace.create_mailbox(place.store, ARCHIVE)
    answered()
    place.deliver(NEW[0], ARCHIVE)
    answered()


def undelete_mailbox(place: Place, answered: Answered) -> None:
    deletion.delete_mailbox(place.store, ARCHIVE)
    answered()
    deletion.undelete_mailbox(place.store, ARCHIVE)
    answered()


def undelete_messages(place: Place, answered: Answered) -> None:
    deletion.undelete_messages(place.store, place.entry(ALICE))
    answered()


def purge_mailbox(place: Place, answered: Answered) -> None:
    purge_mailboxes(place.store, time.time() + LATER)
    answered()


def prepare_purge_mailbox(store: Store) -> None:
    deletion.delete_mailbox(store, ARCHIVE)
    deletion.delete_mailbox(store, WORK)


def rename_tree(place: Place, answered: Answered) -> None:
    namespace.rename_mailbox(place.store, ARCHIVE, MailboxName("alice", "Old/Mail"))
    answered()


def rename_inbox(place: Place, answered: Answered) -> None:
    namespace.rename_mailbox(place.store, ALICE, MailboxName("alice", "Everything"))
    answered()


def new_name_empty(before: Picture, after: Picture) -> list[Picture]:
    """The new mailbox is made before it is given anything."""
    made = sorted(after.keys() - before.keys())
    return [{**before, **{name: Box(after[name].uidvalidity, 0, 0, (), ()) for name in made}}]


def remove_user(place: Place, answered: Answered) -> None:
    lifecycle.remove_mail(place.store, "alice")
    place.store.directory.remove("alice")           # type: ignore[attr-defined]
    answered()


def some_gone(before: Picture, after: Picture) -> list[Picture]:
    """Mailboxes go one after the other, the last of them first."""
    going = sorted(before.keys() - after.keys(), key=lambda name: name.replace("/", "\x01"))
    return [{name: box for name, box in before.items() if name not in going[at:]} for at in range(len(going))]


def small_things(place: Place, answered: Answered) -> None:
    """Changes that no mailbox shows."""
    store = place.store
    subscribing.subscribe(store, "alice", "Work")
    roots.set_quota(store, "alice", 10_000_000, 1000)
    store.claim_recent(place.entry(ALICE))
    place.flushed(ALICE)
    answered()
    subscribing.unsubscribe(store, "alice", "Work")
    answered()
