"""What an administrator can choose about the end point that proxies ask."""

from pathlib import Path

from attrs import frozen
from attrs.validators import ge, in_

from store.accounts.networks import Networks
from store.values import setting
from tools.front.hosts import parse_hosts, parse_server

_PORTS = in_(range(1, 65536))


def _server(value: str) -> None:
    if value:
        parse_server(value)


@frozen
class Settings:
    """Settings of the front; times in seconds."""

    networks: tuple[str, ...] = setting(("127.0.0.0/8", "::1"), "addresses and networks of the proxies that may ask",
                                        check=Networks.parse)
    secret_file: Path | None = setting(None, "file whose first line they must send as Auth-Key (auth_http_header "
                                       "Auth-Key ...); default: front-secret in the store, which the first start makes")
    hosts: tuple[str, ...] = setting((), "back ends that the system's resolver does not know, or that have ports of "
                                     "their own: NAME=ADDRESS, NAME=ADDRESS:IMAP-PORT:POP3-PORT, [ADDRESS] for IPv6",
                                     check=parse_hosts)
    default_host: str = setting("", "the back end of users for whom the directory names none; empty: they cannot log "
                                "in")
    imap_port: int = setting(143, "port of IMAP on back ends for which front.hosts names none", validator=_PORTS)
    pop3_port: int = setting(110, "the same for POP3", validator=_PORTS)
    smtp_server: str = setting("", "ADDRESS:PORT of the relay that takes mail of users who log in by SMTP; empty: "
                               "nobody can", check=_server)
    plaintext_login: bool = setting(False, "allow passwords without TLS between client and proxy (from this host they "
                                    "always are)")
    login_attempts: int = setting(5, "failed logins before the proxy ends the connection", validator=ge(1))
    resolve_time: int = setting(60, "how long the address of a back end is remembered, and that there is none",
                                type="duration", validator=ge(1))
    request_time: int = setting(10, "time a proxy has to bring its request", type="duration", validator=ge(1))
    connections: int = setting(10_000, "questions at a time, over all processes", validator=ge(1))
