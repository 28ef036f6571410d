"""Each reader's own flags in the mailbox of somebody else (RFC 4314 §4): nobody else sees them, and none is lost."""

import numpy as np
import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store import offload
from store.delivery import durable
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.mailboxes.authorization import set_acl
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.tables.index import ROW
from store.tables.readerflags import OWN, overlay
from store.values import Flag, FlagAction, Flags
from tests.support.stores.stores import SMALL, deliver


def rows(*uids, flags=0, modseq=5):
    made = np.zeros(len(uids), ROW)
    made["uid"], made["flags"], made["modseq"] = uids, flags, modseq
    return made


def own(**at):
    """Own flags of a chunk: `own(u3=(flags, modseq))` for its third UID."""
    made = np.zeros(64, OWN)
    for place, value in at.items():
        made[int(place[1:]) - 1] = value
    return made


def test_the_overlay_takes_private_flags_from_the_reader_alone():
    shown = overlay(rows(1, 3, 64, 65, 200, flags=Flag.SEEN | Flag.FLAGGED),
                    {0: own(u3=(1, 9), u64=(4, 2)), 3: own(u8=(1, 7))}, Flag.SEEN)
    # 200 is the eighth of the chunk of 193 to 256; \Flagged (4) is not private here, so nobody has one of its own
    assert shown["flags"].tolist() == [4, 5, 4, 4, 5]
    assert shown["modseq"].tolist() == [5, 9, 5, 5, 7]


def test_an_overlay_of_nothing_hides_the_owners_flags():
    assert overlay(rows(1, 2, flags=9), {}, Flag.SEEN)["flags"].tolist() == [8, 8]
    assert len(overlay(rows(), {0: own(u1=(1, 1))}, Flag.SEEN)) == 0


def test_the_overlay_leaves_the_records_as_they_were():
    given = rows(1, flags=1)
    overlay(given, {0: own(u1=(0, 1))}, Flag.SEEN)
    assert given["flags"].tolist() == [1]


@pytest.fixture
def inbox(store):
    for number in range(70):
        deliver(store, b"Subject: %d\r\n\r\n" % number, "user/alice/INBOX")
    return set_acl(store, MailboxName("alice", "INBOX"), "anyone", "lrswipte")


def seen(store, entry, reader):
    return [int(row["uid"]) for row in store.open_mailbox(entry, reader).rows if row["flags"] & Flag.SEEN]


def test_each_reader_has_its_own_seen(store, inbox):
    change_flags(store, inbox, [1, 64, 65], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(Flag.SEEN), "alice")
    assert seen(store, inbox, "bob") == [1, 64, 65] and seen(store, inbox, "carol") == []
    assert seen(store, inbox, "alice") == seen(store, inbox, "") == [2]
    assert [store.status(inbox, reader).unseen for reader in ("bob", "alice", "carol", "")] == [67, 69, 70, 69]


def test_what_is_not_private_is_everybodys(store, inbox):
    change_flags(store, inbox, [5], FlagAction.ADD, Flags(Flag.FLAGGED | Flag.SEEN | Flag.DELETED, ("todo",)), "bob")
    row = store.open_mailbox(inbox).row(5)
    assert Flag(int(row["flags"])) == Flag.FLAGGED | Flag.DELETED and int(row["keywords"]) == 1
    change_flags(store, inbox, [5], FlagAction.REPLACE, Flags(Flag.ANSWERED), "carol")
    assert Flag(int(store.open_mailbox(inbox, "bob").row(5)["flags"])) == Flag.ANSWERED | Flag.SEEN
    assert Flag(int(store.open_mailbox(inbox, "carol").row(5)["flags"])) == Flag.ANSWERED


def test_replace_by_a_reader_keeps_the_owners_seen(store, inbox):
    change_flags(store, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN), "alice")
    change_flags(store, inbox, [1], FlagAction.REPLACE, Flags(Flag.FLAGGED), "bob")
    assert Flag(int(store.open_mailbox(inbox, "alice").row(1)["flags"])) == Flag.SEEN | Flag.FLAGGED
    change_flags(store, inbox, [1], FlagAction.REMOVE, Flags(Flag.SEEN), "bob")
    assert seen(store, inbox, "alice") == [1]


