"""Tests of header fields, addresses, the envelope and the size: RFC 5228 §5.1, §5.4 to §5.9; RFC 5233; RFC 5260 §6;
RFC 5703 §4."""

from collections.abc import Callable, Sequence

from store.message import headers, mime
from store.message.text import decode_text, decode_words
from store.sieve.commandforms import MATCH_OR_LIST, Form, Kind, Tag, constants, matching
from store.sieve.keymatching import COMPARISON, NOTHING, Values
from store.sieve.receivedmail import HeaderField
from store.sieve.scriptproblems import RunProblem
from store.sieve.scriptrun import Node, Run

FIELD_NAME = frozenset(map(chr, range(33, 127))) - {":"}        # RFC 5322 §3.6.8
# Fields that are address lists, or one address.
ADDRESSES = frozenset((
    "from", "to", "cc", "bcc", "sender", "reply-to", "resent-from", "resent-to", "resent-cc", "resent-bcc",
    "resent-sender", "resent-reply-to", "return-path", "delivered-to", "x-original-to", "envelope-to", "errors-to",
    "mail-followup-to", "mail-reply-to", "disposition-notification-to", "return-receipt-to", "approved-by",
    "apparently-to", "list-post"))
_READING = 8                            # characters that a character counts for which is read as an address or a date
_MEMORY = 8                             # octets that a character of `Values.length` takes at most
INDEX = {"index": Tag("index", Kind.NUMBER), "last": Tag("index")}
PART = {"all": Tag(group="part"), "localpart": Tag(group="part"), "domain": Tag(group="part"),
        "user": Tag("subaddress", group="part"), "detail": Tag("subaddress", group="part")}
_ALONE = frozenset(("index", "mime", "user", "detail"))      # with these nothing is remembered of what a test looks at
CHILDREN = {"mime": Tag("mime"), "anychild": Tag("mime")}
OPTIONS = {"type": Tag("mime", group="option"), "subtype": Tag("mime", group="option"),
           "contenttype": Tag("mime", group="option"), "param": Tag("mime", Kind.STRINGS, "option")}


def check_names(names: Sequence[str]) -> None:
    """Raises ValueError for what cannot be the name of a field."""
    for name in names:
        if not name or not FIELD_NAME.issuperset(name):
            raise ValueError(f'"{name}" is not the name of a header field')


def check_index(node: Node) -> None:
    """Raises ValueError for `:last` or `:anychild` alone, and for an index of 0."""
    if "last" in node.tags and "index" not in node.tags:
        raise ValueError(":last goes with :index")
    if node.tags.get("index") == 0:
        raise ValueError(":index counts from 1")
    if "anychild" in node.tags and "mime" not in node.tags or (
            "mime" not in node.tags and not OPTIONS.keys().isdisjoint(node.tags)):
        raise ValueError(":anychild, :type, :subtype, :contenttype and :param go with :mime")


def chosen(node: Node, found: list[HeaderField]) -> list[HeaderField]:
    """The field that `:index` means, or all (RFC 5260 §6)."""
    index = node.tags.get("index")
    if index is None:
        return found
    assert isinstance(index, int)
    at = -index if "last" in node.tags else index - 1
    return [found[at]] if -len(found) <= at < len(found) else []


def descendants(run: Run, node: Node, part: mime.Part) -> list[mime.Part]:
    """The part and all within it, in order. Raises RunProblem when there are too many."""
    found, waiting = [], [part]
    while waiting:
        one = waiting.pop()
        found.append(one)
        if len(found) > run.limits.parts:
            raise RunProblem(f"the message has more than {run.limits.parts} parts", node.place)
        waiting += reversed(one.children)
    return found


def fields_for(run: Run, node: Node, name: str) -> list[HeaderField]:
    """The fields of that name that a test looks at: of the message, or with `:mime` of a part (RFC 5703 §4)."""
    if "mime" not in node.tags:
        if not run.message.values(name):
            run.count(node)
            return []
        found = chosen(node, run.message.named(name))
        run.count(node, _READING * sum([len(one.octets) for one in found]))
        return found
    part = run.parts[-1] if run.parts else run.message.structure
    parts = descendants(run, node, part) if "anychild" in node.tags else [part]
    wanted = name.lower().encode("utf-8", "replace")
    found = []
    for one in parts:
        fields = run.message.part_header(one)
        run.count(node, len(fields) + one.body_start - one.header_start)
        found += chosen(node, [each for each in fields if each.name.lower() == wanted])
    return found


