"""The folder `access/` of a store: of each user who has app passwords or a second factor a file, whose name is a digest
of the user id (which may be longer than a file's name). Only the owner of the store can read it. Who changes any of
them holds the file `lock`."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file, sync_folder
from store import filelock
from store.accounts.apppasswords.accessrecord import Access
from store.errors import Problem, StoreError, disk_problem

FOLDER = "access"
LOCK = "lock"
USE_TIME = 600              # seconds: a use is on record when the one before it is older


@frozen
class AccessFiles:
    """Those of the store at `root`. All raise StoreError UNAVAILABLE for a file that cannot be read, CORRUPT for one
    that is damaged: nobody is let in then as if it were not there; and what changes it DISK_FULL, READ_ONLY, too."""

    root: Path
    _folder: str = field(init=False, eq=False)

    @_folder.default
    def _folder_of_store(self) -> str:
        return f"{self.root}/{FOLDER}"          # a path made of parts costs many calls, at each login

    def path(self, user: str) -> Path:
        """Where that of a user is."""
        return Path(self._place(user))

    def _place(self, user: str) -> str:
        digest = hashlib.blake2b(user.encode(errors="surrogatepass"), digest_size=16).hexdigest()
        return f"{self._folder}/{digest}"

    def of(self, user: str) -> Access:
        """What a user has."""
        return self._read(self._place(user)) or Access(user)

    def all(self) -> Iterator[Access]:
        """Of everybody who has something."""
        try:
            paths = sorted(os.scandir(self._folder), key=lambda each: each.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_problem(error) from None
        for path in paths:
            if path.name != LOCK and "." not in path.name and (found := self._read(path.path)) is not None:
                yield found

    @property
    def version(self) -> int:
        """Another one when somebody has changed something."""
        try:
            return os.stat(self._folder).st_mtime_ns
        except OSError:
            return 0

    def change(self, user: str, work: Callable[[Access], Access]) -> Access:
        """Have a user's be what `work` makes of it, on disk. Raises what `work` raises."""
        with self._changing():
            before = self.of(user)
            after = work(before)
            if after != before:
                self._put(after)
        return after

    def rename(self, old: str, new: str) -> None:
        """The user has another id. No harm if it was done before."""
        with self._changing():
            found = self._read(self._place(old))
            if found is not None:
                self._put(evolve(found, user=new))
                self._remove(old)

    def remove(self, user: str) -> None:
        """A user has nothing any more."""
        if os.path.lexists(self._place(user)):
            with self._changing():
                self._remove(user)

    def note_uses(self, uses: Mapping[str, Mapping[str, int]]) -> None:
        """When app passwords were last used, by user and id. It is not synced: a crash may lose it."""
        for user, times in uses.items():
            before = self.of(user)
            if not any(times.get(each.id, 0) - each.used >= USE_TIME for each in before.passwords):
                continue
            with self._changing():
                before = self.of(user)
                after = before.with_uses(times)
                if after != before:
                    with privatefiles.replacing(self.path(user), sync=False) as file:
                        file.write(after.to_bytes())

    # Inside

    def _read(self, path: str) -> Access | None:
        if not os.path.exists(path):            # as nearly always: many times cheaper than an open that fails
            return None
        try:
            data = privatefiles.read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, detail=f"{path}: {error.strerror}") from None
        try:
            return Access.from_bytes(data)
        except ValueError as error:
            raise StoreError(Problem.CORRUPT, detail=f"{path} is damaged ({error}): set it aside, and the user makes "
                                                     "app passwords and second factor again") from None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        folder = self.root / FOLDER
        try:
            if not folder.is_dir():
                privatefiles.make_folder(folder, exist_ok=True)
                sync_folder(self.root)
            with filelock.in_turn(folder / LOCK):
                yield
        except OSError as error:
            raise disk_problem(error) from error

    def _put(self, access: Access) -> None:
        if access.is_empty:
            self._remove(access.user)
        else:
            replace_file(self.path(access.user), access.to_bytes())

    def _remove(self, user: str) -> None:
        self.path(user).unlink(missing_ok=True)
        sync_folder(self.root / FOLDER)
