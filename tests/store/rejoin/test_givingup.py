"""A partition that another machine alone has is given up: its mailboxes are there again, empty, and nothing else is
lost; and if that machine comes back all the same, its mail comes home."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import namespace
from store.partition import marks
from store.partitions import volumes
from store.quota import roots
from store.rejoin import givingup
from store.rejoin.partitionhome import COMING
from store.standby import promotion, seeding
from store.standby.seeding import MoreHere
from store.store import Store
from store.users import renaming
from tests.store.rejoin.test_partitionhome import ALICE, BOB, OLD, Pair, pair, rows
from tests.support.stores.standbypair import ADDRESS, Standby, promoted
from tests.support.stores.stores import deliver, reopen
from tools.cli import program

__all__ = ["pair"]

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


class Killed(BaseException):
    """The command ends at once."""


def entries(store: Store) -> dict[str, MailboxEntry]:
    """All mailboxes; on `archive` their UIDVALIDITYs are left out."""
    return {str(entry.name): evolve(entry, uidvalidity=0) if entry.partition == "archive" else entry
            for entry in store.mailboxes.all()}


def is_given_up(store: Store, before: dict[str, MailboxEntry], validities: dict[MailboxName, int]) -> None:
    """All is as before, and empty there; nothing is wrong; mail can come."""
    assert marks.absent(store.root) == {} and entries(store) == before and check(store) == []
    for name in (BOB, OLD):
        assert rows(store, name) == [] and store.entry(name).uidvalidity > validities[name]
        deliver(store, b"Subject: new\r\n\r\n", str(name))
        assert len(rows(store, name)) == 1
    assert not list(store.mailboxes.deleted.all())
    assert check(store) == []


def test_it_is_empty_and_can_be_used(pair: Pair) -> None:
    """At once, and after a restart; what is on the other partition stays, and what was refused is possible again."""
    store = pair.new
    kept, before = rows(store, ALICE), entries(store)
    validities = {name: store.entry(name).uidvalidity for name in (BOB, OLD)}
    lost = givingup.look(store, "archive")
    assert [str(each.name) for each in lost.mailboxes] == [str(OLD), str(BOB)] and len(lost.deleted) == 1
    assert (lost.host, lost.users, lost.inboxes) == ("mail.example.org", ["alice", "bob"], ["bob"])
    pair.is_absent()                                            # looking changes nothing
    assert givingup.give_up(store, "archive") == lost
    is_given_up(store, before, validities)
    assert rows(store, ALICE) == kept
    roots.set_quota(store, "bob", octets=1_000_000)
    namespace.create_mailbox(store, MailboxName("bob", "New"))
    renaming.rename_user(store, "bob", "robert")
    store.close()
    reopen(store)
    assert len(rows(store, MailboxName("robert", "INBOX"))) == 1
    assert roots.quota(store, "robert").octet_limit == 1_000_000
    with pytest.raises(StoreError) as caught:
        givingup.give_up(store, "archive")
    assert caught.value.problem is Problem.GONE


def test_only_what_is_absent_is_given_up(pair: Pair) -> None:
    for name in ("primary", "none", "../elsewhere", ""):
        with pytest.raises(StoreError) as caught:
            givingup.give_up(pair.new, name)
        assert caught.value.problem is Problem.GONE
    pair.is_absent()
    givingup.give_up(pair.new, "archive")


def test_limits_of_who_has_mail_elsewhere_hold(pair: Pair) -> None:
    """They are on each partition on which their owner has mailboxes; use is what is there."""
    other = pair.new.partitions["primary"]
    before = roots.quota(pair.new, "alice")
    with roots._turn(pair.new, "alice") as turn:
        other.transact(lambda txn: other.quotas.set_limits("alice", 5_000_000, 100, txn.handle, turn))
    givingup.give_up(pair.new, "archive")
    deliver(pair.new, b"Subject: new\r\n\r\n", str(OLD))
    use = pair.new.partitions["archive"].quotas.find("alice")
    assert (use.octet_limit, use.message_limit, use.messages) == (5_000_000, 100, 1)
    assert roots.quota(pair.new, "alice").messages == before.messages + 1


def test_killed_it_is_done_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each step of it: until the last one the partition is absent; a part of it that had come home stays aside."""
    store, before = pair.new, entries(pair.new)
    validities = {name: store.entry(name).uidvalidity for name in (BOB, OLD)}
    coming = store.root / "partitions" / "archive" / COMING
    coming.mkdir()
    (coming / "message").write_text("had come")
    steps = [(promotion, "note_given_up"), (givingup.Partition, "make"), (givingup, "_take_limits"),
             (givingup, "_empty"), (givingup, "_forget"), (givingup, "mark_behind"), (volumes, "_begin")]
    for place, name in steps:
        for after in (False, True):
            assert marks.absent(store.root), (name, after)
            with monkeypatch.context() as planted:
                work = getattr(place, name)

                def killed(*arguments: object, work: object = work, after: bool = after, **named: object) -> None:
                    if after:
                        work(*arguments, **named)               # type: ignore[operator]
                    raise Killed

                planted.setattr(place, name, killed)
                with pytest.raises(Killed):
                    givingup.give_up(store, "archive")
            if after and place is volumes:          # all is done, but that it is not in use
                break
            if after:
                store.close()
                reopen(store)
            finding, = check(store)
            assert finding.where == "partition archive" and "archive" not in store.partitions, (name, after)
            for mailbox in (BOB, OLD):
                with pytest.raises(StoreError) as caught:
                    store.open_mailbox(store.entry(mailbox))
                assert caught.value.problem is Problem.UNAVAILABLE
    assert "archive" not in store.partitions
    givingup.give_up(store, "archive")
    is_given_up(store, before, validities)
    aside, = (store.root / "partitions" / "archive").glob(f"set-aside/*/{COMING}/message")
    assert aside.read_text() == "had come"


