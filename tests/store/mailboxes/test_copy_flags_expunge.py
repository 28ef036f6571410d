"""COPY, MOVE, flags and expunge: what each does to records, counts, quota and references, all or nothing."""

import time
from functools import partial

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace, subscribing
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge, remove
from store.mailboxes.flagchanges import change_flags
from store.quota import roots
from store.tables.state import MAX_KEYWORDS
from store.users import lifecycle
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge_mailboxes
from tests.support.stores.stores import deliver, let_go

ONE, TWO = b"Subject: 1\r\n\r\none\r\n", b"Subject: 2\r\n\r\ntwo two\r\n"


@pytest.fixture
def boxes(store):
    """INBOX with UIDs 1 to 4 (the first two the same message), and Archive, empty."""
    for body in (ONE, ONE, TWO, TWO + b"x"):
        deliver(store, body, "user/alice/INBOX")
    return store.entry(MailboxName("alice", "INBOX")), namespace.create_mailbox(store, MailboxName("alice", "Archive"))


def references(store):
    return sorted(record.references for _, record in store.partitions["primary"].refs.all())


def uids(store, entry):
    return store.open_mailbox(entry).rows["uid"].tolist()


def refused(problem, work, *arguments, **more):
    with pytest.raises(StoreError) as error:
        work(*arguments, **more)
    assert error.value.problem is problem


def test_a_copy_counts_references_and_quota(store, boxes):
    inbox, archive = boxes
    assert copy_messages(store, inbox, archive, [3, 1, 2]) == [1, 2, 3]
    assert references(store) == [1, 2, 4]
    assert roots.quota(store, "alice").messages == 7
    assert roots.quota(store, "alice").octets == 2 * (2 * len(ONE) + len(TWO)) + len(TWO) + 1


def test_a_move_within_a_user_changes_neither(store, boxes):
    inbox, archive = boxes
    before = roots.quota(store, "alice")
    roots.set_quota(store, "alice", 1)                     # over quota: a move is still possible
    assert copy_messages(store, inbox, archive, [1, 2, 4], remove=True) == [1, 2, 3]
    assert (uids(store, inbox), uids(store, archive)) == ([3], [1, 2, 3])
    assert references(store) == [1, 1, 2]
    after = roots.quota(store, "alice")
    assert (after.octets, after.messages) == (before.octets, before.messages)


def test_a_copy_of_what_is_gone_copies_nothing(store, boxes):
    inbox, archive = boxes
    remove(store, inbox, [2])
    for take_away in (False, True):
        refused(Problem.GONE, copy_messages, store, inbox, archive, [1, 2, 3], remove=take_away)
    assert uids(store, archive) == [] and uids(store, inbox) == [1, 3, 4]


def test_a_copy_over_quota_copies_nothing(store, boxes):
    inbox, archive = boxes
    roots.set_quota(store, "alice", roots.quota(store, "alice").octets + len(ONE))
    refused(Problem.OVER_QUOTA, copy_messages, store, inbox, archive, [1, 3])
    assert uids(store, archive) == []
    assert copy_messages(store, inbox, archive, [1]) == [1]


def test_a_copy_into_the_same_mailbox(store, boxes):
    inbox, _ = boxes
    assert copy_messages(store, inbox, inbox, [1, 4]) == [5, 6]
    assert copy_messages(store, inbox, inbox, [2], remove=True) == [7]
    assert uids(store, inbox) == [1, 3, 4, 5, 6, 7]


def test_flags_dates_and_keywords_are_copied(store, boxes):
    inbox, archive = boxes
    change_flags(store, archive, [], FlagAction.ADD, Flags())
    change_flags(store, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN, ("a", "b")))
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(Flag.FLAGGED | Flag.DELETED, ("b", "c")))
    copy_messages(store, inbox, archive, [2])       # the target has other bits for these keywords
    copy_messages(store, inbox, archive, [1])
    view = store.open_mailbox(archive)
    assert [Flag(flags) for flags in view.rows["flags"].tolist()] == [Flag.FLAGGED | Flag.DELETED, Flag.SEEN]
    assert [set(view.keyword_names(bits)) for bits in view.rows["keywords"].tolist()] == [{"b", "c"}, {"a", "b"}]
    assert view.rows["received"].tolist() == store.open_mailbox(inbox).rows["received"][[1, 0]].tolist()


def test_changing_flags_keeps_the_counts_and_names_what_is_gone(store, boxes):
    inbox, _ = boxes
    gone = change_flags(store, inbox, [1, 2, 3, 9], FlagAction.ADD, Flags(Flag.SEEN | Flag.DELETED))
    assert gone.tolist() == [9]
    state = store.status(inbox)
    assert (state.unseen, state.deleted) == (1, 3)
    change_flags(store, inbox, [1, 4], FlagAction.REMOVE, Flags(Flag.DELETED))
    change_flags(store, inbox, [2], FlagAction.REPLACE, Flags(Flag.DRAFT))
    state = store.status(inbox)
    assert (state.unseen, state.deleted) == (2, 1)
    assert store.open_mailbox(inbox).rows["flags"].tolist() == [1, 16, 9, 0]


def test_only_what_changes_gets_a_modseq(store, boxes):
    inbox, _ = boxes
    before = store.open_mailbox(inbox)
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(Flag.SEEN))
    after = store.open_mailbox(inbox)
    assert after.state.highestmodseq == before.state.highestmodseq + 1
    assert np.flatnonzero(after.rows["modseq"] != before.rows["modseq"]).tolist() == [1]
    assert int(after.rows["modseq"][1]) == after.state.highestmodseq
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(Flag.SEEN))
    assert store.status(inbox).highestmodseq == after.state.highestmodseq


