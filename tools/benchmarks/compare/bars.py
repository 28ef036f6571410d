"""Charts of bars in SVG: for each line of a workload a group of bars, one for each server."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from tools.benchmarks.compare.ratios import Line, number
from tools.benchmarks.compare.variants import VARIANTS

WIDTH, BAR, GAP, HEAD = 720, 14, 10, 20         # pixels
LABEL, VALUE = 190, 90                          # pixels, left and right of the longest bar
COLOURS = {"onecopy": "#0b7a75", "dovecot": "#c8762b", "cyrus": "#7d8597"}
STYLE = "text{font:11px sans-serif;fill:#222}.head{font-weight:bold}"
PROMISES = {"onecopy-everything": "onecopy, everything", "onecopy-messages": "onecopy, messages"}


def drawing(height: int, parts: Sequence[str], width: int = WIDTH) -> str:
    """An SVG file, on white, so that it can be read on any page."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}"><style>{STYLE}</style>'
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Some words, whose base line is at `y`."""
    of = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{of} text-anchor="{anchor}">{escape(words)}</text>'


def bars(lines: Sequence[Line]) -> str:
    """The lines of one workload, one group below the other."""
    parts, y = [], GAP
    for line in lines:
        better = "more" if line.more_is_better else "less"
        parts.append(text(GAP, y + HEAD - 7, f"{line.name}: {line.unit} ({better} is better)", "head"))
        y += HEAD
        most = max((value for value in line.values.values() if value == value), default=0.0)
        for server, value in line.values.items():
            parts += _bar(y, server, value, most)
            y += BAR + 2
        y += GAP
    return drawing(y, parts)


def _bar(y: int, server: str, value: float, most: float) -> list[str]:
    long = max(1.0, (WIDTH - LABEL - VALUE) * value / most) if most > 0 and value > 0 else 1.0
    name = PROMISES.get(server, VARIANTS[server].title if server in VARIANTS else server)
    return [text(LABEL - 6, y + BAR - 3, name, anchor="end"),
            f'<rect x="{LABEL}" y="{y}" width="{long:.1f}" height="{BAR}" '
            f'fill="{COLOURS.get(server.partition("-")[0], "#444")}"/>',
            text(LABEL + long + 5, y + BAR - 3, number(value))]