def header(run: Run, node: Node) -> bool:
    """RFC 5228 §5.7."""
    ready, message = node.ready, run.message
    about = ready.about
    if about is not None:
        found = message.remembered.get(about)
        if found is None:
            if ready.keys is not None and message.lacks(ready.fields):      # as of most names that scripts ask for
                run.count(node, 0, len(ready.fields))
                return False
            found = _texts(run, node, about)
        return bool(ready.among(run, node, found))
    names = run.list(node.values[0])
    if node.tags.keys().isdisjoint(("index", "mime")):
        return bool(node.ready.among(run, node, _texts(run, node, names)))
    values: list[str] = []
    for name in names:
        for one in fields_for(run, node, name):
            values += _option(run, node, one)
    return bool(node.ready.any(run, node, values, run.list(node.values[1])))


def _texts(run: Run, node: Node, names: Sequence[str]) -> Values:
    """The values of the fields of these names. Raises RunProblem as soon as they are more than a run may look at."""
    message, most = run.message, run.limits.octets // COMPARISON
    texts: list[str] = []
    for name in names:
        texts += message.texts(name)
        if len(texts) > most:
            run.count(node, COMPARISON * len(texts))
    if not texts:                       # of most names that scripts ask for there is no field
        return NOTHING
    found = Values(texts, len(names), COMPARISON * len(texts))
    message.remember(tuple(names), found, _MEMORY * found.length)
    return found


def _option(run: Run, node: Node, found: HeaderField) -> list[str]:
    """The value of a field, or what `:type`, `:subtype`, `:contenttype` or `:param` takes of it (RFC 5703 §4.1)."""
    if OPTIONS.keys().isdisjoint(node.tags):
        return [found.text]
    value = found.value
    if "param" in node.tags:
        pairs = headers.parameters(value)
        named = (headers.parameter(pairs, name.upper().encode()) for name in run.list(node.tags["param"]))
        return [decode_text(one) for one in named if one is not None]
    name = found.name.lower()
    if name == b"content-disposition":
        kind = decode_text(headers.token(value)).lower()
        return [] if "subtype" in node.tags else [kind]
    both = headers.content_type(value) if name == b"content-type" else None
    if both is None:
        return []
    first, second = (decode_text(one).lower() for one in both)
    return [first if "type" in node.tags else second if "subtype" in node.tags else f"{first}/{second}"]


def address(run: Run, node: Node) -> bool:
    """RFC 5228 §5.1."""
    ready, message = node.ready, run.message
    about = ready.about
    if about is not None:
        found = message.remembered.get(about)
        if found is None:
            if ready.keys is not None and message.lacks(ready.fields):
                run.count(node, 0, len(ready.fields))
                return False
            found = _addresses(run, node, *about)
        return bool(ready.among(run, node, found))
    values = [value for name in run.list(node.values[0]) for one in fields_for(run, node, name)
              for value in _parts(run, node, addresses_of(one.value))]
    return bool(node.ready.any(run, node, values, run.list(node.values[1])))


def _addresses(run: Run, node: Node, part: str, names: Sequence[str]) -> Values:
    """That part of all addresses in the fields of these names. Raises RunProblem as `_texts`."""
    message, most = run.message, run.limits.octets
    parts: list[str] = []
    cost = 0
    for name in names:
        for value in message.values(name):
            cost += _READING * len(value)
            pairs = message.remembered.get((value,))
            if pairs is None:
                pairs = addresses_of(value)
                message.remember((value,), pairs, 2 * len(value) + 200 * len(pairs))
            parts += _PARTS[part](pairs)
        if cost > most:
            run.count(node, cost)
    found = Values(parts, len(names), cost)
    message.remember((part, tuple(names)), found, _MEMORY * found.length)
    return found


_PARTS: dict[str, Callable[[Sequence[tuple[str, str]]], list[str]]] = {
    "all": lambda pairs: [f"{local}@{domain}" if domain else local for local, domain in pairs],
    "localpart": lambda pairs: [local for local, _ in pairs],
    "domain": lambda pairs: [domain for _, domain in pairs]}


