"""What an administrator can choose about HTTP: metrics, health, the API, the console."""

import re
from pathlib import Path

from attrs import frozen
from attrs.validators import ge, in_

from store.accounts.networks import Networks
from store.net.admission import AdmissionSettings
from store.values import setting
from tools.http.browserorigins import Origin
from tools.http.userroles import helpdesks_of, named_of

OPTIONAL, ADMINISTRATORS, ALL = "optional", "administrators", "all"     # of `second_factor`
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def submission_of(text: str) -> tuple[str, int] | None:
    """Host and port; None for an empty text. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if text and not (_NAME.fullmatch(host) and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"{text} is no host:port, such as smtp.example.org:465")
    return (host, int(port)) if text else None


def _name_or_none(text: str) -> None:
    if text and not _NAME.fullmatch(text):
        raise ValueError(f"{text} is no name of a host")


def origin_of(text: str) -> Origin | None:
    """None for an empty text. Raises ValueError."""
    return Origin.parse(text) if text else None


@frozen
class Settings(AdmissionSettings):
    """Settings of the HTTP door; times in seconds."""

    networks: tuple[str, ...] = setting(("127.0.0.0/8", "::1"), "addresses and networks that may connect",
                                        check=Networks.parse)
    connections: int = setting(1000, "connections at a time, over all processes", validator=ge(1))
    connections_per_address: int = setting(100, "connections at a time from one address", validator=ge(1))
    early_connections: int = setting(0, "connections at a time that have not logged in from one address from which "
                                     "nobody has logged in before; 0: as many as connections_per_address",
                                     validator=ge(0))
    client_ca: Path | None = setting(None, "PEM file of authorities: a client may show a certificate of theirs; any "
                                     "other one ends the connection")
    request_time: int = setting(20, "time a client has to send a request, its body included", type="duration",
                                validator=ge(1))
    idle_time: int = setting(60, "how long a connection may wait for its next request", type="duration",
                             validator=ge(1))
    answer_time: int = setting(60, "how long a client may take nothing of an answer", type="duration", validator=ge(1))
    operations: int = setting(4, "operations of the API and the console at a time, over all processes",
                              validator=ge(1))
    operation_time: int = setting(3600, "how long an operation of the API may take", type="duration", validator=ge(1))
    body_limit: int = setting(1 << 20, "octets of the body of a request", type="size", validator=ge(0))
    console: bool = setting(True, "whether there is the web console, at /console/")
    administrators: tuple[str, ...] = setting((), "who may do everything in the console: user ids, and group:NAME for "
                                              "those of a group of the directory", check=named_of)
    helpdesk: tuple[str, ...] = setting((), "who is the helpdesk of a domain in the console: user=domain",
                                        check=helpdesks_of)
    helpdesk_quota: int = setting(0, "octets up to which a helpdesk may set the limits of its domain's users; 0: none",
                                  type="size", validator=ge(0))
    auditors: tuple[str, ...] = setting((), "who may look at everything in the console, and change nothing: user ids, "
                                        "and group:NAME", check=named_of)
    second_factor: str = setting(OPTIONAL, "who must show a second factor to the console besides the password: "
        "optional (who has set one up), administrators (whoever has another role than user), all; who has none sets "
        "one up at the next login", validator=in_((OPTIONAL, ADMINISTRATORS, ALL)))
    origin: str = setting("", "origin by which browsers come to the console, such as https://mail.example.org: that of "
                          "its security keys; empty: the host that the browser names, under TLS or on localhost",
                          check=origin_of)
    session_idle: int = setting(1800, "time after which somebody who has done nothing in the console must log in again",
                                type="duration", validator=ge(60))
    session_time: int = setting(43200, "time after which everybody must", type="duration", validator=ge(60))
    mail_name: str = setting("", "name by which mail programs reach IMAP and POP3: then they are told so where they "
                             "ask (autoconfig, Autodiscover); empty: they are not", check=_name_or_none)
    submission: str = setting("", "host:port where mail programs send mail, for the same; port 465 is TLS, another one "
                              "STARTTLS", check=submission_of)
