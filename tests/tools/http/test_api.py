"""tools/http/api: what may be asked for, by whom, and that what is asked for is what is typed."""

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import ensureDeferred

from store.accounts.rejectedlogins import LINES
from store.accounts.throttle import sharedcounts
from store.accounts.throttle.sharedcounts import Counts, Place
from store.net.authentication import Authenticator
from store.store import Store
from store.values import Secret
from tools.cli import output, program, registry
from tools.cli.elsewhere import remote
from tools.cli.options import Config, load
from tools.exits import Failure
from tools.http.api import keptoutcomes, running
from tools.http.api.keptoutcomes import KeptOutcomes
from tools.http.api.operationcalls import OperationCalls
from tools.http.api.operationlist import NOT_OFFERED, Argument, Operation
from tools.http.api.operationparsers import listed, openapi, operations
from tools.http.api.permissions import OWNER, READING, Asker, allowed, within_scope
from tools.http.api.running import Run, Runs
from tools.http.apitokens import ADMINISTRATOR, AUDITOR, FILE, HELPDESK, USER, TokenCache, Tokens
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


def test_nobody_keeps_all_operations_from_the_others() -> None:
    """Of one asker, but an administrator, half are under way at most; and one is left for administrators."""
    runs = Runs(lambda: load({"root": "/", "http.operations": "4"}, {}))
    for place in range(2):
        assert not runs.is_full(Asker("console", "alice", USER)), place
        runs.new("user show", "account alice", as_json=True)
    assert runs.is_full(Asker("console", "alice", USER)) and not runs.is_full(Asker("console", "bob", USER))
    assert not runs.is_full(Asker("console", "alice", ADMINISTRATOR))
    runs.new("user show", "account bob", as_json=True)
    assert runs.is_full(Asker("console", "bob", USER)) and runs.is_full(Asker("http", "carol", HELPDESK))
    assert not runs.is_full(Asker("console", "root", ADMINISTRATOR))
    runs.new("user show", "account root", as_json=True)
    assert runs.is_full(Asker("console", "root", ADMINISTRATOR))
    single = Runs(lambda: load({"root": "/", "http.operations": "1"}, {}))
    assert not single.is_full(Asker("console", "alice", USER))


def test_operations_of_all_processes_count_together() -> None:
    memory, key = sharedcounts.make(2), sharedcounts.new_key()
    here, there = (Runs(lambda: load({"root": "/", "http.operations": "4"}, {}),
                        Counts.at(Place(memory, own, 2, key))) for own in range(2))
    alice, bob, root = Asker("console", "alice", USER), Asker("console", "bob", USER), Asker("http", "r", ADMINISTRATOR)
    begun = [here.new("user show", "account alice", as_json=True) for _ in range(2)]
    assert there.is_full(alice) and not there.is_full(bob)
    there.new("user show", "account bob", as_json=True)
    assert there.is_full(bob) and here.is_full(bob) and not there.is_full(root)
    here.new("user show", "account bob", as_json=True)
    assert there.is_full(root)
    begun[0].exit = 0
    here.ended(begun[0])
    assert not there.is_full(root) and not here.is_full(root) and there.is_full(bob)
    os.close(memory)


def test_no_operation_takes_a_program() -> None:
    """A token of an administrator is no shell of the server."""
    names = {name for each in operations().values() for name in each.arguments}
    assert "spark/sql" not in operations()          # SELECT TRANSFORM (...) USING 'sh' AS (...)
    assert names and not names & {"freeze", "tunnel", "doveadm", "bin", "spark", "master", "config"}
    assert "postfix" not in names       # postconf(1) loads what dynamicmaps.cf of that folder names (`shlib_directory`)


@pytest.mark.parametrize("name", ["token create", "access create"])
def test_nothing_keeps_what_is_shown_once(tmp_path: Path, name: str) -> None:
    kept, run = KeptOutcomes(tmp_path), Run("a" * 32, name, "token id", as_json=True)
    kept.begin(run)
    run.output, run.exit = b"the secret", 0
    assert not kept.end(run) and kept.find(run.id, run.owner) is None and not list(tmp_path.rglob("*"))


