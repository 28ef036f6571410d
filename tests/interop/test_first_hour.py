"""docs/first-hour.md, typed word by word into a fresh Debian of the test's own: the package, a certificate, LDAP,
Postfix, a web server; then alice reads her mail in Thunderbird, which has found it all by itself, and in Roundcube.

The packages that the page installs from Debian are in that system already, so that nothing is fetched; there is no
systemd: `systemctl` starts what the unit would start. How long each step takes is printed. It is Debian 12, unless
FIRST_HOUR=debian-13 chooses the other: its system is made then, in a quarter of an hour or less.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from store import VERSION
from tests.support import ROOT
from tests.support.clients.chromium import running
from tests.support.clients.thunderbird import Thunderbird
from tests.support.clients.webmail import Webmail
from tests.support.servers.debianpackage import made
from tests.support.servers.debianroot import UNPACKED, DebianRoot

PAGE = ROOT / "docs/first-hour.md"
HOSTS = ("mail.example.org", "autoconfig.example.org", "smtp.example.org")
LIMIT = 300.0
START = "systemctl restart onecopy\n"
# Debian's packages also have what a system without systemd starts. PHP's unit makes a link to the socket, of which the
# name is the same for every PHP. On a busy machine a slapd that is stopped may still have the port.
SYSTEMCTL = """#!/bin/sh
mkdir -p /run/php
for script in /etc/init.d/$2; do
    "$script" "$1" || exit
    [ "$2" != slapd ] || for try in $(seq 60); do
        ldapwhoami -x -H ldap://127.0.0.1 >/dev/null 2>&1 && break
        sleep 1
        "$script" start >/dev/null
    done
    sed -n 's/^ExecStartPost=-//p' "/usr/lib/systemd/system/${script##*/}.service" 2>/dev/null | sh
done
"""
SAID = {"onecopy directory test alice\n": "alice@example.org", "onecopy messages search -u alice ALL\n": "INBOX",
        "curl": "<hostname>mail.example.org</hostname>\n      <port>993</port>"}

SYSTEM = os.environ.get("FIRST_HOUR", "debian-12")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")


def steps() -> Iterator[tuple[str, list[str]]]:
    """The headings of the page, each with what is to be typed."""
    for part in PAGE.read_text().split("\n## ")[1:]:
        yield part.partition("\n")[0], re.findall(r"^```sh\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)


def fresh() -> str:
    """The name of the root folder. That of Debian 12 is there; of the other it is made once, with the same packages."""
    if SYSTEM == "debian-12":
        return "first-hour"
    name, (suite, *_) = f"first-hour-{SYSTEM}", packages(SYSTEM)
    if not (UNPACKED / name).exists():
        _, *wanted = packages("first-hour")
        subprocess.run(["bash", ROOT / "tools/packages/root.sh", UNPACKED / name, suite, *wanted], check=True)
    return name


def packages(name: str) -> list[str]:
    """What tools/packages/roots.list says of a root folder: the suite, and packages."""
    lines = (ROOT / "tools/packages/roots.list").read_text().splitlines()
    return next(words[1:] for words in map(str.split, lines) if words[0] == name)


def test_the_first_hour(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    package = made(SYSTEM, tmp_path_factory)
    with DebianRoot(tmp_path, fresh()) as debian, ExitStack() as running_server:
        assert f"onecopy_{VERSION}-1+deb12_amd64.deb" in PAGE.read_text()
        assert package.name.startswith(f"onecopy_{VERSION}-1+deb{SYSTEM.removeprefix('debian-')}_")
        debian.copy(package, f"/var/tmp/{package.name}")
        debian.write("/usr/local/bin/systemctl", SYSTEMCTL, mode=0o755)
        debian.write("/etc/hosts", "127.0.0.1 localhost " + " ".join(HOSTS) + "\n")
        unsaid = dict(SAID)
        for heading, blocks in steps():
            begun = time.monotonic()
            for block in blocks:
                if block == START:
                    running_server.enter_context(debian.serve())
                else:
                    said = debian.run(f"cd /var/tmp\n{block}")
                    for words in [words for words in unsaid if block.startswith(words)]:
                        while unsaid[words] not in said:            # Postfix hands it over when it comes to it
                            assert time.monotonic() < begun + LIMIT, said
                            said = debian.run(block)
                        del unsaid[words]
            print(f"{heading}: {time.monotonic() - begun:.1f} s")
        assert not unsaid
        thunderbird(debian, tmp_path / "thunderbird")
        roundcube(debian, tmp_path / "chromium")


def thunderbird(debian: DebianRoot, folder: Path) -> None:
    """An address and a password are typed, and the message is read."""
    begun = time.monotonic()
    folder.mkdir()
    authority = folder / "ca.pem"
    authority.write_bytes((debian.path / "etc/onecopy/ca.pem").read_bytes())
    hosts = dict.fromkeys(HOSTS, "127.0.0.1")
    with Thunderbird(folder, hosts, authority, debian.network) as program:
        program.set_up("alice@example.org", "secret-of-alice")
        assert "It has arrived." in program.choose("INBOX", "The first message")
    print(f"Thunderbird: {time.monotonic() - begun:.1f} s")


def roundcube(debian: DebianRoot, folder: Path) -> None:
    """alice logs in, reads it, and answers it; bob's server has the answer."""
    begun = time.monotonic()
    with running(folder, debian.network) as browser, browser.context() as page:
        alice = Webmail(page, "https://127.0.0.1")
        alice.log_in("alice", "secret-of-alice")
        alice.choose("The first message")
        alice.open("mail", action="compose")
        page.fill("#_to", "bob@example.org")
        page.press("Tab")
        page.fill("#compose-subject", "The first answer")
        page.fill("#composebody", "It has.")
        page.click("button.send, a.send", loads=True)
        page.until("rcmail.env.task == 'mail' && rcmail.env.action != 'compose'")
        assert page.dialogs == []
    debian.run("""
        for turn in $(seq 600); do
            if onecopy messages search -u bob ALL | grep INBOX; then exit; fi
            sleep 0.1
        done
        postqueue -p
        exit 1""")
    print(f"Roundcube: {time.monotonic() - begun:.1f} s")
