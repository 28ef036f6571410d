"""FETCH: RFC 3501 §6.4.5, §7.4.2."""

import re
from enum import Enum
from functools import lru_cache

from attrs import field, frozen

from imap.wire.framer import Frame
from imap.wire.grammar import MAX_NUMBER, MAX_NUMBER64, SyntaxProblem
from imap.wire.modseq import modifiers
from imap.wire.numbers import NumberSet
from imap.wire.scanner import Scanner, number_set, parse_number_set
from imap.wire.writer import Writer


class Item(bytes, Enum):
    """Fetch items without arguments; the value is the name on the wire. BODY is BODYSTRUCTURE without extensions."""

    FLAGS = b"FLAGS"
    UID = b"UID"
    INTERNALDATE = b"INTERNALDATE"
    RFC822_SIZE = b"RFC822.SIZE"
    ENVELOPE = b"ENVELOPE"
    BODY = b"BODY"
    BODYSTRUCTURE = b"BODYSTRUCTURE"
    MODSEQ = b"MODSEQ"                      # RFC 7162 §3.1.5


class Part(Enum):
    """What of a section is meant (section-text); ALL is the whole of the part or message."""

    ALL = b""
    HEADER = b"HEADER"
    HEADER_FIELDS = b"HEADER.FIELDS"
    HEADER_FIELDS_NOT = b"HEADER.FIELDS.NOT"
    TEXT = b"TEXT"
    MIME = b"MIME"


@frozen
class Section:
    """BODY[section]<partial>, and RFC822, RFC822.HEADER, RFC822.TEXT, which mean the same under another label.

    `label` is the name in the response, `BODY[1.HEADER.FIELDS (TO)]<0>`; `sets_seen` is False for the PEEK forms.
    """

    path: tuple[int, ...] = ()
    part: Part = Part.ALL
    fields: tuple[bytes, ...] = ()              # names of header fields as given
    partial: tuple[int, int] | None = None      # first octet, number of octets
    sets_seen: bool = True
    label: bytes = field(default=b"BODY[]", kw_only=True)


@frozen
class Binary:
    """BINARY[path]<partial>, or with `size` BINARY.SIZE[path]: a part without its transfer encoding (RFC 3516 §4.2).

    `label` and `sets_seen` are as in `Section`.
    """

    path: tuple[int, ...] = ()
    partial: tuple[int, int] | None = None      # of the decoded octets
    sets_seen: bool = True
    size: bool = False
    label: bytes = field(default=b"BINARY[]", kw_only=True)


Wanted = Item | Section | Binary


def counts_as_read(one: Section | Binary) -> bool:
    """Whether a message counts as read whose client asks for that: more than its header, and from the beginning."""
    if one.partial is not None and one.partial[0]:
        return False
    return not one.size if isinstance(one, Binary) else one.part in (Part.ALL, Part.TEXT)


class Items(tuple[Wanted, ...]):
    """What a FETCH asks for. `plan` is what the verb has made of it, for the next command with the same items."""

    plan: object = None


@frozen
class Fetch:
    """fetch = "FETCH" SP sequence-set SP ("ALL" / "FULL" / "FAST" / fetch-att / "(" fetch-att *(SP fetch-att) ")")

    The macros are expanded; each item is there once, in the client's order. UID FETCH has Item.UID first if the client
    did not ask for it.

    The modifiers are those of RFC 7162 §3.1.4, §3.2.6; `changed_since` adds Item.MODSEQ.
    """

    messages: NumberSet
    items: Items
    by_uid: bool = False
    changed_since: int | None = None
    vanished: bool = False


_FAST = (Item.FLAGS, Item.INTERNALDATE, Item.RFC822_SIZE)
_MACROS: dict[bytes, tuple[Wanted, ...]] = {
    b"FAST": _FAST,
    b"ALL": (*_FAST, Item.ENVELOPE),
    b"FULL": (*_FAST, Item.ENVELOPE, Item.BODY),
}
_SIMPLE: dict[bytes, Wanted] = {
    **{item.value: item for item in Item},
    b"RFC822": Section(label=b"RFC822"),
    b"RFC822.HEADER": Section(part=Part.HEADER, sets_seen=False, label=b"RFC822.HEADER"),
    b"RFC822.TEXT": Section(part=Part.TEXT, label=b"RFC822.TEXT"),
}
_WHOLE: dict[bytes, Section | Binary] = {
    b"BODY[]": Section(),
    b"BODY.PEEK[]": Section(sets_seen=False),
    b"BINARY[]": Binary(),
    b"BINARY.PEEK[]": Binary(sets_seen=False),
    b"BINARY.SIZE[]": Binary(sets_seen=False, size=True, label=b"BINARY.SIZE[]"),
}
_PARTS = {part.value: part for part in Part}

