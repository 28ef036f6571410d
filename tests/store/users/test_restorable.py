"""Users who were removed, or have been forgotten, come back with all that they had."""

import time

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.accounts.base import Status
from store.accounts.passwords import hash_password
from store.errors import Problem, StoreError
from store.housekeeping.tasks import Round, one_process
from store.mailboxes import deletion, namespace, subscribing
from store.mailboxes.authorization import annotate
from store.quota import roots
from store.users import lifecycle, restorable
from store.values import Secret
from tests.support.stores.purging import purge_mailboxes
from tests.support.stores.stores import HASH, PASSWORD, deliver, reopen_after_crash

BODY = b"Subject: x\r\n\r\nx\r\n"


def furnish(store):
    namespace.create_mailbox(store, MailboxName("alice", "Archive"), special_use="\\Archive")
    namespace.create_mailbox(store, MailboxName("alice", "Old"))
    deliver(store, BODY, "user/alice/INBOX", "user/alice/Archive", "user/bob/INBOX")
    deletion.delete_mailbox(store, MailboxName("alice", "Old"))               # by herself: it stays deleted
    subscribing.subscribe(store, "alice", "Archive")
    subscribing.subscribe(store, "alice", "user/bob/INBOX")
    for name, acl in ((MailboxName("alice", "Archive"), {"bob": "lr"}),
                      (MailboxName("bob", "INBOX"), {"alice": "lrs", "-alice": "x"})):
        transact(store.mailboxes.env, lambda txn, name=name, acl=acl: store.mailboxes.write(
            evolve(store.entry(name), acl=acl), txn))
    roots.set_quota(store, "alice", 5000, 10)
    roots.set_quota(store, "alice/Archive", 1000)
    annotate(store, store.entry(MailboxName("alice", "Archive")), "/shared/comment", b"hers")
    annotate(store, store.entry(MailboxName("bob", "INBOX")), "/private/comment", b"his, to her", "alice")
    store.directory.change("alice", groups=["staff"], aliases=["ally"], status=Status.INACTIVE)
    for partition in store.partitions.values():
        partition.flush()


def look(store):
    """All that alice has; not UIDVALIDITY, which is new when a mailbox comes back."""
    inbox = store.mailboxes.find(MailboxName("bob", "INBOX"))
    boxes = {}
    for entry in store.names("alice"):
        box = store.open_mailbox(entry)
        boxes[entry.name.path] = (entry.id, entry.special_use, entry.acl, box.uids.tolist(), box.state.quota_root,
                                  store.mailboxes.annotations.get(entry.id, "/shared/comment"))
    uses = [roots.quota(store, root) for root in ("alice", "alice/Archive")]
    return (store.directory.user("alice"), store.directory.look_up("ally"), boxes, subscribing.subscriptions(store,
                                                                                                             "alice"),
            inbox.acl, store.mailboxes.annotations.get(inbox.id, "/private/comment", "alice"),
            [(use.octets, use.messages, use.octet_limit, use.message_limit) for use in uses])


def test_all_comes_back(store):
    furnish(store)
    before = look(store)
    restorable.forget_user(store, "alice")
    assert store.names("alice") == [] and store.directory.find("alice") is None
    assert look(store)[3:5] == ([], {})
    assert [record.user for record in restorable.everyone(store)] == ["alice"]
    could = restorable.undelete_user(store, "alice", change=False)
    assert (could.mailboxes, could.subscriptions, could.granted, could.problems) == (2, 2, 2, [])
    assert store.directory.find("alice") is None
    assert restorable.undelete_user(store, "alice") == could
    assert look(store) == before
    assert store.directory.user("alice").account.status is Status.INACTIVE
    assert restorable.everyone(store) == []
    assert [entry.name.path for _, entry in store.mailboxes.deleted.all()] == ["Old"]


def test_one_who_is_only_removed(store):
    furnish(store)
    before = look(store)
    lifecycle.remove_user(store, "alice")
    back = restorable.undelete_user(store, "alice")
    assert (back.mailboxes, back.problems) == (2, []) and look(store) == before


def test_who_cannot_come_back(store):
    furnish(store)
    for user, problem in (("bob", Problem.USER_EXISTS), ("nobody", Problem.NO_USER)):
        with pytest.raises(StoreError) as refused:
            restorable.undelete_user(store, user)
        assert refused.value.problem is problem
    restorable.forget_user(store, "alice")
    store.directory.add("alice", hash_password(Secret(b"another")))         # somebody else
    with pytest.raises(StoreError) as refused:
        restorable.undelete_user(store, "alice")
    assert refused.value.problem is Problem.USER_EXISTS


def test_an_alias_that_is_taken_stays_taken(store):
    furnish(store)
    restorable.forget_user(store, "alice")
    store.directory.change("bob", aliases=["ally"])
    restorable.undelete_user(store, "alice")
    assert store.directory.look_up("ally").user == "bob" and store.directory.find("alice").aliases == ()


def test_until_the_delay_has_passed(store):
    furnish(store)
    restorable.forget_user(store, "alice")
    later = time.time() + store.settings.purge_delay + 5
    assert restorable.due(store) == [] and restorable.due(store, later) == ["alice"]
    purge_mailboxes(store, later)
    back = restorable.undelete_user(store, "alice", change=False)
    assert back.mailboxes == 0 and "purged" in back.problems[0]
    task = next(task for task in one_process(store) if task.name == "forgotten")
    restorable.transact(store.mailboxes.env, lambda txn: restorable._write(
        store, evolve(restorable.find(store, "alice"), when=5), txn))
    assert Round(task, store).step() is None and restorable.everyone(store) == []


class Cut(Exception):
    pass


STEPS = ["_put_back", "_limit", "undelete_mailbox", "_have_again", "restore_user", "drop"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("crash", [False, True])
def test_cut_off_and_done_again(tmp_path, faults, step, crash):
    from tests.support.stores.stores import make_store
    store = make_store(tmp_path / "store")
    furnish(store)
    before = look(store)
    restorable.forget_user(store, "alice")
    calls = faults.watch(restorable, step)
    faults.fail(restorable, step, Cut,
                when=lambda *_, **__: len(calls) == 1 or step not in ("_limit", "undelete_mailbox"))
    with pytest.raises(Cut):
        restorable.undelete_user(store, "alice")
    faults.mend()
    if crash:
        store = reopen_after_crash(store)
    if step != "drop":
        restorable.undelete_user(store, "alice")
    assert look(store) == before
    assert store.directory.add("carol", HASH) and PASSWORD
    store.close()


def test_a_removal_that_was_cut_off(store, faults):
    """Half of it is gone: all comes back; and done again, it forgets what was kept when it began."""
    furnish(store)
    before = look(store)
    faults.fail(restorable, "leave_others", Cut)
    with pytest.raises(Cut):
        restorable.forget_user(store, "alice")
    faults.mend()
    assert store.names("alice") == [] and store.directory.find("alice").status is Status.REMOVED
    restorable.forget_user(store, "alice")
    restorable.undelete_user(store, "alice")
    assert look(store) == before
