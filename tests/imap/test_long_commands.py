"""Commands on many messages or mailboxes: they let others in, say how far they are (RFC 9585), and end with the
connection."""

import re

import numpy as np
import pytest

from imap.verbs import listednames, listing, search, sorting
from imap.wire import numbers, responses
from imap.wire.numbers import format_numbers
from store import offload
from store.mailboxes import crosspartition
from store.net.stream import Stream
from tests.imap.test_conversations import NAMES
from tests.support.conversations.scripts import SCRIPTS, Player, content


@pytest.mark.parametrize("name", [name for name in NAMES if "list" in name or "lsub" in name])
def test_many_mailboxes_are_listed_as_few_are(place, monkeypatch, name, faults):
    kinds = faults.watch(offload, "run", lambda store, kind, *_, **__: kind)
    monkeypatch.setattr(listing, "FEW", 0)
    monkeypatch.setattr(listednames, "LINES_AT_A_TIME", 2)
    Player(place).play((SCRIPTS / f"{name}.txt").read_text())
    assert "search" in kinds


def logged_in(place, messages=3):
    for number in range(messages):
        place.deliver("INBOX", content(str(number)))
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\nc CREATE Sent\r\n")
    wire.received()
    return wire


@pytest.mark.parametrize(("command", "where", "what"), [
    (b"SEARCH TEXT this", search, "find"), (b"UID SEARCH RETURN (COUNT) HEADER SUBJECT 1", search, "find"),
    (b"SORT (SUBJECT) UTF-8 ALL", sorting, "sorted_places"), (b"SORT (DATE) UTF-8 TEXT this", search, "find"),
    (b"THREAD REFERENCES UTF-8 BODY this", search, "find"), (b"COPY 1:* Sent", crosspartition, "copy"),
    (b"MOVE 1:* Sent", crosspartition, "copy"), (b'LIST "" *', listing, "joined"),
])
def test_a_command_ends_with_its_connection(place, monkeypatch, caplog, command, where, what, faults):
    """The client goes away while the work is being done in a thread. It is left off: it does not come to its end."""
    monkeypatch.setattr(listing, "FEW", 0)
    for module in ("imap.session", "imap.verbs.copying"):
        monkeypatch.setattr(f"{module}.QUICK_UNITS", 0)
    wire = logged_in(place)
    ended = []
    faults.before(where, what, lambda *_, **__: wire.hang_up())
    faults.after(where, what, lambda *_, **__: ended.append(True))
    wire.received()
    wire.send(b"d " + command + b"\r\n")
    assert ended == [] and wire.received() == b""
    assert place.subjects("INBOX") == "0 1 2" and place.subjects("Sent") == ""
    assert "Traceback" not in caplog.text


def test_threads_are_not_gone_on_with_either(place, monkeypatch):
    wire = logged_in(place)
    real = sorting._ALGORITHMS

    def hang_up(algorithm):
        def work(*args):
            wire.hang_up()
            result = algorithm(*args)
            raise AssertionError(f"it came to its end: {result}")
        return work

    monkeypatch.setattr(sorting, "_ALGORITHMS", {name: hang_up(one) for name, one in real.items()})
    wire.send(b"d THREAD REFERENCES UTF-8 ALL\r\n")
    assert wire.received() == b""


@pytest.mark.parametrize("command", [b"FETCH 1:* (FLAGS BODY.PEEK[])", b"FETCH 1:* ENVELOPE", b"FETCH 1:* FLAGS"])
def test_a_fetch_ends_with_its_connection(place, monkeypatch, command, faults):
    monkeypatch.setattr("imap.verbs.fetch.FIGURES", 1)
    monkeypatch.setattr("imap.verbs.fetch.CACHED", 1)
    monkeypatch.setattr("imap.verbs.fetch.READ", 1)
    wire = logged_in(place, 5)
    batches = faults.watch(Stream, "drain")
    faults.before(Stream, "drain", lambda *_: len(batches) == 1 and wire.hang_up())
    wire.protocol.dataReceived(b"d " + command + b"\r\n")
    assert len(batches) <= 3


