"""The check beside others who change the store: it tells what is so and no more, and comes to its end while mail comes
all the time."""

import contextlib

import pytest
from attrs import evolve

from mboxlist.engine.transact import Deadlock
from mboxlist.names import MailboxName
from store.check import confirming
from store.check import wholecheck as checking
from store.check.wholecheck import check
from store.errors import StoreError
from store.mailboxes import copymessages, deletion, namespace
from store.mailboxes import expunge as expunging
from store.mailboxes.expunge import remove
from store.tables.expunged import ExpungedMessages
from store.tables.quotatable import QuotaTable
from store.tables.references import References
from tests.store.check.test_wholecheck import BODY, INBOX, forget_cached
from tests.support.stores.stores import deliver, make_store

pytestmark = pytest.mark.few_folders


@pytest.fixture
def used(tmp_path):
    """A store in which alice has a message."""
    store = make_store(tmp_path / "store")
    deliver(store, BODY, INBOX)
    yield store
    store.close()


def test_what_a_first_look_half_sees_is_looked_at_again(used, faults):
    """A message arrives after its mailbox was read, and before the messages are."""
    arrived = []

    def late(look, store, *rest):
        if not arrived:
            arrived.append(deliver(used, BODY, INBOX))
            rest[1].records.clear()                     # so that the first look finds something
            rest = (rest[0], checking.filecheck.Messages.of(rest[0], None), *rest[2:])
        return look(store, *rest)

    faults.around(checking.filecheck, "look", late)
    assert check(used) == []
    assert arrived


def test_what_only_the_second_look_finds_is_a_change_under_way(used, faults):
    """It sees the rest of the store at another moment than the first."""
    def other(look, store, partition, messages, txn, *more):
        yield from look(store, partition, messages, txn, *more)
        if txn is not None:
            yield checking.Finding("half seen", "elsewhere", "nothing")

    faults.around(checking.filecheck, "look", other)
    forget_cached(used)
    assert [finding.what for finding in check(used)] == ["it has no cache record"]


def test_what_is_half_seen_only_once_keeps_nobody_from_writing(used, faults):
    """On a busy server each look sees another change half done: a transaction would lock all of it, each time."""
    looks = []

    def other(look, store, partition, messages, txn, *more):
        yield from look(store, partition, messages, txn, *more)
        looks.append(txn)
        yield checking.Finding("half seen", f"place {len(looks)}", "nothing")

    faults.around(checking.filecheck, "look", other)
    assert check(used) == []
    assert looks == [None, None]


def expunge_one(store, inbox):
    remove(store, inbox, store.open_mailbox(inbox).rows["uid"][:1])


def restore_one(store, inbox):
    deletion.undelete_messages(store, inbox, uids=[deletion.deleted_messages(store, inbox)[0].uid])


def purge_one(store, inbox):
    partition = store.partition_of(inbox)
    expunging.forget(partition, expunging.Expunges((next(partition.removed.all()).key,)))


def copy_one(store, inbox):
    copymessages.copy_messages(store, inbox, inbox, store.open_mailbox(inbox).rows["uid"][:1])


@pytest.mark.parametrize("change", [expunge_one, restore_one, purge_one, copy_one])
def test_a_second_look_sees_one_moment(tmp_path, faults, change):
    """Whatever others try to do between any two of its steps."""
    store = make_store(tmp_path / "store")
    inbox, steps, done = store.entry(MailboxName("alice", "INBOX")), [], []
    for _ in range(20):
        deliver(store, BODY, INBOX)
    for uid in range(1, 11):
        remove(store, inbox, [uid])
    partition = store.partitions["primary"]

    def suspect(look, store, partition, messages, txn, *more):
        yield from look(store, partition, messages, txn, *more)
        yield from () if txn is not None else (
            checking.Finding("half seen", f"message {digest.hex()}") for digest in messages.records)

    def meddle(step, given):
        if any(type(each).__name__ == "DBTxn" for each in given) and not steps[-1:] == ["busy"]:
            steps.append("busy")                    # what the change itself looks at is no step
            with contextlib.suppress(StoreError, *Deadlock):
                change(store, inbox)
                done.append(step)
            steps[-1] = step

    faults.around(checking.filecheck, "look", suspect)
    for where, step in ((type(partition), "all_states"), (ExpungedMessages, "all"), (References, "all"),
                        (checking.mailboxcheck, "_rows"), (checking.filecheck, "look"), (QuotaTable, "all")):
        faults.around(where, step, lambda real, *given, step=step, **named: (
            meddle(step, [*given, *named.values()]), real(*given, **named))[1])
    faults.around(type(partition), "transact", lambda real, self, work, **_: real(self, work, seconds=0))
    faults.around(expunging, "transact", lambda real, env, work: real(env, work, seconds=0))
    assert check(store) == []
    assert set(steps) == {"all_states", "all", "_rows", "look"}
    assert "all_states" in done and not {"_rows", "look"} & set(done), "when everything is locked it is too late"
    store.close()


def constant_mail(store, names, refused, answered):
    """What hears how far a check is, and has mail come to each mailbox then: many at each step, with other content."""
    def come(what, done, total):
        for number in range(3):
            for outcome in deliver(store, BODY + b"%d %d" % (len(answered), number), *names):
                (refused if isinstance(outcome, StoreError) else answered).append(outcome)
    return come


@pytest.mark.parametrize("damage", [None, "figures", "quota", "undeleted"])
def test_mail_that_comes_all_the_time(tmp_path, damage, faults):
    """The check comes to its end, tells what is so and no more, and keeps no mail from coming."""
    store = make_store(tmp_path / "store")
    partition, names = store.partitions["primary"], (INBOX, "user/bob/INBOX")
    alice = store.entry(MailboxName("alice", "INBOX"))
    for number in range(5):
        deliver(store, BODY + b"%d" % number, *names)
    remove(store, alice, [2])
    transactions = faults.watch(checking, "transact", lambda *given, **_: given)
    if damage == "figures":
        partition.transact(lambda txn: txn.set_state(alice.id, None, evolve(txn.state(alice.id), unseen=1000)))
    elif damage == "quota":
        partition.transact(lambda txn: txn.partition.quotas.charge("bob", 7, 0, txn.handle, enforce=False))
    elif damage == "undeleted":
        partition.transact(lambda txn: txn.set_state(alice.id, None, evolve(txn.state(alice.id), changed=1 << 40)))
    refused, answered = [], []
    found = check(store, tell=constant_mail(store, names, refused, answered))
    assert refused == [] and len(answered) > 10 and transactions == []
    assert {finding.where for finding in found} == {
        None: set(), "figures": {INBOX}, "quota": {"quota root bob"}, "undeleted": {INBOX}}[damage]
    assert all("1000" in finding.what or "unseen" in finding.what for finding in found if damage == "figures")
    store.close()


def test_a_mailbox_that_comes_to_a_root_while_it_is_looked_at(tmp_path, faults):
    """It was not among those that were charged to it, and is by the time the root is locked."""
    store = make_store(tmp_path / "store")
    deliver(store, BODY, INBOX)

    def made(*_):
        faults.mend()
        namespace.create_mailbox(store, MailboxName("alice", "New"))
        deliver(store, BODY + b"2", "user/alice/New")

    faults.around(checking.mailboxcheck, "wrong_use", lambda real, root, use, octets, messages: real(
        root, use, octets + 1, messages))
    faults.before(confirming, "_wrong_use", made)
    assert check(store) == []
    store.close()
