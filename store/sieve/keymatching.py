"""How values are compared (RFC 5228 §2.7; RFC 5231, RFC 4790): match types, comparators, and what wildcards stand for.

All of it is linear in the value for a given key: `:matches` looks for the pieces between asterisks from left to right,
so that each asterisk stands for as little as it can (RFC 5229 §3.2); `:regex` is RE2's.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import re2
from attrs import field, frozen

from store.message import headers
from store.message.collation import casemap
from store.sieve.scriptproblems import RunProblem
from store.sieve.scriptrun import Node, Run
from store.sieve.templates import MATCHES

ASCII_CASEMAP, OCTET, NUMERIC, UNICODE = "i;ascii-casemap", "i;octet", "i;ascii-numeric", "i;unicode-casemap"
COMPARATORS = (ASCII_CASEMAP, OCTET, NUMERIC, UNICODE)
RELATIONS: dict[str, Callable[[int], bool]] = {             # of what comes before (-1), is equal (0), comes after (1)
    "gt": lambda order: order > 0, "ge": lambda order: order >= 0, "lt": lambda order: order < 0,
    "le": lambda order: order <= 0, "eq": lambda order: order == 0, "ne": lambda order: order != 0}
TYPES = ("is", "contains", "matches", "count", "value", "regex", "list")
PATTERN = 4096                          # characters of a key with wildcards or a regular expression
REGEX_MEMORY = 1 << 20                  # octets that RE2 may take for one expression,
GROUPS = 32                             # and groups in it: RE2 copies the places of all of them at each step
INFINITY = -1                           # what is no number, for i;ascii-numeric

COMPARISON = 16                         # characters that a comparison counts for, beside those that it looks at
LISTED = 8                              # and a character in which addresses are looked for
COMPILATION = 64                        # and a character of an expression that may have to be compiled
INSTRUCTIONS = 16                       # of an expression for which a character counts once more, some 150 nanoseconds
MARKED = 2                              # and characters of a piece with question marks

_DIGITS = re.compile(r"[0-9]++", re.ASCII)
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def ascii_lower(text: str) -> str:
    """With the letters of ASCII in lower case (RFC 4790 §9.2)."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def number(text: str) -> int:
    """The number that a text begins with, else INFINITY (RFC 4790 §9.1)."""
    digits = _DIGITS.match(text)
    if digits is None:
        return INFINITY
    return int(digits[0]) if len(digits[0]) <= 1000 else 10 ** 1000


def folded(text: str, comparator: str) -> str:
    """The text in the form in which the comparator compares octet by octet."""
    if comparator == ASCII_CASEMAP:
        return ascii_lower(text)
    return casemap(text) if comparator == UNICODE else text


def order(left: str, right: str, comparator: str) -> int:
    """-1, 0 or 1: whether the left one comes before, is equal, or comes after (RFC 4790 §4.2.2)."""
    if comparator == NUMERIC:
        first, second = number(left), number(right)
        if INFINITY in (first, second):
            return (first == INFINITY) - (second == INFINITY)
        return (first > second) - (first < second)
    one, other = (folded(text, comparator).encode("utf-8", "surrogatepass") for text in (left, right))
    return (one > other) - (one < other)


_Segment = tuple[str, re.Pattern[str] | None, tuple[int, ...]]
_IN_A_ROW = re.compile(r"(?:\0\.){2,}")


@lru_cache(maxsize=1000)
def _segments(key: str) -> tuple[_Segment, ...]:
    """The pieces between the asterisks of a key: the text; where question marks are among it, an expression, and the
    places of these. It has no groups, and one count for question marks in a row: thousands of them cost no more."""
    found: list[_Segment] = []
    text, form, at, marks = "", "", 0, list[int]()
    while at <= len(key):
        char = key[at:at + 1]
        at += 1
        if char in ("*", ""):
            form = _IN_A_ROW.sub(lambda dots: f".{{{len(dots[0]) // 2}}}", form)
            found.append((text, re.compile(form.replace("\0.", "."), re.DOTALL) if marks else None, tuple(marks)))
            text, form, marks = "", "", []
        elif char == "?":
            marks.append(len(text) + len(marks))
            form += "\0."
        else:
            if char == "\\" and at < len(key):
                char = key[at]
                at += 1
            text += char
            form += re.escape(char) if char != "\0" else r"\x00"
    return tuple(found)


