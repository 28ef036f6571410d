"""When a user last logged in and last read is on record, by day (issue 25, item 4: "last login and last read (who never
reads is not active)"): for each protocol, for the user's own logins alone, for administrators alone, at one transaction
a day; and it goes along with the user."""

from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from attrs import evolve

from mboxlist.annotations import LAST_USE
from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.housekeeping.tasks import Round
from store.mailboxes.authorization import annotate, annotations
from store.mailboxes.firstuse import inbox
from store.net.openlogins import OpenLogins
from store.reconstruct.wholestore import rebuild
from store.userarea.writing import write_changed
from store.users import renaming, restorable
from store.users.lastuse import LastUse, note, of_user
from tests.conftest import MEMORY
from tests.store.net.test_openlogins import HERE, Place
from tests.support.stores.stores import HASH, SMALL, deliver, make_store, reopen, reopen_after_crash
from tests.support.stores.whole import lose_databases

DAY, NEXT = date(2026, 11, 26), date(2026, 11, 27)
NOON = 1_795_694_400            # of that day: `date -d 2026-11-26T12:00Z +%s`
TODAY = LastUse(DAY, None)


@pytest.fixture(scope="module")
def whole_store():
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        store = make_store(Path(folder) / "store", ["root", "proxy"], evolve(SMALL, host=HERE))
        yield store
        store.close()


@pytest.fixture
def place(whole_store, unix_time):
    unix_time.now = NOON
    inbox(whole_store, whole_store.directory.add("alice", HASH))
    deliver(whole_store, b"Subject: x\r\n\r\nx\r\n", "user/alice/INBOX")
    made = Place(whole_store)
    yield made
    for wire in made.wires:
        wire.hang_up()
    restorable.forget_user(whole_store, "alice")


def housekeeping(store):
    """The task of a process, a round of it, in as many slices as it takes."""
    whole = Round(OpenLogins.of(store).use_task(), store)
    while whole.step() is not None:
        pass
    assert whole.status().failures == 0


def known(store, user="alice"):
    housekeeping(store)
    return of_user(store.mailboxes, user)


@pytest.mark.parametrize("protocol", ["imap", "pop3"])
def test_a_login(place, protocol):
    """Also one that is over before anybody looks."""
    assert known(place.store) == LastUse()
    place.connect(protocol).hang_up()
    assert known(place.store) == TODAY


@pytest.mark.parametrize(("protocol", "lines", "is_read"), [
    ("imap", [b"a FETCH 1 BODY[]"], True), ("imap", [b"a UID STORE 1 +FLAGS (\\Seen)"], True),
    ("imap", [b"a STORE 1 FLAGS.SILENT (\\Answered \\Seen)"], True),
    ("imap", [b"a FETCH 1 BODY.PEEK[]"], False),                    # a program that looks for new mail does that
    ("imap", [b"a STORE 1 +FLAGS (\\Flagged)"], False), ("imap", [b"a STORE 1 -FLAGS (\\Seen)"], False),
    ("pop3", [b"RETR 1"], True), ("pop3", [b"LIST", b"TOP 1 0"], False)])
@pytest.mark.parametrize("is_over", [False, True])
def test_what_is_reading(place, protocol, lines, is_read, is_over):
    wire = place.connect(protocol)
    for line in lines:
        wire.send(line + b"\r\n")
    if is_over:
        wire.hang_up()
    assert known(place.store) == LastUse(DAY, DAY if is_read else None)


def test_a_session_that_lasts(place, unix_time):
    """Who is connected the next day was logged in that day; what was read is of the day on which it was read."""
    wire = place.connect("imap")
    wire.send(b"a FETCH 1 BODY[]\r\n")
    assert known(place.store) == LastUse(DAY, DAY)
    unix_time.now += 86_400
    assert known(place.store) == LastUse(NEXT, DAY)


