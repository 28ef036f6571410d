"""A damaged mailbox is refused alone, and repaired from what else is known; nothing is lost that can be told."""

import contextlib
import logging
import random

import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mboxlist.engine.transact import Deadlock, transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.housekeeping.tasks import Round
from store.mailboxes import deletion, expunge, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.quota import roots
from store.rebuild import repair
from store.rebuild.recount import recount, recount_references
from store.rebuild.repair import repair_mailbox
from store.tables.index import ROW, chunk_key
from store.tables.readerflags import OWN
from store.tables.references import mark
from store.userarea import writing
from store.values import Flag, FlagAction, Flags
from tests.support.stores.stores import deliver, make_store

pytestmark = pytest.mark.few_folders
COUNT = 70                  # messages in alice's INBOX: a whole chunk and the beginning of one
TRACE = b"Return-Path: <a@example.org>\r\n"


def body(number: int) -> bytes:
    return b"Subject: %d\r\n\r\n" % number + b"x" * number


def fill(store, header=b""):
    """alice has 70 messages, of which bob has every second; one is in her Archive too. Some have flags."""
    namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    for number in range(COUNT):
        targets = ["user/alice/INBOX"] + ["user/bob/INBOX"] * (number % 2)
        deliver(store, body(number), *targets, trace=TRACE if number % 3 else b"", header=header * (number % 7 == 2))
    inbox = alice(store)
    change_flags(store, inbox, range(1, 30), FlagAction.ADD, Flags(Flag.SEEN | Flag.FLAGGED, ("todo",)))
    copy_messages(store, inbox, store.entry(MailboxName("alice", "Archive")), [5])
    store.partitions["primary"].env.flush()


@pytest.fixture
def filled(store):
    fill(store)
    return store


@pytest.fixture
def headed(store):
    """Some messages have header fields of their own."""
    fill(store, b"Delivered-To: {}\r\n")
    return store


def alice(store):
    return store.entry(MailboxName("alice", "INBOX"))


def chunk(store, number=0):
    return store.partitions["primary"].index.get(chunk_key(alice(store).id, number))


def damage(store, value, number=0):
    partition, key = store.partitions["primary"], chunk_key(alice(store).id, number)
    partition.transact(lambda txn: partition.index.put(key, bytes(value), txn.handle))
    partition.views.forget()            # what is in memory is as good as ever


def flip(store, at, bit, number=0):
    value = bytearray(chunk(store, number))
    value[at] ^= 1 << bit
    damage(store, value, number)


def refused(store):
    with pytest.raises(StoreError) as error:
        store.open_mailbox(alice(store))
    assert error.value.problem is Problem.CORRUPT


def repaired(store, old, *, flags=True):
    """The mailbox after a repair, which must have all the records that it had."""
    highest = store.partitions["primary"].state(alice(store).id).highestmodseq
    repair_mailbox(store, alice(store))
    mailbox = store.open_mailbox(alice(store))
    more = ["flags", "keywords", "received", "zone", "saved"]
    for name in ["uid", "digest", "size", "serial", "header_length", "head"] + more * flags:
        assert mailbox.rows[name].tolist() == old.rows[name].tolist(), name
    assert mailbox.state.highestmodseq > highest
    assert mailbox.state.uidvalidity == old.state.uidvalidity
    assert check(store) == []
    for at, row in enumerate(mailbox.rows):             # the right octets under each UID
        with store.open_message(alice(store), row) as file:
            assert file.read(0, file.size).endswith(body(at)[-at - 4:])
    return mailbox


def test_others_go_on_and_housekeeping_repairs(filled, caplog):
    """The whole of it: damage, refusal, one line in the log, and a repair by the task that a server runs."""
    before = filled.open_mailbox(alice(filled))
    flip(filled, 500, 3)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            refused(filled)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"mailbox {alice(filled).id} " in caplog.text
    bob = filled.entry(MailboxName("bob", "INBOX"))
    assert len(filled.open_mailbox(bob).rows) == COUNT // 2
    deliver(filled, b"Subject: more\r\n\r\n", "user/bob/INBOX", "user/alice/INBOX")
    assert filled.partitions["primary"].damaged == {alice(filled).id}
    task, = [task for task in tasks.every_process(filled) if task.name == "repair"]
    assert task.interval <= 5
    whole = Round(task, filled)
    while whole.step() is not None:         # its slices are times, and this machine may be busy
        pass
    assert filled.partitions["primary"].damaged == set()
    assert filled.open_mailbox(alice(filled)).rows["digest"][:COUNT].tolist() == before.rows["digest"].tolist()
    assert check(filled) == []
    assert Round(task, filled).step() is None           # there is nothing left to do


