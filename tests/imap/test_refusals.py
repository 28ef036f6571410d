"""Every problem of the store has its answer (RFC 5530)."""

import re

from imap.refusals import CODES, code
from store.errors import Problem, StoreError


def test_every_problem_is_answered():
    assert set(CODES) == set(Problem)
    assert all(re.fullmatch(rb"[A-Z]+", answer) for answer in CODES.values())


def test_a_missing_target_is_to_be_created():
    assert code(StoreError(Problem.NO_MAILBOX)) == b"NONEXISTENT"
    assert code(StoreError(Problem.NO_MAILBOX), as_target=True) == b"TRYCREATE"
