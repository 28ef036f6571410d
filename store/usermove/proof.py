"""Two back ends show each other that they know the same secret, before anything else is said.

Both prove it over the certificate that the connection shows (RFC 5929 §4, tls-server-end-point) and over numbers that
each has drawn: whoever stands between the two has another certificate, and what was said on one connection is worth
nothing on another. The one that was called says nothing of its store to a caller that has not proved itself, and the
caller nothing to one that has not.
"""

import hmac
import os

from attrs import field, frozen

from store.usermove.messageformat import VERSION, BadMessage, Ended, Wire, encode, receive

NONCE = 32                  # octets that each side draws
SECRET = 24                 # octets that a secret has, at least: it must not be guessed by trying
_FIELDS = 2000              # octets of a message, before anybody has proved anything


class NotProved(Exception):
    """The other side is not who it should be, or does not speak our language; the text says which."""


@frozen
class Identity:
    """This back end: its name, the secret, and of each side's certificate what the connection shows."""

    host: str
    secret: bytes = field(repr=False)
    binding: bytes


def be_called(wire: Wire, me: Identity, known: frozenset[str]) -> str:
    """The name of the caller, one of those `known`. Raises NotProved, BadMessage, Ended, OSError."""
    mine = os.urandom(NONCE)
    wire.write(encode({"onecopy": "exchange", "version": VERSION, "host": me.host, "nonce": mine.hex()}))
    said = receive(wire.read, _FIELDS, 0)
    if said.number("version") != VERSION:
        raise NotProved(f"the caller speaks version {said.number('version')}, this back end {VERSION}")
    caller, theirs = said.text("host").lower(), _octets(said.text("nonce"))
    proved = _proof(me, b"caller", me.host, caller, mine, theirs)
    if not hmac.compare_digest(proved, _octets(said.text("proof"))):
        raise NotProved("the caller does not know the secret")
    if caller not in known:
        raise NotProved(f"{caller!r} is not among exchange.peers")
    wire.write(encode({"proof": _proof(me, b"called", me.host, caller, mine, theirs).hex()}))
    return caller


def call(wire: Wire, me: Identity, host: str) -> None:
    """Begin, with the back end of that name. Raises NotProved, BadMessage, Ended, OSError."""
    said = receive(wire.read, _FIELDS, 0)
    if said.fields.get("onecopy") != "exchange" or said.number("version") != VERSION:
        raise NotProved(f"{host} does not speak version {VERSION} of this language")
    if said.text("host").lower() != host:
        raise NotProved(f"{said.text('host')!r} answers in the place of {host}")
    mine, theirs = os.urandom(NONCE), _octets(said.text("nonce"))
    wire.write(encode({"version": VERSION, "host": me.host, "nonce": mine.hex(),
                       "proof": _proof(me, b"caller", host, me.host, theirs, mine).hex()}))
    try:
        answer = receive(wire.read, _FIELDS, 0)
    except Ended:
        raise NotProved(f"{host} does not know this back end, or not by that secret: its log says more") from None
    if not hmac.compare_digest(_proof(me, b"called", host, me.host, theirs, mine), _octets(answer.text("proof"))):
        raise NotProved(f"{host} does not know the secret")


def _proof(me: Identity, role: bytes, called: str, caller: str, first: bytes, second: bytes) -> bytes:
    parts = (b"onecopy exchange %d" % VERSION, role, me.binding, called.encode(), caller.encode(), first, second)
    return hmac.digest(me.secret, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")


def _octets(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        raise BadMessage("not hexadecimal digits") from None
    if len(found) != NONCE:
        raise BadMessage(f"not {NONCE} octets")
    return found
