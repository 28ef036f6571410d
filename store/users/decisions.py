"""What the delivery log has about messages and logins: which were refused, and why."""

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

from store import deliverylog
from store.accounts import rejectedlogins
from store.store import Store

MOST = 100              # of a list of decisions

Notes = Iterator[dict[str, Any]]


def of_messages(store: Store, message_id: str | None, recipient: str | None, sender: str | None, since: float, *,
                refused: bool, watched: Callable[[Notes], Notes] = iter) -> list[dict[str, Any]]:
    """The latest decisions about such messages since that Unix time, the oldest first. The notes are read through
    `watched`, which may count them."""
    names = _names(store, recipient) if recipient else frozenset()
    marks = (json.dumps(message_id.strip("<>"), ensure_ascii=False)[1:-1],) if message_id else ()
    found = []
    for each in watched(deliverylog.read(store.root, since, marks)):
        to = each.get("to", [])
        if message_id and message_id not in (
                each.get("id"), each.get("message_id"), str(each.get("message_id", "")).strip("<>")):
            continue
        if sender and str(each.get("from", "")).lower() != sender.lower():
            continue
        if names:
            to = [one for one in to if one.get("recipient", "").lower() in names or _owner(one) in names]
        if refused:
            to = [one for one in to if one.get("reply", "")[:1] in ("4", "5", "N")]
        if to:
            found.append({**each, "to": to})
    found.sort(key=lambda each: each["time"])
    return found[-MOST:]


def _names(store: Store, address: str) -> frozenset[str]:
    """The address, and the user id and addresses of whose it is."""
    found = store.directory.look_up(address)
    known = (found.user, *found.aliases) if found is not None else ()
    ending = f"@{store.settings.default_domain}"
    given = [name.lower() for name in (address, *known)]
    return frozenset([*given, *(name.removesuffix(ending) for name in given),
                      *(name + ending for name in given if "@" not in name)])


def _owner(one: dict[str, Any]) -> str:
    """The user id of the owner of the mailbox that it came to."""
    first, _, rest = one.get("mailbox", "").partition("/")
    return str(rest.partition("/")[0]) if first == "user" else ""


def of_logins(store: Store, users: Collection[str], peer: str, since: float,
              watched: Callable[[Notes], Notes] = iter) -> list[dict[str, Any]]:
    """The latest refused logins of these users since that Unix time, the oldest first. With `peer` only those from
    there, also of clients that did not say who they are."""
    notes = deliverylog.read(store.root, since, (f'"kind": "{rejectedlogins.KIND}"',))
    found = [each for each in watched(notes)
             if each.get("kind") == rejectedlogins.KIND and peer in ("", each.get("peer")) and (
                 each.get("user") in users or peer and not each.get("user"))]
    found.sort(key=lambda each: each["time"])
    return found[-MOST:]