#: Whatever else there is only an administrator may do: a command that is new, too.
MAY = {
    AUDITOR: {
        "user list", "user show", "directory status", "mailbox list", "mailbox info", "mailbox status", "path",
        "hashdir", "uidl list",
        "partition list", "quota show", "quota check", "quota sharing", "expire rules", "expire last",
        "sieve list", "sieve show", "sieve stats", "snapshot list",
        "snapshot verify", "snapshot diff", "config show", "config diff", "config check", "status", "stats",
        "explain message", "explain access", "explain quota", "explain login", "token list", "audit show",
        "audit verify", "audit head", "outbox list", "connections", "logins", "mailbox acl",
        "access list"},
    HELPDESK: {
        "user list", "user show", "user set", "mailbox list", "mailbox info", "mailbox create", "mailbox rename",
        "mailbox delete", "mailbox undelete", "undelete", "explain quota", "explain login", "quota set", "connections",
        "mailbox acl", "access list", "access revoke", "access reset"},
    USER: {"user show", "mailbox list", "mailbox info", "mailbox undelete", "undelete", "explain quota", "connections",
           "mailbox acl", "access list", "access revoke"}}


@pytest.mark.parametrize("role", [ADMINISTRATOR, AUDITOR, HELPDESK, USER])
def test_roles(role: str) -> None:
    """Of each command of the registry."""
    offered = set(registry.BY_NAME) - NOT_OFFERED
    assert {name for name in registry.BY_NAME if name in offered and may(role, name)} == (
        offered if role == ADMINISTRATOR else MAY[role])
    assert may(role, "user teleport") == (role == ADMINISTRATOR)        # which then is no operation


def test_roles_may_not_give_every_argument() -> None:
    assert may(AUDITOR, "audit show", user="x") and not may(AUDITOR, "connections", end=True)
    assert not may(AUDITOR, "logins", clear=True)
    assert not may(AUDITOR, "mailbox acl", user="x", mailbox="y", remove=["z"])
    assert may(HELPDESK, "user set", user="x", password_stdin=True, status="active")
    assert not may(HELPDESK, "user set", user="x", groups=["staff"])
    assert not may(HELPDESK, "quota set", root="x", messages="5") and not may(HELPDESK, "quota set", composite="x")
    assert may(USER, "connections", end=True) and not may(USER, "connections", address="192.0.2.1", end=True)
    assert not may(HELPDESK, "connections", all=True, end=True)


def test_only_administrators_and_owners_in_the_console_say_who_may_read_a_mailbox() -> None:
    """A token of a user reads no mail, and a helpdesk has not all mail of its domain: neither lets anybody in."""
    for role in (AUDITOR, HELPDESK, USER):
        assert may(role, "mailbox acl", user="x", mailbox="y"), role
        for more in ({"entries": ["bob", "lr"]}, {"remove": ["z"]}, {"subscribe": True}):
            assert not may(role, "mailbox acl", user="x", mailbox="y", **more), (role, more)
    for change in ("entries", "remove"):
        given = {"user": "x", "mailbox": "y", change: ["z"]}
        allowed(Asker("console", "x", USER, "x"), "mailbox acl", given)
        with pytest.raises(Refused):
            allowed(Asker("console", "h", HELPDESK, "x"), "mailbox acl", given)


def test_only_who_has_shown_the_password_sets_another_one() -> None:
    """In the console: the role is that of no token."""
    assert may(OWNER, "user set", user="x", password_stdin=True) and not may(USER, "user set", user="x")
    assert not may(OWNER, "user set", user="x", status="active") and not may(OWNER, "user list")
    with pytest.raises(Failure):
        Tokens(Path("/nowhere")).create(OWNER, "x")


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
    ("nothing", "x"), ("password_stdin", "yes"), ("root", "/etc"), ("user", 7), ("alias", ["a", 7])])
def test_values_that_make_no_sense(name: str, value: object) -> None:
    """The description says that a value is a string: so a number is none."""
    with pytest.raises(Refused) as refused:
        operations()["user/set"].words({name: value})
    assert refused.value.status == 400


@pytest.mark.parametrize(("name", "value"), [("user", "x" * 8193), ("alias", ["a"] * 1001), ("alias", ["x" * 8193])])
def test_values_that_are_too_long(name: str, value: Any) -> None:
    """RFC 9110 §15.5.14. The description has the bounds (maxLength, maxItems)."""
    operation = operations()["user/set"]
    with pytest.raises(Refused) as refused:
        operation.words({name: value})
    assert refused.value.status == 413
    shorter = [value[0][:8192]] * min(1000, len(value)) if isinstance(value, list) else value[:8192]
    assert operation.words({name: shorter})


def test_the_description_has_each_refusal() -> None:
    """Also of what is asked about an operation under way, which can be asked for with a body or another method."""
    for path, methods in openapi(operations(), "1")["paths"].items():
        for described in methods.values():
            lacking = {"400", "401", "403", "404", "405", "409", "413", "429", "503"} - described["responses"].keys()
            assert not lacking, (path, lacking)


def test_two_arguments_of_one_name_are_told_apart() -> None:
    assert operations()["user/add"].words({"users": ["a", "b"], "file": "/x", "password_stdin": True}) == [
        "user", "add", "--users=/x", "--password-stdin", "--", "a", "b"]


