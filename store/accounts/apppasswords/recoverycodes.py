"""Recovery codes: each opens the console once in the place of a second factor that is lost."""

import hashlib
import hmac
import secrets

from attrs import evolve

from store.accounts.apppasswords.accessrecord import Access
from store.accounts.apppasswords.apppassword import ALPHABET, GROUP

CODES = 10
SYMBOLS = 16                # of 5 random bits each: 80
_READ = str.maketrans("ilo", "110", " -\t")


def renewed(access: Access) -> tuple[Access, list[str]]:
    """With new ones, of which the digests are kept; the older ones hold no more."""
    codes = ["".join(secrets.choice(ALPHABET) for _ in range(SYMBOLS)) for _ in range(CODES)]
    shown = ["-".join(code[at:at + GROUP] for at in range(0, SYMBOLS, GROUP)) for code in codes]
    return evolve(access, recovery=tuple(map(_digest, codes))), shown


def taken(access: Access, code: str) -> Access | None:
    """Without the code that was shown; None for one that is wrong."""
    digest = _digest(code.lower().translate(_READ)[:4 * SYMBOLS])
    left = tuple(each for each in access.recovery if not hmac.compare_digest(each, digest))
    return evolve(access, recovery=left) if len(left) < len(access.recovery) else None


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
