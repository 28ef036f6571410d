"""What would not work of a configuration: `onecopy config check`. Nothing is made or changed."""

import errno
import grp
import os
import pwd
import resource
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

from mboxlist import privatefiles
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapsettings import Settings
from store.accounts.loginsettings import Settings as LoginSettings
from store.errors import StoreError
from store.housekeeping.notices import template
from store.partition import processes
from store.settings import LEAST_USED, SYNC_LEVELS
from store.settings import Settings as StoreSettings
from tools.cli.options import Config
from tools.cli.storeaccess import is_store
from tools.exits import Failure
from tools.server.control.backendlink import Place, what_is_wrong
from tools.server.metrics import spanpackages
from tools.server.process import sockets
from tools.server.tls.backendtls import BackEndTls
from tools.server.tls.contexts import Certificates, ends
from tools.serversettings import REFUSE, Exchange, Tls, Trace, Workers, tls_folder
from tools.storeowner import ROOT, Owner

DAY = 86400.0
SOON = 21 * DAY         # before the end of a certificate
SOCKET_PATH = 107       # octets of a UNIX socket's path
_SERVERS = ("imap", "pop3", "lmtp", "managesieve", "http")
_MADE = ("log.file", "lmtp.socket", "lmtp.guaranteed_socket", "lmtp.verify_socket", "store.log_archive")
_SECRET = ("secret", "secret_file", "password_file", "key")      # how names of options end whose files are secret


@frozen
class Finding:
    """`serious`: the server does not start, or something in it does not work."""

    option: str
    serious: bool
    text: str


def examine(config: Config, *, online: bool) -> list[Finding]:
    """All that is found. `online`: other hosts are asked, too."""
    found: list[Finding] = []
    for look in (_root, _user, _paths, _certificates, _back_end_certificates, _ports, _combinations, _limits, _spans):
        found += look(config)
    if online:
        found += _others(config)
    return found


def _running(config: Config) -> bool:
    try:
        return bool(processes.server(config.root / "run" / "server.pid"))
    except (OSError, Failure):
        return False


# The store and its user

def _root(config: Config) -> Iterator[Finding]:
    try:
        root = config.root
    except Failure as failure:
        yield Finding("root", True, str(failure))
        return
    if not is_store(root):
        yield _no_store(root)
        return
    owner, mode = root.stat().st_uid, stat.S_IMODE(root.stat().st_mode)
    wanted = config.settings("workers", Workers).user
    try:
        expected = pwd.getpwnam(wanted).pw_uid if wanted else owner if os.geteuid() == ROOT else os.geteuid()
    except KeyError:
        return                                  # see `_user`
    if owner != expected and (wanted or expected != 0):      # root may check what a service of another user runs with
        yield Finding("root", True, f"{root} belongs to {_user_name(owner)}, and the processes run as "
                                    f"{_user_name(expected)}")
    for part in ("mboxlist", "run"):
        if (root / part).is_dir() and stat.S_IMODE((root / part).stat().st_mode) & 0o077:
            yield Finding("root", True, f"{root / part} is open to other users: its mode should be 0700")
    if mode & 0o002:
        yield Finding("root", True, f"every user can write to {root}")
    place = str(config.values["store.default_partition"])
    if place != LEAST_USED and not (root / "partitions" / place).exists():
        yield Finding("store.default_partition", True, f"there is no partition {place}")


def _no_store(root: Path) -> Finding:
    """That is as it should be before the first start, if one can be made there."""
    above = next(folder for folder in root.parents if folder.exists())
    if root.exists() and not root.is_dir():
        return Finding("root", True, f"{root} is no folder")
    if any(path.is_file() for path in (root / "partitions").rglob("*")):
        return Finding("root", True, f"there is mail in {root / 'partitions'}, and no list of mailboxes: onecopy "
                                     "reconstruct --all makes one")
    if not os.access(root if root.exists() else above, os.W_OK):
        return Finding("root", True, f"there is no store in {root}, and this user cannot make one there")
    return Finding("root", False, f"there is no store in {root} yet: onecopy serve --create makes one, or onecopy "
                                  "init; onecopy standby create makes a standby")


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _spans(config: Config) -> Iterator[Finding]:
    if config.settings("trace", Trace).collector:
        try:
            spanpackages.require()
        except Failure as missing:
            yield Finding("trace.collector", True, str(missing))


