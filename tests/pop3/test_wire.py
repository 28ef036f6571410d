"""Commands from octets (RFC 1939 §3, §7, RFC 5034 §4, RFC 4616), and what TOP shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop3.states import COMMANDS
from pop3.wire import (
    Auth,
    Capa,
    Dele,
    List,
    Noop,
    Pass,
    Quit,
    Retr,
    Rset,
    Stat,
    Stls,
    SyntaxProblem,
    Top,
    TopLines,
    Uidl,
    User,
    keyword,
    response,
)


def parse(line):
    verb, rest = keyword(line)
    return COMMANDS[verb].parse(rest)


@pytest.mark.parametrize(("line", "command"), [
    (b"CAPA", Capa()), (b"STLS", Stls()), (b"STAT", Stat()), (b"NOOP", Noop()), (b"RSET", Rset()), (b"QUIT", Quit()),
    (b"quit ", Quit()), (b"LIST", List(None)), (b"LIST 1", List(1)), (b"list 0017 ", List(17)),
    (b"RETR 9999999999", Retr(9999999999)), (b"DELE 0", Dele(0)), (b"TOP 1 0", Top(1, 0)), (b"Top  3  10", Top(3, 10)),
    (b"UIDL", Uidl(None)), (b"UIDL 2", Uidl(2)), (b"USER mrose", User("mrose")),
    (b"USER  a b@example.org ", User("a b@example.org")), (b"AUTH", Auth("", None)),
    (b"AUTH plain", Auth("PLAIN", None)), (b"AUTH SCRAM-SHA-256", Auth("SCRAM-SHA-256", None)),
])
def test_commands(line, command):
    assert parse(line) == command


@pytest.mark.parametrize("line", [
    b"CAPA 1", b"LIST 1 2", b"LIST x", b"LIST +1", b"LIST 1.0", b"LIST 12345678901", b"RETR", b"RETR 1 2", b"DELE",
    b"TOP 1", b"TOP", b"TOP 1 2 3", b"TOP 1 -2", b"UIDL 1 2", b"USER", b"USER  ", b"PASS", b"PASS ",
    b"AUTH " + b"A" * 21, b"AUTH PLAIN !", b"AUTH PLAIN QQ", b"LIST " + b"1" * 41, b"ST\xc3\xa4T", b"NOOP\0",
    b"USER a\tb", b"USER a\rb", b"AUTH a b c", b"AUTH PL$IN",
])
def test_not_commands(line):
    with pytest.raises(SyntaxProblem):
        parse(line)


def test_a_password_is_kept_as_it_is_and_not_shown():
    command = parse(b"PASS  two words ")
    assert isinstance(command, Pass) and command.password.reveal() == b" two words "
    assert "words" not in repr(command)
    command = parse(b"AUTH PLAIN AG1yb3NlAHRhbnN0YWFm")
    assert command.initial.reveal() == b"\0mrose\0tanstaaf" and "tanstaaf" not in repr(command)
    assert parse(b"AUTH PLAIN =").initial.reveal() == b""


@given(st.one_of(st.binary(max_size=60), st.sampled_from(sorted(COMMANDS)).flatmap(
    lambda verb: st.binary(max_size=40).map(lambda rest: verb + b" " + rest))))
def test_junk_is_a_command_or_a_syntax_problem(line):
    for read in (lambda: parse(line), lambda: response(line)):
        try:
            read()
        except SyntaxProblem as problem:
            assert str(problem).isascii() and str(problem).isprintable()
        except KeyError:
            assert keyword(line)[0] not in COMMANDS


def top(message, lines):
    """RFC 1939 §7, line by line."""
    header, body = [], split(message)
    while body:
        header.append(body.pop(0))
        if header[-1] in (b"\r\n", b"\n"):
            break
    return b"".join(header + body[:lines])


def split(message):
    lines = message.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


texts = st.lists(st.sampled_from([b"\r\n", b"\n", b"\r", b"a", b"A: b\r\n", b"\r\n\r\n"]), max_size=16).map(b"".join)


@given(texts, st.integers(0, 6), st.lists(st.integers(0, 40), max_size=6))
def test_top_as_the_rfc_line_by_line_however_it_is_cut(message, lines, places):
    edges = [0, *sorted(place % (len(message) + 1) for place in places), len(message)]
    cutter = TopLines(lines)
    shown = b"".join(cutter.feed(message[start:end]) for start, end in zip(edges, edges[1:], strict=False))
    assert shown == top(message, lines)


def test_top_says_when_it_has_enough():
    cutter = TopLines(1)
    cutter.feed(b"A: b\r\n\r\none\r\n")
    assert cutter.done and cutter.feed(b"two\r\n") == b""
