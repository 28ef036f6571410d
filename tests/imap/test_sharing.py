r"""Shared mailboxes, where a conversation does not show it: what is not read, and what only a store can be given."""

import pytest
from attrs import evolve

from store.mailboxes import namespace
from store.mailboxes.authorization import set_acl
from store.mailboxes.flagchanges import change_flags
from store.values import Flag, FlagAction, Flags
from tests.support.conversations.scripts import Player
from tests.support.faults.planted import Faults


def play(place, script):
    Player(place).play("have: C is logged in\n" + script)


def test_what_another_uses_a_mailbox_for_is_not_said(place):
    r"""RFC 6154 §2: a client that took bob's \Sent for the user's own would put the user's mail there."""
    namespace.create_mailbox(place.store, place.name("user/bob/Sent"), special_use="\\Sent")
    set_acl(place.store, place.name("user/bob/Sent"), "alice", "lrsi")
    play(place, r"""
C: a1 LIST "" "*" RETURN (SPECIAL-USE)
S: * LIST (\HasNoChildren) "/" INBOX
S: * LIST (\HasNoChildren) "/" user/bob/Sent
S: a1 OK ...
C: a2 LIST (SPECIAL-USE) "" "*"
S: a2 OK ...
C: a3 CREATE Sent (USE (\Sent))
S: a3 OK ...
C: a4 LIST (SPECIAL-USE) "" "*"
S: * LIST (\HasNoChildren \Sent) "/" Sent
S: a4 OK ...
""")


@pytest.mark.parametrize("script", [
    r"""
C: a1 LIST "" "*"
S: * LIST (\HasNoChildren) "/" INBOX
S: * LIST (\Noselect \HasChildren) "/" user
S: * LIST (\Noselect \HasChildren) "/" user/bob
S: * LIST (\HasNoChildren) "/" user/bob/Team
S: a1 OK ...
""",
    "C: a1 SUBSCRIBE user/bob/Nothing\nS: a1 NO [NONEXISTENT] ...",
    "C: a1 SUBSCRIBE user/bob/Secret\nS: a1 NO [NONEXISTENT] ...",
    "C: a1 SUBSCRIBE user/bob/Team\nS: a1 OK ...",
    "C: a1 DELETE user/bob/Nothing\nS: a1 NO [NONEXISTENT] ...",
    "C: a1 DELETE user/bob/Secret\nS: a1 NO [NONEXISTENT] ...",
    "C: a1 RENAME user/bob/Nothing user/bob/Team/x\nS: a1 NO [NOPERM] ...",
    "C: a1 RENAME user/bob/Secret user/bob/Team/x\nS: a1 NO [NOPERM] ...",
    "C: a1 LSUB \"\" \"*\"\nS: a1 OK ..."])
def test_nobody_elses_names_are_walked(place, script):
    """What is answered, and how long that takes, says nothing of how many mailboxes others have."""
    for name in ("Team", "Secret"):
        namespace.create_mailbox(place.store, place.name(f"user/bob/{name}"))
    set_acl(place.store, place.name("user/bob/Team"), "alice", "lrk")
    with Faults() as planted:
        planted.fail(place.store.mailboxes, "below", AssertionError, when=lambda owner, *_, **__: owner != "alice")
        planted.forbid(place.store.mailboxes, "all")
        play(place, script)


@pytest.mark.parametrize("script", [
    "C: a1 SUBSCRIBE user/bob/Team/7\nS: a1 OK ...",
    "C: a1 SUBSCRIBE user/bob/Nothing\nS: a1 NO [NONEXISTENT] ...",
    "C: a1 DELETE user/bob/Nothing\nS: a1 NO [NONEXISTENT] ...",
    "C: a1 RENAME user/bob/Nothing user/bob/Team/x\nS: a1 NO [NOPERM] ...",
    "C: a1 DELETE user/bob/Only\nS: a1 NO [HASCHILDREN] ...", "C: a1 SUBSCRIBE user/bob/Only\nS: a1 OK ..."])
def test_of_a_name_only_what_is_below_it_is_looked_at(place, script):
    """However many mailboxes others share with the user: all of 8,000 held the event loop for a tenth of a second."""
    for path in (*(f"Team/{number}" for number in range(20)), "Only/a"):
        namespace.create_mailbox(place.store, place.name(f"user/bob/{path}"))
        set_acl(place.store, place.name(f"user/bob/{path}"), "alice", "lr")
    with Faults() as planted:
        read = planted.watch(place.store.mailboxes, "find")
        play(place, script)
    assert sum(name.path.startswith("Team/") for name in read) <= 2


@pytest.mark.parametrize("group", ["staff", "staf", "anyone"])
def test_who_leaves_a_group_leaves_its_mailboxes(place, group):
    """Groups are those of the moment, too."""
    namespace.create_mailbox(place.store, place.name("public/plans"))
    set_acl(place.store, place.name("public/plans"), "group:staff", "lr")
    place.store.directory.change("alice", groups=["staff"])
    player = Player(place)
    player.play("have: C has selected public/plans\nC: a1 NOOP\nS: a1 OK ...")
    place.store.directory.change("alice", groups=[group])
    if group == "staff":
        player.play("C: a2 NOOP\nS: a2 OK ...")
    else:
        player.play("C: a2 NOOP\nS: * BYE [NOPERM] ...\nclosed:")


