"""lmtp/wire.py: each command as RFC 5321 §4.1.1 spells it, and how it may be spelled wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmtp import replies
from lmtp.replies import Farewell, SyntaxProblem
from lmtp.smtppaths import Address
from lmtp.states import COMMANDS
from lmtp.wire import Auth, Bdat, Data, Help, Lhlo, Mail, Noop, Quit, Rcpt, Rset, Starttls, Vrfy, Xclient, verb

ALICE = Address("alice", "example.org")

LINES = [
    (b"LHLO client.example.org", Lhlo("client.example.org")),
    (b"lhlo [127.0.0.1]", Lhlo("[127.0.0.1]")),
    (b"LHLO client.example.org \t ", Lhlo("client.example.org")),
    (b"MAIL FROM:<>", Mail(None)),
    (b"MAIL FROM:<alice@example.org>", Mail(ALICE)),
    (b"mail from:<alice@example.org>  ", Mail(ALICE)),
    (b"MAIL FROM: <alice@example.org>", Mail(ALICE)),
    (b"MAIL FROM:<alice@example.org> SIZE=1000", Mail(ALICE, 1000)),
    (b"MAIL FROM:<alice@example.org> size=0 BODY=8bitMIME", Mail(ALICE)),
    (b"MAIL FROM:<alice@example.org> BODY=7BIT SIZE=99999999999999999999", Mail(ALICE, 10**20 - 1)),
    (b"RCPT TO:<alice@example.org>", Rcpt(ALICE)),
    (b"rcpt to:<bench0001>", Rcpt(Address("bench0001"))),
    (b"RCPT TO:<@a.example,@b.example:alice@example.org>", Rcpt(ALICE)),
    (b"DATA", Data()), (b"data ", Data()), (b"RSET", Rset()), (b"QUIT", Quit()), (b"STARTTLS", Starttls()),
    (b"NOOP", Noop()), (b"NOOP anything goes", Noop()), (b"HELP", Help()), (b"HELP RCPT", Help()),
    (b"VRFY alice", Vrfy()), (b"VRFY J\xc3\xb6rg SMTPUTF8", Vrfy()),
    # RFC 3030 §2, §3; RFC 6531 §3.4; RFC 4954 §4, §5; Postfix's XCLIENT_README
    (b"BDAT 0", Bdat(0)), (b"bdat 86 last", Bdat(86, last=True)),
    (b"BDAT 12345678901234567890", Bdat(12345678901234567890)),
    (b"MAIL FROM:<a@x> BODY=BINARYMIME", Mail(Address("a", "x"), binary=True)),
    (b"MAIL FROM:<j\xc3\xb6rg@b\xc3\xbccher.example> SMTPUTF8",
     Mail(Address("j\u00f6rg", "b\u00fccher.example"), utf8=True)),
    (b"MAIL FROM:<\xe2\x98\x83.x@x> SMTPUTF8 BODY=8BITMIME", Mail(Address("\u2603.x", "x"), utf8=True)),
    (b"MAIL FROM:<a@x> AUTH=<>", Mail(Address("a", "x"))),
    (b"MAIL FROM:<a@x> AUTH=e+3Dmc2@example.org", Mail(Address("a", "x"))),
    (b"RCPT TO:<\"j\xc3\xb6 rg\"@x>", Rcpt(Address("j\u00f6 rg", "x"))),
    (b"RCPT TO:<a@x> IGNOREQUOTA", Rcpt(Address("a", "x"), ignore_quota=True)),
    (b"RCPT TO:<a@x> xquota=1000000", Rcpt(Address("a", "x"), limits=(1000000, None))),
    (b"RCPT TO:<a@x> XQUOTA=-1,-2", Rcpt(Address("a", "x"), limits=(-1, -2))),
    (b"AUTH plain", Auth("PLAIN")),
    (b"XCLIENT ADDR=IPV6:2001:db8::1 NAME=[UNAVAILABLE] PROTO=ESMTP", Xclient("2001:db8::1", "")),
    (b"XCLIENT ADDR=[unavailable] LOGIN=[TEMPUNAVAIL]", Xclient("", login="")),
    (b"XCLIENT NAME=spike.example.org addr=192.0.2.3 HELO=spike LOGIN=a+2Bb",
     Xclient("192.0.2.3", "spike.example.org", "spike", "a+b")),
]

WRONG = [
    (b"LHLO", replies.BAD_LHLO), (b"LHLO ", replies.BAD_LHLO),
    (b"MAIL", replies.BAD_MAIL), (b"MAIL <alice@example.org>", replies.BAD_MAIL), (b"MAIL TO:<a@x>", replies.BAD_MAIL),
    (b"MAIL FROM :<a@x>", replies.BAD_MAIL), (b"MAIL FROM:", replies.BAD_SENDER),
    (b"MAIL FROM:alice@example.org", replies.BAD_SENDER), (b"MAIL FROM:<a@x>SIZE=1", replies.BAD_SENDER),
    (b"MAIL FROM:<\xc3\xa9@x>", replies.NOT_ASCII), (b"MAIL FROM:<a@x> SIZE", replies.BAD_PARAMETER),
    (b"MAIL FROM:<a@x> SIZE=", replies.BAD_PARAMETER), (b"MAIL FROM:<a@x> SIZE=-1", replies.BAD_PARAMETER),
    (b"MAIL FROM:<a@x> SIZE=1k", replies.BAD_PARAMETER), (b"MAIL FROM:<a@x> SIZE=" + b"1" * 21, replies.BAD_PARAMETER),
    (b"MAIL FROM:<a@x> SIZE=1 size=1", replies.BAD_PARAMETER), (b"MAIL FROM:<a@x> =1", replies.BAD_PARAMETER),
    (b"MAIL FROM:<a@x> -A=1", replies.BAD_PARAMETER), (b"MAIL FROM:<a@x> A==1", replies.BAD_PARAMETER),
    (b"MAIL FROM:<a@x> BODY=BINARY", replies.BAD_PARAMETER), (b"MAIL FROM:<a@x> BODY", replies.BAD_PARAMETER),
    (b"MAIL FROM:<a@x> RET=HDRS", replies.UNKNOWN_PARAMETER), (b"MAIL FROM:<a@x> SMTPUTF8=1", replies.BAD_PARAMETER),
    (b"MAIL FROM:<a@x> AUTH=a+2", replies.BAD_PARAMETER),
    (b"MAIL FROM:<\xe9@x> SMTPUTF8", replies.BAD_SENDER), (b"MAIL FROM:<a\xc2\x85@x> SMTPUTF8", replies.BAD_SENDER),
    (b"MAIL FROM:<a\xc2\xa0@x> SMTPUTF8", replies.BAD_SENDER), (b"AUTH", replies.BAD_AUTH),
    (b"AUTH PLAIN a b", replies.BAD_AUTH), (b"AUTH \xff", replies.BAD_AUTH), (b"XCLIENT", replies.BAD_PARAMETER),
    (b"XCLIENT ADDR", replies.BAD_PARAMETER), (b"XCLIENT ADDR=", replies.BAD_PARAMETER),
    (b"XCLIENT ADDR=host.example.org", replies.BAD_PARAMETER), (b"XCLIENT ADDR=192.0.2.1 addr=192.0.2.2",
                                                               replies.BAD_PARAMETER),
    (b"XCLIENT COLOUR=red", replies.BAD_PARAMETER), (b"XCLIENT HELO=a+0Ab", replies.BAD_PARAMETER),
    (b"XCLIENT NAME=a+ZZ", replies.BAD_PARAMETER), (b"XCLIENT NAME=\xe9", replies.BAD_PARAMETER),
    (b"RCPT TO:<a@x> IGNOREQUOTA=yes", replies.BAD_PARAMETER), (b"RCPT TO:<a@x> XQUOTA", replies.BAD_PARAMETER),
    (b"RCPT TO:<a@x> XQUOTA=-3", replies.BAD_PARAMETER), (b"RCPT TO:<a@x> XQUOTA=1,", replies.BAD_PARAMETER),
    (b"RCPT TO:<a@x> XQUOTA=10M", replies.BAD_PARAMETER),
    (b"RCPT", replies.BAD_RCPT), (b"RCPT FROM:<a@x>", replies.BAD_RCPT), (b"RCPT TO:", replies.BAD_RECIPIENT),
    (b"RCPT TO:a@x", replies.BAD_RECIPIENT), (b"RCPT TO:<a@x", replies.BAD_RECIPIENT),
    (b"RCPT TO:<a@x>>", replies.BAD_RECIPIENT), (b"RCPT TO:<>", replies.EMPTY_RECIPIENT),
    (b"RCPT TO:<\xe9@x>", replies.BAD_RECIPIENT), (b"RCPT TO:<a@x> NOTIFY=NEVER", replies.UNKNOWN_PARAMETER),
    (b"RCPT TO:<a@x> ;", replies.BAD_PARAMETER), (b"RCPT TO:<a\x00@x>", replies.BAD_RECIPIENT),
    (b"DATA now", replies.NO_ARGUMENT), (b"RSET x", replies.NO_ARGUMENT), (b"QUIT x", replies.NO_ARGUMENT),
    (b"STARTTLS x", replies.NO_ARGUMENT), (b"VRFY", replies.NEEDS_ARGUMENT), (b"VRFY \x01", replies.BAD_PARAMETER),
    (b"NOOP \x00", replies.BAD_PARAMETER), (b"HELP \xff", replies.BAD_PARAMETER),
]


def parse(line):
    name, argument = verb(line)
    return COMMANDS[name].parse(argument)


@pytest.mark.parametrize(("line", "command"), LINES)
def test_command(line, command):
    assert parse(line) == command


def test_an_initial_response_does_not_show(capsys):
    command = parse(b"AUTH PLAIN AHJlbGF5AHNlY3JldA==")
    assert command.initial.reveal() == b"AHJlbGF5AHNlY3JldA=="
    assert "AHJl" not in repr(command)


@pytest.mark.parametrize("argument", [b"", b" ", b"x", b"-1", b"1 LAST LAST", b"1 last x", b"0x10", b"1" * 21,
                                      b"1\tLAST"])
def test_a_chunk_whose_end_nobody_knows(argument):
    with pytest.raises(Farewell) as last:
        parse(b"BDAT " + argument)
    assert last.value.reply is replies.BAD_BDAT


@pytest.mark.parametrize(("line", "reply"), WRONG)
def test_wrong_command(line, reply):
    with pytest.raises(SyntaxProblem) as problem:
        parse(line)
    assert problem.value.reply is reply


PIECES = st.sampled_from([b"FROM:", b"TO:", b"<", b">", b"a@example.org", b"<a@x>", b'"', b"\\", b" ", b"\t", b"SIZE=",
                          b"1",
                          b"BODY=", b"8BITMIME", b"=", b"@", b",", b":", b".", b"[", b"]", b"\x00", b"\r", b"\x80"])


@given(st.sampled_from(sorted(COMMANDS)), st.lists(PIECES | st.binary(max_size=4), max_size=12).map(b"".join))
def test_junk_is_a_command_or_a_syntax_problem(name, argument):
    try:
        command = COMMANDS[name].parse(argument)
    except SyntaxProblem as problem:
        assert problem.reply.code in (501, 553, 555)
        return
    except Farewell as last:
        assert name == b"BDAT" and last.reply is replies.BAD_BDAT
        return
    assert type(command).__name__.upper().encode() == name


@pytest.mark.parametrize("argument", [
    b"FROM:<" + b"a." * 1000 + b"@x>", b"FROM:<" + b'"' + b"\\a" * 1000 + b"@x>", b"FROM:<a@" + b"x-" * 1000 + b">",
    b"FROM:<" + b"@x," * 700 + b"a@x>", b"FROM:<a@x>" + b" A=1" * 500, b"FROM:<a@x> " + b"A" * 2000 + b"=" * 20,
])
def test_long_arguments_are_refused_like_short_ones(argument):
    with pytest.raises(SyntaxProblem):
        COMMANDS[b"MAIL"].parse(argument)
