"""The format of store.idx, against the table in the module's text; and damage, which costs no more than it hit."""

import errno
import json
import os
import struct
import subprocess
import sys
import zlib
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import Problem, StoreError
from store.tables.index import ROW
from store.userarea import idxfile, idxreading
from store.userarea.idxfile import OWN, Contents, Head

HEAD = Head(id=7, name="user/alice/Archive/2026", owner="alice", partition="primary", uidvalidity=1234, uidnext=501,
            highestmodseq=99, epoch=3, recent=500, created=1_700_000_000, special_use="\\Archive", quota_root="alice",
            limits={"alice": [1000, -1]}, acl={"bob": "lrs", "-carol": "w"}, annotations={"/comment": {"bob": "hé"}},
            keywords=["$Junk", "later"], subscriptions=["Archive/2026"], readers=["bob"], records=300, written=5)


def rows(count, first=1):
    found = np.zeros(count, ROW)
    found["uid"] = np.arange(first, first + count)
    found["size"] = found["uid"] * 10
    found["digest"] = np.frombuffer(b"".join(bytes([n % 251]) * 32 for n in range(count)), "V32")
    return found


def own(count):
    found = np.zeros(count, OWN)
    found["chunk"] = np.arange(count)
    found["own"]["flags"][:, 3] = 1
    return found


FIELDS = {1: b"A: b\r\n", 7: b"Delivered-To: bob@example.org\r\n" + b"X: y\r\n" * 40, 9: b"X:" + b" y" * 26 + b"\r\n"}


def contents(count=300, readers=2, private_headers=FIELDS):
    return Contents(evolve(HEAD, records=count), rows(count), own(readers), private_headers)


def octets(made):
    return b"".join(idxfile.encode(made))


def same(left, right):
    return left.tobytes() == right.tobytes()


@pytest.mark.parametrize(("count", "readers"), [(0, 0), (1, 0), (64, 1), (65, 9), (1000, 40)])
def test_what_is_written_is_read(tmp_path, count, readers):
    made = contents(count, readers)
    size = idxfile.write(tmp_path / "store.idx", made)
    found = idxreading.read(tmp_path / "store.idx")
    assert found.head == made.head == idxreading.read_head(tmp_path / "store.idx")
    assert same(found.rows, made.rows)
    assert same(found.own, made.own)
    assert found.private_headers == made.private_headers
    assert (tmp_path / "store.idx").stat().st_size == size
    assert [path.name for path in tmp_path.iterdir()] == ["store.idx"]
    assert (tmp_path / "store.idx").stat().st_mode & 0o777 == 0o600


def test_the_form_is_the_documented_one():
    """Read with nothing but `struct`, as another program would."""
    data = octets(contents())
    magic, version, count = struct.unpack_from("<8sII", data)
    assert (magic, version) == (b"\x89onecopy", 2)
    assert struct.unpack_from("<QI", data, 496) == (len(data), 0)
    assert struct.unpack_from("<I", data, 508) == (zlib.crc32(data[:508]),)
    assert data[-512:] == data[:512]
    sections = [struct.unpack_from("<8sQQII", data, 16 + 32 * number) for number in range(count)]
    assert [name.rstrip(b"\0") for name, *_ in sections] == [b"head", b"rows", b"heads", b"own", b"head"]
    for _, start, size, _, block in sections:
        assert start % 8 == 0
        blocks = [data[at:min(at + block, start + size)] for at in range(start, start + size, block)]
        assert data[start - 4 * len(blocks):start] == b"".join(struct.pack("<I", zlib.crc32(each)) for each in blocks)
    _, start, size, item, _ = sections[2]
    assert (size, item) == (7 * 64, 64)             # 6, 271 and 56 octets, 56 in a piece
    assert struct.unpack_from("<II56s", data, start) == (1, 6, b"A: b\r\n".ljust(56, b"\0"))
    assert [struct.unpack_from("<II", data, start + 64 * at) for at in range(1, 6)] == [(7, 271)] * 5
    assert struct.unpack_from("<II56s", data, start + 64 * 6) == (9, 56, FIELDS[9])
    _, start, size, item, _ = sections[1]
    assert (size, item) == (300 * 96, 96)
    assert struct.unpack_from("<I", data, start + 299 * 96) == (300,)
    assert json.loads(data[sections[0][1]:sections[0][1] + sections[0][2]])["name"] == "user/alice/Archive/2026"


def test_header_fields_of_which_a_piece_is_lost_are_lost():
    many = {number: b"X-%d: %s\r\n" % (number, b"y" * number) for number in range(1, 151)}
    data = bytearray(octets(contents(3, 0, many)))
    start = struct.unpack_from("<8sQ", data, 16 + 64)[1]
    pieces = [number for number, each in many.items() for _ in range(0, len(each), 56)]
    data[start + 64 * 70] ^= 1                      # in the second block of 64
    left = idxreading.decode(bytes(data))
    lost = set(pieces[64:128])
    assert left.private_headers == {number: each for number, each in many.items() if number not in lost}
    assert left.findings == [f"its section heads has lost 64 of {len(pieces)} items"]
    assert len(left.rows) == 3


