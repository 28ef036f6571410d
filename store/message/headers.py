"""Header fields of a message as they are parsed for the cache: RFC 5322, 2045, 2231.

Everything here is lenient and never raises: what cannot be understood is passed over. All of it is linear in its input;
the regular expressions use possessive repetition so that they cannot backtrack.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import date
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

LOOKED_AT = 16 << 10         # octets of a header in which fields are found by one call
PARAMETERS = 64             # of one field that are kept
ADDRESSES = 4096            # of one field that are kept
LANGUAGES = 32              # of Content-Language that are kept

# As numbers they are found six times as fast: of octets `in` asks first whether they are a number.
_COMMENT, _SEMICOLON, _BACKSLASH, _ASTERISK = b"(;\\*"

Pair = tuple[bytes, bytes]

# Content-Type, Content-Disposition

_TOKEN = rb"[^\x00-\x20()<>@,;:\\\"/\[\]?=\x7f]++"
_TYPE = re.compile(rb"[ \t]*+(%s)[ \t]*+/[ \t]*+(%s)" % (_TOKEN, _TOKEN))
_WORD = re.compile(rb"[ \t]*+(%s)" % _TOKEN)
# A value that is not a token is taken as far as the next semicolon or blank: agents leave out the quotes.
_PARAMETER = re.compile(
    rb';[ \t]*+([^\x00-\x20;="()]++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]++|\\.)*)"?+|([^ \t;"]++))', re.DOTALL)
_QUOTED_PAIR = re.compile(rb"\\(.)", re.DOTALL)


def unfold(header: bytes) -> bytes:
    """The header with each field on one line that a bare LF ends (RFC 5322 §2.2.3)."""
    return header.replace(b"\r\n", b"\n").replace(b"\n ", b" ").replace(b"\n\t", b"\t")


def header_end(message: bytes) -> int | None:
    """Where the header ends of a message that begins so: after the first empty line, as `mime` has it."""
    if message.startswith((b"\r\n", b"\n")):
        return 1 if message.startswith(b"\n") else 2
    end = message.find(b"\n\r\n")
    bare = message.find(b"\n\n", 0, end + 1 if end >= 0 else len(message))
    if bare >= 0:
        return bare + 2
    return end + 3 if end >= 0 else None


def select(header: bytes, names: frozenset[bytes], joined: Collection[bytes] = ()) -> dict[bytes, bytes]:
    """The unfolded values of the fields in `names` (lower case), the first of each.

    Of fields in `joined`, which are lists of addresses, all are taken as one.
    """
    found: dict[bytes, bytes] = {}
    more: dict[bytes, list[bytes]] = {}
    unfolded = (b"\n" + header).replace(b"\r\n", b"\n").replace(b"\n ", b" ").replace(b"\n\t", b"\t")
    fields = _fields(names)
    for name, value in fields.findall(unfolded) if len(unfolded) <= LOOKED_AT else _found(fields, unfolded):
        name = name.lower()
        if name not in found:
            found[name] = value.strip()
        elif name in joined:
            more.setdefault(name, []).append(value.strip())
    for name, values in more.items():
        found[name] = b", ".join([value for value in (found[name], *values) if value])
    return found


def all_fields(header: bytes) -> dict[bytes, list[bytes]]:
    """The values of all fields, which may be folded still, by their names in lower case; of a name in order."""
    found: dict[bytes, list[bytes]] = {}
    long = len(header) > LOOKED_AT
    for name, value in _found(_ANY_FIELD, unfold(header)) if long else _ANY_FIELD.findall(header):
        found.setdefault(name.lower(), []).append(value)
    return found


_ANY_FIELD = re.compile(rb"^([!-9;-~]++)[ \t]*+:([^\n]*+(?:\n[ \t][^\n]*+)*)", re.MULTILINE)


def _found(fields: re.Pattern[bytes], header: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All that it finds. Of a long header a piece at a time: meanwhile no other thread can do anything."""
    at = 0
    while at >= 0:                      # each piece but the first begins with an LF
        end = header.find(b"\n", at + LOOKED_AT)
        yield from fields.findall(header, at, len(header) if end < 0 else end)
        at = end


@cache
def _fields(names: frozenset[bytes]) -> re.Pattern[bytes]:
    """Finds the names and values of these fields in an unfolded header with an LF before each line."""
    return re.compile(rb"\n(%b)[ \t\r\v\f]*+:([^\n]*+)" % any_of(sorted(names)))


def any_of(names: Collection[bytes]) -> bytes:
    """A regular expression for these names in any case. So it finds them in half the time that IGNORECASE takes."""
    firsts: dict[bytes, list[bytes]] = {}
    for name in filter(None, names):
        firsts.setdefault(name[:1], []).append(name[1:])
    if not firsts:
        return b""
    branches = [(b"[%b%b]" % (first.upper(), first) if first.isalpha() else re.escape(first)) + any_of(rest)
                for first, rest in firsts.items()]
    return b"(?:%b)" % b"|".join([*branches, b""] if b"" in names else branches)


