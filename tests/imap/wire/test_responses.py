"""The replies of RFC 3501 §7 and of the extensions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imap.wire import responses
from imap.wire.commands import status_response
from imap.wire.grammar import SyntaxProblem
from imap.wire.listing import StatusItem


def _searched(numbers, modseq=0):
    return b"".join(responses.search_pieces(b"SEARCH", np.asarray(numbers, np.int64), modseq))


@pytest.mark.parametrize("line, octets", [
    (responses.ok(b"a1", "NOOP completed"), b"a1 OK NOOP completed\r\n"),
    (responses.ok(b"a1", "Selected", responses.READ_WRITE), b"a1 OK [READ-WRITE] Selected\r\n"),
    (status_response(b"a1", responses.NO, "No such mailbox", responses.TRYCREATE),
     b"a1 NO [TRYCREATE] No such mailbox\r\n"),
    (status_response(None, responses.BAD, "What?"), b"* BAD What?\r\n"),
    (responses.bye("Goodbye"), b"* BYE Goodbye\r\n"),
    (responses.bye("Too long", b"UNAVAILABLE"), b"* BYE [UNAVAILABLE] Too long\r\n"),
    (responses.ok(b"a", ""), b"a OK -\r\n"),
    (responses.ok(b"a", "[ALERT] x"), b"a OK ALERT] x\r\n"),
    (status_response(b"a", responses.NO, "x\r\nb OK \u00fc"), b"a NO x??b OK ?\r\n"),
    (responses.problem(b"a", SyntaxProblem("No", code=b"CANNOT", status=b"NO")), b"a NO [CANNOT] No\r\n"),
    (responses.capability([b"IMAP4rev1", b"IDLE"]), b"* CAPABILITY IMAP4rev1 IDLE\r\n"),
    (responses.enabled([]), b"* ENABLED\r\n"),
    (responses.enabled([b"CONDSTORE"]), b"* ENABLED CONDSTORE\r\n"),
    (responses.exists(23), b"* 23 EXISTS\r\n"),
    (responses.recent(5), b"* 5 RECENT\r\n"),
    (responses.flags(["x"]), b"* FLAGS (\\Seen \\Answered \\Flagged \\Deleted \\Draft x)\r\n"),
    (responses.listed([b"\\Noselect", b"\\HasChildren"], "a b"), b'* LIST (\\Noselect \\HasChildren) "/" "a b"\r\n'),
    (responses.listed([], "Entwürfe", lsub=True), b'* LSUB () "/" Entw&APw-rfe\r\n'),
    (responses.listed([b"\\Noselect"], "", b""), b'* LIST (\\Noselect) NIL ""\r\n'),
    (responses.listed([], "foo2", childinfo=[b"SUBSCRIBED"]), b'* LIST () "/" foo2 ("CHILDINFO" ("SUBSCRIBED"))\r\n'),
    (responses.listed([], "Normalized", oldname="Not Normalized"),
     b'* LIST () "/" Normalized ("OLDNAME" ("Not Normalized"))\r\n'),
    (responses.status("blurdybloop", [(StatusItem.MESSAGES, 231), (StatusItem.UIDNEXT, 44292)]),
     b"* STATUS blurdybloop (MESSAGES 231 UIDNEXT 44292)\r\n"),
    (_searched([]), b"* SEARCH\r\n"),
    (_searched([2, 84, 882]), b"* SEARCH 2 84 882\r\n"),
    (_searched(np.array([2, 84, 882], dtype=np.uint32)), b"* SEARCH 2 84 882\r\n"),
    (responses.server_id([]), b"* ID NIL\r\n"),
    (responses.server_id([(b"name", b"onecopy"), (b"os", None)]), b'* ID ("name" "onecopy" "os" NIL)\r\n'),
    (responses.namespace([""], ["user/"], ["public/"]),
     b'* NAMESPACE (("" "/")) (("user/" "/")) (("public/" "/"))\r\n'),
    (responses.namespace([""], [], []), b'* NAMESPACE (("" "/")) NIL NIL\r\n'),
    (responses.permanent_flags(["x"]), b"PERMANENTFLAGS (\\Seen \\Answered \\Flagged \\Deleted \\Draft x \\*)"),
    (responses.permanent_flags([], more=False), b"PERMANENTFLAGS (\\Seen \\Answered \\Flagged \\Deleted \\Draft)"),
    (responses.permanent_flags([], 0, more=False), b"PERMANENTFLAGS ()"),
    (responses.permanent_flags([], 1, more=False), b"PERMANENTFLAGS (\\Seen)"),
    (responses.permanent_flags([], 0), b"PERMANENTFLAGS (\\*)"),
    (responses.selected(172, b"* FLAGS ()\r\n", 1, 12, 3857529045, 4392, 7),
     b"* 172 EXISTS\r\n* 1 RECENT\r\n* FLAGS ()\r\n* OK [UNSEEN 12] First unseen message\r\n"
     b"* OK [UIDVALIDITY 3857529045] UIDs are valid\r\n* OK [UIDNEXT 4392] Predicted next UID\r\n"
     b"* OK [HIGHESTMODSEQ 7] Highest mod-sequence\r\n"),
    (responses.selected(0, b"", None, None, 1, 2, 3),
     b"* 0 EXISTS\r\n* OK [UIDVALIDITY 1] UIDs are valid\r\n* OK [UIDNEXT 2] Predicted next UID\r\n"
     b"* OK [HIGHESTMODSEQ 3] Highest mod-sequence\r\n"),
    (responses.changeable_flags(("x",), 1, named=False, more=False),
     b"* FLAGS (\\Seen \\Answered \\Flagged \\Deleted \\Draft x)\r\n"
     b"* OK [PERMANENTFLAGS (\\Seen)] Flags that can be changed\r\n"),
    (responses.changeable_flags((), 0, named=False, more=False),
     b"* FLAGS (\\Seen \\Answered \\Flagged \\Deleted \\Draft)\r\n"
     b"* OK [PERMANENTFLAGS ()] No flags can be changed\r\n"),
    (responses.appenduid(38505, [3955]), b"APPENDUID 38505 3955"),
    (responses.copyuid(38505, [304, 319, 320], [3956, 3957, 3958]), b"COPYUID 38505 304,319:320 3956:3958"),
    (responses.copyuid(38505, [], []), b""),
])
def test_a_reply_is_written(line, octets):
    assert line == octets


@given(st.text(), st.sampled_from([b"", b"ALERT", b"BADCHARSET (UTF-8)"]))
def test_text_never_adds_a_line_or_a_code(text, code):
    line = status_response(b"a", responses.NO, text, code)
    assert line.startswith(b"a NO ") and line.endswith(b"\r\n")
    inside = line[5:-2]
    assert all(0x20 <= octet <= 0x7E for octet in inside) and inside
    assert inside.startswith(b"[") == bool(code)


@pytest.mark.parametrize("code", [b"X]", b"X\r\n", b"\xff", b"A [B", b"A\0"])
def test_a_code_that_would_end_early_is_a_mistake(code):
    if b"[" in code:
        assert responses.ok(b"a", "x", code)        # only "]" ends a code
    else:
        with pytest.raises(ValueError):
            responses.ok(b"a", "x", code)
