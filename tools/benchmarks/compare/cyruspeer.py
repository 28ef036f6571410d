"""Cyrus IMAP 3.6, set up as Debian does: what need not outlive a restart is in memory, one file for all recipients of
a message, users in a sasldb.

What of it is not installed is unpacked (tools/packages/unpacked.list). Its configuration, mail and sockets are all
below one folder.
"""

import base64
import grp
import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mboxlist import privatefiles
from tools.benchmarks import tenrules
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
           "run/lock", "spool", "scripts")


def missing() -> list[str]:
    """The Debian packages of which something is not there."""
    return [package for program, package in PACKAGES.items() if not os.access(program, os.X_OK)]


@contextmanager
def cyrus(place: Path, users: int) -> Iterator[Target]:
    """A server with so many users, as long as the block lasts. Raises Failure."""
    imap, pop3, lmtp, sieve = free_ports(4)
    owner = pwd.getpwnam("cyrus").pw_uid, grp.getgrnam("mail").gr_gid
    with ExitStack() as mounts:
        for name in ("run", "programs"):
            mounts.callback(disks.unmount, place / name)
        disks.in_memory(place / "run")
        disks.beside(UNPACKED, place / "programs")
        for name in FOLDERS:
            privatefiles.make_folder(place / name, exist_ok=True)
            privatefiles.share(place / name, 0o750, disks.REACHED, owner)
        filing = tenrules.users(users)
        names = [*(USER % number for number in range(users)), *filing]
        _make_users(place / "conf/sasldb2", names, owner)
        services = _services(place, imap, pop3, lmtp, sieve)
        for name, text in ("imapd.conf", _configuration(place)), ("cyrus.conf", services):
            privatefiles.write(place / name, text)
            privatefiles.share(place / name, 0o644, disks.REACHED)
        command = (COMMON / "master", "-C", place / "imapd.conf", "-M", place / "cyrus.conf", "-p",
                   place / "run/master.pid", "-l", "512")
        with running(NAME, command, place / "said", (imap, pop3, lmtp, sieve)) as pid:
            run_one(_make_inboxes(imap, names))
            for name in filing:
                _put_script(sieve, name)
            yield Target(NAME, USER, PASSWORD, users, (ADDRESS, imap), (ADDRESS, pop3), (ADDRESS, lmtp), pid,
                         place / "spool", f"Cyrus {_version()}")


def _make_users(database: Path, users: Sequence[str], owner: tuple[int, int]) -> None:
    for name in (ADMINISTRATOR, *users):
        done = subprocess.run(["saslpasswd2", "-c", "-p", "-u", "localhost", "-f", database, name],
                              input=PASSWORD.encode(), capture_output=True, check=False)
        if done.returncode:
            raise Failure(f"saslpasswd2: {done.stderr.decode(errors='replace').strip()}", 1)
    privatefiles.share(database, 0o640, disks.REACHED, owner)


async def _make_inboxes(port: int, users: Sequence[str]) -> None:
    imap = Imap((ADDRESS, port))
    await imap.greeting()
    await imap.login(ADMINISTRATOR, PASSWORD)
    for name in users:
        inbox = b"user/" + name.encode()
        await imap.must(b"CREATE " + inbox)
        await imap.must(b"SETQUOTA %b (STORAGE %d)" % (inbox, QUOTA))
    await imap.logout()


def _put_script(port: int, user: str) -> None:
    """By ManageSieve (RFC 5804), so that Cyrus compiles it. Raises Failure."""
    login = base64.b64encode(f"\0{user}\0{PASSWORD}".encode())
    with socket.create_connection((ADDRESS, port), timeout=60) as connection, connection.makefile("rb") as answers:
        for command in (b"", b'AUTHENTICATE "PLAIN" "%b"\r\n' % login,
                        b'PUTSCRIPT "%b" {%d+}\r\n%b\r\n' % (tenrules.NAME.encode(), len(tenrules.script()),
                                                            tenrules.script()),
                        b'SETACTIVE "%b"\r\n' % tenrules.NAME.encode()):
            connection.sendall(command)
            while not (line := answers.readline()).startswith(b"OK"):
                if not line or line.startswith((b"NO", b"BYE")):
                    raise Failure(f"Cyrus does not take the script of {user}: {line.decode(errors='replace')}", 1)


def _version() -> str:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "cyrus-common"], capture_output=True, text=True,
                          check=False)
    return done.stdout.partition("-")[0]


def _configuration(place: Path) -> str:
    return f"""\
configdirectory: {place}/conf
sievedir: {place}/scripts
sieveusehomedir: 0
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


def _services(place: Path, imap: int, pop3: int, lmtp: int, sieve: int) -> str:
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
    sieve cmd="{COMMON}/timsieved {of}" listen="{ADDRESS}:{sieve}" maxchild=16 {rest}
}}
EVENTS {{
    checkpoint cmd="{COMMON}/ctl_cyrusdb {of} -c" period=30
}}
DAEMON {{
    idled cmd="{place}/programs/idled {of}"
}}
"""
