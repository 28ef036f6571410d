"""The files in which Dovecot and Courier keep what a user is subscribed to, beside the mailboxes."""

import os
from collections.abc import Iterator

from imap.wire import utf7
from imap.wire.grammar import SyntaxProblem

_SECOND = b"V\t2"           # the first line of Dovecot's second version, which has a tab between levels


def name_of(text: str) -> str:
    """A mailbox name as folders have it: modified UTF-7, or UTF-8. Raises SyntaxProblem, UnicodeError."""
    octets = os.fsencode(text)
    return utf7.decode(octets) if octets.isascii() else octets.decode("utf-8")


def parse(octets: bytes, separator: str, prefix: str = "") -> list[str]:
    """The names in such a file, "/" between levels; what cannot be a name is passed over."""
    return list(_names(octets, separator, prefix))


def _names(octets: bytes, separator: str, prefix: str) -> Iterator[str]:
    first, *rest = octets.split(b"\n")
    for line in rest if first == _SECOND else [first, *rest]:
        levels = [_plain(level) for level in line.split(b"\t")] if first == _SECOND else [line]
        try:
            text = "/".join(name_of(os.fsdecode(level)) for level in levels)
        except (SyntaxProblem, UnicodeError):
            continue
        if text:
            yield text if first == _SECOND or text == "INBOX" else text.removeprefix(prefix).replace(separator, "/")


def _plain(level: bytes) -> bytes:
    r"""A level as it is: Dovecot writes \001t for a tab in it, and so on."""
    return level.replace(b"\x01t", b"\t").replace(b"\x01n", b"\n").replace(b"\x011", b"\x01")
