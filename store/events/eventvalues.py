"""Events: names as RFC 5423 §4 has them, parameters as its §5. None has text of a message in it."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote

from attrs import field, frozen

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store.values import Flag

# RFC 5423 §4.1: messages come and go
NEW, APPEND, EXPIRE, EXPUNGE = "MessageNew", "MessageAppend", "MessageExpire", "MessageExpunge"
QUOTA_EXCEED, QUOTA_WITHIN, QUOTA_CHANGE = "QuotaExceed", "QuotaWithin", "QuotaChange"
# §4.2: flags
READ, TRASH, SET, CLEAR = "MessageRead", "MessageTrash", "FlagsSet", "FlagsClear"
# §4.3, Login and Logout, is nothing that the store does: see the package's text. §4.4: mailboxes
CREATE, DELETE, RENAME = "MailboxCreate", "MailboxDelete", "MailboxRename"
SUBSCRIBE, UNSUBSCRIBE = "MailboxSubscribe", "MailboxUnSubscribe"
# of our own, named as §6 wants it
GAP = "vnd.onecopy.EventsLost"

EVENT, MAIL = "event", "mail"           # kinds of rows in the outbox
OF_RECORDS = (NEW, APPEND, EXPIRE, EXPUNGE, READ, TRASH, SET, CLEAR)
OF_QUOTA = (QUOTA_EXCEED, QUOTA_WITHIN, QUOTA_CHANGE)
OF_THE_LIST = (CREATE, DELETE, RENAME, SUBSCRIBE, UNSUBSCRIBE)
TYPES = (*OF_RECORDS, *OF_QUOTA, *OF_THE_LIST)

to_json = json.JSONEncoder(separators=(",", ":")).encode
"""A value as JSON, in as few octets as can be."""

MILLISECONDS = tuple(f".{number:03}Z" for number in range(1000))
SYSTEM_FLAGS = tuple((int(flag), "\\" + str(flag.name).capitalize()) for flag in Flag)


@frozen
class Event:
    """Something that happened. `owner` is whose mailbox, or quota, it concerns; "" for a public mailbox. `name`
    is the mailbox, None for what concerns none. `former` is the name that the mailbox had before."""

    type: str
    owner: str
    name: MailboxName | None = None
    parameters: Mapping[str, object] = field(factory=dict)
    former: MailboxName | None = None

    def body(self, server: str) -> dict[str, object]:
        """As a receiver gets it, but for what tells one from another."""
        said: dict[str, object] = {"event": self.type, "timestamp": moment(time.time()), "process": "onecopy",
                                   "pid": os.getpid(), "serverFQDN": server}
        if self.owner:
            said["user"] = self.owner
        return {**said, **self.parameters}


def mailbox_url(server: str, name: MailboxName, validity: int) -> str:
    """The mailbox as RFC 5092 §2.1 writes it: for its owner, with its UIDVALIDITY."""
    who = f"{quote(name.owner, safe='')}@" if name.owner else ""
    return f"imap://{who}{server}/{quote(name.to_client(name.owner))};UIDVALIDITY={validity}"


def moment(at: float) -> str:
    """A Unix time as events have it (RFC 3339)."""
    second = int(at)
    return second_of(second) + MILLISECONDS[int((at - second) * 1000)]       # half of what it takes to format a number


@lru_cache(maxsize=64)
def second_of(at: int) -> str:
    """The beginning of `moment`, of a whole second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def named_flags(bits: int, keywords: Iterable[str]) -> list[str]:
    r"""Flags as IMAP writes them: system flags (bits) as \Seen, and keywords."""
    return [*(text for bit, text in SYSTEM_FLAGS if bits & bit), *keywords]


def of_mailbox(kind: str, server: str, entry: MailboxEntry, former: MailboxEntry | None = None) -> Event:
    """A mailbox was made, renamed or deleted."""
    said: dict[str, object] = {"mailboxID": mailbox_url(server, entry.name, entry.uidvalidity),
                               "vnd.onecopy.mailbox": entry.id}
    if former is not None:
        said["oldMailboxID"] = mailbox_url(server, former.name, former.uidvalidity)
    return Event(kind, entry.name.owner, entry.name, said, None if former is None else former.name)


def of_subscription(user: str, name: str, server: str, *, subscribed: bool) -> Event:
    """A user has subscribed to a mailbox, or is subscribed no more; there need be no such mailbox."""
    url = f"imap://{quote(user, safe='')}@{server}/{quote(name)}"
    return Event(SUBSCRIBE if subscribed else UNSUBSCRIBE, user, None, {"mailboxID": url})
