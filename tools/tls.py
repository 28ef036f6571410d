"""TLS: the certificate that init makes, and the context of every connection under TLS (1.2 or later)."""

import ipaddress
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from tools.errors import Failure
from tools.settings import Tls

CERTIFICATE, KEY = "certificate.pem", "key.pem"
LIFETIME = timedelta(days=3650)


def make_certificate(folder: Path, hostname: str = "") -> None:
    """Make a self-signed certificate for this host in `folder`, and its key that only the owner may read."""
    hostname = hostname or socket.gethostname() or "localhost"
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hostname[:64])])
    names: list[x509.GeneralName] = [x509.DNSName(each) for each in dict.fromkeys((hostname, "localhost"))]
    names += [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    now = datetime.now(UTC)
    certificate = (x509.CertificateBuilder()
                   .subject_name(name).issuer_name(name).public_key(key.public_key())
                   .serial_number(x509.random_serial_number())
                   .not_valid_before(now - timedelta(hours=1)).not_valid_after(now + LIFETIME)
                   .add_extension(x509.SubjectAlternativeName(names), critical=False)
                   .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                   .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
                   .sign(key, hashes.SHA256()))
    folder.mkdir(mode=0o700, exist_ok=True)
    _write(folder / KEY, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))
    _write(folder / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))


def _write(path: Path, data: bytes) -> None:
    """Under its name only when whole, so that the certificate, written last, is there only with its key."""
    new = path.with_suffix(".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)


@implementer(IOpenSSLServerConnectionCreator)
class Certificates:
    """What a connection needs to begin TLS; `reload` reads the files again, for the connections that follow.

    With `client_ca` a client may show a certificate of one of these authorities; a handshake with another one fails.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._context = self._read()

    @classmethod
    def from_settings(cls, settings: Tls, folder: Path, client_ca: Path | None = None) -> "Certificates":
        """The configured certificate, or the one in `folder`, which is made if there is none. Raises Failure."""
        if settings.certificate is not None:
            return cls(settings.certificate, settings.key or settings.certificate, client_ca)
        if settings.key is not None:
            raise Failure("[tls] key is given without certificate")
        if not (folder / CERTIFICATE).exists():
            try:
                make_certificate(folder)
            except OSError as error:
                raise Failure(f"cannot make a certificate in {folder}: {error.strerror}") from None
        return cls(folder / CERTIFICATE, folder / KEY, client_ca)

    def reload(self) -> None:
        """Read the files again. Raises Failure; the old ones stay in use then."""
        self._context = self._read()

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """The TLS side of one connection."""
        return SSL.Connection(self._context, None)

    def certificate_names(self, connection: object) -> tuple[str, ...]:
        """The common names and DNS names of the certificate that the client has shown, in lower case; () without one.

        It has been verified: a handshake with another one does not end well. But a client may take up a session, and
        that one another session, long after its certificate has expired.
        """
        shown = cast(SSL.Connection, connection).get_peer_certificate()
        certificate = None if shown is None else shown.to_cryptography()
        if certificate is None or certificate.not_valid_after_utc < datetime.now(UTC):
            return ()
        return _names(certificate)

    def _read(self) -> SSL.Context:
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_mode(SSL.MODE_RELEASE_BUFFERS)          # memory of a connection that idles
        for path in (self._certificate, self._key):
            try:
                path.open("rb").close()
            except OSError as error:
                raise Failure(f"[tls] {path}: {error.strerror}") from None
        try:
            context.use_certificate_chain_file(str(self._certificate))
            context.use_privatekey_file(str(self._key))
            context.check_privatekey()
        except SSL.Error as error:
            raise Failure(f"[tls] {self._certificate}, {self._key}: {_reasons(error)}") from None
        if self._client_ca is not None:
            _ask_for_certificates(context, self._client_ca)
        return context


def _ask_for_certificates(context: SSL.Context, authorities: Path) -> None:
    """Raises Failure."""
    try:
        authorities.open("rb").close()
        context.load_verify_locations(str(authorities))
        context.load_client_ca(str(authorities).encode())       # tells clients that have several which one to show
    except OSError as error:
        raise Failure(f"[lmtp] client_ca: {authorities}: {error.strerror}") from None
    except SSL.Error as error:
        raise Failure(f"[lmtp] client_ca: {authorities}: {_reasons(error)}") from None
    context.set_verify(SSL.VERIFY_PEER)
    context.set_session_id(b"relays")           # or OpenSSL takes up no session of a client that showed a certificate


def _reasons(error: SSL.Error) -> str:
    return ", ".join(reason[-1] for reason in error.args[0] if reason) if error.args else "not readable"


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    """RFC 5280 §4.1.2.6, §4.2.1.6"""
    try:
        names = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names += alternatives.value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        pass
    except ValueError:                          # OpenSSL takes it and `cryptography` does not
        return ()
    return tuple(name.lower() for name in names)
