"""What back ends say to each other, octet by octet; and callers who say other things."""

import errno
import json
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mboxlist.usermoves import Move, Phase
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.usermove import messageformat
from store.usermove.greeting import Refused, greet_called, greet_caller
from store.usermove.messageformat import BadMessage, Ended, Message, encode, receive
from store.usermove.peer import refusal_of, said_of
from store.usermove.receivemailboxes import Arrival
from store.usermove.responder import Session
from store.usermove.targetside import IncomingMoves
from tests.support.stores.movepair import LIMIT, ONE, TWO, Plain, make_back_end

VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
                      | st.dictionaries(st.text(), inner, max_size=3), max_leaves=5)


def reader(data: bytes, piece: int = 1 << 20):
    view = memoryview(data)

    def read(count: int) -> bytes:
        nonlocal view
        some, view = view[:min(count, piece)], view[min(count, piece):]
        return bytes(some)

    return read


# Messages

def test_a_message_octet_by_octet():
    said = encode({"op": "file", "octets": 3}, b"abc")
    assert said == struct.pack(">II", 24, 3) + b'{"op":"file","octets":3}' + b"abc"
    for piece in (1, 2, 7, 100):
        found = receive(reader(said, piece))
        assert found.fields == {"op": "file", "octets": 3} and found.octets == b"abc"


@pytest.mark.parametrize("data", [
    b"", b"\0", struct.pack(">II", 2, 0) + b"{", struct.pack(">II", 2, 5) + b"{}1234"])
def test_what_ends_too_early_is_no_message(data):
    with pytest.raises(Ended):
        receive(reader(data))


@pytest.mark.parametrize("data", [
    struct.pack(">II", messageformat.FIELDS_OCTETS + 1, 0), struct.pack(">II", 0, messageformat.DATA_OCTETS + 1),
    b"\xff" * 8,
    struct.pack(">II", 0, 0), struct.pack(">II", 2, 0) + b"[]", struct.pack(">II", 4, 0) + b"\xff\xfe{}",
    struct.pack(">II", 100_000, 0) + b"[" * 100_000, struct.pack(">II", 4, 0) + b"null"])
def test_what_is_no_message(data):
    with pytest.raises(BadMessage):
        receive(reader(data))


@given(st.binary(max_size=200))
def test_any_octets_are_a_message_or_none(data):
    try:
        receive(reader(data), 100, 100)
    except (BadMessage, Ended):
        pass


@given(st.dictionaries(st.sampled_from(["a", "b"]), VALUES))
def test_any_field_is_what_is_asked_for_or_refused(fields):
    message = Message(fields)
    for ask in (lambda: message.text("a"), lambda: message.number("a"), lambda: message.truth("a"),
                lambda: message.numbers("a", 2), lambda: message.texts("a", 2)):
        try:
            ask()
        except BadMessage:
            pass


def test_a_message_has_limits():
    with pytest.raises(ValueError, match="too long"):
        encode({}, bytes(messageformat.DATA_OCTETS + 1))
    with pytest.raises(ValueError, match="too long"):
        encode({"a": "x" * messageformat.FIELDS_OCTETS})


def test_a_refusal_comes_as_it_was_said():
    refusal = StoreError(Problem.DISK_FULL, "no room", "partition x")
    again = refusal_of(Message(said_of(refusal)))
    assert (again.problem, again.public, again.detail) == (Problem.DISK_FULL, "no room", "partition x")
    for odd in ({"error": "NOTHING"}, {"error": 3}, {"error": "BUSY"}):
        assert refusal_of(Message(odd)).problem is Problem.UNAVAILABLE


def test_a_move_is_stored_as_it_is():
    move = Move("alice", "id", Phase.GONE, TWO, "primary", (1, 2), (), ("INBOX",))
    assert Move.from_bytes("alice", move.to_bytes()) == move


# The first messages

def greet(names: set[str], known: set[str], host: str):
    """What each side comes to."""
    ends = [Plain(each) for each in socket.socketpair()]
    said = []

    def called() -> None:
        try:
            ends[1].socket.settimeout(LIMIT)
            said.append(greet_caller(ends[1], names, known))
        except (Refused, BadMessage, Ended, OSError) as error:
            said.append(error)
        finally:
            ends[1].close()

    thread = threading.Thread(target=called)
    thread.start()
    try:
        ends[0].socket.settimeout(LIMIT)
        greet_called(ends[0], host)
        mine = None
    except (Refused, BadMessage, Ended, OSError) as error:
        mine = error
    finally:
        ends[0].close()
        thread.join(LIMIT)
    return mine, said[0]


