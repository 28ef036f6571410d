"""Tables and bars by rich, which only people see and what has letters wider than others: it is slow to load."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.cells import cell_len
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
GAP = 2                             # columns between two of a table


def show(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """A table; without frames, and never cut off, to a pipe. `right`: which columns are flush right. On a terminal that
    is too narrow for a line of each row, each column of a row has a line."""
    person = sys.stdout.isatty()
    room = (console(sys.stdout).width if person else UNLIMITED_WIDTH) - GAP * (len(titles) - 1)
    widths = _widths(titles, rows, room)
    if rows and sum(widths) > room:
        _show_apart(titles, rows)
        return
    table = Table(box=box.SIMPLE_HEAD if person else None, pad_edge=False, show_edge=False,
                  padding=(0, 1, 0, 0) if person else (0, 1))      # beside it a box has a column
    for title, is_right, width in zip(titles, right, widths, strict=True):
        table.add_column(title, overflow="fold", justify="right" if is_right else "left", width=width)
    for row in rows:
        table.add_row(*map(Text, row))
    console(sys.stdout, None if person else UNLIMITED_WIDTH).print(table)


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide each column is to be: as its longest word at least, and as its longest cell where there is room."""
    columns = list(zip(titles, *rows, strict=True))
    widths = [max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    wanted = [max(map(cell_len, column)) for column in columns]
    order = sorted(range(len(columns)), key=lambda at: wanted[at] - widths[at])     # those that lack least come first
    for left, at in zip(range(len(columns), 0, -1), order, strict=True):
        widths[at] += max(0, min(wanted[at] - widths[at], (room - sum(widths)) // left))
    return widths


def _show_apart(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A line for each cell, with its title, and an empty one between rows."""
    for number, row in enumerate(rows):
        grid = Table.grid(padding=(0, GAP, 0, 0))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for title, cell in zip(titles, row, strict=True):
            grid.add_row(title, Text(cell))
        if number:
            print()
        console(sys.stdout).print(grid)


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
                progress.reset(task, description=what)
            progress.update(task, completed=done, total=total or None)      # None: nobody knows

        yield tell