def test_the_last_batch_goes_out_with_the_reply(place, monkeypatch):
    """And of a client that sends commands ahead no more than one batch is held back."""
    monkeypatch.setattr("imap.verbs.fetch.FIGURES", 2)
    monkeypatch.setattr("store.net.stream.SMALL_ANSWER", 0)
    wire = logged_in(place, 5)
    pieces = []
    monkeypatch.setattr(wire.transport, "write", pieces.append)
    for commands in (b"d", b"d", b"de"):
        wire.send(b"".join(b"%c FETCH 1:* FLAGS\r\n" % tag for tag in commands))
        assert [piece.count(b" FETCH (") for piece in pieces] == [2, 2, 1] * len(commands)
        assert [piece.count(b" OK ") for piece in pieces] == [0, 0, 1] * len(commands)
        pieces.clear()


def test_how_far_a_search_is(place, monkeypatch, faults):
    wire = logged_in(place, 4)
    monkeypatch.setattr("store.search.matching.PAGE", 1)

    def pass_time(*_, progress):
        unwanted, seconds = progress.unwanted, iter([0, 0, 0, 10, 10, 0])
        progress.unwanted = lambda: place.clock.advance(next(seconds, 0)) or unwanted()

    faults.before(search, "find", pass_time)
    wire.send(b"d SEARCH TEXT this\r\n")
    said = wire.received().decode().split("\r\n")
    told = [line for line in said if "INPROGRESS" in line]
    assert len(told) == 2
    done = []
    for line in told:                   # RFC 9585 §4: the tag, progress and goal
        found = re.fullmatch(r'\* OK \[INPROGRESS \("d" (0|[1-9]\d*) ([1-9]\d*)\)\] [^\r\n\[]+', line)
        assert found and int(found[2]) == 4
        done.append(int(found[1]))
    assert done == sorted(done) and done[-1] <= 4
    assert said[-3:] == ["* SEARCH 1 2 3 4", "d OK SEARCH completed", ""]


def test_in_progress():
    assert responses.in_progress(b"a1") == b'INPROGRESS ("a1" NIL NIL)'
    assert responses.in_progress(b"a1", 0, 7) == b'INPROGRESS ("a1" 0 7)'
    assert responses.in_progress(b"a]1", 3, 7) == b"INPROGRESS"


def test_numbers_are_written_in_pieces(monkeypatch):
    monkeypatch.setattr(numbers, "NUMBERS_AT_A_TIME", 3)
    every = np.array([1, 2, 3, 4, 9, 8, 7, 20, 21, 22, 23, 24, 25, 40])
    assert list(numbers.set_pieces(every)) == [b"1:4,9,8", b"7,20:25,40"]         # no run is cut
    assert format_numbers(every) == b"1:4,9,8,7,20:25,40"
    pieces = list(responses.search_pieces(b"SORT", every, 5))
    assert max(piece.count(b" ") for piece in pieces[1:-1]) == 3
    assert b"".join(pieces) == b"* SORT 1 2 3 4 9 8 7 20 21 22 23 24 25 40 (MODSEQ 5)\r\n"
    assert b"".join(responses.search_pieces(b"SEARCH", every[:0], 5)) == b"* SEARCH\r\n"


@pytest.mark.parametrize(("command", "pieces"), [
    (b"SEARCH NOT NOT ALL", 5), (b"UID SEARCH RETURN (ALL) NOT 2", 1), (b"SORT (REVERSE SUBJECT) UTF-8 ALL", 5),
    (b"SORT RETURN (ALL) (REVERSE SUBJECT) UTF-8 ALL", 3)])
def test_others_are_let_in_between_the_pieces(place, monkeypatch, command, pieces, faults):
    wire = logged_in(place, 6)
    wire.send(b"d " + command + b"\r\n")
    whole = wire.received().replace(b"\r\nd OK", b"\r\ne OK").replace(b'TAG "d"', b'TAG "e"')
    monkeypatch.setattr(numbers, "NUMBERS_AT_A_TIME", 2)
    breaths = faults.watch(Stream, "breathe")
    wire.send(b"e NOOP\r\n")
    wire.received()
    usual = len(breaths)
    wire.send(b"e " + command + b"\r\n")
    assert wire.received() == whole
    assert len(breaths) - usual == usual + pieces
