"""The test `body`: RFC 5173."""

from collections.abc import Iterator

from store.message import mime
from store.message.text import decode_text
from store.sieve.commandforms import MATCH, Form, Kind, Tag, matching
from store.sieve.conditions.fieldtests import descendants
from store.sieve.scriptrun import Node, Run

_GROUP = "transform"


def body(run: Run, node: Node) -> bool:
    """RFC 5173 §4; wildcards set no variables (§6). Of a large message the first `limits.body` octets are looked at."""
    matched, keys = run.matched, run.list(node.values[0])
    try:
        return any(node.ready.any(run, node, [text], keys) for text in _texts(run, node))
    finally:
        run.matched = matched


def _texts(run: Run, node: Node) -> Iterator[str]:
    message, room = run.message, run.limits.body
    if "raw" in node.tags:
        start = len(message.header)
        run.count(node, min(room, message.size - start))
        yield decode_text(message.read(start, min(room, message.size - start)))
        return
    types = run.list(node.tags["content"]) if "content" in node.tags else ["text"]
    for part in descendants(run, node, message.structure):
        if room <= 0:
            return
        if not any(_is_of_type(part, wanted) for wanted in types):
            continue
        if part.is_message:                 # the header of the message inside (§5.2)
            inner = part.children[0]
            octets = message.read(inner.header_start, min(inner.body_start - inner.header_start, room))
            room -= len(octets)
            yield decode_text(octets)
        elif part.is_multipart:             # what stands around its parts
            end = part.children[0].header_start if part.children else part.end
            octets = message.read(part.body_start, max(0, min(end - part.body_start, room)))
            room -= len(octets)
            yield decode_text(octets)
        else:
            run.count(node, min(part.end - part.body_start, run.limits.body))
            room -= part.end - part.body_start
            yield message.part_text(part, run.limits.body)


def _is_of_type(part: mime.Part, wanted: str) -> bool:
    """RFC 5173 §5.2: "" is all, "text" is text of each kind, "text/html" that one."""
    kind, slash, subtype = wanted.lower().partition("/")
    if "/" in subtype or slash and not (kind and subtype):
        return False
    return (not kind or kind == decode_text(part.type).lower()) and (
        not slash or subtype == decode_text(part.subtype).lower())


TESTS = {
    "body": Form(body, ("body",), {**MATCH, "raw": Tag(group=_GROUP), "text": Tag(group=_GROUP),
                                   "content": Tag(value=Kind.STRINGS, group=_GROUP)},
                 values=(Kind.STRINGS,), prepare=matching),
}
