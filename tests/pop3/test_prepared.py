"""Names and passwords in UTF-8 (RFC 6856 §2.2): SASLprep's own examples (RFC 4013 §3), and more."""

import pytest

from pop3.states import COMMANDS
from pop3.wire import Pass, SyntaxProblem, User, keyword, prepared


@pytest.mark.parametrize(("octets", "text"), [
    (b"I\xc2\xadX", "IX"), (b"user", "user"), (b"USER", "USER"), (b"\xc2\xaa", "a"), (b"\xe2\x85\xa8", "IX"),
    (b"J\xc3\xb6rg", "Jörg"), (b"Jo\xcc\x88rg", "Jörg"), (b"a\xc2\xa0b", "a b"), ("\u0627\u0031\u0628".encode(),
                                                                                  "\u06271\u0628"),
])
def test_prepared(octets, text):
    assert prepared(octets) == text


@pytest.mark.parametrize("octets", [
    b"\xc2\x87", "\u0627\u0031".encode(), b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
    "\ue000".encode(),
    "\u200e".encode(), b"\xc2\xad", b"", "\ufffd".encode(), "\ufdd0".encode(), "\u0627a\u0628".encode()])
def test_prohibited(octets):
    with pytest.raises(SyntaxProblem):
        prepared(octets)
    for verb in (b"USER ", b"PASS "):
        name, rest = keyword(verb + octets)
        with pytest.raises(SyntaxProblem):
            COMMANDS[name].parse(rest)


def test_in_commands():
    name, rest = keyword("USER Jörg@bücher.example".encode())
    assert COMMANDS[name].parse(rest) == User("Jörg@bücher.example")
    name, rest = keyword("PASS  pä ss ".encode())
    command = COMMANDS[name].parse(rest)
    assert isinstance(command, Pass) and command.password.reveal() == " pä ss ".encode()
    for line in ("NOOP ä", "USER ä\0", "USÄR x", "PASS ä\x01", "AUTH ä"):
        with pytest.raises(SyntaxProblem):
            keyword(line.encode())
