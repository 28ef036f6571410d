"""What the writer writes, the scanner reads back; and nothing of a client's can add a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imap.wire.commandlimits import Limits
from imap.wire.flags import format_flags
from imap.wire.framer import Frame, Framer, Literal
from imap.wire.scanner import Scanner
from imap.wire.writer import Writer, literal_head
from store.values import Flag

ASTRINGS = [
    (b"INBOX", b"INBOX"),
    (b"a]b", b"a]b"),
    (b"", b'""'),
    (b"nil", b'"nil"'),
    (b"a b", b'"a b"'),
    (b'a"b\\c', b'"a\\"b\\\\c"'),
    (b"a%", b'"a%"'),
    (b"{3}", b'"{3}"'),
    (b"(", b'"("'),
    (b"\x01", b'"\x01"'),
    (b"a\r\nb", b"{4}\r\na\r\nb"),
    ("é".encode(), b"{2}\r\n\xc3\xa9"),
    (b" " * 1025, b"{1025}\r\n" + b" " * 1025),
]


@pytest.mark.parametrize("value, octets", ASTRINGS)
def test_an_astring_has_the_shortest_form_that_is_safe(value, octets):
    assert bytes(Writer().astring(value)) == octets


def frames(octets):
    """The frames in what was written, as a client's framer would find them."""
    framer = Framer(Limits())
    while octets:
        line, _, octets = octets.partition(b"\r\n")
        step = framer.line(line)
        if isinstance(step, Literal):
            framer.literal(octets[:step.size])
            octets = octets[step.size:]
        else:
            yield step


strings = st.binary(max_size=40) | st.text("ab\\\"{}3+() \r\n\x00\x7f*%]", max_size=12).map(str.encode)


@given(st.lists(strings.filter(lambda value: b"\0" not in value), min_size=1, max_size=4))
def test_strings_are_read_back(values):
    writer = Writer()
    for value in values:
        writer.astring(value).raw(b" ").string(value).raw(b" ").nstring(value).raw(b" ").nstring(None).raw(b" ")
    (frame,) = frames(bytes(writer) + b"\r\n")
    scan = Scanner(frame)
    for value in values:
        assert scan.astring() == value
        scan.space()
        assert scan.string() == value
        scan.space()
        assert scan.nstring() == value
        scan.space()
        assert scan.nstring() is None
        scan.space()
    scan.end()


@given(strings)
def test_nothing_written_is_two_lines(value):
    (frame,) = frames(bytes(Writer().raw(b"* ").astring(value).raw(b" ").string(value)) + b"\r\n")
    assert frame[0].startswith(b"* ")


@pytest.mark.parametrize("value", [b"", b"a b", b"a\r\n", b"a]", b"\xff", b"a(", b'"', b"*"])
def test_what_is_no_atom_is_not_written_as_one(value):
    with pytest.raises(ValueError):
        Writer().atom(value)


def test_the_small_elements():
    assert bytes(Writer().atom(b"OK").raw(b" ").number(7).raw(b" ").words([b"a", b"b"])) == b"OK 7 (a b)"
    assert bytes(Writer().mailbox("Entwürfe & x")) == b'"Entw&APw-rfe &- x"'
    assert literal_head(310) == b"{310}\r\n"


@pytest.mark.parametrize("name, octets", [
    ("Entwürfe", '"Entwürfe"'), ('ü"\\', '"ü\\"\\\\"'), ("a&b", "a&b"), ("a b", '"a b"'), ("nil", '"nil"')])
def test_a_mailbox_name_in_utf8(name, octets):
    """RFC 9051 §5.1, RFC 6855 §3: "&" means itself, and what is not ASCII stands in quotes."""
    assert bytes(Writer(utf8=True).mailbox(name)) == octets.encode()


@pytest.mark.parametrize("system, keywords, recent, octets", [
    (0, (), False, b"()"),
    (Flag.SEEN, (), False, b"(\\Seen)"),
    (0x1F, ("$Junk", "x"), True, b"(\\Seen \\Answered \\Flagged \\Deleted \\Draft \\Recent $Junk x)"),
    (0, (), True, b"(\\Recent)"),
])
def test_flags_are_written(system, keywords, recent, octets):
    assert format_flags(system, keywords, recent) == octets
    assert bytes(Writer().flags(system, keywords, recent=recent)) == octets


@pytest.mark.parametrize("keyword", ["", "a b", "a)", "a\r\nb", "é", "\\Seen"])
def test_a_keyword_that_is_none_is_not_written(keyword):
    with pytest.raises(ValueError):
        format_flags(0, (keyword,))


def test_the_scanner_refuses_nul_in_a_literal_and_keeps_literals_apart():
    assert Scanner(Frame((b"{3}", b'"x"', b""))).string() == b'"x"'
    with pytest.raises(ValueError):
        Scanner(Frame((b"{1}", b"\0", b""))).string()