def test_only_the_reader_sees_the_modseq_of_its_own_change(store, inbox):
    views = {reader: store.open_mailbox(inbox, reader) for reader in ("alice", "bob", "carol")}
    before = store.status(inbox).highestmodseq
    change_flags(store, inbox, [3], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    assert store.status(inbox).highestmodseq == before + 1
    changed = {reader: store.refresh(view).rows["uid"][store.refresh(view).rows["modseq"] > before].tolist()
               for reader, view in views.items()}
    assert changed == {"alice": [], "bob": [3], "carol": []}
    change_flags(store, inbox, [3], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    assert store.status(inbox).highestmodseq == before + 1     # nothing new


def test_another_process_brings_a_readers_picture_up_to_date(store, inbox):
    other = open_store(store.root, SMALL)
    try:
        view = other.open_mailbox(inbox, "bob")
        change_flags(store, inbox, [70], FlagAction.ADD, Flags(Flag.SEEN), "bob")
        assert [int(row["uid"]) for row in other.refresh(view).rows if row["flags"] & Flag.SEEN] == [70]
    finally:
        other.close()


def test_a_copy_has_the_flags_that_the_reader_sees(store, inbox):
    mine = store.entry(MailboxName("bob", "INBOX"))
    change_flags(store, inbox, [1, 2], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    change_flags(store, inbox, [3], FlagAction.ADD, Flags(Flag.SEEN), "alice")
    copy_messages(store, inbox, mine, [1, 3], reader="bob")
    assert seen(store, mine, "bob") == seen(store, mine, "") == [1]
    copy_messages(store, mine, inbox, [1, 2], reader="bob")
    assert seen(store, inbox, "bob") == [1, 2, 71] and seen(store, inbox, "alice") == [3]


def test_what_a_reader_appends_is_seen_by_it_alone(store, inbox):
    staged = store.stage(inbox)
    staged.write(b"Subject: mine\r\n\r\n")
    offload.now(durable.deliver(store, staged, [Target(
        inbox, Flags(Flag.SEEN | Flag.DRAFT), reader="bob", own=store.private_bits(inbox, "bob"))]))
    assert seen(store, inbox, "bob") == [71] and seen(store, inbox, "alice") == []
    assert store.open_mailbox(inbox).row(71)["flags"] == Flag.DRAFT
    assert store.status(inbox).unseen == 71 and store.status(inbox, "bob").unseen == 70


def test_a_uid_that_comes_back_is_not_seen(store, inbox):
    """What is expunged takes its own flags with it: UIDs never mean another message."""
    change_flags(store, inbox, [70], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    remove(store, inbox, [70])
    deliver(store, b"new", "user/alice/INBOX")
    assert seen(store, inbox, "bob") == []


def test_which_flags_are_private_is_a_setting(store, inbox):
    everything = open_store(store.root, evolve(SMALL, private_flags=""))
    try:
        change_flags(everything, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN), "bob")
        assert seen(everything, inbox, "alice") == seen(everything, inbox, "bob") == [1]
    finally:
        everything.close()
    assert evolve(SMALL, private_flags="seen flagged").private_bits == Flag.SEEN | Flag.FLAGGED
    with pytest.raises(ValueError):
        evolve(SMALL, private_flags="seen deleted")


def test_damage_is_noticed(store, inbox):
    change_flags(store, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    table = store.partitions["primary"].readers._table
    [(key, value)] = table.scan()
    table.put(key, value[:5] + b"\xff" + value[6:], None)
    with pytest.raises(StoreError) as refused:
        store.open_mailbox(inbox, "bob")
    assert refused.value.problem is Problem.CORRUPT
    assert len(store.open_mailbox(inbox).rows) == 70            # the owner is not held up
    table.put(key, value, None)


def test_a_user_with_another_name_and_one_that_is_no_more(store, inbox):
    partition = store.partitions["primary"]
    change_flags(store, inbox, [1, 65], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(Flag.SEEN), "bobby")
    partition.transact(lambda txn: partition.readers.rename(
        list(partition.readers.of_reader("bob")), "robert", txn.handle))
    assert (seen(store, inbox, "bob"), seen(store, inbox, "robert"), seen(store, inbox, "bobby")) == ([], [1, 65], [2])
    partition.transact(lambda txn: partition.readers.rename(
        list(partition.readers.of_reader("robert")), None, txn.handle))
    assert seen(store, inbox, "robert") == [] and seen(store, inbox, "bobby") == [2]
