"""LIST as octets and as value: RFC 5258 §6, RFC 5819 §4, RFC 6154 §6, RFC 8440 §5; and the items of STATUS."""

import pytest

from imap.wire.commands import BadCommand, parse_command
from imap.wire.framer import Frame
from imap.wire.listing import List, ListOption, Status, StatusItem

CHILDREN, MYRIGHTS, STATUS = ListOption.CHILDREN, ListOption.MYRIGHTS, ListOption.STATUS
SUBSCRIBED, SPECIAL_USE = ListOption.SUBSCRIBED, ListOption.SPECIAL_USE
REMOTE, RECURSIVEMATCH = ListOption.REMOTE, ListOption.RECURSIVEMATCH


def basic(reference, pattern):
    return List(reference, (pattern,))


def extended(*patterns, select=(), give=(), status=(), reference=""):
    return List(reference, patterns, frozenset(select), frozenset(give), status, extended=True)


@pytest.mark.parametrize("line, value", [
    (b'LIST "" ""', basic("", "")),
    (b"LIST ~/Mail/ %", basic("~/Mail/", "%")),
    (b'LIST "" *', basic("", "*")),
    (b'LIST "" "&AOk-*"', basic("", "é*")),
    (b'LIST "" {3}', None),
    # the three ways to be extended: RFC 5258 §1
    (b'LIST () "" *', extended("*")),
    (b'LIST "" (*)', extended("*")),
    (b'LIST "" % RETURN ()', extended("%")),
    (b'LIST "" ("INBOX" "Drafts" "Sent/%")', extended("INBOX", "Drafts", "Sent/%")),
    (b'LIST "" ("")', extended("")),
    (b"LIST a/ (% b)", extended("%", "b", reference="a/")),
    (b'LIST (SUBSCRIBED) "" "*"', extended("*", select=[SUBSCRIBED], give=[SUBSCRIBED])),
    (b'LIST (subscribed SUBSCRIBED Subscribed) "" *', extended("*", select=[SUBSCRIBED], give=[SUBSCRIBED])),
    (b'LIST (REMOTE) "" % RETURN (CHILDREN)', extended("%", select=[REMOTE], give=[CHILDREN])),
    (b'LIST (RECURSIVEMATCH SUBSCRIBED REMOTE) "" *2',
     extended("*2", select=[SUBSCRIBED, RECURSIVEMATCH, REMOTE], give=[SUBSCRIBED])),
    (b'LIST (SPECIAL-USE) "" "*"', extended("*", select=[SPECIAL_USE], give=[SPECIAL_USE])),
    (b'LIST () "" "*" RETURN (special-use)', extended("*", give=[SPECIAL_USE])),
    (b'LIST "" % RETURN (SUBSCRIBED CHILDREN MYRIGHTS)', extended("%", give=[SUBSCRIBED, CHILDREN, MYRIGHTS])),
    (b'LIST "" % RETURN (STATUS (MESSAGES UNSEEN messages) CHILDREN)',
     extended("%", give=[STATUS, CHILDREN], status=(StatusItem.MESSAGES, StatusItem.UNSEEN))),
    (b"STATUS x (SIZE DELETED DELETED-STORAGE APPENDLIMIT)",
     Status("x", (StatusItem.SIZE, StatusItem.DELETED, StatusItem.DELETED_STORAGE, StatusItem.APPENDLIMIT))),
])
def test_list_and_status(line, value):
    if value is None:
        assert parse_command(Frame((b"a " + line, b"x/*", b"")))[1] == basic("", "x/*")
    else:
        assert parse_command(Frame((b"a " + line,))) == (b"a", value)


@pytest.mark.parametrize("line", [
    b"LIST", b'LIST ""', b'LIST "" *x *', b'LIST "" * ', b'LIST "" * RETURN', b'LIST "" * RETURN ', b'LIST "" * X ()',
    b'LIST "" * RETURN CHILDREN', b'LIST "" * RETURN (CHILDREN', b'LIST "" * RETURN (CHILDREN ) ',
    b'LIST "" * RETURN ( CHILDREN', b'LIST "" * RETURN (CHILDREN, SUBSCRIBED)', b'LIST "" * RETURN (CHILDREN) x',
    # an option that is not known, or not of this kind, is BAD: RFC 5258 §3
    b'LIST "" * RETURN (X-UNKNOWN)', b'LIST (X-UNKNOWN) "" *', b'LIST (CHILDREN) "" *',
    b'LIST (STATUS (MESSAGES)) "" *', b'LIST (MYRIGHTS) "" *', b'LIST "" * RETURN (REMOTE)',
    b'LIST "" * RETURN (RECURSIVEMATCH SUBSCRIBED)',
    # RECURSIVEMATCH is none that selects: RFC 5258 §3.1
    b'LIST (RECURSIVEMATCH) "" *', b'LIST (REMOTE RECURSIVEMATCH) "" *',
    b'LIST "" * RETURN (STATUS)', b'LIST "" * RETURN (STATUS ())', b'LIST "" * RETURN (STATUS (FOO))',
    b'LIST "" * RETURN (STATUS(MESSAGES))', b'LIST "" * RETURN (STATUS (MESSAGES)CHILDREN)',
    b'LIST "" ()', b'LIST "" ( )', b'LIST "" (* %', b'LIST "" (*)(%)',
    b'LIST (SUBSCRIBED)"" *', b'LIST (SUBSCRIBED "" *', b"LIST () *", b"STATUS x (DELETED-STORAG)", b"STATUS x (SIZE",
    b'LIST "" (' + b" ".join([b"x"] * 257) + b")"])
def test_bad_syntax(line):
    with pytest.raises(BadCommand) as refused:
        parse_command(Frame((b"tag " + line,)))
    assert refused.value.tag == b"tag" and refused.value.problem.status == b"BAD"
