"""Why something is as it is, from what is stored: rights, quota, where a message has gone. Changes nothing."""

import heapq
import shlex
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import field, frozen

from mboxlist import acl
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import SEPARATOR
from store.errors import Problem, StoreError
from store.mailboxes import authorization as store_rights
from store.operations import clockrecord
from store.quota import roots as quotaroots
from store.store import Store
from store.tables.counters import counters_of
from store.tables.quotatable import DEFAULT, DOMAIN, QuotaUse, domain_of
from store.values import readable

# What RFC 4314 §2.1 and §4 let somebody do with each right.
MEANINGS = {
    "l": "see the mailbox in lists", "r": "open and read it", "s": "mark messages as seen", "w": "set other flags",
    "i": "put messages into it", "p": "send mail to it", "k": "make mailboxes below it", "x": "rename or delete it",
    "t": "mark messages as deleted", "e": "expunge messages", "a": "change who may do what"}
LARGEST = 10            # messages that are named


@frozen
class Right:
    """One right of a user on a mailbox: whether it is held, what it is for, and what gives it or takes it away."""

    right: str
    held: bool
    meaning: str
    because: tuple[str, ...]


@frozen
class Access:
    """A user's rights on a mailbox. `notes` says what else counts."""

    user: str
    mailbox: str
    owner: str
    groups: tuple[str, ...]
    acl: Mapping[str, str]
    rights: tuple[Right, ...]
    notes: tuple[str, ...]

    @property
    def held(self) -> str:
        """The rights that the user has, in their order."""
        return "".join(each.right for each in self.rights if each.held)


def access(store: Store, user: str, entry: MailboxEntry) -> Access:
    """Which entries, groups and rules give each right or deny it. `user` "" is a stranger (who sends mail)."""
    account = store.directory.find(user) if user else None
    groups = tuple(account.groups) if account is not None else ()
    names = acl.identifiers(user, groups)
    owner = entry.name.owner == user != ""
    held = store_rights.rights(store, user, entry)
    found = tuple(Right(letter, letter in held, MEANINGS[letter], tuple(_reasons(entry, user, names, owner, letter)))
                  for letter in acl.RIGHTS)
    return Access(user, str(entry.name), entry.name.owner, groups, entry.acl, found,
                  tuple(_notes(store, user, entry, names, held)))


def _reasons(entry: MailboxEntry, user: str, names: list[str], owner: bool, letter: str) -> list[str]:
    """What gives or takes one right."""
    found = []
    if owner and user not in entry.acl:
        found.append(f"{user} owns the mailbox, and its list does not limit that")
    for name in names:
        if letter in entry.acl.get(name, "") and not (owner and name != user and user not in entry.acl):
            found.append(f"the entry {name} gives it")
    for name in names:
        if letter in entry.acl.get(acl.NEGATIVE + name, ""):
            found.append(f"the entry {acl.NEGATIVE}{name} takes it away")
    if owner and letter in acl.ALWAYS_OWNER:
        found.append("it cannot be taken from the owner")
    return found or ["the owner's own entry does not give it" if owner else "no entry gives it"]


def _notes(store: Store, user: str, entry: MailboxEntry, names: list[str], held: str) -> list[str]:
    notes = []
    if not entry.acl:
        notes.append("nothing is shared: the mailbox has no access control list"
                     if entry.name.owner else "nobody has any right: the public mailbox has no access control list")
    unused = [name for name in entry.acl if name.removeprefix(acl.NEGATIVE) not in names]
    if unused and user:
        notes.append(f"these entries do not speak of {user}: {', '.join(unused)}")
    missing = [name.removeprefix(acl.NEGATIVE) for name in unused
               if acl.is_user(name.removeprefix(acl.NEGATIVE)) and store.directory.find(
                   name.removeprefix(acl.NEGATIVE)) is None]
    if missing:
        notes.append(f"there are no such users, or the store has not met them: {', '.join(missing)}")
    if user and entry.name.owner != user and held and "l" not in held:
        notes.append("without l it is in no list; a client must know its name")
    if not set(held) & store_rights.KNOWN_BY:
        notes.append("to this user it looks as if the mailbox were not there")
    return notes


@frozen
class Root:
    """A quota root of a user. `verdict`: ok, nearly full, refused for now, refused for good; times are Unix times."""

    root: str
    use: QuotaUse
    charged: int
    octet_limit: int | None
    message_limit: int | None
    default: bool                       # whether the limit on octets is the store's default
    per_cent: int | None
    verdict: str
    refused_since: int | None
    refused_for_good: int | None


@frozen
class Quota:
    """Why a user's mail is taken or refused. `largest` and `mailboxes` go from the largest down; `waiting` is octets
    and messages that were expunged and can be restored: they do not count."""

    user: str
    roots: tuple[Root, ...]
    mailboxes: tuple[dict[str, Any], ...]
    largest: tuple[dict[str, Any], ...]
    waiting: tuple[int, int]
    enforced: bool
    advice: tuple[str, ...] = field(default=())


