"""Header fields as they stand (RFC 3501 §6.4.5, HEADER.FIELDS), and those that cache records keep."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmtp import trace
from store.message.cacherecord import CachedMessage, render
from store.message.fields import LISTED, MOST, Lister, header_fields, listed
from store.message.mime import Scanner

LINES = st.sampled_from([b"From: a", b"from : b", b"FROM\t:c", b"From", b"Fromage: d", b"Subject: e", b" folded",
                         b"\tFrom: f", b"To: From: g", b"X-To: h", b": i", b"no colon", b"From\0: j", b"Cc:", b"\r",
                         b" ", b"From: \xff", b"Message-Id: k", b"List-Id: l", b"List-Idea: m", b"X-Priority: 1"])
ENDS = st.sampled_from([b"\r\n", b"\n"])
NAMES = st.lists(st.sampled_from([b"From", b"TO", b"subject", b"Cc", b"MESSAGE-ID", b"list-id", b"X-PRIORITY"]),
                 min_size=1, max_size=4, unique=True)


def header_of(lines, last):
    """The header of a message that begins with these lines: to its first empty line."""
    octets = b""
    for line in (b"".join(line + end for line, end in lines) + last).split(b"\n")[:-1]:
        octets += line + b"\n"
        if line in (b"\r", b""):
            break
    return octets


@pytest.mark.long
@settings(deadline=None, max_examples=500)
@given(st.lists(st.tuples(LINES, ENDS), max_size=8), ENDS, NAMES)
def test_what_is_kept_is_what_the_header_has(lines, last, names):
    header = header_of(lines, last)
    assert Lister(names)(listed(header)) == header_fields(header, names)


def test_each_listed_name_is_found_in_any_case():
    for name in sorted(LISTED):
        for written in (name, name.upper(), name.title()):
            header = b"Received: x\r\n" + written + b": y\r\n z\r\nX-Other: w\r\n\r\n"
            assert Lister([name])(listed(header)) == written + b": y\r\n z\r\n\r\n"


def test_nothing_listed_leaves_the_empty_line():
    assert Lister([b"From"])(listed(b"Received: x\r\n\r\n")) == b"\r\n"
    assert Lister([b"From"])(listed(b"\n")) == b"\n"


@pytest.mark.parametrize("header", [b"", b"From: a", b"From: a\r\n", b"From: a\r\n\r", b"a" * 10])
def test_a_header_without_an_end_is_not_kept(header):
    assert listed(header) == b""


def test_too_many_fields_are_not_kept():
    assert listed(b"To: a\r\n" * (MOST // 7) + b"\r\n") == b""
    assert listed(b"References: " + b"<a@b> " * 1000 + b"\r\n\r\n") == b""
    assert listed(b"To:\n" * 255 + b"\n") != b""
    assert listed(b"To:\n" * 256 + b"\n") == b""


def test_no_trace_field_is_listed():
    """They differ from mailbox to mailbox, and what is kept is about the content."""
    octets = trace.trace(None, "client", "192.0.2.1", "mx.example.org", "ESMTP", "1", 0.0)
    names = [line.partition(b":")[0].lower() for line in octets.split(b"\r\n") if line and not line.startswith(b"\t")]
    assert names == [b"return-path", b"received"]
    assert LISTED.isdisjoint([*names, b"delivered-to"])


def test_a_record_keeps_the_fields():
    scanner = Scanner()
    header = b"From: a@b\r\nReceived: x\r\nSubject: s\r\n\r\n"
    scanner.feed(header + b"To: not this\r\n\r\nFrom: nor this\r\n")
    record = render(scanner.finish(), bytes(32), 0)
    again = CachedMessage.from_bytes(record.data)
    assert again == record
    assert Lister([b"From", b"To"])(again.fields) == b"From: a@b\r\n\r\n"


def test_fields_of_a_part_are_not_the_message_s():
    scanner = Scanner()
    scanner.feed(b"Content-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\nx")
    assert Lister([b"Subject"])(render(scanner.finish(), bytes(32), 0).fields) == b"\r\n"