def test_keywords_are_the_same_in_any_case_and_bounded(store, boxes):
    inbox, _ = boxes
    words = tuple(f"word{number}" for number in range(MAX_KEYWORDS))
    change_flags(store, inbox, [1], FlagAction.ADD, Flags(keywords=words))
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(keywords=("WORD63",)))
    view = store.open_mailbox(inbox)
    assert view.keyword_names(int(view.rows["keywords"][1])) == ("word63",)
    refused(Problem.LIMIT, change_flags, store, inbox, [1], FlagAction.ADD, Flags(keywords=("one more",)))
    change_flags(store, inbox, [1], FlagAction.REMOVE, Flags(keywords=("unknown", "Word0")))
    assert "word0" not in store.open_mailbox(inbox).keyword_names(
        int(store.open_mailbox(inbox).rows["keywords"][0]))


def test_expunge_removes_what_is_deleted_and_gives_back(store, boxes):
    inbox, _ = boxes
    change_flags(store, inbox, [1, 2, 4], FlagAction.ADD, Flags(Flag.DELETED))
    assert expunge(store, inbox, [2, 3]) == [2]
    assert expunge(store, inbox) == [1, 4]
    assert expunge(store, inbox) == []
    state, use = store.status(inbox), roots.quota(store, "alice")
    assert (state.messages, state.deleted, state.unseen, state.octets) == (1, 0, 1, len(TWO))
    assert (use.octets, use.messages) == (len(TWO), 1)
    let_go(store)
    assert references(store) == [0, 0, 1]


def test_many_chunks(store, boxes):
    inbox, archive = boxes
    for _ in range(6):
        copy_messages(store, inbox, inbox, store.open_mailbox(inbox).rows["uid"])
    assert store.status(inbox).messages == 256
    odd = [uid for uid in uids(store, inbox) if uid % 2]
    change_flags(store, inbox, odd, FlagAction.ADD, Flags(Flag.DELETED))
    assert copy_messages(store, inbox, archive, odd[10:100]) == list(range(1, 91))
    assert expunge(store, inbox, odd[:100]) == odd[:100]
    assert expunge(store, inbox) == odd[100:]
    assert uids(store, inbox) == [uid for uid in range(1, 257) if not uid % 2]


def test_what_a_deleted_mailbox_refuses(store, boxes):
    inbox, archive = boxes
    deletion.delete_mailbox(store, archive.name)
    refused(Problem.NO_MAILBOX, copy_messages, store, inbox, archive, [1])
    refused(Problem.NO_MAILBOX, change_flags, store, archive, [1], FlagAction.ADD, Flags(Flag.SEEN))
    refused(Problem.NO_MAILBOX, expunge, store, archive)
    refused(Problem.NO_MAILBOX, store.status, archive)
    assert references(store) == [1, 1, 2]


def test_renaming_inbox_moves_its_messages(store, boxes):
    inbox, archive = boxes
    refused(Problem.MAILBOX_EXISTS, partial(namespace.rename_mailbox, store), inbox.name, archive.name)
    namespace.rename_mailbox(store, inbox.name, MailboxName("alice", "Old"))
    assert uids(store, inbox) == [] and len(uids(store, store.entry(MailboxName("alice", "Old")))) == 4


def test_removing_a_user_leaves_nothing(store, boxes):
    subscribing.subscribe(store, "alice", "Archive")
    lifecycle.remove_mail(store, "alice")
    store.directory.remove("alice")
    assert store.names("alice") == [] and subscribing.subscriptions(store, "alice") == []
    assert purge_mailboxes(store, time.time() + store.settings.purge_delay + 1) == 2
    assert references(store) == [0, 0, 0]
    assert [root for root, _ in store.partitions["primary"].quotas.all()] == []


def test_flags_of_few_messages_cost_few_octets_of_log(store, boxes):
    """A whole chunk of records would be some 6,000."""
    inbox, _ = boxes
    for number in range(60):
        deliver(store, b"Subject: more %d\r\n\r\n" % number, "user/alice/INBOX")
    env = store.partitions["primary"].env
    before = env.logged()
    change_flags(store, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN))
    assert 0 < env.logged() - before < 500
    for some in ([1], [2, 3]):
        before = env.logged()
        change_flags(store, inbox, some, FlagAction.ADD, Flags(Flag.SEEN, ("Work",)))
        assert 0 < env.logged() - before < 1000
    before = env.logged()
    change_flags(store, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN))           # nothing changes
    change_flags(store, inbox, [999], FlagAction.ADD, Flags(Flag.SEEN))         # nothing is there
    assert env.logged() == before


def test_a_view_is_brought_up_to_date_with_the_change_of_one_message(store, boxes):
    """Also when others have changed the mailbox before or after it."""
    inbox, _ = boxes
    old = store.open_mailbox(inbox)
    change_flags(store, inbox, [2], FlagAction.REPLACE, Flags(Flag.SEEN | Flag.DELETED))
    middle = store.refresh(old)
    change_flags(store, inbox, [3], FlagAction.ADD, Flags(Flag.FLAGGED))
    change_flags(store, inbox, [2], FlagAction.REMOVE, Flags(Flag.DELETED))
    for view in (old, middle):
        new, fresh = store.refresh(view), store.open_mailbox(inbox)
        assert new.rows.tobytes() == fresh.rows.tobytes() and new.rows["flags"].tolist() == [0, 1, 4, 0]
        assert new.state.to_bytes() == fresh.state.to_bytes() and (new.state.unseen, new.state.deleted) == (3, 0)
    assert middle.rows["flags"].tolist() == [0, 9, 0, 0] and old.rows["flags"].tolist() == [0, 0, 0, 0]
