"""A real Postfix, the Debian package, as its own instance in its own folder, which knows nothing but 127.0.0.1.

It takes mail for example.org by SMTP and hands it on by LMTP. It must be started by root, as Postfix is.
"""

import grp
import os
import pwd
import shutil
import subprocess
from pathlib import Path

from tests.support.processes import wait
from tests.support.servers.relay import DOMAIN, START, STOP, Relay, shipped

NAME = "relay.example.org"

_MAIN = """\
compatibility_level = 3.6
config_directory = {folder}/config
queue_directory = {folder}/queue
data_directory = {folder}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file = {folder}/log/mail.log
maillog_file_prefixes = {folder}/log
myhostname = {name}
mydomain = {domain}
myorigin = {domain}
# The test comes from outside.
mynetworks = 192.0.2.1
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
# Nothing is asked of the DNS, and nothing leaves this machine.
smtp_dns_support_level = disabled
disable_dns_lookups = yes
smtp_host_lookup = native
lmtp_host_lookup = native
smtpd_peername_lookup = no
default_transport = error:only {domain} is delivered here
relay_transport = error:only {domain} is delivered here
local_transport = error:only {domain} is delivered here
mydestination =
alias_maps =
alias_database =
local_recipient_maps =
# Messages go on as they came.
local_header_rewrite_clients =
# Quick for a test.
in_flow_delay = 0
initial_destination_concurrency = 8
minimal_backoff_time = 1s
queue_run_delay = 1s
"""

_MASTER = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup    unix n - n 60  1 pickup
cleanup   unix n - n -   0 cleanup
qmgr      unix n - n 300 1 qmgr
rewrite   unix - - n -   - trivial-rewrite
bounce    unix - - n -   0 bounce
defer     unix - - n -   0 bounce
trace     unix - - n -   0 bounce
verify    unix - - n -   1 verify
flush     unix n - n 1000? 0 flush
proxymap  unix - - n -   - proxymap
proxywrite unix - - n -  1 proxymap
smtp      unix - - n -   - smtp
lmtp      unix - - n -   - lmtp
error     unix - - n -   - error
retry     unix - - n -   - error
discard   unix - - n -   - discard
anvil     unix - - n -   1 anvil
scache    unix - - n -   1 scache
postlog   unix-dgram n - n - 1 postlogd
"""


class Postfix(Relay):
    """It hands on to `lmtp`, a port or the path of a socket, and asks the port `policy` or `map` who is there."""

    name = "Postfix"

    def __init__(self, lmtp: int | str, *, policy: int | None = None, map: int | None = None) -> None:
        if os.getuid() != 0:
            raise AssertionError("Postfix can only be started by root: run these tests as root")
        if not shutil.which("postfix"):
            raise AssertionError("Postfix is not installed: apt-get install postfix")
        super().__init__()
        address = f"unix:{lmtp}" if isinstance(lmtp, str) else f"inet:127.0.0.1:{lmtp}"
        asking = ", check_policy_service inet:127.0.0.1:2424\n"
        changes = {"\nvirtual_transport = lmtp:inet:127.0.0.1:24\n": f"\nvirtual_transport = lmtp:{address}\n",
                   asking: asking.replace("2424", str(policy)) if policy else "\n"}
        if map:
            asking = "#virtual_mailbox_maps = socketmap:inet:127.0.0.1:2424:"
            changes[asking] = asking.removeprefix("#").replace("2424", str(map))
        try:
            self._lay_out(shipped("postfix/main.cf", changes))
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def _lay_out(self, main: str) -> None:
        for name in ("config", "queue", "data", "log"):
            (self.folder / name).mkdir(mode=0o755)
        owner = pwd.getpwnam("postfix").pw_uid
        os.chown(self.folder / "data", owner, grp.getgrnam("postfix").gr_gid)
        (self.folder / "data").chmod(0o700)
        (self.folder / "config/main.cf").write_text(_MAIN.format(folder=self.folder, name=NAME, domain=DOMAIN) + main)
        (self.folder / "config/master.cf").write_text(_MASTER.format(port=self.port))

    def __enter__(self) -> "Postfix":
        try:
            self._run("start")
            self.pid = int((self.folder / "queue/pid/master.pid").read_text())
            self.started()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        file = self.folder / "queue/pid/master.pid"
        if file.exists():
            pid = int(file.read_text())
            if Path(f"/proc/{pid}/comm").exists():
                self._run("stop")
            wait.gone(pid, "Postfix", limit=STOP)
        shutil.rmtree(self.folder)

    def _run(self, what: str) -> None:
        try:
            done = subprocess.run(["postfix", "-c", self.folder / "config", what], timeout=START, check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"postfix {what}: {error.stdout!r}\n{self.log()[-8000:]}") from None
        assert done.returncode == 0, f"postfix {what}: {done.stdout.decode()}\n{self.log()}"

    def log(self) -> str:
        """What Postfix has logged so far."""
        file = self.folder / "log/mail.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def flush(self) -> None:
        """Try all that was put off again, now."""
        self._run("flush")

    def queued(self) -> list[str]:
        """The ids of the messages that Postfix still has."""
        return [file.name for queue in ("maildrop", "incoming", "active", "deferred", "hold")
                for folder in [self.folder / "queue" / queue] for file in folder.rglob("*") if _is_file(file)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except FileNotFoundError:
        return False
