"""The scanner: RFC 2045, 2046. The tree is compared with that of a plain reading line by line."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from store.message import mime
from store.message.mime import Part, Scanner, parse


def scan(message, *cuts, window=mime.WINDOW):
    scanner = Scanner(window)
    for start, end in zip((0, *cuts), (*cuts, len(message)), strict=True):
        scanner.feed(message[start:end])
    return scanner.finish()


def outline(part, message):
    """What a table says of a part: type, and the body of a leaf or what is inside."""
    kind = f"{part.type.decode()}/{part.subtype.decode()}".lower()
    if part.children:
        return (kind, *(outline(child, message) for child in part.children))
    return kind, message[part.body_start:part.end]


MIXED = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"

TREES = [
    (b"", ("text/plain", b"")),
    (b"Subject: x\r\n\r\nbody\r\n", ("text/plain", b"body\r\n")),
    (b"Subject: x\n\nbody\n", ("text/plain", b"body\n")),
    (b"\r\nbody", ("text/plain", b"body")),
    (b"\nbody", ("text/plain", b"body")),
    (b"\r\n", ("text/plain", b"")),
    (b"Subject: no empty line", ("text/plain", b"")),
    (b"Subject: x\r\n\rnot empty\r\n\r\nbody", ("text/plain", b"body")),
    (b"Subject: \0\xff\r\n\r\n\0\xff\r\r\n", ("text/plain", b"\0\xff\r\r\n")),
    (b"Content-Type: nonsense\r\n\r\nbody", ("text/plain", b"body")),              # RFC 2045 §5.2
    (b"CONTENT-type:\r\n Text/HTML;\r\n\tcharset=x\r\n\r\nbody", ("text/html", b"body")),
    # RFC 2046 §5.1.1: preamble, epilogue, the CRLF belongs to the boundary
    (MIXED + b"preamble\r\n--b\r\n\r\none\r\n--b\r\nContent-Type: text/html\r\n\r\ntwo\r\n\r\n--b--\r\nepilogue\r\n",
     ("multipart/mixed", ("text/plain", b"one"), ("text/html", b"two\r\n"))),
    (MIXED + b"--b\r\n\r\none\r\n--b--", ("multipart/mixed", ("text/plain", b"one"))),
    (MIXED.replace(b"\r\n", b"\n") + b"--b\n\none\n--b\n\ntwo\n--b--\n",
     ("multipart/mixed", ("text/plain", b"one"), ("text/plain", b"two"))),
    (MIXED + b"--b  \r\n\r\none\r\n--b\t\r\n\r\ntwo\r\n--b-- \r\n",
     ("multipart/mixed", ("text/plain", b"one"), ("text/plain", b"two"))),
    (MIXED + b"--b\r\n\r\n--b\r\n\r\n\r\n--b\r\n\r\n\r\n\r\n--b--",
     ("multipart/mixed", ("text/plain", b""), ("text/plain", b""), ("text/plain", b"\r\n"))),
    # neither at the start of a line
    (MIXED + b"--b\r\n\r\n a --b\r\n --b\r\n-\r--b\r\n--b--",
     ("multipart/mixed", ("text/plain", b" a --b\r\n --b\r\n-\r--b"))),
    # no close delimiter
    (MIXED + b"--b\r\n\r\none\r\n--b\r\n\r\ntwo\r\n",
     ("multipart/mixed", ("text/plain", b"one"), ("text/plain", b"two\r\n"))),
    # a header without its empty line
    (MIXED + b"--b\r\nContent-Type: text/html\r\n--b\r\n--b--\r\n",
     ("multipart/mixed", ("text/html", b""), ("text/plain", b""))),
    (MIXED + b"--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: y\r\n\r\n--b--\r\n",
     ("multipart/mixed", ("message/rfc822", ("text/plain", b"")))),
    (MIXED + b"--b\r\nContent-Type: message/rfc822\r\n--b\r\n\r\nx\r\n--b--\r\n",
     ("multipart/mixed", ("message/rfc822", ("text/plain", b"")), ("text/plain", b"x"))),
    (MIXED + b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n--b\r\n\r\nx\r\n--b--\r\n",
     ("multipart/mixed", ("text/plain", b""), ("text/plain", b"x"))),
    # no boundary, an empty one, one that never comes
    (b"Content-Type: multipart/mixed\r\n\r\n--b\r\n", ("text/plain", b"--b\r\n")),
    (b'Content-Type: multipart/mixed; boundary=""\r\n\r\n--\r\n', ("text/plain", b"--\r\n")),
    (MIXED + b"--c\r\n\r\nx", ("text/plain", b"--c\r\n\r\nx")),
    (MIXED + b"--b--\r\nx", ("text/plain", b"--b--\r\nx")),
    # one multipart in another; an outer boundary ends all that is inside
    (MIXED + b"--b\r\nContent-Type: multipart/alternative; boundary=c\r\n\r\n--c\r\n\r\none\r\n--b\r\n\r\ntwo\r\n--b--",
     ("multipart/mixed", ("multipart/alternative", ("text/plain", b"one")), ("text/plain", b"two"))),
    # after the close delimiter its boundary is text
    (MIXED + b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\none\r\n--c--\r\n--c\r\n\r\n--b--",
     ("multipart/mixed", ("multipart/mixed", ("text/plain", b"one")))),
    # one boundary begins another: the longest counts
    (MIXED + b"--b\r\nContent-Type: multipart/mixed; boundary=bc\r\n\r\n--bc\r\n\r\none\r\n--bc--\r\n--b\r\n\r\ntwo",
     ("multipart/mixed", ("multipart/mixed", ("text/plain", b"one")), ("text/plain", b"two"))),
    (MIXED.replace(b"=b", b"=bc") + b"--bc\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\none\r\n"
     b"--bc\r\n\r\ntwo", ("multipart/mixed", ("multipart/mixed", ("text/plain", b"one")), ("text/plain", b"two"))),
    # the same boundary in both: the inner one's
    (MIXED + b"--b\r\n" + MIXED + b"--b\r\n\r\none\r\n--b--\r\n--b\r\n\r\ntwo\r\n--b--",
     ("multipart/mixed", ("multipart/mixed", ("text/plain", b"one")), ("text/plain", b"two"))),
    # RFC 2046 §5.1.1: what follows the boundary on its line does not matter
    (MIXED + b"--bla\r\n\r\none\r\n--b--bla", ("multipart/mixed", ("text/plain", b"one"))),
    (b'Content-Type: multipart/mixed; boundary="a b "\r\n\r\n--a b\r\n\r\none\r\n--a b--',
     ("multipart/mixed", ("text/plain", b"one"))),
    (b"Content-Type: multipart/mixed; boundary*0=a; boundary*1=b\r\n\r\n--ab\r\n\r\none\r\n--ab--",
     ("multipart/mixed", ("text/plain", b"one"))),
    # RFC 2046 §5.2.1
    (b"Content-Type: message/rfc822\r\n\r\nSubject: y\r\n\r\nbody", ("message/rfc822", ("text/plain", b"body"))),
    (b"Content-Type: message/rfc822\r\n\r\n", ("message/rfc822", ("text/plain", b""))),
    # RFC 6532 §3.7, RFC 9051 §7.5.2: as long as it is not encoded
    (b"Content-Type: message/global\r\n\r\nSubject: y\r\n\r\nbody", ("message/global", ("text/plain", b"body"))),
    (b"Content-Type: message/global\r\nContent-Transfer-Encoding: Base64\r\n\r\nU3ViamVjdDogeQ==",
     ("application/octet-stream", b"U3ViamVjdDogeQ==")),
    (b"Content-Type: message/rfc822\r\n\r\n" + MIXED + b"--b\r\n\r\none\r\n--b--",
     ("message/rfc822", ("multipart/mixed", ("text/plain", b"one")))),
    (b"Content-Type: message/delivery-status\r\n\r\nbody", ("message/delivery-status", b"body")),
    # RFC 2046 §5.1.5
    (b"Content-Type: multipart/digest; boundary=b\r\n\r\n--b\r\n\r\nSubject: y\r\n\r\none\r\n--b\r\n"
     b"Content-Type: text/html\r\n\r\ntwo\r\n--b--",
     ("multipart/digest", ("message/rfc822", ("text/plain", b"one")), ("text/html", b"two"))),
]
MESSAGES = [message for message, _ in TREES]


@pytest.mark.parametrize(("message", "expected"), TREES)
def test_tree(message, expected):
    assert outline(scan(message), message) == expected


@pytest.mark.parametrize("window", [1, 3, 64])
@pytest.mark.parametrize("message", MESSAGES)
def test_every_cut_gives_the_same_tree(message, window):
    whole = scan(message)
    for cut in range(len(message) + 1):         # a chunk is looked at as soon as it comes
        assert scan(message, cut, window=window) == whole
    assert scan(message, *range(1, len(message)), window=window) == whole
    assert parse(lambda offset, count: message[offset:offset + count], len(message), window) == whole


# A second reading, line by line, with none of the scanner's ways.

class Reading:
    def __init__(self, message):
        self.lines = re.findall(rb"[^\n]*\n|[^\n]+\Z", message)
        self.starts = [sum(map(len, self.lines[:at])) for at in range(len(self.lines) + 1)]
        self.at = 0
        self.boundaries = []

    def boundary(self):
        """The boundary that the present line is, the longest and innermost."""
        if self.at == len(self.lines):
            return None
        fits = [number for number, text in enumerate(self.boundaries) if self.lines[self.at].startswith(b"--" + text)]
        return max(fits, key=lambda number: (len(self.boundaries[number]), number), default=None)

    def entity(self, digest=False):
        start = self.starts[self.at]
        head = []
        while self.at < len(self.lines) and self.boundary() is None:
            head.append(self.lines[self.at])
            self.at += 1
            if head[-1] in (b"\n", b"\r\n"):
                break
        body, first = self.starts[self.at], self.at
        text = b"".join(head)
        kind, children, counts = ("rfc822" if digest else "leaf"), [], True
        if found := re.search(rb"(?m)^Content-Type: (\S+?)(?:; boundary=(\w+))?\r?$", text):
            kind = {b"message/rfc822": "rfc822", b"multipart/mixed": "multi", b"multipart/digest": "digest"}.get(
                found[1], "leaf")
            counts = not found[1].startswith(b"application/")
        if kind in ("multi", "digest"):
            children = self.multipart(found[2], kind == "digest")
        elif kind == "rfc822":
            children = [self.entity()]
        else:
            self.skip()
        if not children:
            kind = "leaf"
        end = self.starts[self.at]
        if self.at < len(self.lines):                       # at a boundary, to which the line end belongs
            end -= 2 if self.lines[self.at - 1].endswith(b"\r\n") else 1
        # A line end that a header needs is not the boundary's.
        end = max(end, body, *(child[3] for child in children))
        if kind in ("multi", "digest") or not counts:      # BODYSTRUCTURE tells lines of texts and messages
            return kind, start, body, end, 0, children
        count = len(b"".join(self.lines[first:self.at])[:end - body].split(b"\n")) - 1
        return kind, start, body, end, count, children

    def skip(self):
        while self.at < len(self.lines) and self.boundary() is None:
            self.at += 1

    def multipart(self, boundary, digest):
        if boundary is None:
            self.skip()
            return []
        own = len(self.boundaries)
        self.boundaries.append(boundary)
        children = []
        self.skip()
        while self.boundary() == own:
            closes = self.lines[self.at].startswith(b"--" + boundary + b"--")
            self.at += 1
            if closes:
                self.boundaries.pop()
                self.skip()
                return children
            children.append(self.entity(digest))
        self.boundaries.pop()
        return children


def shape(part):
    kind = "leaf"
    if part.children:
        kind = "rfc822" if part.is_message else "digest" if part.subtype == b"DIGEST" else "multi"
    return kind, part.header_start, part.body_start, part.end, part.lines, [shape(child) for child in part.children]


LINES = st.lists(st.tuples(
    st.sampled_from([b"", b"", b"text", b"-", b"--", b"--a", b"--a", b"--ab", b"--b", b"--a--", b"--ab--", b"--b--",
                     b"Content-Type: multipart/mixed; boundary=a", b"Content-Type: multipart/mixed; boundary=ab",
                     b"Content-Type: multipart/digest; boundary=b", b"Content-Type: message/rfc822", b"\r",
                     b"Content-Type: text/html", b"Subject: x", b"Content-Type: application/zip", b"QUJD" * 9]),
    st.sampled_from([b"\r\n", b"\r\n", b"\n"])), max_size=40).map(
        lambda lines: b"".join(text + end for text, end in lines))
WELL_FORMED = st.recursive(
    st.sampled_from([b"\r\ntext", b"Content-Type: text/html\r\n\r\nline\r\n\r\n", b"Subject: x\r\n\r\n", b"\r\n",
                     b"Content-Type: application/zip\r\n\r\n" + b"QUJDREVG\r\n" * 20]),
    lambda inner: st.one_of(
        inner.map(lambda body: b"Content-Type: message/rfc822\r\n\r\n" + body),
        st.tuples(st.sampled_from([b"mixed", b"digest"]), st.sampled_from([b"a", b"b", b"ab"]),
                  st.lists(inner, min_size=1, max_size=3)).map(
            lambda made: b"Content-Type: multipart/%b; boundary=%b\r\n\r\n" % made[:2]
            + b"".join(b"\r\n--%b\r\n%b" % (made[1], body) for body in made[2]) + b"\r\n--%b--\r\n" % made[1])))


BROKEN = st.lists(st.sampled_from([MIXED, b"--b", b"--b--", b"\r", b"\n", b"\r\n", b"-", b"\0", b"x",
                                   b"Content-Type: message/rfc822"]), max_size=30).map(b"".join)


ATTACHED = b"QUJDREVG\r\n" * 100
IN_MESSAGE = (b"Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\nContent-Type: message/rfc822\r\n\r\n"
              b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: application/zip\r\n\r\n%b"
              b"\r\n--b--\r\n--a\r\n\r\none\r\n--a--\r\n")


@pytest.mark.parametrize("message", [
    IN_MESSAGE % ATTACHED,
    b"Content-Type: multipart/mixed; boundary=a\r\n\r\n" + ATTACHED,         # it is a text
    b"Content-Type: multipart/mixed; boundary=a\r\n\r\n" + ATTACHED + b"--a\r\nContent-Type: application/zip\r\n\r\n"
    + ATTACHED + b"--a\r\n\r\n" + ATTACHED + b"--a--\r\n" + ATTACHED])
def test_lines_are_counted_where_nothing_is_searched(message):
    """Pieces without a hyphen, of which most are passed over."""
    assert shape(scan(message, *range(150, len(message), 150), window=8)) == Reading(message).entity()


@settings(deadline=None)
@given(st.one_of(LINES, WELL_FORMED))
@example(b"Content-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: message/rfc822\n--a--")
def test_agrees_with_a_reading_line_by_line(message):
    # A second Content-Type in one header would be read differently on purpose: the first counts.
    assert shape(scan(message)) == Reading(message).entity()


@given(st.data(), st.one_of(LINES, WELL_FORMED, st.sampled_from(MESSAGES), BROKEN), st.sampled_from([1, 2, 7, 50]))
@settings(max_examples=200, deadline=None)
def test_chunks_do_not_matter(data, message, window):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(message)), max_size=8)))
    assert scan(message, *cuts, window=window) == scan(message, window=window)


def check(part, start, end):
    assert start <= part.header_start <= part.body_start <= part.end <= end
    at = part.body_start
    for child in part.children:
        check(child, at, part.end)
        at = child.end


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=300), LINES, BROKEN))
def test_junk_is_a_tree_too(message):
    for text in (message, MIXED + message, MIXED + b"--b\r\n" + message):
        root = scan(text)
        assert (root.header_start, root.end) == (0, len(text))
        check(root, 0, len(text))


def test_the_fields_of_a_part():
    part = scan(b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: Quoted-Printable (x)\r\n"
                b"Content-ID: <1@x>\r\nContent-Description: what\r\n it is\r\nContent-MD5: abc==\r\n"
                b"Content-Disposition: attachment; filename=x.txt\r\nContent-Language: en, de\r\n"
                b"Content-Location: http://example.org/\r\nSubject: s\r\nTo: a@b.test\r\n\r\none\r\ntwo")
    assert part.envelope is not None
    assert part.envelope[b"subject"] == b"s" and part.envelope[b"to"] == b"a@b.test"
    assert part == Part(
        0, part.body_start, part.body_start + 8, 1, b"TEXT", b"PLAIN", ((b"CHARSET", b"utf-8"),), b"<1@x>",
        b"what it is", b"QUOTED-PRINTABLE", b"abc==", (b"ATTACHMENT", ((b"FILENAME", b"x.txt"),)), (b"en", b"de"),
        b"http://example.org/", (), part.envelope, part.listed)


def test_only_messages_have_an_envelope():
    root = scan(MIXED + b"--b\r\nSubject: a\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: b\r\n\r\n--b--")
    assert root.children[0].envelope is None
    assert root.children[1].envelope is None
    inner = root.children[1].children[0].envelope
    assert inner is not None and inner[b"subject"] == b"b"


# Limits

def depth(part):
    return 1 + max(map(depth, part.children), default=0)


def count(part):
    return 1 + sum(map(count, part.children))


def test_depth_has_a_limit():
    boundaries = range(2 * mime.DEPTH)
    message = b"".join(b"Content-Type: multipart/mixed; boundary=x%dx\r\n\r\n--x%dx\r\n" % (n, n) for n in boundaries)
    root = scan(message + b"\r\ntext")
    assert depth(root) == mime.DEPTH
    while root.children:
        root, = root.children
    assert (root.type, root.subtype, root.end) == (b"APPLICATION", b"OCTET-STREAM", len(message) + 6)
    assert depth(scan(b"Content-Type: message/rfc822\r\n\r\n" * 2 * mime.DEPTH)) == mime.DEPTH


def test_parts_have_a_limit_and_the_last_takes_the_rest():
    message = MIXED + b"--b\r\n\r\nx\r\n" * 2 * mime.PARTS + b"--b--\r\n"
    root = scan(message)
    assert count(root) == mime.PARTS
    assert root.children[-1].end == len(message)
    digest = b"Content-Type: multipart/digest; boundary=b\r\n\r\n" + b"--b\r\n\r\nSubject: x\r\n\r\n" * 2 * mime.PARTS
    assert count(scan(digest)) <= mime.PARTS


def test_a_long_header_is_parsed_in_part_and_its_end_found():
    header = (b"Subject: early\r\nX-Long: " + b"x" * 2 * mime.MESSAGE_HEADER
              + b"\r\nDate: late\r\nContent-Type: text/html\r\n\r\n")
    root = scan(header + b"body", 5, mime.WINDOW + 1)
    assert root.envelope == {b"subject": b"early"}
    assert (root.type, root.body_start, root.end) == (b"TEXT", len(header), len(header) + 4)


def test_a_field_that_is_cut_is_left_out():
    root = scan(b"Subject: early\r\nTo: " + b"a@b.test, " * mime.MESSAGE_HEADER + b"\r\n\r\n")
    assert root.envelope == {b"subject": b"early"}


def test_all_headers_together_have_a_limit():
    part = b"--b\r\nContent-Description: " + b"x" * (mime.PART_HEADER // 2) + b"\r\n\r\n"
    root = scan(MIXED + part * (4 * mime.ALL_HEADERS // mime.PART_HEADER))
    described = [child for child in root.children if child.description is not None]
    assert 0 < len(described) * mime.PART_HEADER // 2 <= mime.ALL_HEADERS
    assert len(root.children) > len(described)


def test_a_boundary_that_is_too_long_is_none():
    text = b"x" * (mime.BOUNDARY + 1)
    root = scan(b"Content-Type: multipart/mixed; boundary=" + text + b"\r\n\r\n--" + text + b"\r\n\r\n")
    assert (root.type, root.children) == (b"TEXT", ())


@pytest.mark.parametrize("message", [
    b"Subject: x\r\n\r\n", MIXED, MIXED + b"--b\r\n\r\n", b"X: ", MIXED + b"--b", MIXED + b"--b\r\nX: ",
    MIXED + b"--b--\r\n", b"Content-Type: message/rfc822\r\n\r\n"])
@pytest.mark.parametrize("chunk", [b"x" * 10_000, b"line\r\n" * 2000, b"\r\n--x" * 2000, b"\r" * 10_000])
def test_memory_is_bounded_whatever_comes(message, chunk):
    scanner = Scanner()
    scanner.feed(message)
    for _ in range(100):
        scanner.feed(chunk)
    held = len(scanner._window) + sum(map(len, scanner._waiting)) + sum(map(len, scanner._head))
    assert held <= mime.WINDOW + mime.MESSAGE_HEADER + mime.BOUNDARY
    assert scanner.finish().end == len(message) + 100 * len(chunk)


class Counted(bytes):
    """Octets that count how many of them were searched."""

    searched = 0

    def find(self, what, start=0, end=None):
        end = len(self) if end is None else min(end, len(self))
        place = super().find(what, start, end)
        Counted.searched += (place if place >= 0 else end) - start
        return place

    def __add__(self, other):
        return Counted(super().__add__(other))

    def __getitem__(self, key):
        got = super().__getitem__(key)
        return Counted(got) if isinstance(got, bytes) else got


@pytest.mark.parametrize("line", [
    b"--b\r\n\r\n", b"\r\n--\r\n-", b"--b\nContent-Type: message/rfc822\n\n", b"--b--\r\n",
    b"--b\r\nContent-Type: multipart/mixed; boundary=never\r\n\r\n"])
def test_what_is_searched_grows_with_the_message_and_not_with_its_square(line):
    Counted.searched = 0
    message = Counted(MIXED + line * 200 + b"x" * 200_000)
    scanner = Scanner(1000)
    scanner._window = Counted(scanner._window)
    scanner.feed(message)
    parts = count(scanner.finish())
    assert Counted.searched <= 8 * len(message) + parts * 4 * 1000
