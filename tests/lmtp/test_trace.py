"""lmtp/trace.py: RFC 5321 §4.4, read again with Python's own parser."""

import zlib
from email import message_from_bytes, policy
from email.utils import parsedate_to_datetime
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmtp.smtppaths import Address
from lmtp.trace import trace
from store.partition.messagereading import is_intact


def test_the_whole_header():
    """The sum is the CRC-32 of the octets around it."""
    around = (b"Return-Path: <alice@example.org>\r\n"
              b"Received: from mx.example.org ([192.0.2.1])\r\n"
              b"\tby store.example.org with LMTP id 6b-1-1=", b";\r\n\tFri, 20 Nov 2026 12:43:00 +0000\r\n")
    assert trace(Address("alice", "example.org"), "mx.example.org", "192.0.2.1", "store.example.org", "LMTP", "6b-1-1",
                 1795178580.9) == around[0] + format(zlib.crc32(b"".join(around)), "08x").encode() + around[1]


def header_of(sender):
    return trace(sender, "mx.example.org", "192.0.2.1", "store.example.org", "LMTPS", "6b-1-1", 1795178580.9)


def flipped(header, *bits):
    changed = bytearray(header)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("sender", [
    None, Address("alice", "example.org"), Address("prvs=a=b", "c.de"), Address("LMTP=a", "x.orgg")])
def test_no_bit_can_change_unseen(sender):
    """The octets by which the sum is found among them."""
    header = header_of(sender)
    assert is_intact(header)
    assert [at / 8 for at in range(8 * len(header)) if is_intact(flipped(header, at))] == []


def test_two_bits_are_unseen_only_where_the_mark_before_the_sum_is_hit_and_another():
    header = header_of(Address("alice", "example.org"))
    sum_at = header.rindex(b";") - 8
    bits = range(8 * (sum_at - 12), 8 * (sum_at + 14))
    unseen = {pair for pair in combinations(bits, 2) if is_intact(flipped(header, *pair))}
    mark = range(8 * (sum_at - 1), 8 * sum_at)
    assert all(one in mark or other in mark for one, other in unseen)


@pytest.mark.parametrize("header", [
    b"", b"Return-Path: <prvs=12345678=x@example.org>\r\nReceived: by a with LMTP id abc;\r\n\tFri\r\n",
    b"Return-Path: <>\r\nReceived: from a by b with LMTP\r\n\tid aBcDeFgHiJ==\r\n\t(envelope-from <a=b>);\r\n Fri\r\n",
    b"Received: from a (helo=mx) by b with esmtp id 1abc-01\r\n",
    b"Return-Path: <LMTP=12345678>\r\n",
    b"Return-Path: <a@b.c>\r\nReceived: from a\r\n\tby b with LMTP id 0=12345678;\r\n\tfor <c=de@fa.de>;"
    b"\r\n\tFri, 20 Nov 2026 12:43:00 +0000\r\n"])
def test_what_others_write_has_no_sum(header):
    assert is_intact(header)


@pytest.mark.parametrize(("sender", "peer", "path", "origin"), [
    (None, "local", b"<>", b"from mx.example.org\r\n"),
    (Address("a b", "x"), "2001:db8::1", b'<"a b"@x>', b"from mx.example.org ([IPv6:2001:db8::1])\r\n"),
    (Address("root"), "127.0.0.1", b"<root>", b"from mx.example.org ([127.0.0.1])\r\n"),
])
def test_sender_and_origin(sender, peer, path, origin):
    header = trace(sender, "mx.example.org", peer, "store.example.org", "LMTPS", "1", 0)
    assert header.startswith(b"Return-Path: " + path + b"\r\n")
    assert origin in header
    assert b"with LMTPS id 1=" in header


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=320),
       st.integers(0, 2**33))
def test_nothing_in_a_sender_can_add_a_header(local, seconds):
    header = trace(Address(local, "example.org"), "mx.example.org", "192.0.2.1", "store.example.org", "LMTP", "1",
                   seconds)
    message = message_from_bytes(header + b"\r\n", policy=policy.compat32)
    assert message.keys() == ["Return-Path", "Received"]
    assert max(map(len, header.split(b"\r\n"))) <= 998
    assert parsedate_to_datetime(message["Received"].rpartition(";")[2].strip()).timestamp() == seconds
