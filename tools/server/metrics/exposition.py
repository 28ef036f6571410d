"""What was gathered, in the text format that Prometheus reads, by its own library."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from attrs import frozen
from prometheus_client import exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from tools.server.metrics.metriclist import COUNTER, HISTOGRAM, METRICS, PREFIX, Found, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(found: Found) -> bytes:
    """The whole text, of what `figures.gather` has found."""
    return exposition.generate_latest(_Gathered(found))


@frozen
class _Gathered:
    """A collector of prometheus_client: it does not read the figures of its own process, but these."""

    _found: Found

    def collect(self) -> Iterator[Any]:
        """A family for each metric, also of one that has no value yet."""
        for metric in METRICS:
            yield _family(metric, self._found)


def _family(metric: Metric, found: Found) -> Any:
    name = PREFIX + metric.name
    if metric.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        for labels, told in metric.values(found):
            ends = [*map(floatToGoString, told["bounds"]), "+Inf"]
            histogram.add_metric(labels, list(zip(ends, accumulate(told["counts"]), strict=True)), told["sum"])
        return histogram
    made: Any = (CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily)(
        name, metric.help, labels=metric.labels)
    for labels, value in metric.values(found):
        made.add_metric(labels, float(value))
    return made
