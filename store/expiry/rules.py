"""The rules of a file: what a rule says, and how it is written.

A file has lines `Name.attribute: value`; without the name they are those of the rule "rule". All lines of one name are
one rule. A line that begins with # is a comment.
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache, partial

from attrs import define, evolve, field, frozen

from mboxlist.names import INBOX, OTHERS, PUBLIC, SEPARATOR, NameProblem, legal_path
from mboxlist.patterns import MAX_PATTERN, compile_pattern
from store.settings import SPECIAL_USES
from store.values import Flag

UNNAMED = "rule"
MAX_RULES = 1000            # in one file
MAX_FILE = 1 << 20          # octets
MAX_HEADERS = 16            # of a rule
MAX_DAYS = 100_000
_SHOWN = 40                 # letters of a wrong value that an error repeats
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIELD = re.compile(r"[!-9;-~]{1,200}")         # RFC 5322 §2.2
_NUMBER = re.compile(r"([0-9]{1,18})([kmgt]?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_YES = {"yes": True, "1": True, "on": True, "true": True, "no": False, "0": False, "off": False, "false": False}


class Action(Enum):
    """What happens to a message that a rule hits."""

    DISCARD = "discard"
    REPORT = "report"
    FILEINTO = "fileinto"


class How(Enum):
    """How a flag counts: it must be there as well, it is enough, or it must not be there."""

    AND = "and"
    OR = "or"
    NOT = "not"


@frozen
class Rule:
    """A rule. Of `days`, `saved_days`, `count`, `octets` and `size` each hits messages by itself; `headers` and flags
    with "and" must be there, too; a flag with "or" is enough; one with "not" saves a message from this rule.

    `pattern`: of canonical names, as LIST has it, or a regular expression if `regexp`; "": all that its file is for.
    """

    name: str
    line: int = field(default=0, eq=False)
    pattern: str = ""
    regexp: bool = False
    special_use: str = ""
    days: int | None = None             # since the internal date
    saved_days: int | None = None       # since the message came into the mailbox (RFC 8514)
    count: int | None = None            # messages of the mailbox that stay, the newest
    octets: int | None = None           # of the mailbox that stay
    size: int | None = None             # octets of a message that is not too large yet
    size_days: int = 0                  # how long one that is may stay
    headers: tuple[tuple[str, str], ...] = ()
    flags: tuple[tuple[Flag, How], ...] = ()
    exclusive: bool = False
    action: Action = Action.DISCARD
    target: str = ""

    @property
    def has_limits(self) -> bool:
        """Whether it hits messages by age, number or size."""
        return any(limit is not None for limit in (self.days, self.saved_days, self.count, self.octets, self.size))

    @property
    def hits_something(self) -> bool:
        """Whether there is a message that it could hit."""
        return self.has_limits or bool(self.headers) or any(test is not How.NOT for _, test in self.flags)

    def with_test(self, test: How) -> Flag:
        """The flags that count so."""
        found = Flag(0)
        for flag, how in self.flags:
            if how is test:
                found |= flag
        return found

    def matches(self, name: str, special_use: str | None) -> bool:
        """Whether it is about the mailbox of that canonical name."""
        if self.special_use and self.special_use != special_use:
            return False
        return not self.pattern or name_test(self.pattern, self.regexp)(name)

    def __str__(self) -> str:
        limits = [f"{word} {value}" for word, value in (
            ("messagedays", self.days), ("savedays", self.saved_days), ("messagecount", self.count),
            ("foldersize", self.octets), ("messagesize", self.size)) if value is not None]
        if self.size is not None and self.size_days:
            limits.append(f"messagesizedays {self.size_days}")
        limits += [f"{name}: {text}" for name, text in self.headers]
        limits += [f"{flag_word(flag)} {test.value}" for flag, test in self.flags]
        return ", ".join(limits) or "nothing"

    @property
    def does(self) -> str:
        return f"{self.action.value}:{self.target}" if self.target else self.action.value

    @property
    def about(self) -> str:
        return " ".join(word for word in (self.special_use, self.pattern) if word)


@frozen
class Fault:
    """What is wrong with a file, and where; both count from 1."""

    line: int
    column: int
    text: str


@lru_cache(maxsize=256)
def name_test(pattern: str, regexp: bool) -> Callable[[str], bool]:
    """A test for canonical names. Raises ValueError, re.error."""
    if regexp:
        compiled = re.compile(pattern)
        return lambda name: compiled.fullmatch(name) is not None
    kind, *levels = pattern.split(SEPARATOR)
    if kind + SEPARATOR == OTHERS and len(levels) > 1 and levels[1].upper() == INBOX:
        levels[1] = INBOX
    return compile_pattern(SEPARATOR.join((kind, *levels)))


def flag_word(flag: Flag) -> str:
    return next(word for word, known in _FLAGS.items() if known is flag)


# Attributes: each takes a rule and a value, and gives the rule with it. Raises ValueError.

def _set(attribute: str, parse: Callable[[str], object], rule: Rule, value: str) -> Rule:
    changed: Rule = evolve(rule, **{attribute: parse(value)})       # type: ignore[arg-type]
    return changed


def _pattern(value: str) -> str:
    if len(value) > MAX_PATTERN:
        raise ValueError("the pattern is too long")
    return value


def _yes(value: str) -> bool:
    if value.lower() not in _YES:
        raise ValueError("neither yes nor no")
    return _YES[value.lower()]


def _special_use(value: str) -> str:
    found = next((use for use in SPECIAL_USES if use[1:].lower() == value.removeprefix("\\").lower()), None)
    if found is None:
        raise ValueError(f"none of {', '.join(SPECIAL_USES)}")
    return found


def _number(most: int, value: str) -> int:
    match = _NUMBER.fullmatch(value)
    if match is None or (match[2] and most == MAX_DAYS):
        raise ValueError("not a number")
    number = int(match[1]) * _UNITS[match[2].lower()]
    if number > most:
        raise ValueError(f"more than {most}")
    return number


def _flag(flag: Flag, rule: Rule, value: str) -> Rule:
    try:
        return evolve(rule, flags=(*rule.flags, (flag, How(value.lower()))))
    except ValueError:
        raise ValueError("none of and, or, not") from None


def _action(rule: Rule, value: str) -> Rule:
    word, colon, target = (part.strip() for part in value.partition(":"))
    try:
        action = Action(word.lower())
    except ValueError:
        raise ValueError("none of discard, report, fileinto:MAILBOX") from None
    if (action is Action.FILEINTO) is not bool(target) or (colon and not target):
        raise ValueError("fileinto needs a mailbox" if action is Action.FILEINTO else "only fileinto has a mailbox")
    if target and not target.startswith((OTHERS, PUBLIC)):
        try:
            target = legal_path(target)
        except NameProblem as problem:
            raise ValueError(str(problem)) from None
    return evolve(rule, action=action, target=target)


def _header(name: str, rule: Rule, value: str) -> Rule:
    if len(rule.headers) >= MAX_HEADERS:
        raise ValueError("too many header fields")
    return evolve(rule, headers=(*rule.headers, (name, value)))


_FLAGS = {"seen": Flag.SEEN, "deleted": Flag.DELETED, "flagged": Flag.FLAGGED, "answered": Flag.ANSWERED}
_HEADER = "messageheader"
_DAYS, _OCTETS = partial(_number, MAX_DAYS), partial(_number, 1 << 62)
_ATTRIBUTES: dict[str, Callable[[Rule, str], Rule]] = {
    "action": _action,
    **{word: partial(_set, attribute, parse) for word, attribute, parse in (
        ("folderpattern", "pattern", _pattern), ("regexp", "regexp", _yes), ("exclusive", "exclusive", _yes),
        ("specialuse", "special_use", _special_use), ("messagedays", "days", _DAYS), ("savedays", "saved_days", _DAYS),
        ("messagecount", "count", partial(_number, 1 << 32)), ("foldersize", "octets", _OCTETS),
        ("messagesize", "size", _OCTETS), ("messagesizedays", "size_days", _DAYS))},
    **{word: partial(_flag, flag) for word, flag in _FLAGS.items()}}


@define
class _Draft:
    """A rule that is being read: where each attribute of it stands (line, column of its value). `faulty`: a line of it
    is wrong, and so there is no telling what it would be as a whole."""

    rule: Rule
    faulty: bool = False
    places: dict[str, tuple[int, int]] = field(factory=dict)


@lru_cache(maxsize=256)
def parse(text: str, everywhere: bool = False) -> tuple[tuple[Rule, ...], tuple[Fault, ...]]:
    """The rules of a file in their order, and what is wrong with it. With `everywhere` a rule without `folderpattern`
    and `specialuse` is about all mailboxes that the file is for; else it is wrong."""
    drafts: dict[str, _Draft] = {}
    faults: list[Fault] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            _read_line(number, line, drafts, faults)
    for draft in drafts.values():
        if not draft.faulty:
            faults += _look_over(draft, everywhere)
    return tuple(draft.rule for draft in drafts.values()), tuple(sorted(faults, key=lambda one: (one.line, one.column)))


def _read_line(number: int, line: str, drafts: dict[str, _Draft], faults: list[Fault]) -> None:
    key, colon, value = line.partition(":")
    start = len(line) - len(line.lstrip()) + 1
    if not colon:
        faults.append(Fault(number, start, "no colon: a line is Name.attribute: value"))
        return
    words = key.strip().split(".")
    unnamed = len(words) == 1 or words[0].lower() == _HEADER
    name = UNNAMED if unnamed else words[0]
    attribute, *rest = words if unnamed else words[1:] or [""]
    at = start if unnamed else start + len(words[0]) + 1
    column = len(line) - len(value.lstrip()) + 1
    if not _NAME.fullmatch(name):
        faults.append(Fault(number, start, f"{_short(name)} is not the name of a rule"))
        return
    if name not in drafts and len(drafts) >= MAX_RULES:
        faults.append(Fault(number, start, f"more than {MAX_RULES} rules"))
        return
    draft = drafts.setdefault(name, _Draft(Rule(name, number)))
    attribute = attribute.lower()
    change = _ATTRIBUTES.get(attribute) if not rest else None
    if attribute == _HEADER and _FIELD.fullmatch(".".join(rest)):
        change = partial(_header, ".".join(rest))
    if change is None:
        draft.faulty = True
        faults.append(Fault(number, at, f"{_short('.'.join((attribute, *rest)))} is not an attribute"))
        return
    place = ".".join((attribute, *rest)).lower()
    if place in draft.places:
        faults.append(Fault(number, at, f"{place} was given in line {draft.places[place][0]} already"))
        return
    draft.places[place] = number, column
    value = value.strip()
    try:
        if not value:
            raise ValueError("there is no value")
        draft.rule = change(draft.rule, value)
    except ValueError as problem:
        draft.faulty = True
        faults.append(Fault(number, column, f"{_short(value)}: {problem}" if value else str(problem)))


def _look_over(draft: _Draft, everywhere: bool) -> Iterable[Fault]:
    """What is wrong with a rule as a whole."""
    rule, places = draft.rule, draft.places
    if not rule.about and not everywhere and not places.keys() & {"folderpattern", "specialuse"}:
        yield Fault(rule.line, 1, f"{rule.name} has neither folderpattern nor specialuse")
    if rule.pattern:
        if not rule.regexp and not rule.pattern.startswith((OTHERS, PUBLIC, "*")):
            yield Fault(*places["folderpattern"], f"{_short(rule.pattern)} does not begin with user/ or public/")
        try:
            name_test(rule.pattern, rule.regexp)
        except (ValueError, RecursionError, OverflowError, re.error) as problem:
            yield Fault(*places["folderpattern"], f"{_short(rule.pattern)}: {problem}")
    elif rule.regexp:
        yield Fault(*places["regexp"], "there is no folderpattern")
    if "messagesizedays" in places and "messagesize" not in places:
        yield Fault(*places["messagesizedays"], "there is no messagesize")
    if not rule.hits_something and (rule.flags or not rule.exclusive):      # an exclusive one keeps all messages
        yield Fault(rule.line, 1, f"{rule.name} does not say which messages go")


def _short(text: str) -> str:
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
