"""A Debian system of its own, in which a test installs packages and runs what they bring.

Nothing of this machine is changed. tools/packages/roots.list names the systems, which set-up has made in
.venv/unpacked; a test sees a copy that takes its changes (an overlay) in a folder of its own. All runs in namespaces
(files, processes, network) that end with the test, also when it is killed: their first process reads a pipe from us
until its end. So each system has all ports to itself, on its loopback.
There is no systemd: `serve` starts what the unit says, as its user.

    with DebianRoot(tmp_path, "debian-12") as debian:
        debian.copy(deb, "/var/tmp/onecopy.deb")
        debian.run("apt-get install -y /var/tmp/onecopy.deb")      # has a shell's words; text that it printed
        with debian.serve():                                       # ExecStart= of onecopy.service, until it serves
            debian.run("curl -s http://127.0.0.1/")                # in its network, where every port is free
        debian.run("apt-get update", online=True)                  # in this machine's network
        subprocess.run([*debian.network, "chromium", ...])         # a program of this machine in the system's network
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.support.processes import wait

UNPACKED = Path(sys.prefix) / "unpacked"
SYSTEMS = ("debian-12", "debian-13")
LIMIT = 600
UNIT = "usr/lib/systemd/system/onecopy.service"
LOG = "/var/log/serve"          # what a server that `serve` started has written

# The first process. It collects those whose parents have ended, as init does. Arguments: the system, the test's folder.
# What is written is thrown away, so nothing of it is synced (volatile).
_FIRST = """set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/changes,workdir=$2/work,volatile" "$2/root"
cd "$2/root"
mount --rbind /dev dev; mount -t proc proc proc
mount -t tmpfs -o mode=1777 none tmp; mount -t tmpfs -o mode=755 none run
mkdir -p run/lock
ip link set lo up
exec 3<&0
cat <&3 >/dev/null &
echo ready
exec 1>&-
wait
"""
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                "LC_ALL": "C.UTF-8", "USER": "root",
                "DEBIAN_FRONTEND": "noninteractive"}


class DebianRoot:
    """A system that is there within `with`. `path` is its root folder as this machine sees it, through /proc."""

    def __init__(self, folder: Path, system: str) -> None:
        self.lower = UNPACKED / system
        self.folder = folder / f"{system}-root"
        for name in ("changes", "work", "root"):
            (self.folder / name).mkdir(parents=True, mode=0o755)
            (self.folder / name).chmod(0o755)

    def __enter__(self) -> Self:
        self._first = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--propagation",
             "private", "/bin/sh", "-c", _FIRST, "sh", self.lower, self.folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._first.stdout and self._first.stdout.readline() == b"ready\n"
        self.first = _child(self._first.pid)
        self.path = Path(f"/proc/{self.first}/root{self.folder}/root")
        self._prepare()
        return self

    def _prepare(self) -> None:
        """Names are found as this machine finds them, no package starts a daemon, and dpkg syncs nothing."""
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        self.write("/etc/hosts", "127.0.0.1 localhost\n")
        self.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", mode=0o755)
        self.write("/etc/dpkg/dpkg.cfg.d/tests", "force-unsafe-io\n")

    def __exit__(self, *how: object) -> None:
        assert self._first.stdin and self._first.stdout
        self._first.stdin.close()
        self._first.stdout.close()
        try:
            self._first.wait(180)
        except subprocess.TimeoutExpired:
            self._first.kill()
            self._first.wait()
        shutil.rmtree(self.folder)

    @property
    def network(self) -> list[str]:
        """Words before a command of this machine that is to run in the system's network."""
        return ["nsenter", "--target", str(self.first), "--net"]

    def words(self, command: str, *, user: str = "root", online: bool = False, environment: Mapping[str, str] = {},
              ) -> list[str]:
        """The words of a command of this machine that runs the shell's words within the system."""
        spaces = ["--mount", "--pid", "--ipc", "--uts"] + ([] if online else ["--net"])
        shown = [f"{name}={value}" for name, value in {**_ENVIRONMENT, **environment}.items()]
        become = [] if user == "root" else ["runuser", "-u", user, "--"]
        return ["nsenter", "--target", str(self.first), *spaces, "chroot", str(self.folder / "root"), "/usr/bin/env",
                "-i", *shown, *become, "/bin/bash", "-euo", "pipefail", "-c", command]

    def run(self, command: str, *, user: str = "root", online: bool = False, status: int = 0, octets: bytes = b"",
            environment: Mapping[str, str] = {}) -> str:
        """What a command printed, errors included; it must end with that status."""
        done = subprocess.run(self.words(command, user=user, online=online, environment=environment), input=octets,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
        said = done.stdout.decode(errors="replace")
        assert done.returncode == status, f"{command}: {done.returncode}\n{said}"
        return said

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """A file of the system."""
        file = self.path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def copy(self, source: Path, path: str) -> None:
        """A file or folder of this machine into the system."""
        target = self.path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copyfile(source, target)

    def bind(self, source: Path, path: str) -> None:
        """A folder of this machine is seen in the system, to be read."""
        target = self.folder / "root" / path.lstrip("/")
        # The folder is named from within the namespace of files, but what it is comes from this machine's.
        subprocess.run(["nsenter", "--target", str(self.first), "--mount", "sh", "-c",
                        'mkdir -p "$2" && mount --bind -o ro "$1" "$2"', "sh", source, target], check=True)

    @contextmanager
    def serve(self, *before: str | Path) -> Iterator[int]:
        """The server as its unit starts it, until it says that it serves; its process, as the system numbers it.
        `before`: words of this machine before those of the command."""
        unit = dict(line.split("=", 1) for line in (self.path / UNIT).read_text().splitlines()
                    if "=" in line and not line.startswith("#"))
        for kind, folder in (("State", "lib"), ("Logs", "log")):
            self.run(f"install -d -o {unit['User']} -g {unit['Group']} -m {unit[f'{kind}DirectoryMode']} "
                     f"/var/{folder}/{unit[f'{kind}Directory']}")
        allowed = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in unit["AmbientCapabilities"].split())
        log = self.path / LOG.lstrip("/")
        log.unlink(missing_ok=True)
        process = subprocess.Popen([*before, *self.words(
            f"umask {unit['UMask']}; exec setsid setpriv --reuid {unit['User']} --regid {unit['Group']} --init-groups "
            f"--inh-caps=-all{allowed} --ambient-caps=-all{allowed} --bounding-set=-all{allowed} --no-new-privs "
            f"{unit['ExecStart']} >{LOG} 2>&1")], stdin=subprocess.DEVNULL)
        try:
            wait.until(lambda: log.exists() and "serving: " in log.read_text() or None, "the server", pid=process.pid,
                       limit=300)
            server = int(log.read_text().rpartition("serving: ")[0].splitlines()[-1].split()[1])
            yield server
            self.run(f"kill -TERM {server}")
            assert process.wait(300) == 0, log.read_text()
        except wait.Died:
            raise AssertionError(log.read_text()) from None
        finally:
            process.kill()
            process.wait()


def _child(pid: int) -> int:
    """The process that `unshare` or `nsenter` has forked, which is in the new namespace."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