def test_a_picture_that_is_open_is_brought_up_to_date(filled):
    before = filled.open_mailbox(alice(filled))
    flip(filled, 500, 3)
    repair_mailbox(filled, alice(filled))
    after = filled.refresh(before)
    assert after.rows["digest"].tolist() == before.rows["digest"].tolist()
    new = after.rows["modseq"][:64]
    assert (new == after.state.highestmodseq).all() and (new > before.state.highestmodseq).all()
    assert after.rows["modseq"][64:].tolist() == before.rows["modseq"][64:].tolist()


def test_a_whole_mailbox_is_left_alone(filled):
    before = filled.open_mailbox(alice(filled))
    assert repair_mailbox(filled, alice(filled)) == []
    assert filled.refresh(before) is before


@pytest.mark.long
def test_every_field_of_a_record(filled):
    """One bit in each octet of a record in the middle: what it says of its message comes back, whatever it was."""
    others = np.arange(COUNT) != 10
    for at in range(ROW.itemsize):
        old = filled.open_mailbox(alice(filled))
        flip(filled, 10 * ROW.itemsize + at, at % 8)
        refused(filled)
        mailbox = repaired(filled, old, flags=False)
        for name in ("flags", "keywords", "received", "zone", "saved"):
            assert mailbox.rows[name][others].tolist() == old.rows[name][others].tolist()
        assert not mailbox.rows["flags"][10] & ~np.uint16(31)


def test_store_idx_knows_the_flags(filled):
    """Even when the chunk is nothing but noise."""
    writing.write_changed(filled, hurry=True)
    old = filled.open_mailbox(alice(filled))
    damage(filled, random.Random(1).randbytes(len(chunk(filled))))
    repaired(filled, old)


def test_store_idx_knows_their_own_header_fields(headed):
    """One bit in each octet that says what a message is, and then a chunk of noise."""
    writing.write_changed(headed, hurry=True)
    start = 2 * ROW.itemsize
    assert headed.open_mailbox(alice(headed)).rows["head"][2]
    for name in ("size", "header_length", "head", "balance"):
        first = start + ROW.fields[name][1]
        for at in range(first, first + ROW[name].itemsize):
            old = headed.open_mailbox(alice(headed))
            flip(headed, at, at % 8)
            repaired(headed, old)
    writing.write_changed(headed, hurry=True)
    old = headed.open_mailbox(alice(headed))
    damage(headed, random.Random(1).randbytes(len(chunk(headed))))
    repaired(headed, old)


def test_what_changed_after_store_idx_was_written(filled):
    """An older copy does not undo a change that the chunk still has."""
    writing.write_changed(filled, hurry=True)
    change_flags(filled, alice(filled), [3], FlagAction.REPLACE, Flags(Flag.ANSWERED))
    old = filled.open_mailbox(alice(filled))
    flip(filled, 40 * ROW.itemsize + 4, 0)              # of another message: \Seen
    repaired(filled, old)


def test_a_chunk_of_noise_without_store_idx(filled):
    """The messages come back under their UIDs; their flags do not."""
    old = filled.open_mailbox(alice(filled))
    damage(filled, b"\0" * len(chunk(filled)))
    mailbox = repaired(filled, old, flags=False)
    assert not mailbox.rows["flags"][:64].any()
    assert mailbox.state.unseen == COUNT


@pytest.mark.parametrize("cut", [
    lambda value: value[:200], lambda value: b"", lambda value: value[:7] + value[9:], lambda value: value[:-1],
    lambda value: value[100:], lambda value: value[:1000] + b"abc" + value[1000:], lambda value: value + value,
    lambda value: value[ROW.itemsize:], lambda value: value[-4:],
])
def test_octets_that_were_lost_or_added(filled, cut):
    writing.write_changed(filled, hurry=True)
    old = filled.open_mailbox(alice(filled))
    damage(filled, cut(chunk(filled)) or b"\0")
    repaired(filled, old)


