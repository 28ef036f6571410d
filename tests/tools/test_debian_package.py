"""The Debian package, built as `tools/package deb` builds it, in Debian 13 for Python 3.13, too: installed, used,
upgraded, removed and purged in systems of their own (tests/support/servers/debianroot.py). Nothing is fetched there:
what the package needs is Debian's, or comes along. (In Debian 13 it is installed, used and purged; DEBIANS=all: all of
it.)"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import VERSION
from tests.support import ROOT
from tests.support.servers.debianpackage import PYTHON, made
from tests.support.servers.debianroot import SYSTEMS, DebianRoot

EARLIER = "0.0.9"
LIVED_IN = SYSTEMS if os.environ.get("DEBIANS") == "all" else SYSTEMS[:1]
MAIL = b"From: ada@example.org\nSubject: kept\n\nIt is still there.\n"

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")]


@pytest.fixture(scope="module", params=SYSTEMS[::-1])       # that of Debian 12 is made by another process, perhaps
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def deb(system: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(system, tmp_path_factory)


@pytest.fixture
def debian(system: str, deb: Path, tmp_path: Path) -> Iterator[DebianRoot]:
    """A system with the package's file in it."""
    with DebianRoot(tmp_path, system) as root:
        root.copy(deb, "/var/tmp/onecopy.deb")
        yield root


def earlier(debian: DebianRoot) -> None:
    """The package of an earlier version: this one, with its number changed wherever it stands."""
    debian.run(f"""
        cd /var/tmp; dpkg-deb -R onecopy.deb before
        sed -i 's/^Version: {VERSION}/Version: {EARLIER}/' before/DEBIAN/control
        cd before/usr/lib/onecopy/lib/python3*/site-packages
        sed -i 's/{VERSION}/{EARLIER}/' onecopy/store/__init__.py
        rm onecopy/store/__pycache__/__init__.*
        echo 'gone = 1' >onecopy/store/ofbefore.py
        cd /var/tmp; echo '# of before' >>before/etc/onecopy/onecopy.toml
        dpkg-deb -Znone -b before before.deb""")


def test_its_name_and_number(deb: Path, system: str) -> None:
    number = system.removeprefix("debian-")
    assert re.fullmatch(rf"onecopy_{re.escape(VERSION)}-1\+deb{number}_\w+\.deb", deb.name)


def use(debian: DebianRoot, system: str) -> None:
    """Its folders, user and unit are there. It serves: a message goes in and comes out, with Debian's own Python."""
    assert debian.run("stat -c '%U %G %a' /var/lib/onecopy /var/log/onecopy") == (
        "onecopy onecopy 700\nonecopy adm 750\n")
    assert debian.run("id -nG onecopy; getent passwd onecopy | cut -d: -f6-") == (
        "onecopy\n/var/lib/onecopy:/usr/sbin/nologin\n")
    wanted = "/etc/systemd/system/multi-user.target.wants/onecopy.service"
    assert debian.run(f"readlink -e {wanted} | sed 's#^/usr##'") == "/lib/systemd/system/onecopy.service\n"
    with debian.serve():
        debian.run("echo secret | onecopy user add --password-stdin alice")
        assert debian.run("onecopy deliver alice", octets=MAIL) == "alice INBOX 1\n"
        said = debian.run("python3 -c '\nimport imaplib, sys\nbox = imaplib.IMAP4(\"127.0.0.1\")\n"
                          "box.starttls()\nbox.login(\"alice\", \"secret\")\nbox.select()\n"
                          "print(sys.version_info[:2], box.fetch(\"1\", \"BODY[TEXT]\")[1][0][1])'")
        assert said == f"({PYTHON[system].replace('.', ', ')}) b'It is still there.\\r\\n'\n"
        assert debian.run("onecopy check") == "nothing wrong was found\n"


def purge(debian: DebianRoot) -> None:
    """Nothing is left but the mail."""
    said = debian.run("dpkg -P onecopy")
    assert "the mail stays in /var/lib/onecopy" in said
    assert debian.run("find / -xdev -name '*onecopy*' -not -path '/var/tmp/*' -not -path '/var/lib/onecopy/*'") == (
        "/var/lib/onecopy\n")
    assert "still there" in debian.run("grep -rh 'still there' /var/lib/onecopy/store/partitions/primary/messages")
    assert debian.run("stat -c %U /var/lib/onecopy") == "onecopy\n"


