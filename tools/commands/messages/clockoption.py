"""--trust-clock, of commands that remove what is old."""

import argparse

from store.errors import disk_problem
from store.operations import clockrecord
from store.store import Store
from tools.exits import Failure


def add_option(parser: argparse.ArgumentParser) -> None:
    """Make the option."""
    parser.add_argument("--trust-clock", action="store_true",
                        help="also where the clock is more than a week ahead of what the store knows; from now on the "
                             "server believes it, too")


def require(store: Store, *, trusted: bool) -> None:
    """Go on if the store believes the clock, or is told to (`trusted`). Raises Failure, StoreError."""
    try:
        if trusted:
            clockrecord.trust(store.root)
        if why := clockrecord.warning(store.root):
            raise Failure(f"{why}; --trust-clock, if it is right", 1)
    except OSError as error:
        raise disk_problem(error) from error
