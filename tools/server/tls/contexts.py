"""TLS: the certificate that init makes, and what every connection under TLS begins with: certificates by the names of
hosts, the authorities of clients, keys of session tickets."""

import hashlib
import ipaddress
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from tools.exits import Failure
from tools.server.tls.channelbinding import channel_binding
from tools.server.tls.tickets import TicketKeys
from tools.serversettings import Tls

CERTIFICATE, KEY = "certificate.pem", "key.pem"
LIFETIME = timedelta(days=3650)
WRONG_CLOCKS = timedelta(days=2)        # machines whose clocks are so wrong understand each other all the same


def make_certificate(folder: Path, hostname: str = "") -> None:
    """Make a self-signed certificate for this host in `folder`, and its key that only the owner may read."""
    hostname = hostname or socket.gethostname() or "localhost"
    names: list[x509.GeneralName] = [x509.DNSName(each) for each in dict.fromkeys((hostname, "localhost"))]
    names += [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    _make_certificate(folder, hostname, names, authority=True)


def make_back_end_certificate(folder: Path, host: str) -> None:
    """Likewise one for other back ends, which trust it as it is: it has one name, and signs no other certificate."""
    try:
        name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        name = x509.DNSName(host)
    _make_certificate(folder, host, [name], authority=False)


def _make_certificate(folder: Path, hostname: str, names: list[x509.GeneralName], *, authority: bool) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hostname[:64])])
    now = datetime.now(UTC)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (x509.CertificateBuilder()
                   .subject_name(name).issuer_name(name).public_key(key.public_key())
                   .serial_number(x509.random_serial_number())
                   .not_valid_before(now - WRONG_CLOCKS).not_valid_after(now + LIFETIME)
                   .add_extension(x509.SubjectAlternativeName(names), critical=False)
                   .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None),
                                  critical=True)
                   .add_extension(usage, critical=False)
                   .sign(key, hashes.SHA256()))
    privatefiles.make_folder(folder, parents=True, exist_ok=True)
    replace_file(folder / KEY, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                 serialization.NoEncryption()))
    # the certificate comes last: it is there only with its key
    replace_file(folder / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))


@frozen(eq=False)
class _Generation:
    """What was in the files when they were read: contexts by host name, and the one for all other names."""

    default: SSL.Context
    hosts: Mapping[str, SSL.Context]

    def switch(self, connection: SSL.Connection) -> None:
        """OpenSSL has read which host the client wants (RFC 6066 §3): show that one's certificate."""
        name = (connection.get_servername() or b"").decode("ascii", "replace").lower().rstrip(".")
        context = self.hosts.get(name) or self.hosts.get("*." + name.partition(".")[2])
        if context is not None:
            connection.set_context(context)


@implementer(IOpenSSLServerConnectionCreator)
class Certificates:
    """What a connection of one server needs to begin TLS; `reload` reads the files again, for those that follow.

    With `client_ca` a client may show a certificate of one of these authorities; a handshake with another one fails.
    """

    def __init__(self, settings: Tls, folder: Path, server: str, client_ca: Path | None, tickets: TicketKeys) -> None:
        self._settings = settings
        self._folder = folder
        self._server = server
        self._client_ca = client_ca
        self._tickets = tickets
        self._verify = SSL.VERIFY_NONE if client_ca is None else SSL.VERIFY_PEER
        self._generation = self._read()

    @classmethod
    def from_settings(cls, settings: Tls, folder: Path, client_ca: Path | None = None, *, server: str = "lmtp",
                      tickets: TicketKeys | None = None) -> "Certificates":
        """The configured certificates, or the one in `folder`, which is made if there is none. Raises Failure."""
        if settings.certificate is None:
            if settings.key is not None:
                raise Failure("[tls] key is given without certificate")
            if not (folder / CERTIFICATE).exists():
                try:
                    make_certificate(folder)
                except OSError as error:
                    raise Failure(f"cannot make a certificate in {folder}: {error.strerror}") from None
        return cls(settings, folder, server, client_ca, tickets or TicketKeys.alone(settings))

    def reload(self) -> None:
        """Read the files again. Raises Failure; the old ones stay in use then. May be called in a thread."""
        self._generation = self._read()

    def follow(self, settings: Tls) -> None:
        """Go by other settings. Raises Failure; the old ones hold then. May be called in a thread."""
        before, self._settings = self._settings, settings
        try:
            self._generation = self._read()
        except Failure:
            self._settings = before
            raise

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """The TLS side of one connection."""
        connection = SSL.Connection(self._tickets.current(), None)
        connection.set_context(self._generation.default)
        connection.set_verify(self._verify, None)
        return connection

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

    def channel_binding(self, connection: object, kind: str) -> bytes | None:
        """See `channelbinding`."""
        return channel_binding(connection, kind)

    def _read(self) -> _Generation:
        settings, folder = self._settings, self._folder
        certificate = settings.certificate or folder / CERTIFICATE
        key = (settings.key or certificate) if settings.certificate else folder / KEY
        default = self._context(certificate, key)
        hosts: dict[str, SSL.Context] = {}
        for certificate, key in _pairs(settings.certificates):
            context = self._context(certificate, key)
            for name in _host_names(certificate):
                hosts.setdefault(name, context)
        made = _Generation(default, hosts)
        if hosts:
            default.set_tlsext_servername_callback(made.switch)
        return made

    def _context(self, certificate: Path, key: Path) -> SSL.Context:
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        for path in (certificate, key):
            try:
                privatefiles.open_named(path).close()
            except OSError as error:
                raise Failure(f"[tls] {path}: {error.strerror}") from None
        try:
            context.use_certificate_chain_file(str(certificate))
            context.use_privatekey_file(str(key))
            context.check_privatekey()
        except SSL.Error as error:
            raise Failure(f"[tls] {certificate}, {key}: {_reasons(error)}") from None
        context.set_cipher_list(self._settings.ciphers.encode())
        if self._client_ca is not None:
            _take_authorities(context, self._client_ca, self._server)
        return context


