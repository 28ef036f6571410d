"""Histograms, as Prometheus has them."""

from typing import Any

# Upper ends of the buckets of a histogram; one more takes what is above.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)    # of commands, flushes


class Histogram:
    """How many values were at most each of the bounds, and above the one before; the sum of all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def figures(self) -> dict[str, Any]:
        """As it is given to those who ask the process."""
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.total}