@pytest.mark.long
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 64 * ROW.itemsize + 3), st.integers(1, 255)), min_size=1, max_size=200),
       st.booleans())
def test_any_octets(filled, spots, copied):
    """The store is whole again after each, so it serves for the next."""
    if copied:
        writing.write_changed(filled, hurry=True)
    old = filled.open_mailbox(alice(filled))
    value = bytearray(chunk(filled))
    for at, change in spots:
        value[at] ^= change
    if bytes(value) != chunk(filled):
        damage(filled, value)
        refused(filled)
        repaired(filled, old, flags=copied)


def test_a_uid_that_turned_into_another(filled):
    """The chunk says 11 where it was 12, which was expunged; only the check value knows better."""
    remove(filled, alice(filled), [11])
    old = filled.open_mailbox(alice(filled))
    at = old.rows["uid"].tolist().index(12)
    flip(filled, at * ROW.itemsize, 0)
    flip(filled, at * ROW.itemsize, 1)
    flip(filled, at * ROW.itemsize, 2)
    assert np.frombuffer(chunk(filled)[:-4], ROW)["uid"][at] == 12 ^ 7
    repair_mailbox(filled, alice(filled))
    assert filled.open_mailbox(alice(filled)).rows[["uid", "digest"]].tolist() == old.rows[["uid", "digest"]].tolist()


def test_two_damaged_mailboxes_that_share_messages(filled):
    partition = filled.partitions["primary"]
    bob = filled.entry(MailboxName("bob", "INBOX"))
    old, his = filled.open_mailbox(alice(filled)), filled.open_mailbox(bob)
    damage(filled, b"\0" * 90)
    partition.transact(lambda txn: partition.index.put(chunk_key(bob.id, 0), b"\0" * 90, txn.handle))
    repair_mailbox(filled, bob)
    repaired(filled, old, flags=False)
    assert filled.open_mailbox(bob).rows[["uid", "digest"]].tolist() == his.rows[["uid", "digest"]].tolist()


def test_what_was_expunged_does_not_come_back(filled):
    writing.write_changed(filled, hurry=True)
    remove(filled, alice(filled), [7, 8, 9])
    old = filled.open_mailbox(alice(filled))
    damage(filled, b"\0" * 300)
    repair_mailbox(filled, alice(filled))
    assert filled.open_mailbox(alice(filled)).rows["uid"].tolist() == old.rows["uid"].tolist()
    assert check(filled) == []


def test_a_deleted_mailbox(filled):
    archive = filled.entry(MailboxName("alice", "Archive"))
    partition = filled.partitions["primary"]
    use = roots.quota(filled, "alice")
    deletion.delete_mailbox(filled, archive.name)
    partition.transact(lambda txn: partition.index.put(chunk_key(archive.id, 0), b"\0" * 90, txn.handle))
    assert [correction for correction in repair_mailbox(filled, archive) if "now" in correction.what]
    assert roots.quota(filled, "alice").messages == use.messages - 1
    assert check(filled) == []


def test_what_a_deleted_mailbox_loses_was_given_back_before(filled):
    """Three records of one message cannot be told apart; the quota of a deleted mailbox is nobody's."""
    archive = filled.entry(MailboxName("alice", "Archive"))
    partition = filled.partitions["primary"]
    for _ in range(2):
        copy_messages(filled, archive, archive, [1])
    deletion.delete_mailbox(filled, archive.name)
    use = roots.quota(filled, "alice")
    partition.transact(lambda txn: partition.index.put(chunk_key(archive.id, 0), b"\0" * 90, txn.handle))
    repair_mailbox(filled, archive)
    assert roots.quota(filled, "alice") == use
    assert len(recount(filled, partition)) == 1             # alice's INBOX has the message, too
    assert check(filled) == []


def test_a_message_arrives_meanwhile(filled, faults):
    """The chunk that is to be replaced is no longer the one that was looked at."""
    flip(filled, 3 * ROW.itemsize, 7, number=1)
    calls = faults.watch(repair, "gather")
    faults.after(repair, "gather", lambda _: len(calls) == 1 and deliver(
        filled, b"Subject: late\r\n\r\n", "user/alice/INBOX"))
    repair_mailbox(filled, alice(filled))
    assert len(calls) == 2
    assert filled.open_mailbox(alice(filled)).rows["uid"].tolist() == list(range(1, COUNT + 2))


