"""Tables and bars by rich, which only people see and what has letters wider than others: it is slow to load."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from tools.cli.output import only_printable, printable

UNLIMITED_WIDTH = 100_000           # columns, where no person reads


def show(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """A table; without frames, and never cut off, to a pipe. `right`: which columns are flush right."""
    person = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD if person else None, pad_edge=False, show_edge=False)
    for title, is_right in zip(titles, right, strict=True):
        table.add_column(title, overflow="fold", justify="right" if is_right else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console(sys.stdout, None if person else UNLIMITED_WIDTH).print(table)


def console(stream: TextIO, width: int | None = None) -> Console:
    """One that writes to the stream itself: what rich adds are control codes. Its callers see to the text."""
    return Console(file=getattr(stream, "stream", stream), width=width, soft_wrap=False)


class _Rate(ProgressColumn):
    """Items a second."""

    def render(self, task: Task) -> Text:
        """The rate so far."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """See progressbar.Tell."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), _Rate(),
               TimeRemainingColumn(), TextColumn("{task.fields[note]}", markup=False))
    with Progress(*columns, console=console(sys.stderr), transient=True) as progress, only_printable():
        task = progress.add_task(what, total=total, note="")
        yield lambda done, note="", total=None: progress.update(task, completed=done, note=note, total=total)


@contextmanager
def changing_bar(*, octets: bool) -> Iterator[Callable[[str, int, int], None]]:
    """See progressbar.changing_bar."""
    figures = (DownloadColumn(), TransferSpeedColumn()) if octets else (MofNCompleteColumn(), _Rate())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *figures, TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as progress, only_printable():
        task = progress.add_task("", total=None)

        def tell(what: str, done: int, total: int) -> None:
            what = printable(what)
            if progress.tasks[0].description != what:
                progress.reset(task, total=total, description=what)
            progress.update(task, completed=done, total=total)

        yield tell
