"""Tokens of the API: who has which role. They are in a file of the store's folder, `http-tokens`, that only the owner
of the store can read; of a token it has a digest. It is no database: a snapshot that is put back gives nobody a token
again that has been revoked.
"""

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import asdict, define, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from store import filelock
from store.values import Secret
from tools.exits import Failure

FILE = "http-tokens"
ADMINISTRATOR, HELPDESK, AUDITOR, USER = "administrator", "helpdesk", "auditor", "user"
ROLES = (ADMINISTRATOR, HELPDESK, AUDITOR, USER)
MOST = 10_000
_BEGIN = "oc"               # of every token, so that those who look for lost secrets know it
_NOBODY = hashlib.sha256(b"").hexdigest()


@frozen
class Token:
    """Who may what, until when (a Unix time; None: for ever). `scope`: the domain of a helpdesk, the user of a user."""

    id: str
    role: str
    scope: str
    created: int
    until: int | None
    digest: str

    def holds(self, now: float) -> bool:
        """Whether it has not ended."""
        return self.until is None or now < self.until

    def shown(self) -> dict[str, Any]:
        """For a list: all but the digest."""
        return {name: value for name, value in asdict(self).items() if name != "digest"}


@frozen
class Tokens:
    """Those of a store. All raise Failure where the file cannot be read or written."""

    root: Path

    def all(self) -> tuple[Token, ...]:
        """Also those that have ended."""
        try:
            text = privatefiles.read_text(self.root / FILE)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Failure(f"{self.root / FILE}: {error.strerror}", 1) from None
        try:
            return tuple(Token(**each) for each in json.loads(text))
        except (ValueError, TypeError):
            raise Failure(f"{self.root / FILE} is damaged; without it there are no tokens", 1) from None

    def create(self, role: str, scope: str = "", until: int | None = None) -> tuple[Token, str]:
        """A new one, and what its owner must show: that is known to nobody afterwards."""
        if role not in ROLES or bool(scope) != (role in (HELPDESK, USER)):
            raise Failure("a helpdesk has a domain, a user has a user, and nobody else has either")
        secret, id = secrets.token_urlsafe(32), secrets.token_hex(6)
        made = Token(id, role, scope, int(time.time()), until, _digest(secret))
        with self._changing() as before:
            if len(before) >= MOST:
                raise Failure(f"there are {MOST} tokens: revoke some", 1)
            self._write([*before, made])
        return made, f"{_BEGIN}_{id}_{secret}"

    def revoke(self, ids: Sequence[str]) -> list[str]:
        """Have them hold no longer; the ids that there were."""
        with self._changing() as before:
            gone = [each.id for each in before if each.id in ids]
            if gone:
                self._write([each for each in before if each.id not in gone])
        return gone

    @contextmanager
    def _changing(self) -> Iterator[tuple[Token, ...]]:
        with filelock.in_turn(self.root / f"{FILE}.lock"):
            yield self.all()

    def _write(self, tokens: Sequence[Token]) -> None:
        try:
            replace_file(self.root / FILE, json.dumps([asdict(each) for each in tokens]).encode() + b"\n")
        except OSError as error:
            raise Failure(f"{self.root / FILE}: {error.strerror}", 1) from None


@define(eq=False)
class TokenCache:
    """Tokens as they are looked for: the file is read again when another has taken its place, as with each change. For
    threads."""

    tokens: Tokens
    _seen: tuple[int, int, int] | None = field(default=None, init=False)
    _by_id: Mapping[str, Token] = field(factory=dict, init=False)

    def find(self, shown: Secret, now: float) -> Token | None:
        """Whose it is; None for one that does not hold. How long it takes tells nothing of the secret: an id is none.
        Raises Failure."""
        begin, _, rest = shown.reveal().decode("ascii", "replace").partition("_")
        id, _, secret = rest.partition("_")
        found = self._current().get(id)
        same = hmac.compare_digest(found.digest if found else _NOBODY, _digest(secret))
        return found if found is not None and same and begin == _BEGIN and found.holds(now) else None

    def _current(self) -> Mapping[str, Token]:
        try:
            status = os.stat(self.tokens.root / FILE)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Failure(f"{self.tokens.root / FILE}: {error.strerror}", 1) from None
        seen = status.st_ino, status.st_mtime_ns, status.st_size
        if seen != self._seen:          # who reads a newer one than that reads it again
            self._by_id = {each.id: each for each in self.tokens.all()}
            self._seen = seen
        return self._by_id


def _digest(secret: str) -> str:
    """Of 256 random bits: nobody guesses them, so it need not be slow."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
