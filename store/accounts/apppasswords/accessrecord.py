"""What is kept of a user beside the directory's password: one record, one file."""

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from attrs import asdict, evolve, frozen

from store.accounts.apppasswords.apppassword import AppPassword
from store.errors import Problem, StoreError

MOST_PASSWORDS = 100        # of a user,
MOST_KEYS = 20              # and security keys


@frozen
class Totp:
    """The secret from which an authenticator makes its codes (RFC 6238), in base 32. `last`: the time step of the last
    code that was taken; `created`: Unix time. It is kept as it is: whoever can read the file is the owner of the store,
    who can read any key to it as well."""

    secret: str
    created: int
    last: int = 0

    def __repr__(self) -> str:
        return f"Totp(created={self.created})"


@frozen
class SecurityKey:
    """A passkey or security key (WebAuthn): its credential id and public key, both in base64url; `count`: of its
    signatures, 0 where it counts none; `used`: when it was last used, 0: never."""

    id: str
    name: str
    public_key: str
    created: int
    count: int = 0
    used: int = 0


@frozen
class Access:
    """All of a user's. `recovery`: digests of the recovery codes that are left."""

    user: str
    passwords: tuple[AppPassword, ...] = ()
    totp: Totp | None = None
    keys: tuple[SecurityKey, ...] = ()
    recovery: tuple[str, ...] = ()

    @property
    def has_second_factor(self) -> bool:
        """Whether the console asks for more than the password."""
        return self.totp is not None or bool(self.keys)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not self.passwords and not self.has_second_factor and not self.recovery

    def password(self, id: str) -> AppPassword | None:
        """The app password of that id."""
        return next((each for each in self.passwords if each.id == id), None)

    def with_password(self, made: AppPassword, now: float) -> "Access":
        """With one more; those that have ended make room. Raises StoreError LIMIT."""
        kept = self.passwords
        if len(kept) >= MOST_PASSWORDS:
            kept = tuple(each for each in kept if each.holds(now))
        if len(kept) >= MOST_PASSWORDS:
            raise StoreError(Problem.LIMIT, f"There are {MOST_PASSWORDS} app passwords: revoke some")
        return evolve(self, passwords=(*kept, made))

    def without_passwords(self, ids: Collection[str]) -> "Access":
        """Without the app passwords of these ids."""
        return evolve(self, passwords=tuple(each for each in self.passwords if each.id not in ids))

    def with_uses(self, uses: Mapping[str, int]) -> "Access":
        """With the last use of app passwords by id, where that is later."""
        return evolve(self, passwords=tuple(
            evolve(each, used=max(each.used, uses.get(each.id, 0))) for each in self.passwords))

    def without_second_factor(self) -> "Access":
        """As before one was set up."""
        return evolve(self, totp=None, keys=(), recovery=())

    def to_bytes(self) -> bytes:
        """The stored form."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"

    @classmethod
    @lru_cache(maxsize=1000)
    def from_bytes(cls, data: bytes) -> "Access":
        """From the stored form. Raises ValueError."""
        try:
            values: dict[str, Any] = json.loads(data)
            passwords = tuple(AppPassword(**{**each, "services": tuple(each["services"])})
                              for each in values["passwords"])
            return cls(values["user"], passwords, Totp(**values["totp"]) if values["totp"] else None,
                       tuple(SecurityKey(**each) for each in values["keys"]), tuple(values["recovery"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no record of access: {error!r}") from None
