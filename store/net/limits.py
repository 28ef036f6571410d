"""How many connections a server takes: in all, from one address, of one user. Alike for all three servers."""

import ipaddress
from functools import lru_cache

from attrs import define, field

from store.accounts.throttle.sharedcounts import Counts

NETWORK_BITS = 64       # of an IPv6 address: a customer has as many addresses below that as it likes
ADDRESSES = 10_000      # that are kept as they were read

TOO_MANY = "Too many connections"
TOO_MANY_HERE = "Too many connections from your address"
TOO_MANY_EARLY = "Too many connections from your address that have not logged in"
TOO_MANY_OF_USER = "Too many connections of this user"


@define
class ConnectionLimits:
    """Counts the connections that are open. Remembers only these, so it never grows past `total` entries.

    With `shared`, those of the other processes count, too. Two that look at the same moment may both find room for the
    last one: so there may be more than the limit, by one for each other process. `server` keeps the servers apart.
    """

    total: int
    per_address: int
    per_user: int = 0           # 0: any number
    network_bits: int = NETWORK_BITS
    server: str = ""
    shared: Counts | None = field(default=None, eq=False)
    early: int = 0              # before login, from an address that nobody has logged in from; 0: any number
    open: int = field(default=0, init=False)
    full: bool = field(default=False, init=False)       # whether this process has no descriptor left for one more
    _by_address: dict[str, int] = field(factory=dict, init=False)
    _by_user: dict[str, int] = field(factory=dict, init=False)
    _early: dict[str, int] = field(factory=dict, init=False)

    def refusal(self, address: str) -> str:
        """Count a connection from `address`, and give ""; or say why not, in words for the client: then it must not be
        released.

        What has no IP address (a UNIX socket) only counts in all.
        """
        if self.open + self._others("", "") >= self.total:
            return TOO_MANY
        network = self._network(address)
        if network:
            if self._by_address.get(network, 0) + self._others("a", network) >= self.per_address:
                return TOO_MANY_HERE
            self._count(self._by_address, "a", network, 1)
        self.open += 1
        self._share("", "", 1)
        self.show()
        return ""

    def release(self, address: str) -> None:
        """A connection that was admitted has ended."""
        self.open -= 1
        self._share("", "", -1)
        self.show()
        network = self._network(address)
        if network:
            self._count(self._by_address, "a", network, -1)

    def show(self, *, full: bool = False) -> None:
        """Have the other processes see that this one serves, and how many connections it has. While it is `full` they
        leave it nobody, however few it has: until one of its connections has ended, or it finds a descriptor."""
        self.full = full
        if self.shared is not None:
            self.shared.show_open(self.server, None if full else self.open)

    def is_ahead(self) -> bool:
        """Whether another process that serves the same should have the next one: it has fewer connections, or this one
        has no room, and that one has."""
        fewest = self.shared.fewest_open(self.server) if self.shared is not None else None
        return fewest is not None and (self.full or fewest < self.open)

    def admit_early(self, address: str) -> bool:
        """Count a connection before login, unless there are too many of that address; then it must not be released."""
        network = self._network(address)
        if self.early and network and self._early.get(network, 0) + self._others("e", network) >= self.early:
            return False
        if network:
            self._count(self._early, "e", network, 1)
        return True

    def release_early(self, address: str) -> None:
        """Count one connection less that has not logged in: it has logged in, or has ended."""
        network = self._network(address)
        if network:
            self._count(self._early, "e", network, -1)

    def admit_user(self, user: str) -> bool:
        """Count a connection of `user`, unless there are too many; then it must not be released."""
        if self.per_user and self._by_user.get(user, 0) + self._others("u", user) >= self.per_user:
            return False
        self._count(self._by_user, "u", user, 1)
        return True

    def release_user(self, user: str) -> None:
        """Count one connection less of the user: it has ended, or belongs to nobody any more."""
        self._count(self._by_user, "u", user, -1)

    def _count(self, counted: dict[str, int], kind: str, name: str, change: int) -> None:
        left = counted.get(name, 0) + change
        if left:
            counted[name] = left
        else:
            del counted[name]
        self._share(kind, name, change)

    def _share(self, kind: str, name: str, change: int) -> None:
        if self.shared is not None:
            self.shared.add(self._key(kind, name), change)

    def _others(self, kind: str, name: str) -> int:
        return self.shared.others(self._key(kind, name)) if self.shared is not None else 0

    def _key(self, kind: str, name: str) -> bytes:
        return f"{self.server} {kind} {name}".encode()

    def _network(self, address: str) -> str:
        return network_of(address, self.network_bits, otherwise="")


@lru_cache(maxsize=ADDRESSES)
def network_of(address: str, bits: int, *, otherwise: str) -> str:
    """An IPv4 address as it is, or the network of so many bits of an IPv6 address; `otherwise` for what is none."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return otherwise
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, bits), strict=False))


@lru_cache(maxsize=ADDRESSES)
def is_this_host(peer: str) -> bool:
    """Whether a peer is on this host: a loopback address, or "local", which stands for a UNIX socket."""
    if peer == "local":
        return True
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
