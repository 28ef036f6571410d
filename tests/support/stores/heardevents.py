"""Who hears all events of a store: what waits for it, and what it knows by then of the mailboxes."""

from collections.abc import Mapping
from typing import Any

from store.events import receivers
from store.events.outboxtable import OutboxTable
from store.events.receivers import Receiver
from store.store import Store
from store.values import Flag

NAME = "all"
Boxes = dict[int, tuple[str, dict[int, set[str]]]]      # by id: the URL of a mailbox, and each UID's flags


def hear(store: Store, *wanted: Receiver) -> None:
    """Have these receivers from now on."""
    receivers.change(store.root, lambda before: wanted)
    store.recorder.look()


def outboxes(store: Store) -> list[OutboxTable]:
    """Of the list and of all partitions."""
    return [OutboxTable(store.mailboxes.outbox), *(each.outbox for each in store.partitions.values())]


def waiting(store: Store, name: str = NAME) -> list[dict[str, Any]]:
    """What waits for a receiver, of all environments in the order of their clocks."""
    parcels = [parcel for outbox in outboxes(store) for parcel in outbox.some(name, 100_000)]
    return [dict(parcel.body) for parcel in sorted(parcels, key=lambda parcel: parcel.order)]


class Copy:
    """What a receiver knows that knew `boxes` before. What cannot be so is an AssertionError: a flag that is set
    twice, a message that comes twice."""

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = {box: (url, {uid: set(flags) for uid, flags in messages.items()})
                      for box, (url, messages) in boxes.items()}

    def hear(self, body: Mapping[str, Any]) -> None:
        """An event has come."""
        event, box = body["event"], body.get("vnd.onecopy.mailbox", 0)
        if event in ("MailboxCreate", "MailboxRename"):
            assert (box in self.boxes) == (event == "MailboxRename"), body
            self.boxes[box] = body["mailboxID"], self.boxes[box][1] if box in self.boxes else {}
        elif event == "MailboxDelete":
            del self.boxes[box]
        elif "uidset" in body and body["mailboxID"].startswith(f"imap://{body.get('user', '')}"):   # else a reader's
            _, flags = self.boxes[box]
            for uid in [uid for part in body["uidset"].split(",") for uid in range(
                    int(part.split(":")[0]), int(part.split(":")[-1]) + 1)]:
                _hear_of_message(event, uid, flags, body.get("flagNames", ()))


def _hear_of_message(event: str, uid: int, flags: dict[int, set[str]], names: Any) -> None:
    if event in ("MessageNew", "MessageAppend"):
        assert uid not in flags, (event, uid)
        flags[uid] = set(names)
    elif event == "MessageExpunge":
        del flags[uid]
    elif event == "FlagsClear":
        assert flags[uid].issuperset(names), (event, uid, names)
        flags[uid].difference_update(names)
    else:
        new = {"MessageRead": ["\\Seen"], "MessageTrash": ["\\Deleted"]}.get(event) or names
        assert not flags[uid].intersection(new), (event, uid, names)
        flags[uid].update(new)


def there(store: Store, owner: str | None = None) -> Boxes:
    """What there is, of one owner or of all."""
    found = {}
    for entry in store.mailboxes.all() if owner is None else store.mailboxes.below(owner):
        mailbox = store.open_mailbox(entry)
        who = f"{entry.name.owner}@" if entry.name.owner else ""
        found[int(entry.id)] = (
            f"imap://{who}{store.recorder.server}/{entry.name.to_client(entry.name.owner)};UIDVALIDITY="
            f"{entry.uidvalidity}", {int(row["uid"]): {
                *(f"\\{str(flag.name).capitalize()}" for flag in Flag if int(row["flags"]) & flag),
                *mailbox.keyword_names(int(row["keywords"]))} for row in mailbox.rows})
    return found
