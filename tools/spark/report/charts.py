"""Charts as inline SVG. Lengths along the page are per cent and letters have their own size, so a chart is as wide as
the page, and as easy to read on a phone as in print. Colours are classes, which the page's style sheet defines.

The text in a chart is hidden from screen readers: they get the chart's name and, in a sentence, what it shows.
"""

from collections.abc import Sequence

from attrs import frozen
from markupsafe import Markup

LABEL = 24                  # letters of a label, at most
_LINE, _BAR, _GAP = 18, 14, 12          # pixels: of a line of text, of a bar, and below it
_COLUMNS, _BELOW, _ABOVE = 150, 22, 20  # of the highest column, of what stands below and above


@frozen
class Bar:
    """A bar with its label and what stands at its end; the `rest` of that only where there is room. `parts` are
    lengths, with a class each; they stand one behind the other, or (with `over`) begin together."""

    label: str
    text: str
    parts: tuple[tuple[str, int], ...]
    rest: str = ""


def bars(name: str, sentence: str, rows: Sequence[Bar], *, over: bool = False, whole: int = 0) -> Markup:
    """Horizontal bars below each other. With `over`, the parts of a bar begin together, the longest behind. `whole`:
    the length of the whole track; without it the longest bar fills it."""
    most = whole or max((_length(row, over) for row in rows), default=0) or 1
    height = len(rows) * (_LINE + _BAR + _GAP)
    drawn = [_bar(row, at * (_LINE + _BAR + _GAP), most, over) for at, row in enumerate(rows)]
    return _svg(name, sentence, height, drawn)


def _length(row: Bar, over: bool) -> int:
    lengths = [max(0, length) for _, length in row.parts]
    return max(lengths, default=0) if over else sum(lengths)


def _bar(row: Bar, top: int, most: int, over: bool) -> Markup:
    drawn = [Markup('<g><title>{}: {}{}</title><text class="label" x="0" y="{}">{}</text>'
                    '<text class="value" x="100%" y="{}" text-anchor="end">{}<tspan class="rest">{}</tspan></text>'
                    '<rect class="track" x="0" y="{}" width="100%" height="{}" rx="3"/>').format(
        row.label, row.text, row.rest, top + 13, shortened(row.label), top + 13, row.text, row.rest, top + _LINE, _BAR)]
    begin = 0
    parts = sorted(row.parts, key=lambda part: -part[1]) if over else row.parts
    for kind, length in parts:
        if length > 0:
            drawn.append(Markup('<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" rx="3"/>').format(
                kind, _part(0 if over else begin, most), top + _LINE, _part(length, most), _BAR))
            begin += length
    return Markup("").join([*drawn, Markup("</g>")])


def columns(name: str, sentence: str, rows: Sequence[tuple[str, int, str]]) -> Markup:
    """Columns beside each other: label, height, class."""
    most = max((number for _, number, _ in rows), default=0) or 1
    width = 100 / max(1, len(rows))
    drawn = [Markup('<rect class="axis" x="0" y="{}" width="100%" height="1"/>').format(_ABOVE + _COLUMNS)]
    for at, (label, number, kind) in enumerate(rows):
        height = max(2, _COLUMNS * number // most) if number > 0 else 0
        middle = f"{(at + 0.5) * width:.3f}"
        drawn.append(Markup(
            '<g><title>{}: {}</title><rect class="{}" x="{}%" y="{}" width="{}%" height="{}" rx="3"/>'
            '<text class="value" x="{}%" y="{}" text-anchor="middle">{}</text>'
            '<text class="label small" x="{}%" y="{}" text-anchor="middle">{}</text></g>').format(
            label, number, kind, f"{(at + 0.12) * width:.3f}", _ABOVE + _COLUMNS - height, f"{0.76 * width:.3f}",
            height, middle, _ABOVE + _COLUMNS - height - 5, f"{number:,}", middle, _ABOVE + _COLUMNS + 16, label))
    return _svg(name, sentence, _ABOVE + _COLUMNS + _BELOW, drawn)


def _svg(name: str, sentence: str, height: int, drawn: Sequence[Markup]) -> Markup:
    return Markup('<svg class="chart" role="img" aria-label="{}" width="100%" height="{}">{}</svg>').format(
        f"{name}. {sentence}", height, Markup("").join(drawn))


def _part(length: int, most: int) -> str:
    """Per cent, with three places; computed in integers, since lengths may be larger than a float holds exactly."""
    thousandths = 100_000 * length // most
    return f"{thousandths // 1000}.{thousandths % 1000:03}"


def shortened(text: str) -> str:
    """The text, or its two ends."""
    return text if len(text) <= LABEL else f"{text[:LABEL // 2]}…{text[-(LABEL // 2 - 1):]}"
