"""tools/http/api: what may be asked for, by whom, and that what is asked for is what is typed."""

import json
import stat
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.store import Store
from store.values import Secret
from tests.support.processes.ports import free_port
from tests.support.servers.server import Server
from tools.cli import output, program, registry
from tools.cli.elsewhere import remote
from tools.cli.options import load
from tools.exits import Failure
from tools.http.api import running
from tools.http.api.operationlist import NOT_OFFERED, Argument, Operation, openapi, operations
from tools.http.api.permissions import READING, Asker, allowed, within_scope
from tools.http.api.running import Run, Runs
from tools.http.apitokens import ADMINISTRATOR, AUDITOR, FILE, HELPDESK, USER, Tokens
from tools.http.webpages import Refused

HOSTILE = ("--root=/etc", "-h", "--", "'; rm -rf / #", "<script>alert(1)</script>", "a\r\nSet-Cookie: x=y", "../../etc",
           "%00", "\u202egnp.exe", "{{7*7}}", "nobody@example.net")


def token(role: str, scope: str = "") -> Asker:
    return Asker("http", "id", role, scope)


def may(role: str, name: str, **arguments: object) -> bool:
    try:
        allowed(token(role, "x" if role in (HELPDESK, USER) else ""), name, arguments)
    except Refused as refused:
        assert refused.status == 403
        return False
    return True


def test_every_command_is_an_operation_or_named_as_none() -> None:
    offered = {each.name for each in operations().values()}
    assert offered | NOT_OFFERED == set(registry.BY_NAME) and not offered & NOT_OFFERED
    assert READING.keys() <= offered


def test_no_operation_takes_a_program() -> None:
    """A token of an administrator is no shell of the server."""
    names = {name for each in operations().values() for name in each.arguments}
    assert "spark/sql" not in operations()          # SELECT TRANSFORM (...) USING 'sh' AS (...)
    assert names and not names & {"freeze", "tunnel", "doveadm", "bin", "spark", "master", "config"}


def test_roles() -> None:
    assert all(may(ADMINISTRATOR, each.name) for each in operations().values())
    assert may(AUDITOR, "user list") and may(AUDITOR, "connections", user="x") and may(AUDITOR, "token list")
    assert may(AUDITOR, "audit show", user="x") and may(AUDITOR, "audit verify") and not may(AUDITOR, "audit remove")
    assert not may(AUDITOR, "connections", end=True) and not may(AUDITOR, "logins", clear=True)
    assert not any(may(AUDITOR, name) for name in (
        "user add", "user set", "user remove", "purge", "quota set", "undelete", "token revoke", "snapshot create"))
    assert may(HELPDESK, "user set", user="x", password_stdin=True) and may(HELPDESK, "mailbox undelete")
    assert not may(HELPDESK, "user set", user="x", groups=["staff"]) and not may(HELPDESK, "user list")
    assert may(USER, "undelete") and not may(USER, "user set") and not may(USER, "explain login")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_value_is_never_taken_for_an_option(text: str) -> None:
    operation = operations()["mailbox/create"]
    given = {"user": text, "mailboxes": [text, "x"], "special_use": text}
    if text == "--":
        with pytest.raises(Refused):
            operation.words(given)
        return
    _, *words = operation.words({name: value for name, value in given.items() if name != "special_use"})
    parsed = program._grown(words, ["mailbox"]).top.parse_args(["mailbox", *words])
    assert (parsed.user, parsed.mailboxes) == (text, [text, "x"])
    assert operation.words(given)[2] == f"--special-use={text}"


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_one_word(text: str) -> None:
    argument = Argument("user", "", "string", False, "")
    try:
        assert Operation("user show", "", {"user": argument}, frozenset()).words({"user": text}) == [
            "user", "show", "--", text]
    except Refused:
        assert text == "--" or "\0" in text or any("\ud800" <= each <= "\udfff" for each in text)


