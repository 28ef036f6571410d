"""One request of HTTP/1.0 or 1.1 without a body, and the answer to it (RFC 9112). Pure: no I/O."""

import re
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

LINE_LIMIT = 8192           # octets of a line: nginx writes a password as up to three times as many
LINES_LIMIT = 64
REQUEST_LIMIT = 64 << 10

_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (/[!-~]*) HTTP/1\.[0-9]")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 405: "Method Not Allowed", 503: "Service Unavailable"}
_NOT_TEXT = re.compile(r"[^ -~]")


class BadRequest(ValueError):
    """The octets are no request that is answered here; the text says why."""


@frozen
class Request:
    """What was asked; the names of `fields` are in lower case."""

    method: str
    target: str
    fields: Mapping[str, str]


def parse(lines: Sequence[bytes]) -> Request:
    """The lines before the empty one. Raises BadRequest."""
    asked = _REQUEST.fullmatch(lines[0]) if lines else None
    if asked is None:
        raise BadRequest("no request line")
    fields: dict[str, str] = {}
    for line in lines[1:]:
        written, colon, value = line.partition(b":")
        if not (colon and _NAME.fullmatch(written) and _VALUE.fullmatch(value)):
            raise BadRequest("a line is no field")          # folded ones, too (RFC 9112 §5.2)
        name = written.decode("ascii").lower()
        if name in fields:                                  # which of the two counts would be a guess
            raise BadRequest(f"two fields {name}")
        fields[name] = value.strip(b" \t").decode("latin-1")
    if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
        raise BadRequest("a body is not read here")
    return Request(asked[1].decode("ascii"), asked[2].decode("ascii"), fields)


def answer(status: int, fields: Iterable[tuple[str, str]] = ()) -> bytes:
    """A response, after which the connection ends."""
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", "Connection: close", "Content-Length: 0",
             "Cache-Control: no-store"]
    lines += [f"{name}: {_NOT_TEXT.sub('?', value)}" for name, value in fields]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii")