def test_an_owner_who_gave_up_rights_has_them_no_more(place):
    """RFC 4314 §2.1: it can have them back, as it can always change the list."""
    namespace.create_mailbox(place.store, place.name("Old"))
    set_acl(place.store, place.name("Old"), "alice", "-xkw")
    play(place, r"""
C: a1 CREATE Old/Below
S: a1 NO [NOPERM] ...
C: a2 DELETE Old
S: a2 NO [NOPERM] ...
C: a3 RENAME Old New
S: a3 NO [NOPERM] ...
C: a4 SELECT Old
S: ...
S: * OK [PERMANENTFLAGS (\Seen \Deleted)] ...
S: ...
S: a4 OK [READ-WRITE] ...
""")
    set_acl(place.store, place.name("Old"), "alice", "+x")
    play(place, "C: a1 DELETE Old\nS: a1 OK ...")


def test_an_alias_is_an_identifier_like_any_other(place):
    """RFC 4314 §6: whose address it is, or that it is anybody's, is not to be found out by an access control list."""
    place.store.directory.change("bob", aliases=["robert"])
    place.store.directory.change("alice", aliases=["liz"])
    play(place, r"""
C: a1 SETACL INBOX robert lr
C: a2 SETACL INBOX robin lr
C: a3 SETACL INBOX liz lr
S: a1 OK SETACL completed
S: a2 OK SETACL completed
S: a3 OK SETACL completed
C: a4 GETACL INBOX
S: * ACL INBOX alice lrswipkxteacd liz lr robert lr robin lr
S: a4 OK ...
C: a5 LISTRIGHTS INBOX liz
S: * LISTRIGHTS INBOX liz "" l r s w i p k x t e a c d
S: a5 OK ...
C2: x1 LOGIN bob secret
S2: x1 OK ...
C2: x2 MYRIGHTS user/alice/INBOX
S2: x2 NO [NONEXISTENT] ...
""")


def test_what_cannot_be_a_name_is_no_identifier(place):
    """RFC 4314 §3, whether or not somebody has it."""
    play(place, r"""
C: a1 SETACL INBOX @ lr
S: a1 NO [CANNOT] ...
C: a2 SETACL INBOX group: lr
S: a2 BAD ...
""")


@pytest.mark.parametrize("mailbox", ["INBOX", "user/bob/Team"])
def test_a_change_of_other_names_keeps_no_session_waiting(place, mailbox):
    """A row is asked for with its lock only when it seems to be another one: a rename of a user with thousands of
    mailboxes holds the rows beside its own for seconds."""
    namespace.create_mailbox(place.store, place.name("user/bob/Team"))
    set_acl(place.store, place.name("user/bob/Team"), "alice", "lr")
    player = Player(place)
    player.play(f"have: C has selected {mailbox}")
    namespace.create_mailbox(place.store, place.name("user/bob/Other"))
    with Faults() as planted:
        planted.forbid(place.store.mailboxes, "find_id")
        player.play("C: a1 NOOP\nS: a1 OK ...")


@pytest.mark.parametrize("private", ["seen", ""])
def test_who_asked_for_silence_hears_of_flags_that_were_not_his_to_set(place, private):
    r"""RFC 3501 §6.4.6: a client that sent .SILENT takes the flags for set; without the right `t` \Deleted was not
    (RFC 4314 §4). So it must hear of them, however the change is brought to its view."""
    place.patch.setattr("store.partition.views.LARGE", 0)
    place.patch.setattr("store.partition.recordbuffers.LARGE", 0)
    settings = evolve(place.store.settings, private_flags=private)
    for one in (place.store, *place.store.partitions.values()):
        place.patch.setattr(one, "settings", settings)
    place.have("user/bob/Team", "one two")
    set_acl(place.store, place.name("user/bob/Team"), "alice", "lrsw")
    play(place, r"""
C: a1 SELECT user/bob/Team
S: ...
S: a1 OK ...
C: a2 STORE 1:* +FLAGS.SILENT (\Flagged)
S: a2 OK ...
C: a3 STORE 1:* +FLAGS.SILENT (\Answered \Deleted)
S: * 1 FETCH (FLAGS (\Answered \Flagged \Recent))
S: * 2 FETCH (FLAGS (\Answered \Flagged \Recent))
S: a3 OK ...
""")


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("numbers", ["1", "1:2"])
def test_who_asked_for_silence_hears_of_a_keyword_that_was_not_his_to_set(place, numbers, known):
    """As above, without the right `w`; the keyword may be one that nobody has set in that mailbox yet."""
    place.have("user/bob/Team", "one two")
    if known:
        change_flags(place.store, place.entry("user/bob/Team"), [2], FlagAction.ADD, Flags(Flag(0), ("word",)))
        change_flags(place.store, place.entry("user/bob/Team"), [2], FlagAction.REMOVE, Flags(Flag(0), ("word",)))
    set_acl(place.store, place.name("user/bob/Team"), "alice", "lrt")
    told = "\n".join(f"S: * {number} FETCH (FLAGS (\\Deleted \\Recent))" for number in range(1, int(numbers[-1]) + 1))
    play(place, rf"""
C: a1 SELECT user/bob/Team
S: ...
S: a1 OK ...
C: a2 STORE {numbers} +FLAGS.SILENT (\Deleted word)
{told}
S: a2 OK ...
C: a3 STORE {numbers} -FLAGS.SILENT (\Deleted word)
S: a3 OK ...
""")
