"""Sessions of the console: who has logged in with which browser, for all processes that serve HTTP.

Each is a file in `run/sessions` of the store, which only its owner can read, named by the user's key and the digest of
the secret that the browser shows in a cookie; the secret itself is nowhere. The time of the file is when the browser
was last heard of. A snapshot or a backup has no sessions: whoever was logged out stays so.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attrs import asdict, evolve, field, frozen

from mboxlist import privatefiles
from store.accounts.base import Account
from store.values import Secret

FOLDER = "sessions"
WHOLE, SECOND = "whole", "second"       # states: all is given; the password is given, the second factor is missing
MOST, MOST_OF_USER = 10_000, 20         # sessions; the user's oldest ones end
NOTED = 60                              # seconds after which it is noted again that the browser was heard of
SECOND_TIME = 600                       # seconds in which the second factor must come
CHALLENGE_TIME = 300                    # seconds in which a security key must answer
CHALLENGE_OCTETS = 32                   # random (WebAuthn §13.4.3 wants 16)
_CHALLENGE = ".challenge"
_KEY = 16                               # letters of a user's key
_LONGEST = 200                          # characters of what a browser calls itself


class TooMany(Exception):
    """There are MOST sessions."""


@frozen
class Session:
    """One of them: since when (a Unix time), in which state, from which address and with which browser.

    `credential` is a digest of the account's: with another password the session holds no more. `until`: when it ends in
    any case; `seen`: when the browser was last heard of.
    """

    id: str
    user: str
    state: str
    created: int
    until: int
    credential: str
    address: str
    secure: bool
    browser: str
    seen: float = field(default=0.0, eq=False)

    @property
    def shown_id(self) -> str:
        """Its name for people, who can end it by that; nobody logs in with it."""
        return f"console-{self.id[_KEY + 1:][:16]}"

    def is_of(self, account: Account) -> bool:
        """Whether the account is as it was at the login, as far as the session rests on it."""
        return account.user == self.user and account.status.may_log_in and hmac.compare_digest(
            self.credential, _digest(account.credential))


@frozen
class Sessions:
    """Those of a store. Functions read and write small files: for a thread. They raise OSError."""

    root: Path

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.root / "run" / FOLDER

    def begin(self, account: Account, now: float, *, state: str, idle: int, time: int, address: str, secure: bool,
              browser: str) -> tuple[Session, Secret]:
        """A new one, and what its browser must show. Sessions that have ended are removed. Raises TooMany."""
        privatefiles.make_folder(self.folder, parents=True, exist_ok=True)
        self._sweep_challenges(now)
        left = [name for name in self._names() if not self._sweep(name, now, idle)]
        mine = sorted((name for name in left if name.startswith(_user_key(account.user))), key=self._seen)
        for name in mine[:max(0, len(mine) - MOST_OF_USER + 1)]:
            self._remove(name)
            left.remove(name)
        if len(left) >= MOST:
            raise TooMany
        secret = f"{_user_key(account.user)}{secrets.token_urlsafe(32)}"
        until = int(now + (min(time, SECOND_TIME) if state == SECOND else time))
        made = Session(_name(secret), account.user, state, int(now), until, _digest(account.credential), address,
                       secure, browser[:_LONGEST], now)
        with privatefiles.replacing(self.folder / made.id, sync=False) as file:
            file.write(json.dumps(asdict(made)).encode())
            file.flush()
            os.utime(file.fileno(), (now, now))
        return made, Secret(secret.encode())

    def find(self, secret: Secret, now: float, idle: int) -> Session | None:
        """The one whose browser shows that; None where none holds. It has been heard of now."""
        try:
            text = secret.reveal().decode("ascii")
        except UnicodeDecodeError:
            return None
        name = _name(text)
        found = self._read(name) if name else None
        if found is None:
            return None
        if not _holds(found, now, idle):
            self._remove(found.id)
            return None
        if now - found.seen > NOTED:
            with suppress(OSError):             # it has just been ended, or nothing can be written: it ends the sooner
                os.utime(self.folder / found.id, (now, now))
        return found

    def all(self, now: float, idle: int, user: str = "") -> list[Session]:
        """Those that hold, of everybody or that user, the newest first."""
        found = [session for name in self._names() if name.startswith(_user_key(user) if user else "")
                 and (session := self._read(name)) is not None and _holds(session, now, idle)]
        return sorted(found, key=lambda session: (-session.created, session.id))

    def end(self, id: str) -> bool:
        """End one; whether it was there."""
        return _is_name(id) and self._remove(id)

    def end_shown(self, shown_id: str) -> bool:
        """End the one that people know by that; whether it was there."""
        return any([self._remove(name) for name in list(self._names())
                    if f"console-{name[_KEY + 1:][:16]}" == shown_id])

    def end_of(self, user: str, but: str = "") -> int:
        """End all of a user but one; how many those were."""
        return sum(self._remove(name) for name in list(self._names())
                   if name.startswith(_user_key(user)) and name != but)

    # Challenges

    def give_challenge(self, session: Session, now: float) -> bytes:
        """One for security keys, in place of an older one of the session."""
        made = secrets.token_bytes(CHALLENGE_OCTETS)
        with privatefiles.open_file(self._challenge(session.id), "wb") as file:
            file.write(made)
            file.flush()
            os.utime(file.fileno(), (now, now))
        return made

    def take_challenge(self, session: Session, now: float) -> bytes | None:
        """The one that was given, once; None where there is none, or it was given too long ago."""
        path = self._challenge(session.id)
        try:
            with privatefiles.open_file(path) as file:
                given, octets = os.fstat(file.fileno()).st_mtime, file.read()
            path.unlink()                       # of two who have read it one does this
        except FileNotFoundError:
            return None
        return octets if now - given < CHALLENGE_TIME and len(octets) == CHALLENGE_OCTETS else None

    # Inside

    def _challenge(self, name: str) -> Path:
        return self.folder / f"{name}{_CHALLENGE}"

    def _sweep_challenges(self, now: float) -> None:
        """Of sessions that have ended, or which nobody answered."""
        for path in self.folder.glob(f"*{_CHALLENGE}"):
            with suppress(FileNotFoundError):
                if now - path.stat().st_mtime >= CHALLENGE_TIME:
                    path.unlink()

    def _names(self) -> Iterator[str]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return
        yield from filter(_is_name, names)

    def _read(self, name: str) -> Session | None:
        try:
            with privatefiles.open_file(self.folder / name) as file:
                seen, values = os.fstat(file.fileno()).st_mtime, json.loads(file.read())
            return evolve(Session(**values), seen=seen, id=name)
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def _seen(self, name: str) -> float:
        try:
            return (self.folder / name).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _sweep(self, name: str, now: float, idle: int) -> bool:
        return now - self._seen(name) >= idle and (self._remove(name) or True)

    def _remove(self, name: str) -> bool:
        self._challenge(name).unlink(missing_ok=True)
        try:
            (self.folder / name).unlink()
        except FileNotFoundError:
            return False
        return True


def form_token(secret: Secret) -> str:
    """What a form of that browser must hold, so that no page of others can send one. From the token nobody gets back to
    the secret."""
    return hmac.new(secret.reveal(), b"form", hashlib.sha256).hexdigest()


def _holds(session: Session, now: float, idle: int) -> bool:
    return now < session.until and now - session.seen < idle


def _user_key(user: str) -> str:
    return hashlib.sha256(b"user " + user.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY]


def _name(secret: str) -> str:
    """Of 256 random bits: nobody guesses them, so the digest need not be slow."""
    return f"{secret[:_KEY]}.{hashlib.sha256(secret.encode()).hexdigest()}" if _is_key(secret[:_KEY]) else ""


def _digest(credential: str) -> str:
    return hashlib.sha256(b"credential " + credential.encode("utf-8", "surrogateescape")).hexdigest()


def _is_key(text: str) -> bool:
    return len(text) == _KEY and not set(text) - set("0123456789abcdef")


def _is_name(text: str) -> bool:
    key, _, digest = text.partition(".")
    return _is_key(key) and len(digest) == 64 and not set(digest) - set("0123456789abcdef")
