"""One row of the list of mailboxes."""

import json
from typing import NewType

from attrs import field, frozen

from mboxlist.names import MailboxName

MailboxId = NewType("MailboxId", int)


@frozen
class MailboxEntry:
    """What the list knows of a mailbox: who it is, where it lies, who may do what.

    `id` is never given again; `uidvalidity` is RFC 3501 §2.3.1.1's; `special_use` an attribute of RFC 6154 or None;
    `acl` maps identifiers to rights (RFC 4314); `created` is Unix time.
    """

    id: MailboxId
    name: MailboxName
    partition: str
    uidvalidity: int
    created: int
    special_use: str | None = None
    acl: dict[str, str] = field(factory=dict, hash=False)

    @property
    def object_id(self) -> str:
        """What clients and scripts know the mailbox by, whatever it is called (MAILBOXID, RFC 8474 §4): another one
        when its UIDVALIDITY is another."""
        return f"M{self.id:x}-{self.uidvalidity:x}"

    def to_bytes(self) -> bytes:
        """The row as it is stored; the name is its key."""
        values = {"id": self.id, "partition": self.partition, "uidvalidity": self.uidvalidity,
                  "created": self.created}
        if self.special_use:
            values["special_use"] = self.special_use
        if self.acl:
            values["acl"] = self.acl
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, name: MailboxName, data: bytes) -> "MailboxEntry":
        """The row named `name`."""
        return cls(name=name, **json.loads(data))
