"""A bar on standard error with rate and time left, while a person watches."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar(what: str, count: Callable[[], int] | None = None) -> Iterator[Callable[[int], None]]:
    """A function that is told how many have been done by now; it does nothing while nobody watches. `count` says how
    many there are, and is not asked then."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from tools.cli import richtable  # here: rich takes as long to load as the rest of a small command
    with richtable.bar(what, None if count is None else count()) as tell:
        yield tell
