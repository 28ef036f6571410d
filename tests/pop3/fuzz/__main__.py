"""python -m tests.pop3.fuzz parsers|sessions COUNT [SEED], or =DIGITS for COUNT: see `tests.support.fuzz.driver`."""

import sys

import pop3.dots  # noqa: F401  not watched: comparing arrays of numpy there would leave memory behind
import store.check.wholecheck  # noqa: F401  not watched: what is under store/net need not be, and is faster so
from tests.support.fuzz.driver import main

if __name__ == "__main__":
    main("tests.pop3.fuzz", ["pop3"], *sys.argv[1:])