def wildcards(value: str, key: str) -> list[tuple[int, int]] | None:
    """Where in the value the wildcards of the key stand for something, all of it first; None: it does not match."""
    segments = _segments(key)
    spans = [(0, len(value))]
    at = 0
    for place, (text, form, within) in enumerate(segments):
        last = place == len(segments) - 1
        found = _place(value, text, form, within, at, anchored=place == 0, last=last)
        if found is None:
            return None
        start, end, marks = found
        if place:
            spans.append((at, start))
        spans += marks
        at = end
    return spans if at == len(value) else None


def _place(value: str, text: str, form: re.Pattern[str] | None, within: Sequence[int], at: int, *, anchored: bool,
           last: bool) -> tuple[int, int, list[tuple[int, int]]] | None:
    """Where a piece is: at `at` when it begins the key, at the end when it ends it, else the first place from there."""
    if form is None:
        if anchored:
            start = at if value.startswith(text, at) else -1
        elif last:
            start = len(value) - len(text)
            start = start if start >= at and value.endswith(text) else -1
        else:
            start = value.find(text, at)
        return None if start < 0 else (start, start + len(text), [])
    width = len(text) + len(within)
    if anchored:
        match = form.match(value, at)
    elif last:
        match = form.match(value, len(value) - width) if len(value) - width >= at else None
    else:
        match = form.search(value, at)
    if match is None:
        return None
    start = match.start()
    return start, match.end(), [(start + mark, start + mark + 1) for mark in within]


@lru_cache(maxsize=1000)
def regular(key: str, ignore_case: bool) -> "re2._Regexp[str]":
    """A POSIX extended regular expression. Raises ValueError for what is none."""
    options = re2.Options()
    options.posix_syntax = options.longest_match = True
    options.perl_classes = options.word_boundary = True
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.max_mem = REGEX_MEMORY
    if len(key) > PATTERN:
        raise ValueError(f"a regular expression has more than {PATTERN} characters")
    try:
        found = re2.compile(key, options)
    except re2.error as error:
        raise ValueError(f"no regular expression: {str(error)[:200]}") from None
    if found.groups > GROUPS:
        raise ValueError(f"a regular expression has more than {GROUPS} groups")
    return found


class Values:
    """What tests compare: `texts`, and `folded`, which is these as i;ascii-casemap has them. To find it counts for so
    many `steps` and characters (`cost`), and comparing each with one key for `length` characters."""

    __slots__ = ("texts", "steps", "cost", "folded", "length")

    def __init__(self, texts: Sequence[str], steps: int = 0, cost: int = 0) -> None:
        self.texts = texts
        self.steps = steps
        self.cost = cost
        self.folded: list[str] = []
        self.length = COMPARISON * len(texts)
        for text in texts:
            self.folded.append(text.lower() if text.isascii() else ascii_lower(text))
            self.length += len(text)


NOTHING = Values((), 1)


