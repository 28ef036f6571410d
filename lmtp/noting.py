"""What became of messages and recipients, noted in the delivery log for those who ask later (`explain message`)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attrs import frozen

from lmtp.replies import Reply
from lmtp.smtppaths import Address
from mboxlist.entry import MailboxId
from store.delivery.commit import Delivered, Duplicate, Outcome, Unfiled
from store.deliverylog import LONGEST, OVER_QUOTA, DeliveryLog, in_json, short
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
             outcomes: Mapping[MailboxId, Outcome]) -> str:
    """As JSON: an encoder takes several times as long as this, and looks at each character."""
    to, counted = [], delivery_log.counted
    sender, known_as = "" if envelope.sender is None else envelope.sender.text, message_id.decode("utf-8", "replace")
    if len(sender) > LONGEST or len(known_as) > LONGEST:
        sender, known_as = short(sender), short(known_as)
    counted["messages"] += 1
    for mailbox, address, reply in zip(mailboxes, addresses, replies, strict=True):
        outcome = outcomes[mailbox]
        if isinstance(outcome, StoreError):
            refused = _refusal(delivery_log, address, reply, why(outcome))
            to.append(", ".join([f'"{name}": {in_json(value)}' for name, value in refused.items()]))
            continue
        if isinstance(outcome, Delivered):
            counted["delivered"] += 1
            if outcome.entry.name.owner:
                delivery_log.received.add(outcome.entry.name.owner, 1, size)
            became = f'"uid": {outcome.uid}'
        elif isinstance(outcome, Unfiled):
            counted["unfiled"] += 1
            became = '"why": "a script of the recipient keeps it in no mailbox"'
        else:
            assert isinstance(outcome, Duplicate)
            counted["duplicates"] += 1
            option = "repeat_window" if outcome.repeated else "duplicate_window"
            became = f'"why": "it had come before (lmtp.{option})"'
        to.append(f'"recipient": {in_json(short(address))}, "reply": "{reply}", "mailbox": '
                  f'{in_json(str(outcome.entry.name))}, "mailbox_id": {mailbox}, {became}')
    return (f'"id": "{envelope.id}", "session": "{envelope.session}", "peer": {in_json(envelope.peer)}, '
            f'"from": {in_json(sender)}, "message_id": {in_json(known_as)}, "mid": "{digest.hex()}", "size": {size}, '
            f'"to": [{{{"}, {".join(to)}}}]')
