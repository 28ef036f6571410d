"""The servers that mail comes from: a Dovecot and a Cyrus of the test's own, on loopback.

Both need root, as they do in life: they change to the users that own the mail.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.clients.clients import Account
from tests.support.clients.imap import Imap
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.overlaid import Overlaid
from tests.support.servers.relay import memory
from tests.support.servers.server import PASSWORD

START, STOP = 180, 180        # seconds
OWNER = 5000                # numeric owner of Dovecot's mail; no account needed
QUOTA_KIB, QUOTA_MESSAGES = 65_536, 5000     # of each user
UNPACKED = Path(sys.prefix) / "unpacked/cyrus"
DOVECOT = Path(sys.prefix) / "unpacked/dovecot/usr/lib/dovecot"
CYRUS = Path("/usr/lib/cyrus/bin")

FORMATS = {"maildir": "maildir:~/mail", "fs": "maildir:~/mail:LAYOUT=fs", "mbox": "mbox:~/mail:INBOX=~/inbox",
           "sdbox": "sdbox:~/mail", "mdbox": "mdbox:~/mail"}


def account(port: int, user: str) -> Account:
    """One user's mailboxes on a server."""
    server: Any = SimpleNamespace(server=SimpleNamespace(imap=port))
    return Account(server, user)


class OldServer:
    """It has a folder of its own, and is gone with it when the test has ended."""

    name: str

    def __init__(self) -> None:
        assert os.getuid() == 0, f"{self.name} can only be started by root: run these tests as root"
        self.folder = Path(tempfile.mkdtemp(prefix=f"onecopy-{self.name}-", dir=memory()))
        self.folder.chmod(0o755)
        self.imap = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str | Path]:
        """What starts it, in the foreground."""
        raise NotImplementedError

    def __enter__(self) -> "OldServer":
        subprocess.run(["chmod", "-R", "a+rX", self.folder], check=True)        # whatever umask a test has left
        with (self.folder / "said").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             start_new_session=True, umask=0o022)
        try:
            wait.until(self._greets, f"{self.name} greets", pid=self._process.pid, limit=START)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _greets(self) -> bool:
        try:
            with Imap(self.imap) as imap:
                return imap.greeting.text.startswith(b"* OK")
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            wait.ended(self._process, self.name, limit=STOP)
        shutil.rmtree(self.folder)

    def account(self, user: str) -> Account:
        """One user's mailboxes."""
        return account(self.imap, user)


class Dovecot(OldServer):
    """`users`: the format of `FORMATS` that each user's mail is kept in. At the port `behind` it is behind a proxy that
    tells of its clients by the PROXY protocol."""

    name = "dovecot"

    def __init__(self, users: Mapping[str, str]) -> None:
        super().__init__()
        self.config = self.folder / "dovecot.conf"
        self.behind, self.pop3 = free_port(), free_port()
        self._programs()
        for user in users:
            self.home(user).mkdir()
            os.chown(self.home(user), OWNER, OWNER)
        (self.folder / "passwd").write_text("".join(
            f"{user}:{{PLAIN}}{PASSWORD}:{OWNER}:{OWNER}::{self.home(user)}::userdb_mail={FORMATS[form]}\n"
            for user, form in users.items()) + f"master:{{PLAIN}}{PASSWORD}:::::\n")
        database = f"driver = passwd-file\n  args = {self.folder}/passwd"
        self.config.write_text(f"""\
base_dir = {self.folder}/run
state_dir = {self.folder}/run
log_path = {self.folder}/log
listen = 127.0.0.1
protocols = imap pop3
ssl = no
disable_plaintext_auth = no
default_internal_user = nobody
default_login_user = nobody
default_internal_group = nogroup
first_valid_uid = {OWNER}
mail_location = maildir:~/mail
mail_fsync = never
auth_mechanisms = plain
haproxy_trusted_networks = 127.0.0.0/8
mail_plugins = acl quota
mail_attribute_dict = file:%h/attributes
imap_metadata = yes
protocol imap {{
  mail_plugins = acl imap_acl quota imap_quota
}}
protocol pop3 {{
  mail_plugins =
}}
plugin {{
  acl = vfile
  acl_user = %u
  quota = count:User quota
  quota_rule = *:storage={QUOTA_KIB}K:messages={QUOTA_MESSAGES}
  quota_vsizes = yes
  sieve = file:~/sieve;active=~/.dovecot.sieve
}}
passdb {{
  {database}
  master = yes
  pass = yes
}}
passdb {{
  {database}
}}
userdb {{
  {database}
}}
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Sent {{
    special_use = \\Sent
  }}
}}
service pop3 {{
  executable = {self.folder}/programs/pop3
}}
service pop3-login {{
  executable = {self.folder}/programs/pop3-login
  inet_listener pop3 {{
    port = {self.pop3}
  }}
  inet_listener pop3s {{
    port = 0
  }}
}}
service imap-login {{
  inet_listener imap {{
    port = {self.imap}
  }}
  inet_listener behind {{
    port = {self.behind}
    haproxy = yes
  }}
}}
""")

    def _programs(self) -> None:
        """POP3 and Sieve are unpacked, and not installed: POP3's programs are copied to where every user reaches them,
        and `doveadm` runs where the files of Sieve's package are, too."""
        programs = self.folder / "programs"
        programs.mkdir()
        for name in ("pop3", "pop3-login"):
            shutil.copy(DOVECOT / name, programs)
        self.doveadm = programs / "doveadm"
        words = Overlaid("pigeonhole", self.folder / "own").words(shutil.which("doveadm") or "doveadm")
        self.doveadm.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        self.doveadm.chmod(0o755)
        (programs / "doveconf").symlink_to(shutil.which("doveconf") or "doveconf")

    def home(self, user: str) -> Path:
        """Where a user's mail is."""
        return self.folder / user

    def command(self) -> Sequence[str | Path]:
        return ["dovecot", "-F", "-c", self.config]

    def administered(self, *words: str, octets: bytes = b"") -> bytes:
        """What `doveadm` prints."""
        return subprocess.run([self.doveadm, "-c", self.config, *words], input=octets, stdout=subprocess.PIPE,
                              check=True).stdout


