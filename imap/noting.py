"""APPEND, COPY and MOVE that were refused for want of room, noted in the store's journal for those who ask later
(`onecopy explain message`)."""

from functools import partial
from typing import Any

from mboxlist.entry import MailboxEntry
from store.deliverylog import OVER_QUOTA, DeliveryLog, short
from store.errors import Problem, StoreError
from store.net.stream import Stream

NOTED = frozenset({Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED, Problem.TOO_BIG, Problem.DISK_FULL, Problem.LIMIT})


def refused(delivery_log: DeliveryLog, verb: str, stream: Stream, user: str, entry: MailboxEntry, error: StoreError,
            message_id: bytes = b"") -> None:
    """Messages did not get into that mailbox."""
    if error.problem in NOTED:
        delivery_log.note("refused", partial(_facts, delivery_log, verb, stream.peer, stream.id, user, entry, error,
                                            message_id))


def _facts(delivery_log: DeliveryLog, verb: str, peer: str, session: str, user: str, entry: MailboxEntry,
           error: StoreError, message_id: bytes) -> dict[str, Any]:
    delivery_log.counted["refused by IMAP"] += 1
    delivery_log.counted[OVER_QUOTA] += error.problem in (Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED)
    why = f"{error.public}: {error.detail}" if error.detail else error.public
    return {"id": "", "session": session, "peer": peer, "from": short(user),
            "message_id": short(message_id.decode("utf-8", "replace")),
            "to": [{"recipient": entry.name.owner or "public", "mailbox": str(entry.name), "reply": f"NO {verb}",
                    "why": short(why)}]}
