"""The collation i;unicode-casemap (RFC 5051), by which SEARCH, SORT and THREAD compare (RFC 5255 §4.2, I18NLEVEL=1).

Two texts are equal, one is part of the other, or comes before it, as their folded forms are in UTF-8 octet by octet.
"""

import unicodedata

_ASCII = bytes(range(128))
_FEW = 12                   # characters that are replaced one by one
_REMEMBERED = 20_000        # characters: more than any language writes


class _Folded(dict[int, str]):
    """What each character becomes: in title case, then decomposed to the end."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        title = char.title()
        # One that becomes several characters (ß) is a full mapping; RFC 5051 §2 knows the simple ones only.
        folded = _decomposed(title if len(title) == 1 else char)
        if len(self) < _REMEMBERED:
            self[code] = folded
        return folded


def _decomposed(char: str) -> str:
    mapping = unicodedata.decomposition(char).split()
    if not mapping:
        return char
    codes = mapping[1:] if mapping[0].startswith("<") else mapping
    return "".join([_decomposed(chr(int(code, 16))) for code in codes])


_FOLDED = _Folded()


def casemap(text: str) -> str:
    """The folded form. That of a text put together is the folded forms put together."""
    if text.isascii():
        return text.upper()
    # As octets: `upper` changes no others than those of ASCII, which most are, and all of one character go at once.
    octets = text.encode("utf-8", "surrogatepass").upper()
    others = set(octets.translate(None, _ASCII).decode("utf-8", "surrogatepass"))
    folded = {char: _FOLDED[ord(char)] for char in others} if len(others) <= _FEW else {}
    changed = [char for char in folded if folded[char] != char]
    if not folded or not set("".join(folded.values())).isdisjoint(changed):
        return text.translate(_FOLDED)
    for char in changed:
        octets = octets.replace(char.encode("utf-8", "surrogatepass"), folded[char].encode("utf-8", "surrogatepass"))
    return octets.decode("utf-8", "surrogatepass")


def collation_key(text: str) -> bytes:
    """The folded form as octets, which are in the order of the texts."""
    return casemap(text).encode("utf-8", "replace")
