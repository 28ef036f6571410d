"""Which addresses belong together: the networks that an administrator names."""

import ipaddress
from collections.abc import Iterable

from attrs import frozen

LOCAL = "local"         # what `Stream.peer` is for a UNIX socket

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@frozen
class Networks:
    """A set of networks; `peer in networks` asks for an address as `Stream.peer` has it."""

    networks: tuple[_Network, ...] = ()
    local: bool = False

    @classmethod
    def parse(cls, words: Iterable[str]) -> "Networks":
        """From addresses, networks (10.0.0.0/8) and "local". Raises ValueError."""
        found = list(words)
        return cls(tuple(_network(word) for word in found if word != LOCAL), LOCAL in found)

    def __contains__(self, peer: object) -> bool:
        if peer == LOCAL:
            return self.local
        try:
            address = ipaddress.ip_address(str(peer).partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)

    def __bool__(self) -> bool:
        return self.local or bool(self.networks)


def _network(word: str) -> _Network:
    try:
        return ipaddress.ip_network(word)
    except ValueError as error:
        raise ValueError(f"{word} is no address or network: {error}") from None
