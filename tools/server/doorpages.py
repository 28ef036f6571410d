"""The pages of the HTTP door that the server itself has. They are gathered in threads: nothing holds the event loop."""

from collections.abc import Callable
from typing import Any

from store import offload
from store.store import Store
from tools.cli.later import Later
from tools.http.clientconfig import ClientConfig, services
from tools.http.gathering import Gathering
from tools.http.settings import Settings
from tools.http.webpages import Answer, Asked
from tools.server.health import FAILING, Health, Part, as_json, overall
from tools.server.metrics.figures import gather
from tools.server.process.listeners import Server
from tools.server.process.sockets import HTTP
from tools.server.process.workerconfig import WorkerConfig
from tools.serversettings import ImapListen, Pop3Listen

METRICS = "text/plain; version=0.0.4; charset=utf-8"
_Api = Later("tools.http.api.apipages:Api")                     # it loads the program
_OperationCalls = Later("tools.http.api.operationcalls:OperationCalls")
_console = Later("tools.http.console.pages.allpages:add_console")   # it loads jinja2
_exposition = Later("tools.server.metrics.exposition:text")     # it loads prometheus_client


def metrics_text(store: Store) -> bytes:
    """What `onecopy stats --prometheus` prints. For a thread."""
    return bytes(_exposition(gather(store)))


def client_config(server: Server, store: Store) -> ClientConfig:
    """What mail programs are told about this server, as the configuration is at the start."""
    config = server.config
    found, imap, pop3 = (config.settings(HTTP, Settings), config.settings("imap", ImapListen),
                         config.settings("pop3", Pop3Listen))
    told = services(found.mail_name, (imap.port, imap.tls_port), (pop3.port, pop3.tls_port), found.submission)
    return ClientConfig(told if found.mail_name else (), store.settings.default_domain)


def add_pages(server: Server, store: Store, worker_config: WorkerConfig) -> Callable[[], None]:
    """Have these pages; what is to be called when the process stops."""
    def settings() -> Settings:
        """Those of the HTTP door as they are now."""
        return server.config.settings(HTTP, Settings)

    pages = server.pages
    health = Health(store, worker_config.config, worker_config.processes)
    calls = _OperationCalls(store, lambda: server.config, server.counts)

    async def measure() -> bytes:
        return await offload.run(store, "pages", metrics_text, store)

    async def look() -> list[Part]:
        return await offload.run(store, "pages", health.look)

    metrics, parts = Gathering(measure), Gathering(look)

    async def metrics_page(asked: Asked) -> Answer:
        return Answer(body=await metrics.get(), kind=METRICS)

    async def live(asked: Asked) -> Answer:
        """This process answers: no reason to kill it."""
        return Answer.json({"state": "ok"})

    async def ready(asked: Asked) -> Answer:
        """Whether clients may be sent here."""
        found = await parts.get()
        wrong = [f"{each.part}: {each.reason}" for each in found if each.state == FAILING]
        return Answer.json({"state": overall(found), "why": wrong}, 503 if wrong else 200)

    async def whole(asked: Asked) -> Answer:
        found = await parts.get()
        return Answer.json(as_json(found), 503 if overall(found) == FAILING else 200)

    async def health_now() -> dict[str, Any]:
        return as_json(await parts.get())

    _Api(store, calls).add_pages(pages)
    mail = client_config(server, store)
    _console(pages, store, calls, settings, health_now, mail)
    mail.add_pages(pages)
    pages.add("/metrics", metrics_page)
    pages.add("/health", whole)
    pages.add("/health/live", live)
    pages.add("/health/ready", ready)
    end: Callable[[], None] = calls.runs.stop
    return end
