"""Text as SEARCH sees it: RFC 2047, RFC 2045 §6, charsets."""

import base64
import quopri
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.message import text
from store.message.cacherecord import PartSpan
from store.message.text import body_text, codec, decode_text, decode_words, encoded_run_set, header_text
from store.search.matching import is_in


@pytest.mark.parametrize(("value", "expected"), [
    # RFC 2047 §8
    (b"=?US-ASCII?Q?Keith_Moore?= <moore@cs.utk.edu>", "Keith Moore <moore@cs.utk.edu>"),
    (b"=?ISO-8859-1?Q?Keld_J=F8rn_Simonsen?= <keld@dkuug.dk>", "Keld Jørn Simonsen <keld@dkuug.dk>"),
    (b"=?ISO-8859-1?B?SWYgeW91IGNhbiByZWFkIHRoaXMgeW8=?= =?ISO-8859-2?B?dSB1bmRlcnN0YW5kIHRoZSBleGFtcGxlLg==?=",
     "If you can read this you understand the example."),
    (b"(=?ISO-8859-1?Q?a?=)", "(a)"), (b"(=?ISO-8859-1?Q?a?= b)", "(a b)"),
    (b"(=?ISO-8859-1?Q?a?= =?ISO-8859-1?Q?b?=)", "(ab)"), (b"(=?ISO-8859-1?Q?a?=  \t =?ISO-8859-1?Q?b?=)", "(ab)"),
    (b"(=?ISO-8859-1?Q?a_b?=)", "(a b)"), (b"(=?ISO-8859-1?Q?a?= =?ISO-8859-2?Q?_b?=)", "(a b)"),
    # RFC 2231 §5
    (b"=?US-ASCII*EN?Q?Keith_Moore?=", "Keith Moore"),
    # a character cut in two, against the rule, by the words
    (b"=?utf-8?Q?=C3?= =?utf-8?Q?=BC?=", "ü"), (b"=?utf-8?B?w7w?=", "ü"),
    (b"plain", "plain"), (b"gr\xc3\xbc\xc3\x9fe", "grüße"), (b"caf\xe9", "café"), (b"=?x", "=?x"),
    (b"=?no-such-charset?Q?caf=E9?=", "café"), (b"=?utf-8?X?a?=", "=?utf-8?X?a?="), (b"=?utf-8?B?a?=", ""),
    (b"=?utf-8?B??=", ""), (b"a =?utf-8?q?b?= c =?utf-8?q?d?=", "a b c d"),
])
def test_encoded_words(value, expected):
    assert decode_words(value) == expected


@pytest.mark.parametrize("before", [b"", b"x" * 5000], ids=["many", "few"])     # found in two ways
@pytest.mark.parametrize(("octets", "expected"), [
    # RFC 2047 §2 says what a word is, §6.2 that blanks between two are not shown
    (b"=?a?q?b?= c =?a?q?d?=", {b"=?a?q?b?=", b"=?a?q?d?="}),
    (b"=?a?q?b?= \r\n =?a?B?d?=x", {b"=?a?q?b?= \r\n =?a?B?d?="}),
    (b"=?a?q?b?==?a?q?b?=", {b"=?a?q?b?==?a?q?b?="}), (b"=?a*en?q?b?=", {b"=?a*en?q?b?="}),
    (b"=?=?a?q?b?=", {b"=?a?q?b?="}), (b"=?a?q?=?c?q?d?=", {b"=?c?q?d?="}),
    (b"=?", set()), (b"=?a?x?b?=", set()), (b"=?a?q?b c?=", set()), (b"", set()), (b"=", set())])
def test_runs_of_encoded_words(octets, expected, before):
    assert encoded_run_set(before + octets) == expected


@given(st.lists(st.sampled_from([b"=", b"?", b"=?", b"?=", b"a", b"Q", b"b", b"*", b" ", b"\r\n", b"=?a?q?b?=",
                                 b"y" * 300])))
def test_runs_are_found_whatever_is_around_them(pieces):
    """A run begins with the first word that is no part of another one: the definition, octet by octet."""
    octets, at, expected = b"".join(pieces), 0, set()
    word = re.compile(rb"=\?[^?\s*]+(\*[^?\s]*)?\?[bq]\?[^?\s]*\?=", re.IGNORECASE)
    while at < len(octets):
        end = at
        while (found := word.match(octets, end if end == at else end + len(octets[end:]) - len(octets[end:].lstrip()))):
            end = found.end()
        if end > at:
            expected.add(octets[at:end])
        at = max(end, at + 1)
    assert encoded_run_set(octets) == expected