def test_others_are_not_the_user(place):
    """An administrator who acts as alice, and a relay that says it is alice, are not alice; a proxy to which she has
    proved who she is, is."""
    place.connect("imap", user="root", acts_as="alice").send(b"a FETCH 1 BODY[]\r\n")
    place.connect("pop3", user="root", acts_as="alice").send(b"RETR 1\r\n")
    place.connect("lmtp")
    assert known(place.store) == LastUse() == of_user(place.store.mailboxes, "root")
    place.connect("imap", user="proxy", acts_as="alice")
    assert known(place.store) == TODAY
    assert known(place.store, "proxy") == LastUse()


def test_a_transaction_a_day(place):
    """However often she logs in: nothing is written for it, not even the log grows."""
    place.connect("imap").hang_up()
    assert known(place.store) == TODAY
    write_changed(place.store)
    before = place.store.mailboxes.version(), OpenLogins.of(place.store)._noted
    for _ in range(3):
        place.connect("imap").hang_up()
        assert known(place.store) == TODAY
    assert (place.store.mailboxes.version(), OpenLogins.of(place.store)._noted) == before
    place.store.owned.put(OpenLogins, OpenLogins(place.store))          # another process, which knows of nothing
    place.connect("pop3").hang_up()
    assert known(place.store) == TODAY
    assert place.store.partitions["primary"].unwritten.changed == set()


def test_the_end_of_a_process(place):
    place.connect("imap")
    OpenLogins.of(place.store).note_uses()
    assert of_user(place.store.mailboxes, "alice") == TODAY


def test_a_clock_that_goes_back_takes_nothing_back(place):
    assert note(place.store, {"alice": True}, NOON + 86_400) == 1
    assert note(place.store, {"alice": True, "nobody": True}, NOON) == 0
    assert of_user(place.store.mailboxes, "alice") == LastUse(NEXT, NEXT)


def test_administrators_alone_read_it(place):
    """No client can ask for it, or set it: its names are none of RFC 5464 §3.2."""
    note(place.store, {"alice": True}, NOON)
    entry = place.store.entry(MailboxName("alice", "INBOX"))
    assert annotations(place.store, entry, "alice") == {}
    for name in LAST_USE:
        assert not name.startswith(("/shared/", "/private/"))
        for user in ("", "alice"):
            with pytest.raises(StoreError) as refused:
                annotate(place.store, entry, name, b"2099-01-01", user)
            assert refused.value.problem is Problem.LIMIT


def test_a_user_on_the_way_to_another_back_end(place):
    """Then nothing changes; it is no error."""
    def guard(owner, txn):
        raise StoreError(Problem.BUSY)

    place.store.mailboxes.guard, kept = guard, place.store.mailboxes.guard
    try:
        assert note(place.store, {"alice": True}, NOON) == 0
    finally:
        place.store.mailboxes.guard = kept
    assert of_user(place.store.mailboxes, "alice") == LastUse()


def test_it_goes_along(tmp_path):
    """Through a rename, a removal that is taken back, a crash, and the loss of all databases."""
    store = make_store(tmp_path / "store", ["alice", "bob"])
    note(store, {"alice": True, "bob": False}, NOON)
    renaming.rename_user(store, "alice", "alison")
    restorable.forget_user(store, "bob")
    restorable.undelete_user(store, "bob")
    store.mailboxes.env.flush()
    store = reopen_after_crash(store)
    expected = [LastUse(DAY, DAY), TODAY]
    assert [of_user(store.mailboxes, user) for user in ("alison", "bob")] == expected
    write_changed(store)
    store.close()
    lose_databases(store.root)
    assert rebuild(store.root, SMALL, users=()).findings == []
    reopen(store)
    assert [of_user(store.mailboxes, user) for user in ("alison", "bob")] == expected
    store.close()


def test_a_new_user_of_a_name_has_not_been_here(tmp_path):
    store = make_store(tmp_path / "store", ["alice"])
    note(store, {"alice": True}, NOON)
    restorable.forget_user(store, "alice")
    inbox(store, store.directory.add("alice", HASH))
    assert of_user(store.mailboxes, "alice") == LastUse()
    store.close()
