"""Strings put together when a script runs: variables (RFC 5229 §3); and encoded characters (RFC 5228 §2.4.2.4).

`${name}` stands for the value of a variable, `${1}` for what the wildcard of that number matched last. What looks
otherwise stands for itself.
"""

import re
from collections.abc import Callable

from attrs import frozen

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+)*|[0-9]++)\}")
_ENCODED = re.compile(r"\$\{(?:(hex):[ \t\r\n]*+((?:[0-9A-Fa-f]{1,2}[ \t\r\n]++)*[0-9A-Fa-f]{1,2})[ \t\r\n]*+"
                      r"|(unicode):[ \t\r\n]*+((?:[0-9A-Fa-f]++[ \t\r\n]++)*[0-9A-Fa-f]++)[ \t\r\n]*+)\}",
                      re.IGNORECASE)
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
MATCHES = 1000                          # highest number of a match variable that can be meant; RFC 5229 §6 asks for 9


@frozen
class Template:
    """A string with references: literal texts, and between them names of variables (str) or numbers of matches (int);
    texts and names stand in turn, a text first and last."""

    texts: tuple[str, ...]
    names: tuple[str | int, ...]

    def expanded(self, value: Callable[[str | int], str], most: int) -> str:
        """With the value of each reference in its place; at most so many characters, and no more are put together."""
        found, length = [self.texts[0]], len(self.texts[0])
        for name, text in zip(self.names, self.texts[1:], strict=True):
            if length > most:
                break
            found += (value(name), text)
            length += len(found[-2]) + len(text)
        return "".join(found)[:most]


def template(text: str) -> Template | str:
    """The string with its references, or as it is when it has none."""
    if "${" not in text:
        return text
    pieces = _REFERENCE.split(text)
    if len(pieces) == 1:
        return text
    names = tuple(_reference(name) for name in pieces[1::2])
    return Template(tuple(pieces[::2]), names)


def _reference(name: str) -> str | int:
    if name[0].isdigit():
        return int(name) if len(name) < 6 else MATCHES
    return name.lower()


def decoded(text: str) -> str:
    """The string with its encoded characters as they are meant. Raises ValueError for a character that there is not."""
    if "${" not in text:
        return text
    pieces, at = [], 0
    pending = bytearray()               # octets of neighbours: a character of UTF-8 may be spelled by several
    for match in _ENCODED.finditer(text):
        if match.start() > at:
            pieces += [_utf8(pending), text[at:match.start()]]
            pending.clear()
        if match[1]:
            pending += bytes(int(pair, 16) for pair in match[2].split())
        else:
            pending += "".join([_character(code) for code in match[4].split()]).encode()
        at = match.end()
    return "".join([*pieces, _utf8(pending), text[at:]])


def _utf8(octets: bytearray) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise ValueError("the octets of ${hex:} are no characters in UTF-8") from error


def _character(code: str) -> str:
    number = int(code, 16) if len(code.lstrip("0")) < 7 else -1
    if not 0 <= number <= 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise ValueError(f"there is no character {code} of Unicode")
    return chr(number)
