"""The list of mailboxes: order, identity, and what a killed process leaves."""

import pytest

from mboxlist.entry import MailboxEntry
from mboxlist.kv import transact
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
            mailboxes.write(MailboxEntry(mailbox, name, "primary", validity, name.owner, 0), txn)
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
    entry = MailboxEntry(7, MailboxName("bob", "Entwürfe"), "second", 99, "bob", 5, "\\Drafts", {"anyone": "lr"})
    transact(mailboxes.env, lambda txn: mailboxes.write(entry, txn))
    assert mailboxes.find(entry.name) == entry
    assert mailboxes.find(MailboxName("bob", "Entw")) is None


def test_identities_only_rise(mailboxes):
    given = [transact(mailboxes.env, mailboxes.next_identity) for _ in range(5)]
    assert [mailbox for mailbox, _ in given] == [1, 2, 3, 4, 5]
    assert all(later > earlier for (_, earlier), (_, later) in zip(given, given[1:], strict=False))


def test_a_transaction_that_fails_leaves_nothing(mailboxes):
    def work(txn):
        mailboxes.write(MailboxEntry(1, MailboxName("bob", "x"), "primary", 1, "bob", 0), txn)
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
