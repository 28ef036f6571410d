"""Annotations of mailboxes (RFC 5464): entry names such as /shared/comment, each with a value.

An INBOX also has those of `LAST_USE` and the Sieve scripts of its owner (`SCRIPTS`), which only the store sets: no name
of RFC 5464 begins like them, so that no client can ask for one.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from attrs import define

from mboxlist.entry import MailboxId

if TYPE_CHECKING:                   # who only wants to know the limits needs no database
    from mboxlist.engine.btree import Table, Txn

SHARED = "/shared/"
PRIVATE = "/private/"
OURS = SHARED + "vendor/onecopy/"      # what the store itself goes by; clients set none of these
LAST_LOGIN = "/onecopy/last-login"
LAST_READ = "/onecopy/last-read"
LAST_USE = frozenset((LAST_LOGIN, LAST_READ))
SCRIPTS = "/onecopy/sieve/"         # `store.filtering.userscripts`
ACTIVE_SCRIPT = SCRIPTS + "active"
MAX_NAME = 255              # octets
MAX_VALUE = 64 << 10        # octets
MAX_ENTRIES = 1000          # of one mailbox
_MARK = b"\x00"
ACTIVE_KEY = ACTIVE_SCRIPT.encode() + _MARK        # behind the id of an INBOX
EVENT_SCRIPT = "/shared/imapsieve/script"       # names the script that runs on events of IMAP (RFC 6785 §2.3.1)
EVENT_KEY = EVENT_SCRIPT.encode() + _MARK       # behind the id of a mailbox


@define(eq=False)
class Annotations:
    """`annotations.db`: mailbox id, entry name, and the user whose it is ("" for a shared one) -> value."""

    _table: "Table"

    def get(self, mailbox: MailboxId, name: str, user: str = "", txn: "Txn" = None) -> bytes | None:
        """The value of an entry."""
        return self._table.get(_key(mailbox, name, user), txn)

    def set(self, mailbox: MailboxId, name: str, value: bytes | None, txn: "Txn", user: str = "") -> None:
        """Set an entry; None removes it. Raises ValueError for a name, a value or a number of entries not allowed."""
        if value is None:
            self._table.delete(_key(mailbox, name, user), txn)
            return
        if not is_legal(name, private=bool(user)) and (user or not is_hidden(name)):
            raise ValueError("Not the name of an annotation")
        if len(value) > MAX_VALUE:
            raise ValueError("The annotation is too long")
        key = _key(mailbox, name, user)
        if self._table.get(key, txn) is None and sum(1 for _ in self.of(mailbox, txn)) >= MAX_ENTRIES:
            raise ValueError("There are too many annotations")
        self._table.put(key, value, txn)

    def of(self, mailbox: MailboxId, txn: "Txn" = None, below: str = "") -> Iterator[tuple[str, str, bytes]]:
        """All entries of a mailbox, or those whose names begin so: name, user, value; within a transaction
        they stay so to its end."""
        start = mailbox.to_bytes(4, "big") + below.encode()
        end = start + b"\xff" if below else (mailbox + 1).to_bytes(4, "big")
        for key, value in self._table.scan(start, end, txn, hold=txn is not None):
            name, _, user = key[4:].partition(_MARK)
            yield name.decode(), user.decode(), value

    def mailboxes(self, txn: "Txn" = None) -> Iterator[MailboxId]:
        """The mailboxes that have entries, in order of id."""
        last = -1
        for key, _ in self._table.scan(txn=txn):
            mailbox = int.from_bytes(key[:4], "big")
            if mailbox != last:
                yield MailboxId(mailbox)
            last = mailbox

    def of_user(self, user: str) -> list[bytes]:
        """The keys of the user's own, in all mailboxes. Looks at everything."""
        end = _MARK + user.encode()
        return [key for key, _ in self._table.scan() if key[4:].endswith(end)]

    def rename_user(self, keys: Iterable[bytes], new: str | None, txn: "Txn") -> None:
        """Whose these are has another name now, or (None) is no more; no harm if it was done before."""
        for key in keys:
            value = self._table.get_to_change(key, txn)
            if value is not None:
                self._table.delete(key, txn)
                if new is not None:
                    self._table.put(key[:4] + key[4:].partition(_MARK)[0] + _MARK + new.encode(), value, txn)

    def forget(self, mailbox: MailboxId, txn: "Txn") -> None:
        """The mailbox is no more."""
        for name, user, _ in list(self.of(mailbox, txn)):
            self._table.delete(_key(mailbox, name, user), txn)


def is_hidden(name: str) -> bool:
    """Whether only the store sets and reads that entry."""
    return name in LAST_USE or name.startswith(SCRIPTS)


def is_legal(name: str, *, private: bool) -> bool:
    """Whether this is the name of an entry (RFC 5464 §3.2), of a user's own or of all."""
    prefix = PRIVATE if private else SHARED
    levels = name.split("/")[2:]
    return (name.startswith(prefix) and len(name) <= MAX_NAME and name.isascii() and name.isprintable()
            and not set(name) & set("*% ") and all(levels))


def _key(mailbox: MailboxId, name: str, user: str) -> bytes:
    return mailbox.to_bytes(4, "big") + name.encode() + _MARK + user.encode()