def test_header():
    assert header_text(b"Subject: a\r\n =?utf-8?q?b?=\r\nTo: c\r\n\r\n") == "Subject: a b\nTo: c\n\n"


@pytest.mark.parametrize(("name", "known"), [
    (b"UTF-8", "utf-8"), (b"iso-8859-1", "iso8859-1"), (b"Windows-1252", "cp1252"), (b"koi8-u", "koi8-u"),
    (b"iso-2022-jp", "iso2022_jp"), (b"gb18030", "gb18030"), (b"us-ascii", "ascii"), (b"utf-16le", "utf-16-le"),
    # no charsets, though Python has codecs of that name; or dangerous ones
    (b"zlib", None), (b"base64", None), (b"rot13", None), (b"idna", None), (b"punycode", None),
    (b"unicode_escape", None), (b"utf-7", None), (b"mbcs", None), (b"undefined", None), (b"", None),
    (b"x" * 1000, None),    (b"\xff", None), (b"a\0b", None), (b"../utf_8", None), (b"aliases", None),
])
def test_charsets(name, known):
    assert codec(name) == known


def test_text_in_an_unknown_charset():
    assert decode_text(b"gr\xc3\xbc", b"unknown") == "grü"
    assert decode_text(b"gr\xfc", b"us-ascii") == "grü"
    assert decode_text(b"\xff\xfe", b"utf-8") == "\ufffd\ufffd"


def whole(body, encoding=b"7BIT", charset=b"", window=text.WINDOW):
    def read(offset, count):
        return body[offset:offset + count]

    return "".join(body_text(read, PartSpan(0, 0, len(body), encoding=encoding, charset=charset), window=window))


@pytest.mark.parametrize(("body", "encoding", "charset", "expected"), [
    (b"plain", b"7BIT", b"", "plain"), (b"", b"BASE64", b"utf-8", ""), (b"gr\xc3\xbc", b"8BIT", b"utf-8", "grü"),
    (b"gr\xfc \xc3\xbc", b"8BIT", b"utf-8", "grü Ã¼"),
    (b"\xc3\xff", b"8BIT", b"utf-8", "Ãÿ"), (b"gr\xfc", b"8BIT", b"iso-8859-1", "grü"),
    (b"Z3\r\nLD \tvA==", b"BASE64", b"", "grü"), (b"Z3LDvA", b"BASE64", b"", "grü"),
    (b"Z3LDvA==!junk", b"BASE64", b"", "grü"),
    (b"YWJjZ", b"BASE64", b"", "abc"), (b"gr=C3=BC=\r\n!=3D", b"QUOTED-PRINTABLE", b"", "grü!="),
    # RFC 2045 §6.7, notes (2) and (3): what is no escape stays, at the end, too
    (b"a=", b"QUOTED-PRINTABLE", b"", "a="), (b"====", b"QUOTED-PRINTABLE", b"", "===="),
    (b"=x=", b"QUOTED-PRINTABLE", b"", "=x="), (b"==41", b"QUOTED-PRINTABLE", b"", "=A"),
    (b"=\rx", b"QUOTED-PRINTABLE", b"", "=\rx"), (b"=4", b"QUOTED-PRINTABLE", b"", "=4"),
    (b"= x= \r\ny", b"QUOTED-PRINTABLE", b"", "= xy"), (b"\x1b$B$\"\x1b(B", b"7BIT", b"iso-2022-jp", "あ"),
    (b"x\0y", b"BINARY", b"", "x\0y"),
    (b"as it is", b"X-UNKNOWN", b"", "as it is"),
])
def test_bodies_whatever_the_window(body, encoding, charset, expected):
    for window in (1, 2, 3, 5, 1000):
        assert whole(body, encoding, charset, window) == expected


@settings(deadline=None)
@given(st.text(), st.integers(1, 50), st.sampled_from(["utf-8", "utf-16"]))
def test_what_was_encoded_is_decoded(words, window, charset):
    octets = words.encode(charset)
    assert whole(base64.encodebytes(octets), b"BASE64", charset.encode(), window) == words
    if b"\n" not in octets and b"\r" not in octets:
        assert whole(quopri.encodestring(octets), b"QUOTED-PRINTABLE", charset.encode(), window) == words


