"""APPEND with several messages, literal8 and UTF8 (RFC 3502, RFC 3516 §4.4, RFC 4466 §2.6, RFC 6855 §4)."""

import pytest

from imap.wire.append import Append, Appended, is_message, parse_next_message
from imap.wire.commandlimits import Limits
from imap.wire.commands import BadCommand, parse_command
from imap.wire.framer import Frame, Framer, Message, Rejected
from imap.wire.grammar import SyntaxProblem
from store.values import Flag, Flags, InternalDate
from tests.imap.wire.test_framer import Conversation

SEEN = Flags(Flag.SEEN)
DATE = InternalDate(837596665, -420)
DATED = b'"17-Jul-1996 02:44:25 -0700"'

# The texts of a command, with the messages between them, and what they say.
COMMANDS = [
    ((b"APPEND x {3}", b" {4}", b""), [(Flags(), None, 3, True), (Flags(), None, 4, True)]),
    ((b"APPEND x (\\Seen) {3+}", b" " + DATED + b" {4}", b" (\\Seen) " + DATED + b" {5+}", b""),
     [(SEEN, None, 3, False), (Flags(), DATE, 4, True), (SEEN, DATE, 5, False)]),
    ((b"APPEND x ~{3}", b""), [(Flags(), None, 3, True)]),
    ((b"APPEND x (\\Seen) ~{3+}", b" {4}", b" ~{5}", b""),
     [(SEEN, None, 3, False), (Flags(), None, 4, True), (Flags(), None, 5, True)]),
    ((b"APPEND x UTF8 (~{3}", b")"), [(Flags(), None, 3, True)]),
    ((b"APPEND x (\\Seen) " + DATED + b" utf8 (~{3+}", b") UTF8 (~{4}", b") (\\Seen) {5}", b""),
     [(SEEN, DATE, 3, False), (Flags(), None, 4, True), (SEEN, None, 5, True)]),
]


def frame(texts):
    parts = [b"a " + texts[0]]
    for text in texts[1:]:
        parts += [b"", text]
    return Frame(tuple(parts))


@pytest.mark.parametrize("texts, messages", COMMANDS)
def test_messages_are_read_each_before_it_comes_and_all_in_the_end(texts, messages):
    values = tuple(Appended(*one) for one in messages)
    assert parse_command(frame(texts))[1] == Append("x", values)
    for count in range(1, len(texts)):
        begun = frame(texts[:count])
        assert is_message(begun)
        assert parse_command(begun)[1] == Append("x", values[:count])
        if count > 1:
            assert parse_next_message(texts[count - 1], texts[count - 2]) == values[count - 1]


@pytest.mark.parametrize("texts", [
    (b"APPEND x {3}", b"{4}", b""), (b"APPEND x {3}", b" ", b""), (b"APPEND x {3}", b"  {4}", b""),
    (b"APPEND x {3}", b" (\\Seen)"), (b"APPEND x {3}", b" (\\Recent) {4}", b""), (b"APPEND x {3}", b" {4}", b" "),
    (b"APPEND x {3}", b") {4}", b""), (b"APPEND x UTF8 ({3}", b")"), (b"APPEND x UTF8 {3}", b""),
    (b"APPEND x UTF8 (~{3}", b""), (b"APPEND x UTF8 (~{3}", b" {4}", b""), (b"APPEND x UTF8(~{3}", b")"),
    (b"APPEND x UTF8 (~{3}", b"))"), (b"APPEND x (~{3}", b")"), (b"APPEND x ~~{3}", b""), (b"APPEND x ~ {3}", b""),
    (b"APPEND x y {3}", b"")])
def test_wrong_forms(texts):
    with pytest.raises(BadCommand) as refused:
        parse_command(frame(texts))
    assert refused.value.tag == b"a"


@pytest.mark.parametrize("text, before", [
    (b"{4}", b" {3}"), (b") {4}", b" {3}"), (b" {4}", b" UTF8 (~{3}"), (b" x {4}", b" {3}"), (b" (\\Seen {4}", b" {3}"),
    (b" UTF8 ({4}", b" {3}")])
def test_a_wrong_message_after_another_is_refused_before_it_comes(text, before):
    with pytest.raises(SyntaxProblem):
        parse_next_message(text, before)


def test_only_append_has_a_literal8():
    for line in (b"LOGIN ~{3}", b"SELECT ~{3}", b"SEARCH TEXT ~{3}", b"APPEND ~{3}"):
        with pytest.raises(BadCommand):
            parse_command(Frame((b"a " + line, b"abc", b" {3}" if b"APPEND" in line else b"")))


def test_messages_do_not_count_as_literals_but_there_is_a_limit_for_them():
    limits = Limits(literals=1, messages=3, literal=10)
    wire = b"a APPEND {1+}\r\nx {2+}\r\nM1 {2+}\r\nM2 {2+}\r\nM3"
    [*messages, command] = Conversation(limits).feed(wire + b"\r\n").seen
    assert messages == [b"M1", b"M2", b"M3"] and len(command) == 9
    # A fourth is refused, and what follows is not taken for commands.
    seen = Conversation(limits).feed(wire + b" {8+}\r\nb LOGOUT\r\nc NOOP\r\n").seen
    assert seen[3:] == [(b"a", "Too many messages", False), Frame((b"c NOOP",))]


def test_each_command_may_have_as_many_messages_again():
    framer = Framer(Limits(messages=1), is_message)
    for _ in range(3):
        assert isinstance(framer.line(b"a APPEND x {1}"), Message)
        framer.streamed()
        assert isinstance(framer.line(b""), Frame)
    assert isinstance(framer.line(b"a APPEND x {1}"), Message)
    framer.streamed()
    assert isinstance(framer.line(b" {1}"), Rejected)
    assert isinstance(framer.line(b"a APPEND x {1}"), Message)


def test_a_mailbox_in_utf8_is_no_reason_to_take_the_message_for_a_word():
    assert is_message(Frame(("a APPEND \"Entw\u00fcrfe\" {3}".encode(),)))