LISTINGS = 32               # of the last lists with header fields that are remembered
_BINARY = (b"BINARY", b"BINARY.PEEK", b"BINARY.SIZE")
_WORD = re.compile(rb"[A-Za-z0-9.]++(?:\[\](?!<))?")
_SECTION = re.compile(rb"\[([1-9][0-9]*+(?:\.[1-9][0-9]*+)*)?(?:(\.)?([A-Za-z][A-Za-z.]*+))?")
_SECTION_BINARY = re.compile(rb"\[([1-9][0-9]*+(?:\.[1-9][0-9]*+)*)?\]")
# A sequence-set, and names of items alone
_PLAIN = re.compile(rb" ([0-9:,*]++) (\([A-Za-z0-9. \[\]]{1,100}+\)|[A-Za-z0-9.\[\]]{1,20}+)\Z")
# A sequence-set, and items in which there is no string, with no modifiers behind them
_LISTING = re.compile(rb" ([0-9:,*]++) (?!.*[)\]] \()(\([^\"{<]{1,400}+|[A-Za-z.]{1,20}+\[[^\"{<]{1,400}+)\Z")
_PARTIAL = re.compile(rb"<([0-9]++)\.([0-9]++)>")


def parse_fetch(scan: Scanner, *, by_uid: bool) -> Fetch:
    plain = _PLAIN.match(scan.text, scan.at)
    if plain is not None and plain[2].count(b" ") < scan.limits.items and (
            known := _plain_items(plain[2], by_uid)) is not None:
        return Fetch(parse_number_set(plain[1], scan.limits.ranges), known, by_uid)
    listing = _LISTING.match(scan.text, scan.at) if plain is None else None
    if listing is not None and listing[2].count(b" ") < scan.limits.items and (
            known := _listing_items(listing[2], by_uid)) is not None:
        return Fetch(parse_number_set(listing[1], scan.limits.ranges), known, by_uid)
    scan.space()
    messages = number_set(scan)
    scan.space()
    items = _items(scan, by_uid)
    since, vanished = _modifiers(scan, by_uid) if scan.take(b" ") else (None, False)
    scan.end()
    if since is not None and Item.MODSEQ not in items:
        items = Items((*items, Item.MODSEQ))
    return Fetch(messages, items, by_uid, since, vanished)


def _items(scan: Scanner, by_uid: bool) -> Items:
    items: tuple[Wanted, ...]
    if scan.looks_at(b"("):
        items = tuple(dict.fromkeys(scan.in_parentheses(
            lambda: _item(scan, _word(scan)), scan.limits.items, "Too many items to fetch")))
    else:
        word = _word(scan)
        items = _MACROS.get(word) or (_item(scan, word),)
    return Items((Item.UID, *items) if by_uid and Item.UID not in items else items)


@lru_cache(maxsize=256)
def _plain_items(text: bytes, by_uid: bool) -> Items | None:
    """The items of a short list of names, or of one name; None for a text of any other form. A client has few such
    lists, and sends them with each FETCH."""
    words = text.upper().strip(b"()").split(b" ")
    items: tuple[Wanted | None, ...] = _MACROS.get(text.upper()) or tuple(dict.fromkeys(
        [_SIMPLE.get(word) or _WHOLE.get(word) for word in words]))
    known = tuple([item for item in items if item is not None])
    if len(known) < len(items):
        return None
    return Items((Item.UID, *known) if by_uid and Item.UID not in known else known)


@lru_cache(maxsize=LISTINGS)
def _listing_items(text: bytes, by_uid: bool) -> Items | None:
    """The items of a text with one list of header fields; None for a text of any other form. A mail program lists
    mailboxes by such a text, and sends it with each FETCH. What is planned for it is kept with it."""
    if text.upper().count(b"HEADER.FIELDS") != 1:
        return None
    scan = Scanner(Frame((text,)))
    try:
        items = _items(scan, by_uid)
    except SyntaxProblem:
        return None
    return items if scan.at_end() else None


