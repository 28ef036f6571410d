"""What readers can see of a store, and whether a store that was opened again shows what it must."""

import hashlib
from collections.abc import Collection, Iterator, Mapping

import numpy as np
from attrs import frozen

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.mailboxes import deletion
from store.store import Store

LOST = "lost"                   # of a message that cannot be read


@frozen
class Message:
    """A message in a mailbox."""

    uid: int
    modseq: int
    flags: int
    keywords: frozenset[str]
    received: tuple[int, int]
    octets: str                 # a digest of them, or LOST


@frozen
class Box:
    """A mailbox; `expunged` is what can be brought back: UID, octets, internal date."""

    uidvalidity: int
    uidnext: int
    highestmodseq: int
    messages: tuple[Message, ...]
    expunged: tuple[tuple[int, int, int], ...]


Picture = Mapping[str, Box]     # by name


def view(store: Store) -> Picture:
    """Everything that is there now."""
    found = {}
    for entry in store.mailboxes.all():
        mailbox = store.open_mailbox(entry)
        messages = []
        for row in mailbox.rows:
            messages.append(Message(
                int(row["uid"]), int(row["modseq"]), int(row["flags"]),
                frozenset(mailbox.keyword_names(int(row["keywords"]))), (int(row["received"]), int(row["zone"])),
                _octets(store, entry, row)))
        expunged = [(item.uid, item.size, item.received) for item in deletion.deleted_messages(store, entry)]
        found[str(entry.name)] = Box(mailbox.state.uidvalidity, mailbox.state.uidnext, mailbox.state.highestmodseq,
                                     tuple(messages), tuple(sorted(expunged)))
    return found


def _octets(store: Store, entry: MailboxEntry, row: np.void) -> str:
    try:
        with store.open_message(entry, row) as file:
            octets = file.read(0, file.size)
    except StoreError as error:
        if error.problem is not Problem.CORRUPT:
            raise
        return LOST
    assert int(row["size"]) == len(octets), f"{entry.name}: UID {row['uid']} is shorter than its size"
    return f"{len(octets)} {hashlib.blake2b(octets, digest_size=16).hexdigest()}"


def differences(found: Picture, wanted: Picture, known: Collection[str]) -> list[str]:
    """Where a store that was opened again is not as it was; numbers may have skipped ahead.

    UIDVALIDITY and HIGHESTMODSEQ are compared for the mailboxes that are `known`: of one that comes with a new
    UIDVALIDITY nobody has a MODSEQ.
    """
    said = [f"{name} is {'missing' if name in wanted else 'there'}" for name in sorted(found.keys() ^ wanted.keys())]
    for name in sorted(found.keys() & wanted.keys()):
        here, there = found[name], wanted[name]
        if name in known and here.uidvalidity != there.uidvalidity:
            said.append(f"{name}: UIDVALIDITY {here.uidvalidity} instead of {there.uidvalidity}")
        if here.messages != there.messages:
            said.append(f"{name}: {_difference(here.messages, there.messages)}")
        if here.expunged != there.expunged:
            said.append(f"{name}: expunged are {here.expunged} instead of {there.expunged}")
        if here.uidnext < there.uidnext:
            said.append(f"{name}: UIDNEXT {here.uidnext} after {there.uidnext}")
        if name in known and here.highestmodseq < there.highestmodseq:
            said.append(f"{name}: HIGHESTMODSEQ {here.highestmodseq} after {there.highestmodseq}")
    return said


def _difference(here: tuple[Message, ...], there: tuple[Message, ...]) -> str:
    missing, more = [each for each in there if each not in here], [each for each in here if each not in there]
    return f"missing {missing}, and there are {more}"


def retold(seen: Picture, found: Picture, *, lacks: bool = False) -> Iterator[str]:
    """Where a number that a reader has seen means something else now (RFC 3501 §2.3.1.1, RFC 7162 §3.1.1).

    `lacks`: a file that came back may not be here yet, where nobody has had an answer for it."""
    for name in seen.keys() & found.keys():
        here, there = found[name], seen[name]
        if here.uidvalidity != there.uidvalidity:
            continue
        octets = {message.uid: message.octets for message in there.messages}
        flags = {(message.uid, message.modseq): (message.flags, message.keywords) for message in there.messages}
        for message in here.messages:
            if octets.get(message.uid, message.octets) not in (
                    message.octets, LOST) and not (lacks and message.octets == LOST):
                yield f"{name}: UID {message.uid} is another message than it was"
            if flags.get((message.uid, message.modseq), (message.flags, message.keywords)) != (
                    message.flags, message.keywords):
                yield f"{name}: UID {message.uid} has other flags under the same MODSEQ {message.modseq}"
        if here.uidnext < there.uidnext:
            yield f"{name}: UIDNEXT is {here.uidnext} and was {there.uidnext}"
        if here.highestmodseq < there.highestmodseq:
            yield f"{name}: HIGHESTMODSEQ is {here.highestmodseq} and was {there.highestmodseq}"
