"""How many connections a server takes, in all and from one address. The same for all three servers."""

import ipaddress

from attrs import define, field

NETWORK_BITS = 64       # of an IPv6 address: a customer has as many addresses below that as it likes


@define
class ConnectionLimits:
    """Counts the connections that are open. Remembers only these, so it never grows past `total` entries."""

    total: int
    per_address: int
    open: int = field(default=0, init=False)
    _by_address: dict[str, int] = field(factory=dict, init=False)

    def admit(self, address: str) -> bool:
        """Count a connection from `address`, unless there are too many; then it must not be released.

        What has no IP address (a UNIX socket) only counts in all.
        """
        if self.open >= self.total:
            return False
        network = _network(address)
        if network:
            here = self._by_address.get(network, 0)
            if here >= self.per_address:
                return False
            self._by_address[network] = here + 1
        self.open += 1
        return True

    def release(self, address: str) -> None:
        """A connection that was admitted has ended."""
        self.open -= 1
        network = _network(address)
        if network:
            left = self._by_address[network] - 1
            if left:
                self._by_address[network] = left
            else:
                del self._by_address[network]


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))


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
