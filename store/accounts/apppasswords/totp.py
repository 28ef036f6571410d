"""Codes of an authenticator app (TOTP, RFC 6238): six digits from a secret and the time, by pyotp."""

import hmac
import re

import pyotp
from attrs import evolve

from store.accounts.apppasswords.accessrecord import Access, Totp

STEP = 30                   # seconds, that of all apps
WINDOW = 1                  # steps by which the clocks may differ (§5.2)
_SECRET = re.compile(r"[A-Z2-7]{32}")
_CODE = re.compile(r"[0-9]{6}")


def new_secret() -> str:
    """160 random bits in base 32, as RFC 4226 §4 wants."""
    return pyotp.random_base32(32)


def is_secret(text: str) -> bool:
    """Whether it has the form of one of ours."""
    return _SECRET.fullmatch(text) is not None


def address_of(secret: str, user: str, issuer: str) -> str:
    """The otpauth: address that an app reads."""
    return pyotp.TOTP(secret).provisioning_uri(name=user, issuer_name=issuer)


def step_of(secret: str, code: str, now: float, last: int = 0) -> int | None:
    """The time step of which that is the code, if it comes after `last`: each code is taken once (RFC 6238 §5.2)."""
    text, found = "".join(code.split()), None
    if not _CODE.fullmatch(text):
        return None
    totp, current = pyotp.TOTP(secret), int(now) // STEP
    for step in range(max(0, current - WINDOW), current + WINDOW + 1):
        if hmac.compare_digest(totp.generate_otp(step), text) and step > last:
            found = step
    return found


def enrolled(access: Access, secret: str, code: str, now: float) -> Access | None:
    """With that secret, if the user has shown a code of it; the codes of another one hold no more."""
    step = step_of(secret, code, now)
    return None if step is None else evolve(access, totp=Totp(secret, int(now), step))


def taken(access: Access, code: str, now: float) -> Access | None:
    """After a code of the user's; None for one that is wrong, or was taken before."""
    if access.totp is None:
        return None
    step = step_of(access.totp.secret, code, now, access.totp.last)
    return None if step is None else evolve(access, totp=evolve(access.totp, last=step))
