"""Names of mailboxes, as LIST and LSUB look at them: which match, which are above others, and their order."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from unicodedata import normalize

from imap.wire.listing import List
from mboxlist.names import INBOX, SEPARATOR
from mboxlist.patterns import MAX_PATTERN, compile_patterns
from store.progress import Progress

LINES_AT_A_TIME = 500                 # lines that are written together


def matching(reference: str, patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name matches any of the patterns. A pattern that is empty or too long is left out (RFC 5258 §3)."""
    whole = (normalize("NFC", reference + pattern) for pattern in patterns if pattern)
    return compile_patterns(pattern for pattern in whole if len(pattern) <= MAX_PATTERN)


def for_levels(command: List, patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns that are compared with names that are no mailboxes. In an extended LIST they must end with `%` (RFC
    5258 §3, RFC 3501 §6.3.8)."""
    return tuple(pattern for pattern in patterns if not command.extended or pattern.endswith("%"))


def parents(names: Iterable[str]) -> set[str]:
    """Every name above one of `names`."""
    found: set[str] = set()
    for name in names:
        while SEPARATOR in name:
            name = name.rpartition(SEPARATOR)[0]
            if name in found:
                break
            found.add(name)
    return found


def in_order(names: Iterable[str]) -> list[str]:
    """INBOX first, and what is below it."""
    ordered = sorted(names)
    first = [name for name in ordered if name == INBOX or name.startswith(INBOX + SEPARATOR)]
    inbox = set(first)
    return first + [name for name in ordered if name not in inbox]


def children(there: bool) -> bytes:
    r"""\HasChildren or \HasNoChildren (RFC 3348)."""
    return b"\\HasChildren" if there else b"\\HasNoChildren"


def joined(lines: Iterator[bytes], progress: Progress) -> list[bytes]:
    """The lines in pieces. Raises Abandoned."""
    pieces = []
    while piece := list(islice(lines, LINES_AT_A_TIME)):
        pieces.append(b"".join(piece))
        progress.step(0)
    return pieces
