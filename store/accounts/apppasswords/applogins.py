"""What a login asks about app passwords, and what the session that it begins rests on."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from attrs import define, field

from store.accounts.apppasswords.accessfiles import USE_TIME, AccessFiles
from store.accounts.apppasswords.apppassword import SERVICES, AppPassword, digest_of
from store.accounts.loginsettings import ALLOWED, OFF, REQUIRED, Settings
from store.values import Secret

MOST = 10_000               # app passwords of which a use waits to be noted


@define(eq=False)
class AppLogins:
    """Those of a process. A file is read where it is asked: it is short, and there is none of nearly all users."""

    root: Path
    settings: Settings
    clock: Callable[[], float] = time.time
    _files: AccessFiles = field(init=False)
    _used: dict[tuple[str, str], int] = field(factory=dict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    @_files.default
    def _files_of_store(self) -> AccessFiles:
        return AccessFiles(self.root)

    def takes(self, service: str, password: Secret) -> bool:
        """Whether that may be an app password, which that service would take."""
        return self.settings.app_passwords != OFF and service in SERVICES and digest_of(password) is not None

    def find(self, user: str, password: Secret, service: str) -> AppPassword | None:
        """The app password of a user that this is, if it holds, for that service. Raises StoreError."""
        digest = digest_of(password)
        if digest is None:
            return None
        found = None
        for each in self._files.of(user).passwords:
            if each.fits(digest):
                found = each
        now = self.clock()
        if found is None or service not in found.services or not found.holds(now):
            return None
        self._note(user, found, int(now))
        return found

    def still(self, user: str, password: AppPassword) -> bool:
        """Whether an app password holds that held at the login. Raises StoreError."""
        found = None if self.settings.app_passwords == OFF else self._files.of(user).password(password.id)
        return found is not None and found.holds(self.clock())

    def requires(self, user: str, service: str) -> bool:
        """Whether that service takes nothing from the user but app passwords, and what is no password: of all users, or
        of who has a second factor, which the password alone would go round. Raises StoreError."""
        settings = self.settings
        if settings.app_passwords == OFF or service not in SERVICES or user in settings.proxies:
            return False
        return settings.app_passwords == REQUIRED or (
            settings.app_passwords == ALLOWED and settings.second_factor_requires
            and self._files.has_second_factor(user))

    @property
    def version(self) -> int:
        """Another one when somebody has changed something."""
        return self._files.version

    def _note(self, user: str, password: AppPassword, now: int) -> None:
        if now - password.used >= USE_TIME and len(self._used) < MOST:
            with self._lock:
                self._used[user, password.id] = now

    def note_uses(self) -> None:
        """Put on record what was used: for a thread, from time to time. Raises StoreError."""
        with self._lock:
            used, self._used = self._used, {}
        times: dict[str, dict[str, int]] = {}
        for (user, id), when in used.items():
            times.setdefault(user, {})[id] = when
        self._files.note_uses(times)
