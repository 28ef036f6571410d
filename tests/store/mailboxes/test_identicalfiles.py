"""Octets that lie twice become one file with two names; what only looks like it stays."""

import os
from pathlib import Path

from mboxlist.names import MailboxName
from store.mailboxes import firstuse, identicalfiles
from store.mailboxes.expunge import remove
from store.partitions import volumes
from tests.support.stores.stores import HASH, deliver, let_go, make_store, unlist

TRACE = b"Return-Path: <a@example.org>\r\nReceived: from a by b;\r\n\tMon, 1 Jan 2024 00:00:00 +0000\r\n"
BODY = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"


def files(store, partition="primary"):
    return sorted((store.root / "partitions" / partition / "messages").glob("?/??/*"))


def texts(store, user):
    entry = store.entry(MailboxName(user, "INBOX"))
    box = store.open_mailbox(entry)
    found = []
    for row in box.rows:
        with store.partition_of(entry).open_message(row) as file:
            found.append(file.read(0, file.size))
    return found


def run(store, **options):
    return [(double.why, done) for double, done in identicalfiles.relink(store, **options)]


def test_a_content_and_its_trace_header(store):
    """One user has a delivered message, the other one has stored it as it was shown: two digests, equal octets."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    deliver(store, TRACE + BODY, "user/bob/INBOX")
    store.partitions["primary"].files.drop_staged_names()
    one, two = files(store)
    assert one.read_bytes() == two.read_bytes() == TRACE + BODY and not os.path.samefile(one, two)
    assert run(store, change=False) == [("trace", True)] and not os.path.samefile(one, two)
    assert run(store) == [("trace", True)]
    assert os.path.samefile(one, two) and os.stat(one).st_nlink == 2
    assert run(store) == []
    assert texts(store, "alice") == texts(store, "bob") == [TRACE + BODY]
    assert not list((store.root / "partitions/primary/staging").glob("*.new"))


def test_other_trace_headers_stay(store):
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    deliver(store, TRACE.replace(b"a by b", b"c by d") + BODY, "user/bob/INBOX")        # as long, and not the same
    deliver(store, TRACE.replace(b"a by b", b"longer by d") + BODY, "user/bob/INBOX")
    store.partitions["primary"].files.drop_staged_names()
    assert run(store) == [("trace", False)]
    assert all(os.stat(path).st_nlink == 1 for path in files(store))


def test_one_name_goes_and_the_other_stays(store):
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    found, = deliver(store, TRACE + BODY, "user/bob/INBOX")
    run(store)
    remove(store, store.entry(MailboxName("bob", "INBOX")), [found.uid])
    let_go(store)
    partition = store.partitions["primary"]
    for _, digest in list(partition.refs.waiting(2**32 - 2)):
        partition.files.remove(digest, partition.refs.find(digest).serial)
        unlist(partition, digest)
        partition.transact(lambda txn, digest=digest: txn.refs.forget([digest], lambda *_: True, txn.handle))
    assert len(files(store)) == 1 and texts(store, "alice") == [TRACE + BODY]


def two_partitions(tmp_path, other_trace=TRACE):
    store = make_store(tmp_path / "store")
    volumes.add(store, "archive")
    firstuse.inbox(store, store.directory.add("dave", HASH, partition="archive"))
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    deliver(store, BODY, "user/dave/INBOX", trace=other_trace)
    return store, files(store)[0], files(store, "archive")[0]


def test_several_partitions_of_one_file_system(tmp_path):
    store, one, two = two_partitions(tmp_path)
    assert not os.path.samefile(one, two)
    assert run(store) == [("partition", True)]
    assert os.path.samefile(one, two)
    one.unlink()
    assert texts(store, "dave") == [TRACE + BODY]
    store.close()


def test_the_octets_of_the_one_file_are_on_disk_before_the_other_one_goes(tmp_path, faults):
    """Of one that has just come they may be in a file journal, for the sake of its own name, which a purge takes."""
    store, one, two = two_partitions(tmp_path)
    synced = []
    faults.before(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, os.path.samefile(one, two))))
    run(store)
    assert (one.stat().st_ino, False) in synced and os.path.samefile(one, two)
    store.close()


def test_the_same_content_with_another_trace_header_stays(tmp_path):
    store, one, two = two_partitions(tmp_path, TRACE.replace(b"from a", b"from z"))
    assert run(store) == [("partition", False)]
    assert not os.path.samefile(one, two)
    store.close()


def test_partitions_of_two_file_systems(tmp_path, faults):
    store, one, two = two_partitions(tmp_path)
    faults.around(identicalfiles, "_device", lambda _, partition: partition.name)
    assert run(store) == []
    store.close()


def test_a_file_left_in_staging(tmp_path):
    """A restore that knows no hard links makes two files of the two names of a message that has just come."""
    store = make_store(tmp_path / "store")
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    partition = store.partitions["primary"]
    partition.files.drop_staged_names()
    (digest, record), = partition.refs.all()
    staged = Path(partition.files.staged_path(record.serial))
    staged.write_bytes(TRACE + BODY)
    assert run(store) == []                     # somebody may be at work on it
    os.utime(staged, (1, 1))
    assert run(store, change=False) == [("staging", True)] and staged.exists()
    assert run(store) == [("staging", True)]
    assert not staged.exists() and texts(store, "alice") == [TRACE + BODY]
    staged.write_bytes(TRACE + BODY.upper())
    os.utime(staged, (1, 1))
    assert run(store) == [("staging", False)] and staged.exists()
    staged.unlink()
    store.close()


def test_it_was_cut_off(store):
    """Between the two steps there is a name more, in a place that every start clears."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    deliver(store, TRACE + BODY, "user/bob/INBOX")
    one, two = files(store)
    staging = store.root / "partitions/primary/staging"
    for path in (one, two):
        os.link(path, staging / f"{path.name}.new")
    assert run(store) == [("trace", True)] and os.path.samefile(one, two)
    assert len(list(staging.glob("*.new"))) <= 1
    for path in staging.glob("*.new"):
        path.unlink()


def test_a_file_that_is_gone(store, faults):
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    deliver(store, TRACE + BODY, "user/bob/INBOX")
    faults.around(identicalfiles, "_same_octets", lambda _, one, two: bool(one.rename(one.with_suffix(".away"))))
    assert run(store) == [("trace", False)]
    for path in files(store):
        if path.suffix:
            path.rename(path.with_suffix(""))
