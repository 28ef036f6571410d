"""A server that is steered by its API: from elsewhere, by a real curl, and by `onecopy --server`."""

import json
import subprocess
from pathlib import Path

from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.processes import command
from tests.support.processes.environment import plain
from tests.support.processes.ports import free_port
from tests.support.servers.certificates import Authority
from tests.support.servers.server import Server


class Asking:
    """Asks a server with a token, by a real curl, until it has an answer: where much is done it takes some time."""

    def __init__(self, port: int, token: str) -> None:
        self._url, self._token = f"http://127.0.0.1:{port}", token

    def __call__(self, place: str, **arguments: object) -> tuple[int, dict[str, object]]:
        status, told, where = self._once(f"/api/v1/{place}", arguments)
        while status == 202:
            status, told, where = self._once(where, None)
        return status, told

    def _once(self, place: str, arguments: dict[str, object] | None) -> tuple[int, dict[str, object], str]:
        data = [] if arguments is None else ["-H", "Content-Type: application/json", "--data-binary", "@-"]
        done = subprocess.run(
            ["curl", "-sSi", "--max-time", "180", "-H", f"Authorization: Bearer {self._token}", *data,
             self._url + place],
            input=json.dumps(arguments).encode(), capture_output=True, timeout=300, check=True)
        head, _, body = done.stdout.decode().partition("\r\n\r\n")
        fields = dict(line.partition(": ")[::2] for line in head.split("\r\n")[1:])
        return int(head.split()[1]), json.loads(body), fields.get("Location", place)


def test_a_server_is_steered_from_elsewhere(tmp_path: Path) -> None:
    port, tls = free_port(), free_port()
    authority = Authority(tmp_path, "ours")
    chosen = {"http.port": str(port), "http.helpdesk_quota": "1M", "http.tls_port": str(tls),
              "tls.certificate": str(authority.client("mail", "localhost", usage=[ExtendedKeyUsageOID.SERVER_AUTH]))}
    with Server(tmp_path, ["alice", "bob@example.net"], chosen) as server:
        administrator = server.command("token", "create", "--role", "administrator").strip()
        helpdesk = server.command("token", "create", "--role", "helpdesk", "--domain", "example.net").strip()
        ask, theirs = Asking(port, administrator), Asking(port, helpdesk)
        status, told = ask("user/add", users=["carol"], password_stdin=True, stdin="secret\n")
        assert status == 200 and told["exit"] == 0, told
        line = json.loads(server.command("audit", "show", "--kind", "user", "--json"))[-1]
        assert (line["what"], line["token"]) == ("user add", f"{administrator.split('_')[1]} administrator"), line
        server.command("user", "set", "alice", "--alias", "sales@example.net")
        for user in ("alice", "sales@example.net", "nobody@example.net", "carol"):      # none of its domain
            assert theirs("user/show", user=user)[0] == 403
        status, told = theirs("user/show", user="bob@example.net")
        assert status == 200 and told["result"]["user"] == "bob@example.net"            # type: ignore[index]
        assert theirs("mailbox/info", user="bob@example.net", mailbox="user/alice/INBOX")[0] == 403
        assert theirs("quota/set", root="bob@example.net", octets="1M")[0] == 200
        assert Asking(port, administrator[:-1])("user/list")[0] == 401
        for text in ("--root=/etc", "-h"):
            status, told = ask("user/show", user=text)
            assert status == 409 and "There is no user" in str(told["errors"]), told
        file = tmp_path / "token"
        file.write_text(administrator)
        words = ["--server", f"http://127.0.0.1:{port}", "--token-file", str(file)]
        assert server.command(*words, "user", "show", "carol") == server.command("user", "show", "carol")
        server.command(*words, "user", "remove", "carol", status=2)                     # it must not ask
        server.command(*words, "user", "remove", "carol", "--yes")
        assert "carol" in server.command("user", "list", "--removed")
        commands = tmp_path / "commands"
        commands.write_text("mailbox create alice 'By batch'\nmailbox create nobody X\nmailbox create alice Left\n")
        done = json.loads(server.command(*words, "batch", str(commands), "--json", status=1))
        assert [row["status"] for row in done] == [0, 1] and "no user" in done[1]["errors"]
        assert "By batch" in (made := server.command("mailbox", "list", "alice")) and "Left" not in made
        server.command(*words, "deliver", "alice", octets=b"Subject: caf\xe9\r\n\r\n\xff\xfe\r\n")       # no UTF-8
        steer_under_tls(server, tmp_path, authority, tls, port)
        shown = server.command(*words, "token", "create", "--role", "auditor", "--for", "1h").strip()
        assert Asking(port, shown)("user/list")[0] == 200 and theirs("token/create", role="auditor")[0] == 403
        lines = server.command("audit", "show", "--json")
        assert f"the id is {shown.split('_')[1]}" in lines and shown.split("_", 2)[2] not in lines
        assert [each["user"] for each in theirs("user/list")[1]["result"]] == ["bob@example.net"]   # type: ignore
        assert theirs("quota/set", root="bob@example.net", octets="2M")[0] == 403
        said = server.log.read_text()
        assert shown not in said
        assert "user remove by token" in said and administrator not in said and "Traceback" not in said
        assert server.stop() == 0
        server.check()


