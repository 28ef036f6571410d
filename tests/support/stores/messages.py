"""Messages made from a seed: the same seed, number and size always give the same octets.

They are what a relay may hand on unchanged: CRLF at every line end, lines of at most 998 octets, a header that needs no
repair. Apart from that they are as awkward as can be.
"""

import base64
import math
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from store.message.cacherecord import CachedMessage

SMALLEST = 1024
LONGEST_LINE = 998                  # RFC 5322 §2.1.1

_WORDS = (b"the quick brown fox jumps over a lazy dog while From and Subject: stand at -- the = start of lines "
          b"0123456789 {12} {34+} () [] \"quoted\" \\back * % . .. ... ~ NIL nil +OK -ERR 250 354").split()
_EIGHT_BIT = ["Größe", "naïve", "日本語", "Ελληνικά", "\u00a0", "🜁", "Ω", "ÿ"]

Kind = tuple[bytes, Iterator[bytes], bytes]


def make(seed: int, number: int, size: int) -> bytes:
    """A message of exactly `size` octets. Its kind goes by its number, everything else by seed and number."""
    if size < SMALLEST:
        raise ValueError(f"{size} octets are too few: at least {SMALLEST}")
    random = Random(f"{seed}/{number}")
    opening, lines, closing = KINDS[number % len(KINDS)](random)
    head = _header(random, seed, number) + opening
    return head + _fill(lines, size - len(head) - len(closing)) + closing


def mark(seed: int, number: int) -> bytes:
    """The header line by which a test knows the message again."""
    return b"X-Number: %d/%d" % (seed, number)


def number_of(message: bytes) -> tuple[int, int]:
    """Seed and number of a message that `make` made, whatever was put on top of it."""
    line = message[message.index(b"\r\nX-Number: ") + 12:].split(b"\r\n", 1)[0]
    seed, number = line.split(b"/")
    return int(seed), int(number)


def sizes(seed: int, how_many: int, smallest: int = SMALLEST, largest: int = 1024 * 1024) -> list[int]:
    """Sizes spread evenly on a logarithmic scale, both ends among them."""
    random = Random(f"sizes/{seed}")
    low, high = math.log(smallest), math.log(largest)
    inner = [int(math.exp(random.uniform(low, high))) for _ in range(how_many - 2)]
    everything = [smallest, largest, *(min(max(size, smallest), largest) for size in inner)]
    random.shuffle(everything)
    return everything


def _header(random: Random, seed: int, number: int) -> bytes:
    day, hour, minute = random.randrange(1, 28), random.randrange(24), random.randrange(60)
    return b"\r\n".join([
        b"Date: %d Nov 2026 %02d:%02d:00 +0100" % (day, hour, minute),
        b"From: \"Sender, Number %d\" <sender%d@example.org>" % (number, number % 7),
        b"To: undisclosed-recipients:;",
        b"Message-ID: <%d.%d.%x@example.org>" % (seed, number, random.getrandbits(64)),
        b"Subject: =?utf-8?B?" + base64.b64encode(f"Nummer {number} – Grüße".encode()) + b"?=",
        b"\tfolded with a tab,",
        b"  and with two spaces  ",
        mark(seed, number),
        b"X-Long: " + b" ".join(random.choices(_WORDS, k=30)),
        b"MIME-Version: 1.0", b""])


def _fill(lines: Iterator[bytes], room: int) -> bytes:
    """As many lines as make exactly `room` octets, each with its CRLF."""
    out = []
    while room:
        line = next(lines)[:min(room - 2, LONGEST_LINE)]
        if room - len(line) - 2 == 1:               # one octet cannot be a line: this one gives way
            line = line[:-1] if line else b"x"
        out.append(line)
        room -= len(line) + 2
    return b"\r\n".join([*out, b""])


def _text(random: Random) -> Iterator[bytes]:
    pool = b" ".join(random.choices(_WORDS, k=4000))
    while True:
        start = random.randrange(len(pool) - 120)
        yield pool[start:start + random.randrange(120)]


