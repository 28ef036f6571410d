"""Header fields that each recipient has of its own, while the message file is one."""

import multiprocessing
import shutil

import numpy as np
import pytest
from berkeleydb import db
from hypothesis import given
from hypothesis import strategies as st

from mboxlist.kv import Deadlock, Env, transact
from mboxlist.names import MailboxName
from store import idxfile, moving, partitions, portable, removal
from store.accounting import sharing
from store.check import check
from store.copying import copy_messages
from store.deliver import Delivered, Target
from store.errors import Problem, StoreError
from store.expunge import purge, remove
from store.heads import LOST, UNKNOWN, Heads
from store.index import ROW, chunk_key, encode
from store.messagefiles import MessageFile
from store.net import offload
from store.partition import FORMAT
from store.portable import write_changed
from store.rebuild import rebuild
from store.recount import recount
from store.repair import repair_mailbox
from store.search import search
from store.searchkeys import Body, Header, Text
from store.sections import section
from store.store import Store
from tests.support.stores import SMALL, deliver, make_store, reopen_after_crash

BODY = b"From: a@example.org\r\nSubject: x\r\n\r\nhello\r\n"
TRACE = b"Return-Path: <a@example.org>\r\nReceived: from relay\r\n"
TO = b"Delivered-To: {}\r\n"
ALICE, BOB = "user/alice/INBOX", "user/bob/INBOX"
_context = multiprocessing.get_context("fork")


def to(name: str) -> bytes:
    return TO.replace(b"{}", name.encode())


def box(store, name=ALICE):
    return store.open_mailbox(store.entry(MailboxName.parse(name)))


def texts(store, name=ALICE):
    """The messages of a mailbox, whose sizes are what they have."""
    mailbox, found = box(store, name), []
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found.append(file.read(0, file.size + 9))
    assert [len(each) for each in found] == mailbox.rows["size"].tolist()
    assert mailbox.state.octets == sum(map(len, found))
    return found


def files(store):
    return [path.read_bytes() for partition in store.partitions.values()
            for path in partition.files.folder.glob("?/??/*")]


def change(store, **fields):
    """Change fields of the first record of alice's INBOX."""
    partition, entry = store.partitions["primary"], box(store).entry
    key = chunk_key(entry.id, 0)
    rows = box(store).rows.copy()
    for name, value in fields.items():
        rows[name][0] = value
    partition.transact(lambda txn: partition.index.put(key, encode(rows), txn.handle))


def spoil(store, **fields):
    """The same, and the chunk does not agree with its checksum."""
    change(store, **fields)
    partition, key = store.partitions["primary"], chunk_key(box(store).entry.id, 0)
    value = partition.index.get(key)
    partition.transact(lambda txn: partition.index.put(key, value[:-1] + bytes((value[-1] ^ 1,)), txn.handle))


def test_each_recipient_has_its_own_and_there_is_one_file(store):
    store.inbox(store.directory.add("carol", "*"))
    targets = [ALICE, BOB, "user/carol/INBOX"]
    outcomes = deliver(store, BODY, *targets, trace=TRACE, header=TO)
    assert [type(outcome) for outcome in outcomes] == [Delivered] * 3
    for target in targets:
        assert texts(store, target) == [to(target) + TRACE + BODY]
        owner = target.split("/")[1]
        assert store.quota(owner).octets == len(to(target) + TRACE + BODY)
    assert files(store) == [TRACE + BODY]


def test_with_and_without_in_one_delivery(store):
    staged = store.stage(box(store).entry)
    staged.write(BODY)
    offload.now(offload.deliver(store, staged, [
        Target(box(store).entry, header=b"A: 1\r\nB: 2\r\n"), Target(box(store, BOB).entry)]))
    assert texts(store) == [b"A: 1\r\nB: 2\r\n" + BODY]
    assert texts(store, BOB) == [BODY]


def test_a_message_without_the_first_ones_trace_header(store):
    """Fields of one's own, and no part of the file's trace header."""
    deliver(store, BODY, ALICE, trace=TRACE, header=TO)
    deliver(store, BODY, BOB, trace=b"Return-Path: <b@example.org>\r\n", header=TO)
    assert texts(store, BOB) == [to(BOB) + BODY]
    assert files(store) == [TRACE + BODY]


def test_quota_counts_them_to_the_octet(store):
    size = len(to(ALICE) + BODY)
    store.set_quota("alice", size - 1)
    refused, = deliver(store, BODY, ALICE, header=TO)
    assert isinstance(refused, StoreError) and refused.problem is Problem.QUOTA_GRACE_ENDED     # it can never fit
    store.set_quota("alice", size)
    assert isinstance(deliver(store, BODY, ALICE, header=TO)[0], Delivered)
    assert store.quota("alice").octets == size


