"""onecopy user: aliases, what a status does, names that are not ASCII."""

from pathlib import Path

import pytest

from store.accounts.base import Status
from tests.support.processes.program import Program

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
JOERG = "jörg@xn--bcher-kva.example"


def test_aliases(onecopy: Program) -> None:
    onecopy("user", "set", "alice", "--alias", "Info@example.org", "--alias", "sales@elsewhere.example")
    assert onecopy.json("user", "show", "alice")["aliases"] == ["info", "sales@elsewhere.example"]
    assert [row["aliases"] for row in onecopy.json("user", "list")] == [["info", "sales@elsewhere.example"], []]
    assert onecopy("user", "list").splitlines()[0].split() == ["user", "status", "partition", "aliases"]
    assert "info, sales@elsewhere.example" in onecopy("user", "show", "alice")
    assert onecopy("deliver", "INFO@example.org", octets=MESSAGE) == "alice INBOX 1\n"
    assert onecopy("deliver", "sales@elsewhere.example", "alice", octets=MESSAGE) == "alice INBOX 2\n"
    assert "There is no user sales" in onecopy.refused("user", "show", "sales")
    onecopy("user", "set", "alice", "--status", "active", "--group", "staff")
    onecopy("user", "set", "alice", "--alias", "info")
    assert onecopy.json("user", "show", "info")["aliases"] == ["info"]
    onecopy("user", "set", "alice", "--no-aliases")
    assert onecopy.json("user", "show", "alice")["aliases"] == []
    assert "no user info" in onecopy.refused("user", "show", "info")


def test_a_new_user_with_aliases(onecopy: Program) -> None:
    onecopy("user", "add", "carol", "--alias", "c", "--alias", "carol@example.com", "--password-stdin", octets=b"x\n")
    assert onecopy.json("user", "show", "carol@example.com")["user"] == "carol"
    assert "one user" in onecopy.refused("user", "add", "dave", "erin", "--alias", "d", "--password-stdin",
                                         octets=b"x\n", status=2)
    for name, alias, said in (("dave", "bob", "bob is a user"), ("dave", "C", "c is an alias of carol"),
                              ("dave", "d e", "'d e' is not an address"), ("c", "d", "c is an alias of carol")):
        assert onecopy.refused("user", "add", name, "--alias", alias, "--password-stdin",
                               octets=b"x\n") == f"{name}: {said}"
    assert [row["user"] for row in onecopy.json("user", "list")] == ["alice", "bob", "carol"]


def test_keys_of_scram(onecopy: Program) -> None:
    """Kept only where that is asked for; what an earlier version has kept is told, and taken away."""
    both = ("--login-scram-keys", "SCRAM-SHA-256, SCRAM-SHA-1")
    one = ("--login-scram-keys", "SCRAM-SHA-256")
    for user, words in (("carol", ()), ("dave", one), ("erin", both)):
        onecopy("user", "add", *words, "--password-stdin", user, octets=b"x\n")
    assert onecopy.json("user", "scram") == [
        {"user": "dave", "keys": ["SCRAM-SHA-256"], "not_asked_for": ["SCRAM-SHA-256"]},
        {"user": "erin", "keys": ["SCRAM-SHA-1", "SCRAM-SHA-256"], "not_asked_for": ["SCRAM-SHA-1", "SCRAM-SHA-256"]}]
    assert onecopy.json("user", "show", *one, "erin")["scram_keys"] == ["SCRAM-SHA-1 (not asked for)", "SCRAM-SHA-256"]
    assert "scram_keys" not in onecopy.json("user", "show", "carol")
    said = "users have keys of SCRAM that login.scram_keys does not ask for"
    for words, count in (((), 2), (one, 1)):
        onecopy("check", *words)
        assert f"onecopy: {count} {said}" in onecopy.error
    tried, = onecopy.json("user", "scram", *one, "--remove", "--dry-run")
    assert tried["user"] == "erin" and onecopy.json("user", "show", "erin")["scram_keys"][0].startswith("SCRAM-SHA-1")
    onecopy("user", "scram", *one, "--remove")
    assert [row["keys"] for row in onecopy.json("user", "scram", *one)] == [["SCRAM-SHA-256"]] * 2
    onecopy("user", "set", "dave", "--password-stdin", octets=b"y\n")
    assert [row["user"] for row in onecopy.json("user", "scram")] == ["erin"]
    onecopy("user", "scram", "--remove", "carol")
    assert [row["user"] for row in onecopy.json("user", "scram")] == ["erin"]
    onecopy("user", "scram", "--remove", "erin")
    onecopy("check")
    assert onecopy.json("user", "scram") == [] and onecopy.error == ""
    assert "none of SCRAM-SHA-256" in onecopy.refused("user", "scram", "--login-scram-keys", "MD5", status=2)


