"""Junk of every kind: the one exception is BadCommand, and the time is linear, or these tests would not end."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imap.wire.append import is_message
from imap.wire.commandlimits import STRICT
from imap.wire.commands import COMMANDS, BadCommand, parse_command
from imap.wire.dates import date, date_time
from imap.wire.flags import flag_list
from imap.wire.framer import Frame
from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner, number_set

WORDS = [
    b" ", b"(", b")", b"[", b"]", b"<", b">", b"{", b"}", b"{3}", b'"', b"\\", b"*", b"%", b":", b",", b".", b"+", b"-",
    b"&", b"1", b"0", b"4294967296", b"1:*", b"FLAGS", b"BODY", b"BODY.PEEK[", b"HEADER.FIELDS", b"RFC822", b"TEXT",
    b"MIME", b"ALL", b"\\Seen", b"+FLAGS", b"NOT", b"OR", b"CHARSET", b"UTF-8", b"SINCE", b"1-Feb-1994", b"NIL",
    b"INBOX", b"(USE (", b"RETURN", b'" 1-Feb-1994 00:00:00 +0000"', b"\0", b"\r", b"\n", b"\xff", b"\xc3\xa9",
    b"SPECIAL-USE", b"SUBSCRIBED", b"RECURSIVEMATCH", b"STATUS", b"+lrs", b"STORAGE", b"MESSAGES", b"&AOk-", b"=",
    b"~{3}", b"UTF8 (~", b"BINARY[1]", b"BINARY.SIZE[", b"UTF8=ACCEPT"]
pieces = st.lists(st.sampled_from(WORDS) | st.binary(max_size=5), max_size=12).map(b"".join)
names = st.sampled_from(sorted(COMMANDS)) | st.binary(max_size=8)


@settings(max_examples=600)
@given(names, pieces, st.lists(st.tuples(st.binary(max_size=4), pieces), max_size=3), st.booleans())
@example(b"APPEND", b" x {3}", [], False)
def test_any_frame_is_a_command_or_a_bad_command(name, text, rest, strict):
    parts = [b"a " + name + b" " + text]
    for literal, more in rest:
        parts[-1] += b"{%d}" % len(literal)
        parts += [literal, more]
    frame = Frame(tuple(parts))
    assert is_message(frame) in (True, False)
    try:
        tag, value = parse_command(frame, STRICT) if strict else parse_command(frame, utf8=len(rest) % 2 == 1)
    except BadCommand as refused:
        assert refused.tag in (b"a", None) and refused.problem.public.isprintable() and refused.problem.public.isascii()
    else:
        assert tag == b"a" and hash(value) is not None


@given(st.binary(max_size=60))
def test_any_octets_are_a_command_or_a_bad_command(octets):
    try:
        tag, _ = parse_command(Frame((octets,)))
    except BadCommand:
        return
    assert octets.startswith(tag + b" ")        # such as "! NOOP": any atom without "+" is a tag


ELEMENTS = [
    Scanner.atom, Scanner.flag, Scanner.number, Scanner.astring, Scanner.string,
    Scanner.nstring, Scanner.mailbox, Scanner.list_mailbox, Scanner.field_name, Scanner.announced,
    Scanner.space, Scanner.end,
    number_set, date, date_time, flag_list]


@given(st.sampled_from(ELEMENTS), pieces | st.binary(max_size=20), st.binary(max_size=3), pieces)
def test_any_octets_are_an_element_or_a_syntax_problem(element, text, literal, rest):
    for frame in (Frame((text,)), Frame((text + b"{%d}" % len(literal), literal, rest))):
        scan = Scanner(frame)
        try:
            element(scan)
        except SyntaxProblem:
            pass
        assert 0 <= scan.at <= len(scan.text)


HUGE = 60_000


@pytest.mark.parametrize("line", [
    b'LOGIN "' + b"a" * HUGE, b'LOGIN "' + b"\\\\" * (HUGE // 2), b"SELECT " + b"&" * HUGE,
    b"SELECT " + b"&A" * (HUGE // 2), b"SELECT " + b"&AOk" * (HUGE // 4), b"FETCH " + b"1:" * (HUGE // 2),
    b"FETCH " + b"1," * (HUGE // 2), b"FETCH 1 BODY[" + b"1." * (HUGE // 2), b"FETCH 1 BODY[" + b"1" * HUGE,
    b"FETCH 1 BODY[]<" + b"1" * HUGE, b"FETCH 1 " + b"A." * (HUGE // 2), b"FETCH " + b"1" * HUGE,
    b"FETCH 1 (" + b"UID " * (HUGE // 4), b"SEARCH " + b"(" * HUGE, b"SEARCH " + b"NOT " * (HUGE // 4),
    b"SEARCH " + b"OR " * (HUGE // 3), b"SEARCH LARGER " + b"9" * HUGE, b"STORE 1 FLAGS (" + b"a " * (HUGE // 2),
    b"STORE 1 FLAGS (" + b"\\" * HUGE, b"STORE 1 " + b"+FLAGS" * (HUGE // 6), b"AUTHENTICATE X " + b"A" * HUGE + b"!",
    b"ID (" + b'"a" "b" ' * (HUGE // 8), b"ENABLE" + b" X" * (HUGE // 2), b"LIST \"\" " + b"*" * HUGE + b"(",
    b"UID" * (HUGE // 3), b" " * HUGE, b"APPEND x {" + b"9" * HUGE, b"APPEND x " + b"{" * HUGE])
def test_the_worst_that_fits_a_line_is_refused(line):
    frame = Frame((b"a " + line,))
    is_message(frame)
    with pytest.raises(BadCommand):
        parse_command(frame)
