"""Who sees snapshots, what others learn of them, and how long they are open."""


import pytest
from attrs import evolve

from imap.verbs.snapshots import _goes_below
from mboxlist.names import MailboxName
from store.mailboxes import firstuse
from store.snapshots import taking
from store.snapshots.snapshotreader import MOST, readers_of
from store.users import lifecycle
from store.users.renaming import rename_user
from tests.imap.snapshots.traveller import BEFORE, FIRST, T1, T2, everything_goes, play, snapshot
from tests.support.stores.stores import HASH

STRANGER = [
    "SELECT $name", "EXAMINE $name", "STATUS $name (MESSAGES UIDNEXT)", "MYRIGHTS $name", "GETACL $name",
    "LISTRIGHTS $name bob", "SETACL $name bob l", "DELETEACL $name bob", "DELETE $name", "RENAME $name Mine",
    "SUBSCRIBE $name", "UNSUBSCRIBE $name", "GETQUOTAROOT $name", "COPY 1 $name", "MOVE 1 $name",
    'LIST "" $name', 'LIST "" #snapshots/*', 'LIST "" #snapshots/%', 'LIST #snapshots/ ""', 'LIST (SUBSCRIBED) "" *',
    'LIST "" (#* #snapshots/*) RETURN (STATUS (MESSAGES) MYRIGHTS)', 'LSUB "" *', "NAMESPACE"]


def test_others_learn_nothing(place):
    """A user without the grant hears, octet for octet, what one hears where there is no snapshot; so does one who has
    the grant where the user did not exist."""
    answers = []
    for _ in range(2):
        place.server = None
        place.settings = evolve(place.settings, time_travel="alice group:time bob -bob")
        wire = place.connect()
        wire.send(b"x LOGIN bob secret\r\ny SELECT INBOX\r\n")
        wire.received()
        said = b""
        for command in STRANGER:
            wire.send(b"a " + command.replace("$name", T1 + "/INBOX").encode() + b"\r\n")
            said += wire.received()
            if command[:2] in ("SE", "EX"):
                wire.send(b"y SELECT INBOX\r\n")
                wire.received()
        answers.append(said)
        wire.hang_up()
        if len(answers) == 1:
            place.deliver("user/bob/INBOX", b"Subject: bob's\r\n\r\nBob's.\r\n")
            snapshot(place.store, FIRST)
            everything_goes(place.store)
    assert answers[0] == answers[1]
    assert b"2026" not in answers[1].replace(T1.encode(), b"")
    assert answers[1].count(b"a NO") + answers[1].count(b"a OK") + answers[1].count(b"a BAD") == len(STRANGER)


def test_nobody_is_granted_it_by_default(place):
    play(place, """
have: INBOX one
snapshot: 20260101T030000Z
have: C is logged in
C: a1 NAMESPACE
S: * NAMESPACE (("" "/")) (("user/" "/")) (("public/" "/"))
S: a1 OK ...
C: a2 SELECT $one/INBOX
S: a2 NO [NONEXISTENT] ...
C: a3 LIST "" #snapshots/*
S: a3 OK ...
C: a4 CREATE #snapshots/mine
S: a4 NO [CANNOT] ...
C: a5 RENAME INBOX #snapshots/mine
S: a5 NO [CANNOT] ...
""")


def test_a_later_user_of_the_same_name_sees_nothing(place):
    """Whose a mailbox is goes by the id of the INBOX: a new alice is another."""
    store = place.store
    play(place, BEFORE)
    lifecycle.remove_mail(store, "alice")
    store.directory.remove("alice")
    firstuse.inbox(store, store.directory.add("alice", HASH))
    found, = taking.listed(store.root / "snapshots")
    earlier = evolve(found.manifest, moment=found.manifest.moment - 100)        # not in the same second as the new one
    (found.path / taking.MANIFEST).write_bytes(earlier.to_bytes())
    play(place, """
have: C is logged in
C: a1 LIST "" #snapshots/*
S: a1 OK ...
C: a2 LIST "" $one/%
S: a2 OK ...
C: a3 SELECT $one/INBOX
S: a3 NO [NONEXISTENT] ...
C: a4 STATUS $one/Archive/2025 (MESSAGES)
S: a4 NO [NONEXISTENT] ...
C: a5 MYRIGHTS $one/INBOX
S: a5 NO [NONEXISTENT] ...
""")


def test_what_may_not_be_read_now_is_not_shown(place):
    """A mailbox that is there still, and which the user may not read now: RFC 4314 §4."""
    play(place, BEFORE + """
acl: Archive/2025 alice la
have: C is logged in
C: a1 LIST "" $one/Archive/%
S: * LIST (\\Noselect \\HasNoChildren) "/" $one/Archive/2025
S: a1 OK ...
C: a2 SELECT $one/Archive/2025
S: a2 NO [NOPERM] ...
""")


def test_the_grant_is_taken_back(place):
    play(place, """
with: time_travel=group:time
have: INBOX one
snapshot: 20260101T030000Z
have: C is logged in
C: a1 SELECT $one/INBOX
S: a1 NO [NONEXISTENT] ...
groups: time
C: a2 SELECT $one/INBOX
S: ...
S: a2 OK [READ-ONLY] ...
C: a3 FETCH 1 UID
S: * 1 FETCH (UID 1)
S: a3 OK ...
groups: others
C: a4 FETCH 1 UID
S: * BYE [NOPERM] ...
closed:
""")


