"""UIDNEXT after an unclean end is on disk before anybody is told of it."""

import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.uidskip import store_skips, unstored
from store.tables.state import UID_SKIP
from tests.support.stores.stores import deliver, make_store, reopen_after_crash

ALICE = MailboxName("alice", "INBOX")


@pytest.fixture
def crashed(tmp_path):
    """A store after a crash; nothing may be wrong with it in the end."""
    store = make_store(tmp_path / "store")
    deliver(store, b"Subject: 1\r\n\r\n", str(ALICE), "user/bob/INBOX")
    store = reopen_after_crash(store)
    yield store
    assert check(store) == []
    store.close()


def entries(store):
    return [store.entry(ALICE), store.entry(MailboxName("bob", "INBOX"))]


def test_it_is_stored_once(crashed):
    assert [entry.id for entry in unstored(crashed, entries(crashed))] == [entry.id for entry in entries(crashed)]
    before = [crashed.status(entry).uidnext for entry in entries(crashed)]
    store_skips(crashed, entries(crashed)[:1])
    assert [entry.name.owner for entry in unstored(crashed, entries(crashed))] == ["bob"]
    store_skips(crashed, entries(crashed))
    assert unstored(crashed, entries(crashed)) == []
    assert [crashed.status(entry).uidnext for entry in entries(crashed)] == before == [2 + UID_SKIP] * 2


@pytest.mark.parametrize("problem", [Problem.UNAVAILABLE, Problem.CORRUPT])
def test_what_cannot_be_stored_is_not_shown(crashed, faults, problem):
    faults.fail(crashed, "transact", StoreError(problem))
    with pytest.raises(StoreError) as refused:
        store_skips(crashed, entries(crashed))
    assert refused.value.problem is problem


def test_with_a_full_disk_mail_can_be_read_and_what_was_deleted_holds_up_nobody(crashed, faults):
    gone = entries(crashed)[0]
    faults.fail(crashed, "transact", StoreError(Problem.DISK_FULL), when=lambda entry, _: entry.name.owner == "bob")
    namespace.create_mailbox(crashed, MailboxName("alice", "Gone"))
    deleted = crashed.entry(MailboxName("alice", "Gone"))
    deletion.delete_mailbox(crashed, deleted.name)
    store_skips(crashed, [deleted, entries(crashed)[1], gone])
    assert [entry.name.owner for entry in unstored(crashed, entries(crashed))] == ["bob"]
