"""What an administrator can choose about the end point that proxies ask."""

from pathlib import Path

from attrs import Attribute, field, frozen
from attrs.validators import ge, in_

from store.net.admission import are_networks
from tools.front.hosts import parse_hosts, parse_server

_PORTS = in_(range(1, 65536))


def _table(_settings: object, _attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    parse_hosts(value)


def _server(_settings: object, _attribute: "Attribute[str]", value: str) -> None:
    if value:
        parse_server(value)


@frozen
class Settings:
    """Settings of the front; times in seconds."""

    networks: tuple[str, ...] = field(default=("127.0.0.0/8", "::1"), validator=are_networks, metadata={
        "help": "addresses and networks of the proxies that may ask"})
    secret_file: Path | None = field(default=None, metadata={
        "help": "file whose first line they must send as Auth-Key (auth_http_header Auth-Key ...); default: no secret"})
    hosts: tuple[str, ...] = field(default=(), validator=_table, metadata={
        "help": "back ends that the system's resolver does not know, or that have ports of their own: "
                "NAME=ADDRESS, NAME=ADDRESS:IMAP-PORT:POP3-PORT, [ADDRESS] for IPv6"})
    default_host: str = field(default="", metadata={
        "help": "the back end of users for whom the directory names none; empty: they cannot log in"})
    imap_port: int = field(default=143, validator=_PORTS, metadata={
        "help": "port of IMAP on back ends for which front.hosts names none"})
    pop3_port: int = field(default=110, validator=_PORTS, metadata={"help": "the same for POP3"})
    smtp_server: str = field(default="", validator=_server, metadata={
        "help": "ADDRESS:PORT of the relay that takes mail of users who log in by SMTP; empty: nobody can"})
    plaintext_login: bool = field(default=False, metadata={
        "help": "allow passwords without TLS between client and proxy (from this host they always are)"})
    login_attempts: int = field(default=5, validator=ge(1), metadata={
        "help": "failed logins before the proxy ends the connection"})
    resolve_time: int = field(default=60, validator=ge(1), metadata={
        "help": "how long the address of a back end is remembered, and that there is none", "type": "duration"})
    request_time: int = field(default=10, validator=ge(1), metadata={
        "help": "time a proxy has to bring its request", "type": "duration"})
    connections: int = field(default=10_000, validator=ge(1), metadata={
        "help": "questions at a time, over all processes"})
