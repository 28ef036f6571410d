"""Commands about the parts of a message: loops, replacement, enclosure, extraction (RFC 5703 §3, §5 to §7)."""

import hashlib
from email.utils import format_datetime

from store.message import mime
from store.sieve.actions.control import MODIFIER_TAGS, check_variable, modified
from store.sieve.actions.editing import field_of, rewritten
from store.sieve.commandforms import Form, Kind, Tag, constants
from store.sieve.conditions.fieldtests import check_names, descendants
from store.sieve.receivedmail import HeaderField, fields_of
from store.sieve.scriptproblems import RunProblem
from store.sieve.scriptrun import Node, Run

DEPTH = 4                               # loops within one another (RFC 5703 §3 asks for one)


class Broken(Exception):  # noqa: N818 - not an error
    """`break` of the loop of that name, or of the innermost."""


def for_every_part(run: Run, node: Node) -> None:
    """RFC 5703 §3.1: the commands for each part of the message, or of the part of the loop around, in order."""
    if len(run.parts) >= DEPTH:
        raise RunProblem(f"more than {DEPTH} loops within one another", node.place)
    name = _name(run, node)
    outer = run.parts[-1] if run.parts else None
    found = descendants(run, node, outer if outer is not None else run.message.structure)
    for part in found if outer is None else found[1:]:
        run.count(node)
        run.parts.append(part)
        run.loops.append(name)
        try:
            run.execute(node.block)
        except Broken as broken:
            if broken.args[0] is None or broken.args[0] == name:
                break
            raise
        finally:
            run.parts.pop()
            run.loops.pop()


def _name(run: Run, node: Node) -> str | None:
    return run.text(node.tags["name"]) if "name" in node.tags else None


def leave_loop(run: Run, node: Node) -> None:
    """`break` (RFC 5703 §3.2)."""
    if not run.parts:
        raise RunProblem("break stands in no loop", node.place)
    name = _name(run, node)
    if name is not None and name not in run.loops:
        raise RunProblem(f'no loop around break has the name "{name[:60]}"', node.place)
    raise Broken(name)


def _text_part(text: str, *, entity: bool) -> bytes:
    """A MIME entity with its header: what is one already, or plain text in UTF-8 (RFC 5703 §5)."""
    octets = text.replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-8", "replace")
    if entity:
        return octets
    return b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + octets


def replace(run: Run, node: Node) -> None:
    """RFC 5703 §5: the part of the loop, or outside of one the message, becomes another text."""
    entity = _text_part(run.text(node.values[0]), entity="mime" in node.tags)
    part = run.parts[-1] if run.parts else None
    if part is not None and part is not run.message.structure:
        start, end = part.header_start, part.end
        run.replaced = {place: octets for place, octets in run.replaced.items()
                        if not (start <= place[0] and place[1] <= end)}
        if not any(first <= start and end <= last for first, last in run.replaced):
            run.replaced[start, end] = entity
        rewritten(run, node)
        return
    head, body = _entity(entity)
    kept = _without_mime(run.message.fields)
    for tag, name in (("subject", "Subject"), ("from", "From")):
        if tag in node.tags:
            kept = [one for one in kept if one.name.lower() != name.lower().encode()]
            kept.append(_field(name, run.text(node.tags[tag]), node))
    run.message = run.message.changed([*kept, HeaderField(b"MIME-Version", b"MIME-Version: 1.0\r\n"), *head])
    run.replaced = {(len(run.message.header), run.message.size): body}
    rewritten(run, node)


def _entity(entity: bytes) -> tuple[list[HeaderField], bytes]:
    """The fields of a MIME entity and its body; without an empty line all of it is body."""
    head, empty, body = entity.partition(b"\r\n\r\n")
    if entity.startswith(b"\r\n"):
        return [], entity[2:]
    fields = fields_of(head + b"\r\n") if empty else []
    return (fields, body) if empty else ([], entity)


def _without_mime(fields: list[HeaderField]) -> list[HeaderField]:
    return [one for one in fields if not one.name.lower().startswith(b"content-")
            and one.name.lower() != b"mime-version"]


def _field(name: str, value: str, node: Node) -> HeaderField:
    try:
        return field_of(name, value)
    except ValueError as error:
        raise RunProblem(str(error), node.place) from None


def enclose(run: Run, node: Node) -> None:
    """RFC 5703 §6: the message becomes the second part of a new one that begins with a text; `:headers` are copied."""
    inner = rewritten(run, node)
    names = run.list(node.tags["headers"]) if "headers" in node.tags else []
    copied = [one for name in names for one in run.message.named(name)]
    have = {one.name.lower() for one in copied}
    if "subject" in node.tags:
        copied = [one for one in copied if one.name.lower() != b"subject"]
        copied.append(_field("Subject", run.text(node.tags["subject"]), node))
    if b"date" not in have:
        copied.append(_field("Date", format_datetime(run.surroundings.now), node))
    if b"from" not in have:
        copied.append(_field("From", run.envelope.recipient or "postmaster", node))
    boundary = "=_" + hashlib.sha256(inner).hexdigest()[:40]
    body = b"\r\n".join((
        b"--%b" % boundary.encode(), _text_part(run.text(node.values[0]), entity=False),
        b"--%b" % boundary.encode(), b"Content-Type: message/rfc822\r\n", inner, b"--%b--\r\n" % boundary.encode()))
    kind = f'Content-Type: multipart/mixed; boundary="{boundary}"\r\n'.encode()
    run.message = run.message.changed([*_without_mime(copied), HeaderField(
        b"MIME-Version", b"MIME-Version: 1.0\r\n"), HeaderField(b"Content-Type", kind)])
    run.replaced = {(len(run.message.header), run.message.size): body}
    rewritten(run, node)


def extract_text(run: Run, node: Node) -> None:
    """RFC 5703 §7: the text of the part of the loop, or its first characters, becomes the value of a variable."""
    if not run.parts:
        raise RunProblem("extracttext stands in no loop", node.place)
    part: mime.Part = run.parts[-1]
    run.count(node, min(part.end - part.body_start, run.limits.body))
    text = "" if part.children or part.type != b"TEXT" else run.message.part_text(part, run.limits.body)
    first = node.tags.get("first", run.limits.string)
    assert isinstance(first, int)
    run.set(run.text(node.values[0]), modified(text[:first], node), node)


def _prepare_enclose(node: Node) -> None:
    check_names(constants(node.tags.get("headers", ())))


COMMANDS = {
    "foreverypart": Form(for_every_part, ("foreverypart",), {"name": Tag(value=Kind.STRING)}, block=True),
    "break": Form(leave_loop, ("foreverypart",), {"name": Tag(value=Kind.STRING)}),
    "replace": Form(replace, ("replace",), {"mime": Tag(), "subject": Tag(value=Kind.STRING),
                                            "from": Tag(value=Kind.STRING)}, values=(Kind.STRING,)),
    "enclose": Form(enclose, ("enclose",), {"subject": Tag(value=Kind.STRING), "headers": Tag(value=Kind.STRINGS)},
                    values=(Kind.STRING,), prepare=_prepare_enclose),
    "extracttext": Form(extract_text, ("extracttext",), {"first": Tag(value=Kind.NUMBER), **MODIFIER_TAGS},
                        values=(Kind.STRING,), prepare=check_variable),
}