def addresses_of(value: bytes) -> list[tuple[str, str]]:
    """Local part and domain of each address of a field."""
    found, plain = [], value.isascii() and b"=?" not in value
    for one in headers.addresses(value):
        if one.mailbox is not None and one.host is not None:
            found.append((one.mailbox.decode(), one.host.decode()) if plain else (
                decode_words(one.mailbox), decode_words(one.host)))
    return found


def _parts(run: Run, node: Node, found: Sequence[tuple[str, str]]) -> list[str]:
    """Of each address the part that the test asks for; `:detail` of one without a detail is nothing (RFC 5233 §4)."""
    tags = node.tags
    separator = run.surroundings.separator
    if "user" in tags:
        return [local.partition(separator)[0] if separator else local for local, _ in found]
    if "detail" in tags:
        return [local.partition(separator)[2] for local, _ in found if separator and separator in local]
    return _PARTS[_part(node)](found)


def _part(node: Node) -> str:
    return next((part for part in _PARTS if part in node.tags), "all")


def envelope(run: Run, node: Node) -> bool:
    """RFC 5228 §5.4; the null path is an empty string for each part of an address."""
    run.require_delivery(node)
    values: list[str] = []
    part, names = node.ready.about or ("", [name.lower() for name in run.list(node.values[0])])
    for name in names:
        if name in ("from", "to"):
            value = run.envelope.sender if name == "from" else run.envelope.recipient
            local, _, domain = value.rpartition("@") if "@" in value else (value, "", "")
            values += _PARTS[part]([(local, domain)]) if part else _parts(run, node, [(local, domain)])
    return bool(node.ready.among(run, node, Values(values)))


def exists(run: Run, node: Node) -> bool:
    """RFC 5228 §5.5: whether there is a field of each of these names."""
    if node.ready is not None:
        run.count(node, 0, len(node.ready))
        return run.message.has(node.ready)
    for name in run.list(node.values[0]):
        if not fields_for(run, node, name):
            return False
    return True


def size(run: Run, node: Node) -> bool:
    """RFC 5228 §5.9."""
    if "over" in node.tags:
        return run.message.size > node.tags["over"]       # type: ignore[operator] # compiled as a number
    return run.message.size < node.tags["under"]          # type: ignore[operator] # compiled as a number


def _prepare_header(node: Node) -> object:
    names = constants(node.values[0])
    check_names(names)
    check_index(node)
    if names != node.values[0] or not _ALONE.isdisjoint(node.tags):
        return matching(node)
    return matching(node, names, _lowered(names))


def _prepare_address(node: Node) -> object:
    names = constants(node.values[0])
    for name in names:
        if name.lower() not in ADDRESSES:
            raise ValueError(f"{name} is no field of addresses")
    check_index(node)
    if names != node.values[0] or not _ALONE.isdisjoint(node.tags):
        return matching(node)
    return matching(node, (_part(node), names), _lowered(names))


def _lowered(names: Sequence[str]) -> frozenset[bytes]:
    return frozenset([name.lower().encode() for name in names])


def _prepare_envelope(node: Node) -> object:
    for name in constants(node.values[0]):
        if name.lower() not in ("from", "to"):
            raise ValueError(f'the envelope has no part "{name}"')
    names = tuple([name.lower() for name in constants(node.values[0])])
    return matching(node, (_part(node), names) if constants(node.values[0]) == node.values[0] and _ALONE.isdisjoint(
        node.tags) else None)


def _prepare_exists(node: Node) -> object:
    names = constants(node.values[0])
    check_names(names)
    check_index(node)
    return _lowered(names) if names == node.values[0] and "mime" not in node.tags else None


_TWO = (Kind.STRINGS, Kind.STRINGS)
TESTS = {
    "header": Form(header, tags={**MATCH_OR_LIST, **INDEX, **CHILDREN, **OPTIONS}, values=_TWO,
                   prepare=_prepare_header),
    "address": Form(address, tags={**MATCH_OR_LIST, **INDEX, **CHILDREN, **PART}, values=_TWO,
                    prepare=_prepare_address),
    "envelope": Form(envelope, ("envelope",), {**MATCH_OR_LIST, **PART}, values=_TWO, prepare=_prepare_envelope),
    "exists": Form(exists, tags=CHILDREN, values=(Kind.STRINGS,), prepare=_prepare_exists),
    "size": Form(size, tags={"over": Tag(value=Kind.NUMBER, group=":over or :under"),
                             "under": Tag(value=Kind.NUMBER, group=":over or :under")}, required=(":over or :under",)),
}
