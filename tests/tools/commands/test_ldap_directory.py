"""`onecopy user show`, `directory test` and `user purge` with the users of a real slapd, and with the built-in ones."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.operations import clockrecord
from tests.support import ROOT
from tests.support.processes.program import Program
from tests.support.servers import slapd
from tools.commands import user_purge

DOCS = ROOT / "docs" / "ldap"
BASE = slapd.BASE
PEOPLE = f"ou=people,{BASE}"
DAY = 86400


def person(uid: str, *lines: str, below: str = PEOPLE) -> str:
    """One of our schema."""
    return slapd.person(uid, "secret", "objectClass: mailStoreUser", *lines, below=below)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slapd.Slapd]:
    folder = tmp_path_factory.mktemp("slapd")
    with slapd.Slapd(folder / "one", schemas=[slapd.SCHEMAS / "misc.schema", DOCS / "onecopy.schema"],
                     rules=f"include {DOCS}/index.conf\ninclude {DOCS}/access.conf",
                     tree=(DOCS / "sample.ldif").read_text()) as made:
        yield made


@pytest.fixture
def outside(bare: Program, served: slapd.Slapd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A store whose users are those of the sample tree; it is mail1.example.org."""
    (tmp_path / "password").write_text("secret\n")
    for name, value in {
            "uris": served.uri, "starttls": "no", "bind_dn": f"cn=onecopy,ou=services,{BASE}",
            "bind_password_file": str(tmp_path / "password"), "base": PEOPLE, "domain_base": f"ou=domains,{BASE}",
            "group_base": f"ou=groups,{BASE}", "retry_first": "0"}.items():
        monkeypatch.setenv(f"ONECOPY_DIRECTORY_{name.upper()}", value)
    monkeypatch.setenv("ONECOPY_STORE_HOST", "mail1.example.org")
    bare("init")
    return bare


def say(program: Program, *words: str, status: int = 0) -> dict:
    return json.loads(program("directory", "test", *words, "--json", status=status))


# directory test

def test_a_user_who_gets_in(outside):
    report = say(outside, "Alice")
    steps = [f"{step['step']}: {step['result']}" for step in report["steps"]]
    assert steps[0] == "name: 'Alice' is looked up as alice"
    assert steps[1] == ("search: (&(objectClass=mailStoreDomain)(associatedDomain=example.org)) below "
                        f"ou=domains,{BASE}: associatedDomain=example.org,ou=domains,{BASE}")
    assert steps[2].endswith(f"below {PEOPLE}: uid=alice,{PEOPLE}")
    assert steps[3].endswith(f"cn=staff,ou=groups,{BASE}; cn=Sales Team,ou=groups,{BASE}")
    assert report["login"] == {service: {"allowed": True, "why": ""} for service in ("imap", "pop")}
    assert report["delivery"] == {"accepted": True, "reply": "250", "why": ""}
    account = report["account"]
    assert account["octet_limit"] == {
        "value": 2 << 30, "origin": f"mailQuota=2G;Archive%10G of uid=alice,{PEOPLE}, at the next use"}
    assert account["host"]["origin"] == ("preferredMailHost=mail1.example.org of "
                                         f"associatedDomain=example.org,ou=domains,{BASE}")
    assert account["status"]["origin"] == "default: nothing says otherwise"


@pytest.mark.parametrize(("address", "login", "delivery", "reply"), [
    ("nobody", "no such user", "no such user", "550 5.1.1"),
    ("alice@example.info", "no such user", "no such user", "550 5.1.1"),
    ("dave", "the status is inactive", "the status is inactive", "450 4.2.1"),
    ("carol", "the mail is on mail2.example.org", "the mail is on mail2.example.org", "450 4.4.4"),
    ("alice.smith", "no login name", "", "250"),
])
def test_a_user_who_does_not(outside, address, login, delivery, reply):
    report = say(outside, address, status=1)
    for service in ("imap", "pop"):
        assert login in report["login"][service]["why"]
    assert delivery in report["delivery"]["why"] and report["delivery"]["reply"] == reply


def test_rules_of_access_are_said(outside, served):
    served.add(person("frank", "mailAllowedServiceAccess: +imap:10.$-ALL:*"))
    assert say(outside, "frank", "--from", "10.1.2.3", status=1)["login"]["imap"]["allowed"]
    report = say(outside, "frank", status=1)
    assert "10.$-ALL:*" in report["login"]["imap"]["why"] and report["delivery"]["accepted"]
    assert "refused" in outside("directory", "test", "frank", status=1)


