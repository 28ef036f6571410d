"""Dovecot 2.3, set up as for many users: sdbox, users in one flat file held in memory, quotas counted.

What of it is not installed is unpacked (tools/packages/unpacked.list). Nothing of the host's configuration is read or
changed; its state, sockets and logs are all below one folder.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import frozen

from mboxlist import privatefiles
from tools.benchmarks import tenrules
from tools.benchmarks.compare import disks
from tools.benchmarks.compare.starting import running
from tools.benchmarks.load.target import Target
from tools.benchmarks.temporaryserver import ADDRESS, PASSWORD, USER, free_ports
from tools.exits import Failure

UNPACKED = Path(sys.prefix) / "unpacked/dovecot/usr/lib/dovecot"
PIGEONHOLE = Path(sys.prefix) / "unpacked/pigeonhole/usr"
MODULES = Path("/usr/lib/dovecot/modules")
PACKAGES = {Path("/usr/lib/dovecot/imap"): "dovecot-imapd", UNPACKED / "lmtp": "dovecot-lmtpd",
            UNPACKED / "pop3": "dovecot-pop3d", PIGEONHOLE / "bin/sievec": "dovecot-sieve"}
STARTING = 60.0             # seconds in which all of it has started
AGAIN = 0.2                 # seconds until it is asked again
QUOTA = 1 << 20             # KiB of each user
MODE = 0o644                # of what its processes read as users of their own


@frozen
class Style:
    """`fsync`: of mail_fsync. `fast`: "high-performance mode": login processes serve many clients, mail processes are
    used again, some are ready beforehand, and who idles is parked in one process. `owner`: the number of the user that
    all mail belongs to; each server has another, as the kernel limits some things by user."""

    name: str
    fsync: str
    fast: bool
    owner: int


def missing() -> list[str]:
    """The Debian packages of which something is not there."""
    return [package for program, package in PACKAGES.items() if not os.access(program, os.X_OK)]


@contextmanager
def dovecot(place: Path, users: int, style: Style) -> Iterator[Target]:
    """A server with so many users, as long as the block lasts. Raises Failure."""
    imap, pop3, lmtp = free_ports(3)
    with ExitStack() as mounts:
        for name in ("volatile", "programs", "pigeonhole"):
            mounts.callback(disks.unmount, place / name)
        disks.in_memory(place / "volatile")
        disks.beside(UNPACKED, place / "programs")
        disks.beside(PIGEONHOLE / "lib/dovecot", place / "pigeonhole")
        for name in ("run", "mail", "scripts", "modules"):
            privatefiles.make_folder(place / name)
            privatefiles.share(place / name, 0o755, disks.REACHED, (style.owner, style.owner))
        privatefiles.share(place / "volatile", 0o755, disks.REACHED, (style.owner, style.owner))
        names = [*(USER % number for number in range(users)), *tenrules.users(users)]
        _write(place / "passwd", "".join([f"{name}:{{PLAIN}}{PASSWORD}:{style.owner}:{style.owner}::"
                                          f"{place}/mail/{name}::\n" for name in names]))
        for module in (*MODULES.glob("lib*.so"), place / "pigeonhole/modules/lib90_sieve_plugin.so"):
            (place / "modules" / module.name).symlink_to(module)
        for name in tenrules.users(users):          # compiled when it first runs, and kept so beside its text
            _write(place / f"scripts/{name}.sieve", tenrules.script().decode())
        _write(place / "dovecot.conf", _configuration(place, style, imap, pop3, lmtp))
        command = ("dovecot", "-F", "-c", place / "dovecot.conf")
        with running(style.name, command, place / "said", (imap, pop3, lmtp)) as pid:
            _make_inboxes(place, len(names))
            yield Target(style.name, USER, PASSWORD, users, (ADDRESS, imap), (ADDRESS, pop3), (ADDRESS, lmtp), pid,
                         place / "mail", f"Dovecot {_said('dovecot', '--version').split()[0]}")


def _make_inboxes(place: Path, users: int) -> None:
    """All at once: two first deliveries to one user at the same time can fail over making it. Dovecot answers on its
    ports before all of it has started, so it is asked again. Raises Failure."""
    command = (shutil.which("doveadm") or "doveadm", "-c", str(place / "dovecot.conf"), "mailbox", "status", "-A",
               "messages", "INBOX")
    until = time.monotonic() + STARTING
    while True:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if len(done.stdout.splitlines()) == users:
            return
        if time.monotonic() > until:
            raise Failure(f"Dovecot did not make all mailboxes: {done.stderr[-500:]}"
                          f"{privatefiles.read_text(place / 'log', 'replace')[-500:]}", 1)
        time.sleep(AGAIN)


def _said(*words: str) -> str:
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


def _write(path: Path, text: str) -> None:
    privatefiles.write(path, text)
    privatefiles.share(path, MODE, disks.REACHED)


def _configuration(place: Path, style: Style, imap: int, pop3: int, lmtp: int) -> str:
    cores = os.cpu_count() or 1
    login = f"service_count = 0\n  process_min_avail = {cores}" if style.fast else ""
    mail = "service_count = 256\n  process_min_avail = 16" if style.fast else ""
    return f"""\
base_dir = {place}/run
state_dir = {place}/run
log_path = {place}/log
listen = {ADDRESS}
protocols = imap pop3 lmtp
ssl = no
disable_plaintext_auth = no
postmaster_address = postmaster@localhost
hostname = localhost
auth_mechanisms = plain login
auth_username_format = %Ln
passdb {{
  driver = passwd-file
  args = {place}/passwd
}}
userdb {{
  driver = passwd-file
  args = {place}/passwd
}}
first_valid_uid = {style.owner}

mail_location = sdbox:~/sdbox:VOLATILEDIR={place}/volatile/%u
mail_fsync = {style.fsync}
mail_plugin_dir = {place}/modules
import_environment = TZ LD_LIBRARY_PATH={place}/pigeonhole
mail_plugins = quota
namespace inbox {{
  inbox = yes
  separator = /
}}
plugin {{
  quota = count:User quota
  quota_rule = *:storage={QUOTA}k
  quota_vsizes = yes
  sieve = file:{place}/scripts/%n.sieve
}}

default_vsz_limit = 1G
default_process_limit = 512
default_client_limit = 4096
mail_max_userip_connections = 5000
service imap-login {{
  process_limit = 2048
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
  {login}
}}
service pop3-login {{
  executable = {place}/programs/pop3-login
  process_limit = 2048
  inet_listener pop3 {{
    port = {pop3}
  }}
  inet_listener pop3s {{
    port = 0
  }}
  {login}
}}
service imap {{
  process_limit = 4096
  {mail}
  # Where a parked connection comes back in.
  unix_listener imap-master {{
    user = dovecot
  }}
}}
service imap-hibernate {{
  unix_listener imap-hibernate {{
    mode = 0666
  }}
}}
service pop3 {{
  executable = {place}/programs/pop3
  process_limit = 4096
  {mail}
}}
service lmtp {{
  executable = {place}/programs/lmtp
  process_min_avail = {cores}
  inet_listener lmtp {{
    address = {ADDRESS}
    port = {lmtp}
  }}
}}
service auth {{
  client_limit = 16384
}}
service anvil {{
  client_limit = 16384
}}
protocol lmtp {{
  mail_plugins = quota sieve
}}
protocol imap {{
  mail_plugins = quota imap_quota
  mail_max_userip_connections = 5000
  imap_hibernate_timeout = {"1s" if style.fast else "0"}
}}
"""
