r"""The consistency check finds each kind of damage; a check that finds nothing anywhere would pass every other test."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.mailboxes import deletion, namespace
from store.mailboxes.expunge import remove
from store.mend import userrecords
from store.partition import processes
from store.partition.marks import mark_behind
from store.partitions import volumes
from store.tables.index import chunk_key, encode
from store.tables.readerflags import OWN
from store.tables.state import state_key
from store.userarea import idxfile, idxreading, writing
from tests.support.stores.stores import deliver, let_go, make_store

pytestmark = pytest.mark.few_folders

BODY = b"Subject: x\r\n\r\nhello\r\n"
OTHER = b"Subject: y\r\n\r\nhello\r\n"


@pytest.fixture
def damaged(tmp_path):
    """A store which the test damages: a message for alice and bob, another that alice has expunged, a deleted mailbox
    with a message of its own, bob's own flags in alice's INBOX, and each store.idx up to date."""
    store = make_store(tmp_path / "store")
    namespace.create_mailbox(store, MailboxName("alice", "Old"))
    deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    deliver(store, OTHER, "user/alice/INBOX")
    deliver(store, b"Subject: z\r\n\r\n", "user/alice/Old")
    remove(store, store.entry(MailboxName("alice", "INBOX")), [2])
    let_go(store)
    deletion.delete_mailbox(store, MailboxName("alice", "Old"))
    partition = store.partitions["primary"]
    partition.transact(lambda txn: txn.put_own(store.entry(MailboxName("alice", "INBOX")).id, 0, "bob", own_flags(1)))
    partition.files.drop_staged_names()
    writing.write_changed(store, hurry=True)
    assert not partition.unwritten.changed
    assert check(store) == []
    yield store
    store.close()


def own_flags(flags, modseq=1):
    own = np.zeros(64, OWN)
    own["flags"][0], own["modseq"][0] = flags, modseq
    return own


def parts(store):
    partition = store.partitions["primary"]
    entry = store.entry(MailboxName("alice", "INBOX"))
    return partition, entry, store.open_mailbox(entry).rows.copy()


def old(store):
    """The deleted mailbox."""
    (_, entry), = store.mailboxes.deleted.all()
    return entry


def write(store, work):
    store.partitions["primary"].transact(lambda txn: work(txn.handle))


def change_rows(store, **values):
    partition, entry, rows = parts(store)
    for name, value in values.items():
        rows[name] = value
    write(store, lambda txn: partition.index.put(chunk_key(entry.id, 0), encode(rows), txn))


def change_state(store, entry=None, **figures):
    partition = store.partitions["primary"]
    entry = entry or store.entry(MailboxName("alice", "INBOX"))
    state = next(state for mailbox, state in partition.all_states() if mailbox == entry.id)
    write(store, lambda txn: partition.states.put(state_key(entry.id), evolve(state, **figures).to_bytes(), txn))


def change_record(store, **figures):
    partition, _, rows = parts(store)
    digest = bytes(rows["digest"][0])
    record = evolve(partition.refs.find(digest), **figures)
    write(store, lambda txn: partition.refs.write(digest, record, txn))


def change_entry(store, **values):
    entry = evolve(store.entry(MailboxName("alice", "INBOX")), **values)
    transact(store.mailboxes.env, lambda txn: store.mailboxes.write(entry, txn))


def flip_a_bit(store):
    partition, entry, _ = parts(store)
    value = bytearray(partition.index.get(chunk_key(entry.id, 0)))
    value[20] ^= 1
    write(store, lambda txn: partition.index.put(chunk_key(entry.id, 0), bytes(value), txn))


def forget_file(store):
    partition, _, rows = parts(store)
    partition.files.remove(bytes(rows["digest"][0]), int(rows["serial"][0]))


def shorten_file(store):
    partition, _, rows = parts(store)
    with open(partition.files.path(bytes(rows["digest"][0])), "r+b") as file:
        file.truncate(5)


def forget_cached(store):
    partition, _, rows = parts(store)
    write(store, lambda txn: partition.serials.forget_cached(int(rows["serial"][0]), txn))


def exchange_cached(store):
    partition, _, rows = parts(store)
    (_, waiting), = [item for item in partition.refs.waiting(1 << 31)]
    serial = partition.refs.find(waiting).serial
    cached = partition.serials.cached([serial])[0]
    write(store, lambda txn: partition.serials.write_cached(int(rows["serial"][0]), cached, txn))


def forget_record(store):
    partition, _, rows = parts(store)
    write(store, lambda txn: partition.refs.messages.delete(bytes(rows["digest"][0]), txn))


def move_records(store):
    """To an id that no mailbox has."""
    partition, entry, rows = parts(store)
    write(store, lambda txn: partition.index.put(chunk_key(4242, 0), encode(rows), txn))


def wrong_chunk(store):
    partition, entry, rows = parts(store)
    write(store, lambda txn: partition.index.put(chunk_key(entry.id, 3), encode(rows), txn))


def vanish(store, modseq, ranges, mailbox=None):
    partition, entry, _ = parts(store)
    data = np.array(ranges, "<u4").tobytes()
    write(store, lambda txn: partition.vanished.put(mailbox or entry.id, modseq, data, txn))
    if mailbox is None:
        change_state(store, logged=partition.vanished.octets(entry.id))


def keep(store, uid):
    partition, entry, rows = parts(store)
    rows["uid"] = uid
    write(store, lambda txn: partition.removed.keep(1, entry.id, 2, (), rows, txn, held=False))


def put_own(store, own, mailbox=None, number=0):
    partition, entry, _ = parts(store)
    write(store, lambda txn: partition.readers.put_chunk(mailbox or entry.id, number, "bob", own, txn))


def spoil_own(store):
    table = store.partitions["primary"].readers._table
    (key, value), = table.scan()
    write(store, lambda txn: table.put(key, bytes((value[0] ^ 4,)) + value[1:], txn))


def leave_over(store):
    path = store.partitions["primary"].files.staged_path(1 << 40)
    with open(path, "xb"):
        os.utime(path, (time.time() - 7200,) * 2)


def copy_of(store, name="INBOX"):
    partition = store.partitions["primary"]
    return writing.right_place(partition, store.entry(MailboxName("alice", name)), 0)


def change_copy(store, **head):
    contents = idxreading.read(copy_of(store))
    idxfile.write(copy_of(store), evolve(contents, head=evolve(contents.head, **head)))


def change_copied_rows(store):
    contents = idxreading.read(copy_of(store))
    rows = contents.rows.copy()
    rows["flags"] ^= 4
    idxfile.write(copy_of(store), evolve(contents, rows=rows))


def spoil_copy(store):
    with open(copy_of(store), "r+b") as file:
        file.seek(600)
        file.write(b"????")


def purge_list(store, released, digest):
    table = store.partitions["primary"].refs._purge
    write(store, lambda txn: table.put(released.to_bytes(4, "big") + digest, b"", txn))


def empty_purge_list(store):
    table = store.partitions["primary"].refs._purge
    for key, _ in list(table.scan()):
        write(store, lambda txn, key=key: table.delete(key, txn))


def listed_and_deleted(store):
    entry = store.entry(MailboxName("alice", "INBOX"))
    transact(store.mailboxes.env, lambda txn: store.mailboxes.deleted.add(entry, 5, txn))


def forget_id(store):
    entry = store.entry(MailboxName("alice", "INBOX"))
    transact(store.mailboxes.env, lambda txn: store.mailboxes._names.delete(entry.id.to_bytes(4, "big"), txn))


def grant(store, rights, *, update=True):
    """The row says one thing, the table of rights another."""
    entry = evolve(store.entry(MailboxName("alice", "INBOX")), acl={"bob": rights})
    listed = store.mailboxes

    def work(txn):
        listed._mailboxes.put(b"user\1alice\1INBOX", entry.to_bytes(), txn)
        if update:
            listed.granted._table.put(b"bob\0user/alice/INBOX", b"", txn)
    transact(listed.env, work)


def same_id(store):
    entry = store.entry(MailboxName("bob", "INBOX"))
    change_entry(store, id=entry.id)


def same_serial(store):
    partition, _, rows = parts(store)
    (_, waiting), = partition.refs.waiting(1 << 31)
    record = evolve(partition.refs.find(waiting), serial=int(rows["serial"][0]))
    write(store, lambda txn: partition.refs.write(waiting, record, txn))


INBOX = "user/alice/INBOX"
DAMAGE = {
    # the index
    "does not agree with its checksum": (flip_a_bit, INBOX),
    "has records that are not its own": (wrong_chunk, INBOX),
    "is not below UIDNEXT": (lambda store: change_rows(store, uid=5), INBOX),
    "is not what is known of its message": (lambda store: change_rows(store, serial=4242), INBOX),
    "UID 1 is not what is known": (lambda store: change_rows(store, size=9), INBOX),
    "UID 1 is not": (lambda store: change_rows(store, header_length=1, size=20), INBOX),
    "a keyword that has no name": (lambda store: change_rows(store, keywords=1), INBOX),
    "a flag that does not exist": (lambda store: change_rows(store, flags=0x4000), INBOX),
    "a MODSEQ is 0": (lambda store: change_rows(store, modseq=0), INBOX),
    "records of a mailbox that has no figures": (move_records, "mailbox 4242"),
    # figures
    "messages: 9 in its figures": (lambda store: change_state(store, messages=9), INBOX),
    "unseen: 0 in its figures": (lambda store: change_state(store, unseen=0), INBOX),
    "octets: 1 in its figures": (lambda store: change_state(store, octets=1), INBOX),
    "deleted: 1 in its figures": (lambda store: change_state(store, deleted=1), INBOX),
    "UIDVALIDITY is": (lambda store: change_state(store, uidvalidity=3), INBOX),
    "a MODSEQ is above": (lambda store: change_state(store, highestmodseq=1), INBOX),
    "it changed after its HIGHESTMODSEQ": (lambda store: change_state(store, changed=1 << 40), INBOX),
    "it changed after": (lambda store: change_state(store, log_since=1 << 40), INBOX),
    "the first \\Recent UID": (lambda store: change_state(store, recent=99), INBOX),
    "two keywords have the same name": (lambda store: change_state(store, keywords=("a", "A")), INBOX),
    "is charged to quota root": (lambda store: change_state(store, quota_root="bob"), INBOX),
    "its figures say that it was deleted": (lambda store: change_state(store, removed=5), INBOX),
    "octets of expunged UIDs in its figures": (lambda store: change_state(store, logged=1), INBOX),
    "its figures do not say so": (lambda store: change_state(store, old(store), removed=0), "user/alice/Old (deleted)"),
    "has no figures": (lambda store: write(store, lambda txn: store.partitions["primary"].states.delete(
        state_key(parts(store)[1].id), txn)), INBOX),
    # what was expunged
    "expunged at MODSEQ 2 cannot be read": (lambda store: vanish(store, 2, [(9, 7)]), INBOX),
    "at MODSEQ 2 cannot be read": (lambda store: vanish(store, 2, [2]), INBOX),
    "MODSEQ 2 cannot be read": (lambda store: vanish(store, 2, []), INBOX),
    "at MODSEQ 2 was never there": (lambda store: vanish(store, 2, [(2, 3)]), INBOX),
    "at MODSEQ 99 was never there": (lambda store: vanish(store, 99, [(2, 2)]), INBOX),
    "is still there": (lambda store: vanish(store, 2, [(1, 2)]), INBOX),
    "expunged UIDs of a mailbox that has no figures": (
        lambda store: vanish(store, 2, [(1, 2)], 4242), "mailbox 4242"),
    "UID 77 was expunged and is not below UIDNEXT": (lambda store: keep(store, 77), INBOX),
    "UID 1 is there and can be undeleted as well": (lambda store: keep(store, 1), INBOX),
    "what was expunged cannot be read": (lambda store: write(store, lambda txn: store.partitions[
        "primary"].removed._table.put(b"\0" * 16, b"\0\0abc", txn)), "removed.db of primary"),
    # readers' own flags
    "bob's own flags of chunk 0 do not agree with their checksum": (spoil_own, INBOX),
    "bob's own flags of chunk 0 is above HIGHESTMODSEQ": (lambda store: put_own(store, own_flags(1, 99)), INBOX),
    "bob has flags of its own in chunk 0 that cannot be": (lambda store: put_own(store, own_flags(64)), INBOX),
    "own in chunk 7 that cannot be": (lambda store: put_own(store, own_flags(1), number=7), INBOX),
    "readers' own flags of a mailbox": (lambda store: put_own(store, own_flags(1), 4242), "mailbox 4242"),
    # messages
    "2 records refer to it, counted are 1": (lambda store: change_record(store, references=1), "message"),
    "2 records refer to it, counted are 3": (lambda store: change_record(store, references=3), "message"),
    "are not those that were counted": (lambda store: change_record(store, check=1), "message"),
    "octets instead of 7": (lambda store: change_record(store, size=7), "message"),
    "its trace header is": (lambda store: change_record(store, trace=4000), "message"),
    "nothing is known of it": (forget_record, "message"),
    "does not wait for the purge": (empty_purge_list, "message"),
    "it waits for the purge since 5": (lambda store: purge_list(store, 5, b"\7" * 32), "message 0707"),
    "two messages have the arrival serial": (same_serial, "partition primary"),
    "will be given out again": (lambda store: change_record(store, serial=1 << 40), "partition primary"),
    "its file is missing": (forget_file, "message"),
    "its file has 5 octets": (shorten_file, "message"),
    "no cache record": (forget_cached, "message"),
    "is another message's": (exchange_cached, "message"),
    "nothing is known of this file": (lambda store: Path(
        store.partitions["primary"].files.path(b"\xff" * 32)).with_name("stray").touch(), "/stray"),
    "it was left over": (leave_over, "/staging/"),
    # quota
    "quota says": (lambda store: write(store, lambda txn: store.partitions["primary"].quotas.charge(
        "alice", 1, 0, txn)), "quota root alice"),
    # the list
    "records of a mailbox that is not in the list": (lambda store: transact(
        store.mailboxes.env, lambda txn: store.mailboxes.remove(MailboxName("alice", "INBOX"), txn)), "mailbox 1"),
    "has the same id as": (same_id, "user/bob/INBOX"),
    "is not found by its id": (forget_id, INBOX),
    "is also on record as deleted": (listed_and_deleted, INBOX),
    "has the id 4242, and the last one given": (lambda store: change_entry(store, id=4242), INBOX),
    "has UIDVALIDITY 4294967295, and the last one given": (
        lambda store: change_entry(store, uidvalidity=0xFFFFFFFF), INBOX),
    "on partition elsewhere, which does not exist": (lambda store: change_entry(store, partition="elsewhere"), INBOX),
    "bob may look it up, not by the table of rights": (lambda store: grant(store, "l", update=False), INBOX),
    "bob may look it up by the table of rights alone": (lambda store: grant(store, "r"), INBOX),
    "annotations of a mailbox that is not in the list": (lambda store: transact(
        store.mailboxes.env, lambda txn: store.mailboxes.annotations.set(4242, "/shared/comment", b"x", txn)),
        "mailbox 4242"),
    "its ACL has rights that do not exist": (lambda store: change_entry(store, acl={"bob": "lrz"}), INBOX),
    # store.idx
    "it is missing": (lambda store: copy_of(store).unlink(), "store.idx"),
    "it is damaged": (spoil_copy, "store.idx"),
    "it has other records than its mailbox": (change_copied_rows, "store.idx"),
    "it says other things of its mailbox": (lambda store: change_copy(store, uidnext=99), "store.idx"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found(damaged, what):
    damage, where = DAMAGE[what]
    damage(damaged)
    found = [finding for finding in check(damaged) if what in finding.what]
    assert found, check(damaged)
    assert any(where in finding.where for finding in found), found
    assert all(finding.repair for finding in found)


def test_a_mailbox_on_two_partitions(damaged):
    partition = volumes.add(damaged, "second")
    entry = damaged.entry(MailboxName("alice", "INBOX"))
    state = evolve(damaged.status(entry), messages=0, octets=0, unseen=0, logged=0)
    partition.transact(lambda txn: txn.set_state(entry.id, None, state))
    assert ["records of a mailbox that is on primary by the list"] == [finding.what for finding in check(damaged)]


def test_uids_that_do_not_ascend(damaged):
    deliver(damaged, BODY, INBOX)
    change_rows(damaged, uid=np.array([3, 1], np.uint32))
    assert any("do not ascend" in finding.what for finding in check(damaged))


def test_a_damaged_chunk_does_not_make_everything_else_wrong(damaged):
    flip_a_bit(damaged)
    assert [finding.where for finding in check(damaged)] == [INBOX]


def test_a_copy_that_is_behind_counts_only_when_nobody_else_writes(damaged, faults):
    """Beside a server a mailbox may be ahead of its store.idx; the copy may not be ahead of the mailbox."""
    change_state(damaged, highestmodseq=50)
    assert [finding for finding in check(damaged) if "other things" in finding.what]
    mark_behind(damaged.partitions["primary"].folder)       # as after a crash
    assert check(damaged) == []
    (damaged.partitions["primary"].folder / "index" / "behind").unlink()
    others = processes.look(damaged.root / "run")[0] * 2
    faults.around(userrecords, "look_inside", lambda *_: (others, []))
    assert check(damaged) == []
    change_copy(damaged, highestmodseq=60)
    assert [finding.what for finding in check(damaged)] == ["it is ahead of its mailbox"]


def test_what_is_to_be_written_does_not_count(damaged):
    deliver(damaged, BODY, INBOX)
    assert check(damaged) == []