@pytest.mark.parametrize(("alias", "said"), [("bob", "bob is a user"), ("c", "c is an alias of carol"),
                                             ("a b", "'a b' is not an address")])
def test_aliases_that_cannot_be(onecopy: Program, alias: str, said: str) -> None:
    onecopy("user", "add", "carol", "--alias", "c", "--password-stdin", octets=b"x\n")
    assert said in onecopy.refused("user", "set", "alice", "--alias", alias)
    assert onecopy.json("user", "show", "alice")["aliases"] == []


def test_nobody_is_removed_by_an_alias(onecopy: Program) -> None:
    """Who removes sales may think of a user, and not of all of alice's mail."""
    onecopy("user", "set", "alice", "--alias", "sales")
    for words in (("remove", "sales", "--yes"), ("remove", "sales", "--yes", "--now")):
        assert onecopy.refused("user", *words) == "sales: sales is an alias of alice: give the user's own name"
    assert "no such user" in onecopy.refused("user", "rename", "sales", "carol")
    assert onecopy.json("user", "show", "alice")["status"] == "active"
    onecopy("user", "remove", "Alice@example.org", "--yes")
    assert "taken" in onecopy.refused("user", "add", "sales", "--password-stdin", octets=b"x\n").replace(
        "is an alias of alice", "taken")
    onecopy("user", "restore", "alice")
    assert onecopy.json("user", "show", "sales")["user"] == "alice"
    onecopy("user", "remove", "alice", "--yes", "--now")
    onecopy("user", "add", "sales", "--password-stdin", octets=b"x\n")


@pytest.mark.parametrize(("status", "said"), [
    ("active", None), ("inactive", "the account is not in use at present"),
    ("hold", "mail for this account is on hold for now"), ("overquota", "over quota"),
    ("disabled", "the account is disabled"), ("deleted", "no such user")])
def test_what_a_status_does(onecopy: Program, status: str, said: str | None) -> None:
    onecopy("user", "set", "alice", "--status", status)
    assert onecopy.json("user", "show", "alice")["status"] == status
    assert onecopy.json("user", "list")[0]["status"] == status
    if said is None:
        assert onecopy("deliver", "alice", octets=MESSAGE) == "alice INBOX 1\n"
    else:
        assert onecopy.refused("deliver", "alice", octets=MESSAGE).startswith(f"alice: {said}")
    if status == "overquota":
        assert onecopy("deliver", "-q", "alice", octets=MESSAGE) == "alice INBOX 1\n"
    elif said is not None:
        assert onecopy.refused("deliver", "-q", "alice", octets=MESSAGE).startswith(f"alice: {said}")


def test_which_statuses_can_be_set(onecopy: Program) -> None:
    """A user is removed by `user remove`, which notes when."""
    said = onecopy.refused("user", "set", "alice", "--status", "removed", status=2)
    assert all(repr(status.value) in said or status.value in said for status in Status)
    assert onecopy.json("user", "show", "alice")["status"] == "active"
    onecopy("user", "remove", "alice", "--yes")
    assert "no such user" in onecopy.refused("deliver", "alice", octets=MESSAGE)


def test_international_names(onecopy: Program) -> None:
    onecopy("user", "add", "jörg@bücher.example", "--alias", "用户", "--password-stdin", octets=b"x\n")
    assert "exists" in onecopy.refused("user", "add", "JO\u0308RG@xn--bcher-kva.example", "--password-stdin",
                                       octets=b"x\n")
    assert onecopy.json("user", "show", "JÖRG@BÜCHER.example")["user"] == JOERG
    assert onecopy("deliver", "Jörg@Bücher.example", "用户@example.org", octets=MESSAGE) == f"{JOERG} INBOX 1\n"
    onecopy("quota", "set", "@bücher.example", "--messages", "1")
    assert onecopy.refused("deliver", "用户", octets=MESSAGE) == f"{JOERG}: over quota"
    assert onecopy("check") == "nothing wrong was found\n"
    for name in ("a\u202eb", "a@-ü.example"):
        onecopy("user", "add", name, "--password-stdin", octets=b"x\n", status=1)
        assert "Not a legal user name" in onecopy.error
    onecopy("user", "rename", "jörg@bücher.example", "Jörg")
    assert onecopy.json("user", "show", "用户")["user"] == "jörg"


@pytest.mark.parametrize("domain", ["bücher.example", "xn--bcher-kva.example"])
def test_an_international_default_domain(onecopy: Program, domain: str) -> None:
    show = onecopy.json("user", "show", "alice@bücher.example", "--store-default-domain", domain)
    assert show["user"] == "alice"


def test_a_default_domain_that_cannot_be(onecopy: Program) -> None:
    said = onecopy.refused("user", "list", "--store-default-domain", "ü..example", status=2)
    assert said.startswith("--store-default-domain: 'ü..example': ")


