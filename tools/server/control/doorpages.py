"""The pages of the HTTP door that the server itself has. They are gathered in threads: nothing holds the event loop."""

from store import offload
from store.store import Store
from tools.cli.later import Later
from tools.http.gathering import Gathering
from tools.http.webpages import Answer, Asked, Pages
from tools.server.metrics.figures import gather

METRICS = "text/plain; version=0.0.4; charset=utf-8"
_exposition = Later("tools.server.metrics.exposition:text")     # it loads prometheus_client


def metrics_text(store: Store) -> bytes:
    """What `onecopy stats --prometheus` prints. For a thread."""
    return bytes(_exposition(gather(store)))


def add_pages(pages: Pages, store: Store) -> None:
    """Have these pages."""
    async def gathered() -> bytes:
        return await offload.run(store, "pages", metrics_text, store)

    metrics = Gathering(gathered)

    async def metrics_page(asked: Asked) -> Answer:
        return Answer(body=await metrics.get(), kind=METRICS)

    pages.add("/metrics", metrics_page)