def test_the_same_fields_have_the_same_number(store):
    for targets in ([ALICE], [ALICE, BOB], [BOB, ALICE]):       # known, or new, or both
        assert all(isinstance(each, Delivered) for each in deliver(store, BODY, *targets, header=TO))
    first, second = box(store).rows["head"].tolist(), box(store, BOB).rows["head"].tolist()
    assert len(set(first)) == len(set(second)) == 1 and first[0] != second[0]
    assert box(store).rows["spare"].tolist() == [0] * 3
    heads = dict(store.partitions["primary"].heads.all())
    assert {first[0]: to(ALICE), second[0]: to(BOB), 0: (2).to_bytes(4, "big")} == heads


def test_a_number_is_for_ever(store):
    """It outlives the message, and the store's end."""
    deliver(store, BODY, ALICE, header=TO)
    number = int(box(store).rows["head"][0])
    remove(store, box(store).entry, [1])
    purge(store.partitions["primary"], 2**31)
    store.close()
    store.__init__(store.root, SMALL)
    deliver(store, BODY, BOB, header=TO)
    deliver(store, BODY, ALICE, header=TO)
    assert box(store).rows["head"].tolist() == [number]
    assert box(store, BOB).rows["head"].tolist() == [number + 1]


def test_there_is_a_last_number(store):
    heads = store.partitions["primary"].heads
    last = (LOST - 2).to_bytes(4, "big")
    store.partitions["primary"].transact(lambda txn: heads._table.put(bytes(4), last, txn.handle))
    assert isinstance(deliver(store, BODY, ALICE, header=TO)[0], Delivered)
    refused, = deliver(store, BODY, BOB, header=TO)
    assert refused.problem is Problem.LIMIT
    assert texts(store, BOB) == []
    assert isinstance(deliver(store, BODY, ALICE, header=TO)[0], Delivered)


def test_who_gives_a_number_makes_others_wait(store, monkeypatch):
    partition = store.partitions["primary"]
    impatient, plain = partition.env._env.txn_begin(None, db.DB_TXN_NOWAIT), Heads.number

    def number(heads, octets, txn):
        monkeypatch.undo()
        try:
            with pytest.raises(Deadlock):
                heads.numbers([b"B: 2\r\n"], impatient)
        finally:
            impatient.abort()
        return plain(heads, octets, txn)

    monkeypatch.setattr(Heads, "number", number)
    assert partition.transact(lambda txn: partition.heads.numbers([b"A: 1\r\n"], txn.handle)) == {b"A: 1\r\n": 1}


def give(root, start, pipe, offset):
    """Have numbers given, one text after the other and all of them new, in a process of its own."""
    store = Store(root, SMALL)
    partition = store.partitions["primary"]
    start.wait()
    found = {}
    for at in range(150):
        some = [b"X: %d\r\n" % ((at + step * offset) % 150) for step in range(2)]
        found |= partition.transact(lambda txn, some=some: partition.heads.numbers(some, txn.handle))
    store.close()
    pipe.send(found)


def test_processes_that_give_numbers_at_the_same_moment_agree(tmp_path):
    make_store(tmp_path / "store").close()
    start, pipes = _context.Barrier(3), [_context.Pipe() for _ in range(3)]
    processes = [_context.Process(target=give, args=(tmp_path / "store", start, pipes[at][1], at), daemon=True)
                 for at in range(3)]
    try:
        for process in processes:
            process.start()
        assert all(pipe.poll(120) for pipe, _ in pipes)
        found = [pipe.recv() for pipe, _ in pipes]
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    assert found[0] == found[1] == found[2]
    assert sorted(found[0].values()) == list(range(1, 151))
    store = Store(tmp_path / "store", SMALL)
    assert check(store) == []
    store.close()


# What is done to messages