def test_two_entries_garbage_and_silence_are_said(outside, served, monkeypatch):
    served.add(person("twin", "mailAlternateAddress: alice2@example.org") + person("alice2"))
    report = say(outside, "alice2", status=1)
    assert "several entries" in report["delivery"]["why"] and report["delivery"]["reply"] == "451 4.3.0"
    assert "several entries" in report["login"]["imap"]["why"]
    served.add(person("gus", "mailQuota: lots"))
    assert "'lots' is not a number" in say(outside, "gus", status=1)["delivery"]["why"]
    monkeypatch.setenv("ONECOPY_DIRECTORY_URIS", "ldap://127.0.0.1:1")
    assert say(outside, "alice", status=1)["delivery"]["reply"] == "451 4.3.0"


def test_a_password_is_tried(outside):
    for password, said, status in ((b"secret\n", "succeeds", 0), (b"wrong\n", "is refused", 1)):
        text = outside("directory", "test", "alice", "--password-stdin", octets=password, status=status)
        assert f"password: a bind as uid=alice,{PEOPLE} {said}" in text


def test_the_built_in_directory_is_tested_too(onecopy):
    assert say(onecopy, "alice")["delivery"]["accepted"]
    onecopy("user", "set", "alice", "--alias", "info", "--status", "disabled")
    report = say(onecopy, "info", status=1)
    assert "no login name" in report["login"]["imap"]["why"] and report["delivery"]["reply"] == "550 5.2.1"
    assert say(onecopy, "carol", status=1)["delivery"]["reply"] == "550 5.1.1"
    assert say(onecopy, "@", status=1)["steps"][0]["result"] == "'@' can be nobody's name"


# user show

def test_where_each_value_comes_from(outside):
    shown = outside.json("user", "show", "alice")
    assert shown["octet_limit"] is None                 # the store has not met alice yet
    origins = shown["origins"]
    assert origins["octet_limit"] == f"mailQuota=2G;Archive%10G of uid=alice,{PEOPLE}, at the next use"
    assert origins["message_limit"].startswith(f"mailMsgQuota=100000 of uid=alice,{PEOPLE}")
    assert origins["groups"] == ("a search for groups: cn=Sales Team,ou=groups,dc=example,dc=org; "
                                 "cn=staff,ou=groups,dc=example,dc=org")
    assert origins["partition"] == "default: store.default_partition"
    text = outside("user", "show", "alice")
    assert f"(mail=alice@example.org of uid=alice,{PEOPLE})" in text


def test_what_was_said_before_is_shown_when_nobody_answers(outside, monkeypatch):
    meet(outside, "alice")
    assert outside.json("user", "show", "alice")["octet_limit"] == 2 << 30
    monkeypatch.setenv("ONECOPY_DIRECTORY_URIS", "ldap://127.0.0.1:1")
    shown = outside.json("user", "show", "alice")
    assert shown["octet_limit"] == 2 << 30 and "before" in shown["problem"]
    assert shown["origins"]["status"] == "outside directory, as it was when it was asked last"


# user purge

def meet(program: Program, *users: str) -> None:
    """Mail comes for them."""
    program("deliver", *users, octets=b"Subject: hello\r\n\r\nHello.\r\n")


@pytest.fixture
def many(outside: Program, served: slapd.Slapd) -> Iterator[Program]:
    """user0 to user9 have mail."""
    users = [f"user{number}" for number in range(10)]
    served.add("".join(person(user) for user in users))
    meet(outside, *users)
    yield outside
    for user in users:
        if served.search(f"(uid={user})", "1.1"):
            served.delete(f"uid={user},{PEOPLE}")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    return Clock(monkeypatch)


