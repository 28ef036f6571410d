"""What was gathered, in the text format that Prometheus reads, by its own library."""

from collections.abc import Iterator
from typing import Any

from attrs import frozen
from prometheus_client import exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from tools.server.metrics.metriclist import COUNTER, METRICS, PREFIX, Found, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(found: Found) -> bytes:
    """The whole text, of what `figures.gather` has found."""
    return exposition.generate_latest(_Gathered(found))


@frozen
class _Gathered:
    """A collector of prometheus_client: it does not read the figures of its own process, but these."""

    _found: Found

    def collect(self) -> Iterator[Any]:
        """A family for each metric that has a value."""
        for metric in METRICS:
            family = _family(metric, self._found)
            if family.samples:
                yield family


def _family(metric: Metric, found: Found) -> Any:
    name = PREFIX + metric.name
    made: Any = (CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily)(
        name, metric.help, labels=metric.labels)
    for labels, value in metric.values(found):
        made.add_metric(labels, float(value))
    return made
