"""Cyrus IMAP 3.6, set up as Debian does: what need not outlive a restart is in memory, one file for all recipients of
a message, users in a sasldb.

What of it is not installed is unpacked (tools/packages/unpacked.list). Its configuration, mail and sockets are all
below one folder.
"""

import grp
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mboxlist import privatefiles
from tools.benchmarks.compare import disks
from tools.benchmarks.compare.starting import running
from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loop import run_one
from tools.benchmarks.load.target import Target
from tools.benchmarks.temporaryserver import ADDRESS, PASSWORD, USER, free_ports
from tools.exits import Failure

NAME = "cyrus"
UNPACKED = Path(sys.prefix) / "unpacked/cyrus/usr/lib/cyrus/bin"
COMMON = Path("/usr/lib/cyrus/bin")
PACKAGES = {COMMON / "master": "cyrus-common", UNPACKED / "imapd": "cyrus-imapd", UNPACKED / "pop3d": "cyrus-pop3d",
            Path(shutil.which("saslpasswd2") or "/usr/sbin/saslpasswd2"): "sasl2-bin"}
QUOTA = 1 << 20             # KiB of each user
ADMINISTRATOR = "admin"
FOLDERS = ("conf", *(f"conf/{name}" for name in ("db", "log", "msg", "quota", "socket", "user")), "run", "run/proc",
           "run/lock", "spool")


def missing() -> list[str]:
    """The Debian packages of which something is not there."""
    return [package for program, package in PACKAGES.items() if not os.access(program, os.X_OK)]


@contextmanager
def cyrus(place: Path, users: int) -> Iterator[Target]:
    """A server with so many users, as long as the block lasts. Raises Failure."""
    imap, pop3, lmtp = free_ports(3)
    owner = pwd.getpwnam("cyrus").pw_uid, grp.getgrnam("mail").gr_gid
    with ExitStack() as mounts:
        for name in ("run", "programs"):
            mounts.callback(disks.unmount, place / name)
        disks.in_memory(place / "run")
        disks.beside(UNPACKED, place / "programs")
        for name in FOLDERS:
            privatefiles.make_folder(place / name, exist_ok=True)
            privatefiles.share(place / name, 0o750, disks.REACHED, owner)
        _make_users(place / "conf/sasldb2", users, owner)
        for name, text in ("imapd.conf", _configuration(place)), ("cyrus.conf", _services(place, imap, pop3, lmtp)):
            privatefiles.write(place / name, text)
            privatefiles.share(place / name, 0o644, disks.REACHED)
        command = (COMMON / "master", "-C", place / "imapd.conf", "-M", place / "cyrus.conf", "-p",
                   place / "run/master.pid", "-l", "512")
        with running(NAME, command, place / "said", (imap, pop3, lmtp)) as pid:
            run_one(_make_inboxes(imap, users))
            yield Target(NAME, USER, PASSWORD, users, (ADDRESS, imap), (ADDRESS, pop3), (ADDRESS, lmtp), pid,
                         place / "spool", f"Cyrus {_version()}")


def _make_users(database: Path, users: int, owner: tuple[int, int]) -> None:
    for name in (ADMINISTRATOR, *(USER % number for number in range(users))):
        done = subprocess.run(["saslpasswd2", "-c", "-p", "-u", "localhost", "-f", database, name],
                              input=PASSWORD.encode(), capture_output=True, check=False)
        if done.returncode:
            raise Failure(f"saslpasswd2: {done.stderr.decode(errors='replace').strip()}", 1)
    privatefiles.share(database, 0o640, disks.REACHED, owner)


async def _make_inboxes(port: int, users: int) -> None:
    imap = Imap((ADDRESS, port))
    await imap.greeting()
    await imap.login(ADMINISTRATOR, PASSWORD)
    for number in range(users):
        inbox = b"user/" + (USER % number).encode()
        await imap.must(b"CREATE " + inbox)
        await imap.must(b"SETQUOTA %b (STORAGE %d)" % (inbox, QUOTA))
    await imap.logout()


def _version() -> str:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "cyrus-common"], capture_output=True, text=True,
                          check=False)
    return done.stdout.partition("-")[0]


def _configuration(place: Path) -> str:
    return f"""\
configdirectory: {place}/conf
defaultpartition: default
partition-default: {place}/spool
proc_path: {place}/run/proc
mboxname_lockpath: {place}/run/lock
lmtpsocket: {place}/run/lmtp
idlesocket: {place}/run/idle
notifysocket: {place}/run/notify
servername: localhost
postmaster: postmaster@localhost
admins: {ADMINISTRATOR}
umask: 077
hashimapspool: 1
fulldirhash: 1
singleinstancestore: 1
duplicatesuppression: 0
statuscache: 1
statuscache_db_path: {place}/run/statuscache.db
duplicate_db_path: {place}/run/deliver.db
master_bind_errors_fatal: 1
autocreate_quota: {QUOTA}
autocreate_post: 1
allowplaintext: 1
sasl_mech_list: PLAIN LOGIN
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: {place}/conf/sasldb2
sasl_auto_transition: no
"""


def _services(place: Path, imap: int, pop3: int, lmtp: int) -> str:
    of = f"-C {place}/imapd.conf"
    rest = 'proto="tcp4" maxfds=1024'
    return f"""\
START {{
    recover cmd="{COMMON}/ctl_cyrusdb {of} -r"
}}
SERVICES {{
    imap cmd="{place}/programs/imapd {of}" listen="{ADDRESS}:{imap}" prefork=8 maxchild=4096 {rest}
    pop3 cmd="{place}/programs/pop3d {of}" listen="{ADDRESS}:{pop3}" prefork=8 maxchild=4096 {rest}
    lmtp cmd="{COMMON}/lmtpd {of} -a" listen="{ADDRESS}:{lmtp}" maxchild=512 {rest}
}}
EVENTS {{
    checkpoint cmd="{COMMON}/ctl_cyrusdb {of} -c" period=30
}}
DAEMON {{
    idled cmd="{place}/programs/idled {of}"
}}
"""
