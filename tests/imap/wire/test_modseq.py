"""Mod-sequences in commands and responses: RFC 7162 §7."""

from operator import gt

import numpy as np
import pytest

from imap.wire import responses
from imap.wire.commands import BadCommand, parse_command
from imap.wire.fetch import Fetch, Item
from imap.wire.flags import StoreFlags
from imap.wire.framer import Frame
from imap.wire.listing import Status, StatusItem
from imap.wire.modseq import Resync, SequenceMatch
from imap.wire.numbers import NumberSet
from imap.wire.search import Search
from imap.wire.selecting import Select
from store.search.searchkeys import And, ModSeq, Not, Or, Size
from store.values import Flag, FlagAction, Flags


def _searched(numbers, modseq=0):
    return b"".join(responses.search_pieces(b"SEARCH", np.asarray(numbers, np.int64), modseq))

ONE = NumberSet(((1, 1),))
LARGEST = (1 << 63) - 1

COMMANDS = [
    (b"SELECT INBOX (CONDSTORE)", Select("INBOX", condstore=True)),
    (b"EXAMINE INBOX (condstore)", Select("INBOX", read_only=True, condstore=True)),
    (b"SELECT INBOX (QRESYNC (67890007 20050715194045000))", Select(
        "INBOX", resync=Resync(67890007, 20050715194045000))),
    (b"SELECT INBOX (QRESYNC (67890007 20050715194045000 41,43:211,214:541))", Select("INBOX", resync=Resync(
        67890007, 20050715194045000, NumberSet(((41, 41), (43, 211), (214, 541)))))),
    (b"SELECT INBOX (qresync (1 2 1:29997 (5000,9990:9991 15000,29970,29973)) CONDSTORE)", Select(
        "INBOX", condstore=True, resync=Resync(1, 2, NumberSet(((1, 29997),)), SequenceMatch(
            NumberSet(((5000, 5000), (9990, 9991))), NumberSet(((15000, 15000), (29970, 29970), (29973, 29973))))))),
    (b"SELECT INBOX (QRESYNC (1 2 (1 4)))", Select(
        "INBOX", resync=Resync(1, 2, None, SequenceMatch(ONE, NumberSet(((4, 4),)))))),
    (b"FETCH 1 MODSEQ", Fetch(ONE, (Item.MODSEQ,))),
    (b"FETCH 1 FLAGS (CHANGEDSINCE 12345)", Fetch(ONE, (Item.FLAGS, Item.MODSEQ), changed_since=12345)),
    (b"FETCH 1 (MODSEQ FLAGS) (changedsince 1)", Fetch(ONE, (Item.MODSEQ, Item.FLAGS), changed_since=1)),
    (b"UID FETCH 1 (FLAGS) (VANISHED CHANGEDSINCE 9223372036854775807)", Fetch(
        ONE, (Item.UID, Item.FLAGS, Item.MODSEQ), by_uid=True, changed_since=LARGEST, vanished=True)),
    (b"STORE 1 (UNCHANGEDSINCE 12121230045) +FLAGS.SILENT (\\Deleted)", StoreFlags(
        ONE, FlagAction.ADD, Flags(Flag.DELETED), silent=True, unchanged_since=12121230045)),
    (b"UID STORE 1 (unchangedsince 0) FLAGS \\Seen", StoreFlags(
        ONE, FlagAction.REPLACE, Flags(Flag.SEEN), by_uid=True, unchanged_since=0)),
    (b"STATUS a (HIGHESTMODSEQ)", Status("a", (StatusItem.HIGHESTMODSEQ,))),
    (b"SEARCH MODSEQ 620162338", Search(ModSeq(620162338))),
    (b'SEARCH MODSEQ "/flags/\\\\draft" all 620162338', Search(ModSeq(620162338))),
    (b'SEARCH modseq "/flags/$MDNSent" Priv 0', Search(ModSeq(0))),
    (b"SEARCH OR NOT MODSEQ 720162338 LARGER 50000", Search(Or(Not(ModSeq(720162338)), Size(gt, 50000)))),
    (b"SEARCH (MODSEQ 1 LARGER 2)", Search(And((ModSeq(1), Size(gt, 2))))),
]

