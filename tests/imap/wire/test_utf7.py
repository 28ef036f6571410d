"""Modified UTF-7: RFC 3501 §5.1.3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imap.wire import utf7
from imap.wire.grammar import SyntaxProblem

NAMES = [
    ("", b""),
    ("INBOX", b"INBOX"),
    ("a & b", b"a &- b"),
    ("&&", b"&-&-"),
    ("~peter/mail/台北/日本語", b"~peter/mail/&U,BTFw-/&ZeVnLIqe-"),      # the RFC's own
    ("Entwürfe", b"Entw&APw-rfe"),
    ("ü&ü", b"&APw-&-&APw-"),
    ("😀", b"&2D3eAA-"),
    ("a-é-b", b"a-&AOk--b"),
    ("\t", b"&AAk-"),
]


@pytest.mark.parametrize("name, octets", NAMES)
def test_a_name_both_ways(name, octets):
    assert utf7.encode(name) == octets
    assert utf7.decode(octets) == name


@pytest.mark.parametrize("octets", [
    b"&", b"a&b", b"&AOk", b"&AOkA-", b"&AO-", b"&A-", b"&AOl-", b"&AGE-", b"&AOk-&AOk-", b"&AO k-", b"&AOk=-",
    b"&U/BT-",
    b"&2D0-", b"&3gA-", b"&3gDYPQ-", b"\xc3\xa9", b"a\x00", b"a\r\nb", b"\x7f", b"&ACY-", b"&!!!!-", b"&\xff-",
    b"&AOk-\xff"])
def test_illegal_forms_are_refused(octets):
    with pytest.raises(SyntaxProblem):
        utf7.decode(octets)


def test_a_lone_surrogate_cannot_be_written():
    with pytest.raises(UnicodeEncodeError):
        utf7.encode("\ud800")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_comes_back_and_goes_out_as_printable_ascii(name):
    octets = utf7.encode(name)
    assert all(0x20 <= octet <= 0x7E for octet in octets)
    assert utf7.decode(octets) == name


@given(st.binary(max_size=20) | st.text("&-AOk,+/=é").map(lambda text: text.encode("latin-1")))
def test_what_is_taken_has_one_form(octets):
    try:
        name = utf7.decode(octets)
    except SyntaxProblem:
        return
    assert utf7.encode(name) == octets
