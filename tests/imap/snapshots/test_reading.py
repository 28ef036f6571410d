"""Snapshots as mailboxes below #snapshots/, for reading and for copying messages out of."""

from collections import Counter

from store import offload
from store.errors import Problem, StoreError
from store.quota import roots
from store.snapshots import snapshotreader
from store.snapshots.snapshotreader import SnapshotReader
from tests.imap.snapshots.traveller import BEFORE, files, play


def test_names(place):
    """RFC 2342 §5; RFC 3501 §6.3.8, RFC 9051 §6.3.9: "#" breaks out; RFC 3348, RFC 5258."""
    play(place, BEFORE + """
delete: Archive/2025
have: New fresh
snapshot: 20260102T030000Z
have: C is logged in
C: a1 NAMESPACE
S: * NAMESPACE (("" "/")) (("user/" "/")) (("public/" "/")("#snapshots/" "/"))
S: a1 OK ...
C: a2 LIST "" *
S: * LIST (\\HasNoChildren) "/" INBOX
S: * LIST (\\HasNoChildren) "/" New
S: a2 OK ...
C: a3 LIST "" %
S: * LIST (\\HasNoChildren) "/" INBOX
S: * LIST (\\HasNoChildren) "/" New
S: a3 OK ...
C: a4 LIST "" #snapshots/%
S: * LIST (\\Noselect \\HasChildren) "/" $one
S: * LIST (\\Noselect \\HasChildren) "/" $two
S: a4 OK ...
C: a5 LIST "" #snapshots
S: * LIST (\\Noselect \\HasChildren) "/" #snapshots
S: a5 OK ...
C: a6 LIST "" $one/%
S: * LIST (\\Noselect \\HasChildren) "/" $one/Archive
S: * LIST (\\HasNoChildren) "/" $one/INBOX
S: a6 OK ...
C: a7 LIST "" #snapshots/*
S: * LIST (\\Noselect \\HasChildren) "/" $one
S: * LIST (\\Noselect \\HasChildren) "/" $one/Archive
S: * LIST (\\HasNoChildren) "/" $one/Archive/2025
S: * LIST (\\HasNoChildren) "/" $one/INBOX
S: * LIST (\\Noselect \\HasChildren) "/" $two
S: * LIST (\\HasNoChildren) "/" $two/INBOX
S: * LIST (\\HasNoChildren) "/" $two/New
S: a7 OK ...
C: a8 LIST "#snapshots/" ""
S: * LIST (\\Noselect) "/" #snapshots/
S: a8 OK ...
C: a9 LIST Archive/ $two/I*
S: * LIST (\\HasNoChildren) "/" $two/INBOX
S: a9 OK ...
C: b1 LIST $two/ *W
S: b1 OK ...
C: b2 LIST $two/ *w
S: * LIST (\\HasNoChildren) "/" $two/New
S: b2 OK ...
C: b3 LIST "" (% $two/%) RETURN (MYRIGHTS STATUS (MESSAGES))
S: * LIST (\\HasNoChildren) "/" INBOX
S: * STATUS INBOX (MESSAGES 3)
S: * MYRIGHTS INBOX ...
S: * LIST (\\HasNoChildren) "/" New
S: * STATUS New (MESSAGES 1)
S: * MYRIGHTS New ...
S: * LIST (\\HasNoChildren) "/" $two/INBOX
S: * STATUS $two/INBOX (MESSAGES 3)
S: * MYRIGHTS $two/INBOX lr
S: * LIST (\\HasNoChildren) "/" $two/New
S: * STATUS $two/New (MESSAGES 1)
S: * MYRIGHTS $two/New lr
S: b3 OK ...
C: b4 LIST (SUBSCRIBED) "" #snapshots/*
S: b4 OK ...
C: b5 LIST (SPECIAL-USE) "" #snapshots/*
S: b5 OK ...
C: b6 LSUB "" #snapshots/*
S: b6 OK ...
C: b7 LIST "" #snapshots/% RETURN (CHILDREN)
S: * LIST (\\NonExistent \\HasChildren) "/" $one
S: * LIST (\\NonExistent \\HasChildren) "/" $two
S: b7 OK ...
C: b8 LIST "" #snapshots/2026-01-01*/INBOX
S: * LIST (\\HasNoChildren) "/" $one/INBOX
S: b8 OK ...
""")