def test_a_caller_has_a_name_of_its_certificate():
    assert greet({"x.example.org", ONE}, {ONE, TWO}, ONE.upper()) == (None, ONE)


@pytest.mark.parametrize(("names", "known", "text"), [
    ({TWO}, {ONE, TWO}, "the certificate does not name 'one.example.org'"),
    (set(), {ONE}, "the certificate does not name 'one.example.org'"),
    ({ONE}, {TWO}, "'one.example.org' is not among exchange.peers or exchange.standbys")])
def test_a_caller_by_another_name_is_refused_and_reads_why(names, known, text):
    mine, theirs = greet(names, known, ONE)
    assert isinstance(mine, Refused) and str(mine) == f"it refuses this back end: {text}"
    assert isinstance(theirs, Refused) and str(theirs) == text


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_of_the_language_is_refused(version):
    ends = [Plain(each) for each in socket.socketpair()]
    ends[0].write(encode({"version": version, "host": ONE}))
    with pytest.raises(Refused, match=f"speaks version {version}"):
        greet_caller(ends[1], {ONE}, {ONE})
    greeting = receive(ends[0].read)
    assert greeting.fields == {"onecopy": "user move", "version": messageformat.VERSION}
    ends[1].write(encode({**greeting.fields, "version": version}))
    receive(ends[0].read)
    with pytest.raises(Refused, match="does not speak version"):
        greet_called(ends[0], ONE)
    for each in ends:
        each.close()


def test_little_is_read_of_a_caller_without_a_name():
    ends = [Plain(each) for each in socket.socketpair()]
    ends[0].write(struct.pack(">II", 100_000, 0) + b" " * 100_000)
    with pytest.raises(BadMessage):
        greet_caller(ends[1], {ONE}, {ONE})
    for each in ends:
        each.close()


# Callers who say other things

@pytest.fixture(scope="module")
def there(tmp_path_factory):
    store = make_back_end(tmp_path_factory.mktemp("there"), TWO)
    yield store
    assert check(store) == []
    store.close()


def converse(store, *said: bytes) -> list[Message]:
    """What a session answers; it must end by itself, and harm nothing."""
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT)
    theirs.settimeout(LIMIT)
    session = Session(Plain(theirs), ONE, IncomingMoves(store))
    broken: list[BaseException] = []

    def run() -> None:
        try:
            session.run()
        except BaseException as error:
            broken.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    answers = []
    try:
        for each in said:
            ours.sendall(each)
        ours.shutdown(socket.SHUT_WR)
        while True:
            answers.append(receive(ours.recv))
    except (Ended, OSError):
        pass
    finally:
        thread.join(LIMIT)
        ours.close()
    assert not thread.is_alive()
    assert broken == []
    return answers


BEGIN = encode({"op": "begin", "user": "alice", "move": "1", "partition": "primary"})
EXPECT = encode({"op": "expect", "mailboxes": [7]})
ROWS = {"op": "rows", "mailbox": 7, "partition": "primary", "chunks": [0], "counts": [1]}
FIGURES = {name: 1 for name in ("uidnext", "highestmodseq", "changed", "recent", "messages", "unseen", "deleted",
                                "octets", "log_since", "logged", "removed")} | {"quota_root": "alice"}
ROW = b'{"password":"x","partition":"p","status":"active"}'
FILE = {"op": "file", "digest": "0" * 64, "trace": 0, "octets": 3, "whole": False}