def test_the_machine_comes_back_all_the_same(pair: Pair) -> None:
    """It brings each message home, beside what has come meanwhile."""
    givingup.give_up(pair.new, "archive")
    deliver(pair.new, b"Subject: meanwhile\r\n\r\n", str(BOB))
    theirs = {name: sorted(row[2] for row in rows(pair.old, name)) for name in (BOB, OLD)}
    home = pair.bring_the_rest(())
    here, = {row[2] for row in rows(pair.new, ALICE)}           # what its owner has counts as copied
    assert home.brought == len(theirs[OLD]) - 1 + len(theirs[BOB])
    assert sorted(row[2] for row in rows(pair.new, OLD)) == [each for each in theirs[OLD] if each != here]
    assert set(theirs[BOB]) < {row[2] for row in rows(pair.new, BOB)}
    assert len(rows(pair.new, BOB)) == len(theirs[BOB]) + 1


def test_a_standby_that_has_it_brings_it_first(tmp_path: Path, pair: Pair) -> None:
    """It followed the first machine, too, with all partitions: it does not take over that they are empty."""
    third = Standby(pair.old, tmp_path / "three", host="third.example.org")
    third.create()
    givingup.give_up(pair.new, "archive")
    after = Standby(pair.new, third.root, host="third.example.org")
    with after.connected() as source, pytest.raises(MoreHere, match="given up partition archive"):
        seeding.go_over(third.root, source, ADDRESS)
    with closing(promoted(third)) as kept:
        assert len(rows(kept, BOB)) == 4


def test_a_standby_of_this_machine_hears_of_it(tmp_path: Path, pair: Pair) -> None:
    """The new partition comes as any that is added."""
    fourth = Standby(pair.new, tmp_path / "four", host="fourth.example.org")
    fourth.create()
    givingup.give_up(pair.new, "archive")
    deliver(pair.new, b"Subject: new\r\n\r\n", str(BOB))
    with fourth.following() as follower:
        for _ in range(3):
            follower.round(0)
        follower.finish()
    with closing(promoted(fourth)) as other:
        assert marks.absent(other.root) == {} and check(other) == []
        assert rows(other, BOB) == rows(pair.new, BOB) and rows(other, OLD) == []


def test_the_command(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what is lost, and asks; nobody is here to answer."""
    root = pair.new.root
    pair.new.close()

    def typed(*words: str) -> tuple[int, str]:
        status = program.main(["partition", "give-up", *words, "--root", str(root)])
        return status, capsys.readouterr().out

    status, said = typed("archive", "--dry-run", "--json")
    told = {"partition": "archive", "host": "mail.example.org", "mailboxes": 2, "users": ["alice", "bob"],
            "inboxes": ["bob"], "deleted": 1}
    assert status == 0 and json.loads(said) == {**told, "given_up": False}
    assert typed("archive")[0] == 2 and marks.absent(root)
    assert typed("primary", "--yes")[0] == 1
    status, said = typed("archive", "--yes", "--json")
    assert status == 0 and json.loads(said) == {**told, "given_up": True} and not marks.absent(root)
    reopen(pair.new)
    assert rows(pair.new, BOB) == []