def test_lost_cache_records_are_made_anew_in_a_thread_and_once(place, monkeypatch):
    """A snapshot is not written to, so each reading of it would take the messages apart again."""
    parsed, inside = [], []

    class Earlier(snapshotreader.CachedMessage):
        @classmethod
        def from_bytes(cls, data):
            raise ValueError("an earlier version's")

    async def running(run, store, kind, function, *args, user=""):
        inside.append(kind)
        try:
            return await run(store, kind, function, *args)
        finally:
            inside.pop()

    monkeypatch.setattr(snapshotreader, "CachedMessage", Earlier)
    place.faults.before(snapshotreader, "parse", lambda *_: parsed.append(inside[-1] if inside else "event loop"))
    place.faults.around(offload, "run", running)
    play(place, BEFORE + """
have: C has selected $one/INBOX
C: a1 FETCH 1:3 (RFC822.SIZE ENVELOPE)
S: * 1 FETCH (RFC822.SIZE 53 ENVELOPE (NIL "one" ((NIL NIL "bob" "example.org")) ...
S: * 2 FETCH (RFC822.SIZE 53 ENVELOPE (NIL "two" ((NIL NIL "bob" "example.org")) ...
S: * 3 FETCH (RFC822.SIZE 57 ENVELOPE (NIL "three" ((NIL NIL "bob" "example.org")) ...
S: a1 OK ...
C: a2 FETCH 3 (BODY[1] ENVELOPE)
S: * 3 FETCH (ENVELOPE (NIL "three" ((NIL NIL "bob" "example.org")) ...
S: This is three.
S: )
S: a2 OK ...
""")
    assert parsed == ["snapshots"] * 3