def _user(config: Config) -> Iterator[Finding]:
    workers = config.settings("workers", Workers)
    for option, name, find in (("workers.user", workers.user, pwd.getpwnam),
                               ("workers.group", workers.group, grp.getgrnam)):
        try:
            if name:
                find(name)
        except KeyError:
            yield Finding(option, True, f"there is no {name}")
    if workers.group and not workers.user:
        yield Finding("workers.group", True, "it is given without workers.user")
    owner = Owner.of(Path(str(config.values["root"])))
    if not workers.user and os.geteuid() == ROOT and (owner is None or owner.user == ROOT):
        yield Finding("workers.user", False, "started by root, the processes stay root: name a user of their own")


# Files

def _paths(config: Config) -> Iterator[Finding]:
    for name, value in config.values.items():
        if isinstance(value, Path) and name != "root":
            yield from _to_be_made(name, value) if name in _MADE else _to_be_read(name, value)
    try:
        template(config.settings("store", StoreSettings))
    except StoreError as error:
        yield Finding("store.quota_notice", True, error.public)


def _to_be_made(name: str, path: Path) -> Iterator[Finding]:
    if not path.parent.is_dir():
        yield Finding(name, True, f"there is no folder {path.parent}")
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        yield Finding(name, True, f"{path} cannot be written by this user")
    if name.endswith("socket") and len(os.fsencode(path.absolute())) > SOCKET_PATH:
        yield Finding(name, True, f"the path of a socket has at most {SOCKET_PATH} octets")


def _to_be_read(name: str, path: Path) -> Iterator[Finding]:
    try:
        if path.is_dir():
            os.listdir(path)
            if name != "tls.certificates":
                yield Finding(name, True, f"{path} is a folder")
            return
        with privatefiles.open_named(path) as file:
            empty = not file.read(1)
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        yield Finding(name, True, f"{path}: {error.strerror}")
        return
    if empty:
        yield Finding(name, True, f"{path} is empty")
    if name.endswith(_SECRET) and mode & 0o007:
        yield Finding(name, True, f"every user can read {path}: its mode should be 0600 or 0640")


def _certificates(config: Config) -> Iterator[Finding]:
    settings, folder = config.settings("tls", Tls), _folder(config)
    if settings.certificate is None:
        if settings.key is not None:
            yield Finding("tls.key", True, "it is given without tls.certificate")
            return
        if folder is None or not (folder / "certificate.pem").exists():
            return                              # it is made at the start
        yield Finding("tls.certificate", False, "clients are shown the self-signed certificate that init has made")
    for server in _SERVERS:
        authorities = config.values[f"{server}.client_ca"]
        try:
            Certificates.from_settings(settings, folder or Path(), authorities if isinstance(
                authorities, Path) else None, server=server)
        except Failure as failure:
            yield Finding("tls.certificate" if authorities is None else f"{server}.client_ca", True, str(failure))
            return                              # the others would say the same
    for path, end in ends(settings, folder or Path()):
        left = end.timestamp() - time.time()
        if left < SOON:
            words = "has ended" if left < 0 else f"ends in {max(0, int(left / DAY))} days"
            yield Finding("tls.certificates" if settings.certificates in path.parents else "tls.certificate", left < 0,
                          f"{path}: the certificate {words}, {end:%Y-%m-%d %H:%M} UTC")


def _back_end_certificates(config: Config) -> Iterator[Finding]:
    values = config.values
    if not (values["exchange.port"] or values["exchange.peers"]) or not values["store.host"]:
        return                                  # see `_combinations`
    try:
        tls = BackEndTls.of(config.settings("exchange", Exchange), config.root, str(values["store.host"]))
        if values["exchange.certificate"] is None and not tls.certificate.exists():
            yield Finding("exchange.certificate", False, "there is none yet: `onecopy config certificate` makes and "
                                                         "prints one for the other back ends")
            return
        yield from (Finding(*found) for found in tls.findings())
    except Failure as failure:
        option, _, text = str(failure).partition(": ")
        known = option in values
        yield Finding(option if known else "exchange.certificate", True, text if known else str(failure))


