"""App passwords: made by us, for one mail program each."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection

from attrs import asdict, frozen

from store.errors import Problem, StoreError
from store.values import Secret

SERVICES = ("imap", "pop", "smtp")      # what one may be for, as access rules name them
#: Crockford's base 32: no letter looks like a digit, and what looks like one is read as it.
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SYMBOLS = 28                # of 5 random bits each: 140
GROUP = 4                   # symbols between two hyphens
LONGEST_NAME = 100          # characters
LONGEST_DAYS = 36500        # that one holds, unless it holds for ever
_LONGEST = 2 * SYMBOLS      # octets, with whatever stands between the symbols
_BETWEEN = b" -\t"
_READ = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZilo", b"abcdefgh1jk1mn0pqrstuvwxyz110")
_FORM = re.compile(rb"[%s]{%d}" % (ALPHABET.encode(), SYMBOLS))


@frozen
class AppPassword:
    """One of a user. `services`: those of SERVICES for which it is; `until`: a Unix time, None: for ever; `used`: when
    it was last used, to some minutes, 0: never.

    The digest is SHA-256 without a salt and without rounds: nobody can try all of 2^140, equal ones do not occur, and
    a slow hash would only make each login slow.
    """

    id: str
    name: str
    services: tuple[str, ...]
    read_only: bool
    created: int
    until: int | None
    digest: str
    used: int = 0

    def holds(self, now: float) -> bool:
        """Whether it has not ended."""
        return self.until is None or now < self.until

    def fits(self, digest: str) -> bool:
        """Whether it is the one with that digest."""
        return hmac.compare_digest(self.digest, digest)

    def shown(self) -> dict[str, object]:
        """For a list: all but the digest."""
        return {name: value for name, value in asdict(self).items() if name != "digest"}


def make(name: str, services: Collection[str], *, read_only: bool, now: float, until: float | None = None
         ) -> tuple[AppPassword, str]:
    """A new one, and the password itself, which nobody knows afterwards. Raises StoreError BAD_NAME."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise StoreError(Problem.BAD_NAME, f"The name of an app password has 1 to {LONGEST_NAME} printable characters")
    if until is not None and until > now + LONGEST_DAYS * 86400:
        raise StoreError(Problem.BAD_NAME, f"An app password holds for up to {LONGEST_DAYS} days, or for ever")
    chosen = tuple(service for service in SERVICES if service in services)
    if not chosen or len(chosen) != len(set(services)):
        raise StoreError(Problem.BAD_NAME, f"An app password is for some of {', '.join(SERVICES)}")
    symbols = "".join(secrets.choice(ALPHABET) for _ in range(SYMBOLS))
    made = AppPassword(secrets.token_hex(4), name.strip(), chosen, read_only, int(now),
                       None if until is None else int(until), _digest(symbols.encode()))
    return made, "-".join(symbols[at:at + GROUP] for at in range(0, SYMBOLS, GROUP))


def digest_of(password: Secret) -> str | None:
    """The digest of what may be an app password, with or without hyphens and spaces, in capitals or not; None for what
    has not the form of one."""
    octets = password.reveal()
    if not SYMBOLS <= len(octets) <= _LONGEST:
        return None
    symbols = octets.translate(_READ, _BETWEEN)
    return _digest(symbols) if _FORM.fullmatch(symbols) else None


def _digest(symbols: bytes) -> str:
    return hashlib.sha256(symbols).hexdigest()
