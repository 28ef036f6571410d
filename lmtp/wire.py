"""The commands of LMTP as values, and their parsers (RFC 2033 §4, RFC 5321 §4.1.1). Nothing here reads or writes.

A parser gets what follows the verb, without its line end and without trailing blanks. All raise SyntaxProblem.

Lenient in what is read where every other server is and nothing is gained by refusing (docs/clients.md): blanks after
the colon, dots anywhere in a local part, any name of a client.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from attrs import field, frozen

from lmtp import replies
from lmtp.replies import Farewell, SyntaxProblem
from lmtp.smtppaths import Address, PathProblem, is_host, is_ip, path
from store.values import Secret

UNKNOWN = "unknown"     # a client's name that cannot be one
XCLIENT_IGNORED = frozenset({"PORT", "PROTO", "DESTADDR", "DESTPORT"})
XCLIENT_NAMES = ("NAME", "ADDR", "HELO", "LOGIN", *sorted(XCLIENT_IGNORED))

REMEMBERED = 1000       # commands with an address: most come again, from one sender or for one recipient

_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*+)(?:=([!-<>-~]++))?")     # RFC 5321 §4.1.2, esmtp-param
_SIZE = re.compile(r"[0-9]{1,20}")                                              # RFC 1870 §6.1
_CHUNK = re.compile(rb"([0-9]{1,20})(?: +(LAST))?", re.IGNORECASE)              # RFC 3030 §2
_XQUOTA = re.compile(r"(-[12]|[0-9]{1,18})(?:,(-[12]|[0-9]{1,18}))?")
_XTEXT = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2})*")                          # RFC 3461 §4
_PLUS = re.compile(r"\+([0-9A-F]{2})")
_PRINTABLE = re.compile(rb"[\t -~]*+")
_BODIES = frozenset({"7BIT", "8BITMIME", "BINARYMIME"})                         # RFC 6152 §2, RFC 3030 §3


@frozen
class Lhlo:
    """LHLO with the client's name."""

    name: str


@frozen
class Mail:
    """MAIL FROM. `sender` is None for <>; `size` is what the client announces (RFC 1870), 0 when it does not.

    `binary`: the message may have NULs and lines without end, and comes by BDAT only (RFC 3030 §3). `utf8`: addresses
    may have other characters than ASCII (RFC 6531 §3.4).
    """

    sender: Address | None
    size: int = 0
    binary: bool = False
    utf8: bool = False


@frozen
class Rcpt:
    """RCPT TO. The parameters are for relays that are trusted: `ignore_quota` (draft-murchison-lmtp-ignorequota), and
    `limits`, XQUOTA=octets[,messages] that the user may keep (quota.UNLIMITED and quota.DEFAULT are Sun's values too).
    """

    recipient: Address
    ignore_quota: bool = False
    limits: tuple[int, int | None] | None = None
    privileged: bool = field(init=False, repr=False, eq=False)      # whether it needs to be trusted

    @privileged.default
    def _by_its_parameters(self) -> bool:
        return self.ignore_quota or self.limits is not None


@frozen
class Data:
    """DATA."""


@frozen
class Bdat:
    """BDAT: that many octets of the message follow (RFC 3030 §2)."""

    size: int
    last: bool = False


@frozen
class Auth:
    """AUTH (RFC 4954 §4). `initial` is None when there is no initial response."""

    mechanism: str
    initial: Secret | None = None


@frozen
class Xclient:
    """XCLIENT: the client for which a proxy speaks (Postfix, XCLIENT_README). None: not said; "": not known."""

    address: str | None = None
    name: str | None = None
    helo: str | None = None
    login: str | None = None


@frozen
class Rset:
    """RSET."""


@frozen
class Noop:
    """NOOP."""


@frozen
class Vrfy:
    """VRFY; its argument does not matter to us."""


@frozen
class Help:
    """HELP."""


@frozen
class Starttls:
    """STARTTLS (RFC 3207)."""


@frozen
class Quit:
    """QUIT."""


Command = Lhlo | Mail | Rcpt | Data | Bdat | Auth | Xclient | Rset | Noop | Vrfy | Help | Starttls | Quit
Parser = Callable[[bytes], Command]


@lru_cache(maxsize=REMEMBERED)
def verb(line: bytes) -> tuple[bytes, bytes]:
    """The verb in capitals, and its argument; trailing blanks are tolerated (RFC 5321 §4.1.1)."""
    word, _, argument = line.partition(b" ")
    return word.rstrip(b"\t").upper(), argument.rstrip(b" \t")


def parse_lhlo(argument: bytes) -> Lhlo:
    """LHLO SP ( Domain / address-literal ). What is neither is taken, as in Dovecot and Cyrus, and not shown: a relay
    with an odd name could deliver nothing."""
    if not argument:
        raise SyntaxProblem(replies.BAD_LHLO)
    name = argument.decode("latin-1")
    return Lhlo(name if is_host(name) else UNKNOWN)


@lru_cache(maxsize=REMEMBERED)
def parse_mail(argument: bytes) -> Mail:
    """MAIL FROM:Reverse-path [SP Mail-parameters]"""
    sender, parameters = _path(argument, b"FROM:", replies.BAD_MAIL, replies.BAD_SENDER)
    found = _parameters(parameters)
    size, body, utf8 = found.pop("SIZE", "0"), found.pop("BODY", "7BIT").upper(), found.pop("SMTPUTF8", None)
    authorized = found.pop("AUTH", "<>")                        # RFC 4954 §5: nothing follows from it here
    if found:
        raise SyntaxProblem(replies.UNKNOWN_PARAMETER)
    if not _SIZE.fullmatch(size) or body not in _BODIES or utf8 or not _XTEXT.fullmatch(authorized):
        raise SyntaxProblem(replies.BAD_PARAMETER)
    if sender is not None and utf8 is None and not sender.is_ascii:
        raise SyntaxProblem(replies.NOT_ASCII)
    return Mail(sender, int(size), body == "BINARYMIME", utf8 is not None)


