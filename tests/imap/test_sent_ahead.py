"""APPENDs that a client sends without waiting (RFC 9051 §5.5): how many are taken together, and what is when that is
cut off."""

import gc
import re

import pytest

from imap.verbs import append
from mboxlist.engine.transact import Commits, Unflushed
from store.check.wholecheck import check
from store.delivery import durable, sentahead
from store.delivery.commit import NotOnDisk
from store.partition.partition import Partition
from store.quota import roots

MESSAGE = b"Subject: %d\r\n\r\nThe text.\r\n"


def commands(numbers):
    """An APPEND for each, with that tag."""
    return b"".join(b"%d APPEND INBOX {%d+}\r\n%b\r\n" % (number, len(MESSAGE % number), MESSAGE % number)
                    for number in numbers)


@pytest.fixture
def client(place):
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\n")
    assert b"a OK" in wire.received()
    return wire


def take_up(place, faults):
    """As housekeeping does, which has to find them twice: until then the names of what was committed, and may not be on
    disk, stay in `staging/`."""
    faults.mend()
    gc.collect()                # the errors hold their messages
    for _ in range(2):
        place.store.partitions["primary"].sweep(0)


def answered(octets):
    return [int(tag) for tag in re.findall(rb"^(\d+) OK \[APPENDUID", octets, re.MULTILINE)]


@pytest.fixture
def groups(monkeypatch):
    """How many messages are delivered together."""
    found, deliver = [], append.deliver_each
    monkeypatch.setattr(append, "deliver_each", lambda store, messages: found.append(len(messages)) or deliver(
        store, messages))
    return found


def test_many_share_a_transaction_and_none_has_too_many(client, groups):
    before = Commits.total
    client.send(commands(range(1, 2 * durable.FEW + 21)))
    assert answered(client.received()) == [*range(1, 2 * durable.FEW + 21)]
    assert groups == [durable.FEW, durable.FEW, 20] and Commits.total - before < 10


def test_half_a_command_waits_for_the_rest_and_holds_up_none_before_it(client):
    octets = commands(range(1, 4))
    client.send(octets[:-5])
    assert answered(client.received()) == [1, 2]
    client.send(octets[-5:])
    assert answered(client.received()) == [3]


def test_what_arrives_between_two_reads_is_taken_along(client, groups):
    octets = commands(range(1, 5))
    client.protocol.dataReceived(octets[:-50])
    client.send(octets[-50:])
    assert answered(client.received()) == [1, 2, 3, 4] and groups == [4]


def test_a_client_that_goes_away_leaves_what_had_come(client, place):
    client.send(commands(range(1, 4)) + b"4 APPEND INBOX {50+}\r\nSubj")
    client.hang_up()
    assert place.store.status(place.entry("INBOX")).messages == 3
    assert check(place.store) == []


def test_without_a_flush_none_has_an_answer(client, place, faults):
    faults.fail(Partition, "flush", Unflushed(5, "Input/output error"))
    client.send(commands(range(1, 4)))
    said = client.received()
    assert b" OK" not in said and b" NO" not in said and b"* BYE" in said and client.closed
    take_up(place, faults)


def test_what_cannot_be_done_together_is_answered_one_by_one(client, place, faults):
    """The first answer does not wait for the others, of which perhaps nobody can say what has become of them."""
    faults.fail(sentahead, "commit_each", NotOnDisk)
    flushes = iter([False, True])
    faults.fail(Partition, "flush", Unflushed(5, "Input/output error"), when=lambda _: next(flushes, True))
    client.send(commands(range(1, 4)))
    said = client.received()
    assert answered(said) == [1] and not re.search(rb"^[23] ", said, re.MULTILINE)
    assert b"* BYE" in said and client.closed
    take_up(place, faults)


def test_the_delivery_log_names_each_that_is_refused(client, place, monkeypatch):
    noted = []
    monkeypatch.setattr(append.noting, "refused", lambda *facts: noted.append(facts[-1]))
    roots.set_quota(place.store, "alice", messages=1)
    texts = [b"Message-ID: <%d@example.org>\r\n\r\nx\r\n" % number for number in range(3)]
    client.send(b"".join(b"%d APPEND INBOX {%d+}\r\n%b\r\n" % (at, len(text), text) for at, text in enumerate(texts)))
    assert answered(client.received()) == [0]
    assert noted == [b"<1@example.org>", b"<2@example.org>"]


def test_a_bug_is_told_to_each(client, place, faults):
    faults.fail(append, "deliver_each", ZeroDivisionError)
    client.send(commands(range(1, 3)) + b"b NOOP\r\n")
    said = client.received()
    assert re.findall(rb"^(\S+ \S+)", said, re.MULTILINE) == [b"1 NO", b"2 NO", b"b OK"]
    assert place.store.status(place.entry("INBOX")).messages == 0
    assert check(place.store) == []