def steer_under_tls(server: Server, folder: Path, authority: Authority, tls: int, port: int) -> None:
    """Nobody between sees the token, as the certificate must be for the name, by an authority that is known. What a
    command reads as its input is of who types it; all other files are the server's."""
    (folder / "nothing").write_text("\n")
    other = Authority(folder, "other").file

    def said(*words: str, ca: Path | None = authority.file, token: str = "token", host: str = "localhost",
             number: int = tls, octets: bytes = b"") -> tuple[int, str, str]:
        trust = [] if ca is None else ["--server-ca", str(ca)]
        there = ["--server", f"https://{host}:{number}", "--token-file", str(folder / token), *trust]
        return command.run([*there, *words], {**plain(), "HOME": str(folder)}, octets, 300)

    assert said("user", "show", "alice") == (0, server.command("user", "show", "alice"), "")
    for why, other_than in (("--server-ca FILE names", {"ca": None}), ("--server-ca FILE names", {"ca": other}),
                       ("give the name in --server", {"host": "127.0.0.1"}), ("http.tls_port", {"number": port}),
                       ("refused", {"number": free_port()}), ("no token", {"token": "nothing"}),
                       ("No such file", {"token": "none"}), ("no certificate in PEM", {"ca": folder / "token"}),
                       ("No such file", {"ca": folder / "none"})):
        status, out, errors = said("user", "show", "alice", **other_than)        # type: ignore[arg-type]
        assert status and not out and why in errors and errors.count("\n") == 1 and "urlopen" not in errors, errors
    rules = folder / "rules"
    rules.write_bytes(b"old.folderpattern: user/*/Lists/%\nold.messagedays: 365\n")
    assert said("expire", "set", "--user", "alice", "-", octets=rules.read_bytes())[0] == 0
    assert "Lists" in server.command("expire", "rules")
    script = folder / "my.sieve"
    script.write_text('redirect "b@example.org";\n')
    assert said("sieve", "put", "alice", "main", str(script)) == (0, "", "")
    assert server.command("sieve", "get", "alice", "main") == script.read_text()
    status, _, errors = said("sieve", "check", octets=b"nonsense")
    assert status == 1 and "line 1" in errors, errors
    for words in (("restore", "a.tar"), ("export", "alice", "--format", "mbox", "--to", "here"),
                  ("import", "mbox", "alice", "mbox")):
        status, _, errors = said(*words)
        assert status == 2 and "a file of the server" in errors, errors
    for words in (("backup", "--user", "alice"), ("backup", "--user", "alice", "--to", "-"), ("restore", "-")):
        status, out, errors = said(*words)
        assert status and not out and "name a file of the server" in errors, errors
