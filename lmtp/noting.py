"""What became of messages and recipients, noted in the delivery log for those who ask later (`explain message`)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attrs import frozen

from lmtp.replies import Reply
from lmtp.smtppaths import Address
from mboxlist.entry import MailboxId
from store.delivery.commit import Delivered, Duplicate, Outcome, Unfiled
from store.deliverylog import OVER_QUOTA, DeliveryLog, short
from store.errors import StoreError
from store.partition.staged import Staged

MAILBOX_FULL = ".2.2"       # RFC 3463 §3.3: X.2.2


@frozen
class Envelope:
    """From whom a message is. `id`: its name in the log and in replies; `sender` is None for <>; `session`: the id of
    the connection, if it came by one."""

    id: str
    peer: str
    sender: Address | None
    session: str = ""

    def facts(self) -> dict[str, str]:
        """What notes say of it."""
        return {"id": self.id, "session": self.session, "peer": self.peer, "from": short(str(self.sender or ""))}


def why(error: Exception) -> str:
    """The reason of a refusal, for administrators."""
    if not isinstance(error, StoreError):
        return "an error of this server, see the log"
    return f"{error.public}: {error.detail}" if error.detail else error.public


def recipient(delivery_log: DeliveryLog, envelope: Envelope, address: Address, reply: Reply, reason: str) -> None:
    """A RCPT is refused."""
    delivery_log.note("recipient", partial(_recipient, delivery_log, envelope, address, reply, reason))


def refused(delivery_log: DeliveryLog, envelope: Envelope, addresses: Sequence[str], reply: Reply, reason: str) -> None:
    """A message is refused for all who it is for."""
    delivery_log.note("refused", partial(_refused, delivery_log, envelope, tuple(addresses), reply, reason))


def message(delivery_log: DeliveryLog, envelope: Envelope, staged: Staged, mailboxes: Sequence[MailboxId],
            addresses: Sequence[str], replies: Sequence[Reply], outcomes: Mapping[MailboxId, Outcome]) -> None:
    """A message has been delivered, or not, to each of its recipients: three of these have a place for each. None of
    them is changed afterwards."""
    delivery_log.note("message", partial(_message, delivery_log, envelope, staged.message_id, staged.digest,
                                         staged.size, mailboxes,
                                    addresses, replies, outcomes))


# The rest runs when the delivery log is written: what it costs, no delivery waits for.

def _recipient(delivery_log: DeliveryLog, envelope: Envelope, address: Address, reply: Reply, reason: str
               ) -> dict[str, Any]:
    return {**envelope.facts(), "to": [_refusal(delivery_log, str(address), reply, reason)]}


def _refused(delivery_log: DeliveryLog, envelope: Envelope, addresses: Sequence[str], reply: Reply, reason: str
             ) -> dict[str, Any]:
    to = [_refusal(delivery_log, address, reply, reason) for address in addresses or ("",)]
    return {**envelope.facts(), "to": to}


def _refusal(delivery_log: DeliveryLog, address: str, reply: Reply, reason: str) -> dict[str, Any]:
    delivery_log.counted["refused for good" if reply.code >= 500 else "refused for now"] += 1
    if reply.enhanced.endswith(MAILBOX_FULL):
        delivery_log.counted[OVER_QUOTA] += 1
    return {"recipient": short(address), "reply": str(reply), "why": short(reason)}


def _message(delivery_log: DeliveryLog, envelope: Envelope, message_id: bytes, digest: bytes, size: int,
             mailboxes: Sequence[MailboxId], addresses: Sequence[str], replies: Sequence[Reply],
             outcomes: Mapping[MailboxId, Outcome]) -> dict[str, Any]:
    to = []
    delivery_log.counted["messages"] += 1
    for mailbox, address, reply in zip(mailboxes, addresses, replies, strict=True):
        outcome = outcomes[mailbox]
        if isinstance(outcome, StoreError):
            to.append(_refusal(delivery_log, address, reply, why(outcome)))
        elif isinstance(outcome, Delivered):
            delivery_log.counted["delivered"] += 1
            if outcome.entry.name.owner:
                delivery_log.received.add(outcome.entry.name.owner, 1, size)
            to.append({"recipient": short(address), "reply": str(reply), "mailbox": str(outcome.entry.name),
                       "mailbox_id": mailbox, "uid": outcome.uid})
        elif isinstance(outcome, Unfiled):
            delivery_log.counted["unfiled"] += 1
            to.append({"recipient": short(address), "reply": str(reply), "mailbox": str(outcome.entry.name),
                       "mailbox_id": mailbox, "why": "a script of the recipient keeps it in no mailbox"})
        else:
            assert isinstance(outcome, Duplicate)
            delivery_log.counted["duplicates"] += 1
            to.append({"recipient": short(address), "reply": str(reply), "mailbox": str(outcome.entry.name),
                       "mailbox_id": mailbox, "why": "it had come before (lmtp."
                       + ("repeat_window)" if outcome.repeated else "duplicate_window)")})
    return {**envelope.facts(), "message_id": short(message_id.decode("utf-8", "replace")), "mid": digest.hex(),
            "size": size, "to": to}
