"""The file of a message that has been committed stays, whatever fails behind the commit and whoever had brought the
message: each step that follows a commit is made to fail once."""

import errno
import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store import offload
from store.delivery import durable, severalmessages
from store.delivery.batch import one_by_one
from store.delivery.commit import Target
from store.delivery.inthread import deliver_here
from store.mailboxes import crosspartition
from store.migration.messageimport import Contents
from store.partitions import partitionmove, volumes
from store.store import Store
from store.values import InternalDate
from tests.store.net.test_after_commit import Planted
from tests.support.stores.stores import deliver, make_store

ALICE, BOB = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = make_store(tmp_path_factory.mktemp("committed") / "store")
    volumes.add(store, "second")
    partitionmove.move_owner(store, "bob", "second")
    yield store
    store.close()


def body(number: int) -> bytes:
    return b"Subject: %d\r\n\r\nText\r\n" % number


def imported(store: Store, number: int) -> Callable[[], object]:
    contents = Contents(store.partitions["second"], one_by_one)
    contents.store([body(number)])

    def keep() -> None:
        try:
            contents.keep()
        finally:
            contents.drop()
    return keep


def copied(store: Store, number: int) -> Callable[[], object]:
    deliver(store, body(number), "user/alice/INBOX")
    uid = store.open_mailbox(store.entry(ALICE)).rows["uid"][-1:].astype(np.uint32)
    return lambda: offload.now(crosspartition.copy_durably(store, store.entry(ALICE), store.entry(BOB), uid))


def delivered(store: Store, number: int) -> Callable[[], object]:
    staged = store.partitions["second"].stage()
    staged.write(body(number))
    return lambda: offload.now(durable.deliver(store, staged, [Target(store.entry(BOB))]))


def appended(store: Store, number: int) -> Callable[[], object]:
    staged = store.partitions["second"].stage()
    staged.write(body(number))
    return lambda: offload.now(severalmessages.deliver_all(store, [(staged, Target(store.entry(BOB)), None)]))


def noticed(store: Store, number: int) -> Callable[[], object]:
    return lambda: deliver_here(store.partitions["second"], Target(store.entry(BOB)), body(number), InternalDate(1))


WAYS = [imported, copied, delivered, appended, noticed]


@pytest.mark.parametrize("way", WAYS)
def test_no_step_behind_a_commit_takes_a_file_away(place: Store, way: Callable[[Store, int], Callable[[], object]]
                                                   ) -> None:
    number = 1000 * WAYS.index(way)             # no two ways have the same messages
    bring = way(place, number)
    with Planted() as planted:
        bring()
    assert planted.steps
    lost, files = [], place.partitions["second"].files
    for step in planted.steps:
        number += 1
        bring = way(place, number)
        with Planted(step):
            try:
                bring()
            except OSError as error:
                assert error.errno == errno.EMFILE
            except Exception as error:
                assert "planted" in str(error)
        del bring
        digest = hashlib.blake2b(body(number), digest_size=32).digest()
        record = place.partitions["second"].refs.find(digest)
        if record is not None and not files.is_whole(digest, record.serial, record.size):
            lost.append(step.co_qualname)
    assert not lost, f"{len(lost)} of {len(planted.steps)}: {lost}"
