"""What the store should do, told with dictionaries: the mailboxes, and what each operation gives or is refused for.

An operation looks first and changes afterwards, so one that is refused changes nothing. Where two reasons forbid it
either may be given: a refusal is a set of problems.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from attrs import define, evolve, field

from mboxlist.names import MailboxName
from store.errors import Problem
from store.values import Flag, FlagAction
from tests.store.model.boxes import Box, Message, changed

USERS = ("alice", "bob", "carol")
PRIVATE = Flag.SEEN | Flag.FLAGGED      # of each reader of somebody else's mailbox
PURGE_DELAY = 1000                      # seconds
MAILBOX_LIMIT = 5
RIGHTS = "lrswipkxtea"

Reference = str | tuple[str, int, int]      # a mailbox: its name, or the name, id, UIDVALIDITY that it once had
Refused = frozenset[Problem]


class Refusal(Exception):
    """The operation is to be refused for one of these reasons."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__()
        self.problems = frozenset(problems)


def private(name: str, reader: str) -> Flag:
    """The flags that this reader has of its own in the mailbox of that name."""
    return PRIVATE if reader and MailboxName.parse(name).owner != reader else Flag(0)


@define(eq=False)
class Expected:
    """The store. `now` is the Unix time; `files` the message files, each with the trace header at its head."""

    now: int
    boxes: dict[str, Box] = field(factory=dict)
    deleted: list[tuple[int, str, Box]] = field(factory=list)           # when, the name
    gone: list[Box] = field(factory=list)                               # of which only what was expunged is left
    limits: dict[str, tuple[int | None, int | None]] = field(factory=dict)
    roots: set[str] = field(factory=set)                                # quota roots of mailboxes of their own
    files: dict[bytes, bytes] = field(factory=dict)
    due: dict[bytes, int] = field(factory=dict)                         # when a reference to the file last went
    snapshots: dict[int, set[bytes]] = field(factory=dict)              # the files that each refers to
    duplicates: dict[tuple[bytes, bytes, int], int] = field(factory=dict) # until when a message does not come again

    # Looking

    def box(self, of: Reference, *more: Reference) -> Box:
        """The mailbox; refused if it, or one of `more`, is not there."""
        found = [self._find(each) for each in (of, *more)]
        if None in found:
            raise Refusal({Problem.NO_MAILBOX})
        return found[0]

    def _find(self, of: Reference) -> Box | None:
        if isinstance(of, str):
            return self.boxes.get(of)
        return next((box for box in self.boxes.values() if box.id == of[1]), None)

    def name_of(self, of: Reference) -> str:
        """The name that the caller believes the mailbox has."""
        return of if isinstance(of, str) else of[0]

    def tree(self, name: str) -> list[str]:
        """The mailbox of that name and those below it, in order."""
        return sorted(each for each in self.boxes if each == name or each.startswith(name + "/"))

    def owned(self, owner: str) -> list[str]:
        """The names of an owner's mailboxes ("": the public ones)."""
        return [name for name in self.boxes if MailboxName.parse(name).owner == owner]

    def used(self) -> Counter[bytes]:
        """How many records of mailboxes use each message file; those of mailboxes that can be brought back count."""
        every = (*self.boxes.values(), *(box for _, _, box in self.deleted))
        return Counter(message.body for box in every for message in box.messages.values())

    def references(self) -> Counter[bytes]:
        """The same, and what was expunged and can be brought back."""
        return self.used() + Counter(message.body for box in self.every() for _, _, message in box.expunged)

    def every(self) -> Iterator[Box]:
        """The mailboxes of which anything is left."""
        return chain(self.boxes.values(), (box for _, _, box in self.deleted), self.gone)

    # Rights (RFC 4314)

    def rights(self, name: str, user: str) -> set[str]:
        """The letters of the rights that the user has on the mailbox; an owner can always look it up and share it."""
        box, owner = self.boxes[name], MailboxName.parse(name).owner == user
        held = set(RIGHTS if owner and user not in box.acl else box.acl.get(user, "")) | set(box.acl.get("anyone", ""))
        held -= set(box.acl.get(f"-{user}", "")) | set(box.acl.get("-anyone", ""))
        return held | set("la" if owner else "")

    def changeable(self, of: Reference, reader: str) -> tuple[Flag, bool]:
        """The system flags that the reader ("": the store itself) may change, and whether keywords too."""
        held = self.rights(self.name_of(of), reader) if reader else set(RIGHTS)
        flags = {"s": Flag.SEEN, "t": Flag.DELETED, "w": Flag.ANSWERED | Flag.FLAGGED | Flag.DRAFT}
        return Flag(sum(flags[right] for right in flags.keys() & held)), "w" in held

    def set_acl(self, name: str, identifier: str, modification: str) -> None:
        """SETACL: other rights, more (+) or fewer (-) of them."""
        box, sign = self.boxes.get(name), modification[:1] if modification[:1] in "+-" else ""
        unknown = identifier.lstrip("-") not in (*USERS, "anyone") and modification != "" and sign != "-"
        if box is None or unknown:
            raise Refusal({Problem.NO_MAILBOX} if not unknown else {Problem.NO_USER} if box else {
                Problem.NO_USER, Problem.NO_MAILBOX})
        owner = MailboxName.parse(name).owner == identifier      # who has all rights until the list says otherwise
        old, letters = set(box.acl.pop(identifier, RIGHTS if owner else "")), set(modification[len(sign):])
        held = {"": letters, "+": old | letters, "-": old - letters}[sign] | set("la" if owner and modification else "")
        if held and not (owner and held == set(RIGHTS)):
            box.acl[identifier] = "".join(sorted(held))

    # Quota

    def root(self, name: str) -> str:
        """The quota root of the mailbox of that name."""
        owner = name.split("/")[1] if name.startswith("user/") else ""
        path = name.removeprefix("user/")
        while path:
            if path in self.roots:
                return path
            path = path.rpartition("/")[0]
        return owner or "/".join(name.split("/")[:2])

    def use(self, root: str) -> tuple[int, int]:
        """Octets and messages that a root uses."""
        texts = [message.text for name, box in self.boxes.items() if self.root(name) == root
                 for message in box.messages.values()]
        return sum(map(len, texts)), len(texts)

    def fits(self, name: str, octets: int, messages: int) -> bool:
        """Whether that much more fits into the mailbox's quota root."""
        root = self.root(name)
        most, most_messages = self.limits.get(root, (None, None))
        used, count = self.use(root)
        return (most is None or used + octets <= most) and (most_messages is None or count + messages <= most_messages)

    def set_quota(self, root: str, octets: int | None, messages: int | None) -> None:
        """Set a root's limits; a mailbox that has none of its own gets one."""
        self.limits[root] = octets, messages
        if root.count("/") > root.startswith("public/"):        # public mailboxes have one for each first level
            self.roots.add(root)

    def remove_quota_root(self, root: str) -> None:
        """A mailbox has none of its own any more."""
        if root not in self.roots:
            raise Refusal({Problem.BAD_NAME})
        self.roots.remove(root)
        del self.limits[root]

    # Messages

    def deliver(self, targets: list[Reference], body: bytes, trace: bytes, flags: Flag, words: tuple[str, ...],
                reader: str, headers: list[bytes] = [], window: int = 0) -> list[int | str | Refused]:  # noqa: B006
        """The UID in each mailbox, "again", or why it was refused alone. Names are looked up first, and must all be
        there.

        With a `reader` it is an APPEND by that user. `headers` are fields that it gets in each mailbox, in turn; what
        has a Message-ID comes once in so many seconds from a sender to a mailbox.
        """
        for each in targets:
            if isinstance(each, str):
                self.box(each)
        text = trace + body             # its own, also when the content is there already with another
        outcomes: list[int | str | Refused] = [frozenset()] * len(targets)
        ident = body.partition(b"Message-ID: ")[2].partition(b"\r\n")[0]
        places = [self._find(each) for each in targets]
        for at in sorted(range(len(targets)), key=lambda at: _id(targets[at], places[at])):
            box, problems = places[at], set()
            if box is None:
                outcomes[at] = frozenset({Problem.NO_MAILBOX})
                continue
            key = ident, _sender(trace), box.id
            if ident and window and self.duplicates.get(key, 0) > self.now:
                outcomes[at] = "again"
                continue
            shown = (headers[at % len(headers)] if headers else b"") + text
            if box.lacks(words):
                problems.add(Problem.LIMIT)
            if not self.fits(self.name_of(targets[at]), len(shown), 1):
                problems |= {Problem.OVER_QUOTA} if reader else {Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED}
            if problems:
                outcomes[at] = frozenset(problems)
                continue
            box.learn(words)
            mine = private(self.name_of(targets[at]), reader)
            uid = outcomes[at] = box.add(Message(body, shown, flags & ~mine, frozenset(map(str.lower, words))))
            if window:
                self.duplicates[key] = self.now + window
            if flags & mine:
                box.change_own(uid, reader, flags & mine)
            self.files.setdefault(body, trace)
        return outcomes

    def copy(self, source: Reference, target: Reference, uids: list[int], remove: bool, reader: str) -> list[int]:
        """COPY and MOVE: all or nothing; flags as the reader sees them. The new UIDs."""
        old, new = self.box(source, target), self.box(target)
        if any(uid not in old.messages for uid in uids):
            raise Refusal({Problem.GONE})
        here, there = self.name_of(source), self.name_of(target)
        allowed, keywords = self.changeable(target, reader)
        messages = {uid: evolve(old.messages[uid], words=old.messages[uid].words if keywords else frozenset())
                    for uid in sorted(set(uids))}
        problems = set()
        octets = sum(len(message.text) for message in messages.values())
        if messages and not (remove and self.root(here) == self.root(there)) and not self.fits(
                there, octets, len(messages)):
            problems.add(Problem.OVER_QUOTA)
        used = {word for message in messages.values() for word in message.words}
        words = [old.words[word] for word in old.words if word in used]
        if new.lacks(words):
            problems.add(Problem.LIMIT)
        if problems:
            raise Refusal(problems)
        new.learn(words)
        mine = private(there, reader)
        flags = {uid: old.shown(uid, reader, private(here, reader)) & allowed for uid in messages}
        made = []
        for uid, message in messages.items():
            made.append(new.add(evolve(message, flags=flags[uid] & ~mine)))
            if flags[uid] & mine:
                new.change_own(made[-1], reader, flags[uid] & mine)
        if remove:
            for uid in messages:
                old.take(uid)
        return made

    def change_flags(self, of: Reference, uids: list[int], action: FlagAction, flags: Flag, words: tuple[str, ...],
                     reader: str) -> list[int]:
        """STORE; the UIDs that are gone. Flags that the reader may not change stay as they are (RFC 4314 §4)."""
        box = self.box(of)
        allowed, keywords = self.changeable(of, reader)
        nothing = not flags and not words
        flags, words = flags & allowed, words if keywords else ()
        if not (flags or words) and (not nothing or not (allowed or keywords)):
            raise Refusal({Problem.NO_PERMISSION})
        if action is not FlagAction.REMOVE and box.lacks(words):
            raise Refusal({Problem.LIMIT})
        mine, moved = private(self.name_of(of), reader), box.moved
        given = frozenset(word.lower() for word in words)
        box.moved = False
        for uid in set(uids) & box.messages.keys():
            old = box.messages[uid]
            now = {FlagAction.ADD: old.words | given, FlagAction.REMOVE: old.words - given,
                   FlagAction.REPLACE: given if keywords else old.words}[action]
            box.change(uid, changed(action, old.flags, flags, allowed & ~mine), now)
            if mine:
                box.change_own(uid, reader, changed(action, box.own.get(reader, {}).get(uid, Flag(0)), flags,
                                                     allowed & mine))
        if box.moved and action is not FlagAction.REMOVE:
            box.learn(words)
        box.moved |= moved
        return sorted(set(uids) - box.messages.keys())

    def expunge(self, of: Reference, uids: list[int] | None) -> list[int]:
        """EXPUNGE, or UID EXPUNGE of these; the UIDs removed."""
        box = self.box(of)
        return self._remove(box, [uid for uid in box.messages if box.messages[uid].flags & Flag.DELETED
                                  and (uids is None or uid in uids)])

    def remove(self, of: Reference, uids: list[int]) -> list[int]:
        """Remove these messages, flagged or not; the UIDs that were there."""
        box = self.box(of)
        return self._remove(box, set(uids) & box.messages.keys())

    def _remove(self, box: Box, uids: Iterable[int]) -> list[int]:
        doomed = sorted(uids)
        for uid in doomed:
            message = box.take(uid)
            box.expunged.append((self.now, uid, message))
            self.due[message.body] = self.now
        return doomed

    def deleted_messages(self, of: Reference, since: int) -> list[tuple[int, int, int]]:
        """When each message that can be brought back was expunged, its UID and size."""
        return [(when, uid, len(message.text)) for when, uid, message in self.box(of).expunged if when >= since]

    def undelete_messages(self, of: Reference, since: int, uids: list[int] | None) -> list[int]:
        """Bring back what was expunged since then, all or those; the new UIDs. Quota does not count."""
        box = self.box(of)
        chosen = [item for item in box.expunged if item[0] >= since and (uids is None or item[1] in uids)]
        box.expunged = [item for item in box.expunged if item not in chosen]
        return [box.add(evolve(message, flags=message.flags & ~Flag.DELETED)) for _, _, message in chosen]

    def claim_recent(self, of: Reference) -> tuple[int, int]:
        r"""The UIDs that are \Recent to the caller and to nobody else: the first, and one past the last."""
        box = self.box(of)
        first, box.recent = box.recent, box.uidnext
        return first, box.uidnext

    # Mailboxes

    def create(self, name: str) -> None:
        """CREATE; who calls puts the new mailbox into `boxes`."""
        owner, problems = MailboxName.parse(name).owner, set()
        if name in self.boxes:
            problems.add(Problem.MAILBOX_EXISTS)
        if owner and owner not in USERS:
            problems.add(Problem.NO_USER)
        if len(self.owned(owner)) >= MAILBOX_LIMIT:
            problems.add(Problem.LIMIT)
        if problems:
            raise Refusal(problems)

    def delete(self, name: str) -> None:
        """DELETE: those below stay (RFC 3501 §6.3.4)."""
        if MailboxName.parse(name).is_inbox():
            raise Refusal({Problem.NO_PERMISSION})
        box = self.box(name)
        self.deleted.append((self.now, name, self.boxes.pop(name)))
        box.moved = True

    def undelete(self, name: str, new: str) -> int:
        """Bring back the mailbox that was last deleted under that name; its id."""
        there = [(when, box.id) for when, old, box in self.deleted if old == name]
        problems = set()
        if not there:
            problems.add(Problem.NO_MAILBOX)
        if MailboxName.parse(name).owner != MailboxName.parse(new).owner:
            problems.add(Problem.NO_PERMISSION)
        if new in self.boxes:
            problems.add(Problem.MAILBOX_EXISTS)
        if problems:
            raise Refusal(problems)
        at = next(at for at, (when, _, box) in enumerate(self.deleted) if (when, box.id) == max(there))
        box = self.boxes[new] = self.deleted.pop(at)[2]
        box.moved = True
        return box.id

    def rename(self, old: str, new: str) -> None:
        """RENAME of a mailbox and all below it, not of INBOX (RFC 3501 §6.3.5)."""
        here, there = MailboxName.parse(old), MailboxName.parse(new)
        if here.owner != there.owner:
            raise Refusal({Problem.NO_PERMISSION})
        tree, problems = self.tree(old), set()
        if there.is_below(here) or there.is_inbox():
            problems.add(Problem.BAD_NAME)
        if not tree:
            problems.add(Problem.NO_MAILBOX)
        moved = {each: new + each[len(old):] for each in tree}
        if any(len(each.encode()) - len(f"user/{here.owner}/") > 900 for each in moved.values()):
            problems.add(Problem.BAD_NAME)
        if new in self.boxes or set(moved.values()) & (self.boxes.keys() - set(tree)):
            problems.add(Problem.MAILBOX_EXISTS)
        if self._crowded(moved):
            problems.add(Problem.OVER_QUOTA)
        if problems:
            raise Refusal(problems)
        boxes = {moved[each]: self.boxes.pop(each) for each in tree}
        self.boxes.update(boxes)

    def _crowded(self, moved: dict[str, str]) -> bool:
        """Whether mailboxes that get other names do not fit into the quota roots of those."""
        coming: dict[str, list[str]] = {}
        for old, new in moved.items():
            if self.root(old) != self.root(new) and self.boxes[old].messages:
                coming.setdefault(self.root(new), []).append(old)
        for olds in coming.values():
            texts = [message.text for old in olds for message in self.boxes[old].messages.values()]
            if not self.fits(moved[olds[0]], sum(map(len, texts)), len(texts)):
                return True
        return False

    def rename_inbox(self, name: str, new: str) -> list[int]:
        """RENAME of INBOX: its messages move to a new mailbox, which is in `boxes` already, and is shared as INBOX is;
        their UIDs."""
        self.boxes[new].acl = dict(self.boxes[name].acl)
        return self.copy(name, new, list(self.boxes[name].messages), True, "")

    # Purge

    def snapshot(self) -> None:
        """One is made."""
        self.snapshots[self.now] = set(self.used())

    def forget_snapshots(self) -> None:
        """All are removed."""
        self.snapshots.clear()

    def purge(self) -> None:
        """What was deleted or expunged before the delay goes for good; a snapshot keeps the files it refers to."""
        for when, _, box in [item for item in self.deleted if item[0] <= self.now - PURGE_DELAY]:
            self.deleted = [item for item in self.deleted if item[2] is not box]
            for message in box.messages.values():
                went = max(when, *self.snapshots, 0) if self.snapshots else when
                self.due[message.body] = max(self.due.get(message.body, 0), went)
            box.messages.clear()
            self.gone.append(box)
        until = min([self.now - PURGE_DELAY, *(made - 1 for made in self.snapshots)])
        for box in self.every():
            box.expunged = [item for item in box.expunged if item[0] > until]
        used = self.references()
        for body in [body for body in self.files if not used[body] and self.due[body] <= until]:
            del self.files[body], self.due[body]


def _sender(trace: bytes) -> bytes:
    return trace.partition(b"\n")[0]


def _id(of: Reference, box: Box | None) -> int:
    return box.id if box is not None else of[1]     # type: ignore[return-value]
