"""What is changed about an account reaches its sessions that are open, in all protocols and worker processes."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.store.accounts.ldap.ldap_support import OPTIONS
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import wait
from tests.support.servers.server import PASSWORD, Server
from tests.support.servers.slapd import BASE, Slapd, person

TIME = 180          # seconds, far more than it takes
MOST = 40           # times that sessions begin until each worker has some: the kernel gives out connections as it likes
MANY = 6            # sessions of each kind: so some are in each worker


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    options = {"workers.imap": "2", "workers.pop3": "2", "workers.lmtp": "2", "pop3.sharing": "shared",
               "lmtp.auth_users": "alice, carol, dave", "lmtp.networks": "192.0.2.0/24"}
    with TemporaryDirectory(prefix="onecopy-") as folder, Server(
            Path(folder), ["alice", "bob", "carol", "dave"], options) as server:
        yield server


class Sessions:
    """Those of a user: IMAP between two commands and in IDLE, POP3, LMTP."""

    def __init__(self, server: Server, user: str, password: str = PASSWORD, *, lmtp: bool = True) -> None:
        self.imap = [Imap(server.imap, user, password, timeout=TIME) for _ in range(2 * MANY)]
        for client in self.imap[::2]:
            client.select()
            client.send(b"i IDLE\r\n")
            assert client.response().text.startswith(b"+ ")
        self.pop3 = [Pop3(server.pop3, user, password, timeout=TIME) for _ in range(MANY)]
        self.lmtp = [Lmtp(server.lmtp, timeout=TIME) for _ in range(MANY)] if lmtp else []
        plain = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
        for relay in self.lmtp:
            assert relay.command(f"AUTH PLAIN {plain}").code == 235

    def end_with(self, code: str, text: str, pop3: str = "AUTH") -> None:
        """All of them are told so."""
        for client in self.imap:
            said = client.response().text.decode()
            assert said == f"* BYE [{code}] {text}"
        for client in self.pop3:
            assert client.line() == f"-ERR [{pop3}] {text}"
        for relay in self.lmtp:
            assert str(relay.reply()).startswith(f"421 4.7.0 {text}")

    def close(self) -> None:
        for client in (*self.imap, *self.pop3, *self.lmtp):
            client.abort() if isinstance(client, Imap | Lmtp) else client.close()


def processes(server: Server) -> set[str]:
    rows = json.loads(server.command("connections", "--json"))
    return {row["process"] for row in rows if row["user"]}


def test_changes_by_commands_reach_all_workers(server: Server) -> None:
    others = Imap(server.imap, "bob", timeout=TIME)
    several = [Sessions(server, "alice")]
    while len(processes(server)) < 6 and len(several) < MOST:
        several.append(Sessions(server, "alice"))
    assert len(processes(server)) == 6
    server.command("user", "set", "alice", "--password-stdin", octets=b"another\n")
    for sessions in several:
        sessions.end_with("EXPIRED", "The password has been changed")
        sessions.close()
    for make, code, text in (
            (("user", "set", "alice", "--access=-ALL:*"), "AUTHORIZATIONFAILED",
             "This service is not for you from where you are"),
            (("user", "set", "alice", "--no-access-rules", "--status", "disabled"), "CONTACTADMIN",
             "The account is disabled")):
        sessions = Sessions(server, "alice", "another")
        server.command(*make)
        sessions.end_with(code, text)
        sessions.close()
        server.command("user", "set", "alice", "--no-access-rules", "--status", "active")
    sessions = Sessions(server, "carol")
    server.command("user", "rename", "carol", "caroline")
    sessions.end_with("UNAVAILABLE", "The account is not in use at present")      # so it is while it gets another name
    sessions.close()
    sessions = Sessions(server, "dave")
    server.command("user", "remove", "dave", "--now", "--yes")
    sessions.end_with("CONTACTADMIN", "The account is not there any more")
    sessions.close()
    others.ok("NOOP")
    others.close()
    ended = "dave, 127.0.0.1, is logged in no more: The account is not there any more"
    wait.until(lambda: server.log.read_text().count(ended) == 4 * MANY, "all are logged", pid=server.pid, limit=TIME)


def test_all_workers_record_a_user_and_log_more_for_a_while(server: Server) -> None:
    """`onecopy transcript` and `onecopy log level`, of sessions that are open and that begin."""
    clients = [Imap(server.imap, "bob", timeout=TIME)]
    while len({row["process"] for row in json.loads(server.command("connections", "--user", "bob", "--json"))}) < 2:
        assert len(clients) < 10 * MOST
        clients.append(Imap(server.imap, "bob", timeout=TIME))
    server.command("transcript", "nobody", status=1)
    assert "imap-1" in server.command("log", "level", "imap", "debug")
    server.command("log", "level", "imapp", "debug", status=2)
    rows = {row["part"]: row for row in json.loads(server.command("log", "levels", "--json"))}
    assert rows["imap"]["level"] == "debug" and rows["imap"]["configured"] is None and 0 < rows["imap"]["left"] <= 600
    assert json.loads(server.command("transcript", "bob", "--for", "5m", "--json"))["connections"] == len(clients)
    clients.append(Imap(server.imap, "bob", timeout=TIME))
    for client in clients:
        client.ok("NOOP")
    assert {row["who"] for row in json.loads(server.command("transcript", "--json"))["orders"]} == {"bob"}
    server.command("transcript", "bob", "--end")
    server.command("transcript", "bob", "--end", status=1)
    folder = server.root / "transcripts"
    paths = wait.until(lambda: len(found := sorted(folder.glob("*.txt"))) == len(clients) and all(
        "-- the time is over" in path.read_text() for path in found) and found, "they are written", pid=server.pid,
        limit=TIME)
    assert all("C: " in text and " OK NOOP completed" in text and PASSWORD not in text
               for text in (path.read_text() for path in paths))
    server.command("log", "level", "imap", "configured")
    assert [row["part"] for row in json.loads(server.command("log", "levels", "--json"))] == ["all"]
    noted = json.loads(server.command("audit", "show", "--kind", "read", "--json"))
    assert {line["what"] for line in noted} == {"transcript"} and any("bob" in str(line) for line in noted)
    assert json.loads(server.command("transcript", "--json"))["orders"] == []
    for client in clients:
        client.close()


def test_a_reload_ends_what_it_denies(tmp_path: Path) -> None:
    rules = tmp_path / "onecopy.toml"
    rules.write_text("")
    with Server(tmp_path, ["bob"], {"config": str(rules), "workers.imap": "2", "workers.pop3": "2",
                                    "pop3.sharing": "shared"}) as server:
        sessions = Sessions(server, "bob", lmtp=False)
        rules.write_text('[login]\nservice_access = "-ALL:*"\n')
        server.command("config", "reload")
        sessions.end_with("AUTHORIZATIONFAILED", "This service is not for you from where you are")
        sessions.close()


def test_an_outside_directory_is_asked_again(tmp_path: Path) -> None:
    """A password as its overlay ppolicy notes it, a user who is gone; others go on."""
    with Slapd(tmp_path / "slapd", settings="moduleload ppolicy", database="overlay ppolicy") as directory:
        directory.add("".join(person(user) for user in ("alice", "bob", "carol")))
        options = {**directory.options, **OPTIONS, "directory.session_time": "1s", "workers.imap": "2",
                   "workers.pop3": "2", "pop3.sharing": "shared"}
        with Server(tmp_path / "server", options=options) as server:
            stays = Imap(server.imap, "carol", timeout=TIME)
            for user in ("alice", "bob"):
                sessions = Sessions(server, user, lmtp=False)
                if user == "alice":
                    directory.change(f"dn: uid=alice,ou=people,{BASE}\nchangetype: modify\nreplace: userPassword\n"
                                     "userPassword: another\n")
                    sessions.end_with("EXPIRED", "The password has been changed")
                else:
                    directory.delete(f"uid=bob,ou=people,{BASE}")
                    sessions.end_with("CONTACTADMIN", "The account is not there any more")
                sessions.close()
            Imap(server.imap, "alice", "another", timeout=TIME).ok("NOOP")
            directory.kill()                    # who cannot be asked about stays, by what was said last
            stays.ok("NOOP")
