"""An operation of the table beside it: events that wait are sent. The receiver is not cut off: it has what it was
given.
"""

from collections.abc import Sequence

from attrs import frozen
from twisted.internet.task import Clock

from mboxlist.names import MailboxName
from store import offload
from store.events.outboxtable import Parcel
from store.events.receivers import Receiver
from store.mailboxes import namespace
from store.mailboxes.flagchanges import change_flags
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.crash.places import ALICE, BOB, NEW, Answered, Place, deliver
from tests.support.stores import heardevents
from tests.support.stores.heardevents import NAME, hear
from tools.outbox.outboxsettings import Settings
from tools.outbox.sendall import outboxes
from tools.outbox.sending import Sending

SENT = ["MessageNew", "MailboxCreate", "MessageRead", "MessageTrash", "FlagsSet"]
OF_THE_LIST, OF_RECORDS = SENT[1:2], [SENT[0], *SENT[2:]]      # by environment
BATCH = 2


def prepare_events(store: Store) -> None:
    """Five events wait for a receiver, in two environments; the last three in one row, which is more than a batch."""
    hear(store, Receiver(NAME, types=("Message*", "MailboxCreate", "FlagsSet")))
    deliver(store, NEW[0], ALICE)
    namespace.create_mailbox(store, MailboxName("bob", "Drafts"))
    change_flags(store, store.entry(BOB), [1], FlagAction.ADD, Flags(Flag.FLAGGED | Flag.SEEN | Flag.DELETED))


@frozen
class _Receiver:
    """Has a batch when it is given it."""

    answered: Answered

    async def send(self, batch: Sequence[Parcel]) -> None:
        """An answer: what a receiver has heard must have been so."""
        self.answered()

    def close(self) -> None:
        """Nothing is open."""


def send_events(place: Place, answered: Answered) -> None:
    """Rows are read, sent, and taken away, until there are none."""
    sending = Sending(NAME, Settings("https://a.example", batch=BATCH), _Receiver(answered),
                      lambda: outboxes(place.store), offload.Threads(), Clock())
    while sending.sent < len(SENT):
        offload.now(sending.step())


def what_was_not_sent_waits(store: Store, answers: int) -> list[str]:
    """In its order, in each environment; what was sent may come again."""
    wrong, unsent = [], SENT[BATCH * answers:]
    for outbox, whole in zip(heardevents.outboxes(store), (OF_THE_LIST, OF_RECORDS), strict=True):
        left = [parcel.body["event"] for parcel in outbox.some(NAME, len(SENT) + 1)]
        if left != whole[len(whole) - len(left):] or not {*unsent}.intersection(whole) <= {*left}:
            wrong.append(f"after {answers} batches {left} wait")
    return wrong
