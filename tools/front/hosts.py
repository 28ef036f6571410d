"""Where back ends are: the directory says a name (mailHost), proxies want an address and a port."""

import ipaddress
import logging
import re
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping

from attrs import define, field, frozen

log = logging.getLogger(__name__)

MOST = 10_000               # names that are remembered
_PORT = re.compile(r"[1-9][0-9]{0,4}")

Resolve = Callable[[str], Awaitable[str]]


class Unknown(Exception):
    """Nobody knows where that back end is; the text is for the log."""


@frozen
class Place:
    """A back end's address, and its ports if they are not those of the others."""

    address: str
    ports: Mapping[str, int] = field(factory=dict)


def parse_server(text: str) -> tuple[str, int]:
    """From ADDRESS:PORT. Raises ValueError."""
    address, ports = _split(text)
    if len(ports) != 1:
        raise ValueError(f"{text} is not ADDRESS:PORT")
    return address, ports[0]


def parse_hosts(words: Iterable[str]) -> dict[str, Place]:
    """By names in lower case, from NAME=ADDRESS[:IMAP-PORT[:POP3-PORT]]. Raises ValueError."""
    found = {}
    for word in words:
        name, equals, where = word.partition("=")
        if not (name and equals):
            raise ValueError(f"{word} is not NAME=ADDRESS")
        address, ports = _split(where)
        if len(ports) > 2:
            raise ValueError(f"{word} has more than two ports")
        found[name.strip().lower()] = Place(address, dict(zip(("imap", "pop3"), ports, strict=False)))
    return found


def _split(text: str) -> tuple[str, list[int]]:
    """An address and what follows it. Raises ValueError."""
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text}: a bracket is missing")
        words = rest.split(":")[1:]
    else:
        address, *words = text.strip().split(":")
    if not all(_PORT.fullmatch(word) and int(word) < 65536 for word in words):
        raise ValueError(f"{text} has a port that is none")
    return str(ipaddress.ip_address(address.strip())), [int(word) for word in words]


def resolve(name: str) -> str:
    """The address that the system knows. For a thread. Raises OSError, UnicodeError."""
    return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])


@define
class _Known:
    address: str                # "": there is none
    until: float


@define(eq=False)
class Hosts:
    """Asks `resolve` about what is not in the table, and remembers it for `time` seconds; what was known before then is
    used on when the resolver fails."""

    _table: Mapping[str, Place]
    _resolve: Resolve
    _clock: Callable[[], float]
    _time: float
    _known: "OrderedDict[str, _Known]" = field(factory=OrderedDict, init=False)

    async def find(self, name: str) -> Place:
        """Where the back end of that name is. Raises Unknown."""
        name = name.lower()
        if (place := self._table.get(name)) is not None:
            return place
        try:
            return Place(str(ipaddress.ip_address(name)))
        except ValueError:
            return Place(await self._address(name))

    async def _address(self, name: str) -> str:
        known = self._known.get(name)
        if known is None or known.until <= self._clock():
            known = await self._ask(name, known)
        if not known.address:
            raise Unknown(f"there is no address of the back end {name}")
        return known.address

    async def _ask(self, name: str, old: _Known | None) -> _Known:
        if old is not None:                     # one asks; the others do not wait for a resolver that may be slow
            old.until = self._clock() + self._time
        try:
            address = await self._resolve(name)
        except (OSError, UnicodeError) as error:
            address = old.address if old is not None else ""
            log.warning("the address of the back end %s is not to be had%s: %s", name,
                        ", the last one is used" if address else "", error)
        known = self._known[name] = _Known(address, self._clock() + self._time)
        self._known.move_to_end(name)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return known
