"""Unique-ids that messages brought along from another POP3 server: kept with the message, and gone with it."""

import shutil

import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import deletion
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.uidllist import give
from store.partitions import partitionmove, volumes
from store.rebuild.recount import recount
from store.rebuild.repair import repair_mailbox
from store.reconstruct.wholestore import rebuild
from store.tables.index import chunk_key, encode
from store.tables.references import tally
from store.userarea import idxreading
from store.userarea.writing import write_changed
from tests.support.stores.stores import SMALL, deliver, reopen, reopen_after_crash

ALICE, BOB = "user/alice/INBOX", "user/bob/INBOX"
LONGEST = bytes(range(0x21, 0x67))              # 70 octets


@pytest.fixture
def inbox(store):
    """Three messages, of which two have one."""
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, ALICE)
    entry = store.entry(MailboxName.parse(ALICE))
    assert give(store, entry, {1: b"0000000a4f5b7c8d", 3: LONGEST}) == []
    return entry


def uidls(store, name=ALICE):
    return store.uidls(store.entry(MailboxName.parse(name)))


BROUGHT = {1: b"0000000a4f5b7c8d", 3: LONGEST}


def test_they_are_kept(store, inbox):
    assert uidls(store) == BROUGHT
    assert uidls(store, BOB) == {}
    assert give(store, inbox, {2: b"x", 3: b"y", 4: b"z", 99: b"z2"}) == [4, 99]
    assert uidls(store) == {1: BROUGHT[1], 2: b"x", 3: b"y"}


def test_they_outlive_a_crash(store, inbox):
    store.partition_of(inbox).flush()
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert uidls(store) == BROUGHT


WRONG = [{1: b"good", 2: wrong} for wrong in (b"", b"a b", b"a\r\n", b"\x7f", b"\xc3\xa4", b"x" * 71, b"\0")]
SAME = [{2: LONGEST}, {1: b"same", 2: b"same"}]


def test_what_is_no_unique_id_or_anothers_is_refused(store, inbox):
    for given in WRONG + SAME:
        with pytest.raises(StoreError) as refused:
            give(store, inbox, given)
        assert refused.value.problem is Problem.BAD_NAME
    assert uidls(store) == BROUGHT


def test_messages_can_exchange_theirs(store, inbox):
    give(store, inbox, {1: LONGEST, 3: BROUGHT[1]})
    assert uidls(store) == {1: LONGEST, 3: BROUGHT[1]}


def test_it_goes_with_the_message(store, inbox):
    remove(store, inbox, [1, 2])
    assert uidls(store) == {3: LONGEST}
    remove(store, inbox, [3])
    assert uidls(store) == {}
    assert not store.partition_of(inbox).uidls.any(inbox.id)


def test_a_copy_is_another_message_and_what_is_moved_away_is_gone(store, inbox):
    copy_messages(store, inbox, inbox, [1])
    assert uidls(store) == BROUGHT
    bob = store.entry(MailboxName.parse(BOB))
    copy_messages(store, inbox, bob, [3], remove=True)
    assert uidls(store) == {1: BROUGHT[1]} and uidls(store, BOB) == {}


def test_a_client_finds_the_mailbox_changed(store, inbox):
    """So does `store.idx`, which is compared by HIGHESTMODSEQ after a crash."""
    before = store.open_mailbox(inbox)
    give(store, inbox, {2: b"x"})
    after = store.refresh(before)
    assert after.state.highestmodseq > before.state.highestmodseq
    assert after.rows.tobytes() == before.rows.tobytes()


@pytest.mark.long
def test_store_idx_has_them_and_the_store_made_from_it(store, inbox):
    write_changed(store)
    file = store.partition_of(inbox).user_folder("alice") / "store.idx"
    assert idxreading.read(file).uidls == BROUGHT
    store.close()
    shutil.rmtree(store.root / "mboxlist")
    shutil.rmtree(store.root / "partitions" / "primary" / "index")
    rebuild(store.root, SMALL)
    reopen(store, SMALL)
    assert uidls(store) == BROUGHT


def test_a_damaged_block_costs_the_unique_ids_in_it_and_no_more(store, inbox):
    write_changed(store)
    file = store.partition_of(inbox).user_folder("alice") / "store.idx"
    data = bytearray(file.read_bytes())
    at = data.index(LONGEST)
    data[at] ^= 1
    left = idxreading.decode(bytes(data))
    assert left.uidls == {} and len(left.rows) == 3
    assert left.findings == ["its section uidls has lost 2 of 2 items"]


def test_they_move_to_another_partition(store, inbox):
    volumes.add(store, "second")
    partitionmove.move_owner(store, "alice", "second")
    assert uidls(store) == BROUGHT
    assert store.partitions["primary"].uidls.mailboxes() == set()
    now = store.entry(inbox.name)
    remove(store, now, [1])
    assert uidls(store) == {3: LONGEST}


def test_they_go_with_the_mailbox(store, inbox):
    place = store.partition_of(inbox)
    deletion.delete_mailbox(store, inbox.name, even_inbox=True)
    assert place.uidls.of(inbox.id) == BROUGHT          # it can still be brought back
    deletion.undelete_mailbox(store, inbox.name)
    assert uidls(store) == BROUGHT
    deletion.delete_mailbox(store, inbox.name, even_inbox=True)
    deletion.destroy(place, inbox.id, 0)
    assert place.uidls.mailboxes() == set()


def put(store, inbox, uid, uidl):
    """Behind everybody's back."""
    place = store.partition_of(inbox)
    place.transact(lambda txn: place.uidls._table.put(
        inbox.id.to_bytes(4, "big") + uid.to_bytes(4, "big"), uidl, txn.handle))


@pytest.mark.parametrize(("uid", "uidl", "said"), [
    (2, b"x", "2 messages should have a unique-id of their own, 3 have one"),
    (7, b"x", "UID 7 has a unique-id of its own and is not there"),
    (3, b"a b", "UID 3 has a unique-id that is none"),
    (3, BROUGHT[1], "two messages have the same unique-id"),
])
def test_the_check_finds_what_is_wrong_and_the_recount_mends_it(store, inbox, uid, uidl, said):
    put(store, inbox, uid, uidl)
    assert said in [finding.what for finding in check(store)]
    assert recount(store, store.partition_of(inbox))
    assert [finding.what for finding in check(store) if "unique" in finding.what] == []
    assert uidls(store)[1] == BROUGHT[1]
    assert recount(store, store.partition_of(inbox)) == []


def test_repair_leaves_none_behind(store, inbox):
    """Of a record that is lost with its chunk while nothing tells of it."""
    for number in range(70):
        deliver(store, b"Subject: more %d\r\n\r\n" % number, ALICE)
    give(store, inbox, {70: b"seventy", 71: b"seventy-one"})
    place, key = store.partition_of(inbox), chunk_key(inbox.id, 1)
    rows = store.open_mailbox(inbox).rows
    (digest, count, check_value), = tally(inbox.id, rows[rows["uid"] == 70])
    place.transact(lambda txn: txn.refs.release(digest, count, check_value, txn.handle))
    value = encode(rows[(rows["uid"] > 64) & (rows["uid"] != 70)])
    place.transact(lambda txn: place.index.put(key, value[:-4] + b"\0\0\0\0", txn.handle))
    repair_mailbox(store, inbox)
    assert 70 not in store.open_mailbox(inbox).rows["uid"]
    assert uidls(store) == {**BROUGHT, 71: b"seventy-one"}
    recount(store, place)
