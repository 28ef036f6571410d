"""`onecopy uidl import` and `uidl list`: unique-ids that messages had at another POP3 server."""

import pytest

from mboxlist.names import MailboxName
from store.mailboxes.expunge import remove
from store.opening import open_store
from tests.support.processes.program import Program
from tests.support.stores.stores import SMALL, deliver

ALICE = "user/alice/INBOX"


@pytest.fixture
def alice(onecopy: Program) -> Program:
    """Messages with the UIDs 2, 3 and 4, of 18, 19 and 20 octets."""
    store = open_store(onecopy.root, SMALL)
    for number in range(4):
        deliver(store, b"Subject: a\r\n\r\n%b\r\n" % (b"x" * number), ALICE)
    remove(store, store.entry(MailboxName.parse(ALICE)), [1])
    store.close()
    return onecopy


def listed(onecopy: Program) -> dict[int, str]:
    """The unique-ids that were imported."""
    return {row["uid"]: row["uidl"] for row in onecopy.json("uidl", "list", "alice") if row["imported"]}


def test_by_uid(alice: Program) -> None:
    said = alice("uidl", "import", "alice", "-", octets=b"# of the old server\n\n2 0000000a4f5b7c8d\r\n4 UID4-99\n")
    assert said == "2 messages have the unique-ids of the list\n"
    assert listed(alice) == {2: "0000000a4f5b7c8d", 4: "UID4-99"}
    rows = alice.json("uidl", "list", "alice", "--pop3-uidl-format", "%u")
    assert [(row["uid"], row["uidl"], row["octets"]) for row in rows] == [
        (2, "0000000a4f5b7c8d", 17), (3, "3", 18), (4, "UID4-99", 19)]


def test_by_number_with_sizes_as_the_other_server_lists_them(alice: Program, tmp_path) -> None:
    file = tmp_path / "list"
    file.write_bytes(b"+OK unique-ids follow\r\n1 one 17\r\n2 two\r\n3 three 19\r\n.\r\n")
    assert alice.json("uidl", "import", "alice", str(file), "--numbers") == {"imported": 3, "missing": []}
    assert listed(alice) == {2: "one", 3: "two", 4: "three"}


def test_what_is_not_there_is_told(alice: Program) -> None:
    said = alice("uidl", "import", "alice", "-", octets=b"1 gone\n2 two\n77 never\n", status=1)
    assert said == "1 messages have the unique-ids of the list; 2 UIDs are not there: 1, 77\n"
    assert listed(alice) == {2: "two"}


WRONG = [
    (b"1 one\n1 two\n", True, 2, "line 2"), (b"one\n", True, 2, "line 1"), (b"1\n", True, 2, "line 1"),
    (b"2 one two\n", False, 2, "line 1"), (b"2 " + b"x" * 71, False, 2, "line 1"), (b"2 \xe4", False, 2, "line 1"),
    (b"-2 x", False, 2, "line 1"), (b"2 x" + b" " * 300 + b"5", False, 2, "line 1"), (b"2 x 5 6", False, 2, "line 1"),
    (b"1 one\n4 four\n", True, 1, "there is no message 4"), (b"0 one\n", True, 1, "there is no message 0"),
    (b"1 one 17\n2 two 19\n", True, 1, "message 2 has 18 octets"), (b"2 x 18", False, 1, "message 2 has 17 octets"),
    (b"0 x", False, 2, "between 1"), (b"4294967296 x", False, 2, "between 1"),
    (b"2 same\n3 same\n", False, 1, "same unique-id"),
]


def test_nothing_is_changed_by_a_list_that_cannot_be_right(alice: Program) -> None:
    alice("uidl", "import", "alice", "-", octets=b"3 before\n")
    for lines, numbers, status, said in WRONG:
        option = ["--numbers"] if numbers else []
        assert said in alice.refused("uidl", "import", "alice", "-", *option, octets=lines, status=status), lines
    assert listed(alice) == {3: "before"}


def test_no_such_file_or_user(alice: Program, tmp_path) -> None:
    assert "nothing-here" in alice.refused("uidl", "import", "alice", str(tmp_path / "nothing-here"), status=2)
    assert "nobody" in alice.refused("uidl", "import", "nobody", "-", octets=b"1 x\n")
