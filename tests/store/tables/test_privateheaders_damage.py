"""Header fields that each recipient has of its own: damaged records and tables, and reading."""


import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.message.sections import section
from store.opening import open_store
from store.partition.messagereading import MessageFile
from store.partition.serials import FORMAT
from store.quota import roots
from store.rebuild.recount import recount
from store.rebuild.repair import repair_mailbox
from store.search.mailboxsearch import search
from store.search.searchkeys import Body, Header, Text
from store.tables.index import ROW
from store.tables.privateheaders import UNKNOWN
from store.userarea import idxfile, idxreading, writing
from store.userarea.writing import write_changed
from tests.store.tables.headed import ALICE, BOB, BODY, TO, TRACE, box, change, spoil, texts, to
from tests.support.stores.stores import SMALL, deliver, make_store

# Damage

DAMAGES = [{"head": 2}, {"head": 77}, {"head": 0}, {"size": 5}, {"header_length": 9}, {"head": 2, "size": 1 << 60}]


@pytest.mark.parametrize("fields", DAMAGES)
@pytest.mark.parametrize("written", [True, False])
def test_a_damaged_record_gets_its_own_back(store, fields, written):
    """From store.idx, also when the flags have changed since; without one, a record that cannot be told says less."""
    deliver(store, BODY, ALICE, trace=TRACE, header=TO)
    deliver(store, BODY, BOB, trace=TRACE, header=b"X: 2\r\n")
    if written:
        write_changed(store)
    spoil(store, **fields)
    repair_mailbox(store, store.entry(MailboxName.parse(ALICE)))
    known = to(ALICE) if written or "head" not in fields else b"X: 2\r\n" if fields["head"] == 2 else b""
    assert texts(store) == [known + TRACE + BODY]
    assert roots.quota(store, "alice").octets == len(known + TRACE + BODY)


def test_a_repair_knows_numbers_of_store_idx_by_what_they_mean(store):
    """The file may be of a time before a rebuild."""
    deliver(store, BODY, BOB, header=b"X: 1\r\n")
    deliver(store, BODY, ALICE, header=TO)
    write_changed(store)
    path = writing.right_place(store.partitions["primary"], box(store).entry, 0)
    left = idxreading.read(path)
    rows = left.rows.copy()
    rows["head"] = 55
    idxfile.write(path, idxfile.Contents(left.head, rows, left.own, {55: to(ALICE)}))
    spoil(store, head=1, size=1)
    repair_mailbox(store, store.entry(MailboxName.parse(ALICE)))
    assert texts(store) == [to(ALICE) + BODY]
    write_changed(store)


@pytest.mark.parametrize("fields", DAMAGES)
def test_what_a_record_says_wrong_is_found_and_corrected(store, fields):
    deliver(store, BODY, ALICE, trace=TRACE, header=TO)
    deliver(store, BODY, BOB, trace=TRACE, header=b"X: 2\r\n")
    change(store, **fields)
    assert any("UID 1 is not what is known of its message" == finding.what for finding in check(store))
    recount(store, store.partitions["primary"])
    texts(store)


@pytest.mark.parametrize("first", [TRACE, b""])
def test_a_record_that_is_right_is_left_alone(store, first):
    """Also where the fields are as long as the trace header that the message does not show."""
    deliver(store, BODY, BOB, trace=first)
    for trace in (b"", TRACE):
        deliver(store, BODY, ALICE, trace=trace, header=b"X: ".ljust(len(TRACE) - 2, b"y") + b"\r\n")
        deliver(store, BODY, ALICE, trace=trace)
    before = box(store)
    assert recount(store, store.partitions["primary"]) == []
    assert store.refresh(before) is before


def test_fields_that_are_lost(store):
    deliver(store, BODY, ALICE, header=TO)
    change(store, head=77)
    private_headers = store.partitions["primary"].private_headers
    assert private_headers.sizes(box(store).rows).tolist() == [UNKNOWN]
    with pytest.raises(StoreError) as refused:
        texts(store)
    assert refused.value.problem is Problem.CORRUPT
    assert not search(store, box(store), Header("delivered-to", "alice")).any()
    recount(store, store.partitions["primary"])
    assert texts(store) == [BODY]


@pytest.mark.parametrize(("key", "value"), [
    (bytes(4), bytes(4)), ((1).to_bytes(4, "big"), b"X: other\r\n"), ((9).to_bytes(4, "big"), b"X: 9\r\n")])
def test_a_damaged_table_is_found(store, key, value):
    deliver(store, BODY, ALICE, header=TO)
    partition = store.partitions["primary"]
    old = partition.private_headers._table.get(key)
    partition.transact(lambda txn: partition.private_headers._table.put(key, value, txn.handle))
    assert any(finding.where.startswith("header fields") for finding in check(store))
    if old is None:
        partition.transact(lambda txn: partition.private_headers._table.delete(key, txn.handle))
    else:
        partition.transact(lambda txn: partition.private_headers._table.put(key, old, txn.handle))