def every(header: bytes, name: bytes) -> list[bytes]:
    """The unfolded values of all fields of that name (lower case)."""
    split = (line.partition(b":") for line in unfold(header).split(b"\n"))
    return [value.strip() for key, colon, value in split if colon and key.rstrip().lower() == name]


def without_comments(value: bytes) -> bytes:
    """The value with each comment (RFC 5322 §3.2.2) outside quoted strings turned into a blank."""
    if _COMMENT not in value:
        return value
    out, kept, at = bytearray(), 0, 0               # kept: where what is not in `out` yet begins
    while found := _UNCOMMENTED.search(value, at):
        at = found.end()
        if found[0] == b"(":
            out += value[kept:found.start()] + b" "
            kept = at = _comment_end(value, at)
    return bytes(out + value[kept:])


_UNCOMMENTED = re.compile(rb'"(?:[^"\\]++|\\.)*"?+|\\.|\(', re.DOTALL)
_IN_COMMENT = re.compile(rb"\\.|[()]", re.DOTALL)


def _comment_end(value: bytes, at: int) -> int:
    """The index after the comment whose opening parenthesis stands before `at`."""
    depth = 1
    for token in _IN_COMMENT.finditer(value, at):
        if token[0] == b"(":
            depth += 1
        elif token[0] == b")":
            depth -= 1
            if not depth:
                return token.end()
    return len(value)


def content_type(value: bytes) -> tuple[bytes, bytes] | None:
    """Type and subtype in upper case (RFC 2045 §5.1), or None where there is no such thing."""
    match = _TYPE.match(without_comments(value) if _COMMENT in value else value)
    return (match[1].upper(), match[2].upper()) if match else None


def token(value: bytes) -> bytes:
    """The first token of a value in upper case, such as a Content-Transfer-Encoding; empty when there is none."""
    match = _WORD.match(without_comments(value) if _COMMENT in value else value)
    return match[1].upper() if match else b""


def parameters(value: bytes) -> tuple[Pair, ...]:
    """The parameters after the first semicolon (RFC 2045 §5.1): names in upper case, values without their quotes."""
    if _SEMICOLON not in value:
        return ()
    value, at = without_comments(value) if _COMMENT in value else value, 0
    found: list[Pair] = []
    while len(found) < PARAMETERS and (at := value.find(b";", at)) >= 0:
        match = _PARAMETER.match(value, at)
        if match is None:
            at += 1
            continue
        quoted, plain = match[2], match[3]
        if plain is None:
            plain = _QUOTED_PAIR.sub(rb"\1", quoted) if _BACKSLASH in quoted else quoted
        found.append((match[1].upper(), plain))
        at = match.end()
    return tuple(found)


def parameter(pairs: Iterable[Pair], name: bytes) -> bytes | None:
    """The value of a parameter, `name` in upper case, put together and decoded as RFC 2231 §3 and §4 say."""
    pieces: dict[int, tuple[bool, bytes]] = {}
    start = name + b"*"
    for key, value in pairs:
        if key == name:
            return value
        if key.startswith(start):
            number, encoded = key[len(start):], key.endswith(b"*")
            number = number.rstrip(b"*")
            if (number.isdigit() or not number) and len(number) < 4:
                pieces.setdefault(int(number or b"0"), (encoded, value))
    if 0 not in pieces:
        return None
    out, count = b"", 0
    while count in pieces:
        encoded, value = pieces[count]
        if encoded:
            value = unquote_to_bytes(value.split(b"'", 2)[-1] if not count else value)
        out += value
        count += 1
    return out


_CONTINUATION = re.compile(rb"([^*]+)\*(0|[1-9][0-9]{0,2})(\*?)")
_NOT_ATTRIBUTE_CHAR = re.compile(rb"[^!#$&+\-.^_`{|}~0-9A-Za-z]")       # RFC 2231 §7 attribute-char


