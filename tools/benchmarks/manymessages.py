"""Mailboxes of any size, made in the store itself, without a sync: nobody loses power here."""

import time
from collections.abc import Iterator

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store.delivery.commit import Target, commit
from store.mailboxes import namespace
from store.mailboxes.copymessages import copy_messages
from store.store import Store
from store.values import InternalDate

SMALL = b"From: a@example.org\r\nSubject: %d\r\nMessage-ID: <%d@example.org>\r\n\r\nThe text.\r\n"
COPIED_AT_A_TIME = 16_384


def deliver(store: Store, entry: MailboxEntry, messages: Iterator[bytes]) -> None:
    """Each of the messages into that mailbox."""
    for message in messages:
        staged = store.stage(entry)
        staged.write(message)
        staged.finish()
        staged.spill()
        staged.on_disk = True
        commit(store.partition_of(entry), staged, [Target(entry)], InternalDate(int(time.time())))
        staged.close()
        staged.place()


def fill(store: Store, owner: str, name: str, count: int) -> MailboxEntry:
    """A user's new mailbox with so many small messages: some are delivered, the others are copies of these."""
    source = namespace.create_mailbox(store, MailboxName(owner, f"{name} source"))
    some = min(COPIED_AT_A_TIME, count)
    deliver(store, source, (SMALL % (number, number) for number in range(some)))
    uids = store.open_mailbox(source).rows["uid"]
    large = namespace.create_mailbox(store, MailboxName(owner, name))
    for made in range(0, count, some):
        copy_messages(store, source, large, uids[:count - made])
    return large