@frozen
class Matching:
    """The match type and comparator of one test. `relation`: of `:count` and `:value`.

    `keys`: of `:is`, `:contains` and `:matches` without question marks, folded, where no variable is among them; else
    None. `about`: what the test looks at, where that is of the message alone, for `ReceivedMail.remembered`; `fields`:
    the names of the fields that this is in.
    """

    type: str = "is"
    comparator: str = ASCII_CASEMAP
    relation: str = ""
    keys: tuple[str, ...] | None = None
    about: tuple[Any, ...] | None = None
    fields: frozenset[bytes] | None = None
    _set: frozenset[str] = field(init=False)
    _pieces: tuple[tuple[str, ...], ...] = field(init=False)        # that must be in what matches each key

    @_set.default
    def _all(self) -> frozenset[str]:
        return frozenset(self.keys or ())

    @_pieces.default
    def _between_wildcards(self) -> tuple[tuple[str, ...], ...]:
        return tuple([tuple([text for text, _, _ in _segments(key) if text]) if self.type == "matches" else (key,)
                      for key in self.keys or ()])

    def among(self, run: Run, node: Node, values: Values) -> bool:
        """`any` with the last argument of the test as keys, and values that other tests may look at, too."""
        keys = self.keys
        if keys is None:
            run.count(node, values.cost, values.steps)
            return self.any(run, node, values.texts, run.list(node.values[-1]))
        texts = values.texts
        if not texts:
            run.count(node, values.cost, values.steps)
            return False
        run.steps += values.steps + len(texts)
        run.octets += values.cost + values.length * len(keys)
        if run.steps > run.limits.steps or run.octets > run.limits.octets:
            run.count(node)
        found: Sequence[str] = values.folded
        if self.comparator != ASCII_CASEMAP:
            found = texts if self.comparator == OCTET else [casemap(text) for text in texts]
        if self.type == "is":
            return not self._set.isdisjoint(found)
        for at, text in enumerate(found):
            for number, pieces in enumerate(self._pieces):
                for piece in pieces:
                    if piece not in text:
                        break
                else:
                    if self.type == "contains" or self._matches(run, node, texts[at], keys[number]):
                        return True
        return False

    def any(self, run: Run, node: Node, values: Sequence[str], keys: Sequence[str]) -> bool:
        """Whether a value matches a key; what wildcards stand for is set (RFC 5229 §3.2). Raises RunProblem."""
        if self.type == "count":
            run.count(node, COMPARISON * len(keys))
            return any(RELATIONS[self.relation](order(str(len(values)), key, self.comparator)) for key in keys)
        if self.type == "list":
            return _listed(run, node, values, keys)
        for value in values:
            run.count(node, (len(value) + COMPARISON) * len(keys))
            for key in keys:
                if self._matches(run, node, value, key):
                    return True
        return False

    def _matches(self, run: Run, node: Node, value: str, key: str) -> bool:
        comparator = self.comparator
        match self.type:
            case "is":
                return value == key or order(value, key, comparator) == 0
            case "contains":
                return folded(key, comparator) in folded(value, comparator)
            case "value":
                return RELATIONS[self.relation](order(value, key, comparator))
            case "regex":
                return self._regular(run, node, value, key)
        if len(key) > PATTERN:
            raise RunProblem(f"a key with wildcards has more than {PATTERN} characters", node.place)
        short, spans = _aligned(value, comparator)
        key = folded(key, comparator)
        if "?" in key:
            run.count(node, COMPILATION * len(key))
            widest = max(len(text) + len(marks) if marks else 0 for text, _, marks in _segments(key))
            run.count(node, len(value) * (widest // MARKED))
        found = wildcards(short, key)
        if found is None:
            return False
        if spans is not None:
            found = [(spans[start], spans[end]) for start, end in found]
        run.matched = tuple([value[start:end] for start, end in found[:MATCHES]])
        return True

    def _regular(self, run: Run, node: Node, value: str, key: str) -> bool:
        try:
            run.count(node, COMPILATION * len(key))
            expression = regular(key, self.comparator != OCTET)
            run.count(node, len(value) * (expression.programsize // INSTRUCTIONS))
            found = expression.search(value)
        except ValueError as error:
            raise RunProblem(str(error), node.place) from None
        if found is None:
            return False
        run.matched = tuple([group or "" for group in (found.group(), *found.groups())])
        return True


def _listed(run: Run, node: Node, values: Sequence[str], keys: Sequence[str]) -> bool:
    """Whether an address in one of the values is a member of one of these lists; the comparator has no say (RFC 6134
    §2.2). The value is what `${0}` stands for then."""
    for value in values:
        run.count(node, LISTED * len(value) + COMPARISON)
        for one in headers.addresses(value.encode("utf-8", "replace")):
            if not one.mailbox or not one.host:
                continue
            address = f"{one.mailbox.decode('utf-8', 'replace')}@{one.host.decode('utf-8', 'replace')}"
            for key in keys:
                run.look_up(node)
                if run.surroundings.in_list(key, address):
                    run.matched = (value,)
                    return True
    return False


def _aligned(value: str, comparator: str) -> tuple[str, list[int] | None]:
    """The folded value; and, where that has another length, the place in the value of each of its characters."""
    short = folded(value, comparator)
    if len(short) == len(value):
        return short, None
    places: list[int] = []
    for at, char in enumerate(value):
        places += [at] * len(folded(char, comparator))
    return short, [*places, len(value)]
