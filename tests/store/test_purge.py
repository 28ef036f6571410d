"""The purge: a file goes when its last reference has been gone for the purge delay, and never before."""

import time

from mboxlist.names import MailboxName
from store.expunge import purge, remove
from tests.support.stores import deliver

BODY = b"Subject: x\r\n\r\nhello\r\n"


def files(store):
    return list(store.partitions["primary"].files.folder.glob("?/??/*"))


def expunge_all(store, user="alice"):
    entry = store.entry(MailboxName(user, "INBOX"))
    remove(store, entry, store.open_mailbox(entry).rows["uid"])


def test_a_file_outlives_its_last_reference_by_the_delay(store):
    partition = store.partitions["primary"]
    deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    expunge_all(store)
    late = time.time() + partition.settings.purge_delay + 10
    assert purge(partition, late) == 0              # bob has it
    expunge_all(store, "bob")
    assert purge(partition) == 0 and files(store)   # not yet
    assert purge(partition, late) == 1
    assert not files(store)
    assert list(partition.refs.all()) == []


def test_a_message_that_comes_again_is_not_purged(store):
    partition = store.partitions["primary"]
    deliver(store, BODY, "user/alice/INBOX")
    expunge_all(store)
    deliver(store, BODY, "user/bob/INBOX")
    assert purge(partition, time.time() + partition.settings.purge_delay + 10) == 0
    assert len(files(store)) == 1


def test_a_purge_cut_off_before_its_commit_loses_nothing_that_comes_later(store):
    partition = store.partitions["primary"]
    deliver(store, BODY, "user/alice/INBOX")
    expunge_all(store)
    partition.files.settle()
    files(store)[0].unlink()                        # what a killed purge leaves: a record, and no file
    deliver(store, BODY, "user/bob/INBOX")
    entry = store.entry(MailboxName("bob", "INBOX"))
    with store.open_message(entry, store.open_mailbox(entry).rows[0]) as file:
        assert file.read(0, file.size) == BODY
