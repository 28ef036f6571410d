"""Dot-stuffing: RFC 5321 §4.5.2, RFC 1939 §3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmtp.receiving import DotReader
from pop3.dots import DotWriter

PIECES = [b"\r", b"\n", b".", b"\r\n", b"\r\n.", b"\r\n.\r\n", b"a", b"\0", b"\xff"]
octets = st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join)


def read(chunks):
    """The message, what follows, whether it ended."""
    reader, message = DotReader(), []
    for number, chunk in enumerate(chunks):
        message.append(reader.feed(chunk))
        if reader.done:
            rest = chunk[len(chunk) - reader.left:] + b"".join(chunks[number + 1:])
            return b"".join(message), rest, True
    return b"".join(message), b"", False


def write(chunks):
    writer = DotWriter()
    return b"".join([writer.feed(chunk) for chunk in chunks] + [writer.finish()])


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in zip(edges, edges[1:], strict=False)]


def halved(data):
    """With the doubled dots after CR or LF made single: what a client that ends lines there makes of it."""
    return data.replace(b"\n..", b"\n.").replace(b"\r..", b"\r.")


def by_lines(wire):
    """RFC 5321 §4.5.2 line by line: the message and what follows, or None while it has not ended."""
    lines = wire.split(b"\r\n")
    for number, line in enumerate(lines[:-1]):
        if line == b".":
            kept = [text[1:] if text.startswith(b".") else text for text in lines[:number]]
            return b"".join(text + b"\r\n" for text in kept), b"\r\n".join(lines[number + 1:])
    return None


@pytest.mark.parametrize(("wire", "message", "rest"), [
    (b".\r\n", b"", b""),
    (b".\r\nQUIT\r\n", b"", b"QUIT\r\n"),
    (b"\r\n.\r\n", b"\r\n", b""),
    (b"a\r\n.\r\n", b"a\r\n", b""),
    (b"a\r\n..\r\n.\r\n.\r\n", b"a\r\n.\r\n", b".\r\n"),
    (b"..\r\n.\r\n", b".\r\n", b""),
    (b".a\r\n.\r\n", b"a\r\n", b""),                            # one leading dot goes whatever follows it
    (b"...a\r\n.\r\n", b"..a\r\n", b""),
    (b"a\n.\nRSET\r\n.\r\n", b"a\n.\nRSET\r\n", b""),           # smuggling: no end here
    (b"a\n.\r\nRSET\r\n.\r\n", b"a\n.\r\nRSET\r\n", b""),
    (b"a\r.\rRSET\r\n.\r\n", b"a\r.\rRSET\r\n", b""),
    (b"a\r\n.\nRSET\r\n.\r\n", b"a\r\n\nRSET\r\n", b""),        # the dot is a line's first octet, and not the line
    (b"a\r\n.\rRSET\r\n.\r\n", b"a\r\n\rRSET\r\n", b""),
    (b"a\r\n\r.\r\n.\r\n", b"a\r\n\r.\r\n", b""),
    (b"\0\xff\r\n.\r\n\0", b"\0\xff\r\n", b"\0"),
])
def test_read(wire, message, rest):
    assert read([wire]) == (message, rest, True)
    for place in range(len(wire)):
        assert read([wire[:place], wire[place:]]) == (message, rest, True)
    assert read([wire[place:place + 1] for place in range(len(wire))]) == (message, rest, True)


@pytest.mark.parametrize("wire", [b"", b".", b".\r", b"\n.\n", b"a\n.\r\n", b"a\r\n.\n", b"a\r\n.\r\r\n", b"a.\r\n"])
def test_not_the_end(wire):
    assert not read([wire])[2]


def test_nothing_is_taken_after_the_end():
    reader = DotReader()
    reader.feed(b".\r\n")
    with pytest.raises(ValueError, match="ended"):
        reader.feed(b"more")


@given(octets, st.lists(st.integers(0, 200), max_size=8))
def test_read_as_the_rfc_line_by_line_however_it_is_cut(wire, places):
    message, rest, done = read(cut(wire, places))
    expected = by_lines(wire)
    assert done == (expected is not None)
    if expected is not None:
        assert (message, rest) == expected


@pytest.mark.parametrize(("message", "wire"), [
    (b"", b".\r\n"),
    (b"a", b"a\r\n.\r\n"),
    (b"a\r\n", b"a\r\n.\r\n"),
    (b"a\n", b"a\n\r\n.\r\n"),
    (b"a\r", b"a\r\r\n.\r\n"),
    (b".", b"..\r\n.\r\n"),
    (b".a\r\n..\r\n", b"..a\r\n...\r\n.\r\n"),
    (b"a\r\n.\r\nb\r\n", b"a\r\n..\r\nb\r\n.\r\n"),
    (b"a\n.b\n", b"a\n.b\n\r\n.\r\n"),                          # after a bare LF: only a lone dot is doubled
    (b"a\n.\nb\r\n", b"a\n..\nb\r\n.\r\n"),
    (b"a\n.\r\nb\r\n", b"a\n..\r\nb\r\n.\r\n"),
    (b"a\r.\rb\r\n", b"a\r..\rb\r\n.\r\n"),
    (b"a\r.\nb\r\n", b"a\r..\nb\r\n.\r\n"),
    (b"a\n.\rb\r\n", b"a\n..\rb\r\n.\r\n"),
    (b"a\n.", b"a\n..\r\n.\r\n"),
    (b"\n.\n.\n.\n", b"\n..\n..\n..\n\r\n.\r\n"),
    (b"a.\r\n", b"a.\r\n.\r\n"),
])
def test_write(message, wire):
    assert write([message]) == wire
    for place in range(len(message)):
        assert write([message[:place], message[place:]]) == wire
    assert write([message[place:place + 1] for place in range(len(message))]) == wire


@given(octets, st.lists(st.integers(0, 200), max_size=8))
def test_however_a_client_ends_lines_the_message_ends_once(message, places):
    wire = write(cut(message, places))
    assert wire == write([message])
    for end in (b"\r\n", b"\n", b"\r"):
        lines = wire.replace(b"\r\n", end).split(end)
        assert [line.strip(b"\r") for line in lines].count(b".") == 1 and lines[-2:] == [b".", b""]
    lines = wire.replace(b"\r", b"\n").replace(b"\n\n", b"\n").split(b"\n")
    assert lines.count(b".") == 1


@given(octets, st.lists(st.integers(0, 200), max_size=8))
def test_what_was_written_reads_back_but_for_lone_dots_between_bare_ends(message, places):
    back, rest, done = read(cut(write([message]), places))
    assert done and not rest
    expected = message if message.endswith(b"\r\n") or not message else message + b"\r\n"
    assert halved(back) == halved(expected)
    if not any(lone in expected.replace(b"\r\n", b"|") for lone in (b"\n.", b"\r.")):
        assert back == expected
