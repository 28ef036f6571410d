"""BINARY against the encoders of the standard library, decoded in windows of any size (RFC 3516 §4.3)."""

import base64
import quopri
import random
import re

import pytest

from imap.verbs import binary
from store.partition.messagereading import MessageFile

LITERAL = re.compile(rb"\* 1 FETCH \(BINARY\[1\](?:<\d+>)? (~?)\{(\d+)\}\r\n")


def octets(seed, size):
    return random.Random(seed).randbytes(size)


def message(kind, encoding, body):
    return b"Content-Type: %b\r\nContent-Transfer-Encoding: %b\r\n\r\n%b" % (kind, encoding, body)


def in_base64(data):
    return base64.encodebytes(data).replace(b"\n", b"\r\n")


def in_quoted_printable(data):
    return quopri.encodestring(data).replace(b"\n", b"\r\n")


@pytest.fixture(params=[(1 << 16, 1 << 18), (64, 100), (7, 0)])
def windows(request, monkeypatch):
    monkeypatch.setattr(binary, "WINDOW", request.param[0])
    monkeypatch.setattr(binary, "SHORT", request.param[1])


def ask(place, body, *items):
    place.deliver("INBOX", body)
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\n")
    wire.received()
    for item in items:
        wire.send(b"c FETCH 1 %b\r\n" % item)
        said = wire.received()
        assert said.endswith(b"c OK FETCH completed\r\n"), said[-200:]
        yield said


def content(said):
    found = LITERAL.match(said)
    assert found, said[:100]
    data = said[found.end():found.end() + int(found[2])]
    assert said[found.end() + int(found[2]):].startswith(b")\r\n")
    assert bool(found[1]) == (b"\0" in data)
    return data


@pytest.mark.parametrize("seed, size", [(1, 1), (2, 2), (3, 3), (4, 5000), (5, 20_001)])
def test_base64(place, windows, seed, size):
    data = octets(seed, size)
    body = message(b"application/octet-stream", b"base64", in_base64(data))
    size_said, whole, first, middle, last = ask(
        place, body, b"BINARY.SIZE[1]", b"BINARY.PEEK[1]", b"BINARY.PEEK[1]<0.1>",
        b"BINARY.PEEK[1]<%d.999>" % (size // 3), b"BINARY.PEEK[1]<%d.1>" % (size - 1))
    assert size_said.startswith(b"* 1 FETCH (BINARY.SIZE[1] %d)\r\n" % size)
    assert content(whole) == data
    assert content(first) == data[:1] and content(last) == data[-1:]
    assert content(middle) == data[size // 3:size // 3 + 999]


def test_quoted_printable_and_lines(place, windows):
    lines = "caf\u00e9 = \u20ac\r\n".encode() * 300 + b"x" * 300 + b"\r\n"
    body = message(b"text/plain; charset=utf-8", b"quoted-printable",
                   in_quoted_printable(lines.replace(b"\r\n", b"\n")))
    whole, = ask(place, body, b"BINARY.PEEK[1]")
    assert content(whole) == lines


def test_blanks_at_the_end_of_a_line_in_quoted_printable(place, windows):
    """RFC 2045 §6.7, rule 3: some relay has put them there."""
    body = message(b"text/plain; charset=utf-8", b"quoted-printable", b"one \t\r\ntwo=20\r\nthr= \r\nee  ")
    whole, size = ask(place, body, b"BINARY.PEEK[1]", b"BINARY.SIZE[1]")
    assert content(whole) == b"one\r\ntwo \r\nthree"
    assert b"[1] 16)" in size


RAW, MENDED = b"a\nb\r\r\nc\r\n\n\rd\n", b"a\r\nb\r\r\nc\r\n\r\n\rd\r\n"


@pytest.mark.parametrize("encoding, body, wanted", [
    (b"base64", in_base64(RAW), RAW), (b"quoted-printable", b"a=0Ab\r\nc=0D=0A=0A", b"a\nb\r\nc\r\n\n"),
    (b"binary", RAW, RAW), (b"7bit", RAW, MENDED), (b"8bit", RAW, MENDED),
    (b"quoted-printable", b"a\nb=\nc=0A", b"a\r\nbc\n")])
def test_what_has_been_decoded_is_left_as_it_is(place, windows, encoding, body, wanted):
    """RFC 3516 §4.2: the transfer encoding is undone, and no more. Only lines of mail end in CRLF (§4.3)."""
    whole, size = ask(place, message(b"text/x-patch", encoding, body), b"BINARY.PEEK[1]", b"BINARY.SIZE[1]")
    assert content(whole) == wanted
    assert b"[1] %d)" % len(wanted) in size


def test_only_text_has_lines(place, windows):
    whole, = ask(place, message(b"application/x", b"8bit", RAW), b"BINARY.PEEK[1]")
    assert content(whole) == RAW


def test_octets_as_they_are(place, windows):
    data = octets(6, 3000)
    whole, = ask(place, message(b"application/octet-stream", b"binary", data), b"BINARY.PEEK[1]")
    assert content(whole) == data


def test_a_literal_has_no_nul_where_only_the_rest_has_one(place, windows):
    data = b"x" * 500 + b"\0" + b"y" * 500
    asked = [b"BINARY.PEEK[1]<0.500>", b"BINARY.PEEK[1]<0.501>", b"BINARY.PEEK[1]<500.1>", b"BINARY.PEEK[1]<501.500>"]
    said = [*ask(place, message(b"application/octet-stream", b"base64", in_base64(data)), *asked)]
    assert [content(one) for one in said] == [data[:500], data[:501], data[500:501], data[501:]]


def test_portions_that_follow_each_other_decode_each_octet_once(place):
    """A part of 25 MB fetched in pieces was decoded from its beginning for each piece."""
    data = octets(11, 60_000)
    taken = place.faults.watch(MessageFile, "read", lambda file, offset, count: count)
    asked = [b"BINARY.PEEK[1]<%d.5000>" % at for at in range(0, 60_000, 5000)]
    answers = ask(place, message(b"application/octet-stream", b"base64", in_base64(data)), *asked)
    assert b"".join(map(content, answers)) == data
    assert sum(taken) < 2 * len(in_base64(data))
    taken.clear()
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\n")
    wire.received()
    wire.send(b"c FETCH 1 (%b)\r\n" % b" ".join(asked))
    said = wire.received()
    assert b"".join(re.findall(rb"BINARY\[1\]<\d+> ~?\{5000\}\r\n(.{5000})", said, re.DOTALL)) == data
    assert sum(taken) < 2 * len(in_base64(data))


def test_portions_in_any_order_are_those_of_the_part(place):
    data = octets(12, 50_000)
    order = [30_000, 0, 5000, 4000, 49_000, 100, 60_000]
    asked = [b"BINARY.PEEK[1]<%d.3000>" % at for at in order]
    answers = ask(place, message(b"application/octet-stream", b"base64", in_base64(data)), *asked)
    for at, said in zip(order, answers, strict=True):
        expected = data[at:at + 3000]
        assert (content(said) if expected else b"") == expected
        assert expected or b'BINARY[1]<60000> ""' in said