class Clock:
    """Unix time for the command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        monkeypatch.setattr(user_purge.time, "time", lambda: self.now)


def rows(program: Program, *words: str) -> dict:
    return {row["user"]: (row["directory"], row["action"]) for row in json.loads(
        program("user", "purge", "--yes", *words, "--json"))}


def test_who_is_gone_is_removed_after_the_delay(many, served, clock):
    assert rows(many) == {}
    served.delete(f"uid=user3,{PEOPLE}")
    assert rows(many, "--dry-run") == {"user3": ("gone", "note")}
    assert rows(many) == {"user3": ("gone", "noted")}
    clock.now += 7 * DAY - 1
    assert rows(many) == {"user3": ("gone", "wait")}
    assert many.json("user", "show", "user3")["status"] == "deleted"
    clock.now += 1
    assert rows(many, "--dry-run") == {"user3": ("gone", "remove")}
    assert many.json("user", "show", "user3")["messages"] == 1
    assert rows(many) == {"user3": ("gone", "removed")}
    assert "no user" in many.refused("user", "show", "user3")
    assert "nothing wrong" in many("check")
    assert rows(many) == {}


def test_who_is_back_is_kept_and_the_delay_begins_anew(many, served, clock):
    served.delete(f"uid=user3,{PEOPLE}")
    rows(many)
    served.add(person("user3"))
    clock.now += 30 * DAY
    assert rows(many) == {}
    served.delete(f"uid=user3,{PEOPLE}")
    assert rows(many) == {"user3": ("gone", "noted")}


def test_who_is_marked_as_deleted_goes_too(many, served, clock):
    served.change(f"dn: uid=user4,{PEOPLE}\nchangetype: modify\nreplace: inetUserStatus\ninetUserStatus: removed\n")
    assert rows(many) == {"user4": ("deleted", "noted")}
    clock.now += 7 * DAY
    assert rows(many) == {"user4": ("deleted", "removed")}


def test_when_many_are_gone_nothing_is_done(many, served, clock, monkeypatch):
    for number in range(2):
        served.delete(f"uid=user{number},{PEOPLE}")
    assert "2 of 10 users" in many.refused("user", "purge", "--yes")
    assert rows(many, "--force") == {f"user{number}": ("gone", "noted") for number in range(2)}
    clock.now += 7 * DAY
    assert "nothing was done" in many.refused("user", "purge", "--yes")
    assert set(rows(many, "--most", "20").values()) == {("gone", "removed")}
    # the wrong base: all are gone
    monkeypatch.setenv("ONECOPY_DIRECTORY_BASE", f"ou=groups,{BASE}")
    assert "8 of 8 users" in many.refused("user", "purge", "--yes")


def test_when_the_directory_cannot_be_asked_nothing_is_done(many, served, clock, monkeypatch):
    served.delete(f"uid=user5,{PEOPLE}")
    rows(many)
    clock.now += 8 * DAY
    with monkeypatch.context() as patch:
        patch.setenv("ONECOPY_DIRECTORY_URIS", "ldap://127.0.0.1:1")
        assert "nothing was done" in many.refused("user", "purge", "--yes")
        # a base that is not there: nobody would be
        patch.setenv("ONECOPY_DIRECTORY_URIS", served.uri)
        patch.setenv("ONECOPY_DIRECTORY_BASE", f"ou=nowhere,{BASE}")
        assert "nothing was done" in many.refused("user", "purge", "--yes", "--force")
    assert rows(many) == {"user5": ("gone", "removed")}


def test_who_has_another_name_or_makes_no_sense_is_kept(many, served, clock):
    served.change(f"dn: uid=user6,{PEOPLE}\nchangetype: modify\nreplace: mail\nmail: married@example.org\n-\n"
                  "add: mailAlternateAddress\nmailAlternateAddress: user6@example.org\n")
    served.change(f"dn: uid=user7,{PEOPLE}\nchangetype: modify\nadd: mailHost\nmailHost: two words\n")
    found = json.loads(many("user", "purge", "--yes", "--json"))
    assert {(row["user"], row["directory"], row["action"]) for row in found} == {
        ("user6", "renamed", "keep"), ("user7", "unclear", "keep")}
    assert next(row["detail"] for row in found if row["user"] == "user6") == "is married now"
    clock.now += 30 * DAY
    assert {action for _, action in rows(many).values()} == {"keep"}
    many("user", "rename", "user6", "married")
    assert set(rows(many)) == {"user7"}
    assert many.json("user", "show", "married")["messages"] == 1


def test_what_the_directory_decides_is_not_changed_here(outside):
    assert "outside directory" in outside.refused("user", "add", "new", "--password-stdin", octets=b"x\n", status=2)
    assert "outside directory" in outside.refused("user", "set", "alice", "--status", "hold", status=2)
    assert "outside directory" in outside.refused("user", "remove", "alice", "--yes", status=2)


def test_users_of_the_built_in_directory_are_not_asked_for(outside, clock, monkeypatch):
    monkeypatch.setenv("ONECOPY_DIRECTORY_LOCAL", "proxy")
    outside("user", "add", "proxy", "--password-stdin", octets=b"secret\n")
    assert rows(outside) == {}


def test_no_clock_that_is_far_ahead_removes_a_user(onecopy, clock):
    onecopy("user", "remove", "bob", "--yes")
    clockrecord.trust(onecopy.root, clock.now)
    clock.now += 400 * DAY
    assert "--trust-clock" in onecopy.refused("user", "purge", "--yes")
    assert rows(onecopy, "--dry-run") == {"bob": ("removed", "remove")}
    assert rows(onecopy, "--trust-clock") == {"bob": ("removed", "removed")}


def test_the_built_in_directory_is_purged_too(onecopy, clock):
    onecopy("user", "remove", "bob", "--yes")
    assert rows(onecopy) == {}
    clock.now += 30 * DAY
    assert rows(onecopy, "--dry-run") == {"bob": ("removed", "remove")}
    assert rows(onecopy) == {"bob": ("removed", "removed")}
    assert [user["user"] for user in onecopy.json("user", "list")] == ["alice"]
