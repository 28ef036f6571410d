"""Any octets as a message: its tree, its record, and its text are what they should be, and nothing raises."""

import datetime
from contextlib import contextmanager

from attrs import frozen

from store.message import envelopes, headers, mime, text
from store.message.basesubject import base_subject
from store.message.cacherecord import CachedMessage, render
from store.message.fields import Lister, header_fields, listed
from store.message.mime import Part, Scanner
from store.message.sections import section
from tests.support.fuzz.choices import Choices
from tests.support.fuzz.mail import broken
from tests.support.fuzz.steps import counted
from tests.support.grammar import responses

LONGEST = 400           # octets of an input
PLACES = ("/store/",)   # where steps are counted
SAMPLE = 100            # of so many inputs one has its steps counted
STEPS = (30_000, 120)   # lines that a message may take, and for each of its octets; it is read many times
READ = 6                # parts of a message whose text is read
MID = bytes(range(32))

WORDS = (
    b"Content-Type: ", b"multipart/mixed; boundary=b", b"message/rfc822", b"text/plain; charset=", b"\r\n--b\r\n",
    b"\r\n--b--\r\n", b"\r\n\r\n", b"\n\n", b"Subject: ", b"From: ", b"To: ", b"References: ", b"=?utf-8?q?=C3=A4?=",
    b"=?utf-8?b?w6Q=?=", b"Content-Transfer-Encoding: base64", b"quoted-printable", b"; name*0*=utf-8''%C3", b'"', b"(",
    b")", b"<a@b>", b"G: a@b;", b"Content-Disposition: attachment; filename=", b"Content-Language: de, en", b"Date: ",
    b"Mon, 1 Feb 1994 00:00:00 +0000", b"multipart/digest", b"iso-8859-1", b"utf-16", b"=C3=A4=\r\n", b"\0", b"\xff")


@frozen
class Numbered:
    """What `section` needs of a record, its parts decoded once."""

    parts: dict
    trace: int = 0


def message_of(data):
    """The message that an input stands for: the octets, or what follows from them as choices."""
    return data[1:] if not data or data[0] % 2 == 0 else broken(Choices(data[1:]))


@contextmanager
def window(module, size):
    """Octets are looked at so many together."""
    before, module.WINDOW = module.WINDOW, size
    try:
        yield
    finally:
        module.WINDOW = before


def scanned(message, size):
    """The tree of a message that comes in pieces of that size."""
    scanner = Scanner()
    for at in range(0, len(message), size):
        scanner.feed(message[at:at + size])
    return scanner.finish()


