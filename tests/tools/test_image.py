"""The container image, as `tools/package image` builds it, with buildah; and run from what it has written.

No registry of images is asked: it begins with the Debian of tests/support/servers/debianroot.py. A container engine
needs more of its host than a test machine has, so what the image says is done in a root folder made of its layers: its
command, as its user.
"""

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from store import VERSION
from tests.support import ROOT
from tests.support.processes import wait
from tests.support.servers.debianpackage import made
from tests.support.servers.debianroot import UNPACKED, DebianRoot

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="only root makes root folders")]

STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{0}/graph"\nrunroot = "{0}/run"\n'
POLICY = {"default": [{"type": "insecureAcceptAnything"}]}


@pytest.fixture
def image(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the last line names."""
    folder = tmp_path / "image"
    (folder / "home/.config/containers").mkdir(parents=True)
    (folder / "storage.conf").write_text(STORAGE.format(folder))
    (folder / "home/.config/containers/policy.json").write_text(json.dumps(POLICY))
    buildah = UNPACKED / "buildah/usr"
    libraries = ":".join(str(path) for path in (buildah / "lib").glob("*-linux-gnu*"))
    environment = {**os.environ, "HOME": str(folder / "home"), "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
                   "BUILDAH_ISOLATION": "chroot", "LD_LIBRARY_PATH": libraries,
                   "PATH": f"{buildah / 'bin'}:{os.environ['PATH']}"}
    for words in (["from", "--name", "base", "scratch"], ["add", "--quiet", "base", UNPACKED / "debian-12", "/"],
                  ["commit", "--quiet", "--disable-compression", "--rm", "base", "localhost/debian:12"]):
        subprocess.run(["buildah", *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([ROOT / "tools/package", "image", folder / "made", made("debian-12", tmp_path_factory),
                           "localhost/debian:12"], env=environment, check=True, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE)
    shutil.rmtree(folder / "graph")
    assert done.stdout == f"{folder}/made/onecopy-{VERSION}-image.tar\n"
    return folder / f"made/onecopy-{VERSION}-image.tar"


def test_it_serves_as_its_user_and_its_health_is_good(image: Path, tmp_path: Path) -> None:
    with DebianRoot(tmp_path, "debian-12") as debian, tarfile.open(image) as archive:
        described, = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(described["Config"]))["config"]
        assert set(described["RepoTags"]) == {f"localhost/onecopy:{VERSION}"}
        assert config["User"] == "onecopy" and config["Volumes"] == {"/var/lib/onecopy": {}}
        for number, layer in enumerate(described["Layers"]):
            archive.extract(layer, debian.path / f"var/tmp/layers/{number}", filter="data")
        debian.run("mkdir /var/tmp/whole\nfor layer in $(find /var/tmp/layers -name '*.tar' | sort); do "
                   "tar -C /var/tmp/whole -xf $layer; done; test ! -e /var/tmp/whole/var/tmp/onecopy.deb")
        for name in ("proc", "dev"):
            debian.bind(debian.folder / "root" / name, f"/var/tmp/whole/{name}")
        shown = " ".join(f"'{line}'" for line in config["Env"])
        enter = f"exec chroot --userspec {config['User']}:onecopy /var/tmp/whole env -i {shown}"
        log = debian.path / "var/tmp/log"
        words = " ".join([*config["Entrypoint"], *config["Cmd"]])
        server = subprocess.Popen(debian.words(
            "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start; "        # as container engines have it
            f"{enter} {words} >/var/tmp/log 2>&1"), stdin=subprocess.DEVNULL)
        try:
            wait.until(lambda: log.exists() and "serving: " in log.read_text() or None, "the server", pid=server.pid,
                       limit=240)
            kind, *check = config["Healthcheck"]["Test"]
            assert kind == "CMD"
            quoted = " ".join(f'"{word}"' for word in check)
            debian.run(f"{enter} {quoted}")
            assert debian.run(f"{enter} onecopy --version") == f"onecopy {VERSION}\n"
            debian.run(f"kill -TERM {log.read_text().split()[1]}")
            assert server.wait(240) == 0, log.read_text()
            debian.run(f"{enter} {quoted}", status=1)          # without a server it is not healthy
        finally:
            server.kill()
            server.wait()