@pytest.mark.parametrize("said", [
    encode({"op": "shutdown"}), encode({}), encode({"op": 3}), encode({"op": "rows"}), encode({"op": "ready"}),
    encode({"op": "ask"}, b"123"), encode({"op": "expect", "mailboxes": [0]}), encode({"op": "data"}, b"x"),
    encode({"op": "begin", "user": 3, "move": "1", "partition": ""}),
    BEGIN + encode({"op": "expect", "mailboxes": ["1"]}), BEGIN + encode({"op": "rows", **ROWS}, bytes(96)),
    BEGIN + EXPECT + encode(ROWS, bytes(95)), BEGIN + EXPECT + encode(ROWS, bytes(96)),
    BEGIN + EXPECT + encode({**ROWS, "chunks": [1]}, (1).to_bytes(4, "little") + bytes(92)),
    BEGIN + EXPECT + encode({**ROWS, "counts": [-1]}, bytes(96)),
    BEGIN + EXPECT + encode({**ROWS, "chunks": [0] * 64, "counts": [1] * 64}, bytes(96 * 64)),
    BEGIN + encode({**FILE, "digest": "00"}), BEGIN + encode({**FILE, "trace": 9}), BEGIN + encode({**FILE,
                                                                                                    "whole": 1}),
    BEGIN + encode(FILE) + encode({"op": "data"}, b"1234"), BEGIN + encode(FILE) + encode({"op": "ready"}),
    BEGIN + encode({"op": "user", "roots": []}, b"[]"), BEGIN + encode({"op": "user", "roots": []}, b'{"partition":1}'),
    BEGIN + encode({"op": "user", "roots": [["bob", 1, 1, 0, 0]]}, ROW),
    BEGIN + encode({"op": "user", "roots": [["alice", -9, 1, 0, 0]]}, ROW),
    BEGIN + EXPECT + encode({"op": "mailbox", "mailbox": 7, "figures": {}, "digest": "", "octets": 2}) + encode(
        {"op": "data"}, b"{}"),
    BEGIN + EXPECT + encode({"op": "mailbox", "mailbox": 7, "figures": FIGURES, "digest": "", "octets": 1 << 40}),
    BEGIN + EXPECT + encode({"op": "vanished", "mailbox": 7, "modseqs": [1], "lengths": [7]}, bytes(7)),
    BEGIN + EXPECT + encode({"op": "own", "mailbox": 7, "chunks": [0], "readers": ["bob"]}, bytes(9)),
    BEGIN + EXPECT + encode({"op": "uidls", "mailbox": 7, "uids": [1], "uidls": ["no spaces"]}),
    BEGIN + encode({"op": "expunged", "mailbox": 7, "partition": "p", "when": 1, "modseq": 1, "keywords": [],
                    "first": 1}, bytes(96)),
    b"\0\0\0\0\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_makes_no_sense_ends_the_connection(there, said, caplog):
    answers = converse(there, said, encode({"op": "look", "user": "zoe", "partition": ""}))
    assert all("error" not in answer.fields for answer in answers)
    assert len(answers) <= 2                            # those before it, and none to what came behind
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) <= 1
    assert not any(record.exc_info for record in caplog.records)


def test_what_the_store_refuses_is_told(there):
    there.directory.add("bob", "*")
    assert [answer.fields.get("error") for answer in converse(
        there, encode({"op": "begin", "user": "bob", "move": "1", "partition": ""}),
        encode({"op": "begin", "user": "../x", "move": "1", "partition": ""}),
        encode({"op": "activate", "user": "alice", "move": "2"}), encode({"op": "drop", "user": "nobody", "move": "2"}),
        encode({"op": "confirm", "user": "nobody", "move": "2"}))] == ["USER_EXISTS", "BAD_NAME", "GONE", None, None]


@pytest.mark.parametrize(("code", "problem"), [(errno.EIO, "UNAVAILABLE"), (errno.ENOSPC, "DISK_FULL")])
def test_a_disk_that_fails_is_told_and_ends_nothing(there, faults, code, problem):
    fails = iter((True, False))
    faults.fail(Arrival, "expect", OSError(code, "the disk says no"), when=lambda *_: next(fails))
    assert [answer.fields.get("error") for answer in converse(there, BEGIN, EXPECT, EXPECT)] == [None, problem, None]


def test_a_file_that_is_not_what_its_digest_says_is_refused(there):
    said = [BEGIN, encode(FILE), encode({"op": "data"}, b"abc"), encode({"op": "ask"})]
    assert [answer.fields.get("error") for answer in converse(there, *said)] == [None, "CORRUPT"]
    there.partitions["primary"].files.drop_staged_names()
    assert list(there.partitions["primary"].refs.all()) == []


def test_nobody_comes_twice_at_the_same_time(there):
    duplicates = IncomingMoves(there)
    with duplicates.alone("alice"), duplicates.alone("carol"):
        with pytest.raises(StoreError) as refused, duplicates.alone("alice"):
            pass
    assert refused.value.problem is Problem.BUSY


@given(st.dictionaries(st.sampled_from(["user", "move", "partition", "mailbox", "mailboxes", "octets", "trace",
                                        "digest"]),
                       VALUES),
       st.sampled_from(["look", "begin", "expect", "ask", "compare", "file", "head", "rows", "expunged", "purged",
                        "user", "subscriptions", "mailbox", "vanished", "own", "uidls", "ready", "activate", "confirm",
                        "drop"]),
       st.binary(max_size=300))
def test_whatever_is_said_is_answered_or_ends_the_connection(there, fields, op, octets):
    try:
        said = encode({**fields, "op": op}, octets)
    except ValueError:
        return
    json.loads(said[8:8 + struct.unpack(">I", said[:4])[0]])
    converse(there, BEGIN, said)