def test_reading(place):
    """What was in the mailbox then, by the UIDs that it had then; \\Seen is not set (RFC 3501 §6.3.2, §6.4.5)."""
    play(place, BEFORE + """
everything:
deliver: INBOX four
have: C is logged in
C: a1 STATUS INBOX (MESSAGES UIDNEXT UIDVALIDITY)
S: * STATUS INBOX (MESSAGES 1 UIDNEXT 5 UIDVALIDITY $validity)
S: a1 OK ...
C: a2 STATUS $one/INBOX (MESSAGES UIDNEXT UIDVALIDITY UNSEEN RECENT DELETED APPENDLIMIT)
S: * STATUS $one/INBOX (MESSAGES 3 UIDNEXT 4 UIDVALIDITY $validity UNSEEN 2 RECENT 0 DELETED 0 APPENDLIMIT 0)
S: a2 OK ...
C: a3 SELECT $one/inbox
S: * 3 EXISTS
S: * 0 RECENT
S: * FLAGS (\\Seen \\Answered \\Flagged \\Deleted \\Draft $Label)
S: * OK [PERMANENTFLAGS ()] ...
S: * OK [UNSEEN 2] ...
S: * OK [UIDVALIDITY $validity] ...
S: * OK [UIDNEXT 4] ...
S: * OK [HIGHESTMODSEQ $modseq] ...
S: a3 OK [READ-ONLY] ...
C: a4 FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE)
S: * 1 FETCH (UID 1 FLAGS (\\Seen) INTERNALDATE " 9-Sep-2001 02:46:40 +0100" RFC822.SIZE 53)
S: * 2 FETCH (UID 2 FLAGS (\\Flagged $Label) INTERNALDATE " 9-Sep-2001 02:46:40 +0100" RFC822.SIZE 53)
S: * 3 FETCH (UID 3 FLAGS () INTERNALDATE " 9-Sep-2001 02:46:40 +0100" RFC822.SIZE 57)
S: a4 OK ...
C: a5 UID FETCH 3 BODY[TEXT]
S: * 3 FETCH (UID 3 BODY[TEXT] {16}
S: This is three.
S: )
S: a5 OK ...
C: a6 FETCH 3 (FLAGS ENVELOPE BODY[HEADER.FIELDS (SUBJECT)])
S: * 3 FETCH (FLAGS () ENVELOPE (NIL "three" ((NIL NIL "bob" "example.org")) ((NIL NIL "bob" "example.org")) ...
S: Subject: three
S:
S: )
S: a6 OK ...
C: a7 SEARCH UNSEEN
S: * SEARCH 2 3
S: a7 OK ...
C: a8 UID SEARCH BODY two
S: * SEARCH 2
S: a8 OK ...
C: a9 SORT (REVERSE SUBJECT) UTF-8 ALL
S: * SORT 2 3 1
S: a9 OK ...
C: b1 UID THREAD ORDEREDSUBJECT UTF-8 SUBJECT t
S: * THREAD (2)(3)
S: b1 OK ...
C: b2 NOOP
S: b2 OK ...
C: b3 CHECK
S: b3 OK ...
C: b4 MYRIGHTS $one/INBOX
S: * MYRIGHTS $one/INBOX lr
S: b4 OK ...
C: b5 GETQUOTAROOT $one/INBOX
S: * QUOTAROOT $one/INBOX
S: b5 OK ...
C: b6 STATUS INBOX (RECENT)
S: * STATUS INBOX (RECENT 1)
S: b6 OK ...
C: b7 CLOSE
S: b7 OK ...
C: b8 EXAMINE $one/Archive/2025
S: * 1 EXISTS
S: ...
S: b8 OK [READ-ONLY] ...
C: b9 UNSELECT
S: b9 OK ...
C: c1 SELECT $one/Archive
S: c1 NO [NONEXISTENT] ...
C: c2 SELECT $one
S: c2 NO [NONEXISTENT] ...
C: c3 SELECT #snapshots/2026-01-01T03:00:01Z/INBOX
S: c3 NO [NONEXISTENT] ...
C: c4 SELECT #snapshots/1/INBOX
S: c4 NO [NONEXISTENT] ...
C: c5 STATUS $one/Nowhere (MESSAGES)
S: c5 NO [NONEXISTENT] ...
C: c6 MYRIGHTS $one/../INBOX
S: c6 NO [NONEXISTENT] ...
box: INBOX four
""")


def test_rev2(place):
    """RFC 9051 §6.3.2: SELECT has a LIST response with the name; no RECENT."""
    play(place, BEFORE + """
have: C is logged in
C: a1 ENABLE IMAP4rev2
S: * ENABLED IMAP4rev2
S: a1 OK ...
C: a2 SELECT $one/inbox
S: * 3 EXISTS
S: * FLAGS ...
S: * OK [PERMANENTFLAGS ()] ...
S: * LIST () "/" $one/INBOX ("OLDNAME" ($one/inbox))
S: ...
S: a2 OK [READ-ONLY] ...
C: a3 SEARCH FLAGGED
S: * ESEARCH (TAG "a3") ALL 2
S: a3 OK ...
""")


def test_names_in_other_letters(place):
    """RFC 3501 §5.1.3: modified UTF-7; RFC 9051 §5.1: UTF-8, and NFC."""
    play(place, """
with: time_travel=group:none,alice
have: Entwürfe one
snapshot: 20260101T030000Z
have: C is logged in
C: a1 LIST "" $one/E*
S: * LIST (\\HasNoChildren) "/" $one/Entw&APw-rfe
S: a1 OK ...
C: a2 EXAMINE $one/Entw&APw-rfe
S: ...
S: a2 OK [READ-ONLY] ...
C: a3 ENABLE IMAP4rev2
S: ...
S: a3 OK ...
C~: a4 STATUS "#snapshots/2026-01-01T03:00:00Z/Entwu\\xcc\\x88rfe" (MESSAGES)\\r\\n
S: * STATUS ...
S: a4 OK ...
C: a5 CREATE #snapshots
S: a5 NO [NOPERM] ...
C: a6 SELECT #snapshots
S: * OK [CLOSED] ...
S: a6 NO [NONEXISTENT] ...
""")


