"""Which messages cannot have a text in them, as far as their octets tell: many at once, without a look at their parts.

Whatever SEARCH looks at is in the octets as it stands, but for folded lines, encoded words (RFC 2047), and bodies with
a transfer encoding or in a charset of its own. So where the text is not in the octets, nor may be in encoded words, it
is nowhere else in a message without such bodies. What is left over here must be looked at closely.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from store.message.collation import casemap
from store.message.headers import unfold
from store.message.text import decode_words, encoded_run_set, encoded_runs

Mask = NDArray[np.bool_]

_CASE = np.uint8(0xDF)      # all bits but the one in which letters of ASCII of both cases differ
_BETWEEN = b"\n.\n"         # two messages: no text that is looked for, nor encoded words, go over it
_WORDS = 20_000             # of which the text is remembered: the same names come again and again


class Prefilter:
    """Looks for one text, which is folded (`collation.casemap`). Not `usable` for texts that go over line ends."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self.usable = bool(wanted.strip()) and not {"\r", "\n"} & set(wanted)
        self._heads = tuple([wanted[:end] for end in range(1, len(wanted))])
        self._tails = tuple([wanted[start:] for start in range(1, len(wanted))])
        self._octets = _caseless(wanted.encode("ascii")) if wanted.isascii() else b""
        self._blanks = " " in wanted or "\t" in wanted
        self._folded = re.compile(b"".join(map(_pattern, wanted.encode("ascii")))) if (
            self._octets and self._blanks) else None
        self._touched: dict[bytes, bool] = {}

    def left(self, messages: Sequence[bytes], plain: Mask) -> Mask:
        """Which of these messages may have the text where it is not encoded; `plain`: whose charsets are all UTF-8."""
        joined = _BETWEEN.join(messages)
        starts = np.zeros(len(messages), np.int64)
        np.cumsum([len(message) + len(_BETWEEN) for message in messages[:-1]], out=starts[1:])
        found = np.zeros(len(messages), np.bool_)
        hits = self._hits(joined, starts) if self._octets else []
        if self._touching(joined):
            hits += [run.start() for run in encoded_runs(joined) if self._touched[run[0]]]
        found[np.searchsorted(starts, np.array(hits, np.int64), side="right") - 1] = True
        if not joined.isascii():
            for at, message in enumerate(messages):
                if not found[at] and not message.isascii():
                    found[at] = not plain[at] or self._in_utf8(message)
        return found

    def _hits(self, joined: bytes, starts: NDArray[np.int64]) -> list[int]:
        """Where the text may be in messages, once in each: found with other characters in the place of some, too."""
        octets = _caseless(joined)
        folded = self._folded

        def find(start: int) -> int:
            if folded is None:
                return octets.find(self._octets, start)
            match = folded.search(octets, start)
            return match.start() if match is not None else -1

        hits, ends = [], np.append(starts[1:], len(joined)).tolist()
        at, number = find(0), 0
        while at >= 0:
            hits.append(at)
            while ends[number] <= at:
                number += 1
            at = find(ends[number]) if ends[number] < len(joined) else -1
        return hits

    def _touching(self, joined: bytes) -> bool:
        """Whether there are encoded words that may have the text, or some of it, in them."""
        touched = self._touched
        if len(touched) > _WORDS:
            touched.clear()
        any_touched = False
        for run in encoded_run_set(joined):
            if (touches := touched.get(run)) is None:
                touches = touched[run] = self._touches(_words(run))
            any_touched |= touches
        return any_touched

    def _touches(self, text: str) -> bool:
        wanted = self.wanted
        return wanted in text or text in wanted or text.startswith(self._tails) or text.endswith(self._heads)

    def _in_utf8(self, message: bytes) -> bool:
        """Whether the text may be in a message, all of which is taken for UTF-8 if it is that."""
        try:
            return self.wanted in casemap(message.decode()) or (
                self._blanks and self.wanted in casemap(unfold(message).decode()))
        except UnicodeDecodeError:
            return True


def _caseless(octets: bytes) -> bytes:
    return (np.frombuffer(octets, np.uint8) & _CASE).tobytes()


@lru_cache(_WORDS)
def _words(run: bytes) -> str:
    return casemap(decode_words(run))


def _pattern(octet: int) -> bytes:
    """Finds an octet; a blank also where it follows a line end, and so says that a field goes on (RFC 5322 §2.2.3)."""
    char = bytes((octet,))
    return (b"(?:\\r?\\n)?" if char in b" \t" else b"") + re.escape(_caseless(char))
