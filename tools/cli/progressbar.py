"""Bars on standard error with rate and time left, while a person watches; or lines there, for a program that shows them
to one elsewhere (`PROGRESS` in the environment): the character RS, how many are done, of how many, and what."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar

from tools.cli.later import Later

# rich takes as long to load as the rest of a small command.
_bar = Later("tools.cli.richtable:bar")
_changing_bar = Later("tools.cli.richtable:changing_bar")


PROGRESS = "_ONECOPY_PROGRESS"
RS = "\x1e"                 # begins a line
PACE = 0.5                  # seconds between two lines; and so long nothing is shown of work that is soon done
TICK = 0.1                  # seconds after which a bar of `counted` moves
LONGEST = 100               # characters of what it is


T = TypeVar("T")


class Tell(Protocol):
    """Takes how many have been done by now; a note to show behind the bar; and how many there are, if that changes."""

    def __call__(self, done: int, note: str = "", total: int | None = None) -> None: ...


@contextmanager
def bar(what: str, count: Callable[[], int] | None = None) -> Iterator[Tell]:
    """A bar that does nothing while nobody watches. `count` says how many there are, and is not asked then."""
    if os.environ.get(PROGRESS):
        lines, whole = _lines(), 0 if count is None else count()
        yield lambda done, note="", total=None: lines(what, done, total or whole)
        return
    if not sys.stderr.isatty():
        yield lambda done, note="", total=None: None
        return
    with _bar(what, None if count is None else count()) as tell:
        yield tell


@contextmanager
def changing_bar(*, octets: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """For work that goes from one thing to the next, a mailbox mostly: a function that takes what it is, and how much
    of it is done, out of how much: items, or octets."""
    if os.environ.get(PROGRESS):
        yield _lines()
        return
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    with _changing_bar(octets=octets) as tell:
        yield tell


def counted(items: Iterable[T], what: str, total: int | None = None, *, printing: bool = False) -> Iterator[T]:
    """The items one after the other, with a bar that says how many have been taken, of how many if that is known, once
    it lasts for a while.

    `printing`: what is made of each is printed at once, so that a bar would stand between the lines on a terminal.
    """
    if printing and sys.stdout.isatty():
        yield from items
        return
    with ExitStack() as shown:
        tell: Tell | None = None
        due = time.monotonic() + PACE
        for done, item in enumerate(items, 1):
            yield item
            if (now := time.monotonic()) >= due:
                tell = tell or shown.enter_context(bar(what, None if total is None else lambda: total))
                tell(done)
                due = now + TICK


def _lines() -> Callable[[str, int, int], None]:
    due = [0.0]

    def tell(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= due[0]:
            due[0] = now + PACE
            shown = what[:LONGEST].encode("unicode_escape").decode()[:LONGEST]
            bare = getattr(sys.stderr, "stream", sys.stderr)       # `output.Printable` would print RS as an escape
            print(f"{RS}{done} {total} {shown}", file=bare, flush=True)

    return tell
