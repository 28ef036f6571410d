"""Mutual TLS between back ends: each shows a certificate that carries its own name (`store.host`) as a DNS name, and
takes from others what an authority of a file has signed, or a certificate that is in that file itself. Where the name
is an address, the certificate carries that.

The standard library's `ssl` is used here: threads read and write these connections, with time limits. The files are
read for each connection, so a renewed certificate is shown at once.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from mboxlist import privatefiles
from tools.exits import Failure
from tools.server.tls.contexts import CERTIFICATE, KEY, make_back_end_certificate
from tools.serversettings import Exchange, tls_folder

FOLDER = "exchange"                 # in the folder of certificates: the one that is made for other back ends
SOON_DAYS = 21                      # before the end of a certificate
DAY_SECONDS = 86400
_PURPOSES = {ExtendedKeyUsageOID.SERVER_AUTH: "a server", ExtendedKeyUsageOID.CLIENT_AUTH: "a client"}


@frozen
class BackEndTls:
    """What this back end shows to others, and what it takes from them."""

    host: str
    certificate: Path
    key: Path
    authorities: Path | None            # None: only its own certificate is wanted

    @classmethod
    def of(cls, settings: Exchange, root: Path, host: str) -> "BackEndTls":
        """As configured; the files need not exist. `host` is its name unless it has another one. Raises Failure."""
        host = settings.host or host
        if not host:
            raise Failure("store.host is not set: other back ends must know this one by a name")
        if settings.certificate is None:
            if settings.key is not None:
                raise Failure("exchange.key is given without exchange.certificate")
            folder = tls_folder(root) / FOLDER
            return cls(host.lower(), folder / CERTIFICATE, folder / KEY, settings.authorities)
        return cls(host.lower(), settings.certificate, settings.key or settings.certificate, settings.authorities)

    def make_certificate(self, root: Path) -> None:
        """Make the certificate if none is configured and there is none. Raises Failure."""
        if self.certificate != tls_folder(root) / FOLDER / CERTIFICATE or self.certificate.exists():
            return
        folder = self.certificate.parent
        try:
            make_back_end_certificate(folder, self.host)
        except OSError as error:
            raise Failure(f"cannot make a certificate in {folder}: {error.strerror}") from None

    def shown(self) -> x509.Certificate:
        """The certificate that other back ends are shown. Raises Failure."""
        return _certificates("exchange.certificate", self.certificate)[0]

    def text(self) -> str:
        """That certificate in PEM, below a line that says whose it is. Raises Failure."""
        shown = self.shown()
        octets = shown.public_bytes(serialization.Encoding.PEM)
        return f"# {self.host}, until {shown.not_valid_after_utc:%Y-%m-%d}\n{octets.decode()}"

    def called(self, plain: socket.socket) -> ssl.SSLSocket:
        """TLS for a caller, before the handshake. Raises OSError, Failure."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0                 # every connection shows its certificate
        return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

    def calling(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """TLS with the back end of that name, whose certificate is verified. Raises OSError, Failure."""
        connection = self._context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(plain, server_hostname=host)
        if host not in names_of(connection):    # OpenSSL has taken a name with a wildcard
            connection.close()
            raise ssl.SSLCertVerificationError(f"the certificate does not name {host}")
        return connection

    def verify_files(self) -> None:
        """Raises Failure when the files cannot be used."""
        self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN       # a certificate in the file is trusted as it is
        assert self.authorities is not None
        option, path = "certificate", self.certificate
        try:
            context.load_cert_chain(self.certificate, self.key, password="")
            option, path = "authorities", self.authorities
            context.load_verify_locations(self.authorities)
        except ssl.SSLError as error:
            raise Failure(f"exchange.{option}: {path}: {reason(error)}") from None
        except OSError as error:
            raise Failure(f"exchange.{option}: {path}: {error.strerror}") from None
        return context

    def findings(self) -> Iterator[tuple[str, bool, str]]:
        """What other back ends would refuse, or soon will: option, whether it is serious, text. Raises Failure."""
        shown = self.shown()
        if self.host not in _names(shown):
            yield "exchange.certificate", True, (f"{self.certificate}: the certificate does not have {self.host} among "
                                                 "its DNS names; one that onecopy has made is made again when it is "
                                                 "removed")
        for purpose in _missing_purposes(shown):
            yield "exchange.certificate", True, f"{self.certificate}: the certificate is not one for {purpose}"
        yield from _ending("exchange.certificate", True, self.certificate, [shown])
        if self.authorities is not None:
            self.verify_files()
            yield from _ending("exchange.authorities", False, self.authorities,
                               _certificates("exchange.authorities", self.authorities))


def names_of(connection: ssl.SSLSocket) -> frozenset[str]:
    """The names in the verified certificate of the other side."""
    octets = connection.getpeercert(binary_form=True)
    return _names(x509.load_der_x509_certificate(octets)) if octets else frozenset()


def reason(error: ssl.SSLError) -> str:
    """Why a handshake failed, in words for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(getattr(error, "verify_message", "") or error.args[-1]).rstrip(".")
    return (error.reason or str(error)).lower().replace("_", " ")


def _names(certificate: x509.Certificate) -> frozenset[str]:
    """DNS names in lower case, and addresses (RFC 5280 §4.2.1.6)."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset((*(name.lower() for name in names.get_values_for_type(x509.DNSName)),
                      *map(str, names.get_values_for_type(x509.IPAddress))))


def _certificates(option: str, path: Path) -> list[x509.Certificate]:
    """Raises Failure."""
    try:
        return x509.load_pem_x509_certificates(privatefiles.read_named(path))
    except OSError as error:
        raise Failure(f"{option}: {path}: {error.strerror}") from None
    except ValueError:
        raise Failure(f"{option}: {path}: there is no certificate that can be read") from None


def _missing_purposes(certificate: x509.Certificate) -> Iterator[str]:
    """RFC 5280 §4.2.1.12: a certificate without the extension is for every purpose."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return
    yield from (words for purpose, words in _PURPOSES.items() if purpose not in usage)


def _ending(option: str, serious: bool, path: Path, certificates: list[x509.Certificate]
            ) -> Iterator[tuple[str, bool, str]]:
    for certificate in certificates:
        end = certificate.not_valid_after_utc
        left = end.timestamp() - time.time()
        if left < SOON_DAYS * DAY_SECONDS:
            words = "has ended" if end < datetime.now(UTC) else f"ends in {int(left / DAY_SECONDS)} days"
            yield option, serious and left < 0, (f"{path}: the certificate of {certificate.subject.rfc4514_string()} "
                                                 f"{words}, {end:%Y-%m-%d %H:%M} UTC")
