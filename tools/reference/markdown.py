"""Pieces of Markdown: what is written by us is shown as it is, on GitHub and in the site."""

import re
from collections.abc import Iterable, Iterator

Row = tuple[str, ...]


def page(title: str, *paragraphs: str) -> Iterator[str]:
    """The lines that each page begins with."""
    yield f"# {title}"
    for paragraph in paragraphs:
        yield from ("", paragraph)


def table(heads: Row, rows: Iterable[Row]) -> Iterator[str]:
    """A table of cells that are Markdown already."""
    yield from (f"| {' | '.join(heads)} |" if any(heads) else "|" + " |" * len(heads), "|" + "---|" * len(heads))
    for row in rows:
        yield f"| {' | '.join(row)} |"


def cell(text: str) -> str:
    """A text, for a cell."""
    return re.sub(r"([|*_<])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """As it is typed, for a cell."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def anchored(name: str, text: str) -> str:
    """A text that links can lead to by that name."""
    return f'<a id="{name}"></a>{text}'
