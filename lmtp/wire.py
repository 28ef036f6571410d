"""The commands of LMTP as values, and their parsers (RFC 2033 §4, RFC 5321 §4.1.1). Nothing here reads or writes.

A parser gets what follows the verb, without its line end and without trailing blanks. All raise SyntaxProblem.
"""

import re
from collections.abc import Callable

from attrs import frozen

from lmtp import replies
from lmtp.paths import Address, PathProblem, is_host, path
from lmtp.replies import SyntaxProblem

_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*+)(?:=([!-<>-~]++))?")     # RFC 5321 §4.1.2, esmtp-param
_SIZE = re.compile(r"[0-9]{1,20}")                                              # RFC 1870 §6.1
_PRINTABLE = re.compile(rb"[\t -~]*+")


@frozen
class Lhlo:
    """LHLO with the client's name."""

    name: str


@frozen
class Mail:
    """MAIL FROM. `sender` is None for <>; `size` is what the client announces (RFC 1870), 0 when it does not."""

    sender: Address | None
    size: int = 0


@frozen
class Rcpt:
    """RCPT TO."""

    recipient: Address


@frozen
class Data:
    """DATA."""


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


Command = Lhlo | Mail | Rcpt | Data | Rset | Noop | Vrfy | Help | Starttls | Quit
Parser = Callable[[bytes], Command]


def verb(line: bytes) -> tuple[bytes, bytes]:
    """The verb in capitals, and its argument; trailing blanks are tolerated (RFC 5321 §4.1.1)."""
    word, _, argument = line.partition(b" ")
    return word.rstrip(b"\t").upper(), argument.rstrip(b" \t")


def parse_lhlo(argument: bytes) -> Lhlo:
    """LHLO SP ( Domain / address-literal )"""
    name = argument.decode("ascii", "replace")
    if not is_host(name):
        raise SyntaxProblem(replies.BAD_LHLO)
    return Lhlo(name)


def parse_mail(argument: bytes) -> Mail:
    """MAIL FROM:Reverse-path [SP Mail-parameters]"""
    sender, parameters = _path(argument, b"FROM:", replies.BAD_MAIL, replies.BAD_SENDER)
    size = 0
    for keyword, value in _parameters(parameters).items():
        if keyword == "SIZE":
            if not _SIZE.fullmatch(value):
                raise SyntaxProblem(replies.BAD_PARAMETER)
            size = int(value)
        elif keyword == "BODY":
            if value.upper() not in ("7BIT", "8BITMIME"):       # RFC 6152 §2: it changes nothing for us
                raise SyntaxProblem(replies.BAD_PARAMETER)
        else:
            raise SyntaxProblem(replies.UNKNOWN_PARAMETER)
    return Mail(sender, size)


def parse_rcpt(argument: bytes) -> Rcpt:
    """RCPT TO:Forward-path; there are no parameters that we know"""
    recipient, parameters = _path(argument, b"TO:", replies.BAD_RCPT, replies.BAD_RECIPIENT)
    if recipient is None:
        raise SyntaxProblem(replies.EMPTY_RECIPIENT)
    if parameters and _parameters(parameters):
        raise SyntaxProblem(replies.UNKNOWN_PARAMETER)
    return Rcpt(recipient)


def parse_noop(argument: bytes) -> Noop:
    """NOOP [SP String]"""
    _text(argument)
    return Noop()


def parse_help(argument: bytes) -> Help:
    """HELP [SP String]"""
    _text(argument)
    return Help()


def parse_vrfy(argument: bytes) -> Vrfy:
    """VRFY SP String"""
    if not argument:
        raise SyntaxProblem(replies.NEEDS_ARGUMENT)
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
        text = argument[len(keyword):].decode("ascii").lstrip(" ")
    except UnicodeDecodeError:
        raise SyntaxProblem(replies.NOT_ASCII) from None
    try:
        address, rest = path(text)
    except PathProblem:
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
