"""BODYSTRUCTURE and BODY for clients of RFC 3501, where only MESSAGE/RFC822 is a message (§9 body-type-msg).

Cache records have those of RFC 9051 §9, where MESSAGE/GLOBAL (RFC 6532 §3.7) is one too.
"""

import re

GLOBAL = b'("MESSAGE" "GLOBAL" '        # in every structure that has such a part
_TOKEN = re.compile(rb'\{([0-9]++)\}\r\n|"[^"\\]*+(?:\\.[^"\\]*+)*"|[()]|[^ ()"{]++')
# A literal, or what a part begins with: after it there are its parameters, which no string and no address has there.
_STOP = re.compile(rb'\{([0-9]++)\}\r\n|\("MESSAGE" "GLOBAL"(?= [(N])')
_OCTETS = re.compile(rb" [0-9]++(?= \()")       # of a part, when an envelope follows


def without_global(structure: bytes) -> bytes:
    """The structure with each MESSAGE/GLOBAL as a part like any other: without its envelope, structure and lines."""
    if GLOBAL not in structure:
        return structure
    kept: list[bytes] = []
    done = at = 0
    while found := _STOP.search(structure, at):
        at = found.end() + int(found[1] or b"0")
        if found[1]:
            continue
        octets = _OCTETS.match(structure, _behind(structure, found.end(), 4))      # parameters to encoding
        if octets is not None:
            at = _behind(structure, octets.end(), 3)
            kept.append(structure[done:octets.end()])
            done = at
    return b"".join([*kept, structure[done:]])


def _behind(structure: bytes, at: int, count: int) -> int:
    """Where so many elements end that begin here, each after a blank; or the list in which they are, before that."""
    depth = 0
    while count:
        found = _TOKEN.match(structure, at + (structure[at:at + 1] == b" "))
        if found is None or not depth and found[0] == b")":
            break
        at = found.end() + int(found[1] or b"0")
        depth += (found[0] == b"(") - (found[0] == b")")
        count -= not depth
    return at
