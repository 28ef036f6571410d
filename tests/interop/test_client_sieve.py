"""Programs that keep Sieve scripts on a server: sieve-connect, sievemgr and sievelib, over STARTTLS; and mail that then
goes where they said."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sievelib.managesieve import Client
from sievemgr import ScramSHA256Auth, SieveManager, SieveOperationError

from tests.support.clients import clients
from tests.support.clients.lmtp import Lmtp
from tests.support.processes.ports import free_port
from tests.support.servers.certificates import Authority
from tests.support.servers.server import PASSWORD, Server

LIMIT = 300                 # seconds
SCRIPT = 'require ["fileinto", "mailbox"];\nif header :contains "subject" "list" {\n    fileinto :create "Lists";\n}\n'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path, int]]:
    folder, port = tmp_path_factory.mktemp("sieve"), free_port()
    authority = Authority(folder, "authority")
    with Server(folder, ["alice", "bob", "carol"], {
            "tls.certificate": str(authority.server()), "managesieve.port": str(port),
            "managesieve.address": "127.0.0.1", "login.scram_keys": "SCRAM-SHA-256"}) as server:
        yield server, authority.file, port
        server.stop()
        server.check()


def run(folder: Path, *words: str, octets: bytes = b"") -> str:
    done = subprocess.run(words, cwd=folder, input=octets, capture_output=True, timeout=LIMIT, check=False,
                          env=clients.environment(folder))
    said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    assert done.returncode == 0, said
    return said


def test_sieve_connect(served: tuple[Server, Path, int], tmp_path: Path) -> None:
    server, authority, port = served
    script = tmp_path / "main.sieve"
    script.write_text(SCRIPT)

    def ask(*words: str) -> str:
        return run(tmp_path, "sieve-connect", "--server", "localhost", "--port", str(port), "--user", "alice",
                   "--passwordfd", "0", "--tlscafile", str(authority), *words, octets=PASSWORD.encode() + b"\n")

    ask("--localsieve", str(script), "--remotesieve", "main", "--upload")
    ask("--remotesieve", "main", "--activate")
    assert '"main" ACTIVE' in ask("--list")
    copy = tmp_path / "copy.sieve"
    ask("--remotesieve", "main", "--localsieve", str(copy), "--download")
    assert copy.read_text().splitlines() == SCRIPT.splitlines()
    with Lmtp(server.lmtp) as relay:
        assert relay.deliver("ann@example.net", ["alice"], b"Subject: a list\r\n\r\nx\r\n")[0].code == 250
    assert "Lists" in server.command("mailbox", "list", "alice")
    ask("--deactivate")
    ask("--remotesieve", "main", "--delete")
    assert "main" not in ask("--list")


def test_sievelib(served: tuple[Server, Path, int]) -> None:
    _, _, port = served
    client = Client("localhost", port)
    client.ssl_verify = False
    assert client.connect("bob", PASSWORD, starttls=False, authmech="PLAIN")
    assert client.putscript("rules", SCRIPT) and client.setactive("rules")
    assert client.listscripts() == ("rules", [])
    assert client.getscript("rules").splitlines() == SCRIPT.splitlines()
    assert client.havespace("rules", 1000) and not client.havespace("rules", 10_000_000)
    assert client.checkscript(SCRIPT) and not client.putscript("wrong", "fileinto;")
    assert client.renamescript("rules", "new") and client.listscripts()[0] == "new"
    assert client.setactive("") and client.deletescript("new") and client.listscripts() == (None, [])
    client.logout()


def test_sievemgr(served: tuple[Server, Path, int]) -> None:
    _, authority, port = served
    with SieveManager() as client:
        client.sslcontext.load_verify_locations(authority)
        client.open("localhost", port, ocsp=False)
        client.authenticate("carol", PASSWORD, sasl=ScramSHA256Auth)
        client.putscript(SCRIPT, "main")
        client.setactive("main")
        assert client.listscripts() == [("main", True)] and client.getactive() == "main"
        assert client.getscript("main").splitlines() == SCRIPT.splitlines()
        with pytest.raises(SieveOperationError):
            client.checkscript("no such command;")
        client.copyscript("main", "copy")
        client.renamescript("copy", "other")
        client.unsetactive()
        client.deletescript("other")
        client.deletescript("main")
        assert client.listscripts() == []
        client.noop()
        client.unauthenticate()
        client.authenticate("carol", PASSWORD)