def test_nothing_can_be_changed(place):
    """RFC 5530 §3: NOPERM where a right is missing that MYRIGHTS does not have, CANNOT for what never is possible."""
    play(place, BEFORE + """
have: Mine; C has selected INBOX
C: a1 CREATE $one/New
S: a1 NO [NOPERM] ...
C: a2 DELETE $one/INBOX
S: a2 NO [NOPERM] ...
C: a3 RENAME $one/INBOX Back
S: a3 NO [NOPERM] ...
C: a4 RENAME Mine $one/Mine
S: a4 NO [NOPERM] ...
C: a5 SETACL $one/INBOX bob lr
S: a5 NO [NOPERM] ...
C: a6 GETACL $one/INBOX
S: a6 NO [NOPERM] ...
C: a7 DELETEACL $one/INBOX bob
S: a7 NO [NOPERM] ...
C: a8 LISTRIGHTS $one/INBOX bob
S: a8 NO [NOPERM] ...
C: a9 SUBSCRIBE $one/INBOX
S: a9 NO [CANNOT] ...
C: b1 APPEND $one/INBOX {5}
S: b1 NO [NOPERM] ...
C: b2 COPY 1 $one/INBOX
S: b2 NO [NOPERM] ...
C: b3 MOVE 1 $one/INBOX
S: b3 NO [NOPERM] ...
C: b4 SELECT $one/INBOX
S: ...
S: b4 OK [READ-ONLY] ...
C: b5 STORE 1 +FLAGS (\\Deleted)
S: b5 NO [NOPERM] ...
C: b6 UID STORE 1 FLAGS ()
S: b6 NO [NOPERM] ...
C: b7 EXPUNGE
S: b7 NO [NOPERM] ...
C: b8 UID EXPUNGE 1
S: b8 NO [NOPERM] ...
C: b9 MOVE 1 Mine
S: b9 NO [NOPERM] ...
C: c1 COPY 1 $one/INBOX
S: c1 NO [NOPERM] ...
C: c2 COPY 1 Nowhere
S: c2 NO [TRYCREATE] ...
C: c3 CREATE #snapshots/mine
S: c3 NO [NOPERM] ...
C: c4 FETCH 1:3 FLAGS
S: * 1 FETCH (FLAGS (\\Seen))
S: * 2 FETCH (FLAGS (\\Flagged $Label))
S: * 3 FETCH (FLAGS ())
S: c4 OK ...
C: c5 DELETE Mine
S: c5 OK ...
box: INBOX one(\\Seen) two(\\Flagged $Label) three
""")


