"""SORT and THREAD: RFC 5256 §5, RFC 5957, and the result options of RFC 5267 §3 (ESORT)."""

from collections.abc import Mapping, Sequence
from enum import Enum

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner
from imap.wire.search import Results, return_options, search_keys
from store.search import searchkeys
from store.search.searchkeys import Key
from store.search.sort import Criterion, SortKey

MOST_CRITERIA = 64


class Algorithm(Enum):
    """thread-alg"""

    ORDEREDSUBJECT = b"ORDEREDSUBJECT"
    REFERENCES = b"REFERENCES"


@frozen
class Sort:
    """sort = ["UID" SP] "SORT" [search-return-opts] SP sort-criteria SP charset 1*(SP search-key)

    For `key`, `results` and `charset_known` see `Search`.
    """

    criteria: tuple[Criterion, ...]
    key: Key
    charset: bytes
    by_uid: bool = False
    results: Results | None = None
    charset_known: bool = True

    @property
    def kinds(self) -> frozenset[type[Key]]:
        """See `Search`."""
        return searchkeys.kinds(self.key)


@frozen
class Thread:
    """thread = ["UID" SP] "THREAD" SP thread-alg SP charset 1*(SP search-key)"""

    algorithm: Algorithm
    key: Key
    charset: bytes
    by_uid: bool = False
    charset_known: bool = True

    @property
    def kinds(self) -> frozenset[type[Key]]:
        """See `Search`."""
        return searchkeys.kinds(self.key)


def parse_sort(scan: Scanner, *, by_uid: bool) -> Sort:
    scan.space()
    results = None
    if not scan.looks_at(b"("):
        if scan.atom().upper() != b"RETURN":
            raise SyntaxProblem("Sort criteria are expected here")
        scan.space()
        results = return_options(scan)
        scan.space()
    criteria = scan.in_parentheses(lambda: _criterion(scan), MOST_CRITERIA, "Too many sort criteria")
    charset, key, known = _charset_and_keys(scan)
    return Sort(tuple(criteria), key, charset, by_uid, results, known)


def parse_thread(scan: Scanner, *, by_uid: bool) -> Thread:
    scan.space()
    try:
        algorithm = Algorithm(scan.atom().upper())
    except ValueError:
        raise SyntaxProblem("There is no such threading algorithm") from None
    charset, key, known = _charset_and_keys(scan)
    return Thread(algorithm, key, charset, by_uid, known)


def _criterion(scan: Scanner) -> Criterion:
    name = scan.atom().upper()
    reverse = name == b"REVERSE"
    if reverse:
        scan.space()
        name = scan.atom().upper()
    try:
        return Criterion(SortKey(name), reverse)
    except ValueError:
        raise SyntaxProblem("There is no such sort criterion") from None


def _charset_and_keys(scan: Scanner) -> tuple[bytes, Key, bool]:
    scan.space()
    charset = scan.astring().upper()
    scan.space()
    key, known = search_keys(scan, charset, None)
    return charset, key, known


def thread_data(roots: Sequence[int], children: Mapping[int, Sequence[int]], numbers: Sequence[int]) -> bytes:
    """thread-data (RFC 5256 §4): `numbers` are those of the messages; what has none is a dummy."""
    out: list[str] = []
    texts = [str(number) for number in numbers]
    for root in roots:
        if root in children:
            _thread(root, children, texts, out)
        else:
            out.append("(" + texts[root] + ")")
    return b"* THREAD" + (b" " if out else b"") + "".join(out).encode("ascii") + b"\r\n"


def _thread(root: int, children: Mapping[int, Sequence[int]], texts: Sequence[str], out: list[str]) -> None:
    """thread-list, without recursion: a thread may be as deep as the mailbox is long. -1 closes a parenthesis."""
    find, waiting = children.get, [root]
    while waiting:
        one = waiting.pop()
        if one < 0:
            out.append(")")
            continue
        out.append("(")
        below = find(one)
        if one < len(texts):
            out.append(texts[one])
            if below is not None and len(below) > 1:
                out.append(" ")
        while below is not None and len(below) == 1:        # an only child stands beside its parent
            one = below[0]
            out += " ", texts[one]
            below = find(one)
            if below is not None and len(below) > 1:
                out.append(" ")
        if below is None:
            out.append(")")
        else:
            waiting.append(-1)
            waiting += reversed(below)
