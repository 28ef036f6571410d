"""Certificates for tests: an authority, and what it signs."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(hours=12)      # a whole run on the slowest machine, and either way
_SIGNS = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)


class Authority:
    """Signs certificates, with what RFC 5280 §4.2.1 asks for (Python 3.13 takes no others); its own is in `file`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.file = folder / f"{name}.pem"
        self._made = 0
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (x509.CertificateBuilder().subject_name(self._name).issuer_name(self._name)
                       .public_key(self._key.public_key()).serial_number(x509.random_serial_number())
                       .not_valid_before(now - VALID).not_valid_after(now + VALID)
                       .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                       .add_extension(_SIGNS, critical=True)
                       .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
                       .sign(self._key, hashes.SHA256()))
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def client(self, name: str, *others: str, expired: bool = False,
               usage: Sequence[x509.ObjectIdentifier] = (ExtendedKeyUsageOID.CLIENT_AUTH,)) -> Path:
        """A file with a client's key and its certificate. `name`: the common name, none if empty; `others`: DNS."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = datetime.now(UTC) + (-VALID if expired else VALID)
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
        builder = (x509.CertificateBuilder().subject_name(x509.Name(subject)).issuer_name(self._name)
                   .public_key(key.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(end - 2 * VALID).not_valid_after(end)
                   .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                   .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                                  critical=False)
                   .add_extension(x509.ExtendedKeyUsage(usage), critical=False))
        if others:
            names = x509.SubjectAlternativeName([_general_name(other) for other in others])
            builder = builder.add_extension(names, critical=not name)
        self._made += 1
        file = self.folder / f"{self.file.stem}-{self._made}.pem"
        file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                              serialization.NoEncryption())
            + builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return file

    def server(self) -> Path:
        """The same for a server on this host; some clients know addresses only as common names."""
        return self.client("127.0.0.1", "localhost", "127.0.0.1", usage=[ExtendedKeyUsageOID.SERVER_AUTH])

    def back_end(self, *names: str, expired: bool = False) -> Path:
        """A certificate for both sides of a connection, with these DNS names, as back ends show it to each other."""
        return self.client("", *names, expired=expired,
                           usage=[ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])

    def trusted(self) -> ssl.SSLContext:
        """A client that takes what this authority has signed for the host that it asked for, and nothing else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.file)
        return context


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def showing(file: Path | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """A client that shows the certificate in this file, and takes the server's as it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    if file is not None:
        context.load_cert_chain(file)
    return context
