"""The front's rim: what the reactor listens with."""

from store import offload
from store.accounts.networks import Networks
from store.accounts.throttle.sharedcounts import Counts
from store.net.admission import AdmissionControl
from store.net.limits import ConnectionLimits
from store.net.linestates import Clock
from store.net.streamfactory import StreamFactory
from store.store import Store
from tools.front.hosts import Hosts, parse_hosts, resolve
from tools.front.secret import secret
from tools.front.session import Answering, Listener, refusal
from tools.front.settings import Settings
from tools.http.httpchannel import HEAD_LIMIT
from tools.http.session import Session, Site, closing
from tools.http.webpages import Answer


def factory(store: Store, settings: Settings, clock: Clock, counts: Counts | None = None) -> StreamFactory:
    """A factory whose connections answer proxies. Raises Failure."""
    async def look_up(name: str) -> str:
        return await offload.run(store, "hosts", resolve, name)

    hosts = Hosts(parse_hosts(settings.hosts), look_up, clock.seconds, settings.resolve_time)
    listener = Listener(store, settings, clock.seconds, hosts, secret(store.root, settings.secret_file))
    site = Site("front", Networks.parse(settings.networks), Answering(listener).answer, refusal,
                request_time=settings.request_time, body_limit=0, once=True)
    # All come from few addresses, so only their number counts; what one sends is bounded.
    limits = ConnectionLimits(settings.connections, settings.connections, 0, 128, "front", counts)
    return StreamFactory(lambda stream: Session(stream, site), clock, full=closing(Answer(503)),
                         admission=AdmissionControl(limits, 2 * HEAD_LIMIT))