def test_the_snapshot_is_removed(place):
    play(place, BEFORE + """
have: C is logged in
C: a1 SELECT $one/INBOX
S: ...
S: a1 OK ...
C2: x1 LOGIN alice secret
S2: ...
S2: x1 OK ...
C2: a1 STATUS $one/INBOX (MESSAGES)
S2: * STATUS $one/INBOX (MESSAGES 3)
S2: a1 OK ...
forget: 20260101T030000Z
C2: a2 STATUS $one/INBOX (MESSAGES)
S2: a2 NO [NONEXISTENT] ...
C2: a3 LIST "" #snapshots/*
S2: a3 OK ...
C: a2 FETCH 1 BODY[]
S: * BYE [NONEXISTENT] ...
closed:
""")


def test_a_second_snapshot_is_another_mailbox(place):
    play(place, BEFORE + """
everything:
deliver: INBOX later
snapshot: 20260102T030000Z
everything:
have: C is logged in
C: a1 SELECT $two/INBOX
S: * 1 EXISTS
S: ...
S: a1 OK ...
C: a2 SORT (SUBJECT) UTF-8 ALL
S: * SORT 1
S: a2 OK ...
C: a3 SELECT $one/INBOX
S: * OK [CLOSED] ...
S: * 3 EXISTS
S: ...
S: a3 OK ...
C: a4 SORT (SUBJECT) UTF-8 ALL
S: * SORT 1 3 2
S: a4 OK ...
C: a5 UID FETCH 1:* BODY.PEEK[HEADER.FIELDS (SUBJECT)]
S: * 1 FETCH (UID 1 BODY[HEADER.FIELDS (SUBJECT)] {16}
S: Subject: one
S:
S: )
S: * 2 FETCH (UID 2 BODY[HEADER.FIELDS (SUBJECT)] {16}
S: Subject: two
S:
S: )
S: * 3 FETCH (UID 3 BODY[HEADER.FIELDS (SUBJECT)] {18}
S: Subject: three
S:
S: )
S: a5 OK ...
""")


def test_a_renamed_user_sees_what_was_hers(place):
    """The names in the snapshot are those of the user as she was called then."""
    store = place.store
    play(place, BEFORE)
    rename_user(store, "alice", "carol")
    place.user = "carol"
    place.server, place.settings = None, evolve(place.settings, time_travel="anyone")
    play(place, """
have: C is logged in
C: a1 LIST "" $one/*
S: * LIST (\\Noselect \\HasChildren) "/" $one/Archive
S: * LIST (\\HasNoChildren) "/" $one/Archive/2025
S: * LIST (\\HasNoChildren) "/" $one/INBOX
S: a1 OK ...
C: a2 SELECT $one/INBOX
S: * 3 EXISTS
S: ...
S: a2 OK ...
""")


def test_only_so_many_are_open_at_a_time(place):
    """Each is used by a session that has selected a mailbox in it; one more is refused (RFC 5530 §3 LIMIT)."""
    store = place.store
    play(place, "with: time_travel=alice\nhave: INBOX one\n")
    levels = []
    for day in range(1, MOST + 2):
        snapshot(store, f"202601{day:02}T030000Z")
        levels.append(f"#snapshots/2026-01-{day:02}T03:00:00Z")
    script = "have: " + " and ".join(["C", *(f"C{number}" for number in range(2, MOST + 2))]) + " are logged in\n"
    for number, level in enumerate(levels[:MOST], 1):
        which = "" if number == 1 else number
        script += f"C{which}: a1 SELECT {level}/INBOX\nS{which}: ...\nS{which}: a1 OK ...\n"
    script += f"""C{MOST + 1}: a1 SELECT {levels[MOST]}/INBOX
S{MOST + 1}: a1 NO [LIMIT] ...
C: a2 UNSELECT
S: a2 OK ...
C{MOST + 1}: a2 SELECT {levels[MOST]}/INBOX
S{MOST + 1}: ...
S{MOST + 1}: a2 OK ...
C: a3 LOGOUT
S: ...
S: a3 OK ...
closed:
"""
    play(place, script)
    assert len(readers_of(store)._open) == MOST


def test_it_is_closed_when_nobody_has_used_it_for_a_while(place):
    place_of = place.store.root / "snapshots" / f"{FIRST}.past"
    play(place, BEFORE + """
have: C is logged in
C: a1 SELECT $one/INBOX
S: ...
S: a1 OK ...
C: a2 UNSELECT
S: a2 OK ...
""")
    assert place_of.is_dir()
    readers_of(place.store)._open[FIRST].unused_since -= 1000         # its clock is not the session's
    place.clock.advance(302)
    assert not place_of.exists()


@pytest.mark.parametrize(("pattern", "below"), [
    (f"{T1}/%", True), (f"{T1}/INBOX", True), ("#snapshots/*", True), ("#*", True), ("#snapshots/%", False),
    ("#snapshots/%/%", True), (f"{T2}/*", False), (f"{T1}*", True), (T1, False), ("#snapshots", False),
    ("#other/*", False), ("#snapshots/2026*X", True)])
def test_which_patterns_look_into_a_snapshot(pattern, below):
    assert _goes_below(pattern, T1 + "/") is below


def test_the_snapshot_itself_stays_as_it_is(place):
    """Nothing is written into its folder."""
    play(place, BEFORE)
    before = {path: path.stat().st_mtime_ns for path in (place.store.root / "snapshots" / FIRST).rglob("*")}
    play(place, """
have: C is logged in
C: a1 SELECT $one/INBOX
S: ...
S: a1 OK ...
C: a2 SEARCH TEXT three
S: * SEARCH 3
S: a2 OK ...
""")
    assert {path: path.stat().st_mtime_ns for path in (place.store.root / "snapshots" / FIRST).rglob("*")} == before
    found, = taking.listed(place.store.root / "snapshots")
    assert taking.altered(found) == []
    assert MailboxName.from_client("alice", T1 + "/INBOX").owner == "alice"