def test_unknown_sections_and_fields_are_skipped(tmp_path):
    """A later program may add both to a file of version 2."""
    data = bytearray(octets(contents(2, 0, {})))
    more = b"something new"
    directory = bytearray(data[:512])
    struct.pack_into("<I", directory, 12, 4)
    at = len(data) - 512
    at += -(at + 4) % 8
    struct.pack_into("<8sQQII", directory, 16 + 32 * 3, b"extra", at + 4, len(more), 1, len(more))
    body = bytes(data[512:-512]).ljust(at - 512, b"\0") + struct.pack("<I", zlib.crc32(more)) + more
    struct.pack_into("<Q", directory, 496, len(body) + 1024)
    struct.pack_into("<I", directory, 508, zlib.crc32(directory[:508]))
    (tmp_path / "store.idx").write_bytes(bytes(directory) + body + bytes(directory))
    assert idxreading.read(tmp_path / "store.idx").rows["uid"].tolist() == [1, 2]
    text = json.dumps(json.loads(HEAD.to_bytes()) | {"colour": "blue"}).encode()
    assert Head.from_bytes(text) == HEAD


def test_another_version_is_named(tmp_path):
    data = bytearray(octets(contents()))
    for at in (0, len(data) - 512):
        struct.pack_into("<I", data, at + 8, 1)
        struct.pack_into("<I", data, at + 508, zlib.crc32(data[at:at + 508]))
    (tmp_path / "store.idx").write_bytes(data)
    for read in (idxreading.read, idxreading.read_head):
        with pytest.raises(StoreError, match="version 1") as error:
            read(tmp_path / "store.idx")
        assert error.value.problem is Problem.CORRUPT


@pytest.mark.parametrize("record", [0, 63, 64, 150, 299])
def test_a_flipped_bit_costs_one_block(record):
    data = bytearray(octets(contents()))
    start = struct.unpack_from("<8sQ", data, 16 + 32)[1]
    data[start + record * 96 + 40] ^= 1
    left = idxreading.decode(bytes(data))
    first = record // 64 * 64
    lost = set(range(first + 1, min(first + 64, 300) + 1))
    assert set(left.rows["uid"].tolist()) == set(range(1, 301)) - lost
    assert left.findings == [f"its section rows has lost {len(lost)} of 300 items"]
    assert left.head == HEAD


@pytest.mark.parametrize("which", [0, 1])
def test_one_damaged_head_or_directory_costs_nothing(tmp_path, which):
    whole = octets(contents())
    start = struct.unpack_from("<8sQ", whole, 16 + 32 * (0, 3)[which])[1]
    for at in (start + 5, (40, len(whole) - 400)[which]):
        data = bytearray(whole)
        data[at] ^= 0x80
        path = tmp_path / "store.idx"
        path.write_bytes(data)
        left = idxreading.read_what_is_left(path)
        assert left.head == idxreading.read_head(path) == HEAD
        assert same(left.rows, rows(300))
        assert len(left.findings) == 1
        with pytest.raises(StoreError) as error:
            idxreading.read(path)
        assert error.value.problem is Problem.CORRUPT


def test_without_a_head_the_records_are_left(tmp_path):
    data = bytearray(octets(contents()))
    for number in (0, 4):
        data[struct.unpack_from("<8sQ", data, 16 + 32 * number)[1] + 5] ^= 1
    left = idxreading.decode(bytes(data))
    assert left.head is None
    assert same(left.rows, rows(300))
    assert left.findings == ["its head is lost"]


def test_a_file_that_was_cut_short_keeps_what_it_has():
    whole = octets(contents())
    start = struct.unpack_from("<8sQ", whole, 16 + 32)[1]
    left = idxreading.decode(whole[:start + 130 * 96])
    assert left.rows["uid"].tolist() == list(range(1, 129))
    assert left.head == HEAD
    assert left.findings


def test_uids_ascend_in_what_is_read():
    made = contents(5, 0)
    made.rows["uid"] = [3, 1, 1, 0, 9]
    left = idxreading.decode(octets(made))
    assert left.rows["uid"].tolist() == [1, 3, 9]
    assert left.findings == ["its UIDs do not ascend"]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_damage_is_noticed_or_harmless(data):
    """Some octets are changed, taken out or put in: what is read is what was written, or something is reported."""
    whole = octets(contents(200, 1))
    at = data.draw(st.integers(0, len(whole)))
    gone = data.draw(st.integers(0, 600))
    broken = whole[:at] + data.draw(st.binary(max_size=600)) + whole[at + gone:]
    left = idxreading.decode(broken)
    assert left.findings or broken == whole or (left.head == evolve(HEAD, records=200) and same(left.rows, rows(200))
                                                and left.private_headers == FIELDS)
    assert left.private_headers.items() <= FIELDS.items()
    known = {row.tobytes() for row in rows(200)}
    assert all(row.tobytes() in known for row in left.rows)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([b"head", b"rows", b"own", b"heads", b""]), st.integers(0, 2**64 - 1) |
                          st.integers(0, 3000), st.integers(0, 2**64 - 1) | st.integers(0, 3000),
                          st.sampled_from([0, 1, 64, 96, 584, 2**32 - 1]),
                          st.sampled_from([0, 1, 512, 6144, 2**32 - 1])),
                max_size=15), st.integers(0, 2**32 - 1) | st.integers(0, 15), st.binary(max_size=3000))
