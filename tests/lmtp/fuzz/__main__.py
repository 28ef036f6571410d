"""python -m tests.lmtp.fuzz parsers|sessions COUNT [SEED], or =DIGITS for COUNT: see `tests.support.fuzz.driver`."""

import sys

import store.check.wholecheck  # noqa: F401  not watched: what is under store/net need not be, and is faster so
from tests.support.fuzz.driver import main

if __name__ == "__main__":
    main("tests.lmtp.fuzz", ["lmtp", "store"], *sys.argv[1:])
