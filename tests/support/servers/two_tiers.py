"""The two tiers on loopback, each part a process of its own: two LDAP servers (one copies the other), a Postfix, an
nginx with a front of onecopy that has no mail, two back ends, and a relay of the outside world.

The back ends are told apart by their addresses, which are what the directory says (mailHost): so all have the same
ports, as back ends have, and no resolver is needed.
"""

import imaplib
import os
import poplib
import re
import shutil
import smtplib
import socket
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support import ROOT
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.certificates import Authority
from tests.support.servers.nginx import Nginx
from tests.support.servers.postfix import Postfix
from tests.support.servers.relay import shipped
from tests.support.servers.server import PASSWORD, Server
from tests.support.servers.slapd import BASE, SCHEMAS, Slapd, person

DOCS = ROOT / "docs/ldap"
TABLES = ("domains", "mailboxes", "transport", "transport-domains")
HOSTS = ("127.0.0.2", "127.0.0.3")
FRONT = "127.0.0.4"
INSIDE, OUTSIDE = "127.0.0.77", "127.0.0.99"        # where clients of ours come from, and everybody else
TIME = 180

_TREE = f"""\
dn: {BASE}
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: ou=services,{BASE}
objectClass: organizationalUnit
ou: services

dn: cn=onecopy,ou=services,{BASE}
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: onecopy
userPassword: secret

dn: cn=onecopy-move,ou=services,{BASE}
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: onecopy-move
userPassword: secret of moves

dn: cn=postfix,ou=services,{BASE}
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: postfix
userPassword: secret

dn: ou=domains,{BASE}
objectClass: organizationalUnit
ou: domains

dn: associatedDomain=example.org,ou=domains,{BASE}
objectClass: organization
objectClass: mailStoreDomain
o: Example
associatedDomain: example.org
preferredMailHost: {HOSTS[0]}

dn: associatedDomain=example.net,ou=domains,{BASE}
objectClass: organization
objectClass: mailStoreDomain
o: Example Networks
associatedDomain: example.net
preferredMailHost: {HOSTS[0]}

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

"""


def user(uid: str, *lines: str) -> str:
    """A user of the mail store, as LDIF."""
    return person(uid, PASSWORD, *lines).replace("inetOrgPerson\n", "inetOrgPerson\nobjectClass: mailStoreUser\n")


class Relay(Postfix):
    """Postfix with the configuration that we ship for two tiers; what is for other domains goes to the port `outside`.
    """

    def __init__(self, directory: Sequence[str], authority: Path, lmtp: int, policy: int, outside: int) -> None:
        self._directory, self._authority, self._lmtp = " ".join(directory), authority, lmtp
        self._policy, self._outside = policy, outside
        super().__init__(lmtp)

    def _lay_out(self, main: str) -> None:
        folder = self.folder / "config"
        changes = {f"/etc/postfix/ldap-{name}.cf": f"{folder}/ldap-{name}.cf" for name in TABLES}
        changes["check_policy_service { inet:127.0.0.1:2424,"] = f"check_policy_service {{ inet:{FRONT}:{self._policy},"
        super()._lay_out(shipped("postfix/two-tier/main.cf", changes) + "maximal_backoff_time = 2s\n"
                         "transport_retry_time = 1s\n")
        text = (folder / "main.cf").read_text().replace("mynetworks = 192.0.2.1", f"mynetworks = {INSIDE}", 1)
        (folder / "main.cf").write_text(re.sub(
            "^default_transport = .*", f"default_transport = smtp:[127.0.0.1]:{self._outside}", text, count=1,
            flags=re.MULTILINE))
        for name in TABLES:
            shutil.copy(self._authority, folder / "ca.pem")         # where Postfix may read it
            table = {"ldap://ldap1.example.org ldap://ldap2.example.org": self._directory,
                     "/etc/ssl/certs/ca-certificates.crt": f"{folder}/ca.pem"}
            if name.startswith("transport"):
                table["[%s]:24"] = f"[%s]:{self._lmtp}"
            (folder / f"ldap-{name}.cf").write_text(shipped(f"postfix/two-tier/ldap-{name}.cf", table))

    def start(self) -> None:
        """As `postfix start` does."""
        self.__enter__()

    def stop(self) -> None:
        """As `postfix stop` does: the queue stays."""
        processes = wait.tree(self.pid)
        self._run("stop")
        for pid in processes:
            wait.gone(pid, self.name, limit=TIME)