@pytest.mark.long
def test_a_store_of_another_format_is_refused(tmp_path):
    """The first format had records of 88 octets, and no number of its own."""
    store = make_store(tmp_path / "store")
    deliver(store, BODY, ALICE)
    partition = store.partitions["primary"]
    meta = partition.states.get(bytes(4))
    store.close()
    for number, data in ((1, meta[:12]), (FORMAT + 1, meta[:12] + (FORMAT + 1).to_bytes(4, "little"))):
        put_meta(tmp_path / "store", data)
        for _ in range(2):              # the first try changes nothing
            with pytest.raises(StoreError, match=f"the format {number} .* knows format {FORMAT}") as refused:
                open_store(tmp_path / "store", SMALL)
            assert refused.value.problem is Problem.UNAVAILABLE
    put_meta(tmp_path / "store", meta)
    store = open_store(tmp_path / "store", SMALL)
    assert texts(store) == [BODY]
    store.close()


def put_meta(root, meta):
    """What state.db says of the partition."""
    env = Env(root / "partitions/primary/index", cache=1 << 20, locks=1000, recover=True, broken=lambda: None)
    table = env.table("state.db", page=4096)
    transact(env, lambda txn: table.put(bytes(4), meta, txn))
    env.checkpoint()
    env.close()


# Reading

@given(st.binary(max_size=9), st.binary(max_size=20), st.integers(0, 9))
def test_reading_goes_through_both(tmp_path_factory, head, content, header_length):
    path = tmp_path_factory.getbasetemp() / "message"
    path.write_bytes(content)
    whole = head + content[header_length:]
    with open(path, "rb") as plain, MessageFile(-1, 0, 0):
        file = MessageFile(plain.fileno(), min(header_length, len(content)), len(whole), head)
        assert file.end == len(content)
        for offset in range(len(whole) + 2):
            for count in range(len(whole) + 2):
                assert file.read(offset, count) == whole[offset:offset + count]


def test_a_file_that_is_too_short_is_damaged(tmp_path):
    (tmp_path / "message").write_bytes(b"12345")
    with open(tmp_path / "message", "rb") as plain:
        file = MessageFile(plain.fileno(), 0, 9, b"abc")
        assert file.read(0, 8) == b"abc12345"
        with pytest.raises(StoreError) as refused:
            file.read(0, 9)
        assert refused.value.problem is Problem.CORRUPT and file.end == 6


NESTED = (b"Content-Type: multipart/mixed; boundary=b\r\nSubject: outer\r\n\r\n--b\r\n\r\npart one\r\n--b\r\n"
          b"Content-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\ntext two\r\n--b--\r\n")


@pytest.mark.parametrize("trace", [TRACE, b""])
@pytest.mark.parametrize("first", [TRACE, b""])
def test_parts_are_where_they_are(store, first, trace):
    """Whether the file has a trace header or not, and the message shows it or not."""
    deliver(store, NESTED, BOB, trace=first)
    deliver(store, NESTED, ALICE, trace=trace, header=TO)
    mailbox = box(store)
    row, text = mailbox.rows[0], texts(store)[0]
    cached, = store.cached(mailbox.entry, mailbox.rows)
    wanted = {((1,), None): b"part one", ((2, 1), None): b"text two", ((2,), "HEADER"): b"Subject: inner\r\n\r\n",
              ((2,), "MIME"): b"Content-Type: message/rfc822\r\n\r\n", ((), None): to(ALICE) + trace + NESTED,
              ((), "HEADER"): to(ALICE) + trace + NESTED.partition(b"\r\n\r\n")[0] + b"\r\n\r\n",
              ((), "TEXT"): NESTED.partition(b"\r\n\r\n")[2]}
    for (path, what), expected in wanted.items():
        start, end = section(cached, path, what, int(row["header_length"]),
                             len(to(ALICE)) + (len(trace) if trace != first else 0))
        assert text[start:end] == expected, (path, what)


def test_they_are_searched(store):
    """RFC 3501 §6.4.4: HEADER and TEXT, and BODY no more than before."""
    for number in range(2):
        deliver(store, NESTED + b"%d" % number, ALICE, trace=TRACE, header=TO * number)
    mailbox = box(store)

    def found(key):
        return search(store, mailbox, key).tolist()

    assert found(Header("Delivered-To", "user/ALICE")) == [False, True]
    assert found(Header("Delivered-To", "")) == [False, True]
    assert found(Text("user/alice")) == [False, True]
    assert found(Body("user/alice")) == [False, False]
    for words in ("part one", "text two", "inner"):
        assert found(Body(words)) == found(Text(words)) == [True, True]
    assert found(Header("Subject", "outer")) == found(Header("Return-Path", "a@example.org")) == [True, True]


def test_sizes_of_no_records(store):
    assert store.partitions["primary"].private_headers.sizes(np.empty(0, ROW)).tolist() == []
