"""Modified UTF-7 of mailbox names: RFC 3501 §5.1.3."""

import binascii
import re

from imap.wire.grammar import SyntaxProblem

_NOT_ITSELF = re.compile(rb"[^ -%'-~]")
_SHIFTED = re.compile(rb"&([^-&]*+)-?")
_TO_SHIFT = re.compile(r"&|[^ -~]+")


def decode(octets: bytes) -> str:
    """The name as text. Raises SyntaxProblem, a NO, if it is not in the one form in which this name can be written."""
    if not _NOT_ITSELF.search(octets):
        return octets.decode("ascii")
    try:
        name = _decode(octets)
        if encode(name) == octets:      # so base64 of what needs none, shifts that end and begin, stray bits: refused
            return name
    except (binascii.Error, UnicodeError):
        pass
    raise SyntaxProblem("The mailbox name is not in modified UTF-7", code=b"CANNOT", status=b"NO")


def encode(name: str) -> bytes:
    """The name on the wire. Raises UnicodeEncodeError for a lone surrogate."""
    if name.isascii() and name.isprintable() and "&" not in name:
        return name.encode("ascii")
    return _TO_SHIFT.sub(_shift, name).encode("ascii")


def _decode(octets: bytes) -> str:
    name: list[str] = []
    at = 0
    for shifted in _SHIFTED.finditer(octets):
        name.append(octets[at:shifted.start()].decode("ascii"))
        encoded = shifted[1]
        if encoded:
            padded = encoded.replace(b",", b"/") + b"=" * (-len(encoded) % 4)
            name.append(binascii.a2b_base64(padded).decode("utf-16-be"))
        else:
            name.append("&")
        at = shifted.end()
    name.append(octets[at:].decode("ascii"))
    return "".join(name)


def _shift(run: re.Match[str]) -> str:
    if run[0] == "&":
        return "&-"
    encoded = binascii.b2a_base64(run[0].encode("utf-16-be"), newline=False).rstrip(b"=").replace(b"/", b",")
    return f"&{encoded.decode('ascii')}-"
