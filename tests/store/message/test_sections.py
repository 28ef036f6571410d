"""Sections: RFC 3501 §6.4.5."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.message.cacherecord import render
from store.message.fields import header_fields
from store.message.mime import Scanner
from store.message.sections import section

# The message that RFC 3501 §6.4.5 draws as an example of part specifiers.
PIECES = {
    "HEADER": b'Subject: outer\r\nContent-Type: multipart/mixed; boundary="m"\r\n\r\n',
    "1.MIME": b"Content-Type: text/plain\r\n\r\n", "1": b"part one",
    "2.MIME": b"Content-Type: application/octet-stream\r\n\r\n", "2": b"part two",
    "3.MIME": b"Content-Type: message/rfc822\r\n\r\n",
    "3.HEADER": b"Subject: three\r\nContent-Type: multipart/mixed; boundary=n\r\n\r\n",
    "3.1.MIME": b"X: 3.1\r\n\r\n", "3.1": b"three one",
    "3.2.MIME": b"Content-Type: application/octet-stream\r\n\r\n", "3.2": b"three two",
    "4.MIME": b"Content-Type: multipart/mixed; boundary=o\r\n\r\n",
    "4.1.MIME": b"Content-Type: image/gif\r\n\r\n", "4.1": b"GIF",
    "4.2.MIME": b"Content-Type: message/rfc822\r\n\r\n",
    "4.2.HEADER": b"Subject: four two\r\nContent-Type: multipart/alternative; boundary=p\r\n\r\n",
    "4.2.1.MIME": b"Content-Type: text/plain\r\n\r\n", "4.2.1": b"plain",
    "4.2.2.MIME": b"Content-Type: text/richtext\r\n\r\n", "4.2.2": b"rich",
}


def multipart(boundary, *parts):
    return b"".join(b"--%b\r\n%b\r\n" % (boundary, part) for part in parts) + b"--%b--" % boundary


def build(pieces):
    whole = dict(pieces)
    whole["4.2.TEXT"] = multipart(b"p", *(pieces[f"4.2.{n}.MIME"] + pieces[f"4.2.{n}"] for n in (1, 2)))
    whole["4.2"] = pieces["4.2.HEADER"] + whole["4.2.TEXT"]
    whole["4"] = multipart(b"o", *(pieces[f"4.{n}.MIME"] + whole[f"4.{n}"] for n in (1, 2)))
    whole["3.TEXT"] = multipart(b"n", *(pieces[f"3.{n}.MIME"] + pieces[f"3.{n}"] for n in (1, 2)))
    whole["3"] = pieces["3.HEADER"] + whole["3.TEXT"]
    whole["TEXT"] = multipart(b"m", *(pieces[f"{n}.MIME"] + whole[f"{n}"] for n in (1, 2, 3, 4)))
    whole[""] = pieces["HEADER"] + whole["TEXT"]
    return whole


SECTIONS = build(PIECES)
TRACE = b"Return-Path: <a@b.test>\r\nReceived: from x\r\n"


def cached(message, trace=0):
    scanner = Scanner()
    scanner.feed(message)
    return render(scanner.finish(), bytes(32), trace)


def find(message, name, **more):
    """The octets of a section by its name on the wire."""
    words = name.split(".") if name else []
    path = tuple(int(word) for word in words if word.isdigit())
    what = words[-1] if words and not words[-1].isdigit() else None
    span = section(cached(message, **more), path, what)
    return None if span is None else message[span[0]:span[1]]


@pytest.mark.parametrize("name", SECTIONS)
def test_the_example_of_the_rfc(name):
    assert find(SECTIONS[""], name) == SECTIONS[name]


@pytest.mark.parametrize("name", ["0", "5", "1.1", "2.1", "1.HEADER", "1.TEXT", "4.HEADER", "4.TEXT", "4.3", "3.3",
                                  "MIME", "4.2.3", "4.2.1.HEADER", "4.2.0", "3.1.1"])
def test_what_is_not_there(name):
    assert find(SECTIONS[""], name) is None


@pytest.mark.parametrize(("name", "expected"), [
    ("", b"Subject: x\r\n\r\nbody"), ("HEADER", b"Subject: x\r\n\r\n"), ("TEXT", b"body"), ("1", b"body"),
    ("1.MIME", b"Subject: x\r\n\r\n"), ("1.HEADER", None), ("1.TEXT", None), ("1.1", None), ("2", None)])
def test_a_message_of_one_part(name, expected):
    assert find(b"Subject: x\r\n\r\nbody", name) == expected


INNER = b"Subject: inner\r\n\r\nbody"
MESSAGE_IN_MESSAGE = b"Content-Type: message/rfc822\r\n\r\n" + INNER


@pytest.mark.parametrize(("name", "expected"), [
    ("1", INNER), ("1.HEADER", b"Subject: inner\r\n\r\n"), ("1.TEXT", b"body"), ("1.1", b"body"), ("1.1.1", None),
    ("TEXT", INNER), ("1.1.MIME", b"Subject: inner\r\n\r\n")])
def test_a_message_that_is_a_message(name, expected):
    assert find(MESSAGE_IN_MESSAGE, name) == expected
    deeper = b"Content-Type: message/rfc822\r\n\r\n" + MESSAGE_IN_MESSAGE
    if name.startswith("1"):
        assert find(deeper, "1." + name) == expected


def test_empty_parts_are_there():
    message = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n--b--"
    assert find(message, "1") == b""
    assert find(b"", "1") == b"" == find(b"", "HEADER")


@pytest.mark.parametrize("name", SECTIONS)
def test_the_trace_header_belongs_to_the_header_of_the_message_that_has_it(name):
    record = cached(SECTIONS[""], trace=len(TRACE))
    words = name.split(".") if name else []
    path = tuple(int(word) for word in words if word.isdigit())
    what = words[-1] if words and not words[-1].isdigit() else None
    start, end = section(record, path, what, header_length=0)
    with_trace = TRACE + SECTIONS[""]
    assert with_trace[start:end] == (TRACE if name in ("", "HEADER") else b"") + SECTIONS[name]
    start, end = section(record, path, what, header_length=len(TRACE))
    assert SECTIONS[""][start:end] == SECTIONS[name]


HEADER = b"Subject: a\r\n b\r\nTo: c\r\nto : d\r\nX-To: e\r\nsubject: f\r\n\tg\r\n\r\n"


@pytest.mark.parametrize(("names", "kept", "others"), [
    ([b"SUBJECT"], b"Subject: a\r\n b\r\nsubject: f\r\n\tg\r\n\r\n", b"To: c\r\nto : d\r\nX-To: e\r\n\r\n"),
    ([b"To", b"x-to"], b"To: c\r\nto : d\r\nX-To: e\r\n\r\n", b"Subject: a\r\n b\r\nsubject: f\r\n\tg\r\n\r\n"),
    ([b"None"], b"\r\n", HEADER),
])
def test_header_fields(names, kept, others):
    assert header_fields(HEADER, names) == kept
    assert header_fields(HEADER, names, exclude=True) == others


@pytest.mark.parametrize(("header", "expected"), [
    (b"", b""), (b"\n", b"\n"), (b"To: x", b"To: x"), (b"To: x\n y\n\n", b"To: x\n y\n\n"),
    (b" odd\r\nTo: x\r\n", b"To: x\r\n"),
    (b"To\r\nTo: x\r\n\r\n", b"To\r\nTo: x\r\n\r\n"), (b"To: x\r y\r\nA: b\r\n\r\n", b"To: x\r y\r\n\r\n")])
def test_broken_headers(header, expected):
    assert header_fields(header, [b"to"]) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"To: ", b"A: ", b" ", b"\r\n", b"\n", b"\r", b":", b"x"])).map(b"".join))
def test_fields_and_the_others_are_the_header(text):
    end = cached(text).parts[()].body_start
    header = text[:end]
    kept, others = header_fields(header, [b"to"]), header_fields(header, [b"to"], exclude=True)
    blank = header.endswith((b"\n\n", b"\n\r\n")) or header in (b"\n", b"\r\n")
    empty = (2 if header.endswith(b"\r\n") else 1) if blank else 0
    assert len(kept) + len(others) == len(header) + empty
