"""Every limit of reading a command, in one value: the session hands in one for before login and one for after."""

from attrs import frozen


@frozen
class Limits:
    """What one command may take. `settings.py` picks the numbers."""

    line: int = 65_536          # octets of all its text, literals not counted: the limit of each line too
    literal: int = 65_536       # octets of one literal kept in memory; the message of APPEND is not
    literals: int = 64          # literals in a command other than messages
    messages: int = 1_000       # messages in an APPEND
    memory: int = 262_144       # octets of all its literals together
    swallow: int = 1 << 30      # largest literal that is thrown away if sent without waiting; else the connection ends
    depth: int = 100            # nested parentheses, and NOT and OR
    keys: int = 2_000           # search keys in a SEARCH
    items: int = 256            # items of a FETCH, names in a list of header fields or flags
    word: int = 255             # octets of one keyword
    ranges: int = 20_000        # ranges in a number set


STRICT = Limits(line=65_536, literal=1_024, literals=60, memory=32_768, swallow=1 << 20, depth=4,
                keys=8, items=32, ranges=8)
"""For a client that has not logged in: enough for LOGIN, AUTHENTICATE and the longest ID, which has 30 fields of 30 and
1,024 octets (RFC 2971 §3.3), twice as many where all of them are escaped."""
