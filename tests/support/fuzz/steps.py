"""How much work something is: the lines of Python that run in the files concerned. It is the same on every machine."""

import sys

from tests.support import ROOT

TESTS = f"{ROOT / 'tests'}/"


class TooMuchWork(AssertionError):
    """More lines were run than the input can be worth."""


def counted(places, limit, function, *arguments):
    """Call the function. Raises TooMuchWork as soon as more than `limit` lines of files in these places have run.

    `places` are parts of paths such as "/imap/wire/"; what is below tests does not count.
    """
    return _traced(places, limit, function, *arguments)[1]


def lines_of(places, function, *arguments):
    """How many lines of files in these places run when the function is called."""
    return _traced(places, sys.maxsize, function, *arguments)[0]


def _traced(places, limit, function, *arguments):
    count = 0

    def line(_frame, event, _argument):
        nonlocal count
        if event == "line":
            count += 1
            if count > limit:
                raise TooMuchWork(f"more than {limit} lines")
        return line

    def call(frame, _event, _argument):
        path = frame.f_code.co_filename
        return line if not path.startswith(TESTS) and any(place in path for place in places) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        answer = function(*arguments)
    finally:
        sys.settrace(before)
    return count, answer
