"""The consistency check finds each kind of damage; a check that finds nothing anywhere would pass every other test."""

import numpy as np
import pytest
from attrs import evolve

from mboxlist.kv import transact
from mboxlist.names import MailboxName
from store.check import check
from store.index import chunk_key, encode
from store.txn import state_key
from tests.support.stores import deliver, make_store

BODY = b"Subject: x\r\n\r\nhello\r\n"


@pytest.fixture
def damaged(tmp_path):
    """A store with a message for alice and bob, which the test damages."""
    store = make_store(tmp_path / "store")
    deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    assert check(store) == []
    yield store
    store.close()


def parts(store):
    partition = store.partitions["primary"]
    entry = store.entry(MailboxName("alice", "INBOX"))
    return partition, entry, store.open_mailbox(entry).rows.copy()


def change_rows(store, change):
    partition, entry, rows = parts(store)
    change(rows)
    partition.transact(lambda txn: partition.index.put(chunk_key(entry.id, 0), encode(rows), txn.handle))


def change_state(store, **figures):
    partition, entry, _ = parts(store)
    state = evolve(partition.state(entry.id), **figures)
    partition.transact(lambda txn: partition.states.put(state_key(entry.id), state.to_bytes(), txn.handle))


def change_record(store, **figures):
    partition, _, rows = parts(store)
    mid = bytes(rows["mid"][0])
    record = evolve(partition.refs.find(mid), **figures)
    partition.transact(lambda txn: partition.refs.write(mid, record, txn.handle))


def flip_a_bit(store):
    partition, entry, _ = parts(store)
    value = bytearray(partition.index.get(chunk_key(entry.id, 0)))
    value[20] ^= 1
    partition.transact(lambda txn: partition.index.put(chunk_key(entry.id, 0), bytes(value), txn.handle))


def forget_file(store):
    partition, _, rows = parts(store)
    partition.files.remove(bytes(rows["mid"][0]), int(rows["serial"][0]))


def shorten_file(store):
    partition, _, rows = parts(store)
    with open(partition.files.path(bytes(rows["mid"][0])), "r+b") as file:
        file.truncate(5)


def forget_cached(store):
    partition, _, rows = parts(store)
    partition.transact(lambda txn: partition.forget_cached(int(rows["serial"][0]), txn.handle))


def set_uid(rows):
    rows["uid"] = 5


def set_serial(rows):
    rows["serial"] = 4242


def set_keyword(rows):
    rows["keywords"] = 1


DAMAGE = {
    "does not agree with its checksum": flip_a_bit,
    "is not below UIDNEXT": lambda store: change_rows(store, set_uid),
    "is not what others say of it": lambda store: change_rows(store, set_serial),
    "a keyword that has no name": lambda store: change_rows(store, set_keyword),
    "messages: 9 in its figures": lambda store: change_state(store, messages=9),
    "unseen: 0 in its figures": lambda store: change_state(store, unseen=0),
    "octets: 1 in its figures": lambda store: change_state(store, octets=1),
    "UIDVALIDITY is": lambda store: change_state(store, uidvalidity=3),
    "a MODSEQ is above": lambda store: change_state(store, highestmodseq=1),
    "the first \\Recent UID": lambda store: change_state(store, recent=99),
    "2 records refer to it, counted are 1": lambda store: change_record(store, references=1),
    "octets instead of 7": lambda store: change_record(store, size=7),
    "its file is missing": forget_file,
    "its file has 5 octets": shorten_file,
    "no cache record": forget_cached,
    "quota says": lambda store: store.partitions["primary"].transact(
        lambda txn: store.partitions["primary"].quotas.charge("alice", 1, 0, txn.handle)),
    "records of a mailbox that is not in the list": lambda store: transact(
        store.mailboxes.env, lambda txn: store.mailboxes.remove(MailboxName("alice", "INBOX"), txn)),
    "has no figures": lambda store: store.partitions["primary"].transact(
        lambda txn: store.partitions["primary"].states.delete(state_key(parts(store)[1].id), txn.handle)),
    "nothing is known of this file": lambda store: (
        store.partitions["primary"].files.folder / "0" / "00" / "stray").touch(),
    "belongs to no user": lambda store: store.directory.remove("alice"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found(damaged, what):
    DAMAGE[what](damaged)
    findings = check(damaged)
    assert any(what in finding.what for finding in findings), findings


def test_uids_that_do_not_ascend(damaged):
    deliver(damaged, BODY, "user/alice/INBOX")

    def turn(rows):
        rows["uid"] = np.array([2, 1], np.uint32)
    change_rows(damaged, turn)
    assert any("do not ascend" in finding.what for finding in check(damaged))
