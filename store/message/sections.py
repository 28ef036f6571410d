"""Sections of a message as FETCH BODY[...] names them: RFC 3501 §6.4.5."""

from collections.abc import Mapping

from store.message.cacherecord import CachedMessage, PartSpan, Path


def section(cached: CachedMessage, path: Path, what: str | None = None,
            header_length: int | None = None, head: int = 0, parts: Mapping[Path, PartSpan] | None = None
            ) -> tuple[int, int] | None:
    """The first octet and the end of a section within the message, None where there is no such section.

    `what` is None, "HEADER", "TEXT" or "MIME". `header_length` is the message's own `row["header_length"]`: where it is
    less than the length of the trace header, that header is part of the message; None stands for a message without it.
    `head` is how many octets of header fields of its own it has. `parts`: those of the record, where it is asked for
    one after the other.
    """
    shift = head + (0 if header_length is None else cached.trace - header_length)
    part = (cached.parts if parts is None else parts).get(path)
    if part is None:
        return None
    if what == "MIME":
        span = (part.header_start, part.body_start) if path else None
    elif what is None:
        span = (part.body_start, part.end) if path else (-shift, part.end)
    else:
        message = part.message if path else part
        if message is None:
            return None
        start = message.header_start if path else -shift
        span = (start, message.body_start) if what == "HEADER" else (message.body_start, message.end)
    return None if span is None else (span[0] + shift, span[1] + shift)