def _folder(config: Config) -> Path | None:
    try:
        return tls_folder(config.root)
    except Failure:
        return None


# Ports

def _ports(config: Config) -> Iterator[Finding]:
    running, seen = _running(config), dict[tuple[str, int], str]()
    for option, address, port in _wanted(config):
        if (address, port) in seen:
            yield Finding(option, True, f"port {port} is also that of {seen[address, port]}")
            continue
        seen[address, port] = option
        answers = _answers(address, port)
        if running:
            if not answers:
                yield Finding(option, True, f"the server runs and does not answer on {address} port {port}: restart it")
        elif found := _cannot_bind(address, port):
            yield Finding(option, found[1], f"{address} port {port}: {found[0]}")
    if not seen and not any(config.values[f"lmtp.{name}"] for name in ("socket", "guaranteed_socket", "verify_socket")):
        yield Finding("imap.port", True, "there is nothing to serve: all ports are 0")


def _wanted(config: Config) -> Iterator[tuple[str, str, int]]:
    for server in (*_SERVERS, "front", sockets.EXCHANGE):
        for key in ("port", "tls_port", "guaranteed_port", "verify_port"):
            port = config.values.get(f"{server}.{key}")
            addresses = config.values[f"{server}.address"]
            if isinstance(port, int) and port and isinstance(addresses, tuple):
                yield from ((f"{server}.{key}", address, port) for address in addresses)


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1" if address in ("*", "0.0.0.0") else address, port), 2).close()
    except OSError:
        return False
    return True


