"""Which messages of a mailbox elsewhere are in the mailbox here already."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from store.message import envelopes
from store.partition.transactions import places
from store.store import Store
from store.tables.index import take
from store.tables.slices import sorted_uids
from store.tables.state import Mailbox
from tools.transfer.sourcevalues import Box, Mail, Source


class Here:
    """The messages of a mailbox that none of the source's has been found to be so far."""

    def __init__(self, store: Store, view: Mailbox | None) -> None:
        self._store, self._view = store, view
        self._uids: dict[int, tuple[int, int]] = {}                     # size and date
        self._by_date: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._by_content: dict[bytes, list[int]] = defaultdict(list)
        if view is None:
            return
        rows = view.rows
        for uid, size, date, digest in zip(*(rows[name].tolist() for name in ("uid", "size", "received", "digest")),
                                        strict=True):
            self._uids[uid] = size, date
            self._by_date[size, date].append(uid)
            self._by_content[digest].append(uid)

    def __len__(self) -> int:
        return len(self._uids)

    def by_uid(self, mails: Sequence[Mail]) -> dict[Mail, int]:
        """Messages under the UID that they have there: its size, or else its date, agrees."""
        found = {}
        for mail in mails:
            size, date = self._uids.get(mail.uid, (-1, -1))
            if mail.uid and size >= 0 and (mail.size == size if mail.size >= 0 else mail.received.seconds == date):
                found[mail] = mail.uid
                del self._uids[mail.uid]
        return found

    def by_message_id(self, source: Source, box: Box, mails: Sequence[Mail]) -> dict[Mail, int]:
        """Messages of the same size, date and Message-ID, where these are to be had without reading all."""
        likely = [mail for mail in mails if any(uid in self._uids for uid in self._by_date.get(
            (mail.size, mail.received.seconds), ()))]
        ids = source.message_ids(box, likely) if likely else {}
        if not ids:
            return {}
        there = self._message_ids({(mail.size, mail.received.seconds) for mail in ids})
        found = {}
        for mail, message_id in ids.items():
            for uid in there.get((mail.size, mail.received.seconds, message_id), ()):
                if uid in self._uids:
                    found[mail] = uid
                    del self._uids[uid]
                    break
        return found

    def _message_ids(self, dates: set[tuple[int, int]]) -> Mapping[tuple[int, int, bytes], list[int]]:
        assert self._view is not None
        uids = sorted_uids(uid for each in dates for uid in self._by_date[each] if uid in self._uids)
        rows = take(self._view.rows, places(self._view.rows, uids))
        found: dict[tuple[int, int, bytes], list[int]] = defaultdict(list)
        for row, cached in zip(rows, self._store.cached(self._view.entry, rows), strict=True):
            message_id = envelopes.string(envelopes.split(cached.envelope)[envelopes.MESSAGE_ID]) or b""
            found[int(row["size"]), int(row["received"]), b"".join(message_id.split())].append(int(row["uid"]))
        return found

    def by_content(self, mail: Mail, digest: bytes, size: int) -> int:
        """A message of these octets and that date, or 0."""
        for uid in self._by_content.get(digest, ()):
            if self._uids.get(uid) == (size, mail.received.seconds):
                del self._uids[uid]
                return uid
        return 0
