"""The one place where the product opens and makes files: nobody but the owner may read or change what it makes.

A file has the mode 0600 and a folder 0700, whatever the umask is. A symbolic link is not followed: not in the last part
of a path here, and in no part below a `Folder`. What is written anew replaces what has that name; it is
never written into a file that somebody else has put there.

What is otherwise is a function of its own: `open_named` and `read_named` for files that an administrator names
(a certificate is a link where certbot keeps it), `share` for what others must reach, with the reason.

`tests/test_private_files.py` finds every other place that opens or makes a file.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL, ELOOP, EMLINK
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import BinaryIO, cast

from attrs import define

FILE_MODE = 0o600
FOLDER_MODE = 0o700
PIECE_OCTETS = 1 << 20              # read and written at a time
STANDARD = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")

LINK = "is a symbolic link, which is not followed"
NO_FILE = "it is not a file"
MOST_LINKS = 40                     # on the way to a folder, as in the kernel

AnyPath = str | os.PathLike[str]

_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW
_BEGINNING = os.O_RDONLY | os.O_NONBLOCK | _ALWAYS
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def only_ours() -> None:
    """What libraries and programs make that this process calls is not for others either. For the start of a program."""
    os.umask(0o077)


def open_handle(path: AnyPath, flags: int = os.O_RDONLY, *, at: int | None = None) -> int:
    """A descriptor of a file; `at`: of the folder that the path begins at. One that is made anew (O_TRUNC) takes the
    place of what has the name. Raises OSError."""
    if flags & os.O_CREAT and flags & os.O_TRUNC:
        return _replacement(path, flags & ~os.O_TRUNC, at)
    try:
        handle = os.open(path, flags | _ALWAYS, FILE_MODE, dir_fd=at)
    except OSError as error:
        if error.errno == ELOOP:
            raise OSError(ELOOP, LINK, os.fspath(path)) from error
        raise
    if flags & os.O_CREAT:
        _narrow(handle, FILE_MODE)
    return handle


def _replacement(path: AnyPath, flags: int, at: int | None) -> int:
    while True:
        try:
            return open_handle(path, flags | os.O_EXCL, at=at)
        except FileExistsError:
            with suppress(FileNotFoundError):
                os.unlink(path, dir_fd=at)


def _narrow(handle: int, mode: int) -> None:
    """Give it the mode, if it is ours and has another one: the umask has taken some of it away, or an earlier version
    has made it."""
    status = os.fstat(handle)
    if stat.S_IMODE(status.st_mode) != mode and status.st_uid == os.geteuid():
        os.fchmod(handle, mode)


def make_empty(paths: Iterable[AnyPath]) -> Iterator[AnyPath]:
    """Make empty files, and tell each that is there. One call of the system makes one, where to open and close it takes
    three; only the first is looked at, whether the umask has left it its mode. Raises OSError."""
    whole = True
    for number, path in enumerate(paths):
        if whole:
            os.mknod(path, stat.S_IFREG | FILE_MODE)
            if not number and stat.S_IMODE(os.lstat(path).st_mode) != FILE_MODE:
                os.unlink(path)
                whole = False
        if not whole:
            os.close(open_handle(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        yield path


def read_beginning(path: AnyPath, octets: int) -> bytes:
    """So many octets from the beginning of a file, or fewer when it is shorter; a link is not followed, and a pipe has
    nobody wait. Three calls of the system. Raises OSError."""
    handle = os.open(path, _BEGINNING)
    try:
        return os.read(handle, octets)
    finally:
        os.close(handle)


def open_nameless(folder: AnyPath) -> int:
    """A descriptor of a new file in that folder, for writing; it has no name (`give_name`), and is gone when nobody has
    it open. Raises OSError, also where the file system cannot do that."""
    handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
    _narrow(handle, FILE_MODE)
    return handle


def give_name(handle: int, path: AnyPath) -> None:
    """Give the nameless file that name. Raises OSError, FileExistsError when something has it."""
    os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)     # linkat(2), which alone follows what is in /proc


def open_regular(path: AnyPath, *, at: int | None = None) -> int:
    """A descriptor of a file, for reading. Raises OSError, also where a folder, or a pipe, stands in its place; it
    waits for nobody who would write to that."""
    handle = open_handle(path, os.O_RDONLY | os.O_NONBLOCK, at=at)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(EINVAL, NO_FILE, os.fspath(path))
    return handle


def open_file(path: AnyPath, mode: str = "rb", buffering: int = -1, *, at: int | None = None) -> BinaryIO:
    """As the built-in open, of octets: "wb" makes it anew. Raises OSError."""
    assert "b" in mode
    return cast(BinaryIO, open(path, mode, buffering, opener=lambda name, flags: open_regular(
        name, at=at) if mode == "rb" else open_handle(name, flags, at=at)))


def open_folder(path: AnyPath, *, at: int | None = None) -> int:
    """A descriptor of a folder, for fsync, flock, and names in it; it may be reached by a link, but not `at` another
    folder. Raises OSError."""
    return os.open(path, _FOLDER if at is None else _FOLDER | os.O_NOFOLLOW, dir_fd=at)


def read(path: AnyPath) -> bytes:
    """All of a file. Raises OSError."""
    with open_file(path, "rb") as file:
        return file.read()


def read_text(path: AnyPath, errors: str = "strict") -> str:
    """All of a file in UTF-8. Raises OSError, UnicodeError."""
    return read(path).decode("utf-8", errors)


def write(path: AnyPath, content: str | bytes) -> None:
    """Make a file anew, not atomically and not synced. Raises OSError."""
    with open_file(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def touch(path: AnyPath) -> None:
    """Have a file there, empty if there was none; its time is now. Raises OSError."""
    handle = open_handle(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.utime(handle)
    finally:
        os.close(handle)


def make_folder(path: AnyPath, *, parents: bool = False, exist_ok: bool = False, at: int | None = None) -> None:
    """Make a folder. Raises OSError; FileExistsError also where the name is taken by something else."""
    try:
        os.mkdir(path, FOLDER_MODE, dir_fd=at)
    except FileNotFoundError:
        above = os.path.dirname(os.fspath(path))
        if not parents or not above:
            raise
        make_folder(above, parents=True, exist_ok=True)
        make_folder(path, exist_ok=exist_ok)
    except FileExistsError:
        if not exist_ok or not os.path.isdir(path):
            raise


@contextmanager
def replacing(path: AnyPath, suffix: str = ".new", *, sync: bool = True, at: int | None = None) -> Iterator[BinaryIO]:
    """A file to write that gets its name when the block ends, and nothing has failed; until then `suffix` ends it.
    With `sync` its octets are on disk before. Raises OSError."""
    new = os.fspath(path) + suffix
    try:
        with open_file(new, "wb", at=at) as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(new, path, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=at)
        raise


def copy(source: AnyPath, target: AnyPath) -> None:
    """Make `target` a copy of a file's octets. Raises OSError."""
    with open_file(source, "rb", buffering=0) as reading, open_file(target, "wb") as writing:
        while octets := reading.read(PIECE_OCTETS):
            writing.write(octets)


