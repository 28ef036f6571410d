"""Commands that repeat one thing as often as a line, and the limits, allow."""

from imap.wire import utf7
from imap.wire.append import is_message
from imap.wire.commandlimits import Limits
from imap.wire.commands import BadCommand, parse_command
from imap.wire.framer import Frame
from imap.wire.grammar import SyntaxProblem
from mboxlist.patterns import compile_pattern
from tests.imap.fuzz.framing import heard
from tests.support.fuzz.growth import Pattern, show

PLACES = ("/imap/wire/", "/imap/reading", "/store/net/", "/mboxlist/")
LIMITS = Limits(line=200_000)
NO_LIMITS = Limits(line=10**6, depth=10**6, keys=10**6, items=10**6, ranges=10**6, literals=10**6, memory=10**7)
TOKENS = (
    b"1,", b"1:2,", b"*,", b"1", b"(", b"((", b")", b"NOT ", b"OR ", b"ALL ", b"(ALL) ", b"1.", b"A.", b"UID ",
    b"FLAGS ", b"BODY[] ", b"BODY[", b"BODY.PEEK[1.2.HEADER] ", b"\\Seen ", b"a ", b"\\", b"\\\\", b'"', b'"a" ',
    b'"\\""', b"&", b"&A", b"&AOk-", b"&-", b"*%", b"%", b"{", b"{1}", b"~{", b"x", b" ", b"<", b"<1.", b"]", b"[",
    b"+", b"-", b"=", b"AAAA", b"MIN ", b"DATE ", b"REVERSE ", b"SUBSCRIBED ", b"MESSAGES ", b"STORAGE 1 ",
    b"\xc3\xa9", b"\xff", b"\0", b"X ", b"x y ", b"SUBJECT a ", b'HEADER a "" ', b"UID 1 ", b"$ ", b"l", b"lrs")
STARTS = (
    b"a ", b"a", b"a UID ", b"a LOGIN ", b'a LOGIN "', b"a AUTHENTICATE PLAIN ", b"a SELECT ", b"a SELECT x (",
    b"a LIST (", b'a LIST "" ', b'a LIST "" (', b'a LIST "" * RETURN (', b"a STATUS x (", b"a FETCH ", b"a FETCH 1 ",
    b"a FETCH 1 (", b"a FETCH 1 BODY[", b"a FETCH 1 BODY[HEADER.FIELDS (", b"a FETCH 1 BODY[]<", b"a STORE 1 +FLAGS (",
    b"a STORE 1 FLAGS ", b"a SEARCH ", b"a SEARCH RETURN (", b"a SEARCH CHARSET utf-8 ", b"a SORT (",
    b"a THREAD REFERENCES utf-8 ", b"a ID (", b"a ENABLE ", b"a APPEND x ", b"a APPEND x (", b"a CREATE x (USE (",
    b"a SETACL x y ", b"a SETQUOTA x (", b"a SELECT x (QRESYNC (1 1 ", b"a FETCH 1 FLAGS (", b"a COPY ")


def command(octets):
    """A command of one line, within the limits of a session and without any."""
    frame = Frame((octets,))
    is_message(frame)
    for limits, utf8 in ((LIMITS, True), (NO_LIMITS, False)):
        try:
            parse_command(frame, limits, utf8=utf8)
        except (BadCommand, RecursionError):        # no session is without limits
            pass


def name(octets):
    """A mailbox name, both ways."""
    try:
        utf7.decode(octets)
    except SyntaxProblem:
        pass
    utf7.encode(octets.decode("latin-1"))


def stream(octets):
    """What is read off a connection to which it comes in pieces."""
    heard([octets[at:at + 5000] for at in range(0, len(octets), 5000)], LIMITS)


def pattern(octets):
    """LIST patterns, of names that nearly match."""
    test = compile_pattern(octets[:999].decode("latin-1"))
    test(octets.decode("latin-1"))


LENGTH = 60_000
PATTERNS = (
    *(Pattern(f"{start!r} {token!r}", command, start, token, b"", LENGTH // len(token))
      for start in STARTS for token in TOKENS),
    *(Pattern(f"name {token!r}", name, b"", token, b"", LENGTH // len(token)) for token in TOKENS),
    *(Pattern(f"stream {token!r}", stream, b"", token, b"\r\n", LENGTH // len(token)) for token in (
        b"a\r\n", b"\n", b"a", b"a NOOP\r\n", b"a {1+}\r\nb", b"a {1}\r\nb", b" {0+}\r\n", b"a APPEND x {1+}\r\nb",
        b"a {99999+}\r\n", b"{", b"a {200000+}\r\n")),
    *(Pattern(f"pattern {token!r}", pattern, b"", token, b"b", LENGTH // len(token)) for token in (
        b"*a", b"%a", b"*%", b"a*a%", b"/%")),
)

if __name__ == "__main__":
    show(PATTERNS)
