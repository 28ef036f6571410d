"""Every call by which a store changes its disk, seen one by one.

`Recorder` stands between this process and the system: in the place of the functions of `os` on the Python side, and of
Berkeley DB's system calls by the hooks that libdb has for that (`db_env_set_func_*`, Berkeley DB 5.3 C API Reference).
"""

import builtins
import contextlib
import ctypes
import errno
import io
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.support.faults.disk import FOLDER, REGION, Disk, Event, volume


@frozen
class Call:
    """A system call that is about to be made: its name as in `os`, the path, and whether it changes the disk."""

    name: str
    path: str
    changes: bool
    database: bool


class Recorder:
    """Sees what happens below `root` while it is entered; one at a time in a process.

    `before` is called before each call, reading calls too, and may raise OSError in its place.
    """

    def __init__(self, root: Path, before: Callable[[Call], None] = lambda call: None) -> None:
        self.root = str(root)
        self.before = before
        self.events: list[Event] = []
        self.base = Disk.of(root)
        self._nodes = {os.stat(f"{self.root}/{path}").st_ino: node for path, node in self.base.names.items()
                       if node != FOLDER}
        self._next = max(self._nodes.values(), default=0) + 1
        self._undo: list[Callable[[], None]] = []

    def note(self, what: Any) -> None:
        """Remember something among the events."""
        self.events.append(Event("note", note=what))

    def __enter__(self) -> "Recorder":
        _on_python(self)
        _on_database(self)
        _on_syncfs(self)
        return self

    def __exit__(self, *reason: object) -> None:
        while self._undo:
            self._undo.pop()()

    def replace(self, where: Any, name: str, value: Any) -> None:
        """Set an attribute until the recorder is left."""
        old = getattr(where, name)
        self._undo.append(lambda: setattr(where, name, old))
        setattr(where, name, value)

    def undo(self, work: Callable[[], None]) -> None:
        """What is to be done when the recorder is left."""
        self._undo.append(work)

    # Where a path or a descriptor is

    def place(self, path: Any, folder: int | None = None) -> str | None:
        """The path relative to the root; None when it is none of ours."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        full = os.path.abspath(os.fsdecode(path))
        assert folder is None or not full.startswith(self.root), "a path relative to a descriptor"
        return self._ours(full)

    def place_of(self, fileno: int) -> str | None:
        """The same of an open file; one without a name has the path ""."""
        full = os.readlink(f"/proc/self/fd/{fileno}")
        if full.endswith(" (deleted)"):
            return "" if self._ours(full) is not None else None
        return self._ours(full)

    def _ours(self, full: str) -> str | None:
        if full == self.root:
            return "."
        path = full[len(self.root) + 1:]
        if not full.startswith(self.root + "/") or path == "run" or path.startswith("run/"):
            return None
        return None if REGION.fullmatch(os.path.basename(path)) else path

    # What happens

    def about(self, name: str, path: str | None, *, changes: bool = True, database: bool = False) -> None:
        """The call `name` is about to be made."""
        if path is not None:
            self.before(Call(name, path, changes, database))

    def about_to_sync(self, fileno: int, path: str | None, *, database: bool = False) -> None:
        """The same of fsync: when it fails, the system has given the octets up (fsync(2), "ERRORS")."""
        try:
            self.about("fsync", path, database=database)
        except OSError:
            if not stat.S_ISDIR(os.fstat(fileno).st_mode):
                self.events.append(Event("sync failed", path or "", self.node(fileno)))
            raise

    def about_to_sync_all(self, path: str | None) -> None:
        """The same of syncfs. It tells once of what could not be written (syncfs(2), "ERRORS"); of a file that is open
        its own fsync will tell, too."""
        try:
            self.about("syncfs", path)
        except OSError:
            disk = self.base.copy()
            for event in self.events:
                disk.apply(event)
            for node in sorted(disk.unsynced(volume(path or "")) - self._open_nodes()):
                self.events.append(Event("sync failed", path or "", node))
            raise

    def _open_nodes(self) -> set[int]:
        """The files of ours that this process has open."""
        found = set()
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):          # the descriptor that the listing itself had
                found.add(self._nodes.get(os.fstat(int(name)).st_ino, 0))
        return found

    def node(self, fileno: int) -> int:
        """The node of an open file."""
        return self._nodes[os.fstat(fileno).st_ino]

    def opened(self, path: str, fileno: int, existed: bool, flags: int) -> None:
        """A file was opened."""
        number = os.fstat(fileno).st_ino
        if not existed:
            self._nodes[number] = self._next
            self.events.append(Event("create", path, self._next))
            self._next += 1
        elif flags & os.O_TRUNC:
            self.events.append(Event("truncate", path, self._nodes[number]))

    def made(self, path: str) -> None:
        """An empty file was made without being opened."""
        self._nodes[os.lstat(f"{self.root}/{path}").st_ino] = self._next
        self.events.append(Event("create", path, self._next))
        self._next += 1

    def named(self, kind: str, path: str, to: str = "", node: int = 0) -> None:
        """A name came, went, or changed; `path` is what it was before, or `node` the file that had none."""
        self.events.append(Event(kind, path, node, to=to))

    def wrote(self, fileno: int, offset: int, data: bytes) -> None:
        """Octets went into a file."""
        self.events.append(Event("write", self.place_of(fileno) or "", self.node(fileno), offset=offset, data=data))

    def truncated(self, fileno: int, size: int) -> None:
        """A file got another length."""
        self.events.append(Event("truncate", self.place_of(fileno) or "", self.node(fileno), offset=size))

    def synced(self, fileno: int, path: str) -> None:
        """A file or a folder was synced."""
        if stat.S_ISDIR(os.fstat(fileno).st_mode):
            self.events.append(Event("sync folder", path))
        else:
            self.events.append(Event("sync", path, self.node(fileno)))


_open, _write, _pwrite, _fsync, _lseek = os.open, os.write, os.pwrite, os.fsync, os.lseek
_rename, _unlink, _ftruncate, _io_open, _mknod = os.rename, os.unlink, os.ftruncate, io.open, os.mknod


def _on_python(seen: Recorder) -> None:
    def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = seen.place(path, dir_fd)
        nameless = flags & os.O_TMPFILE == os.O_TMPFILE
        seen.about("open", place, changes=bool(flags & os.O_CREAT) or nameless)
        existed = os.path.lexists(path) and not nameless
        fileno = _open(path, flags, mode, dir_fd=dir_fd)
        if place is not None:
            seen.opened("" if nameless else place, fileno, existed, flags)
        return fileno

    def mknod(path: Any, mode: int = 0o600) -> None:
        place = seen.place(path)
        seen.about("open", place)
        _mknod(path, mode)
        if place is not None:
            seen.made(place)

    def write(fileno: int, data: Any) -> int:
        place = seen.place_of(fileno)
        seen.about("write", place)
        offset = _lseek(fileno, 0, os.SEEK_CUR) if place is not None else 0
        done = _write(fileno, data)
        if place is not None:
            seen.wrote(fileno, offset, bytes(memoryview(data).cast("B")[:done]))
        return done

    def pwrite(fileno: int, data: Any, offset: int) -> int:
        place = seen.place_of(fileno)
        seen.about("write", place)
        done = _pwrite(fileno, data, offset)
        if place is not None:
            seen.wrote(fileno, offset, bytes(memoryview(data).cast("B")[:done]))
        return done

    def ftruncate(fileno: int, size: int) -> None:
        place = seen.place_of(fileno)
        seen.about("truncate", place)
        _ftruncate(fileno, size)
        if place is not None:
            seen.truncated(fileno, size)

    def sync(fileno: int) -> None:
        place = seen.place_of(fileno)
        seen.about_to_sync(fileno, place)
        _fsync(fileno)
        if place is not None:
            seen.synced(fileno, place)

    for name, replacement in {"open": open_, "mknod": mknod, "write": write, "pwrite": pwrite, "ftruncate": ftruncate,
                              "fsync": sync, "fdatasync": sync}.items():
        seen.replace(os, name, replacement)
    for name in ("link", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"):
        seen.replace(os, name, _naming(seen, name, getattr(os, name)))
    for name in ("stat", "statvfs", "listdir", "scandir"):
        seen.replace(os, name, _reading(seen, name, getattr(os, name)))
    seen.replace(os, "pread", _reading_open(seen, os.pread))
    for where in (io, builtins):
        seen.replace(where, "open", _opening_a_stream(seen))
    for name in ("truncate", "writev", "pwritev", "sendfile", "copy_file_range", "symlink", "renames"):
        seen.replace(os, name, _unheard_of(seen, name, getattr(os, name)))


def _naming(seen: Recorder, name: str, original: Any) -> Callable[..., None]:
    kind = {"replace": "rename", "remove": "unlink"}.get(name, name)

    def call(path: Any, *rest: Any, dir_fd: int | None = None, **options: Any) -> None:
        place = seen.place(path, dir_fd)
        to = seen.place(rest[0]) if kind in ("link", "rename") else ""
        nameless = place is None and bool(to) and str(path).startswith("/proc/self/fd/")
        seen.about(kind, to if nameless else place)
        original(path, *rest, **options, **({} if dir_fd is None else {"dir_fd": dir_fd}))
        if nameless:
            seen.named(kind, "", to or "", seen.node(int(path.rpartition("/")[2])))
        if place is not None:
            assert to is not None, f"{path} leaves the store"
            seen.named(kind, place, to)

    return call


def _reading(seen: Recorder, name: str, original: Any) -> Callable[..., Any]:
    def call(path: Any = ".", *rest: Any, **options: Any) -> Any:
        seen.about(name, seen.place(path) if isinstance(path, str | os.PathLike) else None, changes=False)
        return original(path, *rest, **options)

    return call


def _reading_open(seen: Recorder, original: Any) -> Callable[..., Any]:
    def call(fileno: int, *rest: Any) -> Any:
        seen.about("pread", seen.place_of(fileno), changes=False)
        return original(fileno, *rest)

    return call


def _unheard_of(seen: Recorder, name: str, original: Any) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        ours = [seen.place_of(at) if isinstance(at, int) and name != "truncate" else seen.place(at)
                for at in arguments[:2]]
        assert ours == [None] * len(ours), f"os.{name} is a call that this harness cannot replay yet"
        return original(*arguments, **options)

    return call


class _Stream(io.FileIO):
    """A file opened with `open`, whose writes go the way of `os.write`."""

    def write(self, data: Any) -> int:
        return os.write(self.fileno(), data)

    def truncate(self, size: int | None = None) -> int:
        wanted = self.tell() if size is None else size
        os.ftruncate(self.fileno(), wanted)
        return wanted


def _opening_a_stream(seen: Recorder) -> Callable[..., Any]:
    def call(file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
             newline: str | None = None, closefd: bool = True,
             opener: Callable[[str, int], int] = lambda path, flags: os.open(path, flags, 0o666)) -> Any:
        if isinstance(file, int) and buffering == 0 and "r" not in mode and seen.place_of(file) is not None:
            return _Stream(file, mode.replace("b", ""), closefd)
        if isinstance(file, int) or seen.place(file) is None:
            return _io_open(file, mode, buffering, encoding, errors, newline, closefd,
                            None if isinstance(file, int) else opener)
        if set(mode) <= set("rbt"):
            seen.about("open", seen.place(file), changes=False)
            return _io_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _Stream(file, mode.replace("t", "").replace("b", ""), opener=opener)
        if buffering == 0:
            return raw
        stream = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)     # type: ignore[arg-type]
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding, errors, newline)

    return call


# Berkeley DB

OURS = {"mboxlist", "store", "imap", "pop3", "lmtp", "tools", "tests"}       # where a function of ours is imported to

_HOOKS = {
    "open": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, use_errno=True),
    "pwrite": ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64,
                               use_errno=True),
    "write": ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, use_errno=True),
    "pread": ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64,
                              use_errno=True),
    "fsync": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, use_errno=True),
    "ftruncate": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int64, use_errno=True),
    "rename": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, use_errno=True),
    "unlink": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, use_errno=True)}


def _library() -> ctypes.CDLL:
    """The very library that the berkeleydb module has loaded."""
    from mboxlist.engine import kv
    assert kv.db
    with _io_open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/libdb" in line}
    assert len(paths) == 1, f"Berkeley DB is in {paths or 'no library of its own'}"
    return ctypes.CDLL(paths.pop())


def _on_database(seen: Recorder) -> None:
    library = _library()
    calls = _database_calls(seen)
    for name, kind in _HOOKS.items():
        hook = kind(_with_errno(calls[name], by_value=name == "fsync"))
        setter = getattr(library, f"db_env_set_func_{name}")
        setter.argtypes = [kind]
        setter(hook)
        seen.undo(lambda setter=setter, kind=kind, hook=hook: setter(kind()) and None)   # type: ignore[misc]


def _with_errno(work: Callable[..., int], *, by_value: bool) -> Callable[..., int]:
    """As a function of C: -1 and errno for an error, or (libdb 5.3's __os_fsync wants that of its hook) its number."""
    def call(*arguments: Any) -> int:
        try:
            return work(*arguments)
        except OSError as error:
            code = error.errno or errno.EIO
            ctypes.set_errno(code)
            return code if by_value else -1
        except BaseException as error:          # a mistake of the harness must not go unnoticed in a C library
            sys.excepthook(type(error), error, error.__traceback__)
            os._exit(70)

    return call


def _database_calls(seen: Recorder) -> dict[str, Callable[..., int]]:
    def open_(path: bytes, flags: int, mode: int) -> int:
        place = seen.place(path)
        seen.about("open", place, changes=bool(flags & os.O_CREAT), database=True)
        existed = os.path.lexists(path)
        fileno = _open(path, flags, mode)
        if place is not None and not stat.S_ISDIR(os.fstat(fileno).st_mode):
            seen.opened(place, fileno, existed, flags)
        os.set_inheritable(fileno, False)
        return fileno

    def pwrite(fileno: int, data: int, size: int, offset: int) -> int:
        place = seen.place_of(fileno)
        seen.about("write", place, database=True)
        octets = ctypes.string_at(data, size)
        done = _pwrite(fileno, octets, offset)
        if place is not None:
            seen.wrote(fileno, offset, octets[:done])
        return done

    def write(fileno: int, data: int, size: int) -> int:
        offset = _lseek(fileno, 0, os.SEEK_CUR)
        done = pwrite(fileno, data, size, offset)
        _lseek(fileno, offset + done, os.SEEK_SET)
        return done

    def pread(fileno: int, data: int, size: int, offset: int) -> int:
        seen.about("pread", seen.place_of(fileno), changes=False, database=True)
        octets = os.preadv(fileno, [(ctypes.c_char * size).from_address(data)], offset)
        return octets

    def sync(fileno: int) -> int:
        place = seen.place_of(fileno)
        seen.about_to_sync(fileno, place, database=True)
        _fsync(fileno)
        if place is not None:
            seen.synced(fileno, place)
        return 0

    def ftruncate(fileno: int, size: int) -> int:
        place = seen.place_of(fileno)
        seen.about("truncate", place, database=True)
        _ftruncate(fileno, size)
        if place is not None:
            seen.truncated(fileno, size)
        return 0

    def rename(old: bytes, new: bytes) -> int:
        place, to = seen.place(old), seen.place(new)
        seen.about("rename", place, database=True)
        _rename(old, new)
        if place is not None and to is not None:
            seen.named("rename", place, to)
        return 0

    def unlink(path: bytes) -> int:
        place = seen.place(path)
        seen.about("unlink", place, database=True)
        _unlink(path)
        if place is not None:
            seen.named("unlink", place)
        return 0

    return {"open": open_, "pwrite": pwrite, "write": write, "pread": pread, "fsync": sync, "ftruncate": ftruncate,
            "rename": rename, "unlink": unlink}


def _on_syncfs(seen: Recorder) -> None:
    """`messagefiles.sync_file_system`, wherever it has been imported to."""
    from store.partition import messagefiles
    original = messagefiles.sync_file_system

    def sync_file_system(folder: Path | int) -> None:
        if isinstance(folder, int):
            place = seen.place_of(folder)
        else:
            os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
            place = seen.place(folder)
        seen.about_to_sync_all(place)
        if place is not None:
            seen.events.append(Event("sync all", place))

    for module, name in _where_it_is(original, len(sys.modules)):
        seen.replace(module, name, sync_file_system)


@cache
def _where_it_is(function: Any, modules: int) -> list[tuple[Any, str]]:
    """The modules that have that function, and its name there, once so many modules have been loaded."""
    return [(module, name) for module in [module for name, module in sys.modules.items() if name.split(".")[0] in OURS]
            for name, value in list(vars(module).items()) if value is function]
