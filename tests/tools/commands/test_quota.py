"""onecopy quota, and deliver --ignore-quota."""

import json

import pytest

from tests.support.processes.program import Program

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
SIZE = len(MESSAGE)


def row(root: str, **changes: object) -> dict[str, object]:
    return {"root": root, "per_cent": None, "octets": 0, "messages": 0, "octet_limit": None, "message_limit": None,
            "refused_since": None, "warned": None, **changes}


def test_users(onecopy: Program) -> None:
    onecopy("deliver", "alice", octets=MESSAGE)
    onecopy("quota", "set", "alice", "--octets", "2G", "--messages", "10")
    alice = row("alice", octets=SIZE, octet_limit=2 << 30, messages=1, message_limit=10, per_cent=10)
    assert onecopy.json("quota", "show", "alice") == [alice]
    assert onecopy.json("quota", "show") == [alice, row("bob")]
    onecopy("quota", "set", "alice", "--octets", "none")
    assert onecopy.json("quota", "show", "Alice@Example.org") == [{**alice, "octet_limit": None}]
    onecopy("quota", "set", "alice", "--octets", "default")
    found = json.loads(onecopy("quota", "show", "alice", "--json", "--store-default-quota", "5M"))[0]
    assert found["octet_limit"] == 5 << 20
    assert [line.split()[0] for line in onecopy("quota", "show").splitlines()] == ["root", "alice", "bob"]
    assert "nothing to change" in onecopy.refused("quota", "set", "alice", status=2)
    assert "no user" in onecopy.refused("quota", "set", "carol", "--messages", "1")


def test_the_fullest_first(onecopy: Program) -> None:
    onecopy("deliver", "alice", "bob", octets=MESSAGE)
    onecopy("mailbox", "create", "alice", "Archive")
    onecopy("quota", "set", "alice/Archive", "--octets", "1M")
    onecopy("quota", "set", "bob", "--messages", "2")

    def fullest(number: str) -> list[str]:
        return [each["root"] for each in json.loads(onecopy("quota", "show", "--json", "--most", number))]

    assert fullest("2") == ["bob", "alice"]         # 50 %; without a limit, but with mail; nothing
    assert fullest("9") == ["bob", "alice", "alice/Archive"]
    assert fullest("0") == []


def test_mailboxes(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Archive")
    onecopy("deliver", "alice", "--mailbox", "Archive", octets=MESSAGE)
    found = onecopy.json("quota", "set", "alice/Archive", "--octets", "1M")
    archive = row("alice/Archive", octets=SIZE, octet_limit=1 << 20, messages=1, per_cent=0)
    assert found == [archive]
    assert onecopy.json("quota", "show", "alice") == [row("alice"), archive]
    assert onecopy.json("quota", "show", "alice/Archive") == [archive]
    assert onecopy.json("quota", "remove", "alice@example.org/Archive") == [{"root": "alice/Archive"}]
    assert onecopy.json("quota", "show", "alice") == [row("alice", octets=SIZE, messages=1)]
    assert "not a quota root" in onecopy.refused("quota", "remove", "alice/Archive")
    refused = onecopy.refused("quota", "remove", "alice")
    assert "not a quota root" in refused and "quota set alice --octets default" in refused
    assert onecopy("check") == "nothing wrong was found\n"


def test_a_user_with_limits_for_mailboxes_in_one_line(onecopy: Program) -> None:
    onecopy("quota", "set", "alice/Old", "--octets", "5M")
    onecopy("quota", "set", "alice", "--composite", "50M;Archive%200M;A%2FB%-1", "--messages", "7")
    assert {found["root"]: found["octet_limit"] for found in onecopy.json("quota", "show", "alice")} == {
        "alice": 50 << 20, "alice/A/B": None, "alice/Archive": 200 << 20}
    assert onecopy.json("quota", "show", "alice")[0]["message_limit"] == 7
    assert "--composite" in onecopy.refused("quota", "set", "alice", "--composite", "1M", "--octets", "1M", status=2)


@pytest.mark.parametrize("text", ["", ";", "50M;", "Archive%5M", "50M;Archive", "50M;%5M", "50M;#voice%5M", "much",
                                  "50M;Archive%much"])
def test_what_is_not_a_composite_limit(onecopy: Program, text: str) -> None:
    assert "--composite" in onecopy.refused("quota", "set", "alice", "--composite", text, status=2)


def test_domains(onecopy: Program) -> None:
    for user in ("alice", "bob"):
        onecopy("deliver", user, octets=MESSAGE)
    onecopy("quota", "set", "@example.org", "--messages", "2")
    assert onecopy.json("quota", "show", "@Example.org") == [
        row("@Example.org", octets=2 * SIZE, messages=2, message_limit=2, per_cent=100)]
    assert [found["root"] for found in onecopy.json("quota", "show")] == ["alice", "bob", "@example.org"]
    assert onecopy.refused("deliver", "bob", octets=MESSAGE) == "bob: over quota"
    onecopy("quota", "remove", "@example.org")
    onecopy("deliver", "bob", octets=MESSAGE)
    assert "has no limits" in onecopy.refused("quota", "remove", "@example.org")


def test_delivery_that_ignores_quota(onecopy: Program) -> None:
    onecopy("deliver", "bob", octets=MESSAGE)
    onecopy("quota", "set", "bob", "--messages", "1")
    assert onecopy.refused("deliver", "bob", octets=MESSAGE) == "bob: over quota"
    assert onecopy.json("quota", "show", "bob")[0]["refused_since"] is not None
    assert onecopy("deliver", "bob", "-q", octets=MESSAGE) == "bob INBOX 2\n"
    assert onecopy("deliver", "bob", "--ignore-quota", octets=MESSAGE) == "bob INBOX 3\n"
    assert onecopy.json("quota", "show", "bob")[0]["refused_since"] is not None     # it is over quota still


def test_check(onecopy: Program) -> None:
    assert onecopy("quota", "check") == ""
    assert onecopy.json("quota", "check") == []
    onecopy("quota", "set", "bob", "--messages", "1")
    onecopy("deliver", "bob", octets=MESSAGE)
    lines = onecopy("quota", "check", status=1).splitlines()
    assert [line.split()[:2] for line in lines] == [["root", "per"], ["bob", "100"]]
    found = json.loads(onecopy("quota", "check", "--json", status=1))
    assert found == [row("bob", octets=SIZE, messages=1, message_limit=1, per_cent=100)]


def test_warn(onecopy: Program) -> None:
    onecopy("quota", "set", "bob", "--messages", "1")
    onecopy("deliver", "bob", octets=MESSAGE)
    assert onecopy("quota", "warn", "--dry-run") == "bob\n"
    assert onecopy.json("quota", "warn", "--dry-run") == [{"root": "bob"}]
    assert onecopy.json("quota", "show", "bob")[0]["messages"] == 1
    assert onecopy("quota", "warn") == "bob\n"
    assert onecopy("quota", "warn") == ""
    found = onecopy.json("quota", "show", "bob")[0]
    assert found["messages"] == 2 and found["warned"] is not None


def test_warn_with_a_bad_template(onecopy: Program) -> None:
    assert "cannot be used" in onecopy.refused("quota", "warn", "--store-quota-notice", "/nowhere/notice.txt")


def test_fair_shares_are_shown_where_they_count(onecopy: Program) -> None:
    found = json.loads(onecopy("quota", "show", "alice", "--json", "--store-quota-charge", "fair"))
    assert found == [row("alice", discount=0)]