def _modifiers(scan: Scanner, by_uid: bool) -> tuple[int | None, bool]:
    found = modifiers(scan)
    since, vanished = found.pop(b"CHANGEDSINCE", None), b"VANISHED" in found
    found.pop(b"VANISHED", None)
    if found or vanished and (since is None or not by_uid):
        raise SyntaxProblem("These modifiers of FETCH cannot be")
    return since, vanished


def _word(scan: Scanner) -> bytes:
    found = scan.match(_WORD)
    if found is None:
        raise SyntaxProblem("A fetch item is expected here")
    return found[0].upper()


def _item(scan: Scanner, word: bytes) -> Wanted:
    if word in (b"BODY", b"BODY.PEEK") and scan.looks_at(b"["):
        return _section(scan, sets_seen=word == b"BODY")
    if word in _BINARY:
        return _binary(scan, word)
    item = _SIMPLE.get(word) or _WHOLE.get(word)
    if item is None:
        raise SyntaxProblem("There is no such fetch item")
    return item


def _section(scan: Scanner, *, sets_seen: bool) -> Section:
    found = scan.match(_SECTION)
    path = _path(found[1], scan) if found is not None and found[1] else ()
    part = _PARTS.get(found[3].upper()) if found is not None and found[3] else Part.ALL
    dotted = found is not None and found[2] is not None
    if found is None or part is None or dotted != bool(path and part is not Part.ALL):
        raise SyntaxProblem("There is no such section")
    if part is Part.MIME and not path:
        raise SyntaxProblem("MIME needs the number of a part")
    with_fields = part in (Part.HEADER_FIELDS, Part.HEADER_FIELDS_NOT)
    fields = _fields(scan) if with_fields else ()
    scan.expect(b"]")
    partial = _partial(scan) if scan.looks_at(b"<") else None
    return Section(path, part, fields, partial, sets_seen, label=_label(path, part, fields, partial))


def _binary(scan: Scanner, word: bytes) -> Binary:
    """"BINARY" [".PEEK"] section-binary [partial] / "BINARY.SIZE" section-binary"""
    found = scan.match(_SECTION_BINARY)
    if found is None:
        raise SyntaxProblem("There is no such section")
    path = _path(found[1], scan) if found[1] else ()
    size = word == b"BINARY.SIZE"
    partial = _partial(scan) if not size and scan.looks_at(b"<") else None
    label = (word if size else b"BINARY") + found[0] + (b"" if partial is None else b"<%d>" % partial[0])
    return Binary(path, partial, word == b"BINARY", size, label=label)


def _path(digits: bytes, scan: Scanner) -> tuple[int, ...]:
    numbers = digits.split(b".")
    if len(numbers) > scan.limits.items or max(map(len, numbers)) > 10:
        raise SyntaxProblem("There is no such section")
    path = tuple(map(int, numbers))
    if max(path) > MAX_NUMBER:
        raise SyntaxProblem("The number is out of range")
    return path


def _fields(scan: Scanner) -> tuple[bytes, ...]:
    """header-list"""
    scan.space()
    return tuple(scan.in_parentheses(scan.field_name, scan.limits.items, "Too many header fields"))


def _partial(scan: Scanner) -> tuple[int, int]:
    # Numbers of 63 bits, as RFC 9051 §9 has it, since a message may be that long.
    found = scan.match(_PARTIAL)
    if found is None or len(found[1]) > 19 or len(found[2]) > 19:
        raise SyntaxProblem("A part such as <0.1024> is expected here")
    start, count = int(found[1]), int(found[2])
    if not count or max(start, count) > MAX_NUMBER64:
        raise SyntaxProblem("The number is out of range")
    return start, count


def _label(path: tuple[int, ...], part: Part, fields: tuple[bytes, ...], partial: tuple[int, int] | None) -> bytes:
    words = [b"%d" % number for number in path]
    if part is not Part.ALL:
        words.append(part.value)
    label = Writer().raw(b"BODY[" + b".".join(words))
    if fields:
        label.raw(b" (")
        for number, name in enumerate(fields):
            label.raw(b" " if number else b"").astring(name)
        label.raw(b")")
    label.raw(b"]")
    if partial is not None:
        label.raw(b"<%d>" % partial[0])
    return bytes(label)
