"""Any octets to all that reads and writes IMAP's wire: it gives a value that is what it should be, or the one error."""

import codecs
import datetime
import re
from enum import Enum
from types import BuiltinFunctionType

import attrs
import numpy as np

from imap.wire import responses, utf7
from imap.wire.accesscontrol import format_acl, format_listrights
from imap.wire.append import is_message, parse_next_message
from imap.wire.commandlimits import STRICT, Limits
from imap.wire.commands import COMMANDS, BadCommand, parse_command, status_response
from imap.wire.dates import MONTHS, date, date_time
from imap.wire.fetch import Binary, Fetch, Section
from imap.wire.flags import flag_list, format_flags
from imap.wire.framer import Frame
from imap.wire.grammar import MAX_NUMBER, MAX_NUMBER64, SyntaxProblem
from imap.wire.listing import StatusItem
from imap.wire.login import sasl_response
from imap.wire.numbers import NumberSet, format_numbers
from imap.wire.quotaroots import format_quotaroot
from imap.wire.scanner import Scanner, number_set, parse_number_set
from imap.wire.writer import Writer
from store.values import Secret
from tests.imap.fuzz.framing import Reference, heard
from tests.support.conversations.scripts import SCRIPTS, octets
from tests.support.fuzz.parsers import LONGEST, Parsers
from tests.support.grammar import numbers_of
from tests.support.grammar import responses as read_responses
from tests.support.grammar.dates import format_date, format_date_time

PLACES = ("/imap/wire/", "/imap/reading", "/store/net/")       # where steps are counted
STEPS = (1500, 60)      # lines that an input may take, and for each of its octets; it is read several times
KEPT = 10_000           # blocks, for what is remembered of names, flags and days
SMALL = Limits(line=80, literal=12, literals=4, messages=3, memory=30, swallow=40, depth=4, keys=6, items=5, ranges=6)

WORDS = (
    *COMMANDS, *(b" %b " % name for name in COMMANDS), b"a ", b"\r\n", b"\n", b"{0}\r\n", b"{3+}\r\nabc",
    b"~{3}\r\nabc", b"{20+}\r\n", b"{4294967296+}\r\n", b"{9223372036854775808}\r\n", b"(", b")", b'""', b'"\\""',
    b"NIL", b"INBOX", b"1:*", b"*:1", b"4294967295", b"4294967296", b"9223372036854775807", b"9223372036854775808",
    b"$", b"1,3:5", b"\\Seen", b"\\Recent", b"(\\Deleted $Junk)", b"FLAGS", b"+FLAGS.SILENT ", b"-FLAGS ",
    b"UNCHANGEDSINCE ", b"CHANGEDSINCE ", b"VANISHED", b"BODY.PEEK[", b"BODY[", b"]<0.1>", b"HEADER.FIELDS.NOT (",
    b"1.2.MIME]", b"TEXT", b"BINARY.SIZE[", b"BINARY.PEEK[1]<", b"ENVELOPE", b"BODYSTRUCTURE", b"RFC822.HEADER",
    b"INTERNALDATE", b"MODSEQ", b"CHARSET UTF-8 ", b"RETURN (", b"MIN MAX ALL COUNT SAVE", b"NOT ", b"OR ", b"HEADER ",
    b"SENTSINCE ", b"UID ", b"OLDER ", b"KEYWORD ", b"1-Feb-1994", b'" 1-Feb-1994 00:00:00 +0130"', b"LARGER ",
    b"SUBJECT ", b"TO ", b"(SUBSCRIBED RECURSIVEMATCH) ", b"SPECIAL-USE", b"(USE (\\Sent))", b"MYRIGHTS",
    b"STATUS (MESSAGES UNSEEN)", b"CHILDREN", b"(REVERSE DATE SUBJECT) ", b"REFERENCES ", b"ORDEREDSUBJECT ",
    b"(CONDSTORE)", b"(QRESYNC (1 2 1:3 (1,2 3,4)))", b"PLAIN ", b"AGEAYg==", b"&AOk-", b"&-", b"&2D3eAA-",
    b"\xc3\xa9", b"\xff", b"\0", b"UTF8 (~{3+}\r\nabc)", b"STORAGE 10", b"IMAP4rev2 CONDSTORE", b"+lrs", b"%", b"%/*")


def refused(problem, function, *arguments, **options):
    """The answer of the function, or `problem` if it raises that."""
    try:
        return function(*arguments, **options)
    except problem as error:
        public = error.problem.public if isinstance(error, BadCommand) else error.public
        assert public.isascii() and public.isprintable()
        return problem


def sound(value, length):
    """Whether all numbers in a command are in range, and nothing in it is longer than the command."""
    if attrs.has(type(value)) and not isinstance(value, Secret):
        return all(sound(getattr(value, one.name), length) for one in attrs.fields(type(value)))
    if isinstance(value, tuple | frozenset):
        return len(value) <= 2 * length + 20 and all(sound(one, length) for one in value)
    if isinstance(value, bool | Enum | datetime.date | Secret | BuiltinFunctionType | type | None):
        return True
    if isinstance(value, int):
        return -253402300800 <= value <= MAX_NUMBER64
    if isinstance(value, str):
        value.encode("utf-8")
    return len(value) <= length + 30            # a label is longer by some octets than what it was made of