class Sink:
    """A relay of the outside world, which takes everything."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder / "outside"
        self._folder.mkdir(mode=0o700)
        program = shutil.which("smtp-sink", path="/usr/sbin:" + os.environ["PATH"])
        assert program, "smtp-sink is not installed: apt-get install postfix"
        words = [program, "-u", "root", "-d", f"{self._folder}/mail.", f"127.0.0.1:{self.port}", "100"]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def stop(self) -> None:
        """The end."""
        self._process.kill()
        self._process.wait(TIME)

    def taken(self) -> list[bytes]:
        """What has come."""
        return [path.read_bytes() for path in self._folder.iterdir()]


class TwoTiers:
    """`users` are LDIF (see `user`). In use once entered."""

    def __init__(self, folder: Path, users: str, options: Mapping[str, str]) -> None:
        self.folder = folder
        self.authority = Authority(folder, "authority")
        schemas = [SCHEMAS / "misc.schema", DOCS / "onecopy.schema"]
        rules = f"include {DOCS}/index.conf\ninclude {DOCS}/access.conf"
        self.provider = Slapd(folder / "provider", certificate=self.authority.server(), schemas=schemas, rules=rules,
                              tree=_TREE + users)
        self.replica = Slapd(folder / "replica", certificate=self.authority.server(), schemas=schemas, rules=rules,
                             provider=self.provider)
        (folder / "service").write_text("secret\n")
        (folder / "service-move").write_text("secret of moves\n")
        (folder / "secret").write_text("between us\n")
        lmtp, imap, pop3, policy, front, exchange = (free_port() for _ in range(6))
        # Each asks another server first.
        asked = [self.provider.uri, self.replica.uri]
        self.back_ends = [self._server(host, [*asked[number:], *asked[:number]], {
            **{f"{name}.address": host for name in ("imap", "pop3", "lmtp")}, "imap.port": str(imap),
            "pop3.port": str(pop3), "lmtp.port": str(lmtp), "imap.tls_port": "0", "pop3.tls_port": "0",
            "imap.proxy_networks": "127.0.0.1", "pop3.proxy_networks": "127.0.0.1", "login.proxies_use_tls": "yes",
            "lmtp.duplicate_window": "1h", "exchange.address": host, "exchange.port": str(exchange),
            "exchange.peers": ",".join(f"{other}={other}:{exchange}" for other in HOSTS if other != host),
            "exchange.authorities": str(self.authority.file),
            "exchange.certificate": str(self.authority.back_end(host)), "directory.write_uris": self.provider.uri,
            "directory.write_dn": f"cn=onecopy-move,ou=services,{BASE}",
            "directory.write_password_file": str(folder / "service-move"), **options})
            for number, host in enumerate(HOSTS)]
        self.front = self._server(FRONT, asked, {
            "front.address": FRONT, "front.port": str(front), "front.imap_port": str(imap),
            "front.pop3_port": str(pop3), "front.secret_file": str(folder / "secret"), "imap.port": "0",
            "imap.tls_port": "0", "pop3.port": "0", "pop3.tls_port": "0", "lmtp.address": FRONT, "lmtp.port": "0",
            "lmtp.verify_port": str(policy), "front.login_attempts": "3", **options})
        self.nginx = Nginx(folder, front, self.authority.server(), folder / "secret", {
            f"http://127.0.0.1:{front}/": f"http://{FRONT}:{front}/"})
        self.outside = Sink(folder)
        self.relay = Relay(asked, self.authority.file, lmtp, policy, self.outside.port)

    def _server(self, host: str, asked: Sequence[str], options: Mapping[str, str]) -> Server:
        (self.folder / host).mkdir()
        return Server(self.folder / host, options={
            "store.host": host, "directory.uris": ",".join(asked), "directory.ca": str(self.authority.file),
            "directory.base": BASE, "directory.domain_base": f"ou=domains,{BASE}",
            "directory.bind_dn": f"cn=onecopy,ou=services,{BASE}",
            "directory.bind_password_file": str(self.folder / "service"), "login.slow_first": "0", **options})

    @property
    def servers(self) -> list[Server]:
        """All that are onecopy."""
        return [*self.back_ends, self.front]

    def __enter__(self) -> "TwoTiers":
        try:
            self.provider.start()
            self.replica.start()
            for server in self.servers:
                server.launch()
            self.relay.start()
            self.nginx.start()
            for server in self.servers:
                self.ready(server)
            self.replica.copied("(objectClass=mailStoreUser)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:              # all of them, whatever happens with one
            for end in (self.provider.kill, self.replica.kill, self.outside.stop, self.relay.__exit__,
                        self.nginx.__exit__, *(server.__exit__ for server in self.servers)):
                stack.callback(end)

    def ready(self, server: Server) -> None:
        """Wait until it serves."""
        try:
            wait.until(lambda: "serving" in server.said().rpartition("stopped")[2] or None, "it serves", pid=server.pid,
                       limit=TIME)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{server.said()}") from None

    def imap(self, who: str) -> imaplib.IMAP4:
        """A client that has logged in through the proxy."""
        client = self.imap_client("tls")
        client.login(who, PASSWORD)
        return client

    def imap_client(self, admission: str) -> imaplib.IMAP4:
        """One that has not: by "tls", "starttls", or "clear"."""
        if admission == "tls":
            return _Imaps("localhost", self.nginx.imaps, ssl_context=self.authority.trusted())
        client = _Imap("localhost", self.nginx.imap)
        if admission == "starttls":
            client.starttls(self.authority.trusted())
        return client

    def pop3_client(self, admission: str) -> poplib.POP3:
        """The same for POP3."""
        if admission == "tls":
            return poplib.POP3_SSL("localhost", self.nginx.pop3s, context=self.authority.trusted(), timeout=TIME)
        client = poplib.POP3("localhost", self.nginx.pop3, timeout=TIME)
        if admission == "starttls":
            client.stls(self.authority.trusted())
        return client

    def submit(self, sender: str, recipients: Sequence[str], message: bytes, *, source: str = INSIDE
               ) -> dict[str, tuple[int, bytes]]:
        """Those that the relay refuses. Raises OSError, SMTPException."""
        with smtplib.SMTP("127.0.0.1", self.relay.port, local_hostname="client.example.org", timeout=TIME,
                          source_address=(source, 0)) as smtp:
            try:
                return smtp.sendmail(sender, recipients, message)
            except smtplib.SMTPRecipientsRefused as refused:
                return refused.recipients


class _Imap(imaplib.IMAP4):
    """Comes from INSIDE."""

    def _create_socket(self, timeout: float | None) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), TIME, (INSIDE, 0))


class _Imaps(imaplib.IMAP4_SSL):
    """The same under TLS."""

    def _create_socket(self, timeout: float | None) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), TIME, (INSIDE, 0))
        return self.ssl_context.wrap_socket(plain, server_hostname=self.host)