@lru_cache(maxsize=REMEMBERED)
def parse_rcpt(argument: bytes) -> Rcpt:
    """RCPT TO:Forward-path [SP Rcpt-parameters]"""
    recipient, parameters = _path(argument, b"TO:", replies.BAD_RCPT, replies.BAD_RECIPIENT)
    if recipient is None:
        raise SyntaxProblem(replies.EMPTY_RECIPIENT)
    found = _parameters(parameters)
    ignore, limits = found.pop("IGNOREQUOTA", None), found.pop("XQUOTA", None)
    if found:
        raise SyntaxProblem(replies.UNKNOWN_PARAMETER)
    if ignore:
        raise SyntaxProblem(replies.BAD_PARAMETER)
    return Rcpt(recipient, ignore is not None, None if limits is None else _limits(limits))


def _limits(value: str) -> tuple[int, int | None]:
    match = _XQUOTA.fullmatch(value)
    if match is None:
        raise SyntaxProblem(replies.BAD_PARAMETER)
    octets, messages = match.groups()
    return int(octets), None if messages is None else int(messages)


def parse_bdat(argument: bytes) -> Bdat:
    """BDAT SP chunk-size [SP end-marker]; raises Farewell, for nobody knows then where the next command begins"""
    match = _CHUNK.fullmatch(argument)
    if match is None:
        raise Farewell(replies.BAD_BDAT)
    return Bdat(int(match[1]), match[2] is not None)


def parse_auth(argument: bytes) -> Auth:
    """AUTH SP sasl-mech [SP initial-response]"""
    words = argument.split(b" ")
    if not argument or len(words) > 2 or not _PRINTABLE.fullmatch(argument):
        raise SyntaxProblem(replies.BAD_AUTH)
    return Auth(words[0].decode("ascii").upper(), Secret(words[1]) if len(words) == 2 else None)


def parse_xclient(argument: bytes) -> Xclient:
    """XCLIENT 1*( SP attribute-name"="attribute-value )"""
    values: dict[str, str] = {}
    for word in argument.split():
        keyword, _, value = word.decode("latin-1").partition("=")
        if not value or keyword.upper() in values or not _XTEXT.fullmatch(value):
            raise SyntaxProblem(replies.BAD_PARAMETER)
        plain = _PLUS.sub(lambda match: chr(int(match[1], 16)), value).encode("latin-1").decode("utf-8", "replace")
        values[keyword.upper()] = "" if plain.upper() in ("[UNAVAILABLE]", "[TEMPUNAVAIL]") else plain
    address, name, helo = values.pop("ADDR", None), values.pop("NAME", None), values.pop("HELO", None)
    login = values.pop("LOGIN", None)
    if not argument or values.keys() - XCLIENT_IGNORED:
        raise SyntaxProblem(replies.BAD_PARAMETER)
    if address:
        address = address[5:] if address[:5].upper() == "IPV6:" else address
    if not all(ok(value) for ok, value in ((is_ip, address), (is_host, name), (is_host, helo)) if value):
        raise SyntaxProblem(replies.BAD_PARAMETER)
    return Xclient(address, name, helo, login)


def parse_noop(argument: bytes) -> Noop:
    """NOOP [SP String]"""
    _text(argument)
    return Noop()


def parse_help(argument: bytes) -> Help:
    """HELP [SP String]"""
    _text(argument)
    return Help()


def parse_vrfy(argument: bytes) -> Vrfy:
    """VRFY SP String [SP "SMTPUTF8"]"""
    if not argument:
        raise SyntaxProblem(replies.NEEDS_ARGUMENT)
    if not argument.upper().endswith(b" SMTPUTF8"):            # RFC 6531 §3.7.4.2
        _text(argument)
    return Vrfy()


def alone(command: Command) -> Parser:
    """A parser for a command without argument."""
    def parse(argument: bytes) -> Command:
        if argument:
            raise SyntaxProblem(replies.NO_ARGUMENT)
        return command
    return parse


def _path(argument: bytes, keyword: bytes, no_keyword: replies.Reply,
          no_path: replies.Reply) -> tuple[Address | None, str]:
    """The path after FROM: or TO:, and its parameters. Blanks after the colon are common enough to be tolerated."""
    if argument[:len(keyword)].upper() != keyword:
        raise SyntaxProblem(no_keyword)
    try:
        address, rest = path(argument[len(keyword):].decode().lstrip(" "))
    except (UnicodeDecodeError, PathProblem):
        raise SyntaxProblem(no_path) from None
    if rest and not rest.startswith(" "):
        raise SyntaxProblem(no_path)
    return address, rest


def _parameters(text: str) -> dict[str, str]:
    """The esmtp-params, keywords in capitals; the value is "" when there is none."""
    found: dict[str, str] = {}
    for word in text.split():
        match = _PARAMETER.fullmatch(word)
        if match is None:
            raise SyntaxProblem(replies.BAD_PARAMETER)
        keyword = match[1].upper()
        if keyword in found:
            raise SyntaxProblem(replies.BAD_PARAMETER)
        found[keyword] = match[2] or ""
    return found


def _text(argument: bytes) -> None:
    if not _PRINTABLE.fullmatch(argument):
        raise SyntaxProblem(replies.BAD_PARAMETER)
