"""Scrub finds each kind of damage to message files, and reads no faster than it may."""

import hashlib
import os
import random

import pytest

from mboxlist.names import MailboxName
from store.check import scrub as scrubbing
from store.check.scrub import FOLDERS, MOST_OCTETS, Pace, Stopped, low_priority, scrub
from store.check.wholecheck import check
from store.mailboxes.expunge import remove
from store.values import RESTORE
from tests.support.stores.purging import purge
from tests.support.stores.stores import deliver, let_go, make_store

pytestmark = pytest.mark.long

TRACE = b"Return-Path: <a@example.org>\r\n"
BODY = b"Subject: x\r\n\r\nhello\r\n"


def findings(store, **options):
    return [finding for folder in scrub(store.partitions["primary"], Pace(), **options) for finding in folder.findings]


def message(store, body: bytes = BODY, trace: bytes = TRACE) -> str:
    """The path of a new message's file."""
    deliver(store, body, "user/alice/INBOX", "user/bob/INBOX", trace=trace)
    return store.partitions["primary"].files.path(hashlib.blake2b(body, digest_size=32).digest())


@pytest.mark.parametrize("body", [BODY, random.Random(1).randbytes(2 * MOST_OCTETS + 17), b""])
def test_nothing_wrong(store, body):
    message(store, body)
    message(store, body + b"\r\nother", b"")
    folders = list(scrub(store.partitions["primary"], Pace()))
    assert [folder.number for folder in folders] == list(range(FOLDERS))
    assert sum(folder.files for folder in folders) == 2
    assert not any(folder.findings for folder in folders)


def test_a_folder_that_is_missing(tmp_path):
    """It is named, as the one cause of what was lost with it, and the others are looked at."""
    store = make_store(tmp_path / "store")
    path = message(store)
    store.partitions["primary"].files.drop_staged_names()
    os.unlink(path)
    os.rmdir(os.path.dirname(path))
    assert sorted(finding.what for finding in findings(store)) == ["the folder is missing"]
    assert (os.path.dirname(path), "the folder is missing") in {(each.where, each.what) for each in check(store)}


def overwrite(path, at, octets):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(octets)


@pytest.mark.parametrize(("damage", "what"), [
    (lambda path: overwrite(path, len(TRACE), b"s"), "does not agree with its digest"),
    (lambda path: overwrite(path, len(TRACE) + len(BODY) - 1, b"\r"), "does not agree with its digest"),
    (lambda path: overwrite(path, len(TRACE) + len(BODY), b"."), "its file has 52 octets instead of 51"),
    (lambda path: os.truncate(path, 3), "its file has 3 octets instead of 51"),
    (os.unlink, "its file is missing"),
])
def test_damage(tmp_path, damage, what):
    store = make_store(tmp_path / "store")
    path = message(store)
    store.partitions["primary"].files.drop_staged_names()      # or else a lost file is there under its staged name
    damage(path)
    found, = findings(store)
    assert what in found.what
    assert found.where == f"message {os.path.basename(path)}"
    assert found.repair == RESTORE
    store.close()


def test_a_file_that_cannot_be_read(store, faults):
    message(store)
    faults.fail(os, "preadv", OSError(5, "Input/output error"))
    found, = findings(store)
    assert found.what == "its file cannot be read: Input/output error"


def test_without_reading_from_memory_alone(store, faults):
    """A file system that does not know RWF_NOWAIT, or whose pages are not in memory."""
    path = message(store)
    faults.fail(os, "preadv", BlockingIOError(11, "Resource temporarily unavailable"),
                when=lambda file, buffers, offset, flags=0: flags)
    assert findings(store) == []
    overwrite(path, len(TRACE) + 3, b"x")
    assert len(findings(store)) == 1
    overwrite(path, len(TRACE) + 3, BODY[3:4])


def test_files_that_nobody_knows(store):
    known = message(store)
    folder = os.path.dirname(known)
    strays = [os.path.join(folder, name) for name in (
        os.path.basename(known)[:-2] + "zz", os.path.basename(known).upper(), os.path.basename(known)[:-1] + " ",
        os.path.basename(known)[:40], "stray")]
    strays.append(store.partitions["primary"].files.path(b"\xff" * 32))
    for path in strays:
        open(path, "xb").close()
    assert {finding.where for finding in findings(store)} == set(strays)
    assert {finding.where for finding in findings(store, sweep=True)} == set(strays)
    assert findings(store) == []
    assert os.listdir(folder) == [os.path.basename(known)]


def test_what_waits_for_the_purge(store):
    """Its file is read, too, since it may be brought back; when a purge was cut off, there is none."""
    path = message(store)
    for user in ("alice", "bob"):
        remove(store, store.entry(MailboxName(user, "INBOX")), [1])
    partition = store.partitions["primary"]
    partition.files.drop_staged_names()
    overwrite(path, len(TRACE), b"s")
    assert len(findings(store)) == 1
    let_go(store)
    assert len(findings(store)) == 1
    os.unlink(path)
    assert findings(store) == []
    assert purge(partition, 1 << 31) == 1


def test_what_comes_and_goes_meanwhile(store, faults):
    """A file is purged after its record was read, and comes again with another header."""
    path = message(store)
    partition = store.partitions["primary"]
    folder = int(os.path.basename(path)[:3], 16)

    def purge_first(*arguments):
        for user in ("alice", "bob"):
            remove(store, store.entry(MailboxName(user, "INBOX")), [1])
        assert purge(partition, 1 << 31) == 1
        message(store, trace=TRACE + b"Received: again\r\n")

    faults.first(partition.files, "open", purge_first)
    done = next(scrub(partition, Pace(), first=folder))
    assert (done.name, done.files, done.findings) == (os.path.basename(path)[:3], 1, [])


def test_the_rate_holds_on_the_average(store):
    now = [100.0]
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    message(store, b"x" * 100_000, b"")
    pace = Pace(20_000, lambda: now[0], sleep)
    list(scrub(store.partitions["primary"], pace))
    assert pace.octets == 100_000
    assert now[0] - 100 == pytest.approx(5)
    assert max(slept) < 0.3                 # so that it stops soon when it should


def test_time_spent_otherwise_counts():
    now = [0.0]
    slept = []
    pace = Pace(1000, lambda: now[0], slept.append)
    pace.count(500)
    now[0] = 2.0
    pace.count(500)
    assert slept == [0.5]


def test_it_stops_between_two_reads(store):
    message(store, b"x" * (3 * MOST_OCTETS), b"")
    asked = []

    def stop():
        asked.append(None)
        return len(asked) == 3

    pace = Pace()
    with pytest.raises(Stopped):
        list(scrub(store.partitions["primary"], pace, stop=stop))
    assert pace.octets == 2 * MOST_OCTETS


def test_priority_is_given_back():
    get = scrubbing._IOPRIO_SET.get(os.uname().machine)
    if get is None:
        pytest.skip("no call numbers for this machine")
    before = scrubbing._libc.syscall(get[1], 1, 0)
    with low_priority():
        assert scrubbing._libc.syscall(get[1], 1, 0) == scrubbing._IDLE
    assert scrubbing._libc.syscall(get[1], 1, 0) >> 13 == before >> 13