def test_copies_and_what_is_brought_back_have_them(store):
    deliver(store, BODY, ALICE, BOB, trace=TRACE, header=TO)
    deliver(store, BODY, ALICE, header=b"")
    shown = [to(ALICE) + TRACE + BODY, BODY]
    archive = store.create_mailbox(MailboxName("alice", "Archive"))
    copy_messages(store, box(store).entry, archive, [1, 2])
    assert texts(store, "user/alice/Archive") == shown
    copy_messages(store, box(store).entry, archive, [1], remove=True)
    assert texts(store, "user/alice/Archive") == [*shown, shown[0]]
    assert texts(store) == [shown[1]]
    assert store.quota("alice").octets == 2 * sum(map(len, shown))
    remove(store, archive, [1, 3])
    assert [each.size for each in removal.deleted_messages(store, archive)] == [len(shown[0])] * 2
    assert store.quota("alice").octets == 2 * len(BODY)
    removal.undelete_messages(store, archive)
    assert texts(store, "user/alice/Archive") == [shown[1], shown[0], shown[0]]
    store.delete_mailbox(archive.name)
    removal.undelete_mailbox(store, archive.name)
    assert texts(store, "user/alice/Archive") == [shown[1], shown[0], shown[0]]
    assert store.quota("alice").octets == len(BODY) * 2 + len(shown[0]) * 2
    remove(store, box(store, "user/alice/Archive").entry, [2, 4, 5])
    remove(store, box(store).entry, [2])
    purge(store.partitions["primary"], 2**31)
    assert texts(store, BOB) == [to(BOB) + TRACE + BODY]


@pytest.fixture
def two(store):
    """On the second partition numbers mean other fields."""
    partitions.add(store, "second")
    store.inbox(store.directory.add("carol", "*", partition="second"))
    for number in range(3):
        deliver(store, b"%d" % number, "user/carol/INBOX", header=b"X: %d\r\n" % number)
    return store


@pytest.mark.parametrize("move", [False, True])
def test_copies_on_another_partition_have_them(two, move):
    deliver(two, BODY, ALICE, BOB, trace=TRACE, header=TO)
    deliver(two, BODY, ALICE)
    before = texts(two)
    carol = box(two, "user/carol/INBOX").entry
    offload.now(offload.copy(two, box(two).entry, carol, np.array([1, 2], np.uint32), remove=move))
    assert texts(two, "user/carol/INBOX")[3:] == before
    assert texts(two) == [] if move else before
    offload.now(offload.copy(two, box(two, BOB).entry, carol, np.array([1], np.uint32)))
    assert texts(two, "user/carol/INBOX")[5:] == texts(two, BOB)
    deliver(two, BODY, "user/carol/INBOX", header=to(ALICE))
    assert box(two, "user/carol/INBOX").rows["head"][[3, 6]].tolist() == [4, 4]


def test_a_user_who_moves_takes_them_along(two):
    for number in range(70):
        deliver(two, BODY + b"%d" % number, ALICE, BOB, trace=TRACE, header=TO if number % 3 else b"")
    remove(two, box(two).entry, [5])
    before = texts(two)
    quota = two.quota("alice")
    moving.move_owner(two, "alice", "second")
    assert texts(two) == before
    assert two.quota("alice") == quota
    removal.undelete_messages(two, box(two).entry)
    assert texts(two)[-1] == to(ALICE) + TRACE + BODY + b"4"
    moving.move_owner(two, "alice", "primary")
    assert texts(two)[:69] == before


def test_fields_of_which_nothing_is_known_do_not_move(two):
    deliver(two, BODY, ALICE)
    change(two, head=99)
    with pytest.raises(StoreError) as refused:
        moving.move_owner(two, "alice", "second")
    assert refused.value.problem is Problem.CORRUPT
    change(two, head=0)
    assert texts(two) == [BODY]


def test_a_crash_loses_none_that_was_acknowledged(store):
    deliver(store, BODY, ALICE, trace=TRACE, header=TO)
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert texts(store) == [to(ALICE) + TRACE + BODY]
    deliver(store, BODY, BOB, trace=TRACE, header=TO)
    assert texts(store, BOB) == [to(BOB) + TRACE + BODY]


def lose_databases(root):
    for folder in (root / "mboxlist", *(each / "index" for each in (root / "partitions").iterdir())):
        shutil.rmtree(folder)


def test_a_rebuild_gives_them_back(tmp_path):
    root = tmp_path / "store"
    store = make_store(root)
    deliver(store, BODY, BOB, header=b"X: only bob's\r\n")
    for number in range(3):
        deliver(store, BODY + b"%d" % number, ALICE, BOB, trace=TRACE, header=TO * (number + 1))
    before = texts(store), texts(store, BOB)
    store.close()
    lose_databases(root)
    assert [each.what for each in rebuild(root, settings=SMALL).findings] == ["it is inactive, and has no password"] * 2
    store = Store(root, SMALL)
    assert (texts(store), texts(store, BOB)) == before
    assert check(store) == []
    store.close()