def test_copies_out_of_it(place):
    """RFC 3501 §6.4.7, RFC 4315 §3: flags and dates are kept; the same file; the quota is charged."""
    store = place.store
    play(place, BEFORE)
    before = files(store)
    play(place, """
everything:
have: Mine mine; C is logged in
C: a1 SELECT $one/INBOX
S: ...
S: a1 OK [READ-ONLY] ...
C: a2 UID COPY 2:3,9 Mine
S: a2 OK [COPYUID $validity 2:3 2:3] ...
C: a3 COPY 1 INBOX
S: a3 OK [COPYUID $validityb 1 4] ...
C: a4 COPY 3 Mine
S: a4 OK [COPYUID $validity 3 4] ...
C: a5 UID COPY 9 Mine
S: a5 OK ...
C: a6 COPY 4 Mine
S: a6 BAD ...
C: a7 SELECT Mine
S: ...
S: a7 OK [READ-WRITE] ...
C: a8 FETCH 2:4 (FLAGS INTERNALDATE BODY.PEEK[TEXT])
S: * 2 FETCH (FLAGS (\\Flagged \\Recent $Label) INTERNALDATE " 9-Sep-2001 02:46:40 +0100" BODY[TEXT] {14}
S: This is two.
S: )
S: * 3 FETCH (FLAGS (\\Recent) INTERNALDATE " 9-Sep-2001 02:46:40 +0100" BODY[TEXT] {16}
S: This is three.
S: )
S: * 4 FETCH ...
S: This is three.
S: )
S: a8 OK ...
box: Mine mine two(\\Flagged $Label) three three
box: INBOX one(\\Seen)
""")
    assert files(store) >= before and len(files(store)) == len(before) + 1       # that of "mine" has come
    digest = Counter(bytes(row["digest"]) for row in store.open_mailbox(place.entry("Mine")).rows)
    assert sorted(digest.values()) == [1, 1, 2]
    partition = store.partition("primary")
    held = partition.removed.counts()
    for one, count in digest.items():
        assert partition.refs.find(one).references - held[one] == count
    rows = [*store.open_mailbox(place.entry("Mine")).rows, *store.open_mailbox(place.entry("INBOX")).rows]
    assert roots.quota(store, "alice").octets == sum(int(row["size"]) for row in rows)
    assert roots.quota(store, "alice").messages == 5


def test_a_copy_over_quota_is_refused(place):
    play(place, BEFORE + """
everything:
quota: messages 2
have: C is logged in
C: a1 SELECT $one/INBOX
S: ...
S: a1 OK ...
C: a2 COPY 1:3 INBOX
S: a2 NO [OVERQUOTA] ...
C: a3 COPY 1:2 INBOX
S: a3 OK [COPYUID ...
box: INBOX one(\\Seen) two(\\Flagged $Label)
""")


def test_what_the_client_missed(place):
    """RFC 7162 §3.2.5: QRESYNC in a mailbox of a snapshot tells what had been expunged by then."""
    play(place, """
with: time_travel=anyone
have: INBOX one two three; C has selected INBOX
C: a1 STORE 2 +FLAGS.SILENT (\\Deleted)
S: a1 OK ...
C: a2 EXPUNGE
S: * 2 EXPUNGE
S: a2 OK ...
snapshot: 20260101T030000Z
everything:
C: a3 ENABLE QRESYNC
S: ...
S: a3 OK ...
C: a4 STATUS INBOX (UIDVALIDITY)
S: ...
S: * STATUS INBOX (UIDVALIDITY $validity)
S: a4 OK ...
C: a5 SELECT $one/INBOX (QRESYNC ($validity 3))
S: ...
S: * VANISHED (EARLIER) 2
S: * 2 FETCH (UID 3 FLAGS () MODSEQ (4))
S: a5 OK [READ-ONLY] ...
C: a6 UID FETCH 1:* (FLAGS) (CHANGEDSINCE 1 VANISHED)
S: * VANISHED (EARLIER) 2
S: * 1 FETCH (UID 1 FLAGS () MODSEQ (2))
S: * 2 FETCH (UID 3 FLAGS () MODSEQ (4))
S: a6 OK ...
""")


def test_figures_that_cannot_be_had_are_left_out(place, faults):
    """RFC 5819 §2: the LIST goes on without them."""
    faults.fail(SnapshotReader, "state", StoreError(Problem.CORRUPT))
    play(place, BEFORE + """
have: C is logged in
C: a1 LIST "" $one/* RETURN (STATUS (MESSAGES))
S: * LIST (\\HasNoChildren) "/" $one/Archive/2025
S: * LIST (\\HasNoChildren) "/" $one/INBOX
S: a1 OK ...
C: a2 STATUS $one/INBOX (MESSAGES)
S: a2 NO ...
""")
