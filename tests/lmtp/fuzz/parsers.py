"""Any octets to the parsers of LMTP: they give a value that is what it should be, or raise what they should raise."""

from lmtp.receiving import DotReader
from lmtp.replies import Farewell, SyntaxProblem
from lmtp.smtppaths import Address, PathProblem, is_host, is_ip, path
from lmtp.states import COMMANDS
from lmtp.verification import Malformed, netstring, parse_address, parse_netstring, parse_policy
from lmtp.wire import Bdat, Lhlo, Mail, Rcpt, Xclient, verb
from store.net.proxies import proxyheader
from tests.lmtp.conversation import SCRIPTS, SENDING, read_script, sent
from tests.support.fuzz.parsers import LONGEST, Parsers

PLACES = ("/lmtp/", "/store/net/")     # where steps are counted
STEPS = (400, 30)       # lines that an input may take, and for each of its octets
KEPT = 500              # blocks, for what is made only once

PROXIES = (
    b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 24\r\nLHLO", b"PROXY TCP6 2001:db8::1 ::ffff:192.0.2.1 56324 24\r\n",
    b"PROXY UNKNOWN anything\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12), b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x28" + bytes(36) + b"\4\0\1x",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13" + bytes(12) + b"\3\0\4abcd")
ASKED = (
    b"request=smtpd_access_policy\nrecipient=alice@example.org\nsender=a b@example.org\nsize=12345\ninstance=1.2",
    b"22:recipients alice@x.org,23:recipients", b"5:a b c,", b"0:,", b"2049:x",
    b'"a b"@example.org', b"a b@[192.0.2.1]", b"j\xc3\xb6rg@b\xc3\xbccher.example")
WORDS = (*COMMANDS, b"FROM:<", b"TO:<", b"SIZE=", b"BODY=", b"8BITMIME", b"BINARYMIME", b"SMTPUTF8", b"AUTH=",
         b"IGNOREQUOTA", b"XQUOTA=", b" LAST", b"ADDR=", b"IPV6:", b"NAME=", b"HELO=", b"LOGIN=", b"[UNAVAILABLE]",
         b"\r\n", b"\r\n.\r\n", b"[IPv6:::1]", b"[127.0.0.1]", b"\xc3\xa9", b"\xe2\x98\x83", b'"\\"', b"PROXY TCP4 ",
         b"PROXY TCP6 ", b"\r\n\r\n\0\r\nQUIT\n", b"request=smtpd_access_policy", b"recipient=", b"size=")


def refused(problem, function, *arguments):
    """The answer of the function, or `problem` if it raises that."""
    try:
        return function(*arguments)
    except problem:
        return problem


def same_again(address):
    """An address that was read can be written, and read again; nothing in it ends a line."""
    assert path(f"<{address}>") == (address, "")
    assert not set(str(address)) & set("\r\n\0")


def examine_line(data, _cut):
    """A command, parsed as the table says."""
    name, argument = verb(data.partition(b"\n")[0])
    entry = COMMANDS.get(name)
    if entry is None:
        return
    command = refused((SyntaxProblem, *[Farewell] * (name == b"BDAT")), entry.parse, argument)
    if isinstance(command, Mail):
        assert 0 <= command.size < 10**20
        if command.sender is not None:
            same_again(command.sender)
            assert command.utf8 or str(command.sender).isascii()
    elif isinstance(command, Rcpt):
        same_again(command.recipient)
        assert command.limits is None or command.limits[0] >= -2
    elif isinstance(command, Lhlo):
        assert is_host(command.name) and command.name.isascii() and command.name.isprintable()
    elif isinstance(command, Bdat):
        assert 0 <= command.size < 10**20
    elif isinstance(command, Xclient):
        assert not command.address or is_ip(command.address)
        assert all(not name or is_host(name) for name in (command.name, command.helo))


def examine_path(data, _cut):
    """What stands in <>, and what is behind it."""
    text = data.decode("utf-8", "replace")
    found = refused(PathProblem, path, text)
    if found is not PathProblem:
        address, rest = found
        assert text.endswith(rest)
        if address is not None:
            same_again(address)


def examine_dots(data, cut):
    """RFC 5321 §4.5.2, line by line, whatever the pieces are in which the octets come."""
    lines = data.split(b"\r\n")
    ended = b"." in lines[:-1]
    message = lines[:lines.index(b".")] + [b""] if ended else lines
    wanted = b"\r\n".join(line.removeprefix(b".") for line in message)
    reader, out, at = DotReader(), b"", 0
    for size in (cut, 1, 1, cut // 2 + 1, len(data)):
        chunk = data[at:at + size]
        if chunk and not reader.done:
            out += reader.feed(chunk)
            at += len(chunk)
    assert reader.done == ended
    if ended:
        assert out == wanted
        assert data[at - reader.left:] == b"\r\n".join(lines[lines.index(b".") + 1:])
    else:
        assert wanted.startswith(out) and len(wanted) - len(out) <= 4


def examine_proxy(data, cut):
    """A header is the same however much is behind it, and none as long as it is not complete."""
    header = refused(ValueError, proxyheader.parse, data)
    if isinstance(header, proxyheader.Header):
        assert 0 < header.length <= min(len(data), proxyheader.LIMIT)
        assert proxyheader.parse(data[:header.length]) == header
        assert proxyheader.parse(data[:min(cut, header.length - 1)]) is None
    elif header is None:
        assert len(data) < proxyheader.LIMIT and proxyheader.parse(data[:cut]) is None


def examine_policy(data, _cut):
    """A request for an access policy."""
    question = refused(Malformed, parse_policy, data.split(b"\n"))
    if question is not Malformed:
        assert 0 <= question.size < 10**20 and question.recipient in data and question.sender in data
        examine_address(question.recipient, 0)


def examine_netstring(data, cut):
    """A netstring is what its definition says, and none as long as it is not complete."""
    found = refused(Malformed, parse_netstring, data)
    if found is not Malformed and found is not None:
        content, length = found
        assert netstring(content) == data[:length]
        assert parse_netstring(data[:min(cut, length - 1)]) is None
        assert parse_netstring(data[:length]) == found


def examine_address(data, _cut):
    """An address without <>, maybe without the quotes that it would need."""
    address = refused(PathProblem, parse_address, data)
    if address is not PathProblem:
        assert isinstance(address, Address)
        same_again(address)
        assert parse_address(str(address).encode()) == address


EXAMINED = (examine_line, examine_dots, examine_proxy, examine_path, examine_policy, examine_netstring,
            examine_address)


def corpus():
    """The lines of the scripts, and an input of each kind for each parser."""
    for script in SCRIPTS.glob("*.txt"):
        for step in read_script(script.stem):
            if step.kind in SENDING:
                yield b"\0\x07" + sent(step)[:LONGEST - 2]
                yield b"\1\x03" + sent(step)[:LONGEST - 7] + b"\r\n.\r\n"
    dots = (b"..a\r\n.b\r\n\r\n.\r\nNOOP\r\n",)
    for kind, seeds in ((1, dots), (2, PROXIES), (4, ASKED), (5, ASKED), (6, ASKED)):
        yield from (bytes((kind, 5)) + seed for seed in seeds)
    yield from (b"\3\0<" + text + b"> SIZE=1" for text in (b"@a.example,@b.example:c@d.example", *ASKED[-3:]))


TARGET = Parsers(EXAMINED, WORDS, corpus, PLACES, STEPS, KEPT)
examine = TARGET.examine
