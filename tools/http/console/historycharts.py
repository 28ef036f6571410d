"""Charts of what was over time, as inline SVG: columns of parts of the time, with what was wrong in front. No I/O.

Colours are classes of the style sheet; the text in a chart is hidden from screen readers, which get its name and a
sentence instead (`tools/spark/report/charts.py` does it the same way).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

Parts = Sequence[Mapping[str, Any] | None]
Span = tuple[float, float]              # Unix times at which a chart begins and ends
_HEIGHT, _ABOVE, _BELOW = 90, 20, 20    # pixels: of the highest column, of what stands above and below
_FINE = 1000                # steps of a height


def over_time(name: str, parts: Parts, fair: str, bad: str = "", *, span: Span, summed: bool = True
              ) -> Markup:
    """The values `fair` and, in front of them, `bad` of each part. `summed`: they are counts, and have a sum."""
    fairs, bads = (_values(parts, each) for each in (fair, bad))
    most = max([*fairs, *bads, 0]) or 1
    sentence = f"At most {max([*fairs, 0]):,} in a part of this time"
    if summed:
        sentence = f"{sum(fairs):,} in all. {sentence}"
    if bad:
        sentence += f"; {bad}: {sum(bads):,}"
    return _chart(name, sentence + ".", f"{most:,}", span, [
        ("fair", [_FINE * each // most for each in fairs]), ("bad", [_FINE * each // most for each in bads])])


def fullness(name: str, parts: Parts, *, span: Span) -> Markup:
    """How full the volumes were, in per cent of all."""
    shares = [0 if each is None or not each["used"] + each["free"] else
              _FINE * each["used"] // (each["used"] + each["free"]) for each in parts]
    last = next((share for share, each in zip(reversed(shares), reversed(parts), strict=True) if each is not None), 0)
    return _chart(name, f"{last // 10} % at the end, {max(shares, default=0) // 10} % at most.", "100 %", span,
                  [("fair", shares)])


def _values(parts: Parts, name: str) -> list[int]:
    return [0 if each is None or not name else int(each[name]) for each in parts]


def _chart(name: str, sentence: str, top: str, span: Span, series: Sequence[tuple[str, Sequence[int]]]) -> Markup:
    paths = [Markup('<path class="{}" d="{}"/>').format(kind, "".join(
        f"M{at} {_FINE}v{-max(8, height)}h1v{max(8, height)}z" for at, height in enumerate(heights) if height > 0))
        for kind, heights in series if any(heights)]
    count = max((len(heights) for _, heights in series), default=1)
    bottom = _ABOVE + _HEIGHT
    return Markup(
        '<svg class="chart" role="img" aria-label="{}" width="100%" height="{}"><title>{}</title>'
        '<svg x="0" y="{}" width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
        '<rect class="axis" x="0" y="{}" width="100%" height="1"/><text class="value small" x="0" y="{}">{}</text>'
        '<text class="label small" x="0" y="{}">{}</text><text class="label small" x="100%" y="{}" '
        'text-anchor="end">{}</text></svg>').format(
        f"{name}. {sentence}", bottom + _BELOW, sentence, _ABOVE, _HEIGHT, count, _FINE, Markup("").join(paths), bottom,
        _ABOVE - 6, top, bottom + 15, _moment(span[0]), bottom + 15, _moment(span[1]))


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%m-%d %H:%M")
