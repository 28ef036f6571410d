"""Whether the packages are there that spans need: those who do not want spans need not have them."""

import importlib.util

from tools.exits import Failure


def require() -> None:
    """Raises Failure where they are missing."""
    try:
        there = all(importlib.util.find_spec(name) is not None for name in (
            "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
    except ModuleNotFoundError:
        there = False
    if not there:
        raise Failure("trace.collector needs the packages opentelemetry-sdk and "
                      "opentelemetry-exporter-otlp-proto-http: pip install 'onecopy[traces]'")