@pytest.mark.parametrize(("name", "value"), [
    ("user", 1.5), ("user", None), ("user", ["a"]), ("user", {"a": 1}), ("user", "a\0b"), ("user", "\ud800"),
    ("user", "x" * 9000), ("nothing", "x"), ("password_stdin", "yes"), ("root", "/etc"), ("alias", ["a"] * 2000)])
def test_values_that_make_no_sense(name: str, value: object) -> None:
    with pytest.raises(Refused) as refused:
        operations()["user/set"].words({name: value})
    assert refused.value.status == 400


def test_two_arguments_of_one_name_are_told_apart() -> None:
    assert operations()["user/add"].words({"users": ["a", "b"], "file": "/x", "password_stdin": True}) == [
        "user", "add", "--users=/x", "--password-stdin", "--", "a", "b"]


def test_tokens(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    made, shown = tokens.create(HELPDESK, "example.net", until=100)
    other, _ = tokens.create(AUDITOR)
    text = (tmp_path / FILE).read_text()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600 and shown.rpartition("_")[2] not in text
    assert tokens.find(Secret(shown.encode()), 99) == made
    for wrong, now in ((shown, 100.0), (shown[:-1], 99), (shown + "x", 99), ("", 99), ("oc_" + made.id, 99),
                       (shown.replace(made.id, other.id), 99), ("\xff", 99), (shown.replace("oc_", "oz_"), 99)):
        assert tokens.find(Secret(wrong.encode()), now) is None
    assert tokens.revoke([made.id, "none"]) == [made.id] and tokens.find(Secret(shown.encode()), 99) is None
    assert [each.id for each in tokens.all()] == [other.id]
    for role, scope in ((ADMINISTRATOR, "x"), (HELPDESK, ""), (USER, ""), ("root", "")):
        with pytest.raises(Failure):
            tokens.create(role, scope)


def test_the_description_refers_to_what_is_there() -> None:
    text = json.dumps(openapi(operations(), "1"))
    described = json.loads(text)
    assert len(described["paths"]) == len(operations()) + 1
    for reference in {part.split('"')[0] for part in text.split('"$ref": "#/')[1:]}:
        found = described
        for word in reference.split("/"):
            found = found[word]


class Directory:
    """Of the store: whoever is asked for."""

    remote = False
    directory = property(lambda self: self)
    settings = property(lambda self: self)
    default_domain = "example.net"
    groups = ()

    def look_up(self, name: str) -> "Directory":
        self.user = name
        return self


def test_a_helpdesk_does_nothing_for_those_who_have_rights_over_others() -> None:
    """With a new password for an administrator of mail it would act as any user."""
    store = cast(Store, Directory())
    helpdesk = token(HELPDESK, "example.net")
    assert within_scope(store, helpdesk, {"user": "bob"}, {"root"}) == {"user": "bob"}
    with pytest.raises(Refused, match="rights over others"):
        within_scope(store, helpdesk, {"user": "root"}, {"root"})
    with pytest.raises(Refused, match="none of the users"):         # nor is it told who has them elsewhere
        within_scope(store, helpdesk, {"user": "root@example.org"}, {"root@example.org"})


@pytest.mark.parametrize("url", ["http://mail.example.org:8025", "http://192.0.2.1", "http://localhost.example.org",
                                 "http://127.0.0.1@mail.example.org"])
def test_a_token_is_sent_to_other_hosts_under_tls_alone(url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("oc_x_y")
    with pytest.raises(Failure, match="read the token"):
        remote.run(["--server", url, "--token-file", str(tmp_path / "token"), "status"])


CONFIG = load({}, {"ONECOPY_ROOT": "/nowhere"})


def ended(runs: Runs, octets: int) -> Run:
    run = runs.new("user list", "id", as_json=False)
    run.output, run.exit = b"x" * octets, 0
    return run


def test_what_is_kept_of_operations_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the oldest one is still under way."""
    monkeypatch.setattr(running, "KEPT", 4)
    monkeypatch.setattr(running, "KEPT_OCTETS", 100)
    runs = Runs(lambda: CONFIG)
    first = runs.new("check", "id", as_json=False)
    short = [ended(runs, 1) for _ in range(10)]
    assert runs.find(first.id, "id") is first and [runs.find(each.id, "id") is each for each in short] == [
        False] * 7 + [True] * 3
    long = [ended(runs, 101) for _ in range(3)]
    runs.new("check", "id", as_json=False)
    assert not any(runs.find(each.id, "id") for each in (*short, *long)) and not runs.full


def test_a_traceback_is_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by who asks while it is being looked for."""
    runs = Runs(lambda: CONFIG)
    run = runs.new("check", "id", as_json=False)
    seen = list[Any]()
    monkeypatch.setattr(Runs, "_communicate", lambda *_: (b"", running.TRACEBACK + b"\n/secret", 1))
    monkeypatch.setattr(running.log, "error", lambda *_: seen.append(run.members()))
    runs.carry_out(run, [], b"", "http id administrator")
    assert seen == [b'"operation": "check", "state": "running"'] and b"/secret" not in run.members()


@pytest.mark.parametrize("value", [[], {}, None, 3, "a\nb", ["\U0001f600", {"a": [1, {"b": []}]}], [{"a": "x"}] * 9999])
def test_what_the_program_prints_is_passed_on_as_it_is(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json(value)
    run = Run("id", "user list", "id", True, 0, capsys.readouterr().out.encode(), 'a "word"\n')
    assert json.loads(b"{%b}" % run.members()) == {
        "operation": "user list", "state": "ended", "exit": 0, "errors": 'a "word"\n', "result": value}
    assert run.value() == value


@pytest.mark.parametrize("printed", [
    b"", b"some text\n", b"{}\n{}\n", b"[\n" + b"  1,\n" * 30_000, b"[\n" + b"  1,\n" * 30_000 + b"]\n[\n  1\n]\n",
    b"x" * 100_000, b"\xff" * 100_000])
def test_what_is_no_json_goes_as_text(printed: bytes) -> None:
    run = Run("id", "user list", "id", True, 1, printed, "")
    assert json.loads(b"{%b}" % run.members()) == {"operation": "user list", "state": "ended", "exit": 1, "errors": "",
                                                  "output": printed.decode(errors="replace")}


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
            ["curl", "-sSi", "--max-time", "90", "-H", f"Authorization: Bearer {self._token}", *data,
             self._url + place],
            input=json.dumps(arguments).encode(), capture_output=True, timeout=120, check=True)
        head, _, body = done.stdout.decode().partition("\r\n\r\n")
        fields = dict(line.partition(": ")[::2] for line in head.split("\r\n")[1:])
        return int(head.split()[1]), json.loads(body), fields.get("Location", place)


def test_a_server_is_steered_from_elsewhere(tmp_path: Path) -> None:
    port = free_port()
    with Server(tmp_path, ["alice", "bob@example.net"], {"http.port": str(port)}) as server:
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
        assert theirs("user/list")[0] == 403
        assert Asking(port, administrator[:-1])("user/list")[0] == 401
        for text in HOSTILE[:2]:
            status, told = ask("user/show", user=text)
            assert status == 409 and "There is no user" in str(told["errors"]), told
        file = tmp_path / "token"
        file.write_text(administrator)
        words = ["--server", f"http://127.0.0.1:{port}", "--token-file", str(file)]
        assert server.command(*words, "user", "show", "carol") == server.command("user", "show", "carol")
        server.command(*words, "user", "remove", "carol", status=2)                     # it must not ask
        server.command(*words, "user", "remove", "carol", "--yes")
        assert "carol" in server.command("user", "list", "--removed")
        said = server.log.read_text()
        assert "user remove by token" in said and administrator not in said and "Traceback" not in said
        assert server.stop() == 0
        server.check()
