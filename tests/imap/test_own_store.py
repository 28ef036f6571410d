r"""What a client hears of its own STORE comes from the change itself. Where that is not all that there is to hear, the
mailbox is looked at: also in a large one, of which a conversation has none.
"""

import pytest

from imap.selection import Selection
from store.mailboxes.flagchanges import change_flags
from store.values import Flag, FlagAction, Flags
from tests.support.conversations.scripts import Player


@pytest.fixture(params=["small", "large"])
def player(request, place):
    if request.param == "large":
        place.patch.setattr("store.partition.views.LARGE", 0)
        place.patch.setattr("store.partition.recordbuffers.LARGE", 0)
    return Player(place)


@pytest.mark.parametrize("numbers", ["3", "1:3"])
@pytest.mark.parametrize("silent", ["", ".SILENT"])
def test_numbers_stay_until_the_expunge_is_told(player, numbers, silent):
    """RFC 3501 §7.4.1: no EXPUNGE while a STORE is answered; RFC 2180 §4.2: what is there still is stored."""
    told = [3] if numbers == "3" else [1, 3]
    lines = "" if silent else "".join(f"S: * {number} FETCH (FLAGS (\\Flagged \\Recent))\n" for number in told)
    end = "S: a2 NO ..." if numbers == "1:3" and not silent else "S: a2 OK ..."
    player.play(rf"""
have: INBOX one two three
have: C and C2 have selected INBOX
C2: b1 UID STORE 2 +FLAGS.SILENT (\Deleted)
S2: b1 OK ...
C2: b2 EXPUNGE
S2: * 2 EXPUNGE
S2: b2 OK ...
C: a1 FETCH 1 (UID)
S: * 1 FETCH (UID 1)
S: a1 OK ...
C: a2 STORE {numbers} +FLAGS{silent} (\Flagged)
{lines}{end}
C: a3 FETCH 3 (UID FLAGS)
S: * 3 FETCH (UID 3 FLAGS (\Flagged \Recent))
S: a3 OK ...
C: a4 NOOP
S: * 2 EXPUNGE
S: a4 OK ...
C: a5 FETCH 2 (UID FLAGS)
S: * 2 FETCH (UID 3 FLAGS (\Flagged \Recent))
S: a5 OK ...
""")


@pytest.mark.parametrize("numbers", ["1", "1:2"])
def test_silence_tells_modseqs(player, numbers):
    """RFC 7162 §3.1.3: the MODSEQ of each message that was changed, also with .SILENT."""
    changed = [1] if numbers == "1" else [1, 2]
    lines = "".join(f"S: * {number} FETCH (UID {number} MODSEQ ($after))\n" for number in changed)
    player.play(rf"""
have: INBOX one two
have: C has selected INBOX
C: a1 FETCH 2 (MODSEQ)
S: * OK [HIGHESTMODSEQ ...
S: * 2 FETCH (MODSEQ ($before))
S: a1 OK ...
C: a2 STORE {numbers} +FLAGS.SILENT (\Flagged)
{lines}S: a2 OK ...
ascending: $before $after
C: a3 FETCH 1 (MODSEQ FLAGS)
S: * 1 FETCH (MODSEQ ($after) FLAGS (\Flagged \Recent))
S: a3 OK ...
""")


@pytest.mark.parametrize("numbers", ["2", "1:2"])
def test_imap4rev2_hears_the_uid(player, numbers):
    """RFC 9051 §7.5.2: a FETCH response that nobody asked for has the UID."""
    told = [2] if numbers == "2" else [1, 2]
    lines = "".join(f"S: * {number} FETCH (UID {number} FLAGS (\\Flagged))\n" for number in told)
    player.play(rf"""
have: INBOX one two
have: C is logged in
C: a1 ENABLE IMAP4rev2
S: * ENABLED IMAP4rev2
S: a1 OK ...
C: a2 SELECT INBOX
S: ...
S: a2 OK ...
C: a3 STORE {numbers} +FLAGS (\Flagged)
{lines}S: a3 OK ...
""")


def test_an_answer_that_was_remembered_is_not_given_again(player):
    """A SEARCH by flags is answered once while nothing changes; what this client has stored is a change."""
    player.play(r"""
have: INBOX one two three
have: C has selected INBOX
C: a1 SEARCH UNSEEN
S: * SEARCH 1 2 3
S: a1 OK ...
C: a2 STORE 2 +FLAGS.SILENT (\Seen)
S: a2 OK ...
C: a3 SEARCH UNSEEN
S: * SEARCH 1 3
S: a3 OK ...
C: a4 STORE 1:3 +FLAGS.SILENT (\Seen)
S: a4 OK ...
C: a5 SEARCH UNSEEN
S: * SEARCH
S: a5 OK ...
C: a6 STORE 2 -FLAGS (\Seen)
S: * 2 FETCH (FLAGS (\Recent))
S: a6 OK ...
C: a7 SEARCH UNSEEN
S: * SEARCH 2
S: a7 OK ...
""")


@pytest.mark.parametrize("numbers", ["2", "1:3"])
def test_a_new_keyword_is_named_before_it_is_used(player, numbers):
    """RFC 3501 §7.2.6: FLAGS says which flags a mailbox has; with .SILENT too, since nobody told the client of it."""
    player.play(rf"""
have: INBOX one two three
have: C has selected INBOX
C: a1 STORE {numbers} +FLAGS.SILENT (word)
S: * FLAGS (\Seen \Answered \Flagged \Deleted \Draft word)
S: * OK [PERMANENTFLAGS ...
S: a1 OK ...
C: a2 FETCH 2 (FLAGS)
S: * 2 FETCH (FLAGS (\Recent word))
S: a2 OK ...
""")


@pytest.mark.parametrize("uids", [[1], [3], [1, 3]])
@pytest.mark.parametrize(("numbers", "silent"), [("2", ""), ("2", ".SILENT"), ("1:3", ".SILENT")])
def test_what_another_session_changes_before_the_answer_is_told(player, place, monkeypatch, numbers, silent, uids):
    """In this process, between the transaction and what is told of it: with this reply or with the next."""
    between = []

    def after(of_own):
        def told(self, *given, **options):
            while between:
                change_flags(place.store, place.entry("INBOX"), between.pop(), FlagAction.ADD, Flags(Flag.ANSWERED))
            return of_own(self, *given, **options)
        return told

    for name in ("tell_own", "follow_own"):
        monkeypatch.setattr(Selection, name, after(getattr(Selection, name)))
    player.play("have: INBOX one two three\nhave: C has selected INBOX")
    wire = player.wires[""]
    for add in "+", "-", "+":
        change_flags(place.store, place.entry("INBOX"), uids, FlagAction.REMOVE, Flags(Flag.ANSWERED))
        wire.send(b"a1 NOOP\r\n")
        wire.received()
        between.append(uids)
        wire.send(b"a2 STORE %b %bFLAGS%b (\\Flagged)\r\na3 NOOP\r\n" % (
            numbers.encode(), add.encode(), silent.encode()))
        answer, flagged = wire.received(), b"\\Flagged " if add == "+" and numbers == "1:3" else b""
        assert b"a2 OK" in answer and not between
        for uid in uids:
            assert b"* %d FETCH (FLAGS (\\Answered %b\\Recent))\r\n" % (uid, flagged) in answer
