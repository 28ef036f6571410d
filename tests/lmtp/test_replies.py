"""lmtp/replies.py and lmtp/refusals.py: every reply is legal, and every problem of the store has one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmtp import refusals, replies
from lmtp.replies import Reply
from store.errors import Problem, StoreError

LEGAL = re.compile(rb"(?:[2-5][0-5][0-9]-[\t -~]*+\r\n)*[2-5][0-5][0-9] [\t -~]*+\r\n")     # RFC 5321 §4.2
ENHANCED = re.compile(r"[245]\.\d{1,3}\.\d{1,3}")                                                # RFC 3463 §2
FIXED = {name: value for name, value in vars(replies).items() if isinstance(value, Reply)}


def is_legal(octets):
    """Whether these are replies and nothing else, each line short enough."""
    return re.fullmatch(rb"(?:%b)+" % LEGAL.pattern, octets) and all(len(line) <= 510 for line in octets.split(b"\r\n"))


@pytest.mark.parametrize("name", FIXED)
def test_fixed_replies_are_legal_and_their_digits_agree(name):
    reply = FIXED[name]
    assert is_legal(reply.octets)
    if reply.enhanced:
        assert ENHANCED.fullmatch(reply.enhanced) and reply.enhanced[0] == str(reply.code)[0]
        assert all(line[4:].startswith(reply.enhanced.encode()) for line in reply.octets.splitlines())
    else:
        assert reply in (replies.GO_AHEAD, replies.BAD_LHLO, replies.REFUSED)      # RFC 2034 §4


def test_every_problem_is_answered_and_the_digits_agree():
    assert set(refusals.REPLIES) == set(Problem)
    for code, enhanced in refusals.REPLIES.values():
        assert ENHANCED.fullmatch(enhanced)
        assert str(code)[0] == enhanced[0] in "45"


@pytest.mark.parametrize("problem", Problem)
def test_the_detail_of_a_problem_is_not_told(problem):
    reply = refusals.refusal(StoreError(problem, detail="/secret/path"))
    assert is_legal(reply.octets)
    assert b"secret" not in reply.octets


@given(st.text(max_size=1000))
def test_no_text_can_make_a_reply_illegal(text):
    octets = Reply(250, "2.0.0", (text,)).octets
    assert is_legal(octets) and octets.count(b"\r\n") == 1


def test_hello_has_a_line_for_each_extension():
    assert replies.hello("mx.example.org", 1000, ["AUTH PLAIN", "STARTTLS"]).octets == (
        b"250-mx.example.org\r\n250-PIPELINING\r\n250-SIZE 1000\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-CHUNKING\r\n"
        b"250-BINARYMIME\r\n250-AUTH PLAIN\r\n250-STARTTLS\r\n250 ENHANCEDSTATUSCODES\r\n")


def test_greeting_names_the_server_and_the_protocol():
    assert replies.greeting("mx.example.org").octets == b"220 mx.example.org LMTP onecopy\r\n"
