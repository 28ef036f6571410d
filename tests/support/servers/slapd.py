"""A real slapd, the Debian package: its own process with its own folder, on free ports of loopback.

It has the tree below BASE, and SERVICE, who may read all of it. A replica copies all of its provider (RFC 4533).
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import wait
from tests.support.processes.ports import free_port

PROGRAM = "/usr/sbin/slapd"
BASE = "dc=example,dc=org"
SERVICE, SERVICE_PASSWORD = f"cn=service,{BASE}", "for searching"
ROOT, ROOT_PASSWORD = f"cn=root,{BASE}", "of all"
SCHEMAS = Path("/etc/ldap/schema")
START, STOP = 180, 180

_CONFIG = """\
{schemas}
pidfile {folder}/slapd.pid
argsfile {folder}/slapd.args
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload syncprov
{tls}
{settings}
database mdb
suffix "{base}"
rootdn "{root}"
rootpw "{password}"
directory {folder}/data
maxsize 67108864
dbnosync
{rules}
{replication}
{database}
"""

_RULES = f"""\
index objectClass,entryUUID,entryCSN eq
access to attrs=userPassword by anonymous auth by * none
access to * by dn.base="{SERVICE}" read by * none
"""

_REPLICA = """\
syncrepl rid=001 provider={uri} type=refreshAndPersist retry="1 +" searchbase="{base}" bindmethod=simple
  binddn="{root}" credentials="{password}"
updateref {uri}
"""

_TREE = f"""\
dn: {BASE}
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: {SERVICE}
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: service
userPassword: {SERVICE_PASSWORD}

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people
"""


class Slapd:
    """Served once entered or started. `certificate`: a file with key and certificate, for StartTLS and a port of TLS.

    `schemas` are files beside those of the package; `settings` and `database` are more lines of slapd.conf; `rules` are
    its indexes and rights. `telling`: its log has each operation.
    """

    def __init__(self, folder: Path, *, provider: "Slapd | None" = None, certificate: Path | None = None,
                 schemas: Sequence[Path] = (), settings: str = "", database: str = "", tree: str = _TREE,
                 rules: str = _RULES, telling: bool = False) -> None:
        if not Path(PROGRAM).exists():
            raise AssertionError("slapd is not installed: apt-get install slapd ldap-utils")
        self.folder = folder
        self.port, self.tls_port = free_port(), free_port() if certificate else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._level = "stats" if telling else "0"
        (folder / "data").mkdir(parents=True)
        os.chmod(folder, 0o700)
        usual = [SCHEMAS / f"{name}.schema" for name in ("core", "cosine", "nis", "inetorgperson")]
        tls = f"TLSCertificateFile {certificate}\nTLSCertificateKeyFile {certificate}\n" if certificate else ""
        copied = _REPLICA.format(uri=provider.uri, base=BASE, root=ROOT, password=ROOT_PASSWORD) if provider else \
            "overlay syncprov\n"
        (folder / "slapd.conf").write_text(_CONFIG.format(
            folder=folder, schemas="\n".join(f"include {path}" for path in (*usual, *schemas)), base=BASE, root=ROOT,
            password=ROOT_PASSWORD, rules=rules, tls=tls, settings=settings, database=database,
            replication=copied))
        if provider is None:
            self.load(tree)

    def __enter__(self) -> "Slapd":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    @property
    def uri(self) -> str:
        """Where it answers."""
        return f"ldap://127.0.0.1:{self.port}"

    @property
    def tls_uri(self) -> str:
        """The same under TLS."""
        return f"ldaps://127.0.0.1:{self.tls_port}"

    @property
    def options(self) -> dict[str, str]:
        """Those of onecopy that have it ask here, as SERVICE."""
        file = self.folder / "service-password"
        file.write_text(SERVICE_PASSWORD + "\n")
        return {"directory.uris": self.uri, "directory.starttls": "no", "directory.base": BASE,
                "directory.bind_dn": SERVICE, "directory.bind_password_file": str(file)}

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "not running"
        return self._process.pid

    def load(self, ldif: str) -> None:
        """Entries, before it runs."""
        self._run("slapadd", "-q", "-f", str(self.folder / "slapd.conf"), octets=ldif.encode())

    def add(self, ldif: str) -> None:
        """Entries, while it runs."""
        self._client("ldapadd", ldif)

    def change(self, ldif: str) -> None:
        """Change records, while it runs."""
        self._client("ldapmodify", ldif)

    def delete(self, dn: str) -> None:
        """Take an entry away, while it runs."""
        self._client("ldapmodify", f"dn: {dn}\nchangetype: delete\n")

    def binds(self, dn: str) -> int:
        """How often somebody wanted to be let in as this entry, since it tells."""
        return (self.folder / "log").read_text(errors="replace").count(f'BIND dn="{dn}" method=128')

    def _client(self, program: str, ldif: str) -> None:
        self._run(program, "-x", "-H", self.uri, "-D", ROOT, "-w", ROOT_PASSWORD, octets=ldif.encode())

    def search(self, filter: str, *attributes: str) -> str:
        """What ldapsearch prints for it, or "" when the server does not answer."""
        done = subprocess.run(["ldapsearch", "-x", "-LLL", "-o", "nettimeout=180", "-H", self.uri, "-D", ROOT, "-w",
                               ROOT_PASSWORD, "-b", BASE, filter, *attributes], capture_output=True, timeout=START,
                              check=False)
        return done.stdout.decode() if done.returncode == 0 else ""

    def _run(self, *words: str, octets: bytes) -> None:
        done = subprocess.run(words, input=octets, capture_output=True, timeout=START, check=False)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout.decode()}{done.stderr.decode()}"

    def start(self) -> None:
        """Start it; return when it answers."""
        assert self._process is None, "runs already"
        places = f"{self.uri}/ {self.tls_uri}/" if self.tls_port else f"{self.uri}/"
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "-f", self.folder / "slapd.conf", "-h", places, "-d", self._level],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait.until(self._answers, "slapd answers", pid=self.pid, limit=START)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{(self.folder / 'log').read_text()}") from None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), START):
                return True
        except OSError:
            return False

    def copied(self, filter: str) -> None:
        """Wait until there is an entry like that, which comes from the provider."""
        wait.until(lambda: bool(self.search(filter, "1.1")), f"{filter} is copied", pid=self.pid, limit=START)

    def kill(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(STOP)
            self._process = None

    def hang(self) -> None:
        """It keeps its connections and answers nothing, until `resume`."""
        self._process.send_signal(signal.SIGSTOP)       # type: ignore[union-attr]
        status = Path(f"/proc/{self.pid}/stat")
        wait.until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", "slapd has stopped", pid=self.pid,
                   limit=STOP)

    def resume(self) -> None:
        """Go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def person(uid: str, password: str = "secret", *lines: str, below: str = f"ou=people,{BASE}") -> str:
    """An entry of inetOrgPerson, as LDIF; `lines` are more of its attributes."""
    return "\n".join([f"dn: uid={uid},{below}", "objectClass: inetOrgPerson", f"uid: {uid}", f"cn: {uid}",
                      f"sn: {uid}", f"mail: {uid}@example.org", f"userPassword: {password}", *lines]) + "\n\n"
