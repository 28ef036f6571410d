"""A client that believes what it is told, and nothing else: its numbering comes from EXISTS, EXPUNGE and VANISHED only,
its flags and MODSEQs from FETCH (RFC 3501 §7.3, §7.4, RFC 7162 §3.2.10, §6). What must not be told fails at once.
"""

import re
from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from imap.wire.scanner import parse_number_set

SYSTEM = {"\\Seen", "\\Answered", "\\Flagged", "\\Deleted", "\\Draft"}
# RFC 3501 §7.4.1, §5.5, RFC 5256 §3, RFC 7162 §3.2.10.2: while these are answered no expunge is told.
_NO_EXPUNGE = re.compile(r"(FETCH|STORE|SEARCH|SORT|THREAD)\b|UID (SEARCH|SORT|THREAD)\b.* NUMBERS")
_CODE = re.compile(r"\[HIGHESTMODSEQ (\d+)\]")
_FETCH = re.compile(r"\* (\d+) FETCH \((.*)\)")

Flags = frozenset[str]


@define(eq=False)
class Message:
    """One message as a client knows it; `true` is its UID, which the client may not know."""

    true: int
    uid: int | None = None
    flags: Flags | None = None
    modseq: int | None = None


@frozen(eq=False)
class Line:
    """A response, with the literals in it."""

    text: str
    literals: tuple[bytes, ...] = ()


@define(eq=False)
class Sent:
    """A command that a client has sent; `messages` are those that it means."""

    tag: str
    text: str
    kind: str
    messages: list[Message] = field(factory=list)
    flags: Flags = frozenset()
    action: str = ""
    silent: bool = False
    by_uid: bool = False
    since: int | None = None            # UNCHANGEDSINCE
    modseqs: dict[int, int] = field(factory=dict)   # of all messages when it was sent, and what the client believed of
    believed: dict[int, tuple[Flags | None, int | None]] = field(factory=dict)  # their flags and MODSEQs, if sent alone
    target: str = ""
    subjects: list[str] = field(factory=list)
    numbers: bool = False               # a UID command that uses message numbers
    at: dict[int, int] = field(factory=dict)        # the UID of each message number when it was sent
    wanted: Callable[[Message], bool | None] | None = None  # what a SEARCH looks for
    here: set[Message] = field(factory=set)         # the messages that had not vanished when it was carried out
    told: set[Message] = field(factory=set)         # of which FLAGS came while it was answered,
    noted: set[Message] = field(factory=set)        # and of which a MODSEQ
    code: int | None = None             # HIGHESTMODSEQ, and the highest MODSEQ, that came with it
    highest: int = 0

    @property
    def may_expunge(self) -> bool:
        """Whether expunges may be told while it is answered."""
        return not self.numbers and _NO_EXPUNGE.match(self.text) is None

    def applied(self, old: Flags) -> Flags:
        """What the client takes the flags to be afterwards, when it does not want to be told."""
        return {"+": old | self.flags, "-": old - self.flags, "": self.flags}[self.action]


def lines_of(data: bytes) -> Iterator[Line]:
    """The responses in these octets, literals in their places as {n}."""
    while data:
        text, literals = b"", []
        while True:
            line, end, data = data.partition(b"\r\n")
            assert end, f"no line end after {line!r}"
            text += line
            literal = re.search(rb"\{(\d+)\}$", line)
            if literal is None:
                break
            size = int(literal[1])
            assert len(data) >= size
            literals.append(data[:size])
            data = data[size:]
        yield Line(text.decode("latin-1"), tuple(literals))


