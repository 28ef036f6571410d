"""What happens to quota roots, as events, in the transaction in which it does: a first delivery is refused, there is
room again, limits are others (RFC 5423 §4.1).

A refusal that a client hears itself, of an APPEND or a COPY, is no event: nothing is written then.
"""

from attrs import define

from mboxlist.engine.btree import Txn
from mboxlist.names import PUBLIC, SEPARATOR
from store.events.eventvalues import QUOTA_CHANGE, QUOTA_EXCEED, QUOTA_WITHIN, Event
from store.events.outboxtable import OutboxTable
from store.events.recording import Recorder
from store.settings import Settings
from store.tables.quotatable import CHANGED, DOMAIN, EXCEEDED, WITHIN, QuotaTable, QuotaUse

KIB = 1024
_TYPES = {EXCEEDED: QUOTA_EXCEED, WITHIN: QUOTA_WITHIN, CHANGED: QUOTA_CHANGE}


@define(eq=False)
class QuotaRecording:
    """For the quota of a partition."""

    recorder: Recorder
    outbox: OutboxTable
    quotas: QuotaTable

    def noticed(self, what: str, root: str, use: QuotaUse, txn: Txn) -> None:
        """See QuotaTable."""
        if among := self.recorder.receivers.of_quota:
            event = of_quota(_TYPES[what], root, use, self.quotas.settings)
            self.recorder.write(self.outbox, event, 0, txn, among)


def of_quota(kind: str, root: str, use: QuotaUse, settings: Settings) -> Event:
    """Something about a quota root, with its use and limits. As in IMAP, storage is in units of 1,024 octets (RFC 9208
    §5.1), rounded up."""
    owner = "" if root.startswith((PUBLIC, DOMAIN)) else root.partition(SEPARATOR)[0]
    octets, messages = use.limits(settings)
    said: dict[str, object] = {"vnd.onecopy.quotaRoot": root, "diskUsed": _units(use.octets), "messages": use.messages}
    if octets is not None:
        said["diskQuota"] = _units(octets)
    if messages is not None:
        said["maxMessages"] = messages
    return Event(kind, owner, None, said)


def _units(octets: int) -> int:
    return -(-octets // KIB)
