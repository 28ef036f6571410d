"""LIST wildcards (RFC 3501 §6.3.8): `*` matches anything, `%` anything but the hierarchy separator."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from mboxlist.names import INBOX, SEPARATOR

MAX_PATTERN = 1000
_WILDCARD = re.compile("([*%])")


Test = Callable[[str], bool]


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Test:
    """A test for names in a client's own form; INBOX matches in any case.

    Raises ValueError if the pattern is too long.
    """
    return compile_patterns((pattern,))


def compile_patterns(patterns: Iterable[str]) -> Test:
    """Whether a name in a client's own form matches any of the patterns, in time that is linear in the name: all
    patterns with more than one wildcard are one automaton.

    Raises ValueError if one of them is too long.
    """
    written = tuple(patterns)
    if any(len(pattern) > MAX_PATTERN for pattern in written):
        raise ValueError("The pattern is too long")
    if "*" in written:                      # the one that is asked for most
        return lambda name: True
    exact = _any_of([_with_inbox(pattern) for pattern in written])
    loose = _any_of([pattern.upper() for pattern in written])
    return lambda name: loose(name) if name == INBOX else exact(name)


def matches(pattern: str, name: str) -> bool:
    """Whether `name` matches `pattern`."""
    return compile_pattern(pattern)(name)


def _with_inbox(pattern: str) -> str:
    first, separator, rest = pattern.partition(SEPARATOR)
    return (INBOX if first.upper() == INBOX else first) + separator + rest


def _any_of(patterns: list[str]) -> Test:
    """The test for one way to write INBOX. Most patterns have one wildcard, and need no automaton."""
    whole = frozenset(pattern for pattern in patterns if not _WILDCARD.search(pattern))
    split = [_WILDCARD.split(pattern, 1) for pattern in patterns if _WILDCARD.search(pattern)]
    tests = [_between(before, wildcard, after) for before, wildcard, after in split if not _WILDCARD.search(after)]
    several = [before + wildcard + after for before, wildcard, after in split if _WILDCARD.search(after)]
    if whole:
        tests.append(whole.__contains__)
    if several:
        tests.append(_Automaton(several).accepts)
    return tests[0] if len(tests) == 1 else lambda name: any(test(name) for test in tests)


def _between(before: str, wildcard: str, after: str) -> Test:
    least, stop = len(before) + len(after), -len(after) or None
    if wildcard == "*":
        return lambda name: len(name) >= least and name.startswith(before) and name.endswith(after)
    return lambda name: (len(name) >= least and name.startswith(before) and name.endswith(after)
                         and SEPARATOR not in name[len(before):stop])


class _Automaton:
    """All ways through all patterns at once, a bit for each: time is linear in the name, whatever the wildcards."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._literals: dict[str, int] = {}
        self._any = self._level = self._begin = self._end = 0
        at = 0
        for pattern in patterns:
            self._begin |= 1 << at
            for token in re.sub(r"[*%]*\*[*%]*", "*", re.sub(r"%+", "%", pattern)):
                if token == "*":
                    self._any |= 1 << at
                elif token == "%":
                    self._level |= 1 << at
                else:
                    self._literals[token] = self._literals.get(token, 0) | 1 << at
                at += 1
            self._end |= 1 << at
            at += 1

    def accepts(self, name: str) -> bool:
        """Whether one of the patterns matches the whole name."""
        wild = self._any | self._level
        states = self._begin | (self._begin & wild) << 1
        for letter in name:
            stay = self._any if letter == SEPARATOR else wild
            states = (states & self._literals.get(letter, 0)) << 1 | states & stay
            if not states:
                return False
            states |= (states & wild) << 1
        return bool(states & self._end)
