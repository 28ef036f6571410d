"""POP3 against a fuzzer: its parsers, and whole sessions. `tests/pop3/fuzz` says what must hold for each input."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pop3.fuzz.answers import Client
from tests.pop3.fuzz.parsers import EXAMINED, WORDS, examine
from tests.pop3.fuzz.sessions import Played
from tests.support.fuzz.guided import find_nothing

COUNTS = {"sessions": 300, "parsers": 6_000}         # CONTRIBUTING says how to play more


def test_the_guided_fuzzer_finds_nothing(tmp_path):
    """Both at the same time, each in a process of its own."""
    find_nothing("tests.pop3.fuzz", COUNTS, tmp_path)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(EXAMINED) - 1), st.integers(0, 255),
       st.lists(st.sampled_from(WORDS) | st.binary(max_size=8), max_size=12).map(b"".join))
def test_parsers(parser, cut, octets):
    examine(bytes((parser, cut)) + octets)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=100))
def test_sessions(place, octets):
    Played(place).play(octets)


# What the fuzzer trusts in

LIST = b"+OK\r\n1 5\r\n2 7\r\n.\r\n"


@pytest.mark.parametrize(("sent", "answered"), [
    (b"NOOP\r\n", b"+OK\r\n"), (b"NOOP\n", b"-ERR [SYS/TEMP] x\r\n"), (b"LIST 1\r\n", b"+OK 1 5\r\n"), (b"list\r\n",
                                                                                                        LIST),
    (b"LIST\r\nUIDL\r\n", LIST + LIST), (b"LIST\r\nSTAT\r\n", b"-ERR x\r\n+OK 0 0\r\n"),
    (b"RETR 1\r\nNOOP\r\n", b"+OK 6 octets\r\n..a\r\n\r\n.\r\n+OK\r\n"), (b"RETR 1\r\n",
                                                                          b"+OK 2 octets\r\n..a\r\n.\r\n"),
    (b"AUTH PLAIN\r\nQUIT\r\nNOOP\r\n", b"+ \r\n-ERR x\r\n+OK\r\n"), (b"AUTH\r\n", b"+OK x\r\nPLAIN\r\n.\r\n"),
    (b"STLS\r\nNOOP\r\n", b"+OK x\r\n"), (b"QUIT\r\nNOOP\r\n", b"+OK\r\n"), (b"", b"-ERR [SYS/TEMP] x\r\n"), (b"NO",
                                                                                                              b""),
])
def test_the_right_answers(sent, answered):
    greeted().sent(sent, answered)
    for wrong in (answered[:-3] if answered else b"x", answered + b"+OK\r\n", answered.replace(b"\r\n", b"\n") or b"y"):
        with pytest.raises(AssertionError):
            greeted().sent(sent, wrong)


@pytest.mark.parametrize(("sent", "answered"), [
    (b"LIST\r\n", b"+OK\r\n2 5\r\n1 7\r\n.\r\n"), (b"UIDL\r\n", b"+OK\r\n1 a\r\n2 a\r\n.\r\n"),
    (b"LIST\r\n", b"+OK\r\n1\r\n.\r\n"), (b"RETR 1\r\n", b"+OK 9 octets\r\n..a\r\n.\r\n"),
    (b"RETR 1\r\n", b"+OK 5 octets\r\n..a\r\n"), (b"NOOP\r\n", b"+OK " + b"x" * 507 + b"\r\n"),
    (b"NOOP\r\n", b"+OK \xff\r\n"), (b"NOOP\r\n", b"OK\r\n"), (b"NOOP\r\n", b"+ \r\n"),
    (b"NOOP\r\n", b"-ERR [a] b\r\n"),
])
def test_wrong_answers_are_found(sent, answered):
    with pytest.raises(AssertionError):
        greeted().sent(sent, answered)


def greeted():
    """A client that has just connected."""
    client = Client()
    client.greeted(b"+OK ready\r\n")
    return client