# What others may write to

@define(eq=False)
class Folder:
    """An open folder. Names in it have one level or several, and are relative to it: no level is a symbolic link or
    leads upward, so nothing outside is opened, made or replaced, whoever else may write to the folder meanwhile.

    Everything raises OSError.
    """

    path: Path          # as it was named
    handle: int

    @classmethod
    def at(cls, path: AnyPath, *, make: bool = False) -> "Folder":
        """The folder of that path. A link on the way to it is followed if it is root's or our own. `make`: with all
        those above it, where they are missing."""
        try:
            return cls(Path(path), _walk(path))
        except FileNotFoundError:
            if not make:
                raise
        above = cls.at(os.path.dirname(os.path.abspath(path)), make=True)
        with above:
            made = above.make(os.path.basename(os.path.abspath(path)))
        return cls(Path(path), made.handle)

    def again(self) -> "Folder":
        """Another descriptor of it, which is closed by itself."""
        return Folder(self.path, os.dup(self.handle))

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    @contextmanager
    def _parent(self, name: AnyPath) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder that the last level is in, and the last level."""
        *levels, last = _levels(name)
        handle = _below(self.handle, levels)
        try:
            yield handle, last
        finally:
            os.close(handle)

    def folder(self, name: AnyPath) -> "Folder":
        """A folder in it."""
        return Folder(self.path / name, _below(self.handle, _levels(name)))

    def make(self, name: AnyPath) -> "Folder":
        """A folder in it, made with all above it that are missing."""
        return Folder(self.path / name, _below(self.handle, _levels(name), make=True))

    def open(self, name: AnyPath, mode: str = "rb") -> BinaryIO:
        """See `open_file`. Of what others put there only a file is opened: nothing that has a reader wait."""
        with self._parent(name) as (parent, last):
            file = open_file(last, mode, at=parent)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(EINVAL, NO_FILE, str(self.path / name))
        return file

    def read(self, name: AnyPath) -> bytes:
        """All of a file in it."""
        with self.open(name) as file:
            return file.read()

    def replace(self, name: AnyPath, octets: bytes) -> None:
        """Write a file, whole or not at all, and on disk."""
        with self._parent(name) as (parent, last):
            with replacing(last, at=parent) as file:
                file.write(octets)
            os.fsync(parent)

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        """Give what is in it another name, in the place of what has that."""
        with self._parent(old) as (one, before), self._parent(new) as (other, after):
            os.rename(before, after, src_dir_fd=one, dst_dir_fd=other)

    def remove(self, name: AnyPath) -> None:
        """Take a file away, if it is there."""
        with self._parent(name) as (parent, last), suppress(FileNotFoundError):
            os.unlink(last, dir_fd=parent)

    def status(self, name: AnyPath) -> os.stat_result:
        """The figures of what is there; those of a link itself."""
        with self._parent(name) as (parent, last):
            return os.stat(last, dir_fd=parent, follow_symlinks=False)

    def is_folder(self, name: AnyPath) -> bool:
        """Whether there is a folder of that name."""
        try:
            return stat.S_ISDIR(self.status(name).st_mode)
        except OSError:
            return False

    def names(self) -> list[str]:
        """What is in it, in order."""
        return sorted(os.listdir(self.handle))

    def folders(self) -> list[str]:
        """The folders in it, in order."""
        with os.scandir(self.handle) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def sync(self) -> None:
        """Return when the names in it are on disk."""
        os.fsync(self.handle)


def _levels(name: AnyPath) -> tuple[str, ...]:
    levels = PurePosixPath(name).parts
    if not levels or levels[0] == "/" or ".." in levels:
        raise OSError(EINVAL, "it is outside of the folder", os.fspath(name))
    return levels


def _below(folder: int, levels: Iterable[str], *, make: bool = False) -> int:
    """A descriptor of a folder so many levels below that one."""
    handle = os.dup(folder)
    for level in levels:
        above = handle
        try:
            if make:
                with suppress(FileExistsError):
                    make_folder(level, at=above)
            handle = os.open(level, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
        except NotADirectoryError as error:
            if stat.S_ISLNK(os.stat(level, dir_fd=above, follow_symlinks=False).st_mode):
                raise OSError(ELOOP, LINK, level) from error
            raise
        finally:
            os.close(above)
    return handle


def _walk(path: AnyPath) -> int:
    """A descriptor of the folder of a path, level by level: who can write to one of them cannot send us elsewhere by a
    link."""
    left = list(reversed(os.path.abspath(path).split("/")[1:]))
    handle, links = os.open("/", _FOLDER), 0
    try:
        while left:
            level = left.pop()
            if not level:
                continue
            found = os.open(level, os.O_PATH | _ALWAYS, dir_fd=handle)
            status = os.fstat(found)
            if stat.S_ISLNK(status.st_mode):
                try:
                    links += 1
                    if status.st_uid not in (0, os.geteuid()) or links > MOST_LINKS:
                        raise OSError(ELOOP, f"{level} {LINK}", os.fspath(path))
                    target = os.readlink("", dir_fd=found)
                finally:
                    os.close(found)
                left += reversed(target.split("/"))
                found = os.open("/" if target.startswith("/") else ".", os.O_PATH | _ALWAYS, dir_fd=handle)
            os.close(handle)
            handle = found
        return os.open(".", _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)


# For a time

def new_folder(prefix: str, place: AnyPath | None = None, suffix: str = "") -> Path:
    """A new folder with a name that nobody can guess, in `place` or that for temporary files. Raises OSError."""
    return Path(_tempfile().mkdtemp(suffix, prefix, place))


@contextmanager
def temporary_folder(prefix: str, place: AnyPath | None = None) -> Iterator[Path]:
    """A new folder with a name that nobody can guess, for as long as the block lasts."""
    with _tempfile().TemporaryDirectory(None, prefix, place, ignore_cleanup_errors=True) as name:
        yield Path(name)


def users_temporary_folder(place: Path | None = None) -> Path:
    """A folder of this user's own within that place, or that for temporary files, that stays. Raises PermissionError
    where somebody else has made it, OSError."""
    own = Path(place or _tempfile().gettempdir(), f"onecopy-{os.geteuid()}")
    make_folder(own, exist_ok=True)
    if not is_private(own, os.geteuid()):
        raise PermissionError(f"{own} should be a folder of this user's own, with mode 0700")
    return own


def is_private(folder: AnyPath, owner: int) -> bool:
    """Whether it is a folder of that user's own, which nobody else can reach. Raises OSError."""
    there = os.lstat(folder)
    return there.st_uid == owner and there.st_mode == stat.S_IFDIR | FOLDER_MODE