def test_a_rebuild_without_them_gives_the_rest_and_says_so(tmp_path):
    """As when all their blocks in store.idx are damaged."""
    root = tmp_path / "store"
    store = make_store(root)
    deliver(store, BODY, ALICE, BOB, trace=TRACE, header=TO)
    deliver(store, BODY, ALICE)
    deliver(store, BODY + b"!", ALICE, header=TO)
    path = portable.right_place(store.partitions["primary"], box(store).entry, 0)
    store.close()
    left = idxfile.read(path)
    idxfile.write(path, idxfile.Contents(left.head, left.rows))
    lose_databases(root)
    told = [each.where for each in rebuild(root, settings=SMALL).findings if "header fields" in each.what]
    assert told == [f"{ALICE}, UID 1", f"{ALICE}, UID 3"]
    store = Store(root, SMALL)
    assert texts(store) == [TRACE + BODY, BODY, BODY + b"!"]
    assert texts(store, BOB) == [to(BOB) + TRACE + BODY]
    assert check(store) == []
    store.close()


def test_they_are_in_no_file_that_is_accounted_for(store):
    deliver(store, BODY, ALICE, BOB, trace=TRACE, header=TO)
    deliver(store, BODY + b"!", ALICE, header=TO)
    one, two, own = len(TRACE + BODY), len(BODY + b"!"), len(to(ALICE))
    users = sharing(store).users
    assert (users["alice"].octets, users["bob"].octets) == (one + two + 2 * own, one + len(to(BOB)))
    assert users["alice"].fair + users["bob"].fair == one + two == sum(map(len, files(store)))
    assert (users["alice"].unique, users["alice"].freed) == (two + own, two)
    remove(store, box(store).entry, [1, 2])
    remove(store, box(store, BOB).entry, [1])
    assert sharing(store).waiting == {"primary": one + two}


# Damage

DAMAGES = [{"head": 2}, {"head": 77}, {"head": 0}, {"size": 5}, {"skip": 9}, {"spare": 1}, {"head": 2, "size": 1 << 60}]


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
    assert box(store).rows["spare"].tolist() == [0]
    assert store.quota("alice").octets == len(known + TRACE + BODY)


def test_a_repair_knows_numbers_of_store_idx_by_what_they_mean(store):
    """The file may be of a time before a rebuild."""
    deliver(store, BODY, BOB, header=b"X: 1\r\n")
    deliver(store, BODY, ALICE, header=TO)
    write_changed(store)
    path = portable.right_place(store.partitions["primary"], box(store).entry, 0)
    left = idxfile.read(path)
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
    assert box(store).rows["spare"].tolist() == [0]
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
    heads = store.partitions["primary"].heads
    assert heads.sizes(box(store).rows).tolist() == [UNKNOWN]
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
    old = partition.heads._table.get(key)
    partition.transact(lambda txn: partition.heads._table.put(key, value, txn.handle))
    assert any(finding.where.startswith("header fields") for finding in check(store))
    if old is None:
        partition.transact(lambda txn: partition.heads._table.delete(key, txn.handle))
    else:
        partition.transact(lambda txn: partition.heads._table.put(key, old, txn.handle))


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
                Store(tmp_path / "store", SMALL)
            assert refused.value.problem is Problem.UNAVAILABLE
    put_meta(tmp_path / "store", meta)
    store = Store(tmp_path / "store", SMALL)
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
def test_reading_goes_through_both(tmp_path_factory, head, content, skip):
    path = tmp_path_factory.getbasetemp() / "message"
    path.write_bytes(content)
    whole = head + content[skip:]
    with open(path, "rb") as plain, MessageFile(-1, 0, 0):
        file = MessageFile(plain.fileno(), min(skip, len(content)), len(whole), head)
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
    shown = first if first == trace else b""
    wanted = {((1,), None): b"part one", ((2, 1), None): b"text two", ((2,), "HEADER"): b"Subject: inner\r\n\r\n",
              ((2,), "MIME"): b"Content-Type: message/rfc822\r\n\r\n", ((), None): to(ALICE) + shown + NESTED,
              ((), "HEADER"): to(ALICE) + shown + NESTED.partition(b"\r\n\r\n")[0] + b"\r\n\r\n",
              ((), "TEXT"): NESTED.partition(b"\r\n\r\n")[2]}
    for (path, what), expected in wanted.items():
        start, end = section(cached, path, what, int(row["skip"]), len(to(ALICE)))
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
    assert store.partitions["primary"].heads.sizes(np.empty(0, ROW)).tolist() == []
