"""The list of mailboxes: order, identity, and what a killed process leaves."""

import threading

import pytest
from attrs import evolve

from mboxlist.engine.freezegate import WriteFreeze
from mboxlist.engine.transact import Deadlock, transact
from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from mboxlist.table import MailboxList


@pytest.fixture
def mailboxes(tmp_path):
    opened = MailboxList(tmp_path, cache=1 << 20, recover=True)
    yield opened
    opened.close()


def add(mailboxes, *names):
    def work(txn):
        for text in names:
            name = MailboxName.parse(text)
            mailbox, validity = mailboxes.next_identity(txn)
            mailboxes.write(MailboxEntry(mailbox, name, "primary", validity, 0), txn)
    transact(mailboxes.env, work)


def names(entries):
    return [str(entry.name) for entry in entries]


def test_children_follow_their_parent(mailboxes):
    add(mailboxes, "user/al/a b", "user/al/a/b", "user/al/a", "user/al/INBOX", "user/alb/INBOX", "public/x",
        "user/al/a!")
    assert names(mailboxes.below("al")) == [
        "user/al/INBOX", "user/al/a", "user/al/a/b", "user/al/a b", "user/al/a!"]
    assert names(mailboxes.below("al", "a")) == ["user/al/a/b"]
    assert names(mailboxes.below("")) == ["public/x"]
    assert len(list(mailboxes.all())) == 7


def test_what_is_written_is_found(mailboxes):
    entry = MailboxEntry(7, MailboxName("bob", "Entwürfe"), "second", 99, 5, "\\Drafts", {"anyone": "lr"})
    transact(mailboxes.env, lambda txn: mailboxes.write(entry, txn))
    assert mailboxes.find(entry.name) == entry
    assert mailboxes.find(MailboxName("bob", "Entw")) is None


def test_identities_only_rise(mailboxes):
    given = [transact(mailboxes.env, mailboxes.next_identity) for _ in range(5)]
    assert [mailbox for mailbox, _ in given] == [1, 2, 3, 4, 5]
    assert all(later > earlier for (_, earlier), (_, later) in zip(given, given[1:], strict=False))


def test_a_transaction_that_fails_leaves_nothing(mailboxes):
    def work(txn):
        mailboxes.write(MailboxEntry(1, MailboxName("bob", "x"), "primary", 1, 0), txn)
        raise KeyError
    with pytest.raises(KeyError):
        transact(mailboxes.env, work)
    assert mailboxes.find(MailboxName("bob", "x")) is None


def test_subscriptions_are_each_users_own(mailboxes):
    def work(txn):
        for user, name in [("bob", "b"), ("bob", "a/ü"), ("bobby", "x"), ("bob", "b")]:
            mailboxes.subscriptions.add(user, name, txn)
    transact(mailboxes.env, work)
    assert list(mailboxes.subscriptions.of("bob")) == ["a/ü", "b"]
    assert transact(mailboxes.env, lambda txn: mailboxes.subscriptions.remove("bob", "b", txn))
    assert not transact(mailboxes.env, lambda txn: mailboxes.subscriptions.remove("bob", "b", txn))
    assert list(mailboxes.subscriptions.of("bob")) == ["a/ü"]


def test_a_mailbox_is_found_by_its_id_under_its_present_name(mailboxes):
    add(mailboxes, "user/al/INBOX", "user/al/a")
    entry = mailboxes.find(MailboxName("al", "a"))
    assert mailboxes.find_id(2) == entry

    def rename(txn):
        mailboxes.remove(entry.name, txn)
        mailboxes.write(evolve(entry, name=MailboxName("al", "b")), txn)

    transact(mailboxes.env, rename)
    assert str(mailboxes.find_id(2).name) == "user/al/b"
    transact(mailboxes.env, lambda txn: mailboxes.remove(MailboxName("al", "b"), txn))
    assert mailboxes.find_id(2) is None
    assert mailboxes.find_id(3) is None


