"""A Cyrus that another one can follow, by rolling replication: what docs/standby.md compares with.

It is a Debian package that is partly installed and partly unpacked (tools/packages/unpacked.list); its configuration,
mail and sockets are below one folder. It takes root, since Cyrus changes its user. `sync_client` is the process that
follows: it runs on the machine that is followed.
"""

import contextlib
import grp
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.clients.imap import Imap
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.processes.twonetworks import Network
from tests.support.servers.backends import MESSAGE_ID

UNPACKED = Path(sys.prefix) / "unpacked/cyrus/usr/lib/cyrus/bin"
COMMON = Path("/usr/lib/cyrus/bin")
ADMINISTRATOR, PASSWORD = "admin", "secret"
LIMIT = 60.0
LOOPBACK = "127.0.0.1"
FOLDERS = ("conf", *(f"conf/{name}" for name in (
    "db", "log", "msg", "quota", "socket", "sync", "user", "proc", "lock")), "spool", "run")


class CyrusMachine:
    """One of them; `follows` names the machines that it sends its changes to, by the channel of each (\"\": the one
    that needs no name). `chain`: it sends on what comes to it."""

    def __init__(self, folder: Path, users: Sequence[str], follows: "dict[str, CyrusMachine] | None" = None, *,
                 chain: bool = False, address: str = LOOPBACK, network: Network | None = None) -> None:
        self.folder, self.users, self.follows = folder, users, follows or {}
        self.address, self.network = address, network
        self.imap, self.lmtp, self.sync = free_port(), free_port(), free_port()
        self.owner = pwd.getpwnam("cyrus").pw_uid, grp.getgrnam("mail").gr_gid
        self._chain = chain
        self._master: subprocess.Popen[bytes] | None = None
        for name in ("", *FOLDERS):
            (folder / name).mkdir(exist_ok=True)
        shutil.copytree(UNPACKED, folder / "programs")      # where every user can reach them
        for path in (folder, *folder.parents):
            if path.stat().st_uid == os.getuid():
                with contextlib.suppress(OSError):
                    path.chmod(path.stat().st_mode | 0o111)
        for name in (ADMINISTRATOR, *users):
            subprocess.run(["saslpasswd2", "-c", "-p", "-u", "localhost", "-f", folder / "conf/sasldb2", name],
                           input=PASSWORD.encode(), capture_output=True, check=True)
        self._configure()
        for path in folder.rglob("*"):
            os.chown(path, *self.owner)

    def _configure(self) -> None:
        place = self.folder
        channels = [name for name in self.follows if name]
        (place / "imapd.conf").write_text(f"""\
configdirectory: {place}/conf
defaultpartition: default
partition-default: {place}/spool
proc_path: {place}/conf/proc
mboxname_lockpath: {place}/conf/lock
lmtpsocket: {place}/run/lmtp
servername: localhost
postmaster: postmaster@localhost
admins: {ADMINISTRATOR}
umask: 077
singleinstancestore: 1
duplicatesuppression: 0
autocreate_quota: 0
autocreate_post: 1
allowplaintext: 1
sasl_mech_list: PLAIN LOGIN
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: {place}/conf/sasldb2
sasl_auto_transition: no
sync_authname: {ADMINISTRATOR}
sync_password: {PASSWORD}
sync_log: {int(bool(self.follows))}
sync_log_chain: {int(self._chain)}
""" + (f"sync_log_channels: {' '.join(channels)}\n" if channels else "") + "".join(
            f"{name and name + '_'}sync_host: {other.address}\n{name and name + '_'}sync_port: {other.sync}\n"
            for name, other in self.follows.items()))
        of = f"-C {place}/imapd.conf"
        (place / "cyrus.conf").write_text(f"""\
START {{
    recover cmd="{COMMON}/ctl_cyrusdb {of} -r"
}}
SERVICES {{
    imap cmd="{place}/programs/imapd {of}" listen="{LOOPBACK}:{self.imap}" proto="tcp4" maxfds=1024
    lmtp cmd="{COMMON}/lmtpd {of} -a" listen="{LOOPBACK}:{self.lmtp}" proto="tcp4" maxfds=1024
    sync cmd="{place}/programs/sync_server {of}" listen="{self.address}:{self.sync}" proto="tcp4" maxfds=1024
}}
EVENTS {{
    checkpoint cmd="{COMMON}/ctl_cyrusdb {of} -c" period=30
}}
""")

    def start(self) -> "CyrusMachine":
        """Return when it answers."""
        with (self.folder / "said").open("ab") as said, self.entered():
            self._master = subprocess.Popen(
                [COMMON / "master", "-C", self.folder / "imapd.conf", "-M", self.folder / "cyrus.conf", "-p",
                 self.folder / "conf/master.pid"], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True)
        for address in ((LOOPBACK, self.imap), (LOOPBACK, self.lmtp), (self.address, self.sync)):
            wait.until(lambda at=address: self._answers(at), "Cyrus answers", pid=self._master.pid, limit=LIMIT)
        return self

    def entered(self) -> "contextlib.AbstractContextManager[None]":
        """This thread is in its network, if it has one of its own."""
        return contextlib.nullcontext() if self.network is None else self.network.entered()

    def _answers(self, address: tuple[str, int]) -> bool:
        with contextlib.suppress(OSError), self.entered(), socket.create_connection(address, 5) as connection:
            return bool(connection.recv(1))
        return False

    def __enter__(self) -> "CyrusMachine":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def make_mailboxes(self) -> None:
        """An INBOX for each user."""
        with self.entered(), Imap(self.imap, ADMINISTRATOR) as imap:
            for name in self.users:
                imap.ok(f"CREATE user/{name}")

    def follow(self, channel: str = "") -> None:
        """`sync_client -r` of that channel, as somebody types it: it goes on by itself. What it says is in `following`.
        """
        with (self.folder / "following").open("ab") as said, self.entered():
            subprocess.run(self._as_owner("sync_client", "-r", *(["-n", channel] if channel else [])), check=True,
                           stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, timeout=LIMIT)

    def copy_all(self, channel: str = "") -> None:
        """`sync_client -A`."""
        with self.entered():
            done = subprocess.run(self._as_owner("sync_client", "-A", *(["-n", channel] if channel else [])),
                                  capture_output=True, text=True, check=False, timeout=600)
        assert not done.returncode, done.stdout + done.stderr

    def _as_owner(self, program: str, *words: str) -> list[str | Path]:
        return ["setpriv", f"--reuid={self.owner[0]}", f"--regid={self.owner[1]}", "--clear-groups",
                self.folder / "programs" / program, "-C", self.folder / "imapd.conf", *words]

    def following(self) -> list[int]:
        """The processes that follow here, found by their configuration: sync_client leaves its session."""
        return [pid for pid in self.processes() if b"sync_client" in _command_line(pid)]

    def processes(self) -> list[int]:
        """All of this machine."""
        mark = f"{self.folder}/".encode()
        return [int(path.name) for path in Path("/proc").iterdir()
                if path.name.isdigit() and int(path.name) != os.getpid() and mark in _command_line(int(path.name))]

    def kill(self) -> None:
        """SIGKILL for all of its processes, and of those that follow."""
        while found := self.processes():
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            if self._master is not None:
                self._master.poll()
        if self._master is not None:
            self._master.wait(LIMIT)
            self._master = None

    def names(self, user: str) -> dict[int, str]:
        """The Message-ID of each UID of that INBOX; nothing where there is none."""
        with self.entered(), Imap(self.imap, user) as imap:
            if imap.command("SELECT INBOX").status != "OK":
                return {}
            found = imap.ok("UID FETCH 1:* (UID BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)])").untagged
        return {int(uid[1]): name[1].decode() for each in found if each.literals
                and (uid := re.search(rb"UID (\d+)", each.text)) and (name := MESSAGE_ID.search(each.literals[0]))}

    def all_names(self) -> set[str]:
        """Of all users."""
        return {name for user in self.users for name in self.names(user).values()}


def _command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@contextlib.contextmanager
def machines(*made: CyrusMachine) -> Iterator[None]:
    """They serve, from the last one to the first, and end."""
    with contextlib.ExitStack() as ending:
        for each in reversed(made):
            ending.enter_context(each)
        yield
