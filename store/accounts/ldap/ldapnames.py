"""Search filters (RFC 4515) and distinguished names (RFC 4514) of a directory, as text. Pure."""

import re
import unicodedata
from collections.abc import Mapping

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 !\"#$%&'+,-./:;<=>?@[]^_`{|}~")
_PLACE = re.compile(r"\{([A-Za-z][A-Za-z0-9-]*)\}")
_HEX = re.compile(r"[0-9A-Fa-f]{2}")
_SPECIAL = frozenset(' "#+,;<=>\\')          # what may stand behind a backslash (RFC 4514 §3)
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)*")


def escape(value: str) -> str:
    """The text as an assertion value of a filter: nothing in it means anything to the filter (RFC 4515 §3)."""
    return "".join(chr(octet) if octet in _PLAIN else f"\\{octet:02x}"
                   for octet in value.encode("utf-8", "surrogatepass"))


def fill(template: str, values: Mapping[str, str]) -> str:
    """A filter whose {places} are filled with escaped values. Raises ValueError for a place of another name."""
    def value(match: re.Match[str]) -> str:
        found = values.get(match[1])
        if found is None:
            raise ValueError(f"there is no {{{match[1]}}}: {', '.join(sorted(values))}")
        return escape(found)
    return _PLACE.sub(value, template)


def places(template: str) -> set[str]:
    """The names of the places that a filter has."""
    return set(_PLACE.findall(template))


def check_filter(text: str) -> None:
    """Whether it can be a filter: its parentheses are in pairs, and it is one. Raises ValueError."""
    depth, whole = 0, text.startswith("(") and len(text) > 2
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        whole = whole and (depth > 0) is (at + 1 < len(text))
    if not whole:
        raise ValueError(f"{text!r} is not one filter in parentheses")


Rdn = tuple[tuple[str, str], ...]           # its attributes, nearly always one, and their values


def parse_dn(text: str) -> tuple[Rdn, ...]:
    """The relative names of a distinguished name, the entry's own first; types in lower case (RFC 4514 §3).

    Raises ValueError.
    """
    found: list[Rdn] = []
    at, parts = 0, []
    while text.strip():
        kind, at = _kind(text, at)
        value, at = _value(text, at)
        parts.append((kind, value))
        end = text[at:at + 1]
        if end != "+":
            found.append(tuple(sorted(parts)))
            parts = []
        if not end:
            break
        at += 1
    return tuple(found)


def _kind(text: str, at: int) -> tuple[str, int]:
    end = text.find("=", at)
    kind = text[at:end].strip() if end >= 0 else ""
    if not _TYPE.fullmatch(kind):
        raise ValueError(f"{text!r} is not a distinguished name")
    return kind.lower(), end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that begins there, and where it ends: at a comma, a plus sign, or the end."""
    octets, kept = bytearray(), 0           # `kept`: octets before which no space is to be taken away
    while text[at:at + 1] == " ":
        at += 1
    while at < len(text) and text[at] not in ",;+":
        if text[at] == "\\":
            pair = text[at + 1:at + 3]
            if _HEX.fullmatch(pair):
                octets.append(int(pair, 16))
                at += 3
            elif pair[:1] in _SPECIAL and pair:
                octets += pair[0].encode()
                at += 2
            else:
                raise ValueError(f"{text!r} is not a distinguished name")
            kept = len(octets)
            continue
        octets += text[at].encode("utf-8", "surrogatepass")
        at += 1
    while len(octets) > kept and octets.endswith(b" "):
        del octets[-1:]
    return octets.decode("utf-8", "replace"), at


def folded(value: str) -> str:
    """A value as a directory compares most: without regard to case and to how many spaces there are."""
    return " ".join(unicodedata.normalize("NFC", value.lower()).split())


def compared_dn(text: str) -> tuple[Rdn, ...]:
    """A distinguished name in the form in which two of the same entry are equal. Raises ValueError."""
    return tuple(tuple(sorted((kind, folded(value)) for kind, value in rdn)) for rdn in parse_dn(text))


def is_below(dn: str, base: str) -> bool:
    """Whether an entry is that of `base`, or below it. Raises ValueError."""
    names, above = compared_dn(dn), compared_dn(base)
    return len(names) >= len(above) and names[len(names) - len(above):] == above


def escape_value(value: str) -> str:
    """A value as it stands in a distinguished name (RFC 4514 §2.4)."""
    text = "".join(f"\\{ord(each):02x}" if ord(each) < 0x20 or ord(each) == 0x7f
                   else "\\" + each if each in '"+,;<>\\=' else each for each in value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    if text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return text
