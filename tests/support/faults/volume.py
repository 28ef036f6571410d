"""A small file system of its own, to be filled up."""

import errno
import itertools
import os
import shutil
import subprocess
from pathlib import Path

TRIES = 50


class Volume:
    """A tmpfs of so many octets, and files and folders, mounted at `folder` between entry and exit."""

    def __init__(self, folder: Path, size: int, inodes: int = 100_000) -> None:
        self.folder = folder
        self._size = size
        self._inodes = inodes
        self._ballast = folder / "ballast"

    def __enter__(self) -> "Volume":
        self.folder.mkdir()
        options = f"size={self._size},nr_inodes={self._inodes},mode=0700"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "onecopy-test", self.folder],
                              capture_output=True, check=False, timeout=180)
        assert done.returncode == 0, \
            f"this test fills a file system up, and must be root and allowed to mount one: {done.stderr.decode()}"
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", self.folder], check=True, timeout=180)
        self.folder.rmdir()

    @property
    def free(self) -> int:
        """Octets left."""
        figures = os.statvfs(self.folder)
        return figures.f_bavail * figures.f_frsize

    def fill(self, leave: int) -> None:
        """Take everything but so many octets, or as many as a server that writes meanwhile has left."""
        for _ in range(TRIES):
            try:
                with self._ballast.open("ab") as file:
                    os.posix_fallocate(file.fileno(), file.tell(), max(1, self.free - leave))
                return
            except OSError as error:
                assert error.errno == errno.ENOSPC
                if self.free <= leave:
                    return
        raise AssertionError("the free room changes all the time")

    def fill_inodes(self) -> None:
        """Have so many files that there can be no more, while there is room for octets."""
        self._ballast.mkdir()
        for number in itertools.count():
            try:
                (self._ballast / str(number)).touch()
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return

    def release(self) -> None:
        """Give back what was filled."""
        if self._ballast.is_dir():
            shutil.rmtree(self._ballast)
        else:
            self._ballast.unlink()
