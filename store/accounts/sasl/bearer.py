"""The messages of OAUTHBEARER (RFC 7628) and XOAUTH2: somebody's token. Pure."""

import json
import re
from collections.abc import Mapping

from attrs import frozen

from store.values import Secret

KVSEP = "\x01"

_HEADER = re.compile(r"[ny],(?:a=((?:[^=,\0]|=2C|=3D)*))?,")         # gs2-header (RFC 5801 §4), without channel binding
_PAIR = re.compile(r"([A-Za-z]+)=([\x09\x0a\x0d\x20-\x7e]*)")        # kvpair (RFC 7628 §3.1)
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)      # RFC 6750 §2.1
_XOAUTH2 = re.compile(r"user=([^\x00-\x1f]*)\x01auth=([\x20-\x7e]*)\x01\x01")


@frozen
class Bearer:
    """Whose token ("": whoever it is for), and the token; None when the client only asks what is wanted of it."""

    user: str
    token: Secret | None


def oauthbearer(message: bytes) -> Bearer:
    """RFC 7628 §3.1. Raises ValueError, whose text may be shown."""
    text = _text(message)
    header = _HEADER.match(text)
    if header is None:
        raise ValueError("That is not a message of OAUTHBEARER")
    rest = text[header.end():]
    if not rest.startswith(KVSEP) or not rest.endswith(KVSEP * 2):
        raise ValueError("That is not a message of OAUTHBEARER")
    pairs: dict[str, str] = {}
    for each in rest[1:-2].split(KVSEP):
        pair = _PAIR.fullmatch(each)
        if pair is None or pair[1].lower() in pairs:
            raise ValueError("That is not a message of OAUTHBEARER")
        pairs[pair[1].lower()] = pair[2]
    user = (header[1] or "").replace("=2C", ",").replace("=3D", "=")
    return Bearer(user, _token(pairs.get("auth", "")))


def xoauth2(message: bytes) -> Bearer:
    """Its older form, which has a user always. Raises ValueError, whose text may be shown."""
    found = _XOAUTH2.fullmatch(_text(message))
    if found is None:
        raise ValueError("That is not a message of XOAUTH2")
    return Bearer(found[1], _token(found[2]))


def failure(status: str, scope: str = "", configuration: str = "") -> bytes:
    """What the client hears of a token that is not taken (RFC 7628 §3.2.2)."""
    said: Mapping[str, str] = {"status": status, "scope": scope, "openid-configuration": configuration}
    return json.dumps({name: value for name, value in said.items() if value}).encode()


def _token(text: str) -> Secret | None:
    """Raises ValueError for another scheme of authorization."""
    if not text:
        return None
    found = _BEARER.fullmatch(text)
    if found is None:
        raise ValueError("A bearer token is wanted")
    return Secret(found[1].encode())


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ValueError("The message is UTF-8") from None
