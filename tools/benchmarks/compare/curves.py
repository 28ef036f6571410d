"""Charts of lines in SVG: what each operation costs with more and more of something."""

import math
from collections.abc import Mapping, Sequence

from tools.benchmarks.compare.bars import drawing, text

WIDTH, HEIGHT = 720, 320            # pixels
LEFT, RIGHT, TOP, BOTTOM = 60, 220, 30, 40
COLOURS = ("#0b7a75", "#c8762b", "#3b5bdb", "#a61e4d", "#5c940d", "#7d8597", "#862e9c", "#212529", "#e8590c")
LINE_HEIGHT = 12


def curves(heading: str, unit: str, values: Sequence[int], measured: Mapping[str, Sequence[float]]) -> str:
    """A line for each operation; both axes are logarithmic."""
    known = [cost for costs in measured.values() for cost in costs if cost > 0] or [1.0]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)) + 0.01)
    places = [LEFT + (WIDTH - LEFT - RIGHT) * at / max(1, len(values) - 1) for at in range(len(values))]

    def height(cost: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(max(cost, 10.0 ** low)) - low) / (high - low)

    parts = [text(LEFT, TOP - 12, f"{unit}, by: {heading.lower()}", "head")]
    for power in range(low, high + 1):
        y = height(10.0 ** power)
        parts += [f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
                  text(LEFT - 6, y + 4, f"{10.0 ** power:,g}", anchor="end")]
    parts += [text(x, HEIGHT - BOTTOM + 18, f"{value:,}", anchor="middle")
              for x, value in zip(places, values, strict=True)]
    labels = _apart({name: height(costs[-1]) for name, costs in measured.items() if costs})
    for colour, (name, costs) in zip(COLOURS * 9, measured.items(), strict=False):
        points = " ".join(f"{x:.1f},{height(cost):.1f}" for x, cost in zip(places, costs, strict=True))
        parts += [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
                  f'<circle cx="{places[-1]:.1f}" cy="{height(costs[-1]):.1f}" r="3" fill="{colour}"/>',
                  text(places[-1] + 8, labels[name] + 4, name)]
    return drawing(HEIGHT, parts, WIDTH)


def _apart(places: dict[str, float]) -> dict[str, float]:
    """Where labels stand so that none is on another: each at its line's end, or a little lower."""
    found, last = {}, -math.inf
    for name, y in sorted(places.items(), key=lambda pair: pair[1]):
        last = found[name] = max(y, last + LINE_HEIGHT)
    return found