def examine(message, choices):
    """Everything that is done with a message. Raises AssertionError."""
    tree = scanned(message, max(1, len(message)))
    size = (3, 20, 100, 1000, 5000)[choices.below(5)] + len(message) // 50
    with window(mime, 1 + choices.below(300) + len(message) // 100):
        assert scanned(message, size) == tree, "it depends on the pieces"
    parts = examine_tree(tree, message)
    record = render(tree, MID, 0)
    stored = record.data
    assert CachedMessage.from_bytes(stored) == record
    assert len(stored) <= 2000 + 40 * len(message), (len(stored), len(message))
    envelope, structure = examine_record(record)
    spans = record.parts
    assert len(spans) <= 2 * parts + 1
    for path, one in numbered(structure).items():
        span = spans[path]
        assert one[2] in (None, span.end - span.body_start), (path, one[2], span)
        assert one[3] in (None, message.count(b"\n", span.body_start, span.end)), (path, one[3], span)
        closed = (span.type, one[:2]) == (b"MESSAGE", (b"APPLICATION", b"OCTET-STREAM"))     # see `mime.Part`
        assert span.type[:20].upper() == one[0][:20] or len(span.type) > 200 or closed
    assert set(numbered(structure)) | {()} == set(spans)
    examine_envelope(envelope, record.envelope)
    examine_sections(spans, message)
    examine_text(spans, message, 3 + choices.below(40))


def examine_tree(tree, message):
    """Each part lies inside the one around it, after the one before it. Gives how many there are."""
    count, waiting = 0, [(tree, 0, len(message), 1)]
    assert tree.header_start == 0 and tree.end == len(message)
    while waiting:
        part, start, end, depth = waiting.pop()
        assert isinstance(part, Part) and start <= part.header_start <= part.body_start <= part.end <= end
        assert part.lines == (                      # told of these only: RFC 9051 §7.5.2
            message.count(b"\n", part.body_start, part.end) if part.type in (b"TEXT", b"MESSAGE") else 0)
        count += 1
        assert depth <= mime.DEPTH + 1 and count <= mime.PARTS + 1
        if part.is_multipart or part.is_message:
            assert part.children and (part.is_multipart or len(part.children) == 1)
        else:
            assert not part.children
        at = part.body_start
        for child in part.children:
            waiting.append((child, at, part.end, depth + 1))
            at = child.end
        if part.is_message:
            assert (part.children[0].header_start, part.children[0].end) == (part.body_start, part.end)
    return count


def examine_record(record):
    """ENVELOPE, BODYSTRUCTURE and BODY as a client reads them; the last two say the same."""
    line = b"* 1 FETCH (ENVELOPE %b BODYSTRUCTURE %b BODY %b)\r\n" % (
        record.envelope, record.bodystructure, record.body)
    (_, _, items), = responses(line)
    assert items[b"BODY"] == items[b"BODYSTRUCTURE"]
    return items[b"ENVELOPE"], items[b"BODYSTRUCTURE"]


def numbered(structure):
    """The parts by their numbers (RFC 3501 §6.4.5)."""
    found, waiting = {}, [((), structure, True)]
    while waiting:
        path, one, is_message = waiting.pop()
        if one[0] == b"MULTIPART":
            inside = list(enumerate(one[5], 1))
        elif is_message:
            inside = [(1, one)]                 # a message that is no multipart has one part
        else:
            continue
        for number, child in inside:
            found[*path, number] = child
            if child[0] == b"MULTIPART":
                waiting.append(((*path, number), child, False))
            elif child[4] is not None:          # it contains a message
                waiting.append(((*path, number), child[5][0], True))
    return found


def examine_envelope(read, written):
    """What SEARCH, SORT and THREAD take from an envelope is what it says; its groups begin and end."""
    fields = envelopes.split(written)
    for number in (envelopes.DATE, envelopes.SUBJECT, envelopes.IN_REPLY_TO, envelopes.MESSAGE_ID):
        value = envelopes.string(fields[number])
        assert value == read[number], (value, read[number])
        decoded = text.decode_words(value or b"")
        decoded.encode("utf-8")
        base_subject(decoded)
        sent = headers.sent(value or b"")
        assert sent is None or datetime.date(1970, 1, 1) + datetime.timedelta(sent[0])
    for number in range(envelopes.FROM, envelopes.BCC + 1):
        people = envelopes.people(fields[number])
        assert people == read[number]
        in_group = False
        for person in people:
            if person[3] is None:
                assert in_group == (person[2] is None), people
                in_group = person[2] is not None
            text.decode_words(envelopes.display(person)).encode("utf-8")
            text.decode_words(envelopes.mailbox(person)).encode("utf-8")
        assert not in_group, people
        envelopes.shown(people).encode("utf-8")


def examine_sections(spans, message):
    """Sections lie inside the message (RFC 3501 §6.4.5); each field of a header is in one of two opposite lists."""
    record = Numbered(spans)
    for path in list(spans)[:READ]:
        for what in (None, "HEADER", "TEXT", "MIME"):
            span = section(record, path, what)
            assert span is None or 0 <= span[0] <= span[1] <= len(message)
        span = section(record, path, "HEADER")
        if span is not None and path in ((), (1,), (2, 1)):
            header = message[span[0]:span[1]]
            names = [b"Subject", b"content-TYPE", b"x"]
            some, others = header_fields(header, names), header_fields(header, names, exclude=True)
            kept = listed(header)
            assert not kept or Lister(names[:2])(kept) == header_fields(header, names[:2])
            both = len(some) + len(others) - len(header)
            assert 0 <= both <= len(header) and (not both or some[-both:] == others[-both:] == header[-both:])
            headers.every(header, b"received")
            text.header_text(header).encode("utf-8")
    start = section(record, (), "TEXT")
    assert start is not None and start[1] == len(message)


def examine_text(spans, message, size):
    """The octets of a part without its encoding do not depend on how many are read together."""
    def read(at, count):
        return message[at:at + count]

    for path, span in list(spans.items())[:READ]:
        if not path or span.message is not None:
            continue
        "".join(text.body_text(read, span)).encode("utf-8", "surrogatepass")
        whole = b"".join(text.body_octets(read, span))
        assert len(whole) <= 2 * (span.end - span.body_start)
        if span.end - span.body_start < 1000:
            with window(text, size):
                assert b"".join(text.body_octets(read, span)) == whole, (path, size)
                "".join(text.body_text(read, span))


class Target:
    """See `tests.support.fuzz.driver`."""

    words = WORDS
    longest = LONGEST
    kept = 30_000           # blocks, for charsets and what else is remembered

    def __init__(self):
        self.octets = 0

    def begin(self):
        """Nothing to prepare."""

    def corpus(self):
        """A small message of each kind as it is, and choices."""
        mixed = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"
        part = b"Content-Type: message/rfc822\r\n\r\nSubject: =?utf-8?q?a?=\r\nFrom: a <b@c>\r\n\r\ntext\r\n"
        yield from (b"\0" + one for one in (
            mixed + b"--b\r\n\r\none\r\n--b\r\n" + part + b"--b--\r\n", part, b"Subject: x\r\n\r\ntext",
            mixed + b"--b\r\n" + mixed.replace(b"=b", b"=bb") + b"--bb\r\n\r\ntext\r\n--b--",
            b"Content-Transfer-Encoding: base64\r\n\r\nw6TDtg==\r\n", b'To: "a" (b) <@c,@d:e@f>, G: h@i;\r\n\r\n'))
        for number in range(400):
            choices = Choices(bytes((number // 256, number % 256)))
            yield bytes((1, *(choices.below(256) for _ in range(60))))

    def run(self, data, number):
        """One message."""
        message = message_of(data)
        self.octets += len(message)
        choices = Choices(data[::-1])
        if number % SAMPLE:
            examine(message, choices)
        else:
            counted(PLACES, STEPS[0] + STEPS[1] * len(message), examine, message, choices)

    def end(self):
        """What else there is to tell."""
        return f"{self.octets >> 20} MiB of mail"


TARGET = Target()
