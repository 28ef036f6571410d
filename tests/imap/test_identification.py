"""ID before login, as long as RFC 2971 §3.3 allows, in any form; and where clients put blanks."""

import pytest

NAME, VALUES = b"n" * 30, (b"v" * 1024, b'"\\' * 512)


def quoted(octets):
    return b'"%b"' % octets.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def literal(octets):
    return b"{%d+}\r\n%b" % (len(octets), octets)


def identified(place, arguments):
    """What is answered before and after login."""
    wire = place.connect()
    wire.received()
    for tag, more in ((b"a", b""), (b"c", b"b LOGIN alice secret\r\n")):
        wire.send(more)
        wire.received()
        wire.send(b"%b ID %b\r\n" % (tag, arguments))
        yield wire.received()


@pytest.mark.parametrize("form", [quoted, literal])
@pytest.mark.parametrize("value", VALUES)
def test_thirty_fields(place, form, value):
    said = [*identified(place, b"(%b)" % b" ".join([form(NAME) + b" " + form(value)] * 30))]
    assert [answer.startswith(b'* ID ("name" "onecopy"') for answer in said] == [True, True]


@pytest.mark.parametrize("fields", [
    b" ".join([b'"n" "v"'] * 31), b'"n" "%b"' % (b"v" * 1025), b'"%b" "v"' % (b"n" * 31), b'"n"', b"n v", b'"n" "v'])
def test_what_is_more_or_none(place, fields):
    assert [answer[:6] for answer in identified(place, b"(%b)" % fields)] == [b"a BAD ", b"c BAD "]


@pytest.mark.parametrize("arguments", [
    b'( "name" "x" )', b'("name" "x" )', b'( "name" NIL)', b'("name"  "x"   "version" "1")', b"( )", b"()"])
def test_blanks_within_the_list(place, arguments):
    """aioimaplib puts them there, and Dovecot takes them."""
    assert [answer[:5] for answer in identified(place, arguments)] == [b"* ID ", b"* ID "]
