"""One server, as its administrator sees it: who is connected, what it counts, what became of mail, what it goes by."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store.net import controlchannel
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import command, wait
from tests.support.servers.certificates import Authority
from tests.support.servers.server import PASSWORD, Server

LIMIT = 180
FILE = """
[log]
level = "info"
[imap]
connections_per_user = 100
[workers]
all = 2
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two processes that serve, beside the keeper."""
    folder = tmp_path_factory.mktemp("administration")
    (folder / "onecopy.toml").write_text(FILE)
    with Server(folder, ["alice", "bob"], {
            "config": str(folder / "onecopy.toml"), "store.message_limit": "64k"}) as made:
        yield made
        made.stop()
        made.check()


def say(server: Server, *words: str, status: int = 0) -> Any:
    return json.loads(server.command(*words, "--json", status=status))


def ids(rows: list[dict[str, Any]]) -> set[str]:
    return {row["id"] for row in rows}


# The log

def test_the_newest_lines_of_all_processes(server: Server) -> None:
    """Wherever the log goes: nobody needs a shell on the server to see them."""
    with Imap(server.imap, "alice", PASSWORD) as imap:
        imap.ok("NOOP")
    found = say(server, "log", "show", "--most", "500")
    assert found and {row["process"] for row in found} <= {"keeper", "all-1", "all-2"}
    assert sorted(row["time"] for row in found) == [row["time"] for row in found]
    session, = (row for row in say(server, "log", "show", "--match", 'USER="ALICE"', "--most", "1"))
    assert (session["module"], session["level"]) == ("session", "INFO") and session["line"] in server.said()
    assert say(server, "log", "show", "--level", "error") == []
    assert {row["process"] for row in say(server, "log", "show", "--process", session["process"])} == {
        session["process"]}
    assert session["line"] in server.command("log", "show", "--match", "alice")


# Connections

def test_connections_are_listed_filtered_and_ended(server: Server) -> None:
    imap, pop3 = Imap(server.imap, "alice", PASSWORD), Pop3(server.pop3, "bob", PASSWORD)
    with imap, pop3, Lmtp(server.lmtp) as lmtp:
        imap.ok('ID ("name" "a client" "version" "7")')
        imap.select()
        imap.send(b"i1 IDLE\r\n")
        assert imap.response().text.startswith(b"+")
        rows = {row["protocol"]: row for row in say(server, "connections")}
        assert set(rows) == {"imap", "pop3", "lmtp"}
        assert {name: rows["imap"][name] for name in (
            "user", "address", "proxy", "tls", "client", "state", "mailbox")} == {
                "user": "alice", "address": "127.0.0.1", "proxy": "", "tls": False, "client": "a client 7",
                "state": "idling", "mailbox": "user/alice/INBOX"}
        assert (rows["pop3"]["user"], rows["pop3"]["state"]) == ("bob", "transaction")
        assert (rows["lmtp"]["user"], rows["lmtp"]["client"]) == ("", "client.example.org")
        assert rows["lmtp"]["logged_in"] is None and rows["imap"]["logged_in"] >= rows["imap"]["since"]
        sent = len(b'LHLO client.example.org\r\n')
        assert rows["lmtp"]["received"] == sent and rows["lmtp"]["sent"] > len(lmtp.greeting.lines[0])
        assert re.fullmatch(r"all-[12]", rows["imap"]["process"])

        for words, expected in {
                ("--user", "alice@example.org"): {"imap"}, ("--protocol", "pop3"): {"pop3"},
                ("--address", "127.0.0.0/8"): {"imap", "pop3", "lmtp"}, ("--address", "192.0.2.1"): set(),
                ("--idle", "1h"): set(), ("--idle", "0"): {"imap", "pop3", "lmtp"},
                ("--mailbox", "user/alice/INBOX"): {"imap"}, ("--user", "bob", "--protocol", "imap"): set(),
                (rows["lmtp"]["id"],): {"lmtp"}}.items():
            assert {row["protocol"] for row in say(server, "connections", *words)} == expected, words

        everybody = ids(list(rows.values()))
        assert ids(say(server, "connections", "--end", "--all", "--dry-run")) == everybody
        server.command("connections", "--end", "--all", status=2)               # nobody is there to be asked
        server.command("connections", "--end", "--yes", status=2)               # and nobody is named
        assert ids(say(server, "connections")) == everybody

        assert say(server, "connections", "--end", "--user", "alice", "--yes") == {"ended": [rows["imap"]["id"]]}
        assert imap.response().text == b"* BYE An administrator has ended this connection"
        assert ids(say(server, "connections")) == everybody - {rows["imap"]["id"]}
        assert set(say(server, "connections", "--end", "--all", "--yes")["ended"]) == everybody - {rows["imap"]["id"]}
        assert pop3.line() == "-ERR [SYS/TEMP] An administrator has ended this connection"
        assert str(lmtp.reply()) == "421 4.3.2 An administrator has ended this connection"
        assert lmtp.at_end()
    assert say(server, "connections") == []


# Statistics

def test_statistics_count_what_was_done(server: Server) -> None:
    def totals() -> dict[str, int]:
        found = say(server, "stats")
        servers = [each["servers"].get("imap", {}) for each in found["processes"]]
        return {"processes": len(found["processes"]), "logins": sum(each.get("logins", 0) for each in servers),
                "failed": sum(each["failed_logins"] for each in found["processes"]),
                **{name: found["mail"].get(name, 0) for name in ("delivered", "messages", "refused for good")}}

    before = totals()
    with Imap(server.imap, "alice", PASSWORD), Lmtp(server.lmtp) as lmtp:
        with Imap(server.imap) as stranger:
            assert stranger.command("LOGIN alice wrong").status == "NO"
        assert [reply.code for reply in lmtp.deliver("a@example.org", ["alice", "bob", "nobody"], b"x\r\n")] == [
            250, 250, 550]
        more = {"processes": 0, "logins": 1, "failed": 1, "delivered": 2, "messages": 1, "refused for good": 1}
        wait.until(lambda: totals() == {name: before[name] + more[name] for name in before}, "it is counted",
                   pid=server.pid, limit=LIMIT)
    found = say(server, "stats")
    assert before["processes"] == 3 and set(found["environments"]) == {"mboxlist", "primary"}
    assert found["environments"]["primary"]["transactions"] > 0 and found["partitions"]["primary"]["free"] > 0
    keeper = next(each for each in found["processes"] if each["process"] == "keeper")
    assert {"checkpoint", "purge"} <= {task["name"] for task in keeper["tasks"]}
    assert "hit rate" in server.command("stats")
    told = values(server.command("stats", "--prometheus"))
    assert told["onecopy_processes"] == 3
    assert told['onecopy_task_last_run_timestamp_seconds{process="keeper",task="checkpoint"}'] >= 0
    assert sum(value for name, value in told.items() if name.startswith("onecopy_mail_total") and "delivered" in name
               ) == totals()["delivered"]


def test_who_does_most(server: Server) -> None:
    """What the session has sent and was sent; and of mail, who got it."""
    def weights(what: str, kind: str) -> dict[str, int]:
        return {row["name"]: row["weight"] for row in say(server, "stats")["busiest"].get(what, {}).get(kind, ())}

    before = weights("users", "operations"), weights("users", "octets")
    with Imap(server.imap, "alice", PASSWORD) as imap:
        for _ in range(3):
            imap.ok("NOOP")
        now = weights("users", "operations"), weights("users", "octets")
        assert now[0]["alice"] - before[0].get("alice", 0) == 4             # and LOGIN
        assert now[1]["alice"] - before[1].get("alice", 0) > 4 * len("a1 NOOP")
    with Lmtp(server.lmtp) as lmtp:
        lmtp.deliver("a@example.org", ["alice"], b"x" * 5000 + b"\r\n")
    wait.until(lambda: weights("users", "octets")["alice"] - now[1]["alice"] >= 5000, "it is counted",
               pid=server.pid, limit=LIMIT)
    shown = server.command("stats", "--top")
    assert "alice" in shown
    assert "alice" not in server.command("stats", "--prometheus")


def values(text: str) -> dict[str, float]:
    """The samples of Prometheus's text format; fails where a line is not one."""
    found, typed = {}, set()
    for line in text.splitlines():
        if line.startswith("# "):
            assert re.fullmatch(r"# (HELP [a-z_]+ [^\\]+|TYPE [a-z_]+ (gauge|counter|histogram))", line), line
            typed |= {line.split()[2]} if line.startswith("# TYPE") else set()
            continue
        label = '[a-z]+="[^"]*"'
        match = re.fullmatch(rf"(([a-z_]+)(?:\{{{label}(?:,{label})*\}})?) (-?[0-9.]+(?:e[+-]?[0-9]+)?)", line)
        assert match is not None and match[1] not in found, line
        assert {match[2], re.sub("_(bucket|sum|count)$", "", match[2])} & typed, line
        found[match[1]] = float(match[3])
    return found


