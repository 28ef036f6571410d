"""A relay of a Debian package that was unpacked and not installed: with a root folder of its own, paths and users are
right.

The folder is this machine's /bin and /lib, the package's /usr, and an /etc and a /var of its own, put together in a
mount namespace that ends with the program: nothing of the machine is changed. tools/packages/unpacked.list names the
packages.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import wait
from tests.support.servers.relay import STOP, Relay

UNPACKED = Path(sys.prefix) / "unpacked"
COMMAND = 180            # seconds

_ENTER = """\
set -e
mount --bind "$1/usr" "$2/usr"
for name in bin dev lib lib64; do
    if [ -d "/$name" ]; then
        mkdir -p "$2/$name"
        mount --bind "/$name" "$2/$name"
    fi
done
shift 2
exec chroot "$@"
"""


class Unpacked(Relay):
    """`command` stays in the foreground; `users` are there besides root, each with a group of the same name."""

    command: Sequence[str]
    users: Sequence[str]

    def __init__(self) -> None:
        if os.getuid() != 0:
            raise AssertionError(f"{self.name} can only be started by root: run these tests as root")
        self._package = UNPACKED / self.name.lower()
        if not self._package.is_dir():
            raise AssertionError(f"{self.name} is not unpacked: tools/test does that")
        super().__init__()
        for name in ("usr", "tmp", "etc", "var/log", "run"):
            (self.folder / name).mkdir(mode=0o755, parents=True)
        (self.folder / "tmp").chmod(0o1777)
        (self.folder / "var/run").symlink_to("/run")
        self._ids = {"root": 0, **{name: 60_000 + place for place, name in enumerate(self.users)}}
        self.write("etc/passwd", "".join(f"{name}:x:{id}:{id}::/nonexistent:/usr/sbin/nologin\n"
                                         for name, id in self._ids.items()))
        self.write("etc/group", "".join(f"{name}:x:{id}:\n" for name, id in self._ids.items()))
        self.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
        self.write("etc/hosts", "127.0.0.1 localhost\n")
        self.write("etc/resolv.conf", "nameserver 127.0.0.1\n")       # nobody is there: nothing is asked of the DNS
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Unpacked":
        with (self.folder / "var/log/said").open("ab") as log:
            self._process = subprocess.Popen(self._inside(self.command), stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=subprocess.STDOUT)
        self.pid = self._process.pid
        try:
            self.started()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            wait.ended(self._process, self.name, limit=STOP)
        shutil.rmtree(self.folder)

    def write(self, path: str, text: str) -> None:
        """A file below the root folder."""
        (self.folder / path).write_text(text)

    def own(self, path: str, user: str, mode: int) -> None:
        """Make a folder that belongs to a user and the group of the same name."""
        folder = self.folder / path
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, self._ids[user], self._ids[user])
        folder.chmod(mode)

    def run(self, *command: str, group: str = "root") -> str:
        """What a program of the package says, run by root with this group. It must succeed."""
        done = subprocess.run(self._inside(command, group), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=COMMAND, check=False)
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{' '.join(command)}: status {done.returncode}\n{said}\n{self.log()[-8000:]}"
        return said

    def log(self) -> str:
        return "".join(file.read_text(errors="replace") for file in sorted((self.folder / "var/log").rglob("*"))
                       if file.is_file())

    def _inside(self, command: Sequence[str], group: str = "root") -> list[str | Path]:
        return ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", _ENTER, "sh",
                self._package, self.folder, f"--userspec=0:{self._ids[group]}", self.folder, *command]
