"""MESSAGE/GLOBAL for clients of RFC 3501: the expected side is body-type-basic of §9, written by hand."""

import pytest

from imap.wire.structures import without_global

ENVELOPE = b'(NIL "(\\"MESSAGE\\" \\"GLOBAL\\" (" NIL NIL NIL NIL NIL NIL NIL NIL)'
TEXT = b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 5 1 NIL NIL NIL NIL)'
BEGIN = b'("MESSAGE" "GLOBAL" NIL NIL NIL "7BIT" 20'
GLOBAL, PLAIN = BEGIN + b" %b %b 3 NIL NIL NIL NIL)" % (ENVELOPE, TEXT), BEGIN + b" NIL NIL NIL NIL)"
TRAP = b'("MESSAGE" "GLOBAL" NIL NIL NIL "7BIT" 5 () () 1)'


@pytest.mark.parametrize(("structure", "plain"), [
    (TEXT, TEXT), (GLOBAL, PLAIN), (PLAIN, PLAIN),
    (b"(%b%b%b \"MIXED\")" % (TEXT, GLOBAL, GLOBAL), b"(%b%b%b \"MIXED\")" % (TEXT, PLAIN, PLAIN)),
    (BEGIN + b" %b (%b%b \"MIXED\") 9)" % (ENVELOPE, GLOBAL, TEXT), BEGIN + b")"),
    (b'("MESSAGE" "GLOBAL" ("A" {5}\r\n)\xff("b "C" "d") {1}\r\n( NIL "8BIT" 20 %b %b 3)' % (ENVELOPE, TEXT),
     b'("MESSAGE" "GLOBAL" ("A" {5}\r\n)\xff("b "C" "d") {1}\r\n( NIL "8BIT" 20)'),
    # inside of a message in a message
    (b'("MESSAGE" "RFC822" NIL NIL NIL "7BIT" 9 %b %b 3)' % (ENVELOPE, GLOBAL),
     b'("MESSAGE" "RFC822" NIL NIL NIL "7BIT" 9 %b %b 3)' % (ENVELOPE, PLAIN)),
])
def test_it_is_a_part_like_any_other(structure, plain):
    assert without_global(structure) == plain


@pytest.mark.parametrize("structure", [
    # in a literal; a language and parameters; an address; date and subject of an envelope
    b'("X" "Y" NIL {%d}\r\n%b NIL "7BIT" 1)' % (len(TRAP), TRAP),
    b'("X" "Y" ("MESSAGE" "GLOBAL" "A" "B") NIL NIL "7BIT" 1 NIL NIL ("MESSAGE" "GLOBAL" "DE") NIL)',
    b'("MESSAGE" "RFC822" NIL NIL NIL "7BIT" 9 (NIL NIL (("MESSAGE" "GLOBAL" NIL NIL)("a" NIL "b" "c")) NIL) %b 3)' % (
        TEXT),
    b'("MESSAGE" "RFC822" NIL NIL NIL "7BIT" 9 ("MESSAGE" "GLOBAL" ((NIL NIL "a" "b")) NIL NIL NIL NIL ((NIL NIL "a" '
    b'"b")) NIL NIL) %b 3)' % TEXT,
    BEGIN, BEGIN + b" ", b'("MESSAGE" "GLOBAL" (', b'("MESSAGE" "GLOBAL" NIL {9}\r\n',
])
def test_what_only_looks_so_stays(structure):
    assert without_global(structure) == structure