def joined(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """The parameters with continuations put together where their first piece stands (RFC 2231 §3, §6).

    With a piece that is encoded (§4.1) the whole is, and keeps its charset in front: NAME*0*, NAME*1 become NAME*.
    """
    if not any(_ASTERISK in key for key, _ in pairs):
        return pairs
    pieces: dict[bytes, dict[int, tuple[bool, bytes]]] = {}
    for key, value in pairs:
        found = _CONTINUATION.fullmatch(key)
        if found is not None:
            pieces.setdefault(found[1], {}).setdefault(int(found[2]), (bool(found[3]), value))
    whole = {name: _whole(name, found) for name, found in pieces.items() if 0 in found}
    out: dict[bytes, bytes] = {}
    for key, value in pairs:
        found = _CONTINUATION.fullmatch(key)
        name, number = (found[1], int(found[2])) if found is not None else (key, 0)
        if found is None or name not in whole or number >= whole[name][2]:
            out.setdefault(key, value)
        elif not number:
            out.setdefault(*whole[name][:2])
    return tuple(out.items())


def _whole(name: bytes, pieces: dict[int, tuple[bool, bytes]]) -> tuple[bytes, bytes, int]:
    """Name and value of what the pieces from 0 on are together, and how many these are."""
    values: list[tuple[bool, bytes]] = []
    while len(values) in pieces:
        values.append(pieces[len(values)])
    if not any(encoded for encoded, _ in values):
        return name, b"".join([value for _, value in values]), len(values)
    out = [value if encoded else _NOT_ATTRIBUTE_CHAR.sub(lambda octet: b"%%%02X" % octet[0][0], value)
           for encoded, value in values]
    return name + b"*", (b"" if values[0][0] else b"''") + b"".join(out), len(values)


def languages(value: bytes) -> tuple[bytes, ...]:
    """The tags of Content-Language (RFC 3282 §2)."""
    tags = (tag.strip() for tag in without_comments(value).split(b",", LANGUAGES)[:LANGUAGES])
    return tuple(tag for tag in tags if tag)


# Date

_DATE = re.compile(rb"(?:[A-Za-z]++[ \t]*+,)?[ \t]*+(\d{1,2})[ \t]*+([A-Za-z]{3})[A-Za-z]*+[ \t]*+(\d{2,4})"
                   rb"(?:[ \t]++(\d{1,2}):(\d\d)(?::(\d\d))?(?:[ \t]*+([+-]\d{4}|[A-Za-z]++))?)?")
_MONTHS = {name: number for number, name in enumerate(
    (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"), 1)}
_ZONES = {b"EST": -5, b"EDT": -4, b"CST": -6, b"CDT": -5, b"MST": -7, b"MDT": -6, b"PST": -8, b"PDT": -7}
_EPOCH = date(1970, 1, 1).toordinal()


def sent(value: bytes) -> tuple[int, int] | None:
    """Of a Date field (RFC 5322 §3.3, years also as in §4.3) the day in its own zone, as days since 1970, and the Unix
    time (RFC 5256 §2.2); None: not a date.

    Without a valid time it is midnight, without a valid zone UTC.
    """
    match = _DATE.match(without_comments(value).strip())
    if match is None or match[2].lower() not in _MONTHS:
        return None
    year = int(match[3])
    if len(match[3]) == 2:
        year += 2000 if year < 50 else 1900
    elif len(match[3]) == 3:
        year += 1900
    try:
        day = date(year, _MONTHS[match[2].lower()], int(match[1])).toordinal() - _EPOCH
    except ValueError:
        return None
    hour, minute, second = int(match[4] or 0), int(match[5] or 0), int(match[6] or 0)
    if hour > 23 or minute > 59 or second > 60:
        hour = minute = second = 0
    return day, day * 86400 + hour * 3600 + minute * 60 + second - _east(match[7] or b"")


def _east(zone: bytes) -> int:
    """The seconds east of UTC that a zone says (RFC 5322 §3.3, §4.3)."""
    if zone[:1] in (b"+", b"-"):
        hours, minutes = int(zone[1:3]), int(zone[3:])
        return 0 if minutes > 59 else (hours * 60 + minutes) * (-60 if zone[:1] == b"-" else 60)
    return _ZONES.get(zone.upper(), 0) * 3600


# Addresses

class Address(NamedTuple):
    """One address structure of an ENVELOPE (RFC 3501 §7.4.2), whose group syntax has `host` None."""

    name: bytes | None
    route: bytes | None
    mailbox: bytes | None
    host: bytes | None


_ATEXT = rb"[^\x00-\x20()<>@,;:\\\"\[\].\x7f]"
_DOTTED = rb"[^\x00-\x20()<>@,;:\\\"\[\]\x7f]++"         # atext, and dots anywhere
# One address of the usual kind and what ends it; everything else goes through _Reader.
_USUAL = re.compile(
    rb'[ \t]*+(?:(?:"([^"\\]*+)"|(%s(?:[ \t]++%s)*))?[ \t]*+<(%s)@(%s)>|(%s)@(%s))[ \t]*+(?:,|\Z)' % ((_DOTTED,) * 6))
# Blank, quoted string, start of a comment, domain literal, special, atom; the last takes whatever is left over.
_TOKEN_OF_ADDRESS = re.compile(
    rb'([ \t\r\n]++)|"((?:[^"\\]++|\\.)*)"?+|(\()|(\[(?:[^\]\\]++|\\.)*\]?+)|([<>@,;:.])|(%s++|\\.|.)' % _ATEXT,
    re.DOTALL)
GROUP_END = Address(None, None, None, None)


def addresses(value: bytes) -> list[Address]:
    """The addresses of an address list with its groups (RFC 5322 §3.4, obsolete forms of §4.4 too)."""
    usual, at = usual_addresses(value)
    found = [Address(name or None, None, mailbox, host) for name, mailbox, host in usual]
    if at == len(value) or len(found) == ADDRESSES:
        return found
    return _closed((found + _Reader().read(value[at:]))[:ADDRESSES])


def usual_addresses(value: bytes) -> tuple[list[tuple[bytes, bytes, bytes]], int]:
    """The addresses at its beginning that are of the usual kind, and where the first other one begins. Of each its
    name, mailbox and host, in none of which there is a quotation mark."""
    found: list[tuple[bytes, bytes, bytes]] = []
    at, end = 0, len(value)
    while at < end and len(found) < ADDRESSES and (match := _USUAL.match(value, at)) is not None:
        quoted, phrase, mailbox, host, bare, bare_host = match.groups()
        found.append((quoted or phrase or b"", mailbox or bare, host or bare_host))
        at = match.end()
    return found, at


def _closed(found: list[Address]) -> list[Address]:
    """With an end for the group that is open."""
    edge = next((one for one in reversed(found) if one.host is None), GROUP_END)
    return found if edge == GROUP_END else [*found, GROUP_END]


class _Reader:
    """Reads an address list token by token; it knows comments, groups, routes and quoted local parts."""

    def __init__(self) -> None:
        self.found: list[Address] = []
        self.in_group = False
        self.clear()

    def clear(self) -> None:
        """Forget what belongs to the address that has just ended."""
        self.words: list[bytes] = []            # a phrase, or a local part without its angle brackets
        self.blank = False                      # a blank stands between the last word and the next
        self.comment: bytes | None = None
        self.local: bytes | None = None         # known once "@" has come
        self.route: bytes | None = None
        self.phrase: bytes | None = None        # known once "<" has come
        self.angle = 0                          # 1: inside the angle brackets, 2: after them

    def read(self, value: bytes) -> list[Address]:
        """The addresses in `value`."""
        at = 0
        while len(self.found) < ADDRESSES and (found := _TOKEN_OF_ADDRESS.match(value, at)):
            at = found.end()
            match found.lastindex:
                case 1:
                    self.blank = True
                case 2:
                    self.word(_QUOTED_PAIR.sub(rb"\1", found[2]))
                case 3:
                    start, at = at, _comment_end(value, at)
                    self.comment = _QUOTED_PAIR.sub(rb"\1", value[start:at].removesuffix(b")")).strip()
                    self.blank = True
                case 5:
                    self.special(found[5])
                case _:
                    self.word(found[0])
        self.end()
        return self.found

    def word(self, text: bytes) -> None:
        """An atom, a quoted string or a domain literal."""
        if self.angle == 2:
            return
        if self.words and self.blank and self.local is None and not self.angle:
            self.words.append(b" ")
        self.words.append(text)
        self.blank = False

    def special(self, char: bytes) -> None:
        """One of the characters that structure the list."""
        match char:
            case b".":
                self.word(char)
                return
            case b"<" if not self.angle:
                # What stood before is the display name, even with an "@" in it.
                self.phrase = b"".join(([self.local, b"@"] if self.local is not None else []) + self.words).strip()
                self.words, self.local, self.angle = [], None, 1
            case b">" if self.angle == 1:
                self.angle = 2
            case b"@" if self.angle != 2:
                if self.local is None:
                    self.local, self.words = b"".join(self.words).strip(), []
                else:
                    self.words.append(char)
            case b":" if self.angle == 1 and self.local == b"":
                self.route, self.local, self.words = b"@" + b"".join(self.words), None, []
            case b":" if not self.angle and not self.in_group and self.local is None:
                self.found.append(Address(None, None, b"".join(self.words).strip(), None))
                self.clear()
                self.in_group = True
            case b"," if self.angle == 1 and self.local == b"":
                self.words.append(char)                     # between the domains of a route
            case b",":
                self.end()
            case b";":
                self.end()
                if self.in_group:
                    self.found.append(GROUP_END)
                self.in_group = False
        self.blank = False

    def end(self) -> None:
        """The address is complete; one without "@" has an empty host, since NIL would make it group syntax."""
        text = b"".join(self.words).strip()
        mailbox, host = (text, b"") if self.local is None else (self.local, text)
        name = self.phrase or self.comment or None
        if mailbox or host or self.phrase:
            self.found.append(Address(name, self.route, mailbox, host))
        self.clear()