class Cyrus(OldServer):
    """`users` have an INBOX each."""

    name = "cyrus"

    def __init__(self, users: Sequence[str]) -> None:
        super().__init__()
        self.config = self.folder / "imapd.conf"
        self.programs = self.folder / "bin"
        self.pop3, self.sieve = free_port(), free_port()
        self.programs.mkdir()
        for folder in (UNPACKED / "usr/lib/cyrus/bin", CYRUS):     # what is not installed is unpacked
            for program in folder.iterdir() if folder.is_dir() else ():
                if not (self.programs / program.name).exists():
                    (self.programs / program.name).symlink_to(program)
        for name in ("conf/db", "conf/socket", "conf/lock", "conf/proc", "conf/user", "spool", "sieve"):
            (self.folder / name).mkdir(parents=True)
        self._users = users
        self.config.write_text(f"""\
configdirectory: {self.folder}/conf
defaultpartition: default
partition-default: {self.folder}/spool
proc_path: {self.folder}/conf/proc
mboxname_lockpath: {self.folder}/conf/lock
lmtpsocket: {self.folder}/conf/socket/lmtp
idlesocket: {self.folder}/conf/socket/idle
notifysocket: {self.folder}/conf/socket/notify
servername: localhost
admins: admin
allowplaintext: 1
sasl_mech_list: PLAIN LOGIN
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: {self.folder}/conf/sasldb2
statuscache: 0
duplicatesuppression: 0
skiplist_unsafe: 1
sievedir: {self.folder}/sieve
""")
        (self.folder / "cyrus.conf").write_text(f"""\
START {{
  recover cmd="{self.programs}/ctl_cyrusdb -C {self.config} -r"
}}
SERVICES {{
  imap cmd="{self.programs}/imapd -C {self.config}" listen="127.0.0.1:{self.imap}" proto="tcp4" prefork=1
  pop3 cmd="{self.programs}/pop3d -C {self.config}" listen="127.0.0.1:{self.pop3}" proto="tcp4"
  sieve cmd="{self.programs}/timsieved -C {self.config}" listen="127.0.0.1:{self.sieve}" proto="tcp4"
}}
EVENTS {{
}}
""")
        for user in ("admin", *users):
            subprocess.run(["saslpasswd2", "-c", "-p", "-u", "localhost", "-f", self.folder / "conf/sasldb2", user],
                           input=PASSWORD.encode(), check=True)
        subprocess.run(["chown", "-R", "cyrus:mail", self.folder / "conf", self.folder / "spool",
                        self.folder / "sieve"], check=True)

    def command(self) -> Sequence[str | Path]:
        return [self.programs / "master", "-C", self.config, "-M", self.folder / "cyrus.conf",
                "-p", self.folder / "master.pid"]

    def __enter__(self) -> "Cyrus":
        super().__enter__()
        with Imap(self.imap, "admin") as admin:
            for user in self._users:
                admin.ok(f"CREATE user/{user}")
                admin.ok(f"SETQUOTA user/{user} (STORAGE {QUOTA_KIB} MESSAGE {QUOTA_MESSAGES})")
        return self

    def mailboxes(self) -> dict[str, Any]:
        """What Cyrus itself lists."""
        found = subprocess.run([self.programs / "ctl_mboxlist", "-C", self.config, "-d"], check=True,
                               stdout=subprocess.PIPE).stdout
        listed: dict[str, Any] = json.loads(found)
        return listed
