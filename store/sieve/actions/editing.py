"""Commands that change the header: RFC 5293. Actions before them take the message as it was (§3)."""

import re
from email.header import Header

from store.sieve.commandforms import MATCH, Form, Kind, Tag, constants, matching
from store.sieve.conditions.fieldtests import FIELD_NAME, check_index, check_names, chosen
from store.sieve.receivedmail import HeaderField
from store.sieve.scriptoutcome import Edition
from store.sieve.scriptproblems import RunProblem
from store.sieve.scriptrun import Node, Run

MARK = "X-Sieve-Redirected-From"        # who has sent a message on; a relay may put Delivered-To there before us
# RFC 5293 §5: these cannot be deleted.
PROTECTED = frozenset((b"received", b"auto-submitted", MARK.lower().encode()))
PLAIN = 900                             # octets of a field on one line; RFC 5322 §2.1.1 allows 998
LONGEST = 8 << 10                       # octets of a field that is added
MOST = 64                               # fields that a run adds
_NO_TEXT = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")      # what `Header` takes for ends of lines, too


def field_of(name: str, value: str) -> HeaderField:
    """A field with that value; characters outside ASCII become encoded words (RFC 2047). Raises ValueError."""
    check_names([name])
    text = _NO_TEXT.sub(_blank, value).strip()
    if text.isascii() and len(name) + len(text) < PLAIN:
        octets = f"{name}: {text}\r\n".encode()
    else:
        made = Header(text, "us-ascii" if text.isascii() else "utf-8", header_name=name).encode(linesep="\r\n")
        octets = f"{name}: {made}\r\n".encode("ascii", "replace")
    if len(octets) > LONGEST:
        raise ValueError(f"a header field has more than {LONGEST} octets")
    return HeaderField(name.encode(), octets)


def _blank(match: re.Match[str]) -> str:
    """Blanks stay as they are; what has a control character among it becomes one."""
    return match[0] if not match[0].strip(" ") else " "


def add(run: Run, node: Node) -> None:
    """`addheader` (RFC 5293 §4)."""
    name, value = run.text(node.values[0]), run.text(node.values[1])
    try:
        added = field_of(name, value)
    except ValueError as error:
        raise RunProblem(str(error), node.place) from None
    if run.message.edition >= MOST:
        raise RunProblem(f"the script changes the header more than {MOST} times", node.place)
    fields = run.message.fields
    run.message = run.message.changed([*fields, added] if "last" in node.tags else [added, *fields])
    if "last" in node.tags or run.edition.whole is not None:
        rewritten(run, node)
    else:
        run.edition = Edition(added.octets + run.edition.added)


def delete(run: Run, node: Node) -> None:
    """`deleteheader` (RFC 5293 §5)."""
    name = run.text(node.values[0])
    if name.lower().encode("utf-8", "replace") in PROTECTED or not FIELD_NAME.issuperset(name):
        return
    found = chosen(node, run.message.named(name))
    if len(node.values) == 2:
        patterns = run.list(node.values[1])
        found = [one for one in found if node.ready.any(run, node, [one.text], patterns)]
    if not found:
        return
    if run.message.edition >= MOST:
        raise RunProblem(f"the script changes the header more than {MOST} times", node.place)
    gone = set(map(id, found))
    run.message = run.message.changed([one for one in run.message.fields if id(one) not in gone])
    rewritten(run, node)


def rewritten(run: Run, node: Node) -> bytes:
    """The message with the fields and parts that it has now, which later actions take. Raises RunProblem when it is too
    large for that."""
    message = run.message
    if message.size > run.limits.rewritten:
        raise RunProblem(f"only a message of up to {run.limits.rewritten} octets can be written again", node.place)
    run.rewritten += message.size
    if run.rewritten > 4 * run.limits.rewritten:
        raise RunProblem(f"the script writes more than {4 * run.limits.rewritten} octets again", node.place)
    pieces, at = [b"".join([_ended(one.octets) for one in message.fields]), b"\r\n"], len(message.header)
    for (start, end), octets in sorted(run.replaced.items()):
        pieces += (message.read(at, start - at), octets)
        at = end
    whole = b"".join([*pieces, message.read(at, message.size - at)])
    run.edition = Edition(whole=whole)
    return whole


def _ended(octets: bytes) -> bytes:
    return octets if octets.endswith(b"\n") else octets + b"\r\n"


def _prepare_add(node: Node) -> None:
    check_names(constants(node.values[0]))


def _prepare_delete(node: Node) -> object:
    check_names(constants(node.values[0]))
    check_index(node)
    return matching(node)


COMMANDS = {
    "addheader": Form(add, ("editheader",), {"last": Tag()}, values=(Kind.STRING, Kind.STRING), prepare=_prepare_add),
    "deleteheader": Form(delete, ("editheader",), {**MATCH, "index": Tag(value=Kind.NUMBER), "last": Tag()},
                         values=(Kind.STRING, Kind.STRINGS), optional_last=True, prepare=_prepare_delete),
}
