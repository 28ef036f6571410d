"""The connection of a standby to the one that it follows, as the commands make it."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from attrs import evolve

from store.standby.sourcepeer import PATIENCE, Rate, SourcePeer
from tools.cli.invocation import Invocation
from tools.exits import Failure
from tools.server.control.backendlink import Address, Place


def read_address(text: str) -> Address:
    """Of HOST:PORT, or HOST=ADDRESS:PORT where the name leads elsewhere. Raises ValueError."""
    host, equals, where = text.strip().partition("=")
    address, colon, port = (where if equals else host).rpartition(":")
    if not colon or not address or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("not HOST:PORT, or HOST=ADDRESS:PORT")
    name = host if equals else address
    return Address(name.lower(), address.strip("[]"), int(port))


@contextlib.contextmanager
def disk_here(root: Path) -> Iterator[None]:
    """What the disk of this standby refuses is said as that. Raises Failure."""
    try:
        yield
    except OSError as error:
        raise Failure(f"{error.filename or root}: {error.strerror or error}. What this standby has noted stays whole: "
                      "type it again when that is mended", 1) from error


def written(address: Address) -> str:
    """As `read_address` reads it."""
    return f"{address.host}={address.address}:{address.port}"


def connect(invocation: Invocation, address: Address, rate: int = 0) -> SourcePeer:
    """Call it; octets come so fast at most. Raises Failure, StoreError UNAVAILABLE."""
    place = own_place(invocation, address)
    return SourcePeer(evolve(place, peers={address.host: address}).connect(address.host), Rate(rate),
                      place.settings.compression, min(PATIENCE, place.settings.timeout))


def own_place(invocation: Invocation, address: Address) -> Place:
    """What this machine needs to speak with the one at that address. Raises Failure."""
    values = invocation.config.values
    host = str(values["exchange.host"] or values["store.host"])
    if host.lower() in ("", address.host):
        raise Failure("exchange.host is not set: a standby has a name of its own, which is in its certificate, and "
                      "among exchange.standbys of the one that it follows")
    return Place.of(invocation.config, host)


def log_to_standard_error() -> None:
    """What is logged is for whoever started the command, and for systemd."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
