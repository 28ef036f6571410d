"""A bar on standard error for work that goes from one mailbox to the next, while a person watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def mailbox_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A function that takes the mailbox, and how many of its messages are done, out of how many."""
    if not sys.stderr.isatty():
        yield lambda mailbox, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
               TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="")

        def tell(mailbox: str, done: int, total: int) -> None:
            if bar.tasks[0].description != mailbox:
                bar.reset(task, total=total, description=mailbox)
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:.0f}/s" if speed else "")

        yield tell
