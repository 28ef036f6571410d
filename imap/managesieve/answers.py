"""What ManageSieve answers (RFC 5804 §1.2, §1.3, §1.7)."""

import base64

from store.errors import Problem, StoreError
from store.filtering.userscripts import Refusal, ScriptRefused

QUOTED = 1024                   # octets of a quoted string (RFC 5804 §4)
_TRY_LATER = frozenset((Problem.BUSY, Problem.LIMIT, Problem.DISK_FULL, Problem.READ_ONLY, Problem.UNAVAILABLE,
                        Problem.STORE_IN_USE, Problem.NO_STORE, Problem.ELSEWHERE))
_CODES = {Refusal.NONEXISTENT: "NONEXISTENT", Refusal.ALREADYEXISTS: "ALREADYEXISTS", Refusal.ACTIVE: "ACTIVE",
          Refusal.QUOTA_MAXSCRIPTS: "QUOTA/MAXSCRIPTS", Refusal.QUOTA_MAXSIZE: "QUOTA/MAXSIZE", Refusal.BAD_NAME: ""}


def string(value: str | bytes) -> bytes:
    """As a quoted string, or a literal where it must be one."""
    octets = value.encode("utf-8", "replace") if isinstance(value, str) else value
    if len(octets) <= QUOTED and not any(octet in octets for octet in (b"\r", b"\n", b"\0")):
        return b'"' + octets.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    return b"{%d}\r\n" % len(octets) + octets


def answer(word: bytes, text: str = "", code: str = "", argument: bytes = b"") -> bytes:
    """OK, NO or BYE, with a response code and a text where there are any."""
    out = word
    if code:
        out += b" (" + code.encode("ascii") + (b" " + argument if argument else b"") + b")"
    return out + (b" " + string(text) if text else b"") + b"\r\n"


def ok(text: str = "", code: str = "", argument: bytes = b"") -> bytes:
    """It is done."""
    return answer(b"OK", text, code, argument)


def no(text: str, code: str = "") -> bytes:
    """It is not done."""
    return answer(b"NO", text, code)


def bye(text: str, code: str = "") -> bytes:
    """And the connection ends."""
    return answer(b"BYE", text, code)


def refusal(error: StoreError) -> bytes:
    """The store refuses. An unknown user is not told from a wrong password."""
    if error.problem in (Problem.NO_USER, Problem.BAD_LOGIN):
        return no(Problem.BAD_LOGIN.value)
    return no(error.public, "TRYLATER" if error.problem in _TRY_LATER else "")


def script_refused(refused: ScriptRefused) -> bytes:
    """A change of scripts is not made."""
    return no(str(refused).capitalize(), _CODES[refused.refusal])


def challenge(octets: bytes) -> bytes:
    """What a SASL mechanism says (RFC 5804 §2.1)."""
    return string(base64.b64encode(octets)) + b"\r\n"