def test_messages_that_cannot_be_told_are_reported_and_stay(tmp_path):
    """Three records of one message in the lost chunk, and no copy: its file stays, and clients hear what is gone."""
    store = make_store(tmp_path / "store")
    deliver(store, body(1), "user/alice/INBOX")
    copy_messages(store, alice(store), alice(store), [1])
    copy_messages(store, alice(store), alice(store), [1])
    deliver(store, body(2), "user/alice/INBOX")
    state = store.status(alice(store))
    damage(store, b"\0" * 90)
    with pytest.raises(StoreError):
        store.open_mailbox(alice(store))
    done = repair_mailbox(store, alice(store))
    assert any("3 messages are lost" in correction.what for correction in done)
    mailbox = store.open_mailbox(alice(store))
    assert mailbox.rows["uid"].tolist() == [4]
    assert mailbox.state.uidnext == state.uidnext and mailbox.state.uidvalidity == state.uidvalidity
    assert store.vanished(alice(store), state.highestmodseq) is None       # RFC 7162 §3.2.5.1
    assert roots.quota(store, "alice").messages == 1
    partition = store.partitions["primary"]
    corrections = recount(store, partition)
    assert ["its file stays" in correction.what for correction in corrections] == [True]
    assert "nothing refers to it" in check(store)[0].what
    assert len(list(partition.files.folder.glob("?/??/*"))) == 2
    store.close()


def test_own_flags_of_a_reader(filled):
    partition = filled.partitions["primary"]
    partition.transact(lambda txn: txn.put_own(alice(filled).id, 0, "bob", owned(3)))
    assert partition.views.read(alice(filled), "bob").rows["flags"][2] & Flag.SEEN
    spoil_own_flags(partition, alice(filled).id)
    with pytest.raises(StoreError) as error:
        partition.views.read(alice(filled), "bob")
    assert error.value.problem is Problem.CORRUPT
    assert partition.damaged == {alice(filled).id}
    assert len(filled.open_mailbox(alice(filled)).rows) == COUNT            # alice herself sees her own
    before = filled.status(alice(filled)).highestmodseq
    assert len(repair_mailbox(filled, alice(filled))) == 1
    mine = partition.views.read(alice(filled), "bob")
    assert mine.rows["flags"][2] & Flag.SEEN and mine.rows["modseq"][2] > before
    assert partition.damaged == set()


def owned(uid):
    own = np.zeros(64, OWN)
    own["flags"][uid - 1] = Flag.SEEN
    return own


def spoil_own_flags(partition, mailbox):
    table = partition.readers._table
    (key, value), = table.scan()
    transact(partition.env, lambda txn: table.put(key, bytes((value[0] ^ 32,)) + value[1:], txn))


def test_the_mark_of_each_place_is_its_own():
    """What a check value can tell rests on this."""
    marks = {mark(mailbox, uid) for mailbox in range(1, 60) for uid in range(1, 1025)}
    assert len(marks) == 59 * 1024


def test_recount_corrects_figures(filled):
    partition = filled.partitions["primary"]
    inbox = alice(filled)
    whole = partition.state(inbox.id)
    wrong = evolve(whole, messages=9, unseen=0, deleted=4, octets=1, uidvalidity=3, uidnext=5, highestmodseq=2)

    def spoil(txn):
        txn.set_state(inbox.id, None, wrong)
        partition.quotas.charge("alice", 12345, 7, txn.handle, enforce=False)
        partition.quotas.charge("bob", -3, -1, txn.handle, enforce=False)
        for at, (digest, record) in enumerate(list(partition.refs.all(txn.handle))[:3]):
            changed = (evolve(record, references=9), evolve(record, check=5), evolve(record, references=0))[at]
            partition.refs.write(digest, changed, txn.handle)
    partition.transact(spoil)
    assert check(filled)
    done = recount(filled, partition)
    assert {correction.where for correction in done} >= {"user/alice/INBOX", "quota root alice", "quota root bob"}
    assert check(filled) == []
    after = partition.state(inbox.id)
    assert (after.messages, after.octets, after.uidnext) == (whole.messages, whole.octets, whole.uidnext)
    assert after.highestmodseq > whole.highestmodseq
    assert recount(filled, partition) == []


