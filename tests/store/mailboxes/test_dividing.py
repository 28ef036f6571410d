"""A STORE of many divides chunks, and they are plain again when records come or go; nobody notices."""

import random

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags, update_one
from store.rebuild.repair import repair_mailbox
from store.tables.index import CHUNK, ROW, chunk_key
from store.values import Flag, FlagAction, Flags
from tests.support.stores import chunkforms
from tests.support.stores.stores import deliver

pytestmark = pytest.mark.few_folders
SEEN, FLAGGED = Flags(Flag.SEEN), Flags(Flag.FLAGGED)


@pytest.fixture
def inbox(store):
    """alice's, with two whole chunks and the beginning of a third."""
    for number in range(2 * CHUNK + 5):
        deliver(store, b"Subject: %d\r\n\r\n" % (number % 9), "user/alice/INBOX")
    return store.entry(MailboxName("alice", "INBOX"))


def values(store, inbox):
    table = store.partition_of(inbox).index
    return [value for _, value in table.scan(chunk_key(inbox.id, 0), chunk_key(inbox.id + 1, 0))]


def forms(store, inbox):
    return [{4: "plain", 5: "divided", 8: "older"}[len(value) % chunkforms.RECORD] for value in values(store, inbox)]


def is_sound(store, inbox):
    """What a new view has is what is stored, by the definition of the forms."""
    store.partition_of(inbox).views.forget()
    rows = store.open_mailbox(inbox).rows
    stored = [chunkforms.records(value) for value in values(store, inbox)]
    assert rows.tobytes() == b"".join(stored) and check(store) == []
    made = {"plain": chunkforms.plain, "divided": chunkforms.divided, "older": chunkforms.older}
    assert values(store, inbox) == [made[form](octets) for form, octets in zip(
        forms(store, inbox), stored, strict=True)]
    return rows


def logged(store, inbox, work):
    """Octets of log that this writes."""
    env = store.partition_of(inbox).env
    before = env.logged()
    work()
    return env.logged() - before


def test_a_store_of_many_divides_chunks_that_are_full(store, inbox):
    """Not the one in which messages arrive, and none of which few change."""
    every = range(1, 2 * CHUNK + 6)
    change_flags(store, inbox, [3, 4, 70], FlagAction.ADD, SEEN)
    assert forms(store, inbox) == ["plain"] * 3
    change_flags(store, inbox, every, FlagAction.ADD, FLAGGED)
    assert forms(store, inbox) == ["divided", "divided", "plain"]
    assert (is_sound(store, inbox)["flags"] & int(Flag.FLAGGED)).all()
    change_flags(store, inbox, every, FlagAction.REMOVE, FLAGGED)
    deliver(store, b"Subject: new\r\n\r\n", "user/alice/INBOX")
    assert forms(store, inbox) == ["divided", "divided", "plain"]
    rows = is_sound(store, inbox)
    assert rows["uid"].tolist() == [*every, 2 * CHUNK + 6]
    assert [int(row["uid"]) for row in rows if row["flags"]] == [3, 4, 70]


def test_flags_of_some_in_a_divided_chunk(store, inbox):
    """One, some in the middle and at the end, keywords; each way that writes them."""
    every = range(1, 2 * CHUNK + 6)
    change_flags(store, inbox, every, FlagAction.ADD, FLAGGED)
    expected = dict.fromkeys(every, int(Flag.FLAGGED))
    for some, flags in (([1], SEEN), ([64], SEEN), ([20, 21], Flags(Flag.ANSWERED)), ([60, 64, 65], Flags(Flag.DRAFT)),
                        (range(2, 128, 2), Flags(Flag.ANSWERED))):
        change_flags(store, inbox, some, FlagAction.ADD, flags)
        for uid in some:
            expected[uid] |= int(flags.system)
    assert update_one(store, inbox, 9, FlagAction.ADD, SEEN, "alice")[0]
    expected[9] |= int(Flag.SEEN)
    change_flags(store, inbox, [5, 63, 129], FlagAction.ADD, Flags(keywords=("todo",)))
    rows = is_sound(store, inbox)
    assert forms(store, inbox) == ["divided", "divided", "plain"]
    assert dict(zip(rows["uid"].tolist(), rows["flags"].tolist(), strict=True)) == expected
    assert rows["uid"][rows["keywords"] != 0].tolist() == [5, 63, 129]


def test_records_that_come_and_go(store, inbox):
    """An expunged record leaves a plain chunk, which the next STORE of many divides."""
    every = range(1, 2 * CHUNK + 6)
    change_flags(store, inbox, every, FlagAction.ADD, FLAGGED)
    remove(store, inbox, [1, 64, 128])
    assert forms(store, inbox) == ["plain"] * 3
    change_flags(store, inbox, every, FlagAction.ADD, SEEN)
    assert forms(store, inbox) == ["divided", "divided", "plain"]
    copy_messages(store, inbox, inbox, range(65, 125))
    rows = is_sound(store, inbox)
    assert len(rows) == len(every) - 3 + 60 and not np.isin([1, 64, 128], rows["uid"]).any()


