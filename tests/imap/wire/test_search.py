"""SEARCH: RFC 3501 §6.4.4, §9."""

from datetime import date
from operator import eq, ge, gt, lt

import pytest

from imap.wire.commandlimits import Limits
from imap.wire.commands import BadCommand, parse_command
from imap.wire.framer import Frame
from imap.wire.search import CHARSETS, Result, Search
from store.search.searchkeys import (
    All,
    And,
    Body,
    Envelope,
    HasFlag,
    Header,
    Keyword,
    Not,
    Numbers,
    Or,
    Received,
    Recent,
    Saved,
    Sent,
    Size,
    Text,
    Uids,
    Within,
)
from store.values import Flag

DAY = date(1994, 2, 1)
KEYS = [
    (b"ALL", All()),
    (b"answered", HasFlag(Flag.ANSWERED)),
    (b"DELETED", HasFlag(Flag.DELETED)),
    (b"DRAFT", HasFlag(Flag.DRAFT)),
    (b"FLAGGED", HasFlag(Flag.FLAGGED)),
    (b"SEEN", HasFlag(Flag.SEEN)),
    (b"UNANSWERED", Not(HasFlag(Flag.ANSWERED))),
    (b"UNDELETED", Not(HasFlag(Flag.DELETED))),
    (b"UNDRAFT", Not(HasFlag(Flag.DRAFT))),
    (b"UNFLAGGED", Not(HasFlag(Flag.FLAGGED))),
    (b"UNSEEN", Not(HasFlag(Flag.SEEN))),
    (b"NEW", And((Recent(), Not(HasFlag(Flag.SEEN))))),
    (b"OLD", Not(Recent())),
    (b"RECENT", Recent()),
    (b"BCC x", Envelope("bcc", "x")),
    (b"CC x", Envelope("cc", "x")),
    (b'FROM "Smith"', Envelope("from", "Smith")),
    (b"TO x", Envelope("to", "x")),
    (b'subject ""', Envelope("subject", "")),
    (b"OLDER 259200", Within(259200, older=True)),
    (b"younger 1", Within(1, older=False)),
    (b"$", Saved()),
    (b"UID $", Saved()),
    (b"OR $ 1,3000:3021", Or(Saved(), Numbers(((1, 1), (3000, 3021))))),
    (b"HEADER Message-ID <a@example.org>", Header("Message-ID", "<a@example.org>")),
    (b'BODY "a b"', Body("a b")),
    (b"TEXT NIL", Text("NIL")),
    (b"BEFORE 1-Feb-1994", Received(lt, DAY)),
    (b'ON "1-Feb-1994"', Received(eq, DAY)),
    (b"SINCE 1-Feb-1994", Received(ge, DAY)),
    (b"SENTBEFORE 1-Feb-1994", Sent(lt, DAY)),
    (b"SENTON 1-Feb-1994", Sent(eq, DAY)),
    (b"SENTSINCE 1-Feb-1994", Sent(ge, DAY)),
    (b"LARGER 0", Size(gt, 0)),
    (b"SMALLER 4294967295", Size(lt, 4294967295)),
    (b"KEYWORD $Junk", Keyword("$Junk")),
    (b"UNKEYWORD x", Not(Keyword("x"))),
    (b"2,4:7,9,12:*", Numbers(((2, 2), (4, 7), (9, 9), (12, 0)))),
    (b"*", Numbers(((0, 0),))),
    (b"UID 3:1", Uids(((3, 1),))),
    (b"NOT SEEN", Not(HasFlag(Flag.SEEN))),
    (b"OR SEEN NOT 1", Or(HasFlag(Flag.SEEN), Not(Numbers(((1, 1),))))),
    (b"(SEEN)", HasFlag(Flag.SEEN)),
    (b"(SEEN NEW)", And((HasFlag(Flag.SEEN), And((Recent(), Not(HasFlag(Flag.SEEN))))))),
    (b'FLAGGED SINCE 1-Feb-1994 NOT FROM "Smith"',
     And((HasFlag(Flag.FLAGGED), Received(ge, DAY), Not(Envelope("from", "Smith"))))),
    (b"OR (ALL OLD) OR SEEN UID 1 ALL", And((
        Or(And((All(), Not(Recent()))), Or(HasFlag(Flag.SEEN), Uids(((1, 1),)))), All()))),
]


@pytest.mark.parametrize("octets, key", KEYS)
def test_a_key_is_read(octets, key):
    assert parse_command(Frame((b"a SEARCH " + octets,))) == (b"a", Search(key))
    assert parse_command(Frame((b"a UID SEARCH CHARSET us-ascii " + octets,))) == (b"a", Search(key, b"US-ASCII", True))


@pytest.mark.parametrize("parts, text", [
    ((b"CHARSET UTF-8 TEXT {6}", "мир".encode(), b""), "мир"),
    ((b"CHARSET KOI8-R TEXT {3+}", "мир".encode("koi8-r"), b""), "мир"),
    ((b'CHARSET "iso-8859-1" TEXT {1}', b"\xe9", b""), "é"),
    ((b"TEXT {2}", "é".encode(), b""), "é"),
])
def test_text_is_decoded(parts, text):
    _, search = parse_command(Frame((b"a SEARCH " + parts[0], *parts[1:])))
    assert search.key == Text(text)


