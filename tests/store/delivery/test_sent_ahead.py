"""Messages that a client has sent without waiting (RFC 9051 §5.5): one sync and one transaction for all, and each is
delivered or refused by itself."""


import pytest

from mboxlist.engine.transact import Commits, Unflushed
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable, sentahead
from store.delivery.commit import NotOnDisk, Target
from store.delivery.sentahead import deliver_each
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.partition.staged import Staged
from store.quota import roots
from store.values import Flag, Flags, InternalDate
from tests.store.delivery.test_deliver_several import contents, inbox, staged_names
from tests.support.stores.stores import deliver, make_store, reopen_after_crash

BODY = b"From: a@example.org\r\nSubject: %d\r\n\r\nhello\r\n"
DATE = InternalDate(1_000_000_000, 60)
WORK = MailboxName("alice", "Work")


def message(store, body, *flags, entry=None):
    entry = entry or inbox(store)
    staged = store.stage(entry)
    staged.write(body)
    return staged, Target(entry, Flags(Flag.SEEN, flags), appended=True, reader="alice"), DATE


def each(store, *bodies):
    return outcomes(store, [message(store, body) for body in bodies])


def outcomes(store, messages):
    """UIDs, and problems."""
    found = offload.now(deliver_each(store, messages))
    assert found is not None
    return [one.problem if isinstance(one, StoreError) else one for one in found]


def outcomes_alone(store, messages):
    """`outcomes` of messages that cannot be delivered together."""
    assert offload.now(deliver_each(store, messages)) is None
    found = []
    for staged, target, date in messages:
        found += offload.now(durable.deliver(store, staged, (target,), date))
    return [one.problem if isinstance(one, StoreError) else one.uid for one in found]


def test_they_come_in_their_order_in_one_transaction(store):
    bodies = [BODY % number for number in range(5)]
    messages, before = [message(store, body) for body in bodies], Commits.total
    assert outcomes(store, messages) == [1, 2, 3, 4, 5]
    assert Commits.total == before + 1
    assert contents(store) == bodies and roots.quota(store, "alice").messages == 5
    assert check(store) == []


def test_one_without_room_is_refused_alone(store):
    small, large = BODY % 1, BODY % 2 + b"x" * 500
    roots.set_quota(store, "alice", octets=3 * len(small))
    assert each(store, small, large, BODY % 3, large, BODY % 4, BODY % 5) == [
        1, Problem.OVER_QUOTA, 2, Problem.OVER_QUOTA, 3, Problem.OVER_QUOTA]
    assert contents(store) == [small, BODY % 3, BODY % 4]
    store.partitions["primary"].files.drop_staged_names()
    assert staged_names(store) == [] and check(store) == []


def test_of_equal_ones_any_may_be_refused(store):
    """The file of the first one is used, though that is the one for which there is no room."""
    words = tuple(f"word{number}" for number in range(65))         # more keywords than a mailbox has room for
    first, second = message(store, BODY % 1, *words), message(store, BODY % 1)
    assert outcomes(store, [first, second, message(store, BODY % 1)]) == [Problem.LIMIT, 1, 2]
    assert contents(store) == [BODY % 1] * 2
    store.partitions["primary"].files.drop_staged_names()
    assert staged_names(store) == [] and check(store) == []


def test_all_are_refused(store):
    roots.set_quota(store, "alice", octets=10)
    assert each(store, BODY % 1, BODY % 2) == [Problem.OVER_QUOTA] * 2
    assert contents(store) == [] and staged_names(store) == [] and check(store) == []


def test_a_file_that_cannot_be_written_is_that_of_one_message(store, faults):
    bodies = [BODY % number for number in range(3)]
    messages = [message(store, body) for body in bodies]
    wrong = messages[1][0]
    faults.fail(Staged, "sync", StoreError(Problem.DISK_FULL), when=lambda staged: staged is wrong)
    assert outcomes_alone(store, messages) == [1, Problem.DISK_FULL, 2]
    assert contents(store) == [bodies[0], bodies[2]]
    store.partitions["primary"].files.drop_staged_names()
    assert staged_names(store) == [] and check(store) == []


def test_the_mailbox_has_gone_meanwhile(store):
    entry = namespace.create_mailbox(store, WORK)
    messages = [message(store, BODY % number, entry=entry) for number in range(2)]
    deletion.delete_mailbox(store, WORK)
    assert outcomes_alone(store, messages) == [Problem.NO_MAILBOX] * 2
    assert staged_names(store) == [] and check(store) == []


def test_what_others_have_is_there_once(store):
    deliver(store, BODY % 1, "user/bob/INBOX", trace=b"Return-Path: <list@example.org>\r\n")
    assert each(store, BODY % 2, BODY % 1, BODY % 2) == [1, 2, 3]
    assert contents(store) == [BODY % 2, BODY % 1, BODY % 2]
    store.partitions["primary"].files.drop_staged_names()
    assert len(list(store.partitions["primary"].files.folder.glob("?/??/*"))) == 2
    assert staged_names(store) == [] and check(store) == []


def test_a_purge_that_was_quicker_leaves_each_to_itself(store, faults):
    faults.fail(sentahead, "commit_each", NotOnDisk)
    assert outcomes_alone(store, [message(store, BODY % number) for number in (1, 2)]) == [1, 2]
    assert contents(store) == [BODY % 1, BODY % 2] and check(store) == []


def test_without_a_flush_there_is_no_answer_for_any(store, faults):
    partition = store.partitions["primary"]
    messages = [message(store, BODY % number) for number in range(2)]
    faults.fail(type(partition), "flush", Unflushed(5, "Input/output error"))
    with pytest.raises(Unflushed):
        offload.now(deliver_each(store, messages))


def test_they_outlive_a_crash_as_soon_as_they_are_acknowledged(tmp_path):
    store = make_store(tmp_path / "store")
    bodies = [BODY % number for number in range(3)]
    each(store, *bodies)
    assert len(staged_names(store)) == 3            # the names that are on disk stay until the others are
    store = reopen_after_crash(store)
    assert contents(store) == bodies and check(store) == []
    store.close()
