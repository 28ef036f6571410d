"""The Debian package of this working copy, made once for all processes of a test run."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.servers.debianroot import DebianRoot

PYTHON = {"debian-12": "3.11", "debian-13": "3.13"}
_LOCKS = ROOT / "tools/packages"


def made(system: str, factory: pytest.TempPathFactory) -> Path:
    """Its file. Who asks while another process makes it waits."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"deb-{system}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (there := list(folder.glob("*.deb"))):
            there = [_make(system, folder)]
    return there[0]


def _make(system: str, folder: Path) -> Path:
    """By `tools/package deb`, whose last line names the file: on this machine for its Debian, or in the other."""
    if Path("/etc/debian_version").read_text().partition(".")[0] == system.removeprefix("debian-"):
        done = subprocess.run([ROOT / "tools/package", "deb", folder], check=True, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE).stdout
        return Path(done.splitlines()[-1])
    wheels = folder / "wheels"
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation",
                    "--python-version", PYTHON[system], "--require-hashes", "--requirement", _LOCKS / "runtime.lock",
                    "--requirement", _LOCKS / "build.lock", "--dest", wheels], check=True)
    with DebianRoot(folder, system) as debian:
        debian.bind(ROOT, "/src")
        debian.bind(wheels, "/wheels")
        said = debian.run("/src/tools/package deb /var/tmp/dist", environment={
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}).splitlines()[-1]
        return Path(shutil.move(debian.path / said.lstrip("/"), folder / Path(said).name))