def temporary_file(memory: int = 0) -> BinaryIO:
    """A file without a name; up to so many octets it is only in memory."""
    return cast(BinaryIO, _tempfile().SpooledTemporaryFile(memory) if memory else _tempfile().TemporaryFile())


def _tempfile() -> ModuleType:
    """Loaded here: it takes as long to load as a small command."""
    import tempfile
    return tempfile


# What others name, and what others reach

def open_named(path: AnyPath, buffering: int = -1) -> BinaryIO:
    """Open a file for reading that an administrator, the kernel or a package names: links are followed. What is given
    as standard input may belong to whoever started the program. Raises OSError."""
    where: AnyPath | int = os.dup(0) if os.fspath(path) in STANDARD else path
    return open(where, "rb", buffering, closefd=True)


def read_named(path: AnyPath) -> bytes:
    """All of such a file. Raises OSError."""
    with open_named(path) as file:
        return file.read()


def nothing() -> int:
    """A descriptor of /dev/null, for reading and writing."""
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def share(path: AnyPath, mode: int, why: str, owner: tuple[int, int] | None = None) -> None:
    """Let others reach what this process has just made; `why` is for the reader of the code. With `owner` it belongs to
    that user and group from now on. Raises OSError."""
    assert why
    with _held(path) as (here, _):
        if owner is not None:
            os.chown(here, *owner)
        os.chmod(here, mode)


def make_private(path: AnyPath, owner: tuple[int, int] | None = None, *, at: int | None = None) -> None:
    """Let nobody but its owner reach a file, a folder or a socket that is there, and have it belong to that user and
    group. A file with a second name is given to nobody: who made the other name may not be its owner. Raises OSError.
    """
    with _held(path, at) as (here, status):
        if owner is not None and owner[0] != status.st_uid:
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                raise OSError(EMLINK, "it has another name, which may be somebody else's", os.fspath(path))
            os.chown(here, *owner)
        mode = FOLDER_MODE if stat.S_ISDIR(status.st_mode) else FILE_MODE
        if stat.S_IMODE(status.st_mode) != mode:
            os.chmod(here, mode)


@contextmanager
def _held(path: AnyPath, at: int | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """A name that means what is there now, whatever becomes of the path; and its figures. Raises OSError for a link."""
    handle = os.open(path, os.O_PATH | _ALWAYS, dir_fd=at)
    try:
        status = os.fstat(handle)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(ELOOP, LINK, os.fspath(path))
        yield f"/proc/self/fd/{handle}", status
    finally:
        os.close(handle)
