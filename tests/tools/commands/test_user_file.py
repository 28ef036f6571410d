"""onecopy user add --users: many users from a file, some in each transaction."""

from contextlib import closing
from pathlib import Path

import pytest

from store.accounts import passwords
from store.accounts.passwords import hash_password, is_hash
from store.errors import Problem, StoreError
from store.mailboxes import firstuse, subscribing
from store.opening import open_store
from store.settings import Settings
from store.users import newuser
from store.values import Secret
from tests.support.processes.program import Program
from tests.support.stores.stores import SMALL

USES = ("Archive", "Drafts", "INBOX", "Junk", "Sent", "Trash")
HASH = hash_password(Secret(b"told"))


@pytest.fixture
def write(tmp_path: Path):
    def written(*lines: str) -> str:
        (tmp_path / "users.csv").write_text("".join(line + "\n" for line in lines))
        return str(tmp_path / "users.csv")
    return written


def users(onecopy: Program) -> list[str]:
    return [row["user"] for row in onecopy.json("user", "list")]


def mailboxes(onecopy: Program, user: str) -> list[tuple[str, str]]:
    return sorted((row["mailbox"], row["special_use"] or "") for row in onecopy.json("mailbox", "list", user))


def logs_in(onecopy: Program, user: str, password: bytes) -> bool:
    with closing(open_store(onecopy.root, SMALL)) as store:
        try:
            return bool(store.directory.authenticate(user, Secret(password)))
        except StoreError as refusal:
            assert refusal.problem is Problem.BAD_LOGIN
            return False


@pytest.fixture(autouse=True)
def special_mailboxes(onecopy, monkeypatch):
    monkeypatch.setenv("ONECOPY_STORE_SPECIAL_MAILBOXES", ", ".join(Settings().special_mailboxes))


def test_what_they_get(onecopy: Program, write) -> None:
    """All that one who is added by name gets, INBOX and the others; and what the columns say."""
    onecopy("user", "add", "single", "--password-stdin", octets=b"x\n")
    onecopy("partition", "add", "second")
    file = write("# name, password, partition, back end, aliases", "carol,its own", "dave,\"with, comma\",second",
                 "erin@example.com,e,,,info sales@example.com", "frank,")
    assert onecopy("user", "add", "--users", file, "--password-stdin", octets=b"shared\n") == "4 added\n"
    assert users(onecopy) == ["alice", "bob", "carol", "dave", "erin@example.com", "frank", "single"]
    assert onecopy.json("user", "show", "info")["user"] == "erin@example.com"
    assert onecopy.json("user", "show", "dave")["partition"] == "second"
    for user in ("carol", "dave", "erin@example.com", "frank"):
        assert mailboxes(onecopy, user) == mailboxes(onecopy, "single") != []
    assert logs_in(onecopy, "carol", b"its own") and logs_in(onecopy, "dave", b"with, comma")
    assert logs_in(onecopy, "frank", b"shared") and not logs_in(onecopy, "carol", b"shared")
    assert [name for name, _ in mailboxes(onecopy, "carol")] == list(USES)
    with closing(open_store(onecopy.root, SMALL)) as store:
        assert set(subscribing.subscriptions(store, "carol")) == set(USES)
    onecopy("check")


def test_hashes_are_taken_as_they_are(onecopy: Program, write) -> None:
    assert onecopy("user", "add", "--users", write(f"carol,{HASH}"), "--hashed") == "1 added\n"
    assert logs_in(onecopy, "carol", b"told") and not logs_in(onecopy, "carol", HASH.encode())
    for bad in ("told", "", "scrypt$14$8$1$AAAA", "scrypt$30$" + HASH.split("$", 2)[2], "{SHA}x",
                HASH + " SCRAM-SHA-1$1"):
        assert onecopy.refused("user", "add", "--users", write(f"dave,{bad}"), "--hashed", status=2) == (
            "dave: that is no hash of a password")
    assert "dave" not in users(onecopy)
    both = hash_password(Secret(b"x"), ["SCRAM-SHA-256", "SCRAM-SHA-1"])
    assert is_hash(both) and not is_hash(both[:-1]) and not is_hash(passwords.outside("x"))


def test_again(onecopy: Program, write) -> None:
    """Who is there stays as is, and who is new is added: so a file can be given again."""
    onecopy("user", "add", "--users", write("carol,first", "dave,d"))
    onecopy("mailbox", "delete", "carol", "Junk", "--yes")
    assert onecopy("user", "add", "--users", write("carol,second", "dave,d", "erin,e")) == (
        "1 added, 2 were there already, and are as they were\n")
    assert logs_in(onecopy, "carol", b"first") and not logs_in(onecopy, "carol", b"second")
    assert "Junk" not in {name for name, _ in mailboxes(onecopy, "carol")}


def test_who_is_refused_stops_no_other(onecopy: Program, write) -> None:
    onecopy("user", "remove", "bob", "--yes")
    file = write("carol,c,,,info", "dave,d,,,aaa info", "e rin/,e", "frank,f,nowhere", "bob,b", "gina,g,,,aaa")
    assert onecopy("user", "add", "--users", file, status=1) == "2 added\n"
    told = dict(line.removeprefix("onecopy: ").split(": ", 1) for line in onecopy.error.splitlines())
    assert set(told) == {"dave", "e rin/", "frank", "bob"} and told["dave"] == "info is an alias of carol"
    assert users(onecopy) == ["alice", "bob", "carol", "gina"]
    assert onecopy.json("user", "show", "aaa")["user"] == "gina"         # nothing is left of who was refused
    onecopy("check")


@pytest.mark.parametrize(("lines", "said"), [
    (["carol,x", "carol,y"], "line 2: carol is there a second time"), (["# nobody"], "it names no users"),
    (["carol,x,,,a,b"], "line 1 has more than 5 columns"), (["carol," + "x" * 1025], "is longer than 1024 octets")])
def test_files_that_cannot_be(onecopy: Program, write, lines: list[str], said: str) -> None:
    """Nobody is added before all has been read."""
    assert said in onecopy.refused("user", "add", "--users", write(*lines), status=2)
    assert users(onecopy) == ["alice", "bob"]


def test_words_that_cannot_be(onecopy: Program, write) -> None:
    file = write("carol,")
    for words in (["--users", file, "dave"], [], ["dave", "--hashed"], ["--users", file, "--alias", "x"],
                  ["--users", file]):
        onecopy.refused("user", "add", *words, status=2)
    assert "No such file" in onecopy.refused("user", "add", "--users", file + "x", status=2)


@pytest.mark.parametrize("step", ["mailboxes", "subscribed"])
def test_cut_off(onecopy: Program, write, faults, monkeypatch, step: str) -> None:
    """It says how far it came; the same command again does what is left."""
    monkeypatch.setattr(newuser, "TOGETHER", 2)
    calls, names = iter(range(9)), ("carol", "dave", "erin", "frank", "gina")
    where = (firstuse, "inboxes") if step == "mailboxes" else (firstuse, "_subscribe")
    faults.fail(*where, StoreError(Problem.DISK_FULL), when=lambda *_: next(calls) == 1)
    file = write(*(f"{name},{name}" for name in names))
    assert "2 of 5 are done: run the command again for the others" in onecopy.refused("user", "add", "--users", file)
    faults.mend()
    assert onecopy("user", "add", "--users", file) == "1 added, 4 were there already, and are as they were\n"
    for name in names:
        assert [path for path, _ in mailboxes(onecopy, name)] == list(USES)
    onecopy("check")