def test_a_directory_that_lies_is_no_danger(entries, count, body):
    directory = struct.pack("<8sII", b"\x89onecopy", 2, count if count > 15 else len(entries))
    directory += b"".join(struct.pack("<8sQQII", *entry) for entry in entries)
    directory = directory.ljust(508, b"\0")
    directory += struct.pack("<I", zlib.crc32(directory))
    left = idxreading.decode(directory + body)
    assert left.findings
    assert left.rows.nbytes <= len(body)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside,
                                                                                  max_size=3), max_leaves=10)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(json.loads(HEAD.to_bytes()))), JSON, max_size=5))
def test_a_head_of_anything_is_a_head_or_a_value_error(values):
    try:
        head = Head.from_bytes(json.dumps(json.loads(HEAD.to_bytes()) | values).encode())
    except ValueError:
        return
    assert Head.from_bytes(head.to_bytes()) == head


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"7", b"nonsense", b"\xff", b"[" * 100_000, b'{"id": true}',
                                  HEAD.to_bytes().replace(b'"id":7', b'"id":-1'),
                                  HEAD.to_bytes().replace(b"Archive", b"\\ud800"),
                                  HEAD.to_bytes().replace(b'"id":7', b'"id":' + b"9" * 10_000)])
def test_what_is_no_head(data):
    with pytest.raises(ValueError):
        Head.from_bytes(data)


def test_it_is_read_without_any_database():
    """As by a program on another machine that has the files and not the libraries of the store."""
    program = ("import sys\nfor name in ('berkeleydb', 'twisted'): sys.modules[name] = None\n"
               "import store.userarea.idxfile, store.rebuild.userareascan")
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(idxfile.__file__).parents[2])


def test_a_missing_file_is_no_damage(tmp_path):
    for read in (idxreading.read, idxreading.read_head, idxreading.read_what_is_left):
        with pytest.raises(StoreError) as error:
            read(tmp_path / "store.idx")
        assert error.value.problem is Problem.UNAVAILABLE


@pytest.mark.parametrize(("code", "problem"), [(errno.ENOSPC, Problem.DISK_FULL), (errno.EIO, Problem.UNAVAILABLE),
                                               (errno.EMFILE, Problem.UNAVAILABLE)])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, faults, code, problem, call):
    path = tmp_path / "store.idx"
    idxfile.write(path, contents(10))
    faults.fail(os, call, OSError(code, os.strerror(code)))
    with pytest.raises(StoreError) as error:
        idxfile.write(path, contents(20))
    faults.mend()
    assert error.value.problem is problem
    assert len(idxreading.read(path).rows) == 10
    assert [each.name for each in tmp_path.iterdir()] == ["store.idx"]


MANY = range(1001)              # more entries than a mailbox can have
BAD = {
    "annotations": [[], {"/shared/a": "x"}, {"/shared/a": {"": 7}}, {"/shared/a": {"": None}}, {"/a\0b": {"": "eA=="}},
                    {"/shared/a": {"bob\0": "eA=="}}, {"/shared/a": {"b" * 300: "eA=="}},
                    {"/" + "x" * 300: {"": "eA=="}},
                    {"/shared/a": {"": "x" * 100_000}}, {f"/shared/{number}": {"": ""} for number in MANY},
                    {"/private/a": {f"user{number}": "" for number in MANY}},
                    {f"/private/{number % 20}": {f"{user}": "" for user in range(51)} for number in range(20)}],
    "acl": [[], {"bob": 7}, {"bob": "lrs" * 5}, {"bob\0": "l"}, {"b" * 300: "l"},
            {f"user{number}": "l" for number in MANY}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_what_no_mailbox_can_have_is_no_head(name, value):
    with pytest.raises(ValueError, match=name):
        Head.from_bytes(json.dumps(json.loads(HEAD.to_bytes()) | {name: value}).encode())


def test_as_much_as_a_mailbox_can_have_is_a_head():
    head = evolve(HEAD, acl={f"user{number}": "lrswipkxtea" for number in MANY[:1000]},
                  annotations={"/shared/" + "x" * 247: {"": b64encode(bytes(1 << 16)).decode()},
                               "/private/a": {f"user{number}": "" for number in MANY[:999]}})
    assert Head.from_bytes(head.to_bytes()) == head
