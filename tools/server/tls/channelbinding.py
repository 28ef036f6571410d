"""What names a TLS connection, so that a login can be bound to it (RFC 5056, RFC 5929, RFC 9266)."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from OpenSSL import SSL

LABEL, LENGTH = b"EXPORTER-Channel-Binding", 32             # RFC 9266 §2


def channel_binding(connection: object, kind: str) -> bytes | None:
    """The data of a channel binding, by its registered name; None without one. The handshake is over."""
    make = _KINDS.get(kind)
    return make(cast(SSL.Connection, connection)) if make is not None else None


def _unique(connection: SSL.Connection) -> bytes | None:
    """RFC 5929 §3: the first Finished message, which the client sends, and the server when a session is taken up. Not
    in TLS 1.3 (RFC 8446 appendix C.5)."""
    if connection.get_protocol_version() > SSL.TLS1_2_VERSION:
        return None
    return (connection.get_finished() if _taken_up(connection) else connection.get_peer_finished()) or None


def _taken_up(connection: SSL.Connection) -> bool:
    raw: Any = SSL
    return bool(raw._lib.SSL_session_reused(connection._ssl))


def _exporter(connection: SSL.Connection) -> bytes | None:
    """RFC 9266 §3: with TLS 1.2 it is for connections that have an extended master secret, of which we cannot ask."""
    if connection.get_protocol_version() <= SSL.TLS1_2_VERSION:
        return None
    return connection.export_keying_material(LABEL, LENGTH, b"")


def _end_point(connection: SSL.Connection) -> bytes | None:
    """RFC 5929 §4: the digest of our certificate, by the hash function of its signature, if that is good enough."""
    own = connection.get_certificate()
    if own is None:
        return None
    certificate: x509.Certificate = own.to_cryptography()
    algorithm = certificate.signature_hash_algorithm
    if algorithm is None:                   # as with Ed25519: RFC 5929 says nothing of these
        return None
    weak = isinstance(algorithm, hashes.MD5 | hashes.SHA1)
    return certificate.fingerprint(hashes.SHA256() if weak else algorithm)


_KINDS: Mapping[str, Callable[[SSL.Connection], bytes | None]] = {
    "tls-unique": _unique, "tls-exporter": _exporter, "tls-server-end-point": _end_point}
