"""Cache records in an archive: what comes back is not parsed anew, and what is wrong with them harms nothing."""

import struct

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store.backup import cachemembers, restore
from store.backup.archive import Archive
from store.backup.creation import Making, Scope
from store.backup.restore import Restoring
from store.check.wholecheck import check
from store.delivery.batch import one_by_one
from store.message import mime
from store.message.cacherecord import CachedMessage, fits
from tests.support.faults.planted import Faults
from tests.support.stores.messages import changed
from tests.support.stores.stores import deliver, make_store

TRACE = b"Return-Path: <sender@example.org>\r\nReceived: by mail.example.org\r\n"
COUNT = 6
LONGER = struct.pack("<QQQHBBBBB", 0, 20, 999, 0, 0, 4, 5, 4, 8) + b"TEXTPLAIN7BITUS-ASCII"


@pytest.fixture
def archive(tmp_path, faults):
    """A function that writes an archive of a store, and gives its path; and the cache records that the store has."""
    faults.around(restore, "Contents", lambda real, partition: real(partition, one_by_one))
    store = make_store(tmp_path / "store")
    for number in range(COUNT):
        deliver(store, b"Subject: number %d\r\n\r\n%d\r\n" % (number, number), "user/alice/INBOX",
                trace=TRACE if number % 2 else b"")

    def write():
        path = tmp_path / "archive.tar"
        with path.open("wb") as file:
            Making(store, Scope()).write(file.write)
        return path

    yield write, records(store)
    store.close()


def records(store):
    partition = store.partitions["primary"]
    known = list(partition.refs.all())
    records = partition.serials.cached([each.serial for _, each in known])
    return {digest: record for (digest, _), record in zip(known, records, strict=True)}


def parsed(monkeypatch, tmp_path, path):
    """How many messages a restore parses, and the cache records that come of it."""
    made = []

    class Scanner(mime.Scanner):
        def __init__(self):
            made.append(self)
            super().__init__()

    monkeypatch.setattr("store.partition.staged.Scanner", Scanner)
    store = make_store(tmp_path / "second", users=())
    done = Restoring(store, [Archive(path)]).run()
    assert (done.messages, done.findings) == (COUNT, [])
    rows = store.open_mailbox(store.entry(MailboxName("alice", "INBOX"))).rows
    assert len(rows) == COUNT and check(store) == []
    found = records(store)
    store.close()
    return len(made), found


def test_what_comes_back_is_not_parsed(archive, tmp_path, monkeypatch):
    write, before = archive
    assert parsed(monkeypatch, tmp_path, write()) == (0, before)


@pytest.mark.parametrize("wrong", ["none", "damaged", "version", "length", "trace", "another"])
def test_what_is_wrong_is_rendered_again(archive, tmp_path, monkeypatch, wrong):
    write, before = archive

    def pack(_, values, digests, traces):
        packed = []
        for at, data in enumerate(values):
            if wrong == "another":                          # the record of a message that has another length
                data = changed(CachedMessage.from_bytes(data), table=LONGER).data
            elif wrong == "version":
                data = data[:36] + struct.pack("<H", 3) + data[38:]
            elif wrong == "trace":
                data = data[:32] + struct.pack("<I", int(traces[at]) + 1) + data[36:]
            elif wrong == "length":
                data = data[:38] + struct.pack("<I", 1 << 30) + data[42:]
            if wrong != "none":
                packed.append(struct.pack("<I", len(data) + (1 << 20 if wrong == "damaged" else 0)) + data)
        return b"".join(packed)

    with Faults() as planted:
        planted.around(cachemembers, "pack", pack)
        path = write()
    count, found = parsed(monkeypatch, tmp_path, path)
    assert found == before
    assert count == COUNT


def test_only_sound_records_are_carried_and_none_that_is_large(monkeypatch):
    good = CachedMessage.of(b"\x01" * 32, 5, b"e", b"s", b"b", b"table")
    bad = changed(good, digest=b"\x02" * 32)
    large = changed(good, digest=b"\x03" * 32, fields=bytes(cachemembers.LARGEST_RECORD_OCTETS))
    values = [good.data, bad.data, large.data, None]
    packed = cachemembers.pack(values, [b"\x01" * 32, b"\x04" * 32, b"\x03" * 32, b"\x05" * 32], np.array([5, 5, 5, 5]))
    assert packed == struct.pack("<I", len(values[0])) + values[0]
    monkeypatch.setattr(cachemembers, "MEMBER_OCTETS", 10)
    assert cachemembers.pack(values[:1], [b"\x01" * 32], np.array([5])) == b""
    assert not fits(changed(good, table=b""), good.digest, 5, 5)
