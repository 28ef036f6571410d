"""Every metric."""

from collections.abc import Iterator

from tools.reference.markdown import anchored, cell, code, page, table
from tools.server.metrics.metriclist import METRICS, PREFIX

_WRITTEN = "Written by `onecopy man --markdown docs/reference` from the list in `tools/server/metrics/metriclist.py`."
_WHERE = (f"Their names begin with `{PREFIX}`. [http.md](../http.md) says how Prometheus asks for them, "
          "[administration.md](../administration.md#metrics) which alerts there are.")


def lines() -> Iterator[str]:
    """The page."""
    yield from page("Every metric", _WRITTEN, _WHERE)
    yield ""
    yield from table(("name", "kind", "labels", "what"), (
        (anchored(PREFIX + metric.name, code(metric.name)), metric.kind, ", ".join(map(code, metric.labels)),
         cell(metric.help)) for metric in METRICS))
