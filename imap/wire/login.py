"""LOGIN and AUTHENTICATE: RFC 3501 §6.2.2, §6.2.3; the initial response is RFC 4959."""

import base64
import binascii

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner
from store.values import Secret


@frozen
class Login:
    """login = "LOGIN" SP userid SP password"""

    user: str
    password: Secret


@frozen
class Authenticate:
    """authenticate = "AUTHENTICATE" SP auth-type [SP (base64 / "=")]

    `mechanism` in upper case. `initial` is the decoded initial response, None when none came; `=` is an empty one.
    """

    mechanism: bytes
    initial: Secret | None = None


def parse_login(scan: Scanner) -> Login:
    user = scan.as_utf8(scan.next_astring())
    password = Secret(scan.next_astring())
    scan.end()
    return Login(user, password)


def parse_authenticate(scan: Scanner) -> Authenticate:
    scan.space()
    mechanism = scan.atom().upper()
    if scan.at_end():
        return Authenticate(mechanism)
    scan.space()
    encoded = scan.rest()
    if not encoded:
        raise SyntaxProblem("The initial response is missing")
    return Authenticate(mechanism, Secret(b"") if encoded == b"=" else _decoded(encoded))


def sasl_response(line: bytes) -> Secret | None:
    """What the client answers to a challenge; None when it cancels with "*" (RFC 3501 §6.2.2).

    Raises SyntaxProblem.
    """
    return None if line == b"*" else _decoded(line)


def challenge(octets: bytes) -> bytes:
    """The line that asks the client for more: continue-req with base64 (RFC 3501 §7.5)."""
    return b"+ " + base64.b64encode(octets) + b"\r\n"


def _decoded(encoded: bytes) -> Secret:
    try:
        if len(encoded) % 4 or encoded.endswith(b"==="):        # which Python lets pass
            raise binascii.Error
        return Secret(base64.b64decode(encoded, validate=True))
    except binascii.Error:
        raise SyntaxProblem("That is not base64") from None