def test_tokens(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    find = TokenCache(tokens).find
    assert find(Secret(b"oc_a_b"), 0) is None
    made, shown = tokens.create(HELPDESK, "example.net", until=100)
    other, _ = tokens.create(AUDITOR)
    text = (tmp_path / FILE).read_text()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600 and shown.split("_", 2)[2] not in text
    assert find(Secret(shown.encode()), 99) == made
    for wrong, now in ((shown, 100.0), (shown[:-1], 99), (shown + "x", 99), ("", 99), ("oc_" + made.id, 99),
                       (shown.replace(made.id, other.id), 99), ("\xff", 99), (shown.replace("oc_", "oz_"), 99)):
        assert find(Secret(wrong.encode()), now) is None
    assert tokens.revoke([made.id, "none"]) == [made.id] and find(Secret(shown.encode()), 99) is None
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
    """Of the store: whoever is asked for, or these users."""

    def __init__(self, users: "set[str] | None" = None) -> None:
        self._users = users

    remote = False
    directory = property(lambda self: self)
    settings = property(lambda self: self)
    default_domain = "example.net"
    groups = ("postmasters",)

    def look_up(self, name: str) -> "Directory | None":
        self.user = name
        return self if self._users is None or name in self._users else None


def test_a_helpdesk_does_nothing_for_those_who_have_rights_over_others() -> None:
    """With a new password for an administrator of mail it would act as any user."""
    store = cast(Store, Directory())
    helpdesk = token(HELPDESK, "example.net")
    assert within_scope(store, helpdesk, "user set", {"user": "bob"}, superiors={"root"}) == {"user": "bob"}
    with pytest.raises(Refused, match="rights over others"):
        within_scope(store, helpdesk, "user set", {"user": "root"}, superiors={"root"})
    with pytest.raises(Refused, match="rights over others"):        # nor for those of a group that has a role
        within_scope(store, helpdesk, "user set", {"user": "bob"}, superiors={"group:postmasters"})
    with pytest.raises(Refused, match="none of the users"):         # nor is it told who has them elsewhere
        within_scope(store, helpdesk, "user set", {"user": "root@example.org"}, superiors={"root@example.org"})


def test_a_helpdesk_sets_limits_of_its_users_up_to_that_of_the_administrator() -> None:
    store, helpdesk = cast(Store, Directory()), token(HELPDESK, "example.net")
    for octets in ("2G", "1024", "0", "default"):
        asked = {"root": "bob@example.net", "octets": octets}
        assert within_scope(store, helpdesk, "quota set", asked, most_octets=2 << 30) == asked
    for root, octets, status in (
            ("bob", "3G", 403), ("bob", "none", 403), ("bob", "-1", 403), ("bob", 5, 403), ("bob", ["1G"], 403),
            ("bob", "1e3", 403), ("bob", "", 403), ("bob@example.org", "1G", 403), (["bob"], "1G", 400)):
        with pytest.raises(Refused) as refused:
            within_scope(store, helpdesk, "quota set", {"root": root, "octets": octets}, most_octets=2 << 30)
        assert refused.value.status == status
    with pytest.raises(Refused):                                    # unless it says something there is none
        within_scope(store, helpdesk, "quota set", {"root": "bob", "octets": "1"})
    with pytest.raises(Refused):
        within_scope(store, helpdesk, "quota set", {"octets": "1"}, most_octets=2 << 30)


@pytest.mark.parametrize("root", ["@example.net", "public/", "public/x", "bob@example.net/Archive", "user/bob"])
def test_a_helpdesk_sets_limits_of_users_alone(root: str) -> None:
    """Not of a domain, of public mailboxes, or of mailboxes."""
    store = cast(Store, Directory({"bob@example.net"}))
    with pytest.raises(Refused) as refused:
        within_scope(store, token(HELPDESK, "example.net"), "quota set", {"root": root, "octets": "1"}, most_octets=9)
    assert refused.value.status == 403


def test_a_helpdesk_sees_the_users_of_its_domain() -> None:
    store, helpdesk = cast(Store, Directory()), token(HELPDESK, "example.net")
    for asked in ({}, {"domain": "Example.Net"}, {"removed": True}):
        assert within_scope(store, helpdesk, "user list", asked) == {**asked, "domain": "example.net"}
    for domain in ("example.org", "", ["example.net"], None):
        with pytest.raises(Refused):
            within_scope(store, helpdesk, "user list", {"domain": domain})


def test_the_file_of_tokens_is_read_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, read = Tokens(tmp_path), list[int]()
    cache, every = TokenCache(tokens), Tokens.all
    monkeypatch.setattr(Tokens, "all", lambda self: read.append(1) or every(self))
    made, shown = tokens.create(AUDITOR)
    read.clear()
    for _ in range(5):
        assert cache.find(Secret(shown.encode()), 0) == made
    assert len(read) == 1
    tokens.revoke([made.id])
    assert cache.find(Secret(shown.encode()), 0) is None


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
    assert not any(runs.find(each.id, "id") for each in (*short, *long)) and not runs.is_full(token(ADMINISTRATOR))


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


def test_operations_go_by_what_the_server_goes_by(tmp_path: Path) -> None:
    """Not by what its file says since, even where that is broken; but what is asked about the configuration judges the
    file: `config diff --running` found no difference ever."""
    file = tmp_path / "onecopy.toml"
    file.write_text(f'root = "{tmp_path}"\n[store]\nmessage_limit = "1M"\n')
    running = load({}, {"ONECOPY_CONFIG": str(file), "ONECOPY_IMAP_PORT": "1143"})
    file.write_text(f'root = "{tmp_path}"\n[store]\nmessage_limit = "2M"\n[pop3]\nport = 1110\n')
    runs = Runs(lambda: running)

    def read(*words: str) -> Config:
        return load({}, {name: value for name, value in runs._environment(words).items() if name.startswith("ONE")})

    assert dict(read("user", "list").values) == dict(running.values)
    judged = read("config", "check")
    assert [judged.values[name] for name in ("store.message_limit", "pop3.port", "imap.port")] == [2 << 20, 1110, 1143]
    assert judged.origins["pop3.port"] == f"{file}: pop3.port"
    file.write_text("[nothing]\n")
    assert dict(read("user", "list").values) == dict(running.values)
    with pytest.raises(Failure, match="there is no such section"):
        read("config", "check")


def test_what_became_of_an_operation_is_known_to_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them are two objects here: what they share is in the folder. Nothing there is for anybody else."""
    here, there, owner = KeptOutcomes(tmp_path), KeptOutcomes(tmp_path), "token x"
    first, second = (Run(digit * 32, "user list", owner, True) for digit in "ab")
    for run in (first, second):
        here.begin(run)
        found = there.find(run.id, owner)
        assert found is not None and found.exit is None
    first.exit, first.output, first.errors = 0, b'["\xc3\xa9\\n"]\n', "one\ntwo"
    assert here.end(first) and not here.end(first)
    found = there.find(first.id, owner)
    assert found is not None and (found.exit, found.value(), found.errors) == (0, ["\u00e9\n"], "one\ntwo")
    for id, other in ((first.id, "token y"), ("c" * 32, owner), ("../" + first.id, owner), ("", owner)):
        assert there.find(id, other) is None
    os.close(here._held.pop(second.id))             # its process is killed
    found = there.find(second.id, owner)
    assert found is not None and found.exit == 1 and "cut off" in found.errors
    folder = tmp_path / "run" / "operations"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    (folder / ("d" * 32)).write_bytes(b'{"operation": "us')
    assert there.find("d" * 32, owner) is None
    monkeypatch.setattr(keptoutcomes, "KEPT", 3)
    running = Run("e" * 32, "check", owner, False)
    here.begin(running)
    for number in range(5):
        run = Run(f"{number:032x}", "check", owner, False)
        there.begin(run)
        run.exit = 0
        there.end(run)
    left = {each.name for each in folder.iterdir()}
    assert len(left) <= 4 and {running.id, f"{4:032x}"} <= left and first.id not in left
    made = Run("f" * 32, "token create", owner, False)
    here.begin(made)
    made.exit, made.output = 0, b"oc_x_y\n"
    assert not here.end(made) and there.find(made.id, owner) is None


def test_a_token_that_asks_for_what_it_may_not_do_fills_no_log(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    calls = OperationCalls(store, lambda: load({}, {}, None))
    calls._known = listed("1")
    caplog.set_level(logging.WARNING, "refused")
    refused: list[Any] = []
    for number in range(500):
        ensureDeferred(calls.carry_out_as(Asker("http", "abc", HELPDESK, "example.net", "192.0.2.7"), "user add", {
            "users": [f"user{number}"]})).addErrback(refused.append)
    assert [failure.value.status for failure in refused] == [403] * 500
    turned = Authenticator.of(store).turned
    turned.clock = lambda: turned._looked + 2
    turned.tell_counted()
    lines = [record.getMessage() for record in caplog.records if record.name == "refused"]
    assert len(lines) == LINES + 1 and all(line.startswith(
        'right address=192.0.2.7 user="token abc" service=http times=') for line in lines)
    assert f'times={500 - LINES} reason="more of these"' in lines[-1]
