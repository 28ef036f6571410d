"""A list of unique-ids of another POP3 server, as its answer to UIDL has them, or with UIDs (RFC 1939 §7)."""

from collections.abc import Iterable

from store.errors import Problem, StoreError
from store.tables.index import Rows
from store.tables.uidls import is_legal

LINE_OCTETS = 200           # far more than a number, a unique-id and a size have

Wanted = dict[int, tuple[bytes, int | None]]        # by number or UID: unique-id, and the size if it is there


class BadList(Exception):
    """Why the list cannot be read, in words."""


def parse(lines: Iterable[bytes], *, numbers: bool) -> Wanted:
    """What the lines say, by message number or UID; those that are empty, a dot, or begin with # or + are passed over.

    Raises BadList.
    """
    wanted: Wanted = {}
    for at, line in enumerate(lines, 1):
        words = line[:LINE_OCTETS].split()
        if not words or words == [b"."] or words[0][:1] in (b"#", b"+"):
            continue
        if len(line) > LINE_OCTETS or len(words) > 3 or len(words) < 2 or not words[0].isdigit() \
                or len(words[0]) > 10 or not is_legal(words[1]) or len(words) > 2 and not words[2].isdigit():
            raise BadList(f"line {at}: not a number, a unique-id and perhaps a size")
        number = int(words[0])
        if not numbers and not 0 < number < 1 << 32:
            raise BadList("a UID is between 1 and 4294967295")
        if number in wanted:
            raise BadList(f"line {at}: {number} comes twice")
        wanted[number] = words[1], int(words[2]) if len(words) > 2 else None
    return wanted


def by_uid(wanted: Wanted, rows: Rows, *, numbers: bool) -> dict[int, bytes]:
    """The unique-ids by UID. Raises StoreError GONE where the messages are not those that the list speaks of."""
    if numbers and (beyond := [number for number in wanted if not 1 <= number <= len(rows)]):
        raise StoreError(Problem.GONE, f"there is no message {beyond[0]}: INBOX has {len(rows)}, and must have the "
                                       "same messages in the same order")
    sizes = dict(zip(rows["uid"].tolist(), rows["size"].tolist(), strict=True))
    uids = {number: int(rows["uid"][number - 1]) if numbers else number for number in wanted}
    for number, (_, size) in wanted.items():
        found = sizes.get(uids[number])
        if size is not None and found is not None and found != size:
            raise StoreError(Problem.GONE, f"message {number} has {found} octets, not {size}: it is another one; "
                                           "nothing was changed")
    return {uids[number]: unique for number, (unique, _) in wanted.items()}