def test_rules_of_access(onecopy: Program) -> None:
    onecopy("user", "set", "alice", "--access=+imap,pop:10.0.0.0/8$-ALL:*")
    assert onecopy.json("user", "show", "alice")["access"] == "+imap,pop:10.0.0.0/8$-ALL:*"
    assert "access" not in onecopy.json("user", "show", "bob")
    onecopy("user", "set", "alice", "--status", "active", "--no-groups")
    assert "+imap,pop:10.0.0.0/8$-ALL:*" in onecopy("user", "show", "alice")
    onecopy("user", "rename", "alice", "anna")
    assert onecopy.json("user", "show", "anna")["access"] == "+imap,pop:10.0.0.0/8$-ALL:*"
    onecopy("user", "set", "anna", "--no-access-rules")
    assert "access" not in onecopy.json("user", "show", "anna")


def test_rules_of_access_of_a_domain(onecopy: Program) -> None:
    assert onecopy.json("user", "domain") == []
    onecopy("user", "domain", "Bücher.Example", "--access=-pop:*")
    onecopy("user", "domain", "example.org", "--access=+imaps:* EXCEPT 192.0.2.0/24")
    assert onecopy.json("user", "domain") == [
        {"domain": "example.org", "access": "+imaps:* EXCEPT 192.0.2.0/24", "sieve": ""},
        {"domain": "xn--bcher-kva.example", "access": "-pop:*", "sieve": ""}]
    assert onecopy.json("user", "domain", "EXAMPLE.org")[0]["access"] == "+imaps:* EXCEPT 192.0.2.0/24"
    assert "-pop:*" in onecopy("user", "domain", "bücher.example")
    onecopy("user", "domain", "bücher.example", "--no-access-rules")
    assert [row["domain"] for row in onecopy.json("user", "domain")] == ["example.org"]
    assert [row["user"] for row in onecopy.json("user", "list")] == ["alice", "bob"]
    assert "which domain" in onecopy.refused("user", "domain", "--access=-pop:*", status=2)


@pytest.mark.parametrize(("rules", "said"), [
    ("imap:*", "neither + nor -"), ("+telnet:*", "'telnet' is no service"), ("+imap", "no colon"), ("", "no rules"),
    ("+imap:mail.example.org", "names are not looked up"), ("+imap:10.1.2.3/8", "10.1.2.3/8")])
def test_rules_of_access_that_are_none(onecopy: Program, rules: str, said: str) -> None:
    for words in (("set", "alice"), ("domain", "example.org")):
        assert said in onecopy.refused("user", *words, f"--access={rules}", status=2)
    assert "access" not in onecopy.json("user", "show", "alice")


def test_what_holds_for_sieve(onecopy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONECOPY_SIEVE_HOURLY", "50")
    onecopy("user", "domain", "example.org", "--sieve", "redirects=1  scripts=5")
    onecopy("user", "set", "alice", "--sieve", "redirects=0")
    assert onecopy.json("user", "domain") == [{"domain": "example.org", "access": "", "sieve": "redirects=1 scripts=5"}]
    assert onecopy.json("user", "show", "alice")["sieve"] == "redirects=0"
    shown = onecopy.json("sieve", "show", "alice")
    assert (shown["redirects"], shown["scripts"], shown["hourly"], shown["enabled"]) == (0, 5, 50, True)
    assert {name: shown["origins"][name] for name in ("redirects", "scripts", "hourly")} == {
        "redirects": "the user", "scripts": "its domain: onecopy user domain", "hourly": "sieve.hourly"}
    assert "the user" in onecopy("sieve", "show", "alice")
    onecopy("sieve", "put", "alice", "main", "--activate", octets=b"keep;")
    assert onecopy.json("sieve", "show", "alice")["runs"] == ["the script main"]
    onecopy("user", "set", "alice", "--sieve", "enabled=no")
    assert onecopy.json("sieve", "show", "alice")["runs"] == []
    onecopy("user", "set", "alice", "--no-sieve-settings")
    onecopy("user", "domain", "example.org", "--no-sieve-settings")
    assert onecopy.json("user", "domain") == [] and "sieve" not in onecopy.json("user", "show", "alice")
    assert "'off' does not begin with one of" in onecopy.refused("user", "set", "alice", "--sieve", "off", status=2)


def test_sieve_check_finds_what_cannot_run(onecopy: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONECOPY_SIEVE_FOLDER", str(tmp_path))
    onecopy("sieve", "put", "alice", "main", octets=b"keep;")
    assert onecopy.json("sieve", "check", "--all") == [] == onecopy.json("sieve", "check", "alice", "bob")
    (tmp_path / "before.sieve").write_text("keep")
    assert "before.sieve" in onecopy("sieve", "check", "--all", status=1) and not onecopy("sieve", "check", "alice")
    assert onecopy.refused("sieve", "check", octets=b"fail;").startswith("line 1, column 1: ")
