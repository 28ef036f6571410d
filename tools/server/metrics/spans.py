"""Spans of commands and deliveries, sent to a collector of OpenTelemetry: `trace.collector`, `trace.rate`.

Only a process that is to send them loads this module. A span is made when a command has ended; the library's own thread
sends what is in a queue of bounded length, and what does not fit there is lost. So a collector that is slow or gone
holds up nobody. Nothing of a message is in a span, and no password: what a line of the log about it would have.
"""

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Any, cast

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, set_span_in_context

from mboxlist.engine.troubles import TROUBLES
from store import VERSION
from store.observing.loglines import LIMIT
from tools.serversettings import Trace

QUEUE = 2048                # spans that wait for the thread,
BATCH = 512                 # and that are sent together
DELAY = 2000                # milliseconds between two batches
ANSWER_TIME = 5.0           # seconds within which the collector must have taken one
STOP_TIME = 2.0             # seconds in which a process that ends sends what is left
MOST_DELIVERIES = 1000      # whose commands have not ended
NANOSECONDS = 1_000_000_000


class _Telling:
    """The library's exporter, which tells once of a collector that takes none: it would tell each time itself."""

    def __init__(self, collector: str) -> None:
        self._collector = collector
        self._sends: Any = OTLPSpanExporter(endpoint=collector, timeout=ANSWER_TIME)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send some. In the library's thread."""
        try:
            found: SpanExportResult = self._sends.export(spans)
        except Exception as error:
            TROUBLES.met("traces do not reach the collector", f"{self._collector}: {error}")
            return SpanExportResult.FAILURE
        if found is not SpanExportResult.SUCCESS:
            TROUBLES.met("traces do not reach the collector", f"{self._collector} has not taken {len(spans)} spans")
        return found

    def shutdown(self) -> None:
        """Send no more."""
        self._sends.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is kept here."""
        return True


class Spans:
    """Those of a process; `chance` gives numbers from 0 to 1."""

    def __init__(self, settings: Trace, process: str, chance: Callable[[], float] = random.random) -> None:
        self._rate = settings.rate
        self._chance = chance
        self._deliveries: dict[str, tuple[Mapping[str, str | int], float]] = {}     # by session
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, shutdown_on_exit=False,
            resource=Resource({"service.name": "onecopy", "service.version": VERSION, "service.instance.id": process}))
        self._provider.add_span_processor(BatchSpanProcessor(
            cast(Any, _Telling(settings.collector)), max_queue_size=QUEUE, max_export_batch_size=BATCH,
            schedule_delay_millis=DELAY, export_timeout_millis=ANSWER_TIME * 1000))
        self._tracer = self._provider.get_tracer("onecopy", VERSION)

    def delivery(self, session: str, facts: Mapping[str, str | int], seconds: float) -> None:
        """See `loglines.SpanMaker`."""
        if len(self._deliveries) < MOST_DELIVERIES:
            self._deliveries[session] = facts, seconds

    def command(self, session: str, user: str, service: str, name: str, seconds: float, waited: Mapping[str, float]
                ) -> None:
        """See `loglines.SpanMaker`."""
        delivery = self._deliveries.pop(session, None)
        if self._chance() >= self._rate:
            return
        end = time.time_ns()
        span = self._tracer.start_span(
            f"{service} {name}", Context(), SpanKind.SERVER, start_time=end - int(max(0.0, seconds) * NANOSECONDS),
            attributes={"session": session, "user": user, "service": service, "command": name,
                        **{f"waited_for_{what}": part for what, part in waited.items()}})
        if delivery is not None:
            facts, took = delivery
            within = self._tracer.start_span(
                "delivery", set_span_in_context(span, Context()), start_time=end - int(took * NANOSECONDS),
                attributes={"session": session, **facts})
            within.end(end)
        span.end(end)

    def stop(self) -> None:
        """Send what is left, if the collector takes it in time."""
        LIMIT.follow(LIMIT.slow, None)
        last = Thread(target=self._provider.shutdown, name="traces", daemon=True)
        last.start()
        last.join(STOP_TIME)


def begin(settings: Trace, process: str) -> Spans:
    """Have spans made of what this process does from now on."""
    made = Spans(settings, process)
    LIMIT.follow(LIMIT.slow, made)
    return made
