"""python -m tests.imap.fuzz wire|sessions COUNT [SEED], or =DIGITS for COUNT: see `tests.support.fuzz.driver`."""

import sys

import store.check.wholecheck  # noqa: F401  not watched: what a session may do to the store has its own tests
from tests.support.fuzz.driver import main

if __name__ == "__main__":
    main("tests.imap.fuzz", ["imap", "store.net"], *sys.argv[1:])
