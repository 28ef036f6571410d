"""The front's rim: what the reactor listens with."""

from mboxlist import privatefiles
from store import offload
from store.accounts.networks import Networks
from store.accounts.sharedcounts import Counts
from store.net.admission import AdmissionControl
from store.net.limits import ConnectionLimits
from store.net.linestates import Clock
from store.net.stream import StreamFactory
from store.store import Store
from tools.exits import Failure
from tools.front.hosts import Hosts, parse_hosts, resolve
from tools.front.http import REQUEST_LIMIT
from tools.front.session import Listener, Penalties, Session
from tools.front.settings import Settings


def factory(store: Store, settings: Settings, clock: Clock, counts: Counts | None = None) -> StreamFactory:
    """A factory whose connections answer proxies. Raises Failure."""
    async def look_up(name: str) -> str:
        return await offload.run(store, "hosts", resolve, name)

    hosts = Hosts(parse_hosts(settings.hosts), look_up, clock.seconds, settings.resolve_time)
    listener = Listener(store, settings, clock.seconds, hosts, Penalties(clock.seconds), _secret(settings),
                        Networks.parse(settings.networks))
    # All come from few addresses, so only their number counts; what one sends is bounded.
    limits = ConnectionLimits(settings.connections, settings.connections, 0, 128, "front", counts)
    return StreamFactory(lambda stream: Session(stream, listener), clock, admission=AdmissionControl(limits,
                                                                                                     2 * REQUEST_LIMIT))


def _secret(settings: Settings) -> bytes:
    """What proxies must know; nothing without a file. Raises Failure."""
    if settings.secret_file is None:
        return b""
    try:
        with privatefiles.open_named(settings.secret_file) as file:
            secret = file.readline(1024).strip()
    except OSError as error:
        raise Failure(f"{settings.secret_file}: {error.strerror}") from None
    if not secret:
        raise Failure(f"{settings.secret_file}: its first line is empty")
    return secret
