"""docs/upgrade.md and docs/uninstall.md carried out as they stand, by root, in a root folder of their own that ends
with them (issue 22, section 5). Three commands are stood in for: systemctl, which starts and stops what the unit's
ExecStart says, as its user; the installation of Python packages, which would ask the network; apt-get, which is only
noted."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.processes.ports import free_port

LIMIT = 600
PYTHON = Path(sys.base_prefix)
ENTER = """set -e
root=$1; shift
for name in usr bin sbin lib lib64 dev; do
    if [ -d /$name ]; then mkdir -p $root/$name; mount --rbind /$name $root/$name; fi
done
mount --bind $root/local $root/usr/local
mount -t proc proc $root/proc
for path in "$@"; do mkdir -p $root$path; mount --bind $path $root$path; done
mount --bind $root/stubs/python.sh $root$1/tools/packages/python.sh
exec chroot $root /usr/bin/env -i PATH=/stubs:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/ bash -e /stubs/run
"""
STUBS = {
    "python3": '[ "$1 $2" = "-m venv" ] && mkdir -p "$3/bin"\n',
    "python.sh": f'ln -s {sys.prefix}/bin/onecopy $1/bin/onecopy\n',
    "apt-get": 'echo "$@" >> /stubs/apt\n',
    "systemctl": """unit=/etc/systemd/system/onecopy.service
case "$1" in
start)
    install -d -o onecopy -g onecopy -m 700 /var/lib/onecopy
    program=$(sed -n 's/^ExecStart=//p' $unit)
    setsid runuser -u onecopy -- $program > /var/log/onecopy 2>&1 < /dev/null & echo $! > /run/pid
    for i in $(seq 600); do grep -q 'serving: ' /var/log/onecopy && exit 0; kill -0 $(cat /run/pid); sleep 0.1; done
    exit 1 ;;
stop|disable)
    kill $(cat /run/pid) 2> /dev/null || exit 0
    while kill -0 $(cat /run/pid) 2> /dev/null; do sleep 0.1; done ;;
daemon-reload) ;;
*) exit 1 ;;
esac
""",
}
BEFORE = """cd {root}
python3 -m venv /opt/onecopy; bash tools/packages/python.sh /opt/onecopy
ln -s /opt/onecopy/bin/onecopy /usr/local/bin/onecopy
cp docs/deploy/onecopy.service /etc/systemd/system/
systemctl start onecopy
echo secret | onecopy user add --password-stdin alice
printf 'Subject: kept\\n\\nIt is still there.\\n' | onecopy deliver alice
"""
LOOK = "grep -q 'It is still there' $(onecopy path alice INBOX 1)\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="it makes a root folder: root must run it")


def commands(page: str, indent: int = 7) -> str:
    """The lines of a page that are to be typed, in their order: those of its steps, or of other paragraphs."""
    return "".join(re.findall(rf"^ {{{indent}}}(\S.*\n)", (ROOT / "docs" / page).read_text(), re.MULTILINE))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root folder: this machine's programs, an /etc and the rest of its own."""
    made = tmp_path / "root"
    for name in ("proc", "run", "opt", "srv", "stubs", "var/lib", "var/log", "var/spool", "tmp", "local/bin",
                 "local/share/man/man1", "root"):
        (made / name).mkdir(parents=True)
    for folder in (tmp_path, *made.rglob("*"), made):
        folder.chmod(0o755)
    (made / "tmp").chmod(0o1777)
    shutil.copytree("/etc", made / "etc", symlinks=True, ignore=shutil.ignore_patterns("onecopy"),
                    copy_function=shutil.copy2, dirs_exist_ok=True)
    (made / "etc").chmod(0o755)
    (made / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
    for name, line in (("passwd", "onecopy:x:61000:61000::/nonexistent:/usr/sbin/nologin\n"),
                       ("group", "onecopy:x:61000:\n"), ("shadow", "onecopy:!:19000::::::\n")):
        with (made / "etc" / name).open("a") as file:
            file.write(line)
    (made / "etc/onecopy").mkdir(mode=0o755)
    ports = "\n".join(f"[{kind}]\nport = {free_port()}\ntls_port = 0\n" for kind in ("imap", "pop3", "lmtp"))
    (made / "etc/onecopy/onecopy.toml").write_text(f'root = "/var/lib/onecopy"\n{ports}')
    (made / "etc/onecopy/onecopy.toml").chmod(0o644)
    for name, text in STUBS.items():
        (made / "stubs" / name).write_text(f"#!/bin/bash\n{text}")
        (made / "stubs" / name).chmod(0o755)
    return made


def run(root: Path, script: str) -> None:
    (root / "stubs/run").write_text(script)
    seen = dict.fromkeys((ROOT, PYTHON, Path(sys.prefix)))
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
                           "/bin/sh", "-c", ENTER, "sh", root, *seen], capture_output=True, text=True, timeout=LIMIT,
                          check=False)
    log = root / "var/log/onecopy"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")


def test_an_upgrade_the_way_back_and_the_end(root: Path) -> None:
    run(root, "\n".join((
        "set -x", BEFORE.format(root=ROOT), commands("upgrade.md"), LOOK, "test -d /opt/onecopy-old",
        commands("upgrade.md", 4), LOOK, commands("uninstall.md"))))
    left = {path.name for folder in ("opt", "local", "var/lib", "var/spool", "etc", "tmp")
            for path in (root / folder).rglob("onecopy*")}
    assert left == {"onecopy-later"}                # what was moved away, by hand
    assert "onecopy" not in (root / "etc/passwd").read_text()
    assert (root / "srv/export").is_dir() and (root / "stubs/apt").read_text().startswith("remove libdb5.3-dev")
