"""The base subject: RFC 5256 §2.1, and its grammar in §5."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.message.basesubject import base_subject


@pytest.mark.parametrize(("subject", "base", "is_reply"), [
    ("", "", False), ("hello", "hello", False), ("  hello \t there  ", "hello there", False),
    ("Re: hello", "hello", True), ("RE:hello", "hello", True), ("re  : hello", "hello", True),
    ("Ree: a", "Ree: a", False),
    ("Fw: hello", "hello", True), ("FWD: hello", "hello", True), ("Fwdd: hello", "Fwdd: hello", False),
    ("Re[2]: hello", "hello", True), ("Re [a b] : hello", "hello", True), ("Re[[2]]: hello", "Re[[2]]: hello", False),
    ("hello (fwd)", "hello", True), ("hello (FWD)(fwd) (Fwd)  ", "hello", True), ("hello(fwd)", "hello", True),
    ("(fwd) hello", "(fwd) hello", False), ("(fwd)", "", True),
    ("[list] hello", "hello", False), ("[list] [two]hello", "hello", False), ("[list] Re: hello", "hello", True),
    ("[list]Re: [list] Fwd: [x] hello", "hello", True), ("Re: [list]", "[list]", True), ("[a] [b]", "[b]", False),
    ("[a]", "[a]", False), ("[]", "[]", False), ("[a] [b] re: [c]", "[c]", True), ("[a[b] c", "[a[b] c", False),
    ("Re:", "", True), ("Re: Re: ", "", True), ("Re: (fwd)", "", True),
    ("[Fwd: hello]", "hello", True), ("[fwd:[FWD: Re: hello] ]", "hello", True), ("[fwd: hello", "[fwd: hello", False),
    ("[fwd: re: [x] hello (fwd)]", "hello", True), ("[Fwd: hello] x", "x", False), ("Re: [Fwd: hello]", "hello", True),
    ("[a][fwd: b]", "b", True),
    ("hello Re: you", "hello Re: you", False), ("Re\u00a0: x", "Re\u00a0: x", False), ("AW: hallo", "AW: hallo", False),
])
def test_base_subject(subject, base, is_reply):
    assert base_subject(subject) == (base, is_reply)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["re", "fwd", "fw", ":", "[", "]", " ", "(fwd)", "[fwd:", "x", "[b]"]), max_size=12))
def test_a_base_subject_has_nothing_left_to_take_away(words):
    base, _ = base_subject("".join(words))
    assert base_subject(base) == (base, False)


@pytest.mark.parametrize("piece", ["[]", "[fwd:", "re:", "(fwd)", " ", "[", "re [", "[x] ", "[fwd:]"])
def test_long_subjects(piece):
    assert len(base_subject(piece * 100_000)[0]) <= 8192
