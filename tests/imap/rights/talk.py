"""One connection of the user's: every answer is read whole, and looked through for what the user may not see."""

import re
from collections import Counter
from collections.abc import Collection

from attrs import define, field, frozen

from tests.imap.model.client import Line, lines_of
from tests.imap.rights.combinations import Combination
from tests.imap.rights.model import Truth
from tests.imap.rights.stage import Family, Stage
from tests.support.conversations.wire import Wire

_TAGGED = re.compile(r"t (OK|NO|BAD) (?:\[([A-Z-]+)([^]]*)\] )?(.*)")
AGAIN = 0.2             # how often it is asked anew what is said of a name that is not there
NEWS = frozenset({"EXISTS", "RECENT", "EXPUNGE", "VANISHED", "FETCH", "FLAGS", "OK"})
"""What a mailbox that the user has selected, and may read, may tell besides (RFC 3501 §7.3)."""


@frozen
class Answer:
    """What came after a command: data, and how it ended. Without an end (status "") the connection was closed."""

    command: str
    status: str
    code: str
    rest: str           # of the code
    lines: tuple[Line, ...]
    octets: bytes

    def of(self, *kinds: str) -> list[str]:
        """The data of these kinds."""
        return [line.text for line in self.lines if kind_of(line.text) in kinds]


def kind_of(text: str) -> str:
    """LIST of `* LIST ...`, EXISTS of `* 3 EXISTS`."""
    words = text.split(" ", 3)
    return words[2] if words[1].isdecimal() else words[1]


@define(eq=False)
class Talk:
    """The connection, and what all parts of a conversation share."""

    stage: Stage
    combination: Combination
    family: Family
    played: Counter[str]                    # names of commands
    rev2: bool = False
    wire: Wire | None = None
    rng: object = field(init=False)
    closed: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.rng = self.combination.random()

    @property
    def truth(self) -> Truth:
        return self.stage.truth

    # Octets

    def say(self, command: str, data: bytes = b"") -> Answer:
        """Send a command, and after it octets; its answer, in which everything may be seen."""
        words = command.split(" ", 2)
        self.played[" ".join(words[:2]) if words[0] == "UID" else words[0]] += 1
        self.wire.send(b"t " + command.encode() + data + b"\r\n")
        return self.heard(command)

    def heard(self, command: str) -> Answer:
        """What has come since."""
        octets = self.wire.received()
        strange = self.truth.strange(octets)
        assert not strange, f"{command}: {strange} must not be seen: {octets!r}"
        if b"}\r\n" in octets:
            lines = tuple(lines_of(octets))
        else:
            lines = tuple(Line(text) for text in octets.decode("latin-1").split("\r\n")[:-1])
        self.closed = self.wire.closed
        if not lines or not lines[-1].text.startswith("t "):
            return Answer(command, "", "", "", lines, octets)
        tagged = _TAGGED.fullmatch(lines[-1].text)
        assert tagged, f"{command}: {octets!r}"
        return Answer(command, tagged[1], tagged[2] or "", (tagged[3] or "").strip(), lines[:-1], octets)

    # Expectations

    def well(self, command: str, *kinds: str, code: str = "", data: bytes = b"") -> Answer:
        """The command must succeed, with this response code, and give no data but of these kinds."""
        return expect(self.say(command, data), "OK", code, kinds)

    def refused(self, command: str, code: str = "", *kinds: str, data: bytes = b"") -> Answer:
        """The command must be refused, and give no other data."""
        return expect(self.say(command, data), "NO", code, kinds)

    def needs(self, right: str, form: str, name: str, *kinds: str, code: str = "", missing: str = "NONEXISTENT",
              data: bytes = b"") -> Answer | None:
        """A command about a mailbox, `form` with its name at {}, must do what the right allows: be carried out, or be
        refused as if the mailbox were not there unless the user may look it up (RFC 4314 §6)."""
        held = self.truth.held(name)
        if right in held:
            return self.well(form.format(name), *kinds, code=code, data=data)
        answer = self.refused(form.format(name), self.truth.refusal(name, missing), data=data)
        if "l" not in held:
            self.like_missing(answer, form, name, data)
        return None

    def like_missing(self, answer: Answer, form: str, name: str, data: bytes = b"") -> None:
        """The answer must be, octet for octet, that for a name which is not there."""
        twin = form.format(name.rpartition("/")[0] + "/none")
        known = self.stage.missing.get(twin)
        if known is None or self.rng.random() < AGAIN:
            known = self.stage.missing[twin] = self.say(twin, data).octets
        assert known == answer.octets, f"{answer.command}: {answer.octets!r}, but {twin}: {known!r}"


def expect(answer: Answer, status: str, code: str, kinds: Collection[str]) -> Answer:
    """Fail unless the answer is this; a code "*" is any."""
    assert answer.status == status, f"{answer.command}: {answer.octets!r}, not {status}"
    assert code in (answer.code, "*"), f"{answer.command}: {answer.octets!r}, not [{code}]"
    others = [line.text for line in answer.lines if kind_of(line.text) not in kinds]
    assert not others, f"{answer.command}: nobody asked for {others}"
    return answer


def flags_in(text: str) -> set[str]:
    r"""The flags in a FETCH response; \Recent is nobody's."""
    found = re.search(r"FLAGS \(([^)]*)\)", text)
    assert found, text
    return set(found[1].split()) - {"\\Recent"}
