"""`onecopy config check` names what would not work, and nothing else; which options are taken over at a reload."""

import errno
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults.planted import Faults
from tests.support.processes.environment import PLAIN
from tests.support.processes.ports import free_port
from tests.support.processes.program import Program
from tests.support.servers.certificates import Authority
from tools.cli import options as config
from tools.server.process.reloadable import RELOADED, differing, is_reloaded, joined

SELF_SIGNED = ("tls.certificate", False)


@pytest.fixture
def quiet(bare: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A store with nothing wrong but what tests cannot help."""
    bare("init")
    for server in ("imap", "pop3", "lmtp"):
        monkeypatch.setenv(f"ONECOPY_{server.upper()}_ADDRESS", "127.0.0.1")
        monkeypatch.setenv(f"ONECOPY_{server.upper()}_PORT", str(free_port()))
        monkeypatch.setenv(f"ONECOPY_{server.upper()}_TLS_PORT", "0")
    return bare


def found(program: Program, *words: str, status: int = 1) -> set[tuple[str, bool]]:
    """Options and whether it is serious; without what any store of a test has."""
    said = json.loads(program("config", "check", *words, "--json", status=status))
    assert all(each["text"] and "\n" not in each["text"] for each in said)
    return {(each["option"], each["serious"]) for each in said} - {
        ("workers.user", False), SELF_SIGNED, *((f"{name}.connections", False) for name in ("imap", "pop3", "lmtp"))}


def test_nothing_is_wrong(quiet: Program) -> None:
    before = sorted(quiet.root.rglob("*"))
    assert found(quiet, status=0) == set()
    assert sorted(quiet.root.rglob("*")) == before


@pytest.mark.parametrize(("words", "option"), [
    (["--imap-client-ca", "/nowhere/ca.pem"], "imap.client_ca"),
    (["--login-oauth-keys", "/nowhere/keys"], "login.oauth_keys"),
    (["--log-file", "/nowhere/log"], "log.file"),
    (["--lmtp-socket", "/" + "x" * 120], "lmtp.socket"),
    (["--tls-key", "/etc/hostname"], "tls.key"),
    (["--store-quota-notice", "/nowhere/template"], "store.quota_notice"),
    (["--store-default-partition", "other"], "store.default_partition"),
    (["--workers-user", "no-such-user"], "workers.user"),
    (["--workers-group", "root"], "workers.group"),
    (["--exchange-port", "1"], "exchange.port"),
    (["--exchange-peers", "b=127.0.0.1:1"], "exchange.peers"),
    (["--login-proxies", "webmail"], "login.proxies"),
    (["--login-oauth-introspection", "http://127.0.0.1/"], "login.oauth_audience"),
    (["--login-oauth-keys", "/etc/hostname", "--login-oauth-audience", "x"], "login.oauth_issuer"),
    (["--directory-bind-dn", "cn=x"], "directory.bind_dn"),
    (["--lmtp-networks", "0.0.0.0/0"], "lmtp.networks"),
    (["--imap-port", "0", "--pop3-port", "0", "--lmtp-port", "0"], "imap.port"),
])
def test_one_thing_is_wrong(quiet: Program, words: list[str], option: str) -> None:
    assert (option, True) in (said := found(quiet, *words))
    assert {name.partition(".")[0] for name, _ in said} == {option.partition(".")[0]}


def test_a_port_that_another_has(quiet: Program) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert found(quiet, "--pop3-port", port) == {("pop3.port", True)}
    assert found(quiet, "--pop3-port", port, "--imap-tls-port", port) == {("pop3.port", True)}


def test_files_that_others_can_read(quiet: Program, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    secret.chmod(0o644)
    words = ["--front-secret-file", str(secret)]
    assert found(quiet, *words) == {("front.secret_file", True)}
    secret.chmod(0o640)
    assert found(quiet, *words, status=0) == set()
    secret.write_text("")
    assert found(quiet, *words) == {("front.secret_file", True)}
    (quiet.root / "run").chmod(0o755)
    assert found(quiet, *words) == {("front.secret_file", True), ("root", True)}


def _expired(folder: Path) -> Path:
    return Authority(folder, "ours").client("mail.example.org", expired=True)


def _ends_soon(folder: Path) -> Path:
    return Authority(folder, "ours").server()               # in an hour


def _no_certificate(folder: Path) -> Path:
    path = folder / "junk.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nx\n")
    return path


@pytest.mark.parametrize(("make", "serious"), [(_expired, True), (_ends_soon, False), (_no_certificate, True)])
def test_certificates(quiet: Program, tmp_path: Path, make: Callable[[Path], Path], serious: bool) -> None:
    said = json.loads(quiet("config", "check", "--tls-certificate", str(make(tmp_path)), "--json", status=int(serious)))
    assert [each["serious"] for each in said if each["option"] == "tls.certificate"] == [serious]


# Back ends

def _back_end(folder: Path, authority: Authority, certificate: Path | None = None) -> list[str]:
    words = ["--store-host", "one.example.org", "--exchange-port", str(free_port()), "--exchange-peers",
             f"two.example.org=127.0.0.1:{free_port()}", "--exchange-authorities", str(authority.file)]
    return words if certificate is None else [*words, "--exchange-certificate", str(certificate)]


@pytest.mark.parametrize(("names", "expired", "text"), [
    (["one.example.org"], True, "has ended"), (["one.example.org"], False, "ends in 0 days"),
    (["two.example.org"], False, "does not have one.example.org among its DNS names")])
def test_the_certificate_for_other_back_ends(quiet: Program, tmp_path: Path, names: list[str], expired: bool,
                                             text: str) -> None:
    authority = Authority(tmp_path, "ours")
    words = _back_end(tmp_path, authority, authority.back_end(*names, expired=expired))
    serious = expired or names != ["one.example.org"]
    said = json.loads(quiet("config", "check", *words, "--json", status=int(serious)))
    assert [each["serious"] for each in said if text in each["text"] and each["option"] == "exchange.certificate"] == [
        serious]


def test_a_certificate_that_is_not_for_clients_and_one_that_is_none(quiet: Program, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    words = _back_end(tmp_path, authority, authority.client("", "one.example.org"))
    assert ("exchange.certificate", True) in found(quiet, *words)
    assert "is not one for a server" in quiet("config", "check", *words, status=1)
    authority.file.write_text("junk")
    assert ("exchange.authorities", True) in found(quiet, *words)


@pytest.mark.parametrize(("words", "option", "serious", "text"), [
    (["--exchange-synchronous", "second"], "exchange.synchronous", True, "second is not among exchange.standbys"),
    (["--exchange-standbys", "second", "--exchange-synchronous", "Second,third"], "exchange.synchronous", True,
     "third is not among exchange.standbys"),
    (["--exchange-standbys", "second"], "exchange.standbys", False, "set exchange.port"),
    (["--exchange-standbys", "second", "--exchange-synchronous", "second"], "exchange.standbys", True,
     "set exchange.port"),
    (["--exchange-standbys", "second=x"], "exchange.standbys", True, "not host=address:port"),
    (["--exchange-standbys", "a,one", "--exchange-host", "One"], "exchange.standbys", False, "own name"),
    (["--exchange-without-standby", "continue"], "exchange.without_standby", False, "without exchange.synchronous"),
    (["--exchange-standbys", "b", "--exchange-synchronous", "b", "--store-sync", "messages"], "exchange.synchronous",
     False, "store.sync = messages"),
])
def test_standbys(quiet: Program, words: list[str], option: str, serious: bool, text: str) -> None:
    status = int(serious or "--exchange-synchronous" in words)          # there is no port in any of them
    said = json.loads(quiet("config", "check", *words, "--json", status=status))
    assert (option, serious) in [(each["option"], each["serious"]) for each in said if text in each["text"]]


def test_what_follows_without_a_standby_is_one_of_two(quiet: Program) -> None:
    assert "refuse" in quiet.refused("config", "check", "--exchange-without-standby", "wait", status=2)


def test_the_secret_of_former_versions(quiet: Program, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    secret.chmod(0o600)
    words = ["--store-host", "one.example.org", "--exchange-port", str(free_port()), "--exchange-secret", str(secret)]
    assert found(quiet, *words) == {("exchange.port", True), ("exchange.secret", False),
                                    ("exchange.certificate", False)}
    assert "set exchange.authorities" in quiet("config", "check", *words, status=1)


def test_the_certificate_that_is_made_is_printed_for_other_back_ends(quiet: Program, tmp_path: Path) -> None:
    words = _back_end(tmp_path, Authority(tmp_path, "ours"))
    assert ("exchange.certificate", False) in found(quiet, *words, status=0)
    said = quiet("config", "certificate", *words)
    assert said.startswith("# one.example.org, until ")
    assert said.partition("\n")[2] == (quiet.root / "tls" / "exchange" / "certificate.pem").read_text()
    assert (quiet.root / "tls" / "exchange" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert quiet("config", "certificate", *words) == said
    assert "exchange.certificate" not in {option for option, _ in found(quiet, *words, status=0)}
    assert ("exchange.peers", True) in found(quiet, *words, "--online")
    assert "store.host is not set" in quiet.refused("config", "certificate", status=2)


def test_other_hosts_are_asked_only_online(quiet: Program) -> None:
    words = ["--directory-uris", f"ldap://127.0.0.1:{free_port()}", "--directory-base", "dc=example",
             "--front-smtp-server", f"127.0.0.1:{free_port()}"]
    assert found(quiet, *words, status=0) == set()
    assert found(quiet, *words, "--online") == {("directory.uris", True), ("front.smtp_server", True)}


@pytest.fixture
def ports(quiet: Program, monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Those below 1024, as the user whom a service runs as would try them; who may write to nothing of root's."""
    faults.fail(socket.socket, "bind", PermissionError(errno.EACCES, "Permission denied"),
                when=lambda _, address: address[1] < 1024)
    faults.around(os, "geteuid", lambda _: 1000)
    for server, port in (("IMAP", "143"), ("POP3", "110"), ("LMTP", "24")):
        monkeypatch.setenv(f"ONECOPY_{server}_PORT", port)


def test_before_the_first_start(quiet: Program, ports: None, tmp_path: Path) -> None:
    """By hand, as the service's user: systemd gives the service its ports, and --create makes the store."""
    missing = {("root", False)} | {(f"{name}.port", False) for name in ("imap", "pop3", "lmtp")}
    quiet.root = tmp_path / "later" / "store"
    assert found(quiet, status=0) == missing
    assert not quiet.root.exists()
    quiet.root.parent.mkdir()
    (quiet.root / "lost+found").mkdir(parents=True)     # of a volume of its own
    assert found(quiet, status=0) == missing
    for path in (quiet.root / "partitions/primary/messages/0/00/ab", quiet.root):
        if path == quiet.root:
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        assert ("root", True) in found(quiet)


def test_a_store_that_cannot_be_made(quiet: Program, faults: Faults, tmp_path: Path) -> None:
    quiet.root = tmp_path / "store-to-be"
    faults.around(os, "access", lambda real, path, mode: path != tmp_path and real(path, mode))
    assert ("root", True) in found(quiet)


def test_root_looks_at_what_another_user_runs(quiet: Program, faults: Faults) -> None:
    """A unit of systemd names the user; the configuration need not."""
    os.chown(quiet.root, 12345, 12345)
    assert found(quiet, status=0) == set()
    faults.around(os, "geteuid", lambda _: 1000)
    assert ("root", True) in found(quiet)


def test_unknown_options(bare: Program, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[imap]\nprot = 1\nhost = 2\n")
    said = bare.refused("config", "check", "--config", "other.toml", status=2)
    assert said.endswith("imap.host, imap.prot: there is no such option")


def test_what_differs_from_the_defaults(quiet: Program) -> None:
    rows = json.loads(quiet("config", "diff", "--imap-idle-time", "45m", "--json", status=1))
    row = next(row for row in rows if row["option"] == "imap.idle_time")
    assert row == {"option": "imap.idle_time", "default": "30m", "value": "45m", "origin": "--imap-idle-time"}
    assert {row["option"] for row in rows} >= {"root", "lmtp.port"}
    assert "pop3.idle_time" not in {row["option"] for row in rows}


# Reloads

def test_what_is_reloaded() -> None:
    options = config.table()
    assert options.keys() >= RELOADED
    opening = {name for name in options if name.endswith((".address", "port", ".socket", "_socket"))} - {
        "front.imap_port", "front.pop3_port"}
    assert not any(is_reloaded(name) for name in opening)
    assert {name for name in options if name.startswith(("workers.", "directory.", "exchange.")) and is_reloaded(name)
            } == {"exchange.standbys"}          # who is taken out is cut off at once
    assert all(map(is_reloaded, (
        "imap.connections", "pop3.connections_per_user", "lmtp.networks", "login.access", "login.slow_first",
        "store.quota_warn", "store.default_quota", "log.level", "tls.certificate", "imap.admins")))
    assert not is_reloaded("store.cache") and not is_reloaded("imap.proxy_networks") and not is_reloaded("log.file")


def test_what_is_not_taken_over_stays_as_it_was() -> None:
    running = config.load({"imap.port": "1", "imap.login_attempts": "2", "store.cache": "1M"}, PLAIN)
    wanted = config.load({"imap.port": "3", "imap.login_attempts": "4", "store.cache": "2M"}, PLAIN)
    assert set(differing(running, wanted)) == {"imap.port", "imap.login_attempts", "store.cache"}
    found = joined(running, wanted)
    assert [found.values[name] for name in ("imap.port", "imap.login_attempts", "store.cache")] == [1, 4, 1 << 20]
    assert set(differing(found, wanted)) == {"imap.port", "store.cache"}


def test_the_sources_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "onecopy.toml"
    file.write_text("[imap]\nlogin_attempts = 2\n")
    first = config.load({"imap.port": "7"}, {}, file)
    file.write_text("[imap]\nlogin_attempts = 3\nport = 8\n")
    again = first.again().again()
    assert (again.values["imap.login_attempts"], again.values["imap.port"]) == (3, 7)
    assert again.origins["imap.port"] == "--imap-port"