# Whole commands

def frame_of(data):
    """The first command in the octets; what they lack to be one is made up."""
    parts, at = [], 0
    while True:
        end = data.find(b"\n", at)
        line = data[at:end if end >= 0 else len(data)].removesuffix(b"\r")
        parts.append(line)
        found = re.search(rb"\{([0-9]{1,3})\+?\}$", line)
        if found is None or end < 0:
            break
        parts.append(data[end + 1:end + 1 + int(found[1])].ljust(int(found[1]), b"x"))
        at = end + 1 + int(found[1])
    return Frame(tuple(parts))


def examine_command(data, cut):
    """A command, parsed as the table says, with limits of before login, of after, and with UTF-8."""
    frame = frame_of(data)
    kind = cut % 4
    limits, utf8 = ((STRICT, False), (SMALL, True), (Limits(), False), (Limits(), True))[kind]
    assert is_message(frame) in (True, False)
    found = refused(BadCommand, parse_command, frame, limits, utf8=utf8)
    if found is BadCommand:
        return
    tag, command = found
    assert data.startswith(tag + b" ") and re.fullmatch(rb"[^\x00-\x20\x7f-\xff(){%*\"\\+]+", tag)
    assert sound(command, sum(map(len, frame))), command
    assert hash(command) is not None
    if isinstance(command, Fetch):
        for item in command.items:
            if isinstance(item, Section | Binary) and item.label.startswith(b"B"):
                same_section(item)


def same_section(item):
    """The label of a section asks for the same section, when it is sent as an item (RFC 3501 §7.4.2)."""
    asked = re.sub(rb"<([0-9]+)>$", rb"<\1.7>", item.label)
    assert (item.partial is not None) == (asked != item.label)
    _, again = parse_command(frame_of(b"a FETCH 1 " + asked))
    found, = again.items
    assert found.path == item.path and found.label == item.label and type(found) is type(item)
    assert (found.partial is None) == (item.partial is None)
    if isinstance(item, Section):
        assert found.part == item.part
        assert [name.upper() for name in found.fields] == [name.upper() for name in item.fields]


def examine_stream(data, cut):
    """The commands in a stream, whatever the pieces are in which it comes; none is made of what belongs to another."""
    limits = SMALL if cut % 2 else Limits(line=300, literal=100, literals=8, memory=200, swallow=1000)
    wanted = Reference(data, limits).commands()
    found = heard([data], limits)
    assert found == wanted, (found, wanted)
    size = cut // 2 % 32 + 1
    pieces = [data[at:at + size] for at in range(0, len(data), size)]
    assert heard(pieces, limits) == wanted


# Elements, and their inverses

def element(function, data, cut):
    """What it reads off the octets, and where it stopped; None if it is none."""
    scan = Scanner(frame_of(data), SMALL if cut % 2 else Limits(), cut % 4 > 1)
    found = refused(SyntaxProblem, function, scan)
    assert 0 <= scan.at <= len(scan.text)
    return None if found is SyntaxProblem else (found, scan)


def examine_numbers(data, cut):
    """A set of numbers: written again it is the same; and what it selects."""
    found = element(number_set, data, cut)
    if found is None or found[0].saved:
        return
    numbers, _ = found
    assert all(0 <= number <= MAX_NUMBER for pair in numbers.ranges for number in pair)
    assert parse_number_set(bytes(numbers), 1000) == numbers
    count = cut % 50
    chosen = set()
    for first, last in numbers.ranges:
        if count or 0 not in (first, last):
            first, last = sorted((first or count, last or count))
            chosen |= {number for number in range(1, count + 1) if first <= number <= last}
    beyond = any(number > count or not count for pair in numbers.ranges for number in pair)
    places = refused(SyntaxProblem, numbers.positions, count)
    assert (places is SyntaxProblem) == beyond
    if not beyond:
        assert {int(place) + 1 for place in places} == chosen and len(places) == len(chosen)
    uids = np.arange(1, count + 1, dtype=np.uint32)
    assert (numbers.select(uids) + 1).tolist() == sorted(chosen)
    if chosen:
        assert numbers_of(format_numbers(sorted(chosen))) == sorted(chosen)
        assert NumberSet(((1, 0),)).select(uids).tolist() == list(range(count))


def examine_name(data, cut):
    """A mailbox name: modified UTF-7 has one form for each name (RFC 3501 §5.1.3)."""
    name = refused(SyntaxProblem, utf7.decode, data)
    if name is not SyntaxProblem:
        assert utf7.encode(name) == data
        assert data.isascii() and data.decode("ascii").isprintable()
        plain = re.sub(r"&([^-]*)-", lambda found: _shifted(found[1]), data.decode("ascii"))
        assert plain == name
    text = data.decode("utf-8", "replace")
    assert utf7.decode(utf7.encode(text)) == text
    for read in (Scanner.mailbox, Scanner.list_mailbox, Scanner.astring, Scanner.nstring, Scanner.announced,
                 Scanner.field_name, Scanner.flag, Scanner.number):
        element(read, data, cut)


