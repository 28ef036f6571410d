"""A small file system of its own, to be filled up."""

import os
import subprocess
from pathlib import Path


class Volume:
    """A tmpfs of so many octets, mounted at `folder` between entry and exit."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self._size = size
        self._ballast = folder / "ballast"

    def __enter__(self) -> "Volume":
        self.folder.mkdir()
        options = f"size={self._size},mode=0700"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "onecopy-test", self.folder],
                              capture_output=True, check=False, timeout=30)
        assert done.returncode == 0, \
            f"this test fills a file system up, and must be root and allowed to mount one: {done.stderr.decode()}"
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", self.folder], check=True, timeout=30)
        self.folder.rmdir()

    @property
    def free(self) -> int:
        """Octets left."""
        figures = os.statvfs(self.folder)
        return figures.f_bavail * figures.f_frsize

    def fill(self, leave: int) -> None:
        """Take everything but so many octets."""
        with self._ballast.open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), self.free - leave)

    def release(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink()
