"""Each delivery has its own trace fields (RFC 5321 §4.4), though the content is stored once."""

import shutil

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import commit, durable
from store.delivery.commit import Delivered, Target
from store.errors import Problem, StoreError
from store.mailboxes import crosspartition, deletion, firstuse, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mend.leftovers import correct_headers
from store.opening import open_store
from store.partitions import volumes
from store.quota import roots
from store.reconstruct.wholestore import rebuild
from store.search.mailboxsearch import search
from store.search.searchkeys import Body, Header, Text
from store.snapshots import snapshotcopy, taking
from store.snapshots.snapshotreader import readers_of
from store.userarea import writing
from tests.store.tables.headed import ALICE, BOB, BODY, TO, box, files, texts, to
from tests.support.stores.purging import purge
from tests.support.stores.stores import SMALL, deliver, let_go, make_store

CAROL = "user/carol/INBOX"


def trace(number: int, sender: str = "a@example.org") -> bytes:
    """What LMTP puts in front, all of them equally long."""
    return (f"Return-Path: <{sender}>\r\nReceived: from relay ([192.0.2.{number}])\r\n"
            f"\tby store.example.org with LMTP id {number:04d};\r\n\tFri, 20 Nov 2026 12:43:{number:02d} +0000\r\n"
            ).encode()


@pytest.fixture
def carol(store):
    return firstuse.inbox(store, store.directory.add("carol", "*"))


def numbers(store):
    """The numbers in use, and the texts that have them."""
    found = dict(store.partitions["primary"].private_headers.all())
    found.pop(0, None)
    return found


def rows_of_table(store):
    return [key for key, _ in store.partitions["primary"].env.table("heads.db").scan()]


def forget_everything(store, *names):
    """Expunge all, and purge."""
    for name in names:
        mailbox = box(store, name)
        remove(store, mailbox.entry, mailbox.rows["uid"].tolist())
    let_go(store, 2**31)
    purge(store.partitions["primary"], 2**31)


@pytest.mark.parametrize("sender", ["a@example.org", "another@example.org"])
@pytest.mark.parametrize("header", [b"", TO])
def test_a_second_delivery_shows_its_own(store, sender, header):
    """Equally long or not, from the same sender or another: nobody sees the first one's."""
    deliver(store, BODY, ALICE, trace=trace(1), header=header)
    deliver(store, BODY, BOB, trace=trace(2, sender), header=header)
    own = [to(name) if header else b"" for name in (ALICE, BOB)]
    assert texts(store) == [own[0] + trace(1) + BODY]
    assert texts(store, BOB) == [own[1] + trace(2, sender) + BODY]
    assert files(store) == [trace(1) + BODY]
    assert roots.quota(store, "bob").octets == len(texts(store, BOB)[0])
    assert check(store) == []


def test_the_first_delivery_stores_nothing_more(store):
    deliver(store, BODY, ALICE, BOB, trace=trace(1))
    deliver(store, BODY, BOB, trace=trace(1))           # as when a lost file came again
    assert box(store).rows["head"].tolist() == [0] and box(store, BOB).rows["head"].tolist() == [0, 0]
    assert rows_of_table(store) == []


def test_all_recipients_of_a_delivery_share_one(store, carol):
    deliver(store, BODY, ALICE, trace=trace(1))
    deliver(store, BODY, ALICE, BOB, CAROL, trace=trace(2))
    assert numbers(store) == {1: trace(2)}
    assert {int(box(store, name).rows["head"][-1]) for name in (ALICE, BOB, CAROL)} == {1}


def test_what_came_without_comes_before_and_after(store):
    """APPEND: the client's octets, whatever the file has in front."""
    deliver(store, BODY, ALICE)
    deliver(store, BODY, BOB, trace=trace(1))
    deliver(store, BODY, ALICE)
    assert texts(store) == [BODY, BODY] and texts(store, BOB) == [trace(1) + BODY]
    other = b"Subject: other\r\n\r\n"
    deliver(store, other, BOB, trace=trace(2))
    deliver(store, other, ALICE)
    assert texts(store)[2] == other and texts(store, BOB)[1] == trace(2) + other


def test_they_are_searched_and_taken_apart(store):
    deliver(store, BODY, ALICE, trace=trace(1, "strangers@example.net"))
    deliver(store, BODY, BOB, trace=trace(2))

    def found(key, name=BOB):
        return search(store, box(store, name), key).tolist()

    assert found(Header("Return-Path", "a@example.org")) == [True]
    assert found(Header("Received", "192.0.2.2")) == [True] and found(Header("Received", "192.0.2.1")) == [False]
    assert found(Text("strangers")) == [False] and found(Text("strangers"), ALICE) == [True]
    assert found(Body("0002")) == [False] and found(Text("id 0002")) == [True]


