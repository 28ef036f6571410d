"""SCRAM: a password is proved without being sent (RFC 5802, RFC 7677). Keys, and what the messages say. Pure.

The keys of a user are `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>` (RFC 5803 §3), in base64.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable

from attrs import field, frozen

from store.accounts.sasl.saslprep import saslprep
from store.values import Secret

#: Ours for all users: a number that differs would tell who there is. The client pays for them, each time it logs in.
ITERATIONS = 10_000
SALT = 16                       # octets

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}
PLUS = "-PLUS"

_KEYS = re.compile(r"(SCRAM-SHA-(?:1|256))\$([0-9]{4,7}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")
_NAME = re.compile(r"(?:[^=,\0]|=2C|=3D)+")                                 # saslname (RFC 5802 §7)
_FIRST = re.compile(r"(?:(y|n)|p=([A-Za-z0-9.-]+)),(?:a=([^,]*))?,(.*)", re.DOTALL)
_BARE = re.compile(r"n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]=[^,\0]+)*)")
_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]=[^,\0]+)*)),p=([A-Za-z0-9+/=]+)")


@frozen
class Keys:
    """What the server knows of a user for one hash function (RFC 5802 §3)."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def from_password(cls, mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> "Keys":
        """The keys of a prepared password. Takes milliseconds, on purpose."""
        digest = HASHES[mechanism]
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        return cls(mechanism, iterations, salt, hashlib.new(digest, client_key).digest(),
                   hmac.digest(salted, b"Server Key", digest))

    @classmethod
    def of_nobody(cls, mechanism: str, user: str, secret: bytes) -> "Keys":
        """For a user that there is not: a salt that is always the same for that name, and keys that nothing fits."""
        digest = HASHES[mechanism]
        salt = hmac.digest(secret, f"{mechanism} {user}".encode(), "sha256")[:SALT]
        return cls(mechanism, ITERATIONS, salt, os.urandom(hashlib.new(digest).digest_size),
                   os.urandom(hashlib.new(digest).digest_size))

    @classmethod
    def from_text(cls, text: str) -> "Keys | None":
        """The stored form; None for what is none."""
        found = _KEYS.fullmatch(text)
        if found is None:
            return None
        try:
            salt, stored, server = (base64.b64decode(part, validate=True) for part in found.groups()[2:])
        except binascii.Error:
            return None
        size = hashlib.new(HASHES[found[1]]).digest_size
        if len(stored) != size or len(server) != size:
            return None
        return cls(found[1], int(found[2]), salt, stored, server)

    def to_text(self) -> str:
        """As it is stored, beside the hash of the password."""
        return (f"{self.mechanism}${self.iterations}:{encoded(self.salt)}"
                f"${encoded(self.stored_key)}:{encoded(self.server_key)}")


def keys_of(password: Secret, mechanisms: Iterable[str]) -> list[Keys]:
    """A user's keys for these mechanisms; none for a password that SASLprep does not take."""
    try:
        prepared = saslprep(password.reveal().decode(), stored=True)
    except ValueError:
        return []
    return [Keys.from_password(each, prepared, os.urandom(SALT)) for each in mechanisms] if prepared else []


@frozen
class ClientFirst:
    """client-first-message: who, and whether it wants, has (`y`) or has not (`n`) channel binding."""

    header: bytes               # gs2-header, which comes back in the last message
    binding: str                # name of the channel binding, "" without one
    believes_none: bool         # the client could bind, and believes that the server cannot
    acts_as: str
    user: str
    nonce: str
    bare: bytes


@frozen
class ClientFinal:
    """client-final-message"""

    channel: bytes              # gs2-header and the data of the channel binding
    nonce: str
    proof: bytes
    without_proof: bytes


def client_first(message: bytes) -> ClientFirst:
    """Raises ValueError, whose text may be shown."""
    found = _FIRST.fullmatch(_text(message))
    bare = _BARE.fullmatch(found[4]) if found else None
    if found is None or bare is None:           # also with m=, an extension that one must know
        raise ValueError("That is not the first message of SCRAM")
    flag, binding, acts_as, rest = found.groups()
    return ClientFirst(message[:len(message) - len(rest.encode())], binding or "", flag == "y",
                       _name(acts_as) if acts_as is not None else "", saslprep(_name(bare[1])), bare[2], rest.encode())


def client_final(message: bytes) -> ClientFinal:
    """Raises ValueError, whose text may be shown."""
    found = _FINAL.fullmatch(_text(message))
    if found is None:
        raise ValueError("That is not the last message of SCRAM")
    return ClientFinal(_decoded(found[2]), found[3], _decoded(found[5]), found[1].encode())


def server_first(keys: Keys, nonce: str) -> bytes:
    """server-first-message"""
    return f"r={nonce},s={encoded(keys.salt)},i={keys.iterations}".encode()


def server_final(keys: Keys, first: ClientFirst, said: bytes, final: ClientFinal) -> bytes | None:
    """server-final-message; None when the proof does not fit. `said`: our first message."""
    digest = HASHES[keys.mechanism]
    message = b",".join((first.bare, said, final.without_proof))
    signature = hmac.digest(keys.stored_key, message, digest)
    # The lengths differ only when the client sent none that fits: zip is then too short, and so is what is compared.
    client_key = bytes(a ^ b for a, b in zip(final.proof, signature, strict=False))
    fits = hmac.compare_digest(hashlib.new(digest, client_key).digest(), keys.stored_key)
    verifier = hmac.digest(keys.server_key, message, digest)
    return b"v=" + encoded(verifier).encode() if fits and len(final.proof) == len(signature) else None


def encoded(octets: bytes) -> str:
    """In base64."""
    return base64.b64encode(octets).decode()


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ValueError("The messages of SCRAM are UTF-8") from None


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("That is not a name as SCRAM writes it")
    return text.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        if len(text) % 4:
            raise binascii.Error
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("That is not base64") from None
