"""Mailboxes of others in a snapshot: shown to who could look them up and read them then, and may do so today."""

import pytest

from mboxlist.names import MailboxName
from store.mailboxes.flagchanges import change_flags
from store.users.renaming import rename_user
from store.values import Flag, FlagAction, Flags
from tests.imap.snapshots.traveller import play

SHARED = """
with: time_travel=alice
have: INBOX mine; user/bob/Team one two(\\Seen) three; user/bob/Private secret; public/news item
acl: user/bob/Team alice lr
acl: public/news anyone lr
snapshot: 20260101T030000Z
"""


def test_what_others_have_shared(place):
    play(place, SHARED + """
everything:
have: C is logged in
C: a1 LIST "" $one/*
S: * LIST (\\HasNoChildren) "/" $one/INBOX
S: * LIST (\\Noselect \\HasChildren) "/" $one/public
S: * LIST (\\HasNoChildren) "/" $one/public/news
S: * LIST (\\Noselect \\HasChildren) "/" $one/user
S: * LIST (\\Noselect \\HasChildren) "/" $one/user/bob
S: * LIST (\\HasNoChildren) "/" $one/user/bob/Team
S: a1 OK ...
C: a2 STATUS $one/user/bob/Team (MESSAGES UNSEEN)
S: * STATUS $one/user/bob/Team (MESSAGES 3 UNSEEN 3)
S: a2 OK ...
C: a3 SELECT $one/user/bob/Team
S: ...
S: a3 OK [READ-ONLY] ...
C: a4 FETCH 1:* (FLAGS)
S: * 1 FETCH (FLAGS ())
S: * 2 FETCH (FLAGS ())
S: * 3 FETCH (FLAGS ())
S: a4 OK ...
C: a5 COPY 2 INBOX
S: a5 OK [COPYUID ...
C: a6 MYRIGHTS $one/public/news
S: * MYRIGHTS $one/public/news lr
S: a6 OK ...
C: a7 EXAMINE $one/public/news
S: ...
S: a7 OK [READ-ONLY] ...
C: a8 SELECT $one/user/bob/Private
S: * OK [CLOSED] ...
S: a8 NO [NONEXISTENT] ...
C: a9 SELECT $one/user/carol/Team
S: a9 NO [NONEXISTENT] ...
C: b1 SELECT $one/user/bob
S: b1 NO [NONEXISTENT] ...
C: b2 EXAMINE $one/user/alice/INBOX
S: ...
S: b2 OK [READ-ONLY] ...
""")


def test_everybody_has_seen_flags_of_one_s_own(place):
    r"""RFC 4314 §4: what the owner has read is not the reader's business, then as today."""
    play(place, """
with: time_travel=alice
have: user/bob/Team one two(\\Seen) three(\\Seen)
acl: user/bob/Team alice lrs
""")
    entry = place.store.entry(MailboxName("bob", "Team"))
    change_flags(place.store, entry, [3], FlagAction.ADD, Flags(Flag.SEEN), "alice")
    change_flags(place.store, entry, [1], FlagAction.ADD, Flags(Flag.FLAGGED))
    play(place, """
snapshot: 20260101T030000Z
have: C is logged in
C: a1 SELECT $one/user/bob/Team
S: ...
S: a1 OK [READ-ONLY] ...
C: a2 FETCH 1:* FLAGS
S: * 1 FETCH (FLAGS (\\Flagged))
S: * 2 FETCH (FLAGS ())
S: * 3 FETCH (FLAGS (\\Seen))
S: a2 OK ...
C: a3 STATUS $one/user/bob/Team (UNSEEN)
S: * STATUS $one/user/bob/Team (UNSEEN 2)
S: a3 OK ...
C: a4 SEARCH SEEN
S: * SEARCH 3
S: a4 OK ...
""")


NOTHING = """
have: C is logged in
C: a1 LIST "" $one/*
S: * LIST (\\HasNoChildren) "/" $one/INBOX
S: a1 OK ...
C: a2 SELECT $one/user/bob/Team
S: a2 NO [NONEXISTENT] ...
C: a3 STATUS $one/user/bob/Team (MESSAGES)
S: a3 NO [NONEXISTENT] ...
C: a4 MYRIGHTS $one/user/bob/Team
S: a4 NO [NONEXISTENT] ...
"""


@pytest.mark.parametrize("before, after", [
    ("acl: user/bob/Team alice lr", "acl: user/bob/Team alice -"),                # taken back since
    ("", "acl: user/bob/Team alice lr"),                                        # shared only since
    ("acl: user/bob/Team alice lr", "acl: user/bob/Team -alice lr"),
    ("acl: user/bob/Team anyone lr\nacl: user/bob/Team -alice lr", "acl: user/bob/Team alice lr"),
    ("acl: user/bob/Team alice lr", "delete: user/bob/Team")])                  # of nobody any more
def test_what_was_not_shared_then_or_is_not_now(place, before, after):
    play(place, f"""
with: time_travel=alice
have: INBOX mine; user/bob/Team one
{before}
snapshot: 20260101T030000Z
{after}
""" + NOTHING)


def test_what_can_only_be_looked_up(place):
    play(place, """
with: time_travel=alice
have: INBOX mine; user/bob/Team one
acl: user/bob/Team alice l
snapshot: 20260101T030000Z
acl: user/bob/Team alice lr
have: C is logged in
C: a1 LIST "" $one/user/bob/%
S: * LIST (\\Noselect \\HasNoChildren) "/" $one/user/bob/Team
S: a1 OK ...
C: a2 SELECT $one/user/bob/Team
S: a2 NO [NOPERM] ...
C: a3 STATUS $one/user/bob/Team (MESSAGES)
S: a3 NO [NOPERM] ...
""")


def test_it_is_no_more_shared_while_one_looks_at_it(place):
    play(place, SHARED + """
have: C is logged in
C: a1 SELECT $one/user/bob/Team
S: ...
S: a1 OK [READ-ONLY] ...
C: a2 FETCH 1 UID
S: * 1 FETCH (UID 1)
S: a2 OK ...
acl: user/bob/Team alice l
C: a3 FETCH 1 UID
S: * BYE [NOPERM] ...
closed: C
""")


def test_who_has_another_name_now(place):
    """Rights were given to the name of then; and a mailbox has the name that it had."""
    play(place, SHARED)
    rename_user(place.store, "alice", "alison")
    rename_user(place.store, "bob", "robert")
    place.user = "alison"
    play(place, """
with: time_travel=alison
have: C is logged in
C: a1 LIST "" $one/user/*
S: * LIST (\\Noselect \\HasChildren) "/" $one/user/bob
S: * LIST (\\HasNoChildren) "/" $one/user/bob/Team
S: a1 OK ...
C: a2 SELECT $one/user/bob/Team
S: ...
S: a2 OK [READ-ONLY] ...
""")