def test_each_row_that_changes_is_noticed(mailboxes):
    noticed = []
    mailboxes.noticed = noticed.append
    add(mailboxes, "user/al/a")
    entry = mailboxes.find(MailboxName("al", "a"))
    moved = evolve(entry, partition="second")
    transact(mailboxes.env, lambda txn: mailboxes.write(moved, txn))
    transact(mailboxes.env, lambda txn: mailboxes.remove(entry.name, txn))
    assert noticed == [entry, moved, entry, moved]
    assert not transact(mailboxes.env, lambda txn: mailboxes.remove(entry.name, txn))


def test_identities_that_are_skipped_never_come(mailboxes):
    transact(mailboxes.env, lambda txn: mailboxes.skip_identities(70, 4_000_000_000, txn))
    transact(mailboxes.env, lambda txn: mailboxes.skip_identities(5, 6, txn))
    assert mailboxes.last_identity() == (70, 4_000_000_000)
    assert transact(mailboxes.env, mailboxes.next_identity) == (71, 4_000_000_001)


def test_a_list_keeps_its_identity_and_another_has_another(tmp_path):
    found = []
    for folder in ("one", "one", "two"):
        (tmp_path / folder).mkdir(exist_ok=True)
        opened = MailboxList(tmp_path / folder, cache=1 << 20, recover=True)
        opened.env.flush()
        found.append(opened.identity)
        opened.close()
    assert found[0] == found[1] != found[2]


def delete(mailboxes, txn):
    mailboxes.deleted.add(mailboxes.find(MailboxName("al", "a"), txn), 1, txn)


READS = {
    "mailboxes": (lambda mailboxes, txn: mailboxes.below("al", txn=txn),
                  lambda mailboxes, txn: mailboxes.remove(MailboxName("al", "a"), txn)),
    "deleted": (lambda mailboxes, txn: mailboxes.deleted.all(txn), delete),
    "subscriptions": (lambda mailboxes, txn: mailboxes.subscriptions.of("al", txn),
                      lambda mailboxes, txn: mailboxes.subscriptions.add("al", "b", txn)),
    "annotations": (lambda mailboxes, txn: mailboxes.annotations.of(1, txn),
                    lambda mailboxes, txn: mailboxes.annotations.set(1, "/shared/b", b"x", txn)),
}


@pytest.mark.parametrize("what", READS)
def test_what_a_transaction_has_read_stays_so_to_its_end(mailboxes, what):
    """Who decides by it may write: nobody has changed it meanwhile."""
    add(mailboxes, "user/al/INBOX", "user/al/a")
    read, change = READS[what]

    def decide(txn):
        before = list(read(mailboxes, txn))
        with pytest.raises(Deadlock):
            transact(mailboxes.env, lambda other: change(mailboxes, other), seconds=0)
        return before

    before = transact(mailboxes.env, decide)
    transact(mailboxes.env, lambda txn: change(mailboxes, txn))
    assert list(read(mailboxes, None)) != before


def test_a_name_that_was_read_before_is_believed_until_any_process_has_changed_one(tmp_path):
    """Not while it is being changed either: who asks then waits, and so is told what comes of it."""
    (tmp_path / "list").mkdir()
    freezes = [WriteFreeze(tmp_path / "gate") for _ in range(2)]
    one, two = (MailboxList(tmp_path / "list", cache=1 << 20, recover=number == 0, write_freeze=freeze)
                for number, freeze in enumerate(freezes))
    add(one, "user/al/a", "user/al/b")
    entry = one.find(MailboxName("al", "a"))
    key = entry.id.to_bytes(4, "big")
    assert one.name_of(key) == two.name_of(key) == b"user/al/a"
    for each in (one, two):
        table, each._names = each._names, None          # nothing is read
        assert each.name_of(key) == b"user/al/a"
        each._names = table
    other = evolve(entry, name=MailboxName("al", "c"))

    def rename(txn):
        one.remove(entry.name, txn)
        one.write(other, txn)
        asked.start()

    found = []
    asked = threading.Thread(target=lambda: found.append(two.name_of(key)))
    transact(one.env, rename)
    asked.join()
    assert found == [b"user/al/c"] == [one.name_of(key)] and two.name_of(key) == b"user/al/c"
    transact(two.env, lambda txn: two.remove(other.name, txn))
    assert one.name_of(key) is None and two.name_of(key) is None
    for each in (two, one):
        each.close()
    for freeze in freezes:
        freeze.close()
