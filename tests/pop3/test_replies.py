"""Replies (RFC 1939 §3, RFC 2449 §8) and the table of refusals (RFC 2449 §8.1.1, RFC 3206)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop3 import replies
from pop3.refusals import CODES, refusal
from pop3.replies import ok, refused, several
from store.errors import Problem, StoreError


@pytest.mark.parametrize(("reply", "octets"), [
    (ok(), b"+OK\r\n"),
    (ok("2 320"), b"+OK 2 320\r\n"),
    (refused("no such message"), b"-ERR no such message\r\n"),
    (refused("try later", "SYS/TEMP"), b"-ERR [SYS/TEMP] try later\r\n"),
    (refused("[IN-USE] or not"), b"-ERR (IN-USE] or not\r\n"),
    (ok("two\r\nlines"), b"+OK two?lines\r\n"),
    (several("here", ["a", "b"]), b"+OK here\r\na\r\nb\r\n.\r\n"),
])
def test_replies(reply, octets):
    assert reply == octets


@given(st.text(max_size=700), st.sampled_from([None, "SYS/PERM"]))
def test_no_text_makes_a_second_line_or_a_long_one(text, code):
    for reply in (ok(text), refused(text, code)):
        assert len(reply) <= 512 and reply.endswith(b"\r\n") and reply[:-2].isascii()
        assert not re.search(rb"[\x00-\x1f\x7f]", reply[:-2])


def test_every_problem_is_answered():
    assert set(CODES) == set(Problem)
    assert set(CODES.values()) <= {None, "IN-USE", "AUTH", "SYS/TEMP", "SYS/PERM"}


@pytest.mark.parametrize("problem", Problem)
def test_the_detail_is_not_told(problem):
    reply = refusal(StoreError(problem, detail="in the folder of alice"))
    assert reply.startswith(b"-ERR ") and b"alice" not in reply
    assert refusal(StoreError(problem, "shown\r\n+OK")).count(b"\r\n") == 1


def test_an_unknown_user_is_a_wrong_password():
    assert refusal(StoreError(Problem.NO_USER)) == refusal(StoreError(Problem.BAD_LOGIN))


def test_fixed_replies_are_one_line_each():
    for name, reply in vars(replies).items():
        if name.isupper() and isinstance(reply, bytes) and name not in ("END",):
            assert re.fullmatch(rb"(\+OK|-ERR) [ -~]+\r\n", reply), name
