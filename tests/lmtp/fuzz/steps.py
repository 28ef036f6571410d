"""How much work something is: the lines of Python that run in the files concerned. It is the same on every machine."""

import sys

PLACES = ("/lmtp/", "/store/net/")


class TooMuchWork(AssertionError):
    """More lines were run than the input can be worth."""


def counted(limit, function, *arguments):
    """Call the function. Raises TooMuchWork as soon as more than `limit` lines of the server have run."""
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
        return line if "/tests/" not in path and any(place in path for place in PLACES) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        return function(*arguments)
    finally:
        sys.settrace(before)
