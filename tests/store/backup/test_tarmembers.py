"""Archives of earlier versions are read, and headers that somebody has made up do no harm."""

import io
import tarfile
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.backup.archive import Archive
from store.backup.compression import Chunk
from store.backup.integrity import verify
from store.backup.restore import Restoring
from store.backup.tarmembers import Cut, Lost, Member, MemberReader, heading
from store.check.wholecheck import check
from store.opening import make_empty_store, open_store

ARCHIVES = Path(__file__).parent / "archives"       # written by the version of November 2026, before `tarfile` was used
LONG = "Ä long name " * 9 + "/end"


def test_archives_of_an_earlier_version(tmp_path: Path) -> None:
    archives = [Archive(ARCHIVES / name) for name in ("full.tar.gz", "later.tar.zst")]
    found = verify(archives)
    assert (found.messages, found.mailboxes, found.records, found.findings) == (9, 5, 21, [])
    make_empty_store(tmp_path / "other")
    store = open_store(tmp_path / "other")
    done = Restoring(store, archives).run()
    assert (done.messages, done.findings) == (15, [])
    assert store.status(store.entry(MailboxName("alice", LONG))).messages == 9
    assert check(store) == []
    store.close()


def read(*blocks: bytes) -> list[tuple[str, int] | int]:
    """Name and size of each member, or how many octets are lost."""
    reader = MemberReader(iter([Chunk(0, b"".join(blocks))]))
    found: list[tuple[str, int] | int] = []
    for each in reader.all():
        found.append(each.octets if isinstance(each, Lost) else (each.name, each.size))
        if isinstance(each, Member):
            with pytest.raises(Cut):
                each.octets(100)
    return found


END = bytes(1024)


def test_headers() -> None:
    for name, size in (("short", 0), ("x" * 300, 5), (LONG, 5), ("large", 9 << 33)):
        data = bytes(5) + bytes(507) if size == 5 else b""
        block = heading(name, size, {"digest": "0"}, 1)
        info = tarfile.TarFile(fileobj=io.BytesIO(block)).next()
        assert info is not None and (info.name, info.size) == (name, size)
        assert read(block, data, END) == [(name, size)]


def test_headers_are_those_of_tarfile() -> None:
    for name, size, mtime in (("", 0, 0), ("short", 8**11 - 1, 1), ("x" * 100, 5, 8**11 - 1), ("x" * 101, 5, 1),
                              (LONG, 5, 1), ("large", 8**11, 1), ("late", 0, 8**11), ("early", 0, -5)):
        for said in ({"digest": "0"}, {"digest": "ab" * 32, "trace": "12345"}, {}):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = size, 0o600, max(0, mtime)
            info.pax_headers = {"comment": " ".join(f"{key}={value}" for key, value in said.items())}
            assert heading(name, size, said, mtime) == info.tobuf(tarfile.PAX_FORMAT)


def changed(block: bytes, at: int, octets: bytes) -> bytes:
    """A header with other octets, whose checksum is right."""
    data = block[:at] + octets + block[at + len(octets):]
    total = sum(data) - sum(data[148:156]) + 8 * 32
    return data[:148] + b"%06o\0 " % total + data[156:]


def test_a_header_that_was_made_up() -> None:
    good = heading("good", 0, {"digest": "0"}, 1)
    last = heading("bad", 0, {"digest": "0"}, 1)[-512:]
    for bad in (changed(last, 124, b"\xff" * 12),                                   # a size below 0
                changed(good, 124, b"-0000000001\0"), changed(good, 124, b"77777777777\0"),     # of a pax header
                good[:-512] + changed(last, 124, b"-0000000001\0"), changed(last, 148, b"junk"), b"junk" * 128):
        assert read(bad, good, END)[-1] == ("good", 0)
    pax = tarfile.TarInfo("bad")
    for keywords in ({"size": "-5"}, {"size": "x"}, {"GNU.sparse.map": "1,x"}, {"GNU.sparse.major": "1",
                                                                            "GNU.sparse.minor": "0"}):
        pax.pax_headers = keywords
        assert read(pax.tobuf(tarfile.PAX_FORMAT), good, END)[-1] == ("good", 0)
