"""Bars on standard error with rate and time left, while a person watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def bar(what: str, count: Callable[[], int] | None = None) -> Iterator[Callable[[int], None]]:
    """A function that is told how many have been done by now; it does nothing while nobody watches. `count` says how
    many there are, and is not asked then."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    with _rich().bar(what, None if count is None else count()) as tell:
        yield tell


@contextmanager
def mailbox_bar() -> Iterator[Callable[[str, int, int], None]]:
    """For work that goes from one mailbox to the next: a function that takes the mailbox, and how many of its messages
    are done, out of how many."""
    if not sys.stderr.isatty():
        yield lambda mailbox, done, total: None
        return
    with _rich().mailbox_bar() as tell:
        yield tell


def _rich() -> ModuleType:
    from tools.cli import richtable  # here: rich takes as long to load as the rest of a small command
    return richtable
