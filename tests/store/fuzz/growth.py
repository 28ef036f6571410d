"""Messages and headers that repeat one thing as often as the limits allow."""

from store.message import envelopes, headers, text
from store.message.basesubject import base_subject
from store.message.cacherecord import CachedMessage, render
from store.message.fields import header_fields
from store.message.mime import Scanner
from tests.support.fuzz.growth import Pattern, show

PLACES = ("/store/",)
MIXED = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"


def message(octets):
    """A message: its tree, record, and envelope."""
    scanner = Scanner()
    for at in range(0, len(octets), 10_000):
        scanner.feed(octets[at:at + 10_000])
    record = render(scanner.finish(), bytes(32), 0)
    assert CachedMessage.from_bytes(record.data).parts
    fields = envelopes.split(record.envelope)
    for number in range(envelopes.FROM, envelopes.BCC + 1):
        envelopes.shown(envelopes.people(fields[number]))
    base_subject(text.decode_words(envelopes.string(fields[envelopes.SUBJECT]) or b""))
    header_fields(octets, [b"subject"])
    text.header_text(octets)


def value(octets):
    """The value of a field, read as each kind of field is."""
    headers.addresses(octets)
    headers.without_comments(octets)
    headers.content_type(octets)
    headers.token(octets)
    headers.parameter(headers.parameters(octets), b"NAME")
    headers.languages(octets)
    headers.sent(octets)
    headers.every(octets, b"x")
    base_subject(text.decode_words(octets))


def body(octets):
    """A body in each transfer encoding."""
    for encoding in (b"BASE64", b"QUOTED-PRINTABLE"):
        scanner = Scanner()
        head = b"Content-Type: text/plain; charset=iso-2022-jp\r\nContent-Transfer-Encoding: " + encoding + b"\r\n\r\n"
        whole = head + octets
        scanner.feed(whole)
        part = render(scanner.finish(), bytes(32), 0).parts[()]
        for piece in text.body_octets(lambda at, count: whole[at:at + count], part):     # noqa: B023
            assert len(piece) < 10**6
        "".join(text.body_text(lambda at, count: whole[at:at + count], part))            # noqa: B023


VALUES = (
    b"a@b, ", b"a <b@c>,", b"a b ", b"(", b"((", b"(a)", b")", b'"', b'"a" ', b"\\", b"\\\\", b"\\(", b"<", b">",
    b"<a", b"<>", b"@", b"@a", b"@a:", b"@a,", b":", b";", b"a:", b"a:;", b"a: b@c;", b",", b".", b"a.", b"[", b"[a]",
    b"[a] ", b" ", b"\t", b"; a=b", b";a", b";a=", b';a="', b"; ", b";;", b"; name*0=a", b"; name*=''%", b"%", b"=?",
    b"=?a?q?b?= ", b"=?a?q?b?=", b"=?a?q?", b"=?utf-8?b?w6Q?= ", b"=?a*b", b"Re: ", b"Re[a]: ", b"[a] re: ", b"(fwd) ",
    b"[fwd: ", b"fwd:", b"1 ", b"1", b"a", b"/", b"a/", b"de, ", b"\xff", b"\0", b"\r\n ", b"\n\t", b"\r", b"x: \n",
    b"x:", b"=?a?q?b?=\r\n ", b"<@a:b@c>,", b'"\\"', b"a@b (c) ", b"'", b"*")
BODIES = (
    b"=", b"=\r", b"=\n", b"=\r\n", b"==", b"=4", b"=41", b"A", b"AAAA\r\n", b"A=", b" ", b" \r\n", b"\xff", b"\x1b$B",
    b"\x1b(B", b"\x1b", b"\0", b"\n", b"\r")
LINES = (
    b"\r\n", b"\n", b"\r", b"\r\n--b", b"\r\n--b\r\n", b"\r\n--b\r\n\r\n", b"\r\n--b--\r\n", b"--b", b"\n--", b"\r\n-",
    b"x: y\r\n", b"x\r\n", b":\r\n", b" \r\n", b"Subject: a\r\n", b"To: a@b\r\n", b"To: a\r\n b\r\n",
    b"Content-Type: a/b\r\n", b"Content-Type: message/rfc822\r\n\r\n", MIXED + b"--b\r\n", b"a" * 70 + b"\r\n",
    b"\r\n--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\ny")
PATTERNS = (
    *(Pattern(f"value {one!r}", value, b"", one, b"", 60_000 // len(one)) for one in VALUES),
    *(Pattern(f"value ;a=b{one!r}", value, b"a/b; c=d", one, b"", 60_000 // len(one)) for one in VALUES),
    *(Pattern(f"field {name!r} {one!r}", message, name + b": ", one, b"\r\n\r\nx", 60_000 // len(one))
      for name in (b"To", b"Subject", b"Content-Type", b"Content-Disposition") for one in VALUES),
    *(Pattern(f"message {one!r}", message, start, one, b"", 150_000 // len(one))
      for one in LINES for start in (b"", MIXED)),
    *(Pattern(f"body {one!r}", body, b"", one, b"", 300_000 // len(one)) for one in BODIES),
)

if __name__ == "__main__":
    show(PATTERNS)
