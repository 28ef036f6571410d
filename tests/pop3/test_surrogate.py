"""What older clients get of international mail (RFC 6858, RFC 2047, RFC 2231), read back with Python's own parser."""

import base64
import email
import email.policy
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop3.surrogate import CHANGED, EXAMINED, NeedsUtf8, Surrogate, changes_of, conventional, is_international
from store.message.cacherecord import render
from store.message.mime import parse


class Octets:
    """A message in memory, as a file."""

    def __init__(self, octets):
        self.octets, self.size = octets, len(octets)

    def read(self, offset, count):
        return self.octets[offset:offset + count]


def surrogate(message, trace=0, first=64 << 10):
    """The octets of a message's surrogate."""
    file, content = Octets(message), Octets(message[trace:])
    cached = render(parse(content.read, content.size), bytes(32), trace)
    return everything(Surrogate.of(file, changes_of(file, cached, trace, message[:first])))


def everything(file, step=1 << 20):
    found = b"".join(file.read(at, step) for at in range(0, file.size, step))
    assert len(found) == file.size
    return found


def read(message):
    return email.message_from_bytes(message, policy=email.policy.default)


@pytest.mark.parametrize(("field", "shown"), [
    ("From: Jörg <j@example.org>", "Jörg <j@example.org>"),
    ('From: "Müller, Jörg" <j@example.org>', '"Müller, Jörg" <j@example.org>'),
    ('To: "a \\"ö\\" b" <j@example.org>, c@d', '"a \\"ö\\" b" <j@example.org>, c@d'),
    ("Cc: jörg@example.org", '"jörg@example.org" <invalid@internationalized-address.invalid>'),
    ("Cc: J <j@bücher.example>", '"J <j@bücher.example>" <invalid@internationalized-address.invalid>'),
    ("Sender: <ö@b>", '"ö@b" <invalid@internationalized-address.invalid>'),
    ("Reply-To: a@b (ö, ü),\r\n c@d", '"a@b (ö, ü)" <invalid@internationalized-address.invalid>, c@d'),
    ("Subject: Über\r\n alles", "Über alles"), ("Subject: " + "ä" * 500, "ä" * 500), ("Subject: " + "x😀" * 40,
                                                                                      "x😀" * 40),
    ("Comments: ä", "ä"),
])
def test_fields(field, shown):
    header = conventional(f"{field}\r\n\r\n".encode())
    assert header.isascii() and header.endswith(b"\r\n\r\n")
    assert max(map(len, header.split(b"\r\n"))) <= 78 + 60
    for word in re.findall(rb"=\?[^ ]*\?=", header):        # RFC 2047 §2, §5: short, and none ends within a character
        assert len(word) <= 75 and base64.b64decode(word.split(b"?")[3]).decode("utf-8")
    assert str(read(header)[field.partition(":")[0]]) == shown


@pytest.mark.parametrize("field", ["X-Name: ä", "Date: 1 Jan 2020 (ä)", "Xä: y", "Message-ID: <ä@b>", "ä",
                                   "Content-Type: ä/b"])
def test_what_has_no_older_form_goes(field):
    assert conventional(f"A: b\r\n{field}\r\nC: d\r\n\r\n".encode()) == b"A: b\r\nC: d\r\n\r\n"


@pytest.mark.parametrize(("field", "name"), [
    ("Content-Disposition: attachment; filename=ä.txt", "ä.txt"),
    ('Content-Disposition: attachment;\r\n filename="ä; b=\\"c\\".txt"; size=1', 'ä; b="c".txt'),
    ('Content-Type: image/png; name="\u5b57.png"', "\u5b57.png"),
])
def test_parameters(field, name):
    message = read(conventional(f"{field}\r\n\r\n".encode()))
    assert message.get_filename() == name


def test_parameters_that_cannot_be_written_go_and_the_others_stay():
    header = "Content-Type: text/plain; charset=utf-8; name=" + "ä" * 400 + "; ä=b; x*=ä; format=flowed\r\n\r\n"
    message = read(conventional(header.encode()))
    assert dict(message["content-type"].params) == {"charset": "utf-8", "format": "flowed"}


def test_every_line_of_the_rest_stays_as_it_is():
    body = b"".join(bytes((octet,)) for octet in range(256)) * 3
    message = b"Received: x\r\n  y\r\nSubject: \xc3\xa4\r\nB:\r\nA : b\r\n\r\n" + body
    assert surrogate(message) == b"Received: x\r\n  y\r\nSubject: =?utf-8?b?w6Q=?=\r\nB:\r\nA : b\r\n\r\n" + body


@pytest.mark.parametrize("message", [
    b"Subject: \xe4\r\n\r\nx", b"Subject: \xc3\xa4\r\nFrom: \xff\r\n\r\nx", b"A: b\r\n\r\n\xc3\xa4", b"", b"\xff",
    b"A: b",
    b"\r\n\xc3\xa4: b\r\n"])
def test_what_is_not_international_stays(message):
    assert surrogate(message) == message


def test_headers_of_parts_wherever_they_are():
    part = b"\r\n--b\r\nContent-Type: text/plain; name=\xc3\xa4\r\n\r\n" + b"x\r\n" * 20_000
    message = b"Trace: 1\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" + 4 * part + b"\r\n--b--\r\n"
    for trace in (0, 10):
        found = surrogate(message, trace)
        assert found == message.replace(b"text/plain; name=\xc3\xa4", b"text/plain;\r\n name*=utf-8''%C3%A4")
        assert found.isascii() and surrogate(message, trace, 100) == found


def test_there_are_limits():
    with pytest.raises(NeedsUtf8):
        surrogate(b"Subject: " + b"\xc3\xa4" * (CHANGED // 2) + b"\r\n\r\n")
    with pytest.raises(NeedsUtf8):
        surrogate(b"A: b\r\n" * (EXAMINED // 6 + 1) + b"Subject: \xc3\xa4\r\n\r\n")


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9), st.binary(max_size=12)),
                                        max_size=4),
       st.integers(1, 20))
def test_a_file_with_changes_reads_the_same_in_any_pieces(octets, wanted, step):
    changes, at, expected = [], 0, b""
    for start, length, new in sorted(wanted):
        start, end = min(max(start, at), len(octets)), min(max(start, at) + length, len(octets))
        changes.append((start, end, new))
        expected += octets[at:start] + new
        at = end
    expected += octets[at:]
    assert everything(Surrogate.of(Octets(octets), changes), step) == expected


words = st.sampled_from(["ä", '"', "\\", "(", ")", "<", ">", ",", ";", ":", "=", "@", "a", " ", "\r\n ", "\r\n", "\n",
                         "\r", "\0",
                         "From:", "To: ", "Subject: ", "Content-Type: ", "x=", "😀", "%", "*", "'", "=?utf-8?q?x?=",
                         "b" * 90])


@given(st.lists(words, max_size=30).map("".join))
def test_any_header_becomes_ascii_and_its_lines_are_fields(text):
    header = text.encode()
    made = conventional(header)
    assert made.isascii()
    if header.isascii():
        assert made == header
    for line in re.split(rb"\r?\n", made):          # none that was no line break before
        assert line[:1] in (b" ", b"\t", b"") or b":" in line or any(
            line == old for old in re.split(rb"\r?\n", header))
    assert is_international(header) is not header.isascii()