def test_they_go_with_the_message(store, carol):
    """What a recipient's address says stays: other messages have it."""
    other = b"Subject: other\r\n\r\n"
    for text in (BODY, other):
        for number, name in ((1, ALICE), (2, BOB), (3, CAROL)):
            deliver(store, text, name, trace=trace(number + 10 * len(text)))
    deliver(store, b"Subject: third\r\n\r\n", ALICE, header=TO)
    assert len(numbers(store)) == 5
    copy_messages(store, box(store, BOB).entry, box(store).entry, [1])      # refers to the same number
    mailbox = box(store, BOB)
    remove(store, mailbox.entry, [1])
    let_go(store, 2**31)
    purge(store.partitions["primary"], 2**31)
    assert len(numbers(store)) == 5
    assert texts(store)[-1] == trace(2 + 10 * len(BODY)) + BODY
    remove(store, box(store).entry, [1, 4])
    remove(store, box(store, CAROL).entry, [1])
    let_go(store, 2**31)
    purge(store.partitions["primary"], 2**31)
    assert texts(store) == [trace(1 + 10 * len(other)) + other, to(ALICE) + b"Subject: third\r\n\r\n"]
    assert sorted(numbers(store).values()) == sorted([trace(n + 10 * len(other)) for n in (2, 3)] + [to(ALICE)])
    assert check(store) == []
    forget_everything(store, ALICE, BOB, CAROL)
    assert numbers(store) == {5: to(ALICE)} and len(rows_of_table(store)) == 3      # the last number, it, its digest
    assert check(store) == []


def test_who_asks_for_the_number_without_a_message_has_it_for_ever(store):
    deliver(store, BODY, ALICE, trace=trace(1))
    deliver(store, BODY, BOB, trace=trace(2))
    partition = store.partitions["primary"]
    assert partition.transact(lambda txn: partition.private_headers.numbers([trace(2)], txn.handle)) == {trace(2): 1}
    forget_everything(store, ALICE, BOB)
    assert numbers(store) == {1: trace(2)} and check(store) == []


def test_two_messages_with_the_same_fields(store):
    """They are no longer of one message alone."""
    for text in (BODY, BODY + b"x"):
        deliver(store, text, ALICE, trace=trace(1))
        deliver(store, text, BOB, trace=trace(2))
    remove(store, box(store).entry, [1])
    remove(store, box(store, BOB).entry, [1])
    let_go(store, 2**31)
    purge(store.partitions["primary"], 2**31)
    assert texts(store, BOB) == [trace(2) + BODY + b"x"]
    assert check(store) == []


def test_a_message_that_is_purged_meanwhile(store, faults):
    """The number is given, and before the delivery comes to its transaction the content goes: it is stored anew."""
    deliver(store, BODY, ALICE, trace=trace(1))
    remove(store, box(store).entry, [1])
    let_go(store, 2**31)

    def purged(real, partition, headers, staged, own, seconds):
        found = real(partition, headers, staged, own, seconds)
        if own:
            purge(partition, 2**31)
        return found

    faults.around(commit, "_numbers", purged)
    staged = store.stage(box(store, BOB).entry, trace(2))
    staged.write(BODY)
    outcome, = offload.now(durable.deliver(store, staged, [Target(box(store, BOB).entry)]))
    assert isinstance(outcome, Delivered)
    assert texts(store, BOB) == [trace(2) + BODY] == files(store)
    assert box(store, BOB).rows["head"].tolist() == [0]
    assert check(store) == []


def test_a_lost_file_that_comes_again_is_not_kept_twice(store):
    """Its trace header is in the file then."""
    deliver(store, BODY, ALICE, trace=trace(1))
    partition = store.partitions["primary"]
    partition.files.drop_staged_names()
    next(partition.files.folder.glob("?/??/*")).unlink()
    deliver(store, BODY, BOB, trace=trace(2))
    assert texts(store, BOB) == [trace(2) + BODY] == files(store)
    assert box(store, BOB).rows["head"].tolist() == [0]


def test_a_refused_target_is_charged_for_them(store):
    """To the octet: the fields count, as in a first delivery."""
    deliver(store, BODY, ALICE, trace=trace(1))
    roots.set_quota(store, "bob", len(trace(2) + BODY) - 1)
    refused, = deliver(store, BODY, BOB, trace=trace(2))
    assert isinstance(refused, StoreError) and refused.problem is Problem.QUOTA_GRACE_ENDED
    roots.set_quota(store, "bob", len(trace(2) + BODY))
    assert isinstance(deliver(store, BODY, BOB, trace=trace(3))[0], Delivered)