@define(eq=False)
class Belief:
    """What a client knows of the mailbox that it has selected. `arrived` gives the UIDs of messages that are new."""

    rev2: bool
    condstore: bool
    qresync: bool
    arrived: Callable[[int], list[int]]         # how many; the test's knowledge, which only checks what is told
    texts: Callable[[int], bytes | None]        # the text of a message by its UID
    messages: list[Message] = field(factory=list)
    modseq: int = 0                             # HIGHESTMODSEQ (RFC 7162 §6)
    complete: int = 0                           # the client has asked for everything up to this UID

    def hear(self, line: Line, sent: Sent | None) -> None:
        """Take in an untagged response, that came while `sent` was answered."""
        text = line.text
        if exists := re.fullmatch(r"\* (\d+) EXISTS", text):
            more = int(exists[1]) - len(self.messages)
            assert more >= 0, "EXISTS takes messages away"
            self.messages += [Message(uid) for uid in self.arrived(more)]
        elif gone := re.fullmatch(r"\* (\d+) EXPUNGE", text):
            assert sent is not None and sent.may_expunge and not self.qresync, f"{text} is not allowed here"
            assert 1 <= int(gone[1]) <= len(self.messages)
            del self.messages[int(gone[1]) - 1]
        elif gone := re.fullmatch(r"\* VANISHED ([0-9:,]+)", text):
            assert sent is not None and sent.may_expunge and self.qresync, f"{text} is not allowed here"
            for uid in uids_of(gone[1]):
                self._vanished(uid)
        elif fetched := _FETCH.fullmatch(text):
            self._fetched(int(fetched[1]), fetched[2], line, sent)
        elif text.endswith(" RECENT"):
            assert not self.rev2
        else:
            assert re.match(r"\* (OK|NO|FLAGS|SEARCH|ESEARCH|SORT|STATUS|LIST|VANISHED \(EARLIER\))", text), text
        if (code := _CODE.search(text)) and sent is not None:
            sent.code = int(code[1])

    def _vanished(self, uid: int) -> None:
        """One message fewer; which, the order of UIDs tells where the client was not told."""
        at = next((at for at, one in enumerate(self.messages) if one.uid == uid), None)
        if at is None:
            below = [at for at, one in enumerate(self.messages) if one.uid is not None and one.uid < uid]
            at = below[-1] + 1 if below else 0
            assert at < len(self.messages) and self.messages[at].uid is None, f"{uid} was never told"
            # Among those that are not known by UID, the test knows which it is.
            while self.messages[at].true != uid:
                at += 1
                assert at < len(self.messages) and self.messages[at].uid is None, f"{uid} was never told"
        del self.messages[at]

    def _fetched(self, number: int, items: str, line: Line, sent: Sent | None) -> None:
        assert 1 <= number <= len(self.messages), f"there is no message {number}"
        one = self.messages[number - 1]
        uid, flags = re.search(r"\bUID (\d+)", items), re.search(r"\bFLAGS \(([^)]*)\)", items)
        modseq = re.search(r"\bMODSEQ \((\d+)\)", items)
        if uid:
            assert int(uid[1]) == one.true, f"message {number} is UID {one.true}, not {uid[1]}"
            one.uid = one.true
        if flags:
            words = flags[1].split()
            assert len(set(words)) == len(words)
            assert not (self.rev2 and "\\Recent" in words)
            one.flags = frozenset(words) - {"\\Recent"}
            if sent is not None:
                sent.told.add(one)
            asked = sent is not None and sent.kind == "fetch"
            # RFC 7162 §3.2.4
            assert asked or not self.condstore or (uid and modseq), f"{line.text} lacks UID or MODSEQ"
        if modseq:
            assert one.modseq is None or int(modseq[1]) >= one.modseq, "a MODSEQ that goes back"
            one.modseq = int(modseq[1])
            if sent is not None:
                sent.highest = max(sent.highest, one.modseq)
                sent.noted.add(one)
        if "BODY[TEXT]" in items:
            wanted = self.texts(one.true)
            got = line.literals[0] if line.literals else None
            assert got == wanted, f"message {number} (UID {one.true}) is {got!r}, not {wanted!r}"

    def answered(self, line: Line, sent: Sent) -> None:
        """Take in the tagged response."""
        if code := _CODE.search(line.text):
            sent.code = int(code[1])
        self.modseq = sent.code if sent.code is not None else max(self.modseq, sent.highest)
        failed = self.failed(line, sent)
        if sent.since is not None and " OK" in line.text:
            # RFC 7162 §3.1.3: it is told also with .SILENT, and of those that fail (here) the flags, too.
            assert sent.here & set(sent.messages) <= sent.noted, f"{sent.text}: a MODSEQ is not told"
            assert failed & sent.here <= sent.told
        if sent.silent and " OK" in line.text:
            for one in sent.messages:
                if one not in sent.told and one not in failed and one.flags is not None:
                    one.flags = sent.applied(one.flags)
        self.note_complete()

    def failed(self, line: Line, sent: Sent) -> set[Message]:
        """The messages that MODIFIED names (RFC 7162 §3.1.3)."""
        modified = re.search(r"\[MODIFIED ([0-9:,]+)\]", line.text)
        numbers = set(uids_of(modified[1])) if modified else set()
        if sent.by_uid:
            found = {one for one in self.messages if one.true in numbers}
        else:
            found = {self.messages[number - 1] for number in numbers}
        assert len(found) == len(numbers) and found <= set(sent.messages), line.text
        return found

    def note_complete(self) -> None:
        """Up to where the client knows everything."""
        for one in self.messages:
            if one.uid is None or one.flags is None:
                break
            self.complete = max(self.complete, one.uid)

    def cache(self) -> dict[int, Flags]:
        """What a client keeps when the connection breaks."""
        return {one.uid: one.flags for one in self.messages
                if one.uid is not None and one.flags is not None and one.uid <= self.complete}


def uids_of(text: str) -> list[int]:
    """The numbers of a sequence-set."""
    return [number for first, last in parse_number_set(text.encode(), 10 ** 6).ranges
            for number in range(min(first, last), max(first, last) + 1)]