WRONG = [
    b"SELECT a (", b"SELECT a ()", b"SELECT a (CONDSTORE", b"SELECT a (CONDSTORE) ", b"SELECT a (CONDSTORE 1)",
    b"SELECT a (QRESYNC)", b"SELECT a (QRESYNC 1 2)", b"SELECT a (QRESYNC ())", b"SELECT a (QRESYNC (1))",
    b"SELECT a (QRESYNC (0 1))", b"SELECT a (QRESYNC (4294967296 1))", b"SELECT a (QRESYNC (1 9223372036854775808))",
    b"SELECT a (QRESYNC (1 2 ))", b"SELECT a (QRESYNC (1 2 *))", b"SELECT a (QRESYNC (1 2 1:*))",
    b"SELECT a (QRESYNC (1 2 $))", b"SELECT a (QRESYNC (1 2 ($ $)))",
    b"SELECT a (QRESYNC (1 2 ()))", b"SELECT a (QRESYNC (1 2 (1)))", b"SELECT a (QRESYNC (1 2 (1 1,2)))",
    b"SELECT a (QRESYNC (1 2 (2,1 1,2)))", b"SELECT a (QRESYNC (1 2 (1:2 2:1)))", b"SELECT a (QRESYNC (1 2 (1,1 1,2)))",
    b"SELECT a (QRESYNC (1 2 (1 *)))", b"SELECT a (QRESYNC (1 2 1(1 1)))", b"SELECT a (QRESYNC (1 2(1 1)))",
    b"SELECT a (QRESYNC (1 2) QRESYNC (1 2))", b"SELECT a (QRESYNC (1 -2))",
    b"FETCH 1 FLAGS ()", b"FETCH 1 FLAGS (CHANGEDSINCE)", b"FETCH 1 FLAGS (CHANGEDSINCE x)",
    b"FETCH 1 FLAGS CHANGEDSINCE 1",
    b"FETCH 1 FLAGS (UNCHANGEDSINCE 1)", b"FETCH 1 FLAGS (CHANGEDSINCE 1 VANISHED)", b"UID FETCH 1 FLAGS (VANISHED)",
    b"FETCH 1 FLAGS (CHANGEDSINCE 1 CHANGEDSINCE 2)", b"FETCH 1 FLAGS (CHANGEDSINCE 99999999999999999999)",
    b"FETCH 1 MODSEQ[1]", b"STORE 1 () FLAGS ()", b"STORE 1 (UNCHANGEDSINCE 1)FLAGS ()", b"STORE 1 (VANISHED) FLAGS ()",
    b"STORE 1 (UNCHANGEDSINCE 1 UNCHANGEDSINCE 1) FLAGS ()", b"STORE 1 (UNCHANGEDSINCE 1 CHANGEDSINCE 1) FLAGS ()",
    b"SEARCH MODSEQ", b"SEARCH MODSEQ x", b'SEARCH MODSEQ "/flags/a" 1', b'SEARCH MODSEQ "/flags/a" both 1',
    b'SEARCH MODSEQ "/flags/" all 1', b'SEARCH MODSEQ "flags/a" all 1', b"SEARCH MODSEQ 9223372036854775808",
]


@pytest.mark.parametrize(("line", "value"), COMMANDS)
def test_a_command_is_read(line, value):
    assert parse_command(Frame((b"t " + line,))) == (b"t", value)


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_form_is_refused(line):
    with pytest.raises(BadCommand):
        parse_command(Frame((b"t " + line,)))


@pytest.mark.parametrize(("line", "value"), COMMANDS)
def test_no_beginning_of_a_command_is_a_surprise(line, value):
    for end in range(len(line)):
        try:
            parse_command(Frame((b"t " + line[:end],)))
        except BadCommand:
            pass


def test_responses_are_written():
    assert responses.vanished(b"300:310,405,411", earlier=True) == b"* VANISHED (EARLIER) 300:310,405,411\r\n"
    assert responses.vanished(b"405,407,410,425") == b"* VANISHED 405,407,410,425\r\n"
    assert responses.highestmodseq(715194045007) == b"HIGHESTMODSEQ 715194045007"
    assert responses.modified([7, 9]) == b"MODIFIED 7,9"
    assert _searched([2, 5, 6], 917162500) == b"* SEARCH 2 5 6 (MODSEQ 917162500)\r\n"
    assert _searched([], 917162500) == b"* SEARCH\r\n"
