"""Any octets to what POP3 parses and writes: a value that is what it should be, or the problem that it should raise."""

import unicodedata

from pop3.dots import DotWriter
from pop3.policy import PerUser
from pop3.replies import ok, refused
from pop3.states import COMMANDS
from pop3.surrogate import NeedsUtf8, Surrogate, changes_of, conventional, is_international
from pop3.uniqueids import UniqueIds, parse
from pop3.wire import Auth, Lang, Pass, SyntaxProblem, Top, TopLines, User, keyword, prepared, response
from store.message.cacherecord import render
from store.message.mime import parse as parse_message
from store.tables.uidls import is_legal
from tests.pop3.place import SCRIPTS, said
from tests.pop3.test_wire import top
from tests.support.fuzz.parsers import LONGEST, Parsers

PLACES = ("/pop3/",)    # where steps are counted
STEPS = (800, 40)       # lines that an input may take, and for each of its octets
KEPT = 800              # blocks, for what is made only once, and for small caches

WORDS = (*COMMANDS, b"PLAIN", b"\r\n", b"\r\n\r\n", b"\n.\n", b"\r\n.\r\n", b"%08X", b"%u", b"%v", b"\xc3\xa4",
         b"\xff", b"From: ",
         b"Subject: ", b"Content-Type: multipart/mixed; boundary=b\r\n", b"--b\r\n", b'name="', b"<a@b>", b"=30d",
         b"@example.org",
         b"\xe2\x80\x8e", b"\xd8\xa7", b"message/rfc822")
MESSAGES = (
    "Subject: Über\r\nFrom: Jö <ö@b>, \"a, ü\" <c@d>; (ä)\r\n\r\nä\r\n".encode(),
    ("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: x/y; name=\"ä\\\"\"\r\n\r\n.\r\n"
     "--b--\r\n").encode(),
    b"Content-Type: message/rfc822\r\n\r\nSubject: \xc3\xa4\r\n\r\n..\r\n", b"A: b\n\n.\n.\r\n\xff")
FORMS = (b"%08Xv%08Xu", b"%v.%u", b"UID%u-%v", b"%%%010u")
LISTS = (b"alice=30d @example.org=0,bob@b=5m", b"a=1w")


class Octets:
    """A message in memory, as a file."""

    def __init__(self, octets):
        self.octets, self.size = octets, len(octets)

    def read(self, offset, count):
        """As a message file does."""
        return self.octets[offset:offset + count]


def refusal(problem, function, *arguments):
    """The answer of the function, or `problem` if it raises that."""
    try:
        return function(*arguments)
    except problem:
        return problem


def examine_line(data, _cut):
    """A command, parsed as the table says."""
    line = data.partition(b"\n")[0]
    split = refusal(SyntaxProblem, keyword, line)
    if split is SyntaxProblem or split[0] not in COMMANDS:
        return
    command = refusal(SyntaxProblem, COMMANDS[split[0]].parse, split[1])
    if isinstance(command, User):
        assert command.name.strip(" ") and "Cc" not in map(unicodedata.category, command.name)
    elif isinstance(command, Pass):
        assert command.password.reveal().decode() and not set(command.password.reveal()) & set(range(32))
    elif isinstance(command, Top):
        assert 0 <= command.number < 10**10 and 0 <= command.lines < 10**10
    elif isinstance(command, Auth):
        assert command.mechanism == command.mechanism.upper()
    elif isinstance(command, Lang):
        assert command.range is None or command.range == command.range.lower()


def examine_text(data, _cut):
    """Replies are one line, names are prepared once and for all, base64 is base64."""
    text = data.decode("utf-8", "replace")
    for line in (ok(text), refused(text), refused(text, "SYS/TEMP")):
        assert len(line) <= 512 and line.count(b"\n") == 1 and line.endswith(b"\r\n") and line.isascii()
    name = refusal(SyntaxProblem, prepared, data)
    if isinstance(name, str) and not name.isascii():
        assert prepared(name.encode()) == name
    refusal(SyntaxProblem, response, data)


def examine_template(data, cut):
    """A template makes legal unique-ids, different ones for different UIDs."""
    form = refusal(ValueError, parse, data.decode("latin-1"))
    if form is not ValueError:
        names = UniqueIds(form, cut + 1, {2: b"1", 3: b"2"})
        made = [names.of(uid) for uid in (1, 2, 3, 4, (1 << 32) - 1)]
        assert all(map(is_legal, made)) and len(set(made)) == len(made)
    times = refusal(ValueError, PerUser.parse, cut, data.decode("latin-1"))
    if times is not ValueError:
        assert all(0 <= time <= 1 << 31 for time in times.others.values())
        assert times.of("alice@example.net", "example.org") in times.values


def examine_top(data, cut):
    """TOP shows what its definition says, however the message is cut, and the dots can be undone."""
    cutter, writer, lines = TopLines(cut % 7), DotWriter(), cut % 7
    shown = b""
    written = b""
    for at in range(0, len(data), cut % 40 + 1):
        piece = cutter.feed(data[at:at + cut % 40 + 1])
        shown += piece
        written += writer.feed(piece)
    assert shown == top(data, lines)
    written += writer.finish()
    assert written.endswith(b".\r\n") and (b"\r\n" + written).find(b"\r\n.\r\n") == len(written) - 3


def examine_surrogate(data, cut):
    """A surrogate has the message's own octets where there is no header, and is ASCII where there is one."""
    file = Octets(data)
    cached = render(parse_message(file.read, file.size), bytes(32), 0)
    changes = refusal(NeedsUtf8, changes_of, file, cached, 0, data[:cut])
    if changes is NeedsUtf8:
        return
    at, expected = 0, b""
    for start, end, new in changes:
        assert at <= start < end <= len(data) and new.isascii() and is_international(data[start:end])
        assert conventional(new) == new
        expected += data[at:start] + new
        at = end
    expected += data[at:]
    made = Surrogate.of(file, changes)
    assert made.size == len(expected) and made.read(0, len(expected)) == expected
    assert b"".join(made.read(at, cut + 1) for at in range(0, made.size, cut + 1)) == expected


EXAMINED = (examine_line, examine_text, examine_template, examine_top, examine_surrogate)


def corpus():
    """The lines of the scripts, and an input of each kind for each parser."""
    for script in sorted(SCRIPTS.glob("*.txt")):
        for line in said(script.read_text()):
            yield b"\0\x07" + line[:LONGEST - 2]
    for kind, seeds in ((1, MESSAGES), (2, (*FORMS, *LISTS)), (3, MESSAGES), (4, MESSAGES)):
        yield from (bytes((kind, 5)) + seed for seed in seeds)


TARGET = Parsers(EXAMINED, WORDS, corpus, PLACES, STEPS, KEPT)
examine = TARGET.examine