def quota(store: Store, user: str, now: float | None = None) -> Quota:
    """The user's roots, and that of the domain, with what fills them."""
    entries = store.names(user)
    states = {entry.id: store.status(entry) for entry in entries}
    found = [user, *(name for name in quotaroots.all_roots(store) if name.startswith(user + SEPARATOR))]
    domain = DOMAIN + (domain_of(user) or store.settings.default_domain)
    if domain in quotaroots.all_roots(store):
        found.append(domain)
    when = time.time() if now is None else now
    roots = tuple(_root(store, root, when) for root in found)
    mailboxes = sorted(({"mailbox": entry.name.to_client(user), "root": states[entry.id].quota_root,
                         "octets": states[entry.id].octets, "messages": states[entry.id].messages,
                         "deleted": states[entry.id].deleted} for entry in entries),
                       key=lambda row: -int(str(row["octets"])))
    made = Quota(user, roots, tuple(mailboxes), tuple(_largest(store, entries, user)), _waiting(store, entries),
                 store.settings.quota_enforce)
    return Quota(user, roots, made.mailboxes, made.largest, made.waiting, made.enforced, tuple(_advice(store, made)))


def _root(store: Store, root: str, now: float) -> Root:
    settings, use = store.settings, quotaroots.quota(store, root)
    octets, messages = use.limits(settings)
    room, grace = use.has_room(1, 1, settings), settings.quota_grace
    verdict, for_good = "ok", use.refused + grace if use.refused and not room else None
    if not room:
        verdict, is_over = "refused for now", use.refused and now - use.refused >= grace
        if is_over and clockrecord.holds_back(store.root, now):
            for_good = None
        elif is_over:
            verdict = "refused for good"
    elif use.deserves_warning(settings):
        verdict = "nearly full"
    return Root(root, use, use.octets, octets, messages, use.octet_limit == DEFAULT, use.per_cent(settings),
                verdict, use.refused or None, for_good)


def _largest(store: Store, entries: list[MailboxEntry], user: str) -> list[dict[str, Any]]:
    found: list[tuple[int, str, int, int]] = []
    for entry in entries:
        try:
            rows = store.open_mailbox(entry).rows
        except StoreError:
            continue                            # deleted meanwhile, or damaged: its figures are shown
        top = rows[np.argsort(rows["size"], kind="stable")[-LARGEST:]]
        found += zip(top["size"].tolist(), [entry.name.to_client(user)] * len(top), top["uid"].tolist(),
                     top["received"].tolist(), strict=True)
    return [{"mailbox": mailbox, "uid": uid, "octets": size, "received": received}
            for size, mailbox, uid, received in heapq.nlargest(LARGEST, found)]


def _waiting(store: Store, entries: list[MailboxEntry]) -> tuple[int, int]:
    ids = {entry.id for entry in entries}
    sums = [counters_of(item.rows) for name in {entry.partition for entry in entries}
            for item in store.partition(name).removed.all() if item.mailbox in ids]
    return sum(each.octets for each in sums), sum(each.messages for each in sums)


def _advice(store: Store, found: Quota) -> list[str]:
    full = [root for root in found.roots if root.verdict.startswith("refused")]
    if not full or not found.enforced:
        return [] if found.enforced else ["limits do not hold: store.quota_enforce is no"]
    said = []
    for root in full:
        said.append(f"{root.root} is full: give it more (onecopy quota set {shlex.quote(root.root)} --octets SIZE), or "
                    "have mail removed")
    deleted = sum(row["deleted"] for row in found.mailboxes)
    if deleted:
        said.append(f"{deleted} messages are marked as deleted and still count: they go when a client expunges")
    trash = [row for row in found.mailboxes if row["octets"] and _is_trash(store, found.user, row["mailbox"])]
    said += [f"{row['mailbox']} holds {readable(row['octets'])}" for row in trash]
    return said


def _is_trash(store: Store, user: str, mailbox: str) -> bool:
    return any(entry.special_use in ("\\Trash", "\\Junk") for entry in store.names(user)
               if entry.name.to_client(user) == mailbox)


def fate(store: Store, own_digest: str, mailbox: int, uid: int) -> str:
    """Where a message that was delivered to that mailbox, under that UID, is now, in words."""
    entry = store.mailboxes.find_id(MailboxId(mailbox))
    if entry is None:
        return "the mailbox has been deleted since"
    digest = bytes.fromhex(own_digest)
    try:
        if store.open_mailbox(entry).row(uid) is not None:
            return f"it is there: {entry.name}, UID {uid}"
        others = [(other, found) for other in store.names(entry.name.owner) if (
            found := _uid_of(store, other, digest))]
    except StoreError as error:
        return "the mailbox cannot be read" if error.problem is Problem.CORRUPT else str(error)
    if others:
        return "it is now in " + ", ".join(f"{other.name}, UID {found}" for other, found in others)
    for item in store.partition_of(entry).removed.all():
        if item.mailbox == entry.id and uid in item.rows["uid"]:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(item.when))
            return f"it was expunged from {entry.name} at {stamp}, and can be restored (onecopy undelete)"
    return f"it is no longer in {entry.name}, nor in another mailbox of the owner"


def _uid_of(store: Store, entry: MailboxEntry, digest: bytes) -> int:
    rows = store.open_mailbox(entry).rows
    if not len(rows):
        return 0
    places = np.flatnonzero(rows["digest"] == np.void(digest))
    return int(rows["uid"][places[0]]) if len(places) else 0
