"""LIST wildcards (RFC 3501 §6.3.8): `*` matches anything, `%` anything but the hierarchy separator."""

import re
from collections.abc import Callable
from functools import lru_cache

from mboxlist.names import INBOX, SEPARATOR

MAX_PATTERN = 1000
_WILDCARD = re.compile("([*%])")


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A test for names in a client's own form; INBOX matches in any case.

    Raises ValueError if the pattern is too long.
    """
    if len(pattern) > MAX_PATTERN:
        raise ValueError("The pattern is too long")
    if pattern == "*":                      # the one that is asked for most
        return lambda name: True
    head, separator, rest = pattern.partition(SEPARATOR)
    exact = _test((INBOX if head.upper() == INBOX else head) + separator + rest)
    loose = _test(pattern.upper())
    return lambda name: loose(name) if name == INBOX else exact(name)


def matches(pattern: str, name: str) -> bool:
    """Whether `name` matches `pattern`."""
    return compile_pattern(pattern)(name)


def _test(pattern: str) -> Callable[[str], bool]:
    """The test for one way to write INBOX. Most patterns have one wildcard, and need no automaton."""
    before, wildcard, after = _WILDCARD.split(pattern, 1) if _WILDCARD.search(pattern) else (pattern, "", "")
    if not wildcard:
        return lambda name: name == pattern
    if _WILDCARD.search(after):
        return _Automaton(pattern).accepts
    least, stop = len(before) + len(after), -len(after) or None
    if wildcard == "*":
        return lambda name: len(name) >= least and name.startswith(before) and name.endswith(after)
    return lambda name: (len(name) >= least and name.startswith(before) and name.endswith(after)
                         and SEPARATOR not in name[len(before):stop])


class _Automaton:
    """All ways through the pattern at once, a bit for each: time is linear in the name, whatever the wildcards."""

    def __init__(self, pattern: str) -> None:
        tokens = re.sub(r"[*%]*\*[*%]*", "*", re.sub(r"%+", "%", pattern))
        self._literals: dict[str, int] = {}
        self._any = self._level = 0
        for at, token in enumerate(tokens):
            if token == "*":
                self._any |= 1 << at
            elif token == "%":
                self._level |= 1 << at
            else:
                self._literals[token] = self._literals.get(token, 0) | 1 << at
        self._end = 1 << len(tokens)

    def accepts(self, name: str) -> bool:
        wild = self._any | self._level
        states = 1 | (1 & wild) << 1
        for letter in name:
            stay = self._any if letter == SEPARATOR else wild
            states = (states & self._literals.get(letter, 0)) << 1 | states & stay
            states |= (states & wild) << 1
        return bool(states & self._end)
