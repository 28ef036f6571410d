"""LIST wildcards: RFC 3501 §6.3.8."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mboxlist.patterns import MAX_PATTERN, compile_pattern, matches


@pytest.mark.parametrize(("pattern", "yes", "no"), [
    ("*", ["INBOX", "a", "a/b/c"], []),
    ("%", ["INBOX", "a"], ["a/b"]),
    ("a/%", ["a/b"], ["a", "a/b/c"]),
    ("a*", ["a", "ab", "a/b"], ["b", "A"]),
    ("*b", ["b", "a/b"], ["a"]),
    ("%/b", ["a/b"], ["a/a/b"]),
    ("inbox", ["INBOX"], ["inboxes"]),
    ("Inb%", ["INBOX"], []),
    ("inbox/%", ["INBOX/x"], ["INBOX/x/y"]),
    ("a.c", ["a.c"], ["abc"]),
    ("", [""], ["a"]),
    ("%%", ["a"], ["a/b"]),
    ("%*", ["a/b"], []),
])
def test_wildcards(pattern, yes, no):
    assert [name for name in yes if not matches(pattern, name)] == []
    assert [name for name in no if matches(pattern, name)] == []


@given(st.text("ab/%*", max_size=8), st.text("ab/", max_size=8))
def test_like_a_regular_expression(pattern, name):
    expression = "".join({"*": ".*", "%": "[^/]*"}.get(letter, re.escape(letter)) for letter in pattern)
    assert matches(pattern, name) == bool(re.fullmatch(expression, name))


def test_too_long():
    with pytest.raises(ValueError):
        compile_pattern("x" * (MAX_PATTERN + 1))
