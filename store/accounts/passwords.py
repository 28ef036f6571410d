"""Password hashes: scrypt (RFC 7914), written as scrypt$<log2 N>$<r>$<p>$<salt>$<hash>, both in base64.

The keys of SCRAM may stand behind it, with spaces between them (`scram.Keys`).
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Collection, Iterable

from store.accounts.sasl.scram import Keys, keys_of
from store.values import Secret

_LOG_N, _R, _P = 14, 8, 1           # 16 MiB of memory and some 40 ms
_MEMORY = 64 << 20
DIGEST_OCTETS = 32
_OUTSIDE = "outside$"


def hash_password(password: Secret, keys: Iterable[str] = ()) -> str:
    """A hash with a salt of its own. Takes tens of milliseconds, on purpose. `keys`: the mechanisms of SCRAM whose keys
    stand beside it, from which the password is not as hard to guess."""
    salt = os.urandom(16)
    digest = _scrypt(password.reveal(), salt, _LOG_N, _R, _P)
    hashed = "$".join(["scrypt", str(_LOG_N), str(_R), str(_P), _text(salt), _text(digest)])
    return " ".join([hashed, *(made.to_text() for made in keys_of(password, keys))])


def verify_password(password: Secret, stored: str) -> bool:
    """Whether the password is the one that was hashed; a hash that cannot be read fits no password."""
    try:
        cost, salt, digest = _parsed(stored)
        return hmac.compare_digest(_scrypt(password.reveal(), salt, *cost), digest)
    except ValueError:
        return False


def is_hash(stored: str) -> bool:
    """Whether it is of the form of a hash, which some password fits."""
    try:
        return len(_parsed(stored)[2]) == DIGEST_OCTETS and all(
            Keys.from_text(word) is not None for word in stored.split(" ")[1:])
    except ValueError:
        return False


def _parsed(stored: str) -> tuple[tuple[int, int, int], bytes, bytes]:
    """What a hash costs, its salt, and what comes of the password with these. Raises ValueError."""
    kind, log_n, r, p, salt, digest = stored.partition(" ")[0].split("$")
    if kind != "scrypt" or not 10 <= int(log_n) <= 20 or not 1 <= int(r) <= 16 or not 1 <= int(p) <= 4:
        raise ValueError("not a hash of a password, or one that costs too much")
    return (int(log_n), int(r), int(p)), base64.b64decode(salt), base64.b64decode(digest)


def kept_keys(stored: str) -> tuple[str, ...]:
    """The mechanisms of SCRAM whose keys stand beside a hash."""
    return tuple(word.partition("$")[0] for word in stored.split(" ")[1:])


def without_keys(stored: str, but: Collection[str]) -> str:
    """The hash, with the keys of these mechanisms alone."""
    first, *keys = stored.split(" ")
    return " ".join([first, *(word for word in keys if word.partition("$")[0] in but)])


def scram_keys(mechanism: str, stored: str) -> Keys | None:
    """The keys of SCRAM that a hash has with it."""
    for word in stored.split(" ")[1:]:
        if word.startswith(mechanism + "$"):
            return Keys.from_text(word)
    return None


def credential(stored: str) -> str:
    """What changes with the password, and with nothing else: not with the keys of SCRAM beside it. An outside directory
    has its own (`outside`)."""
    if stored.startswith(_OUTSIDE):
        return stored.removeprefix(_OUTSIDE)
    return hashlib.blake2b(stored.partition(" ")[0].encode(), digest_size=16).hexdigest() if stored else ""


def outside(mark: str) -> str:
    """What is stored of a password that an outside directory keeps: no password fits, and `credential` gives `mark`."""
    return _OUTSIDE + mark if mark else ""


#: What a password is compared with when there is no such user, so that the answer takes as long.
NOBODY = "$".join(["scrypt", str(_LOG_N), str(_R), str(_P), base64.b64encode(bytes(16)).decode(),
                   base64.b64encode(bytes(DIGEST_OCTETS)).decode()])


def _scrypt(password: bytes, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << log_n, r=r, p=p, maxmem=_MEMORY, dklen=DIGEST_OCTETS)


def _text(octets: bytes) -> str:
    return base64.b64encode(octets).decode()
