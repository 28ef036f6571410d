"""A mailbox of the model: what is in it, and what has changed since somebody last looked."""

from collections.abc import Iterable

from attrs import define, evolve, field, frozen

from store.values import Flag, FlagAction

MAX_KEYWORDS = 64


@frozen
class Message:
    """A message in a mailbox: its content, what a reader is given, the flags that all see, keywords in lower case."""

    body: bytes
    text: bytes
    flags: Flag
    words: frozenset[str]


@define(eq=False)
class Box:
    """A mailbox. `words` gives the spelling of each keyword; `own` a reader's own flags; `log` the MODSEQs of expunges.

    `told` is the HIGHESTMODSEQ that each reader last saw, `modseqs` the messages' own. What has changed since then:
    `touched`, messages that have a new MODSEQ for all (None) or for a reader; `moved`, HIGHESTMODSEQ must be a new one;
    `fresh`, UIDs that went. `header_lengths`: there was a crash, so UIDNEXT is not known.
    """

    id: int
    validity: int
    uidnext: int = 1
    recent: int = 1
    messages: dict[int, Message] = field(factory=dict)
    words: dict[str, str] = field(factory=dict)
    acl: dict[str, str] = field(factory=dict)
    own: dict[str, dict[int, Flag]] = field(factory=dict)
    expunged: list[tuple[int, int, Message]] = field(factory=list)      # when, UID
    log: list[tuple[int, int]] = field(factory=list)                    # MODSEQ, UID
    highest: int = 0
    told: dict[str, int] = field(factory=dict)
    modseqs: dict[str, dict[int, int]] = field(factory=dict)
    touched: set[tuple[int, str | None]] = field(factory=set)
    moved: bool = False
    fresh: set[int] = field(factory=set)
    header_lengths: bool = False

    def looked_at(self, readers: set[str], highest: int) -> None:
        """These readers have seen all; what changed for everybody is still new to the others."""
        self.moved, self.highest = False, highest
        self.fresh.clear()
        others = self.told.keys() - readers
        self.touched = {(uid, other) for uid, reader in self.touched
                        for other in (others if reader is None else {reader} - readers)}
        self.told.update(dict.fromkeys(readers, highest))

    def add(self, message: Message) -> int:
        """A new message; its UID."""
        uid, self.uidnext = self.uidnext, self.uidnext + 1
        self.messages[uid] = message
        self.touched.add((uid, None))
        self.moved = True
        return uid

    def take(self, uid: int) -> Message:
        """A message goes."""
        self.fresh.add(uid)
        self.moved = True
        return self.messages.pop(uid)

    def shown(self, uid: int, reader: str, private: Flag) -> Flag:
        """The system flags of a message as that reader sees them, who has these flags of its own."""
        return self.messages[uid].flags & ~private | self.own.get(reader, {}).get(uid, Flag(0)) & private

    def change(self, uid: int, flags: Flag, words: frozenset[str]) -> None:
        """Set the flags that all see."""
        old = self.messages[uid]
        if (old.flags, old.words) != (flags, words):
            self.messages[uid] = evolve(old, flags=flags, words=words)
            self.touched.add((uid, None))
            self.moved = True

    def change_own(self, uid: int, reader: str, flags: Flag) -> None:
        """Set a reader's own flags."""
        mine = self.own.setdefault(reader, {})
        if mine.get(uid, Flag(0)) != flags:
            mine[uid] = flags
            self.touched.add((uid, reader))
            self.moved = True

    def learn(self, words: Iterable[str]) -> None:
        """The mailbox has these keywords from now on."""
        for word in words:
            self.words.setdefault(word.lower(), word)

    def lacks(self, words: Iterable[str]) -> bool:
        """Whether there is no place for these keywords."""
        return len(self.words.keys() | {word.lower() for word in words}) > MAX_KEYWORDS


def changed(action: FlagAction, old: Flag, flags: Flag, mask: Flag) -> Flag:
    """The flags after a STORE that may change those in `mask` (RFC 3501 §6.4.6)."""
    if action is FlagAction.ADD:
        return old | flags & mask
    if action is FlagAction.REMOVE:
        return old & ~(flags & mask)
    return old & ~mask | flags & mask
