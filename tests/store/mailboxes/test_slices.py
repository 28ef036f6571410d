"""Work on many messages is done in short transactions: what is in each, what others see between two, and what is left
when it cannot go on."""

import itertools

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.mailboxes import copymessages, deletion, namespace
from store.mailboxes.copymessages import PartlyMoved, copy_messages
from store.mailboxes.expunge import expunge, remove
from store.mailboxes.flagchanges import Known, change_flags, update_flags
from store.opening import open_store
from store.partition.transactions import WriteTxn
from store.progress import Abandoned, Progress
from store.quota import roots
from store.tables.index import CHUNK
from store.tables.slices import CHUNK_UNITS, COPY_UNITS, EXPUNGE_UNITS, FLAG_UNITS, MOVE_UNITS, UNITS, slices, units
from store.values import Flag, FlagAction, Flags
from tests.support.faults.planted import Faults
from tests.support.stores.slicing import slice_finely
from tests.support.stores.stores import deliver, make_store

BODIES = [b"Subject: %d\r\n\r\n%s\r\n" % (number, b"x" * number) for number in (1, 2, 2, 3, 4, 5)]


@pytest.fixture
def boxes(store):
    return made(store)


def made(store):
    """INBOX with UIDs 1 to 6, of which 2 and 3 are the same message, and Archive, empty."""
    for body in BODIES:
        deliver(store, body, "user/alice/INBOX")
    return store.entry(MailboxName("alice", "INBOX")), namespace.create_mailbox(store, MailboxName("alice", "Archive"))


def uids(store, entry):
    return store.open_mailbox(entry).rows["uid"].tolist()


def used(store):
    use = roots.quota(store, "alice")
    return use.octets, use.messages


def references(store):
    return sorted((digest, record.references, record.check)
                  for digest, record in store.partitions["primary"].refs.all())


def under_way(store):
    return list(store.partitions["primary"].copies.all())


def nothing_is_wrong(store):
    assert [finding.what for finding in check(store)] == []
    assert under_way(store) == []


# What is in a slice

