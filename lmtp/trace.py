"""The header fields that final delivery puts in front of a message (RFC 5321 §4.4)."""

from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache

from lmtp.paths import Address, literal


def trace(sender: Address | None, client: str, peer: str, hostname: str, protocol: str, delivery_id: str,
          seconds: float) -> bytes:
    """Return-Path and Received. All arguments are checked already: `sender` and `client` came through a parser.

    `peer` is the client's IP address, or anything else when it has none. `protocol` is a name of RFC 3848.
    """
    return (f"Return-Path: <{sender or ''}>\r\n"
            f"Received: from {client}{_tcp_info(peer)}\r\n"
            f"\tby {hostname} with {protocol} id {delivery_id};\r\n"
            f"\t{_date(int(seconds))}\r\n").encode("ascii")


# Many messages come from one relay in one second, and these two cost more than the rest of the header.

@lru_cache(maxsize=100)
def _tcp_info(peer: str) -> str:
    try:
        return f" ({literal(peer)})"
    except ValueError:
        return ""


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(seconds, UTC))