def twice(store):
    """Both ways in three mailboxes: the first delivery's fields in the file, the second one's beside it."""
    for number in range(4):
        text = BODY + b"%d" % number
        first, second = (ALICE, BOB) if number % 2 else (BOB, ALICE)
        deliver(store, text, first, trace=trace(number))
        deliver(store, text, second, trace=trace(number + 20), header=TO if number > 1 else b"")
    return texts(store), texts(store, BOB)


def test_copies_moves_and_what_is_undeleted(store):
    before, _ = twice(store)
    archive = namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    copy_messages(store, box(store).entry, archive, [1, 2, 3, 4], remove=True)
    assert texts(store, "user/alice/Archive") == before
    remove(store, archive, [1, 2, 3, 4])
    deletion.undelete_messages(store, archive)
    assert texts(store, "user/alice/Archive") == before


def test_on_another_partition(store):
    volumes.add(store, "second")
    carol = firstuse.inbox(store, store.directory.add("carol", "*", partition="second"))
    before, _ = twice(store)
    offload.now(crosspartition.copy_durably(store, box(store).entry, carol, np.array([1, 2, 3, 4], np.uint32),
                                            remove=False))
    assert texts(store, CAROL) == before
    assert check(store) == []


def test_they_go_with_the_message_on_another_partition(store):
    """Not so what an address says: other messages have it."""
    volumes.add(store, "second")
    carol = firstuse.inbox(store, store.directory.add("carol", "*", partition="second"))
    for body in (BODY, BODY + b"x"):
        deliver(store, body, BOB, trace=trace(1))
        deliver(store, body, ALICE, trace=trace(2 + len(body)))
        deliver(store, body, ALICE, header=TO)
    offload.now(crosspartition.copy_durably(store, box(store).entry, carol, box(store).rows["uid"], remove=True))
    partition = store.partition_of(carol)
    kept = lambda: sorted(octets for number, octets in partition.private_headers.all() if number)   # noqa: E731
    assert kept() == sorted([to(ALICE), trace(2 + len(BODY)), trace(3 + len(BODY))])
    remove(store, carol, store.open_mailbox(carol).rows["uid"])
    let_go(store, 2**31)
    purge(partition, 2**31)
    assert kept() == [to(ALICE)] and check(store) == []


def test_an_address_that_was_a_moved_messages_own_is_everybodys_by_a_delivery(store):
    """The first message that has it is purged; the second keeps it."""
    volumes.add(store, "second")
    carol = firstuse.inbox(store, store.directory.add("carol", "*", partition="second"))
    deliver(store, BODY, ALICE, header=TO)
    offload.now(crosspartition.copy_durably(store, box(store).entry, carol, box(store).rows["uid"], remove=True))
    deliver(store, b"Subject: other\r\n\r\n", CAROL, header=to(ALICE))
    remove(store, carol, [1])
    let_go(store, 2**31)
    purge(store.partition_of(carol), 2**31)
    assert texts(store, CAROL) == [to(ALICE) + b"Subject: other\r\n\r\n"] and check(store) == []


def test_what_is_kept_for_no_message_is_found_and_let_go(store):
    partition = store.partitions["primary"]
    partition.transact(lambda txn: partition.private_headers.numbers([trace(7)], txn.handle, b"m" * 32))
    finding, = check(store)
    assert finding.what == "header fields are kept for a message that is no more"
    assert [one.what for one in correct_headers(partition)] == ["header fields were kept for a message that is no more"]
    assert numbers(store) == {} and check(store) == []


def test_a_snapshot_shows_and_gives_them_after_the_purge(store):
    before, _ = twice(store)
    name = taking.create(store).name
    forget_everything(store, ALICE, BOB)
    with readers_of(store).used(name) as snapshot:
        mailbox = snapshot.open_mailbox(snapshot.mailbox(box(store).entry, "INBOX"))
        found = []
        for row in mailbox.rows:
            with snapshot.open_message(mailbox.entry, row) as file:
                found.append(file.read(0, file.size))
        assert found == before
        snapshotcopy.bring_back(snapshot, mailbox, box(store).entry, mailbox.rows["uid"].tolist())
    assert texts(store) == before
    assert check(store) == []


@pytest.mark.parametrize("lost", [["index"], ["index/heads.db"], ["index/messages.db"]])
def test_a_rebuild_gives_them_back(tmp_path, lost):
    root = tmp_path / "store"
    store = make_store(root)
    before = twice(store)
    writing.write_changed(store, hurry=True)
    store.close()
    if lost == ["index"]:
        for folder in (root / "mboxlist", root / "partitions" / "primary" / "index"):
            shutil.rmtree(folder)
        rebuild(root, SMALL)
    else:
        (root / "partitions" / "primary" / lost[0]).unlink()
    store = open_store(root, SMALL)
    assert (texts(store), texts(store, BOB)) == before
    assert check(store) == []
    forget_everything(store, ALICE, BOB)
    assert check(store) == []
    store.close()