def have_older_chunks(store, inbox):
    """As a version before this one has divided them."""
    partition = store.partition_of(inbox)
    older = {chunk_key(inbox.id, number): chunkforms.older(chunkforms.records(value))
             for number, value in enumerate(values(store, inbox)[:2])}
    partition.transact(lambda txn: [partition.index.put(key, value, txn.handle) for key, value in older.items()])


@pytest.mark.parametrize(("change", "after"), [
    (lambda store, inbox: update_one(store, inbox, 70, FlagAction.ADD, SEEN, "alice"), ["older", "divided", "plain"]),
    (lambda store, inbox: change_flags(store, inbox, [70], FlagAction.ADD, SEEN), ["older", "divided", "plain"]),
    (lambda store, inbox: change_flags(store, inbox, range(60, 71), FlagAction.ADD, SEEN),
     ["divided", "divided", "plain"]),
    (lambda store, inbox: remove(store, inbox, [5, 6]), ["plain", "older", "plain"]),
    (lambda store, inbox: update_one(store, inbox, 5, FlagAction.REMOVE, SEEN, "alice"), ["older", "older", "plain"]),
])
def test_older_chunks_are_read_and_become_what_is_written_now(store, inbox, change, after):
    """Nothing that they say is lost; what changes nothing leaves them."""
    have_older_chunks(store, inbox)
    assert forms(store, inbox) == ["older", "older", "plain"]
    before = {int(row["uid"]): row.tobytes()[24:92] for row in is_sound(store, inbox)}
    change(store, inbox)
    rows = is_sound(store, inbox)
    assert forms(store, inbox) == after
    assert {int(row["uid"]): row.tobytes()[24:92] for row in rows}.items() <= before.items()
    assert len(rows) == len(before) - 2 * (after[0] == "plain")


def test_a_store_of_one_writes_its_record_only(store, inbox):
    """Before and after, 92 octets of a record or 24 of a head, besides what each change costs."""
    spent = {}
    for form in "plain", "divided":
        assert forms(store, inbox)[0] == form
        spent[form] = logged(store, inbox, lambda: update_one(store, inbox, 9, FlagAction.ADD, SEEN, "alice"))
        assert update_one(store, inbox, 9, FlagAction.REMOVE, SEEN, "alice")[0]
        change_flags(store, inbox, range(1, 2 * CHUNK + 1), FlagAction.ADD, FLAGGED)
    assert spent["plain"] < 450 and spent["divided"] < spent["plain"] - 100


def test_the_log_has_heads_only(store, inbox):
    """Twice, before and after; a chunk that is not divided is in it twice as a whole."""
    whole = range(1, 2 * CHUNK + 1)
    first = logged(store, inbox, lambda: change_flags(store, inbox, whole, FlagAction.ADD, FLAGGED))
    later = logged(store, inbox, lambda: change_flags(store, inbox, whole, FlagAction.REMOVE, FLAGGED))
    rest = 2 * 2 * CHUNK * (chunkforms.RECORD - chunkforms.HEAD)
    assert first > rest and later < first - rest * 0.9


def test_damage_in_a_divided_chunk_is_mended(store, inbox):
    """One bit in the heads, the rests, the octet that tells it apart, and the checksum."""
    change_flags(store, inbox, range(1, 2 * CHUNK + 1), FlagAction.ADD, FLAGGED)
    partition, key, chance = store.partition_of(inbox), chunk_key(inbox.id, 0), random.Random(7)
    heads = CHUNK * chunkforms.HEAD
    end = CHUNK * ROW.itemsize
    for at in chance.randrange(heads), heads - 1, chance.randrange(heads, end), end, end + 2:
        before = store.open_mailbox(inbox).rows[["uid", "digest", "size", "serial"]].tolist()
        value = bytearray(partition.index.get(key))
        value[at] ^= 4
        partition.transact(lambda txn, new=bytes(value): partition.index.put(key, new, txn.handle))
        assert any("checksum" in str(found) for found in check(store))
        assert repair_mailbox(store, inbox)
        assert is_sound(store, inbox)[["uid", "digest", "size", "serial"]].tolist() == before
        change_flags(store, inbox, range(1, 2 * CHUNK + 1), FlagAction.REMOVE, FLAGGED)
        change_flags(store, inbox, range(1, 2 * CHUNK + 1), FlagAction.ADD, FLAGGED)
        assert forms(store, inbox)[0] == "divided"
