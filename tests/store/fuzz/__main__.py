"""python -m tests.store.fuzz mime COUNT [SEED], or =DIGITS for COUNT: see `tests.support.fuzz.driver`."""

import sys

from tests.support.fuzz.driver import main

READING = ("mime", "headers", "cache", "envelopes", "text", "sections", "subjects")

if __name__ == "__main__":
    main("tests.store.fuzz", [f"store.{module}" for module in READING], *sys.argv[1:])