def quoted_printable(body):
    """Decoded line by line, as RFC 2045 §6.7 has it; of what is right only."""
    decoded = b""
    for line in re.split(rb"(?<=\n)", body):
        content, end = re.fullmatch(rb"(.*?)(\r?\n)?", line, re.DOTALL).groups(b"")
        content = re.sub(rb"[ \t]*\Z", b"", content) + end                                      # rule 3
        content = re.sub(rb"=\r?\n\Z|=\Z", b"", content)                                       # rule 5
        decoded += re.sub(rb"=([0-9A-F]{2})", lambda found: bytes((int(found[1], 16),)), content)
    return decoded


@pytest.mark.parametrize(("body", "expected"), [
    (b"a  \r\nb\t \nc ", "a\r\nb\nc"), (b"a=20 \r\nb=20", "a \r\nb "), (b"a= \t\r\nb=\t\nc= ", "abc="),
    (b"a b\r\n c\r\n \r\n", "a b\r\n c\r\n\r\n"), (b"a \rb \r", "a \rb \r"), (b" ", ""), (b" \r\r\n", " \r\r\n"),
    (b"a" + b" " * 998 + b"\r\nb", "a\r\nb"),
    (b"a" + b"\t" * 999 + b"\r\nb", "a" + "\t" * 999 + "\r\nb"),     # so long is no line: it stays as it is
])
def test_blanks_at_the_end_of_a_line_are_no_text(body, expected):
    for window in (1, 2, 3, 5, 100, 998, 999, 1000, 10_000):
        assert whole(body, b"QUOTED-PRINTABLE", b"utf-8", window) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"a", b" ", b"\t", b"\r\n", b"\n", b"=41", b"=20", b"=\r\n", b"= \r\n", b"=\n"])),
       st.integers(1, 12))
def test_quoted_printable_is_decoded_line_by_line(pieces, window):
    body = b"".join(pieces)
    assert whole(body, b"QUOTED-PRINTABLE", window=window) == quoted_printable(body).decode()


def test_blanks_without_end_are_read_in_windows():
    part = PartSpan(0, 0, 1 << 22, encoding=b"QUOTED-PRINTABLE")
    sizes = [len(piece) for piece in body_text(lambda _, count: b" " * count, part)]
    assert sum(sizes) == 1 << 22 and max(sizes) < 2 * text.WINDOW


@settings(deadline=None)
@given(st.binary(max_size=100), st.sampled_from([b"7BIT", b"BASE64", b"QUOTED-PRINTABLE"]),
       st.sampled_from([b"", b"utf-8", b"iso-2022-jp", b"utf-16", b"gb18030", b"big5", b"hz-gb-2312", b"unknown"]))
def test_junk_is_text_too(body, encoding, charset):
    whole(body, encoding, charset)
    decode_words(b"=?" + charset + b"?B?" + body + b"?= " + body)
    header_text(body)


@settings(deadline=None)
@given(st.text("abé", max_size=40), st.text("ABE\u0301", max_size=5), st.lists(st.integers(0, 40)))
def test_a_text_is_found_across_pieces(words, wanted, cuts):
    places = [0, *sorted(min(cut, len(words)) for cut in cuts), len(words)]
    pieces = [words[start:end] for start, end in zip(places, places[1:], strict=False)]
    assert is_in(wanted, [pieces]) == (wanted in words.upper().replace("É", "E\u0301"))
    assert not is_in("x", [pieces, pieces])
    if wanted:
        assert not is_in(wanted + "x", [pieces, ["x"]])


def test_a_text_is_found_wherever_it_is_cut():
    for cut in range(6):
        assert is_in("ABC", [["xabcx"[:cut], "xabcx"[cut:]]])
        assert is_in("ABC", [list("xabcx")])


def test_a_big_body_is_read_in_windows():
    reads = []

    def read(offset, count):
        reads.append(count)
        return b"a" * count

    part = PartSpan(0, 100, 100 + (1 << 24))
    assert not is_in("b", [body_text(read, part)])
    assert sum(reads) == 1 << 24 and max(reads) == text.WINDOW
