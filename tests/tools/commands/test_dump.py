"""`onecopy dump`: every table of the databases, decoded, in ranges, without a secret and without holding anything."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from store.mailboxes import expunge
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.rebuild import recount
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.support.processes.program import Program
from tests.support.stores.stores import SMALL, deliver
from tools.commands.observing import tabledump
from tools.commands.observing.decodedrows import LAYOUTS, octets, shown, text

LETTER = b"Subject: a letter\r\n\r\nHello\r\n"


@pytest.fixture
def mail(onecopy: Program) -> Iterator[Program]:
    """A store with rows in nearly every table. The check finds nothing at the end."""
    onecopy("mailbox", "create", "alice", "Work", "Old")
    onecopy("mailbox", "acl", "alice", "Work", "bob", "lrs")
    onecopy("mailbox", "subscribe", "bob", "user/alice/Work")
    onecopy("user", "set", "alice", "--alias", "al@example.org")
    onecopy("quota", "set", "alice", "--octets", "5M")
    onecopy("user", "domain", "example.org", "--access", "+imap:*")
    store = open_store(onecopy.root, SMALL)
    for name in ("user/alice/INBOX", "user/alice/INBOX", "user/alice/Work"):
        deliver(store, LETTER, name)
    work, inbox = entry(store, "Work"), entry(store, "INBOX")
    change_flags(store, work, [1], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    expunge.remove(store, inbox, [2])
    store.close()
    onecopy("uidl", "import", "alice", "-", "--numbers", octets=b"1 old-uidl\n")
    onecopy("mailbox", "delete", "alice", "Old", "--yes")
    yield onecopy
    onecopy("check")


def entry(store: Store, path: str) -> Any:
    return next(each for each in store.names("alice") if each.name.path == path)


def rows(mail: Program, *words: str) -> list[dict[str, Any]]:
    found = mail.json("dump", *words)
    assert isinstance(found, list)
    return found


def test_every_table_is_listed_and_every_row_is_read(mail: Program) -> None:
    listed = rows(mail)
    assert {row["table"] for row in listed} == LAYOUTS.keys()
    filled = set()
    for name in LAYOUTS:
        for row in rows(mail, name):
            assert "problem" not in row, (name, row)
            filled.add(name)
    assert filled >= {"mailboxes", "names", "rights", "deleted", "pending", "former", "subscriptions", "users",
                      "aliases", "index", "state", "quota", "messages", "seen", "vanished", "removed", "uidls", "cache"}


def test_a_row_that_is_there_only_after_a_kill_is_read(store: Store) -> None:
    partition = store.partitions["primary"]
    partition.transact(recount.note_uncounted)
    noted, *_ = found = [shown("state", key, value) for key, value in partition.states.scan()]
    assert noted == {"key": text(bytes(3)), "uncounted": True} and not any("problem" in row for row in found)
    recount.count_what_is_due(partition)


def test_what_the_rows_say(mail: Program) -> None:
    work = mail.json("mailbox", "info", "alice", "Work")
    row, = rows(mail, "index", "--mailbox", str(work["id"]))
    assert (row["partition"], row["mailbox_id"], row["chunk"]) == ("primary", work["id"], 0)
    record, = row["records"]
    assert (record["uid"], record["size"], record["flags"]) == (1, len(LETTER), 0)      # \Seen is bob's alone
    assert rows(mail, "messages") == [row for row in rows(mail, "messages") if row["size"] == len(LETTER)]
    assert [each["digest"] for each in rows(mail, "messages")] == [record["digest"]]
    state, = rows(mail, "state", "--mailbox", str(work["id"]))
    assert {name: state[name] for name in ("messages", "uidnext", "uidvalidity", "octets", "quota_root")} == {
        name: work[name] for name in ("messages", "uidnext", "uidvalidity", "octets", "quota_root")}
    assert [(row["alias"], row["value"]) for row in rows(mail, "aliases")] == [("al", "alice")]
    assert [(row["identifier"], row["mailbox"]) for row in rows(mail, "rights")] == [("bob", "user/alice/Work")]
    assert {"user": "bob", "mailbox": "user/alice/Work"}.items() <= rows(mail, "subscriptions")[-1].items()
    seen, = rows(mail, "seen")
    assert seen["reader"] == "bob" and seen["flags"][0][:2] == [0, int(Flag.SEEN)]
    assert [row["uidl"] for row in rows(mail, "uidls") if "uidl" in row] == ["old-uidl"]
    assert [row["uids"] for row in rows(mail, "vanished")] == [[[2, 2]]]


def test_ranges_limits_and_raw_octets(mail: Program) -> None:
    every = [row["key"] for row in rows(mail, "users")]
    assert every == ["@example.org", "alice", "bob"] or every == ["@", "@example.org", "alice", "bob"]
    assert [row["key"] for row in rows(mail, "users.db", "--from", "alice")] == ["alice", "bob"]
    assert [row["key"] for row in rows(mail, "users", "--from", "a", "--to", "bob")] == ["alice"]
    assert [row["key"] for row in rows(mail, "users", "--from", "a", "--limit", "1")] == ["alice"]
    first = json.loads(mail("dump", "names", "--limit", "1", "--hex"))
    assert bytes.fromhex(first["value"]).decode() == rows(mail, "names", "--limit", "1")[0]["mailbox"]
    key = rows(mail, "names", "--limit", "1")[0]["key"]
    assert octets(key).hex() == first["key"] and rows(mail, "names", "--from", key)[0]["key"] == key
    assert [row.get("partition") for row in rows(mail, "outbox")] == [None, "primary"]      # each has its clock
    assert [row.get("partition") for row in rows(mail, "outbox", "--partition", "primary")] == ["primary"]
    assert all(json.loads(line)["partition"] == "primary" for line in mail("dump", "state").splitlines())


def test_no_hash_of_a_password_is_printed(mail: Program) -> None:
    mail("user", "remove", "bob", "--yes")
    for words in (("users",), ("users", "--json"), ("forgotten",)):
        assert "scrypt" not in mail("dump", *words) and "***" in mail("dump", "users")
    for table in ("users", "forgotten", "users.db"):
        assert "hashes of passwords" in mail.refused("dump", table, "--hex", status=2)


def test_one_that_is_damaged_stops_no_other() -> None:
    for table in LAYOUTS:
        for value in (b"", b"\xff" * 7, b"{", hashlib.sha256(table.encode()).digest()):
            for key in (b"", b"\xff", b"key", bytes(4), bytes(9)):
                assert shown(table, key, value)["key"] == text(key)


@pytest.mark.parametrize("key", [b"", b"alice", b"\xff\x00", b"\x00\x00\x00\x07", "é".encode(), b"0x41", b"a\nb"])
def test_a_key_can_be_typed_as_it_is_printed(key: bytes) -> None:
    assert octets(text(key)) == key and text(key).isprintable()


def test_nothing_is_locked_while_somebody_reads_slowly(mail: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabledump, "ROWS", 1)
    store = open_store(mail.root, SMALL)
    try:
        env = store.mailboxes.env
        table = next(each for each in env.tables if each.name == "names.db")
        before = env._env.lock_stat()["nlocks"]
        walk = tabledump._apart(table, b"", None)
        next(walk)
        assert env._env.lock_stat()["nlocks"] == before
        assert len(list(walk)) + 1 == sum(1 for _ in table.scan())
    finally:
        store.close()


@pytest.mark.parametrize(("words", "complaint"), [
    (("indx",), "there is no table indx; did you mean index?"),
    (("index", "--partition", "primry"), "there are mboxlist, primary"),
    (("users", "--mailbox", "7"), "do not begin with a mailbox id"), (("users", "--from", "0xzz"), "0xzz")])
def test_what_is_wrong_is_said(mail: Program, words: tuple[str, ...], complaint: str) -> None:
    assert complaint in mail.refused("dump", *words, status=2)