# What became of mail

def explained(server: Server, *words: str) -> list[dict[str, Any]]:
    """What is noted, once it is: within a second or so."""
    def found() -> list[dict[str, Any]] | None:
        out = server.command("explain", "message", *words, "--json", status=None)       # type: ignore[arg-type]
        return json.loads(out) or None

    return wait.until(found, "it is noted", pid=server.pid, limit=LIMIT)


def test_each_decision_is_explained(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def any_status(*arguments: str, status: int | None = 0, octets: bytes = b"") -> str:
        found, out, error = command.run(arguments, server.environment(), octets, LIMIT)
        assert found == status or status is None, error
        return out

    monkeypatch.setattr(server, "command", any_status)
    server.command("quota", "set", "bob", "--octets", "1")
    message = b"Message-ID: <explained@example.org>\r\n\r\nx\r\n"
    with Lmtp(server.lmtp) as lmtp:
        replies = lmtp.deliver("sender@example.org", ["alice", "bob", "nobody"], message)
        too_big = lmtp.deliver("big@example.org", ["alice"], b"x" * 100_000, parameters=" SIZE=100000")
        swollen = lmtp.deliver("swollen@example.org", ["alice"], b"x\r\n" * 40_000)
    server.command("quota", "set", "bob", "--octets", "default")
    note, = explained(server, "<explained@example.org>")
    alice, = note["to"]
    assert (note["from"], note["size"], alice["recipient"], alice["mailbox"]) == (
        "sender@example.org", note["size"], "alice", "user/alice/INBOX")
    assert alice["reply"] == "250 2.0.0" and alice["now"].startswith("it is there: user/alice/INBOX")
    assert replies[0].lines[0].endswith(note["id"])
    assert explained(server, note["id"]) == [note]
    refused, = explained(server, "--recipient", "bob@example.org", "--refused")
    assert refused["to"][0]["reply"] == f"{replies[1].code} {replies[1].enhanced}"
    assert (replies[1].code, replies[1].enhanced) == (452, "4.2.2")
    unknown, = explained(server, "--recipient", "nobody@example.org", "--sender", "sender@example.org")
    assert (unknown["to"][0]["reply"], unknown["to"][0]["why"]) == ("550 5.1.1", "no such user")
    big, = explained(server, "--sender", "big@example.org")
    assert big["to"][0]["reply"] == f"{too_big[0].code} {too_big[0].enhanced}" == "552 5.3.4"
    assert "store.message_limit" in big["to"][0]["why"]
    late, = explained(server, "--sender", "swollen@example.org")
    assert late["to"][0]["reply"] == f"{swollen[0].code} {swollen[0].enhanced}" == "552 5.3.4"
    assert "nothing is known" in server.command("explain", "message", "<other@example.org>", status=1)
    assert "refused for good" in server.command("explain", "message", "--recipient", "nobody", "--since", "1h")
    assert server.command("explain", "message", status=2) == ""


def test_a_refused_append_is_explained(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def any_status(*words: str, status: int | None = 0) -> str:
        return command.run(words, server.environment(), b"", LIMIT)[1]

    def notes() -> list[dict[str, Any]] | None:
        found = [note for note in explained(server, "--recipient", "bob", "--since", "1h") if note["from"] == "bob"]
        return found if any(note["to"][0]["reply"] == "NO COPY" for note in found) else None

    monkeypatch.setattr(server, "command", any_status)
    server.command("quota", "set", "bob", "--octets", "70")
    octets = b"Message-ID: <kept@example.org>\r\n\r\nx\r\n"
    with Imap(server.imap, "bob", PASSWORD) as imap:
        for _ in range(3):
            imap.command(b"APPEND INBOX {%d+}\r\n%b" % (len(octets), octets))
        imap.select()
        assert imap.command("COPY 1 INBOX").status == "NO"
    server.command("quota", "set", "bob", "--octets", "default")
    found = wait.until(notes, "it is noted", pid=server.pid, limit=LIMIT)
    assert {note["to"][0]["reply"] for note in found} == {"NO APPEND", "NO COPY"}
    assert {(note["to"][0]["mailbox"], note["to"][0]["why"].partition(":")[0]) for note in found} == {
        ("user/bob/INBOX", "over quota")}


# Logins

def test_refused_logins_are_explained(server: Server) -> None:
    def explain(*words: str, status: int) -> Any:
        found, out, error = command.run(("explain", "login", *words, "--json"), server.environment(), b"", LIMIT)
        assert found == status, error
        return json.loads(out)

    with Imap(server.imap) as imap, Pop3(server.pop3) as pop3, Imap(server.imap) as other:
        for _ in range(2):
            assert imap.command("LOGIN bob hunter22").status == "NO"
        pop3.command("USER nobody")
        pop3.command("PASS hunter22")
        server.command("user", "set", "bob", "--access", "+pop:ALL")
        assert other.command(f"LOGIN bob {PASSWORD}").status == "NO"
        wait.until(lambda: "imap from" in str(explain("bob", status=0)["refusals"]), "it is noted", pid=server.pid,
                   limit=LIMIT)
        found = explain("bob", "--from", "127.0.0.1", status=0)
        assert sum(note["times"] for note in found["refusals"] if "password" in note["why"]) == 2
        last = found["refusals"][-1]
        assert (last["service"], last["peer"]) == ("imap", "127.0.0.1") and "bob: imap from 127.0.0.1" in last["why"]
        services = {each["service"]: (each["clear"], each["because"]) for each in found["now"]["services"]}
        assert services["pop"] == (True, ["the user's own access rules: +pop:ALL"])
        assert services["imap"] == (False, ["the user's own access rules: no rule speaks of it, so it is denied"])
        assert explain("bob", "--from", "192.0.2.7", status=0)["refusals"] == []
        assert explain("nobody", status=1)["refusals"][0]["why"] == "there is no such user"
        server.command("user", "set", "bob", "--status", "hold")
        assert "the status hold lets nobody in" in server.command("explain", "login", "bob", status=1)
        server.command("user", "set", "bob", "--status", "active", "--no-access-rules")
        for path in (server.root / "journal").iterdir():
            assert b"hunter22" not in path.read_bytes()


# Configuration

def test_a_reload_takes_over_what_it_can(server: Server, tmp_path: Path) -> None:
    file = Path(server.options["config"])
    shown = Authority(tmp_path, "ours").server()
    assert say(server, "config", "diff", "--running") == []
    with Imap(server.imap, "alice", PASSWORD) as before:
        file.write_text(f'[log]\nlevel = "debug"\n[imap]\nconnections_per_user = 1\n[workers]\nall = 3\n[login]\n'
                        f'access = "-pop:*$+ALL:*"\n[store]\ndefault_quota = "1k"\n'
                        f'[tls]\ncertificate = "{shown}"\n')
        wanted = {"store.default_quota": "reload", "imap.connections_per_user": "reload", "workers.all": "restart",
                  "log.level": "reload", "login.access": "reload", "tls.certificate": "reload"}
        assert {row["option"]: row["needs"] for row in say(
            server, "config", "diff", "--running", status=1)} == wanted
        taken = sorted(name for name, needs in wanted.items() if needs == "reload")
        tried = say(server, "config", "reload", "--dry-run")
        assert (sorted(tried["applied"]), tried["needs_restart"]) == (taken, ["workers.all"])
        assert before.command("NOOP").status == "OK"
        done = say(server, "config", "reload")
        assert (done["applied"], done["needs_restart"], done["problems"]) == (taken, ["workers.all"], [])
        assert [row["option"] for row in say(server, "config", "diff", "--running", status=1)] == ["workers.all"]
        assert before.command("NOOP").status == "OK"                            # who was there stays
        with pytest.raises(ConnectionError), Imap(server.imap, "alice", PASSWORD):
            pass
        with Pop3(server.pop3) as pop3:
            pop3.ok("USER bob")
            assert pop3.command(f"PASS {PASSWORD}").startswith("-ERR")
    with Lmtp(server.lmtp) as lmtp:
        assert [reply.enhanced for reply in lmtp.deliver("", ["bob"], b"x" * 3000 + b"\r\n")] == ["5.2.2"]

    old = set(wait.tree(server.pid)[1:])
    os.kill(min(old), signal.SIGKILL)                                           # all are started again
    wait.until(lambda: len(set(wait.tree(server.pid)[1:]) - old) == 3, "all are new", pid=server.pid, limit=LIMIT)
    wait.until(lambda: len(controlchannel.names(server.root / "run")) == 3 and {
        row["option"] for row in _differing(server)} == {"workers.all"}, "they answer", pid=server.pid, limit=LIMIT)

    file.write_text('[imap]\nconnections_per_user = "many"\n')
    server.command("config", "diff", "--running", status=2)                     # our own reading fails, in one line
    _hang_up(server, "not taken over")
    file.write_text(FILE)
    done = say(server, "config", "reload")
    assert done["needs_restart"] == [] and done["applied"] == taken
    assert say(server, "config", "diff", "--running") == []
    with Pop3(server.pop3, "bob", PASSWORD):
        pass


def _differing(server: Server) -> list[dict[str, str]]:
    """What the running processes do not have as it is in the file; nothing while they start."""
    found, out, _ = command.run(("config", "diff", "--running", "--json"), server.environment(), b"", LIMIT)
    return json.loads(out) if found == 1 and out else []


def _hang_up(server: Server, said: str) -> None:
    """SIGHUP, until every process has said that."""
    before = server.log.read_text().count(said)
    assert server._process is not None
    server._process.send_signal(signal.SIGHUP)
    wait.until(lambda: server.log.read_text().count(said) >= before + 3, said, pid=server.pid, limit=LIMIT)


def test_without_a_server_there_is_nobody_to_ask(tmp_path: Path) -> None:
    server = Server(tmp_path)
    for words in (("connections",), ("config", "reload"), ("config", "diff", "--running")):
        assert server.command(*words, status=1) == ""
    assert say(server, "stats")["processes"] == []
    assert "no server runs" in server.command("stats")
