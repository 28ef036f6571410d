"""The octets of a message file are compared at each reading, also when they have been read before."""

import hashlib
from random import Random
from types import SimpleNamespace

import pytest

from store.partition import messagereading
from store.partition.messagereading import agrees, summed

CONTENT = b"From: a@example.org\r\nSubject: one\r\n\r\n" + b"The text of this message.\r\n" * 30
DIGEST = hashlib.blake2b(CONTENT, digest_size=32).digest()
TRACE = summed(b"Return-Path: <s@example.org>\r\nReceived: from c.example.org ([192.0.2.1])\r\n\tby m.example.org with"
               b" LMTP\r\n\tid 1-2-3=", b";\r\n\tSat, 28 Nov 2026 10:00:00 +0000\r\n")


def changed(octets: bytes, at: int, bit: int) -> bytes:
    return octets[:at] + bytes([octets[at] ^ 1 << bit]) + octets[at + 1:]


@pytest.mark.parametrize("trace", [b"", TRACE])
def test_what_the_disk_has_changed_since_the_last_reading_is_found(trace):
    octets = trace + CONTENT
    assert agrees(octets, DIGEST, "alice") and agrees(octets, DIGEST, "alice")
    random = Random(5)
    for at in range(len(octets)):
        assert not agrees(changed(octets, at, random.randrange(8)), DIGEST, "alice"), at
    for cut in (0, 1, len(octets) // 2, len(octets) - 1):
        assert not agrees(octets[:cut], DIGEST, "alice")
    assert not agrees(octets + b"\0", DIGEST, "alice")
    assert agrees(octets, DIGEST, "alice")


def test_another_message_in_the_place_of_one_that_was_read_is_found():
    other = CONTENT.replace(b"one", b"two")
    for octets in (CONTENT, other):
        assert agrees(octets, hashlib.blake2b(octets, digest_size=32).digest(), "alice")
    assert not agrees(other, DIGEST, "alice")


def test_the_digest_is_computed_at_the_first_reading_of_each_user(monkeypatch):
    """What takes less time when somebody else has read the message would tell that."""
    computed = []
    monkeypatch.setattr(messagereading, "_agreed", messagereading._agreed[:])
    monkeypatch.setattr(messagereading, "hashlib", SimpleNamespace(
        blake2b=lambda octets, **sizes: computed.append(octets) or hashlib.blake2b(octets, **sizes)))
    octets = CONTENT + b"of this test\r\n"
    digest = hashlib.blake2b(octets, digest_size=32).digest()
    for reader, times in (("alice", 1), ("alice", 1), ("bob", 2), ("bob", 2)):
        assert agrees(octets, digest, reader)
        assert len(computed) == times, reader


def test_what_is_remembered_does_not_grow():
    for number in range(messagereading.REMEMBERED // 8):
        octets = b"Subject: %d\r\n\r\n" % number
        digest = hashlib.blake2b(octets, digest_size=32).digest()
        assert agrees(octets, digest, "alice") and agrees(octets, digest, "alice")
    assert len(messagereading._agreed) == messagereading.REMEMBERED
