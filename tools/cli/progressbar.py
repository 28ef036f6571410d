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
    from rich.console import Console  # here: it takes as long to load as the rest of a small command
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Items a second."""

        def render(self, task: Task) -> Text:
            """The rate so far."""
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None if count is None else count())
        yield lambda done: progress.update(task, completed=done)
