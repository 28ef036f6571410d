"""A security key in software: it makes credentials and signs challenges as a browser with a real one would (WebAuthn
§6.1, §6.5.4, §7)."""

import hashlib
import json
import os
import struct
from base64 import urlsafe_b64encode
from typing import Any

import cbor2
from attrs import define, field
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, ATTESTED = 0x01, 0x40      # flags: somebody has touched it, and there is a credential


def encoded(octets: bytes) -> str:
    """In base64url, without padding."""
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


@define
class SecurityKey:
    """With one key pair of P-256. `origin`: of the page that asks, as the browser sees it."""

    origin: str
    count: int = 0
    flags: int = PRESENT
    id: bytes = field(factory=lambda: os.urandom(32))
    _pair: ec.EllipticCurvePrivateKey = field(factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def create(self, wanted: dict[str, Any]) -> str:
        """The answer to navigator.credentials.create."""
        numbers = self._pair.public_key().public_numbers()
        public = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")})
        data = self._data(wanted["rp"]["id"], ATTESTED) + bytes(16) + struct.pack(">H", len(self.id)) + self.id + public
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer({"clientDataJSON": encoded(self._client("webauthn.create", wanted["challenge"])),
                             "attestationObject": encoded(attestation)})

    def get(self, wanted: dict[str, Any]) -> str:
        """The answer to navigator.credentials.get."""
        self.count += 1
        client, data = self._client("webauthn.get", wanted["challenge"]), self._data(wanted["rpId"])
        signature = self._pair.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        return self._answer({"clientDataJSON": encoded(client), "authenticatorData": encoded(data),
                             "signature": encoded(signature)})

    def _client(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}).encode()

    def _data(self, rp_id: str, more: int = 0) -> bytes:
        return hashlib.sha256(rp_id.encode()).digest() + struct.pack(">BI", self.flags | more, self.count)

    def _answer(self, response: dict[str, str]) -> str:
        return json.dumps({"id": encoded(self.id), "rawId": encoded(self.id), "type": "public-key",
                           "response": response, "clientExtensionResults": {}})