def _pairs(folder: Path | None) -> Iterator[tuple[Path, Path]]:
    """Certificates and their keys, in order of their names. Raises Failure.

    NAME.pem or NAME.crt, with the key in it or in NAME.key; or a folder with fullchain.pem and privkey.pem.
    """
    if folder is None:
        return
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise Failure(f"[tls] certificates: {folder}: {error.strerror}") from None
    for path in found:
        if path.suffix in (".pem", ".crt") and not path.is_dir():
            key = path.with_suffix(".key")
            yield path, key if key.exists() else path
        elif (path / "fullchain.pem").exists():
            yield path / "fullchain.pem", path / "privkey.pem"


def ends(settings: Tls, folder: Path) -> Iterator[tuple[Path, datetime]]:
    """Each certificate that is shown to clients, and when it ends. Raises Failure."""
    for path in (settings.certificate or folder / CERTIFICATE, *(path for path, _ in _pairs(settings.certificates))):
        for certificate in x509.load_pem_x509_certificates(privatefiles.read_named(path)):
            yield path, certificate.not_valid_after_utc


def _host_names(file: Path) -> tuple[str, ...]:
    """Of the first certificate in the file: its DNS names, or, of an old one that has none, the common name."""
    certificate = x509.load_pem_x509_certificates(privatefiles.read_named(file))[0]
    common, names = _parted(certificate)
    return names or common


def _take_authorities(context: SSL.Context, authorities: Path, server: str) -> None:
    """Raises Failure."""
    try:
        octets = privatefiles.read_named(authorities)
        context.load_verify_locations(str(authorities))
        context.load_client_ca(str(authorities).encode())       # tells clients that have several which one to show
    except OSError as error:
        raise Failure(f"[{server}] client_ca: {authorities}: {error.strerror}") from None
    except SSL.Error as error:
        raise Failure(f"[{server}] client_ca: {authorities}: {_reasons(error)}") from None
    # Without it OpenSSL takes up no session of a client that showed a certificate. A session is one of this server and
    # of these authorities: one that is gone admits nobody any more.
    context.set_session_id(hashlib.sha256(server.encode() + b"\0" + octets).digest())


def _reasons(error: SSL.Error) -> str:
    return ", ".join(reason[-1] for reason in error.args[0] if reason) if error.args else "not readable"


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    common, names = _parted(certificate)
    return common + names


def _parted(certificate: x509.Certificate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Common names and DNS names, in lower case (RFC 5280 §4.1.2.6, §4.2.1.6)."""
    common: list[str] = []
    names: list[str] = []
    try:
        common = [str(each.value).lower() for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = [name.lower() for name in alternatives.value.get_values_for_type(x509.DNSName)]
    except x509.ExtensionNotFound:
        pass
    except ValueError:                          # OpenSSL takes it and `cryptography` does not
        return (), ()
    return tuple(common), tuple(names)
