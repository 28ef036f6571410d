"""The folder `access/` of a store: of each user who has app passwords or a second factor a file, whose name is a digest
of the user id (which may be longer than a file's name). Only the owner of the store can read it. Who changes any of
them holds the file `lock`."""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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

    def has_second_factor(self, user: str) -> bool:
        """Whether the console asks a user for more than the password."""
        found = self._read(self._place(user))
        return found is not None and found.has_second_factor

    def names(self) -> list[str]:
        """Of all files."""
        try:
            return sorted(name for name in os.listdir(self._folder) if name != LOCK and "." not in name)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise disk_problem(error) from None

    def named(self, name: str) -> Access | None:
        """What the file of that name has; None for one that is not there."""
        path = f"{self._folder}/{name}"
        found = self._read(path)
        if found is not None and self._place(found.user) != path:
            raise StoreError(Problem.CORRUPT, detail=f"{path} is of another user, {found.user}")
        return found

    def all(self) -> Iterator[Access]:
        """Of everybody who has something."""
        for name in self.names():
            if (found := self._read(f"{self._folder}/{name}")) is not None:
                yield found

    def users_of(self, names: Collection[str], users: Iterable[str]) -> dict[str, str]:
        """Whose files those are, as far as they are of these users."""
        places = {f"{self._folder}/{name}": name for name in names}
        return {places[place]: user for user in users if (place := self._place(user)) in places}

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

    def settled(self, user: str) -> Access:
        """What a user has, once nobody is changing it."""
        with self._changing():
            return self.of(user)

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

    def remove_damaged(self, name: str) -> bool:
        """Remove the file of that name if it is damaged; whether it was."""
        with self._changing():
            try:
                if name in self.names():
                    self.named(name)
                return False
            except StoreError as error:
                if error.problem is not Problem.CORRUPT:
                    raise
            Path(self._folder, name).unlink(missing_ok=True)
            sync_folder(self.root / FOLDER)
        return True

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
        try:
            os.stat(path)                       # nearly always it is missing: much cheaper than an open that fails
            data = privatefiles.read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, detail=f"{path}: {error.strerror}") from None
        try:
            return Access.from_bytes(data)
        except ValueError as error:
            raise StoreError(Problem.CORRUPT, detail=f"{path} is damaged ({error}): see onecopy check, and the user "
                                                     "makes app passwords and second factor again") from None

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
