"""The HTTP door's rim: what the reactor listens with."""

from store.accounts.networks import Networks
from store.net.admission import AdmissionControl
from store.net.linestates import Clock
from store.net.streamfactory import StreamFactory
from tools.http.session import Session, Site, closing
from tools.http.settings import Settings
from tools.http.webpages import Answer, Pages, Refused


def factory(pages: Pages, settings: Settings, clock: Clock, admission: AdmissionControl, *,
            implicit_tls: bool = False) -> StreamFactory:
    """A factory whose connections answer with these pages."""
    site = Site("http", Networks.parse(settings.networks), pages.answer, request_time=settings.request_time,
                idle_time=settings.idle_time, answer_time=settings.answer_time, body_limit=settings.body_limit,
                early=pages.early)
    full = closing(Answer.problem(Refused(503, "Too many connections")))
    return StreamFactory(lambda stream: Session(stream, site), clock, implicit_tls=implicit_tls, admission=admission,
                         full=full)