@pytest.mark.parametrize("system", LIVED_IN, indirect=True)
def test_a_life_of_it(debian: DebianRoot, system: str) -> None:
    """Installed, used, upgraded, used, removed, installed again with the settings that come along, purged."""
    earlier(debian)
    debian.run("dpkg -i /var/tmp/before.deb")
    assert debian.run("onecopy --version") == f"onecopy {EARLIER}\n"
    use(debian, system)
    # Settings that were changed stay, and so does the user; what this version does not have goes.
    debian.run("echo '[store]\ndefault_quota = \"7M\"' >/etc/onecopy/onecopy.toml")
    said = debian.run("dpkg --force-confold -i /var/tmp/onecopy.deb")
    assert "(" + EARLIER in said and "default_quota" in debian.run("cat /etc/onecopy/onecopy.toml")
    assert not debian.run("find /usr/lib/onecopy -name 'ofbefore*'")
    assert debian.run("onecopy --version") == f"onecopy {VERSION}\n"
    debian.run("echo 'root = \"/var/lib/onecopy/store\"' | cat - /etc/onecopy/onecopy.toml >/var/tmp/settings; "
               "cp /var/tmp/settings /etc/onecopy/onecopy.toml")
    with debian.serve():
        assert "still there" in debian.run("cat $(onecopy path alice INBOX 1)")
        assert debian.run("onecopy deliver alice", octets=MAIL.replace(b"kept", b"new")) == "alice INBOX 2\n"
    assert "nothing wrong" in debian.run("onecopy check")
    # Removed: settings and mail stay, the program is gone.
    debian.run("dpkg -r onecopy")
    assert not debian.run("find /usr -xdev -name '*onecopy*'")
    assert debian.run("cat /etc/onecopy/onecopy.toml /var/tmp/settings | sort | uniq -u") == ""
    debian.run("rm /etc/onecopy/onecopy.toml; dpkg --force-confmiss -i /var/tmp/onecopy.deb")
    debian.run("onecopy path alice INBOX 2")
    comes_along(debian)
    purge(debian)


@pytest.mark.parametrize("system", [each for each in SYSTEMS if each not in LIVED_IN], indirect=True)
def test_it_is_used(debian: DebianRoot, system: str) -> None:
    """Installed, used, purged."""
    debian.run("dpkg -i /var/tmp/onecopy.deb")
    comes_along(debian)
    use(debian, system)
    purge(debian)


def comes_along(debian: DebianRoot) -> None:
    """The manual, completions, settings that say nothing, a unit that is the one of docs/deploy, and rotation."""
    assert debian.run("gzip -dc /usr/share/man/man1/onecopy.1.gz").startswith(".")
    for path in ("bash-completion/completions/onecopy", "zsh/vendor-completions/_onecopy",
                 "fish/vendor_completions.d/onecopy.fish"):
        assert "onecopy" in debian.run(f"cat /usr/share/{path}")
    assert debian.run("dpkg-query -W -f '${Conffiles}\\n' onecopy | awk 'NF { print $1 }' | sort").split() == [
        "/etc/apparmor.d/onecopy", "/etc/logrotate.d/onecopy", "/etc/onecopy/onecopy.toml"]
    debian.run("onecopy config check")
    # Each line that is a comment with a setting in it is one that there is.
    debian.run("sed -E 's/^# ([a-z_]+ = )/\\1/' /etc/onecopy/onecopy.toml >/var/tmp/all.toml; "
               "sed -i '/certificate = \\|key = \\|socket = /d' /var/tmp/all.toml; "
               "onecopy config show --config /var/tmp/all.toml")
    ours = (ROOT / "docs/deploy/onecopy.service").read_text().splitlines()[1:]
    theirs = debian.run("tail -n +2 /usr/lib/systemd/system/onecopy.service").splitlines()
    assert [line.replace("/opt/onecopy/bin", "/usr/bin") for line in ours] == theirs
    debian.run("cd /var/log/onecopy; find . -type f -delete; echo line >onecopy.log; chown onecopy: onecopy.log; "
               "logrotate --force /etc/logrotate.d/onecopy")
    assert debian.run("ls /var/log/onecopy") == "onecopy.log.1\n"
    assert debian.run("zcat /usr/share/doc/onecopy/changelog.gz | head -1 || true") == "# Changelog\n"
    # What was installed is what the sums say, and each file has one. Who has no manual yet may read it afterwards.
    assert "runtime" not in debian.run("dpkg -V onecopy")
    listed = debian.run("dpkg-deb -c /var/tmp/onecopy.deb").splitlines()
    assert {line.split()[0] for line in listed} <= {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"}
    files = {line.partition(" ./")[2] for line in listed if line.startswith("-")}
    summed = debian.run("cut -c35- /var/lib/dpkg/info/onecopy.md5sums").splitlines()
    assert set(summed) == {file for file in files if not file.startswith("etc/")}
