"""Names: whether clients who use them come to this server, and believe it."""

import socket
import ssl
from collections.abc import Iterator, Sequence

from store.accounts import clienttls
from tools.cli.controlclient import is_up
from tools.cli.options import Config
from tools.server.doctor.advice import Advice
from tools.serversettings import ImapListen, Pop3Listen

TIME = 5.0                  # seconds for a connection


def look(config: Config, names: Sequence[str]) -> Iterator[Advice]:
    """What clients who use these names meet; without any, that of the host, if it has a domain."""
    own = socket.getfqdn()
    for name in names or ([own] if "." in own and not own.endswith((".localdomain", ".local", ".arpa")) else []):
        yield from _resolved(name)
        for server, listen in (("imap", config.settings("imap", ImapListen)), ("pop3", config.settings(
                "pop3", Pop3Listen))):
            if listen.tls_port and is_up(config.root):
                address = next((each for each in listen.address if each not in ("*", "0.0.0.0", "::")), "127.0.0.1")
                yield from shown_certificate(server, name, address, listen.tls_port)


def _resolved(name: str) -> Iterator[Advice]:
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        yield Advice(name, True, f"the name has no address: {error.strerror or error}",
                     "add A and AAAA records in the DNS")
        return
    if others := sorted(each for each in found if not _is_ours(each)):
        yield Advice(name, False, f"the name leads to {', '.join(others)}: no address of this host",
                     "fine behind a proxy or NAT; else correct the DNS")


def _is_ours(address: str) -> bool:
    """Whether this host has that address: nobody can bind another one."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def shown_certificate(server: str, name: str, address: str, port: int) -> Iterator[Advice]:
    """Whether a client that knows the authorities of this host believes the certificate that it is shown."""
    try:
        with socket.create_connection((address, port), TIME) as plain, clienttls.context().wrap_socket(
                plain, server_hostname=name):
            pass
    except ssl.SSLCertVerificationError as error:
        yield Advice(f"{server}.tls_port", True, f"who connects to {name} is shown a certificate that cannot be "
                     f"verified: {error.verify_message}", "have tls.certificate, or tls.certificates for several "
                     "names, name one of an authority that mail programs know; docs/security.md")
    except OSError as error:
        yield Advice(f"{server}.tls_port", True, f"{address} port {port} does not answer: {error.strerror or error}",
                     "start the server")
