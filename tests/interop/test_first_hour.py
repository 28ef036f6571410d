"""docs/first-hour.md, typed word by word into a fresh Debian 12 of the test's own: the package, a certificate, LDAP,
Postfix, a web server; then alice reads her mail in Thunderbird, which has found it all by itself, and in Roundcube.

The packages that the page installs from Debian are in that system already, so that nothing is fetched; there is no
systemd: `systemctl` starts what the unit would start. How long each step takes is printed.
"""

import os
import re
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
from tests.support.servers.debianroot import DebianRoot

PAGE = ROOT / "docs/first-hour.md"
HOSTS = ("mail.example.org", "autoconfig.example.org", "smtp.example.org")
LIMIT = 120.0
START = "systemctl restart onecopy\n"
# Debian's packages also have what a system without systemd starts; systemd makes the folder of PHP's socket.
SYSTEMCTL = '#!/bin/sh\nmkdir -p /run/php\nexec "/etc/init.d/$2" "$1"\n'
SAID = {"onecopy directory test alice\n": "alice@example.org", "onecopy messages search -u alice ALL\n": "INBOX",
        "curl": "<hostname>mail.example.org</hostname>\n      <port>993</port>"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")


def steps() -> Iterator[tuple[str, list[str]]]:
    """The headings of the page, each with what is to be typed."""
    for part in PAGE.read_text().split("\n## ")[1:]:
        yield part.partition("\n")[0], re.findall(r"^```sh\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)


def test_the_first_hour(tmp_path_factory: pytest.TempPathFactory, disk_path: Path) -> None:
    package = made("debian-12", tmp_path_factory)
    with DebianRoot(disk_path, "first-hour") as debian, ExitStack() as running_server:
        assert package.name in PAGE.read_text() and f"onecopy_{VERSION}-" in package.name
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
        thunderbird(debian, disk_path / "thunderbird")
        roundcube(debian, disk_path / "chromium")


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