def _base64(random: Random) -> Iterator[bytes]:
    coded = base64.b64encode(random.randbytes(57 * 1000))
    for turn in count():
        place = turn % 1000 * 76
        yield coded[place:place + 76]


def _plain(random: Random) -> Kind:
    return b"Content-Type: text/plain; charset=us-ascii\r\n\r\n", _text(random), b""


def _dots(random: Random) -> Kind:
    """Lines that begin with dots, and lone dots: the stuffing of SMTP, LMTP and POP3 must take them."""
    def lines() -> Iterator[bytes]:
        for text in _text(random):
            yield random.choice([b".", b"..", b"...", b". ", b".\t", b".QUIT", b"", b"." + text])
    return b"Content-Type: text/plain\r\n\r\n.\r\n..\r\n.first\r\n", lines(), b".last\r\n.\r\n"


def _long_lines(random: Random) -> Kind:
    def lines() -> Iterator[bytes]:
        pool = b"".join(random.choices(_WORDS, k=2000))
        for turn in count():
            start = random.randrange(len(pool) - LONGEST_LINE)
            yield pool[start:start + (LONGEST_LINE if turn % 2 else random.randrange(LONGEST_LINE))]
    return b"Content-Type: text/plain; format=flowed\r\n\r\n", lines(), b""


def _eight_bit(random: Random) -> Kind:
    def lines() -> Iterator[bytes]:
        for text in _text(random):
            yield text[:60] + " ".join(random.choices(_EIGHT_BIT, k=4)).encode(random.choice(["utf-8", "utf-16-le"])) \
                .replace(b"\0", b"\xff").replace(b"\r", b"\xfe").replace(b"\n", b"\xfd")
    return b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n", lines(), b""


def _attachment(random: Random) -> Kind:
    edge = b"=_%016x" % random.getrandbits(64)
    opening = (b"Content-Type: multipart/mixed; boundary=\"" + edge + b"\"\r\n\r\nFor old readers.\r\n--" + edge
               + b"\r\nContent-Type: text/html; charset=iso-8859-1\r\n\r\n<p>h\xe9</p>\r\n--" + edge
               + b"\r\nContent-Type: application/octet-stream; name*=utf-8''%C3%A4.bin\r\n"
                 b"Content-Transfer-Encoding: base64\r\n\r\n")
    return opening, _base64(random), b"--" + edge + b"--\r\nafter the end\r\n"


def _nested(random: Random) -> Kind:
    outer, inner = (b"edge%08x" % random.getrandbits(32) for _ in range(2))
    opening = (b"Content-Type: multipart/mixed; boundary=" + outer + b"\r\n\r\n--" + outer
               + b"\r\nContent-Type: message/rfc822\r\n\r\nSubject: inside\r\nFrom: inner@example.org\r\n"
                 b"Content-Type: multipart/alternative; boundary=" + inner + b"\r\n\r\n--" + inner
               + b"\r\n\r\nplain\r\n--" + inner + b"\r\nContent-Type: text/html\r\n\r\n")
    return opening, _text(random), b"--" + inner + b"--\r\n--" + outer + b"--\r\n"


def _broken(random: Random) -> Kind:
    """MIME that nobody closed, with a part that claims to be one more multipart without a boundary."""
    return (b"Content-Type: multipart/mixed; boundary=\"never closed\r\n\r\n--never closed\r\n"
            b"Content-Type: multipart/; boundary=\r\nContent-Transfer-Encoding: base64\r\n\r\n"), _text(random), b""


KINDS: list[Callable[[Random], Kind]] = [_plain, _dots, _long_lines, _eight_bit, _attachment, _nested, _broken]


def changed(record: CachedMessage, **parts: Any) -> CachedMessage:
    """A cache record with other parts."""
    names = ("digest", "trace", "envelope", "bodystructure", "body", "table", "references", "fields")
    return CachedMessage.of(**{name: getattr(record, name) for name in names} | parts)