def test_recount_takes_up_what_is_unknown(filled):
    """messages.db has lost a message, whose file is there; another has lost its cache record, a third is misquoted."""
    partition = filled.partitions["primary"]
    known = list(partition.refs.all())
    rows = filled.open_mailbox(alice(filled)).rows

    def spoil(txn):
        partition.refs.messages.delete(known[0][0], txn.handle)
        partition.serials.forget_cached(known[1][1].serial, txn.handle)
        wrong = rows[:64].copy()
        wrong["serial"][8] = 4242
        wrong["size"][9] += 1
        wrong["flags"][10] = 0x4001
        wrong["keywords"][11] = 1 << 63
        txn.put_chunk(alice(filled).id, 0, wrong)
    partition.transact(spoil)
    assert len(check(filled)) >= 4
    recount(filled, partition)
    assert check(filled) == []
    found = dict(partition.refs.all())
    assert {digest: (record.references, record.size, record.trace, record.check) for digest,
            record in found.items()} == {
        digest: (record.references, record.size, record.trace, record.check) for digest, record in known}


def test_recount_rebuilds_the_table_of_rights(filled):
    granted, env = filled.mailboxes.granted, filled.mailboxes.env
    transact(env, lambda txn: granted._table.put(b"bob\0user/alice/INBOX", b"", txn))
    assert len(check(filled)) == 1
    assert [correction.where for correction in recount(filled, filled.partitions["primary"])] == ["user/alice/INBOX"]
    assert granted.of(["bob"]) == set()


def test_recount_does_nothing_to_a_whole_store(filled):
    before = filled.open_mailbox(alice(filled))
    assert recount(filled, filled.partitions["primary"]) == []
    assert filled.refresh(before) is before


def test_a_recount_changes_the_records_that_say_what_cannot_be_and_no_others(filled):
    partition, inbox = filled.partitions["primary"], alice(filled)
    before = filled.open_mailbox(inbox).rows.copy()
    wrong = before.copy()
    wrong["flags"][3] |= 1 << 15
    wrong["keywords"][10] |= np.uint64(1 << 40)
    wrong["serial"][20] += 1
    wrong["balance"][30] = 1        # says nothing
    wrong["size"][65] += 1
    wrong["keywords"][66] |= np.uint64(1 << 1)
    partition.transact(lambda txn: txn.rewrite(inbox.id, wrong, np.ones(len(wrong), bool)))
    told = [correction.what for correction in recount(filled, partition)]
    assert "5 records were not what the mailbox and the messages say" in told
    after = filled.open_mailbox(inbox).rows
    changed = np.flatnonzero(after["modseq"] != before["modseq"]).tolist()
    assert changed == [3, 10, 20, 65, 66]
    for name in set(ROW.names) - {"modseq", "balance"}:
        assert after[name].tolist() == before[name].tolist(), name
    assert recount(filled, partition) == []


def test_references_are_counted_at_one_moment(store, faults):
    """The purge lets go of what was expunged while another message has a wrong count: neither is counted beside it."""
    for text in (b"twice", b"twice", b"other"):
        deliver(store, text, "user/alice/INBOX")
    remove(store, alice(store), [1])
    partition, let_go = store.partitions["primary"], []
    digests = [bytes(row["digest"]) for row in store.open_mailbox(alice(store)).rows]
    partition.transact(lambda txn: txn.refs.add(digests[1], 1, 0, txn.handle))

    def purge(most, txn=None):
        if txn is not None:
            with contextlib.suppress(*Deadlock):
                let_go.append(expunge.forget(partition, expunge.Expunges((next(partition.removed.all()).key,))))

    faults.around(expunge, "transact", lambda real, env, work: real(env, work, seconds=0))
    faults.before(partition.refs, "all_figures", purge)
    assert [each.where for each in recount_references(partition)] == [f"message {digests[1].hex()}"]
    assert let_go == []
    assert partition.refs.find(digests[0]).references == 2
    assert check(store) == []