def _cannot_bind(address: str, port: int) -> tuple[str, bool] | None:
    """Why not, and whether the server could not either."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            "0.0.0.0" if address == "*" else address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        if error.errno == errno.EACCES and os.geteuid() != 0:
            return ("this user may not open it; the server can if root starts it and workers.user is set, or with "
                    "CAP_NET_BIND_SERVICE, which docs/deploy/onecopy.service gives it"), False
        return error.strerror or str(error), True
    return None


# What does not go together

def _combinations(config: Config) -> Iterator[Finding]:
    values = config.values

    def needs(option: str, other: str, why: str) -> Iterator[Finding]:
        if values[option] not in (None, "", 0, ()) and values[other] in (None, "", 0, ()):
            yield Finding(option, True, f"{why}: set {other}")

    for option in ("exchange.port", "exchange.peers"):
        yield from needs(option, "exchange.authorities", "no other back end could prove who it is; `onecopy config "
                                                         "certificate` prints what each needs of another one")
        yield from needs(option, "store.host", "this back end has no name for the others")
    yield from _standbys(config)
    if values["exchange.secret"]:
        yield Finding("exchange.secret", False, "it is not used any more, back ends show each other certificates: "
                                                "remove it, and set exchange.authorities (docs/many-machines.md)")
    yield from needs("login.oauth_introspection", "login.oauth_secret_file", "nobody answers who asks without password")
    if lacks := config.settings("login", LoginSettings).oauth_lacks:
        yield Finding(lacks, True, "without it no token is taken, and OAUTHBEARER and XOAUTH2 are not offered")
    yield from needs("login.proxies", "login.proxy_networks", "from nowhere may they act as users")
    yield from needs("lmtp.client_names", "lmtp.client_ca", "no certificate is asked for")
    yield from needs("directory.write_dn", "directory.write_password_file", "it cannot prove who it is")
    for option in ("directory.bind_dn", "directory.base", "directory.write_dn"):
        if values.get(option) and not values["directory.uris"]:
            yield Finding(option, True, "no directory is asked: set directory.uris")
    if values["front.port"] and not values["front.default_host"] and not values["directory.uris"]:
        yield Finding("front.port", False, "users of the built-in directory without a host cannot log in by way of a "
                                           "proxy: set front.default_host")
    for server in ("imap", "pop3"):
        if values[f"{server}.plaintext_login"]:
            yield Finding(f"{server}.plaintext_login", False, "passwords can be read on their way: only for networks "
                                                              "that are trusted altogether")
    if not {"0.0.0.0/0", "::/0"}.isdisjoint(_words(config, "lmtp.networks")):
        yield Finding("lmtp.networks", True, "everybody can deliver mail, without the relay that should look at it")
    if values["store.sync"] != "everything":
        yield Finding("store.sync", False, "what was acknowledged may be lost in a loss of power")


def _limits(config: Config) -> Iterator[Finding]:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if os.geteuid() == 0 or most == resource.RLIM_INFINITY:
        return
    for server in _SERVERS:
        wanted = config.values[f"{server}.connections"]
        if isinstance(wanted, int) and wanted + 200 > most:
            yield Finding(f"{server}.connections", False, f"a process may have {most} files open, and each connection "
                                                          "is one: raise the limit (LimitNOFILE of systemd)")


# Other hosts

def _others(config: Config) -> Iterator[Finding]:
    yield from _directory(config)
    yield from _back_ends(config)
    checks: list[tuple[str, Callable[[], object]]] = []
    server = str(config.values["front.smtp_server"])
    if server:
        host, _, port = server.rpartition(":")
        checks.append(("front.smtp_server", lambda: socket.create_connection((host.strip("[]"), int(port)), 5).close()))
    if host := str(config.values["front.default_host"]):
        checks.append(("front.default_host", lambda host=host: socket.getaddrinfo(host, None)))  # type: ignore[misc]
    for option, check in checks:
        try:
            check()
        except (OSError, ValueError) as error:
            yield Finding(option, True, f"it cannot be reached: {error}")


def _back_ends(config: Config) -> Iterator[Finding]:
    """Call the other back ends, and let the certificates be verified on both sides."""
    host, peers = str(config.values["store.host"]), _words(config, "exchange.peers")
    if not peers or not host or not config.values["exchange.authorities"]:
        return                                  # see `_combinations`
    try:
        if not BackEndTls.of(config.settings("exchange", Exchange), config.root, host).certificate.exists():
            return                              # see `_back_end_certificates`
        place = Place.of(config, host)
    except Failure as failure:
        yield Finding("exchange.peers", True, str(failure))
        return
    for host in place.peers.keys() - {place.host}:
        try:
            place.connect(host).close()
        except StoreError as error:
            yield Finding("exchange.peers", True, error.public)


def _directory(config: Config) -> Iterator[Finding]:
    settings = config.settings("directory", Settings)
    if not settings.uris:
        return
    try:
        tried = Servers(settings).try_each(config.settings("directory", MapSettings).base)
        for uri, _, wrong in tried:
            if wrong:
                yield Finding("directory.uris", True, f"{uri}: {wrong}")
    except (OSError, ValueError) as error:
        yield Finding("directory.uris", True, str(error))


def _standbys(config: Config) -> Iterator[Finding]:
    settings, host = config.settings("exchange", Exchange), str(config.values["store.host"]).lower()
    try:
        if reason := what_is_wrong(settings):
            yield Finding("exchange.synchronous", True, f"{reason}: no answer could wait for it")
    except Failure as failure:
        yield Finding("exchange.standbys", True, str(failure).removeprefix("exchange.peers: "))
        return
    if settings.standbys and not settings.port:
        yield Finding("exchange.standbys", bool(settings.synchronous), "no standby can call this machine: set "
                                                                       "exchange.port")
    if (settings.host.lower() or host) in {each.partition("=")[0].strip().lower() for each in settings.standbys}:
        yield Finding("exchange.standbys", False, "this machine's own name is among them: exchange.host is another one "
                                                  "on each machine")
    if settings.synchronous and config.values["store.sync"] != SYNC_LEVELS[0]:
        yield Finding("exchange.synchronous", False, f"what store.sync = {config.values['store.sync']} answers before "
                                                     "it is on disk does not wait for the standby either")
    if not settings.synchronous and settings.without_standby != REFUSE:
        yield Finding("exchange.without_standby", False, "it means nothing without exchange.synchronous")


def _words(config: Config, option: str) -> tuple[str, ...]:
    value = config.values[option]
    return value if isinstance(value, tuple) else ()
