"""LMTP against a fuzzer: its parsers, and whole sessions. `tests/lmtp/fuzz` says what must hold for each input."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmtp.smtppaths import path
from tests.lmtp.fuzz.answers import Client
from tests.lmtp.fuzz.parsers import EXAMINED, PLACES, WORDS, examine
from tests.lmtp.fuzz.sessions import Played
from tests.support.fuzz.guided import find_nothing
from tests.support.fuzz.steps import TooMuchWork, counted, lines_of

COUNTS = {"sessions": 300, "parsers": 20_000}         # CONTRIBUTING says how to play more


def test_the_guided_fuzzer_finds_nothing(tmp_path):
    """Both at the same time, each in a process of its own."""
    find_nothing("tests.lmtp.fuzz", COUNTS, tmp_path)


@pytest.mark.long
@settings(max_examples=1000, deadline=None)
@given(st.integers(0, len(EXAMINED) - 1), st.integers(0, 255),
       st.lists(st.sampled_from(WORDS) | st.binary(max_size=8), max_size=12).map(b"".join))
def test_parsers(parser, cut, octets):
    examine(bytes((parser, cut)) + octets)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=100))
def test_sessions(played, octets):
    played.play(octets)


@pytest.fixture
def played(store):
    """Sessions with the store of all tests here."""
    played = Played(store)
    played.prepare()
    yield played
    played.settle()


# What the fuzzer trusts in

MAIL = b"MAIL FROM:<>\r\nRCPT TO:<a>\r\nRCPT TO:<b>\r\n"


@pytest.mark.parametrize(("sent", "answered"), [
    (b"NOOP\r\n", b"250 2.0.0 Ok\r\n"),
    (MAIL + b"DATA\r\n\r\n.\r\n", b"250 a\r\n550 a\r\n250 a\r\n354 a\r\n250 a\r\n"),
    (MAIL + b"DATA\r\n.\r\n", b"250 a\r\n250 a\r\n250 a\r\n354 a\r\n250 a\r\n452 a\r\n"),
    (MAIL + b"BDAT 2\r\nabBDAT 1 LAST\r\na", b"250 a\r\n250 a\r\n250 a\r\n250 a\r\n250 a\r\n250 a\r\n"),
    (MAIL + b"BDAT 2\r\nabBDAT 1 LAST\r\na", b"250 a\r\n250 a\r\n250 a\r\n452 a\r\n503 a\r\n"),
    (b"BDAT 6 LAST\r\nQUIT\r\nNOOP\r\n", b"503 a\r\n250 a\r\n"),
    (b"MAIL FROM:<>\r\nBDAT 6 LAST\r\nQUIT\r\nNOOP\r\n", b"250 a\r\n250 a\r\n"),
    (b"AUTH PLAIN\r\nQUIT\r\nNOOP\r\n", b"334 \r\n535 a\r\n250 a\r\n"),
    (b"STARTTLS\r\nNOOP\r\n", b"220 a\r\n"),
    (b"LHLO a\r\nNO", b"250-a\r\n250 b\r\n"),
    (b"NOOP\r\n", b"421 a\r\n"), (b"", b"421 a\r\n"), (b"QUIT\r\nNOOP\r\n", b"221 a\r\n"),
])
def test_the_right_answers(sent, answered):
    greeted().sent(sent, answered)
    for wrong in (answered[:-3], answered + b"250 a\r\n", answered.replace(b"\r\n", b"\n"), b"2" + answered):
        with pytest.raises(AssertionError):
            greeted().sent(sent, wrong)


def greeted():
    """A client that has just connected."""
    client = Client(100)
    client.greeted(b"220 a\r\n")
    return client


def test_too_much_work_is_found():
    assert counted(PLACES, 30, path, "<a@b>")[1] == ""
    with pytest.raises(TooMuchWork):
        counted(PLACES, 3, path, "<a@b>")
    assert 3 < lines_of(PLACES, path, "<a@b>") <= 30
