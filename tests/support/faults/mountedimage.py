"""An ext4 file system in a file, which can be made to meet an error: then it is read-only until it has been mended."""

import os
import subprocess
from pathlib import Path
from types import TracebackType


class MountedImage:
    """Mounted at `folder` between entry and exit, by way of a loop device."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self._image = folder.with_suffix(".image")
        self._size = size

    def __enter__(self) -> "MountedImage":
        with self._image.open("wb") as file:
            file.truncate(self._size)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self.folder.mkdir()
        self.mount()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.unmount(lazy=True)
        self._image.unlink()

    def mount(self, *options: str) -> None:
        """Have it there."""
        _run("mount", "-o", ",".join(("loop", "errors=remount-ro", *options)), str(self._image), str(self.folder))
        self.folder.chmod(0o700)

    def remount(self, option: str) -> None:
        """Have it there in another way: ro, rw."""
        _run("mount", "-o", f"remount,{option}", str(self.folder))

    def unmount(self, *, lazy: bool = False) -> None:
        """Have it there no more. Without `lazy` that fails while anybody has a file in it open."""
        _run("umount", *(["--lazy"] if lazy else []), str(self.folder))

    def meet_an_error(self) -> None:
        """As when the disk has returned an error (Documentation/ABI/testing/sysfs-fs-ext4)."""
        Path("/sys/fs/ext4", self._device.name, "trigger_fs_error").write_text("1")

    def mend(self) -> None:
        """What an administrator does: nobody can make it writable without.

        A copy of the image is mended and mounted: where another process has taken the mount along into a name space of
        its own, the kernel would give the same file system again, with its error.
        """
        with open(self._device, "rb") as device:
            os.fsync(device)
        self.unmount()
        before, self._image = self._image, self._image.with_suffix(".mended")
        _run("cp", "--sparse=always", str(before), str(self._image))
        before.unlink()
        _run("e2fsck", "-f", "-y", str(self._image), status=(0, 1))
        self.mount()

    @property
    def _device(self) -> Path:
        return Path(_run("findmnt", "-no", "SOURCE", str(self.folder)).strip())


def _run(*words: str, status: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode in status, f"{' '.join(words)}: {done.stderr} (this test mounts, and must be root)"
    return done.stdout
