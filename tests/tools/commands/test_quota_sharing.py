"""onecopy quota sharing."""

from tests.support.processes.program import Program

ONE = b"Subject: 1\r\n\r\n".ljust(98, b"x") + b"\r\n"
TWO = b"Subject: 2\r\n\r\n".ljust(38, b"x") + b"\r\n"


def figures(messages: int, octets: int, unique: int, shared: int, fair: int, freed: int) -> dict[str, int]:
    return {"messages": messages, "octets": octets, "unique": unique, "shared": shared, "fair": fair, "freed": freed}


def fill(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Archive")
    onecopy("deliver", "--raw", "alice", "bob", octets=ONE)
    onecopy("deliver", "--raw", "--mailbox", "Archive", "alice", octets=TWO)


def test_by_user(onecopy: Program) -> None:
    fill(onecopy)
    alice, bob = figures(2, 140, 40, 100, 90, 40), figures(1, 100, 0, 100, 50, 0)
    assert onecopy.json("quota", "sharing") == [{"user": "alice", **alice}, {"user": "bob", **bob}]
    assert onecopy.json("quota", "sharing", "Bob@example.org") == [{"user": "bob", **bob}]
    assert [line.split() for line in onecopy("quota", "sharing", "--bytes").splitlines()] == [
        ["user", *alice], ["alice", "2", "140", "40", "100", "90", "40"], ["bob", "1", "100", "0", "100", "50", "0"]]


def test_who_holds_most(onecopy: Program) -> None:
    fill(onecopy)
    onecopy("user", "add", "aaa", "--password-stdin", octets=b"secret\n")
    found = onecopy.json("quota", "sharing", "--most", "2")
    assert isinstance(found, list) and [each["user"] for each in found] == ["alice", "bob"]


def test_by_mailbox(onecopy: Program) -> None:
    fill(onecopy)
    inbox = {"mailbox": "user/alice/INBOX", **figures(1, 100, 0, 100, 50, 0)}
    archive = {"mailbox": "user/alice/Archive", **figures(1, 40, 40, 0, 40, 40)}
    assert onecopy.json("quota", "sharing", "--by", "mailbox", "alice") == [archive, inbox]
    assert len(onecopy.json("quota", "sharing", "--by", "mailbox")) == 3        # type: ignore[arg-type]


def test_by_domain_and_partition(onecopy: Program) -> None:
    fill(onecopy)
    whole = figures(3, 240, 240, 0, 140, 140)
    assert onecopy.json("quota", "sharing", "--by", "domain") == [{"domain": "example.org", **whole}]
    onecopy("mailbox", "delete", "alice", "Archive", "--yes")
    assert onecopy.json("quota", "sharing", "--by", "partition") == [
        {"partition": "primary", **figures(2, 200, 200, 0, 100, 100), "waiting": 40}]


def test_a_user_has_no_domain_of_its_own(onecopy: Program) -> None:
    assert "leave out USER" in onecopy.refused("quota", "sharing", "--by", "domain", "alice", status=2)
    assert "no user carol" in onecopy.refused("quota", "sharing", "carol")
