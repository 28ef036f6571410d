"""BINARY, BINARY.PEEK and BINARY.SIZE in FETCH: RFC 3516 §4.2, §7."""

import pytest

from imap.wire.commands import BadCommand, parse_command
from imap.wire.fetch import Binary, Item
from imap.wire.framer import Frame
from imap.wire.writer import Writer


def items(text):
    return parse_command(Frame((b"a FETCH 1 " + text,)))[1].items


@pytest.mark.parametrize("text, value", [
    (b"BINARY[]", Binary()),
    (b"binary.peek[]", Binary(sets_seen=False)),
    (b"BINARY.SIZE[]", Binary(sets_seen=False, size=True, label=b"BINARY.SIZE[]")),
    (b"BINARY[]<0.10>", Binary(partial=(0, 10), label=b"BINARY[]<0>")),
    (b"BINARY[1]", Binary((1,), label=b"BINARY[1]")),
    (b"Binary.Peek[4.2.10]", Binary((4, 2, 10), sets_seen=False, label=b"BINARY[4.2.10]")),
    (b"BINARY.PEEK[1]<5.1>", Binary((1,), (5, 1), False, label=b"BINARY[1]<5>")),
    (b"BINARY.SIZE[2]", Binary((2,), sets_seen=False, size=True, label=b"BINARY.SIZE[2]"))])
def test_items_are_read(text, value):
    assert items(text) == (value,)
    assert items(b"(UID " + text + b" FLAGS)") == (Item.UID, value, Item.FLAGS)


@pytest.mark.parametrize("text", [
    b"BINARY", b"BINARY[", b"BINARY[0]", b"BINARY[1", b"BINARY[1.]", b"BINARY[.1]", b"BINARY[TEXT]", b"BINARY[1.MIME]",
    b"BINARY[1]<0.0>", b"BINARY[1]<0>", b"BINARY.SIZE[1]<0.1>", b"BINARY.SIZE[]<0.1>", b"BINARY.SIZE", b"BINARY.PEEK",
    b"BINARY.PEEK.SIZE[1]", b"BINARY[4294967296]", b"BINARY[1]x", b"(BINARY[1]FLAGS)", b"BINARY [1]"])
def test_wrong_items(text):
    with pytest.raises(BadCommand):
        items(text)


def test_names_in_utf8():
    assert bytes(Writer(utf8=True).mailbox("Entw\u00fcrfe")) == '"Entw\u00fcrfe"'.encode()
    assert bytes(Writer().mailbox("Entw\u00fcrfe")) == b"Entw&APw-rfe"


STATUS_AFTER_ENABLE = [
    ('STATUS "Entw\u00fcrfe" (MESSAGES)'.encode(), "Entw\u00fcrfe"), (b"STATUS a&b (MESSAGES)", "a&b"),
    (b'STATUS "\\"" (MESSAGES)', '"')]


@pytest.mark.parametrize("line, name", STATUS_AFTER_ENABLE)
def test_mailbox_names_in_utf8(line, name):
    assert parse_command(Frame((b"a " + line,)), utf8=True)[1].mailbox == name
    with pytest.raises(BadCommand) if name != '"' else _nothing():
        parse_command(Frame((b"a " + line,)))


@pytest.mark.parametrize("octets", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\x80"])
def test_what_is_not_utf8_is_refused_in_quotes_and_in_literals(octets):
    for frame in (Frame((b'a SELECT "' + octets + b'"',)), Frame((b"a SELECT {1}", octets, b""))):
        with pytest.raises(BadCommand) as refused:
            parse_command(frame, utf8=True)
        assert refused.value.problem.status == b"BAD"
    with pytest.raises(BadCommand):
        parse_command(Frame((b'a SEARCH SUBJECT "' + octets + b'"',)), utf8=True)


def _nothing():
    from contextlib import nullcontext
    return nullcontext()