@pytest.mark.parametrize("price", [FLAG_UNITS, EXPUNGE_UNITS, COPY_UNITS, MOVE_UNITS])
@pytest.mark.parametrize("step", [1, 3, 64, 1000])
def test_slices_are_small_and_no_chunk_is_in_two(price, step):
    every = np.arange(7, 7 + 20_000 * step, step, np.uint32)
    found = list(slices(every, price))
    assert np.concatenate(found).tolist() == every.tolist()
    assert len(found) > 1 and all(0 < units(some, price) <= UNITS + CHUNK * price + CHUNK_UNITS for some in found)
    chunks = [set(((some - 1) // CHUNK).tolist()) for some in found]
    assert all(one.isdisjoint(other) for one, other in itertools.pairwise(chunks))


def test_few_are_one_slice_and_so_are_none():
    assert [some.tolist() for some in slices(np.array([1, 64, 65], np.uint32), MOVE_UNITS)] == [[1, 64, 65]]
    assert [some.tolist() for some in slices(np.array([], np.uint32), MOVE_UNITS)] == [[]]


def test_no_transaction_is_larger_than_a_slice(store, boxes, faults):
    """Of a mailbox so large that each takes several."""
    inbox, archive = boxes
    every = uids(store, inbox)
    while len(every) < 3000:
        every = [*every, *copy_messages(store, inbox, inbox, every[-1000:])]
    written = []
    for rewriting in "rewrite", "rewrite_flags":
        faults.before(WriteTxn, rewriting, lambda txn, mailbox, rows, changed, *how: written.append(
            (txn, units(rows["uid"][changed], FLAG_UNITS))))
    faults.before(WriteTxn, "append", lambda txn, mailbox, rows: written.append((txn, units(rows["uid"], COPY_UNITS))))
    for work in (lambda: copy_messages(store, inbox, archive, every),
                 lambda: copy_messages(store, archive, inbox, uids(store, archive), remove=True),
                 lambda: change_flags(store, inbox, uids(store, inbox)[::2], FlagAction.ADD, Flags(Flag.DELETED)),
                 lambda: expunge(store, inbox), lambda: remove(store, inbox, uids(store, inbox))):
        written.clear()
        work()
        assert written and max(size for _, size in written) <= UNITS + 2 * CHUNK * COPY_UNITS
    assert len(uids(store, inbox)) == 0
    nothing_is_wrong(store)


# What comes of them together

def test_a_copy_in_slices_is_as_one_at_once(store, boxes, monkeypatch):
    inbox, archive = boxes
    change_flags(store, inbox, [2, 5], FlagAction.ADD, Flags(Flag.SEEN | Flag.FLAGGED, ("word", "other")))
    whole = namespace.create_mailbox(store, MailboxName("alice", "Whole"))
    copy_messages(store, inbox, whole, [1, 2, 3, 5, 6])
    progress = Progress()
    seen = []
    slice_finely(monkeypatch, lambda done: seen.append((uids(store, archive), progress.done, progress.total)))
    assert copy_messages(store, inbox, archive, [6, 1, 2, 3, 5], progress=progress) == [1, 2, 3, 4, 5]
    assert seen == [([*range(1, done + 1)], done, 5) for done in (1, 2, 3, 4)]      # others see them come
    as_one, in_slices = (store.open_mailbox(entry) for entry in (whole, archive))
    for field in ("uid", "flags", "keywords", "digest", "size", "received", "serial"):
        assert in_slices.rows[field].tolist() == as_one.rows[field].tolist()
    figures = ("messages", "unseen", "deleted", "octets", "uidnext", "keywords", "recent")
    assert [getattr(in_slices.state, name) for name in figures] == [getattr(as_one.state, name) for name in figures]
    assert used(store) == (sum(map(len, BODIES)) + 2 * int(as_one.rows["size"].sum()), 16)
    nothing_is_wrong(store)


def test_flags_in_slices(store, boxes, monkeypatch):
    inbox, _ = boxes
    before = store.open_mailbox(inbox)
    change_flags(store, inbox, [4], FlagAction.ADD, Flags(Flag.ANSWERED))
    slice_finely(monkeypatch, lambda done: done == 2 and remove(store, inbox, [5]))
    update = update_flags(store, inbox, [1, 2, 4, 5, 6, 9], FlagAction.REPLACE, Flags(Flag.SEEN),
                          known=Known(before.state.highestmodseq, before.rows))
    assert (update.gone.tolist(), update.modified.tolist(), update.uids.tolist()) == ([5, 9], [4], [1, 2, 6])
    rows = store.open_mailbox(inbox).rows
    assert rows["flags"].tolist() == [Flag.SEEN, Flag.SEEN, 0, Flag.ANSWERED, Flag.SEEN]
    assert rows["modseq"][[0, 1, 4]].tolist() == update.modseqs.tolist()
    assert sorted(set(update.modseqs.tolist())) == update.modseqs.tolist()
    nothing_is_wrong(store)


def test_an_expunge_in_slices_leaves_what_is_wanted_again(store, boxes, monkeypatch):
    inbox, _ = boxes
    change_flags(store, inbox, [1, 2, 4, 5], FlagAction.ADD, Flags(Flag.DELETED))
    since = store.status(inbox).highestmodseq
    slice_finely(monkeypatch, lambda done: done == 2 and change_flags(
        store, inbox, [4], FlagAction.REMOVE, Flags(Flag.DELETED)))
    assert expunge(store, inbox) == [1, 2, 5]
    assert store.vanished(inbox, since).tolist() == [1, 2, 5]
    assert [item.uid for item in deletion.deleted_messages(store, inbox)] == [1, 2, 5]
    assert used(store) == (sum(len(BODIES[at]) for at in (2, 3, 5)), 3)
    nothing_is_wrong(store)


def test_mail_arrives_between_slices(store, boxes, monkeypatch):
    inbox, archive = boxes
    slice_finely(monkeypatch, lambda done: done % 2 and deliver(store, b"Subject: new\r\n\r\n", "user/alice/Archive"))
    assert copy_messages(store, inbox, archive, [1, 2, 3, 4]) == [1, 3, 4, 6]
    assert uids(store, archive) == [1, 2, 3, 4, 5, 6]
    nothing_is_wrong(store)


def test_two_copies_into_one_mailbox_at_the_same_time(store, boxes, monkeypatch):
    inbox, archive = boxes
    inner = []

    def between(done):
        if done == 2 and not inner:
            inner.append(None)
            inner[:] = copy_messages(store, inbox, archive, [5, 6])

    slice_finely(monkeypatch, between)
    assert copy_messages(store, inbox, archive, [1, 2, 3]) == [1, 2, 5]
    assert inner == [3, 4]
    nothing_is_wrong(store)


# What is left when it cannot go on

def cut_off(store, boxes, monkeypatch, what, **how):
    """COPY or MOVE of 1 to 5, before whose third message something happens."""
    inbox, archive = boxes
    slice_finely(monkeypatch, lambda done: what() if done == 2 else None)
    with pytest.raises((StoreError, Abandoned, KeyboardInterrupt)) as error:
        copy_messages(store, inbox, archive, [1, 2, 3, 4, 5], **how)
    return error.value


def test_a_copy_of_what_goes_meanwhile_is_undone(store, boxes, monkeypatch):
    inbox, archive = boxes
    before = used(store)
    error = cut_off(store, boxes, monkeypatch, lambda: remove(store, inbox, [4]))
    assert error.problem is Problem.GONE
    assert uids(store, archive) == [] and store.status(archive).messages == 0
    assert deletion.deleted_messages(store, archive) == []
    assert used(store) == (before[0] - len(BODIES[3]), before[1] - 1)
    nothing_is_wrong(store)
    assert copy_messages(store, inbox, archive, [1, 2]) == [4, 5]          # no UID means another message


def test_a_copy_that_fills_the_quota_is_undone(store, boxes, monkeypatch):
    inbox, archive = boxes
    before = references(store)
    roots.set_quota(store, "alice", used(store)[0] + sum(map(len, BODIES[:5])))
    error = cut_off(store, boxes, monkeypatch, lambda: deliver(store, b"Subject: 7\r\n\r\n", "user/alice/INBOX"))
    assert error.problem is Problem.OVER_QUOTA
    assert uids(store, archive) == [] and [one for one in references(store) if one in before] == before
    nothing_is_wrong(store)


def test_a_copy_for_which_there_is_no_room_is_not_begun(store, boxes, monkeypatch):
    inbox, archive = boxes
    roots.set_quota(store, "alice", used(store)[0] + sum(map(len, BODIES[:4])))
    before = store.status(archive).highestmodseq
    begun = []
    slice_finely(monkeypatch, begun.append)
    with pytest.raises(StoreError) as error:
        copy_messages(store, inbox, archive, [1, 2, 3, 4, 5])
    assert error.value.problem is Problem.OVER_QUOTA
    assert store.status(archive).highestmodseq == before and begun == []


def test_a_move_within_a_quota_root_needs_no_room(store, boxes, monkeypatch):
    inbox, archive = boxes
    roots.set_quota(store, "alice", 1)
    slice_finely(monkeypatch)
    assert copy_messages(store, inbox, archive, [1, 2], remove=True) == [1, 2]
    nothing_is_wrong(store)


def test_a_copy_that_nobody_waits_for_is_undone(store, boxes, monkeypatch):
    lost = []
    error = cut_off(store, boxes, monkeypatch, lambda: lost.append(1), progress=Progress(lambda: bool(lost)))
    assert isinstance(error, Abandoned) and uids(store, boxes[1]) == []
    nothing_is_wrong(store)


def test_what_others_have_done_with_the_copies_stays(store, boxes, monkeypatch):
    inbox, archive = boxes
    other = namespace.create_mailbox(store, MailboxName("alice", "Other"))

    def work():
        copy_messages(store, archive, other, [1])
        change_flags(store, archive, [2], FlagAction.ADD, Flags(Flag.DELETED))
        expunge(store, archive)
        remove(store, inbox, [5])

    cut_off(store, boxes, monkeypatch, work)
    assert uids(store, archive) == [] and uids(store, other) == [1]
    nothing_is_wrong(store)


def test_a_mailbox_that_is_deleted_meanwhile_ends_a_copy(store, boxes, monkeypatch):
    _, archive = boxes
    error = cut_off(store, boxes, monkeypatch, lambda: deletion.delete_mailbox(store, archive.name))
    assert error.problem is Problem.NO_MAILBOX
    nothing_is_wrong(store)


def test_a_move_leaves_what_it_has_moved(store, boxes, monkeypatch):
    inbox, archive = boxes
    error = cut_off(store, boxes, monkeypatch, lambda: remove(store, inbox, [4]), remove=True)
    assert isinstance(error, PartlyMoved) and error.problem is Problem.GONE
    assert (error.uids.tolist(), error.new) == ([1, 2, 3], [1, 2, 3])
    assert uids(store, archive) == [1, 2, 3] and uids(store, inbox) == [5, 6]
    nothing_is_wrong(store)


def test_a_copy_cut_off_with_its_process_is_undone_by_the_next_start(tmp_path, monkeypatch):
    """And what came into the mailbox beside it stays."""
    store = make_store(tmp_path / "store")
    inbox, archive = boxes = made(store)
    Faults(monkeypatch).around(copymessages, "undo", lambda *_: None)

    def killed():
        deliver(store, b"Subject: new\r\n\r\n", "user/alice/Archive")
        raise KeyboardInterrupt

    cut_off(store, boxes, monkeypatch, killed)
    assert uids(store, archive) == [1, 2, 3] and len(under_way(store)) == 1
    monkeypatch.undo()
    root = store.root
    store.close()
    again = open_store(root)
    try:
        assert uids(again, archive) == [3] and uids(again, inbox) == [1, 2, 3, 4, 5, 6]
        assert used(again)[1] == 7
        nothing_is_wrong(again)
        assert deletion.deleted_messages(again, archive) == []
    finally:
        again.close()


def test_a_copy_that_could_not_be_undone_is_undone_by_housekeeping(tmp_path, monkeypatch):
    """The disk is full, and stays full for longer than anybody waits; then there is room."""
    store = make_store(tmp_path / "store")
    try:
        inbox, archive = boxes = made(store)
        store.patience = 0

        def full(*_):
            raise StoreError(Problem.DISK_FULL)

        Faults(monkeypatch).before(copymessages, "undo", full)
        cut_off(store, boxes, monkeypatch, full)
        task = next(task for task in tasks.every_process(store) if task.name == "copies")
        item, = task.items(store)
        with pytest.raises(StoreError):
            task.work(store, item)
        assert uids(store, archive) == [1, 2] and len(under_way(store)) == 1
        monkeypatch.undo()
        task.work(store, item)
        assert list(task.items(store)) == [] and uids(store, archive) == [] and uids(store, inbox) == [1, 2, 3, 4, 5, 6]
        nothing_is_wrong(store)
    finally:
        store.close()
