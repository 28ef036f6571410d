"""The header fields that final delivery puts in front of a message (RFC 5321 §4.4)."""

from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cache, lru_cache

from lmtp.smtppaths import Address, literal
from store.partition.messagereading import summed


@cache
def protocol(*, utf8: bool, secure: bool, authenticated: bool) -> str:
    """The name of LMTP as it was spoken (RFC 3848, RFC 6531 §4.3)."""
    return f"{'UTF8' if utf8 else ''}LMTP{'S' if secure else ''}{'A' if authenticated else ''}"


def trace(sender: Address | None, client: str, peer: str, hostname: str, protocol: str, delivery_id: str,
          seconds: float, name: str = "") -> bytes:
    """Return-Path and Received, with their sum behind the id.

    All arguments are checked already: `sender`, `client` and `name` came through a parser.

    `peer` is the client's IP address, or anything else when it has none; `name` the domain that a proxy found for it.
    """
    before = (f"Return-Path: <{'' if sender is None else sender.text}>\r\n"
              f"Received: from {client}{_tcp_info(peer, name)}\r\n"
              f"\tby {hostname} with {protocol} id {delivery_id}=")
    return summed(before.encode(), f";\r\n\t{_date(int(seconds))}\r\n".encode())


# Many messages come from one relay in one second, and these two cost more than the rest of the header.

@lru_cache(maxsize=100)
def _tcp_info(peer: str, name: str) -> str:
    try:
        return f" ({name} {literal(peer)})" if name else f" ({literal(peer)})"
    except ValueError:
        return ""


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(seconds, UTC))
