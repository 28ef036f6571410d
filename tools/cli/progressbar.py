"""Bars on standard error with rate and time left, while a person watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from tools.cli.later import Later

# rich takes as long to load as the rest of a small command.
_bar = Later("tools.cli.richtable:bar")
_changing_bar = Later("tools.cli.richtable:changing_bar")


class Tell(Protocol):
    """Takes how many have been done by now; a note to show behind the bar; and how many there are, if that changes."""

    def __call__(self, done: int, note: str = "", total: int | None = None) -> None: ...


@contextmanager
def bar(what: str, count: Callable[[], int] | None = None) -> Iterator[Tell]:
    """A bar that does nothing while nobody watches. `count` says how many there are, and is not asked then."""
    if not sys.stderr.isatty():
        yield lambda done, note="", total=None: None
        return
    with _bar(what, None if count is None else count()) as tell:
        yield tell


@contextmanager
def changing_bar(*, octets: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """For work that goes from one thing to the next, a mailbox mostly: a function that takes what it is, and how much
    of it is done, out of how much: items, or octets."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    with _changing_bar(octets=octets) as tell:
        yield tell