@pytest.mark.parametrize("charset", [b"X-NONE", b'"a\\"b"', b"hex", b"zlib", b"utf-7", b"rot13", b"a" * 1000])
def test_an_unknown_charset_is_left_to_the_session(charset):
    _, search = parse_command(Frame((b"a SEARCH RETURN (SAVE) CHARSET " + charset + b" TEXT {1}", b"\xff", b"")))
    assert not search.charset_known
    assert search.results == {Result.SAVE}
    with pytest.raises(BadCommand):
        parse_command(Frame((b"a SEARCH CHARSET " + charset + b" NONSENSE",)))


def test_every_charset_that_is_named_is_known():
    names = CHARSETS.removeprefix(b"BADCHARSET (").removesuffix(b")").split(b" ")
    assert {b"US-ASCII", b"UTF-8", b"ISO-8859-1", b"ISO-8859-15"} <= set(names)
    for name in names:
        _, search = parse_command(Frame((b"a SEARCH CHARSET " + name + b" TEXT x",)))
        assert search == Search(Text("x"), name)


@pytest.mark.parametrize(("octets", "results"), [
    (b"()", {Result.ALL}), (b"(ALL)", {Result.ALL}), (b"(MIN)", {Result.MIN}), (b"(min MAX)", {Result.MIN, Result.MAX}),
    (b"(MIN MAX ALL COUNT SAVE)", set(Result)), (b"(COUNT COUNT)", {Result.COUNT}), (b"(SAVE)", {Result.SAVE})])
def test_result_options(octets, results):
    assert parse_command(Frame((b"a SEARCH RETURN " + octets + b" ALL",))) == (
        b"a", Search(All(), results=frozenset(results)))
    assert parse_command(Frame((b"a UID SEARCH return " + octets + b" CHARSET UTF-8 ALL",))) == (
        b"a", Search(All(), b"UTF-8", True, frozenset(results)))


@pytest.mark.parametrize("parts", [
    (b"CHARSET US-ASCII TEXT {2}", "é".encode(), b""), (b"TEXT {1}", b"\xe9", b""),
    (b"CHARSET UTF-8 TEXT {1}", b"\xe9", b""), (b"CHARSET UTF-16 TEXT {1}", b"a", b"")])
def test_text_that_is_not_in_its_charset_is_refused(parts):
    with pytest.raises(BadCommand):
        parse_command(Frame((b"a SEARCH " + parts[0], *parts[1:])))


@pytest.mark.parametrize("octets", [
    b"", b" ", b"FOO", b"ALL ", b"ALL  NEW", b"()", b"(ALL", b"(ALL NEW", b"ALL)", b"( ALL)", b"NOT", b"NOT ",
    b"OR ALL", b"OR ALL ", b"FROM", b"FROM ", b"HEADER x", b"HEADER (x) y", b'HEADER "" ',
    b"BEFORE 30-Feb-1994", b"SINCE yesterday", b"LARGER -1", b"LARGER 9223372036854775808", b"KEYWORD \\Seen",
    b"KEYWORD " + b"k" * 256, b"UID", b"UID x", b"1,", b"0", b"CHARSET", b"CHARSET UTF-8", b"CHARSET UTF-8 ",
    b"ALL CHARSET UTF-8", b"RETURN () ", b"RETURN ()", b"RETURN", b"RETURN ALL", b"RETURN (MIN",
    b"RETURN (MIN )  ALL", b"RETURN (MIN)ALL", b"RETURN ( MIN ALL", b"RETURN (MINMAX) ALL",
    b"RETURN (PARTIAL 1:2) ALL",
    b"CHARSET UTF-8 RETURN (ALL) ALL", b"$,1", b"1,$", b"$:1", b"UID $:*", b"OLDER 0", b"YOUNGER", b"YOUNGER -1",
    b"OLDER x", b"OLDER 4294967296", b"ALLNEW", b"ALL1", b"SEEN\\", b"(" * 101 + b"ALL" + b")" * 101,
    b"NOT " * 101 + b"ALL", b"OR ALL " * 101 + b"ALL"])
def test_bad_searches_are_refused(octets):
    with pytest.raises(BadCommand) as refused:
        parse_command(Frame((b"a SEARCH " + octets,)))
    assert (refused.value.tag, refused.value.problem.status) == (b"a", b"BAD")


@pytest.mark.parametrize("octets", [
    b"(" * 100 + b"ALL" + b")" * 100, b"NOT " * 100 + b"ALL", b"OR ALL " * 100 + b"ALL", b"ALL" + b" (ALL)" * 500])
def test_a_search_may_be_as_deep_as_the_limit_and_wide(octets):
    assert parse_command(Frame((b"a SEARCH " + octets,)))


def test_keys_are_counted_wherever_they_are():
    for octets in (b"ALL ALL ALL", b"(ALL ALL)", b"OR ALL ALL", b"NOT NOT ALL"):
        assert parse_command(Frame((b"a SEARCH " + octets,)), Limits(keys=3))
        with pytest.raises(BadCommand):
            parse_command(Frame((b"a SEARCH " + octets,)), Limits(keys=2))
