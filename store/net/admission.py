"""Admission control of a server, which all its listeners share: what it asks of every connection of any protocol."""

import math
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from attrs import define, field, frozen
from attrs.validators import ge, in_

from store.accounts.networks import Networks
from store.accounts.throttle.sharedcounts import Counts
from store.metrics.spacesaving import Busiest
from store.net.limits import ConnectionLimits
from store.values import setting

SPARE_DESCRIPTORS = 128     # of a process, that connections leave free
MINUTE = 60.0               # seconds in which `command_rate` counts


@frozen
class AdmissionSettings:
    """What can be chosen about admission to each server alike; its own `Settings` may have other defaults."""

    connections: int = setting(10_000, "connections at a time, over all processes", validator=ge(1))
    connections_per_address: int = setting(1000, "connections at a time from one address", validator=ge(1))
    ipv6_prefix: int = setting(64, "how many bits of an IPv6 address make one address in this sense",
                               validator=in_(range(129)))
    early_connections: int = setting(10, "connections at a time that have not logged in from one address from which "
                                     "nobody has logged in before; login.slow_exclude and login.proxy_networks are not "
                                     "counted; 0: as many as connections_per_address", validator=ge(0))
    proxy_networks: tuple[str, ...] = setting((), "addresses and networks of proxies: every connection from there "
        "begins with a PROXY header (v1 or v2)", check=Networks.parse)
    client_ca: Path | None = setting(None, "PEM file of authorities: clients may show a certificate of theirs, for "
                                     "SASL EXTERNAL; any other one ends the connection")


@frozen
class LoginAdmissionSettings(AdmissionSettings):
    """And about those of servers that users log in to."""

    connections_per_user: int = setting(100, "connections at a time of one user; 0: any number", validator=ge(0))
    early_time: float = setting(30.0, "time that a client has for each step before login: the TLS handshake, a line",
                                type="duration", validator=ge(1))
    early_octets: int = setting(64 << 10, "octets that a client may send before it has logged in, under TLS those "
                                "within; 0: any number", type="size", validator=ge(0))
    command_rate: int = setting(600_000, "lines that a client may send in a minute; 0: any number", validator=ge(0))
    plaintext_login: bool = setting(False, "allow passwords without TLS from other hosts (from this host they always "
                                    "are)")
    login_time: int = setting(60, "time a client has to log in", type="duration")


def descriptors_for_connections() -> float:
    """The first number of a descriptor that no connection gets: the others are for message files, logs and other
    processes, which those who are there need, and to tell who is refused. The system gives the lowest one that is free,
    so that a connection with this number means that all below are in use."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if most == resource.RLIM_INFINITY else most - min(SPARE_DESCRIPTORS, most // 4)


@define(eq=False)
class AdmissionControl:
    """Counts what is there. `early_octets`: what a client may send before it has logged in, 0: anything;
    `command_rate`: how many lines it may send in a minute. `draining`: nobody new is let in. `familiar`: whether
    somebody has logged in from an address before, or may deliver from there. `watch`: is to be called with a connection
    that is new, or another user's or address's from now on (`tools/server/transcripts`). `refused`: connections that
    are being sent away."""

    limits: ConnectionLimits
    early_octets: int = 0
    command_rate: float = math.inf
    draining: bool = False
    familiar: Callable[[str], bool] = lambda peer: False
    watch: "Callable[..., None] | None" = None
    refused: set[object] = field(factory=set, init=False)
    counted: "Counter[str]" = field(factory=Counter, init=False)        # what has come since the start
    busiest: Busiest = field(factory=Busiest, init=False)               # its users

    @classmethod
    def from_settings(cls, server: str, settings: AdmissionSettings, shared: Counts | None = None
                      ) -> "AdmissionControl":
        """What these settings make of it."""
        limits = ConnectionLimits(settings.connections, settings.connections_per_address, 0, settings.ipv6_prefix,
                                  server, shared)
        limits.early = settings.early_connections
        if not isinstance(settings, LoginAdmissionSettings):
            return cls(limits)
        limits.per_user = settings.connections_per_user
        return cls(limits, settings.early_octets, settings.command_rate or math.inf)

    def follow(self, settings: AdmissionSettings) -> None:
        """Have the limits of these settings from now on; what is open stays."""
        self.limits.total, self.limits.per_address = settings.connections, settings.connections_per_address
        self.limits.early = settings.early_connections
        if isinstance(settings, LoginAdmissionSettings):
            self.limits.per_user = settings.connections_per_user
            self.early_octets, self.command_rate = settings.early_octets, settings.command_rate or math.inf

    @classmethod
    def open_to_all(cls) -> "AdmissionControl":
        """Without limits."""
        return cls(ConnectionLimits(1 << 62, 1 << 62))