def _shifted(inside):
    """What stands between & and -, by Python's own UTF-7, whose base64 is the usual one."""
    return codecs.decode(f"+{inside.replace(',', '/')}-".encode("ascii"), "utf-7") if inside else "&"


def examine_dates(data, cut):
    """Dates are the same when they are written again."""
    found = element(date, data, cut)
    if found is not None:
        day, _ = found
        again = format_date(day)
        assert date(Scanner(Frame((again,)))) == day == date(Scanner(Frame((b'"' + again + b'"',))))
        number, month, year = again.split(b"-")
        assert (int(number), MONTHS.index(month) + 1, int(year)) == (day.day, day.month, day.year)
    found = element(date_time, data, cut)
    if found is not None:
        when, _ = found
        written = format_date_time(*attrs.astuple(when))
        read, = read_responses(b"* 1 FETCH (INTERNALDATE " + written + b")\r\n")
        assert read[2] == {b"INTERNALDATE": written}
        if abs(when.zone) <= 24 * 60 and -62135000000 < when.seconds < 253402000000:
            assert date_time(Scanner(Frame((written,)))) == when


def examine_flags(data, cut):
    """Flags are the same when they are written again."""
    found = element(flag_list, data, cut)
    if found is not None:
        flags, _ = found
        written = format_flags(flags.system, flags.keywords)
        assert flag_list(Scanner(Frame((written,)))) == flags
        if len(written) < 500:
            assert len(read_responses(b"* FLAGS " + written + b"\r\n")) == 1
    refused(SyntaxProblem, parse_next_message, data, data[cut:])
    response = refused(SyntaxProblem, sasl_response, data)
    assert response is SyntaxProblem or response is None or len(response.reveal()) <= len(data)


# What is written

def examine_written(data, cut):
    """Whatever somebody has put into names, texts and values: what is written is what was meant, and no line more."""
    text = data.decode("utf-8", "replace").replace("\0", "")
    octets_, names = data.replace(b"\0", b""), text.split("|")
    utf8 = cut % 2 == 1
    plain = "".join(char for char in text if char not in "\r\n")        # no mailbox has a name with these
    line = (
        responses.listed([b"\\HasChildren"], plain, oldname=plain if cut % 3 else None, utf8=utf8)
        + responses.status(plain, [(StatusItem.MESSAGES, cut)], utf8=utf8)
        + format_quotaroot(plain, names, utf8=utf8)
        + format_acl(plain, [(name, "lr") for name in names], utf8=utf8)
        + format_listrights(plain, names[0], "l", ["r", "kx"], utf8=utf8)
        + status_response(None, b"NO", text) + status_response(b"a", b"OK", text, b"ALERT")
        + responses.server_id([(octets_, None), (b"x", octets_)]))
    read = read_responses(line, utf8=utf8)
    name = plain.encode() if utf8 else utf7.encode(plain)
    assert read[0][2] == read[1][1] == read[2][1] == read[3][1] == read[4][1] == name
    assert read[1][2] == {b"MESSAGES": cut}
    assert read[2][2] == [one.encode() for one in names] == [identifier for identifier, _ in read[3][2]]
    assert [one[0] for one in read[5:]] == ["NO", "tagged", "ID"] and read[5][1] is None
    label = Writer(utf8).raw(b"* ID (").string(octets_).raw(b" ").nstring(octets_).raw(b")\r\n")
    assert len(read_responses(bytes(label), utf8=utf8)) == 1


EXAMINED = (examine_command, examine_stream, examine_command, examine_numbers, examine_name, examine_dates,
            examine_flags, examine_written)


def corpus():
    """The lines of the scripts, and an input of each kind."""
    for script in SCRIPTS.glob("*.txt"):
        said = script.read_text()
        lines = [octets(rest) if tilde else rest.encode() + b"\r\n"
                 for tilde, rest in re.findall(r"^C\d?(~?): (.*)$", said, re.MULTILINE)]
        lines = [line for line in lines if len(line) < LONGEST - 2]
        yield b"\1\x0e" + b"".join(lines)[:LONGEST - 2]
        yield from (bytes((number % 2 * 2, number % 4)) + line for number, line in enumerate(lines))
    for kind, seeds in ((3, (b"1:*", b"*", b"5:2,7", b"$")), (4, (b"Entw&APw-rfe", b"&2D3eAA-", b'"a\\"b"')),
                        (5, (b"1-Feb-1994", b'" 1-Feb-1994 00:00:00 +0130"')), (6, (b"(\\Seen $Junk x)",)),
                        (7, (b"a|b", "Entwürfe|{3}\r\nabc".encode(), b'"\\|(x) [y]'))):
        yield from (bytes((kind, 5)) + seed for seed in seeds)


TARGET = Parsers(EXAMINED, WORDS, corpus, PLACES, STEPS, KEPT)
examine = TARGET.examine
