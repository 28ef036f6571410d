"""What a script can learn of the store around it."""

import re
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from mboxlist.annotations import EVENT_SCRIPT, PRIVATE, is_hidden
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName, NameProblem, legal_path
from store.filtering.externallists import ExternalLists
from store.filtering.sievesettings import Settings
from store.mailboxes import authorization
from store.sieve.receivedmail import ReceivedMail
from store.sieve.surroundings import Surroundings
from store.tables.duplicates import Duplicates

if TYPE_CHECKING:
    from store.store import Store

REMEMBERED = 20_000         # answers about special uses
LONGEST_USE = 100           # characters; longer than any there is
_OBJECT_ID = re.compile(r"M([0-9a-f]{1,8})-[0-9a-f]{1,8}")
_SCORE = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def mailbox_of(store: "Store", user: str, name: str) -> MailboxEntry | None:
    """The mailbox that a script of the user means, if the user may file into it (RFC 4314 §4, `i`)."""
    try:
        found = store.mailboxes.find(name_of(user, name))
    except NameProblem:
        return None
    return found if found is not None and authorization.may(store, user, found, "i") else None


def mailbox_of_id(store: "Store", user: str, mailbox_id: str) -> MailboxEntry | None:
    """The mailbox of that id (`MailboxEntry.object_id`), if the user may file into it."""
    found = _OBJECT_ID.fullmatch(mailbox_id)
    entry = store.mailboxes.find_id(MailboxId(int(found[1], 16))) if found is not None else None
    if entry is None or entry.object_id != mailbox_id:
        return None
    return entry if authorization.may(store, user, entry, "i") else None


def name_of(user: str, name: str) -> MailboxName:
    """The name of a mailbox as the user's scripts write it: as in IMAP. Raises NameProblem."""
    named = MailboxName.from_client(user, name)
    return MailboxName(named.owner, legal_path(named.path))


@frozen(eq=False)
class StoreSurroundings(Surroundings):
    """The store, as the scripts of `user` may know it."""

    store: "Store" = field(kw_only=True)
    user: str = field(kw_only=True)
    settings: Settings = field(kw_only=True)
    duplicates: Duplicates = field(kw_only=True)
    lists: ExternalLists = field(kw_only=True)
    key: bytes = field(kw_only=True)                # what keys of `duplicate` begin with

    def has_mailbox(self, name: str) -> bool:
        """See Surroundings."""
        return mailbox_of(self.store, self.user, name) is not None

    def has_mailbox_id(self, mailbox_id: str) -> bool:
        """See Surroundings."""
        return mailbox_of_id(self.store, self.user, mailbox_id) is not None

    def has_special_use(self, mailbox: str, use: str) -> bool:
        """See Surroundings."""
        if not mailbox:
            return special(self.store, self.user, use) is not None
        entry = mailbox_of(self.store, self.user, mailbox)
        return entry is not None and (entry.special_use or "").lower() == use.lower()

    def metadata(self, mailbox: str | None, name: str) -> str | None:
        """See Surroundings; of the server it is known which script runs on events of IMAP."""
        if mailbox is None and name.lower() == EVENT_SCRIPT and self.settings.imap_script:
            return self.settings.imap_script
        entry = mailbox_of(self.store, self.user, mailbox) if mailbox is not None else None
        name = name.lower()
        if entry is None or is_hidden(name) or not authorization.may(self.store, self.user, entry, "r"):
            return None
        whose = self.user if name.startswith(PRIVATE) else ""
        value = self.store.mailboxes.annotations.get(entry.id, name, whose)
        return None if value is None else value.decode("utf-8", "replace")

    def seen(self, key: str) -> bool:
        """See Surroundings."""
        return self.duplicates.is_noted(seen_key(self.key, key))

    def has_list(self, name: str) -> bool:
        """See Surroundings, and `ExternalLists` for what more it raises."""
        return self.lists.has(name)

    def in_list(self, name: str, address: str) -> bool:
        """See Surroundings, and `ExternalLists` for what more it raises."""
        return self.lists.holds(name, address)

    def spam(self, message: ReceivedMail) -> float | None:
        """See Surroundings."""
        score = _first(message.texts(self.settings.spam_header), _SCORE)
        if score is None:
            return None
        most = float(self.settings.spam_most)
        return min(max(float(score) / most, 0.0), 1.0)

    def virus(self, message: ReceivedMail) -> int:
        """See Surroundings."""
        said = " ".join(message.texts(self.settings.virus_header)[:1]).lower()
        return 5 if said.startswith(("infected", "yes")) else 1 if said.startswith(("clean", "no")) else 0


@define(eq=False)
class SpecialUses:
    """Where the users' mailboxes of special use are, as far as this process has looked for them: a user may have
    thousands of mailboxes, and a script asks for each message. What is remembered is compared with its row; that there
    is none counts until anything in the list changes."""

    _known: OrderedDict[tuple[str, str], MailboxId | tuple[int, int]] = field(factory=OrderedDict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def find(self, store: "Store", user: str, use: str) -> MailboxEntry | None:
        """See `special`."""
        with self._lock:
            known = self._known.get((user, use))
        if isinstance(known, tuple):
            if known == store.mailboxes.version():
                return None
        elif known is not None:
            entry = store.mailboxes.find_id(known)
            if entry is not None and _has_use(entry, user, use):
                return entry
        version = store.mailboxes.version()
        found = next((entry for entry in store.names(user) if _has_use(entry, user, use)), None)
        with self._lock:
            self._known[user, use] = version if found is None else found.id
            self._known.move_to_end((user, use))
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found


def special(store: "Store", user: str, use: str) -> MailboxEntry | None:
    """The user's own mailbox of that use (RFC 6154)."""
    return store.owned.get(SpecialUses, SpecialUses).find(store, user, use.lower()[:LONGEST_USE])


def _has_use(entry: MailboxEntry, user: str, use: str) -> bool:
    return entry.name.owner == user and (entry.special_use or "").lower() == use


def _first(values: Iterable[str], pattern: re.Pattern[str]) -> str | None:
    for value in values:
        found = pattern.search(value)
        return None if found is None else found[0]
    return None


def owned_key(store: "Store", entry: MailboxEntry) -> bytes:
    """What keys in `arrivals.db` begin with that belong to the scripts of the owner of that mailbox."""
    inbox = entry if entry.name.is_inbox() else store.mailboxes.find(MailboxName(entry.name.owner, INBOX)) or entry
    return b"sieve\0%d\0" % inbox.id


def seen_key(begin: bytes, key: str) -> bytes:
    """The key in `arrivals.db` of something that scripts of one user remember."""
    return blake2b(begin + key.encode("utf-8", "replace"), digest_size=16).digest()
