"""What scripts do after commands of IMAP: RFC 6785 §3, with its examples (§5)."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from mboxlist.annotations import EVENT_SCRIPT
from mboxlist.names import INBOX, MailboxName
from store.check.wholecheck import check
from store.delivery.commit import Delivered
from store.errors import StoreError
from store.events.outgoingmail import message_of
from store.events.receivers import Receiver
from store.events.scriptevents import ScriptEvents
from store.filtering import eventscripts, userscripts
from store.filtering.filters import Filters, Pace
from store.mailboxes import namespace
from store.mailboxes.authorization import annotate
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import update_flags
from store.metrics.processcounters import Counters
from store.quota import roots
from store.sieve.scriptlimits import DEFAULT
from store.sieve.scriptoutcome import Outcome
from store.sieve.scriptrun import Run, Tree
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.support.faults.planted import Faults
from tests.support.stores.heardevents import hear
from tests.support.stores.stores import deliver, make_store

BOX = MailboxName("alice", "Box")
OTHER = MailboxName("alice", "Other")
MAIL = (b"From: ann@example.net\r\nTo: alice@example.org\r\nSubject: %d\r\nMessage-ID: <%d@example.net>\r\n\r\n"
        b"text %d\r\n")
NEEDS = 'require ["imapsieve", "environment", "fileinto", "copy", "imap4flags", "enotify", "editheader", "variables"]; '


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = make_store(tmp_path / "store", ("alice", "bob"))
    Filters.of(made)
    for name in (BOX, OTHER):
        namespace.create_mailbox(made, name)
    hear(made, Receiver("relay", kind="mail"))
    yield made
    for partition in made.partitions.values():
        partition.transact(lambda txn: txn.partition.outbox.remove(
            list(txn.partition.outbox.every("relay")), txn.handle))
    assert check(made) == []
    made.close()


def script(store: Store, text: str, box: MailboxName = BOX, *, needs: str = NEEDS) -> None:
    account = store.directory.user("alice")
    assert account is not None
    userscripts.put(store, account.account, "events", (needs + text).encode())
    annotate(store, store.entry(box), EVENT_SCRIPT, b"events")


def put(store: Store, number: int) -> int:
    """A message comes to the INBOX; its UID."""
    outcome, = deliver(store, MAIL % (number, number, number), "user/alice/INBOX")
    assert isinstance(outcome, Delivered)
    return outcome.uid


def come(store: Store, *numbers: int) -> None:
    """Messages are copied into the box."""
    inbox = store.entry(MailboxName("alice", INBOX))
    uids = [put(store, number) for number in numbers]
    copy_messages(store, inbox, store.entry(BOX), uids, reader="alice", event_of="alice")


def run_all(store: Store) -> int:
    return sum(eventscripts.run_some(store, item) for item in eventscripts.waiting(store))


def test_what_cannot_be_read_for_a_moment_is_sent_on_later(store: Store, faults: Faults) -> None:
    """The rest of what the script does would be done now, and this never."""
    script(store, 'addflag "done"; redirect :copy "away@example.com";')
    come(store, 1)
    reads = faults.watch(os, "pread", lambda *_: None)
    with faults:
        faults.fail(os, "pread", OSError(errno.EIO, "no"), when=lambda *_: bool(reads))
        with pytest.raises(StoreError):
            run_all(store)
    assert box(store)[0][1:] == (0, ())
    run_all(store)
    assert box(store)[0][2] == ("done",) and len(list(store.partitions["primary"].outbox.every("relay"))) == 1


def box(store: Store, name: MailboxName = BOX) -> list[tuple[bytes, int, tuple[str, ...]]]:
    """What is there: octets, system flags, keywords."""
    view = store.open_mailbox(store.entry(name))
    found = []
    for row in view.rows:
        with store.open_message(view.entry, row) as file:
            found.append((file.read(0, file.size), int(row["flags"]), view.keyword_names(int(row["keywords"]))))
    return found


def mail(number: int, flags: int = 0, *words: str) -> tuple[bytes, int, tuple[str, ...]]:
    return MAIL % (number, number, number), flags, words


def letters(store: Store) -> list[tuple[str, str, bytes]]:
    return [message_of(parcel, store.root) for partition in store.partitions.values()
            for parcel in partition.outbox.every("relay")]


def failures(store: Store) -> dict[str, int]:
    """Those that the metric has."""
    return {kind: count for kind, count in Counters.of(store).scripts.failures.items() if count}


def notes(store: Store) -> list[bytes]:
    return [octets for octets, _, _ in box(store, MailboxName("alice", INBOX)) if b"Subject: A mail filter" in octets]


def test_example_1_of_the_rfc(store: Store) -> None:
    namespace.rename_mailbox(store, BOX, MailboxName("alice", "ActionItems"))
    namespace.create_mailbox(store, BOX)
    text = """require ["copy", "environment", "imapsieve"];
        if anyof (environment :is "imap.cause" "APPEND", environment :is "imap.cause" "COPY")  {
            if environment :is "imap.mailbox" "ActionItems" { redirect :copy "actionitems@example.com"; } }"""
    for name in (BOX, MailboxName("alice", "ActionItems")):
        script(store, text, name, needs="")
    come(store, 1)
    copy_messages(store, store.entry(BOX), store.entry(MailboxName("alice", "ActionItems")), [1], event_of="alice")
    assert run_all(store) == 2
    (sender, recipient, octets), = letters(store)
    assert (sender, recipient) == ("alice@example.org", "actionitems@example.com")         # §3.4: of the owner
    assert octets.endswith(MAIL % (1, 1, 1))
    assert box(store) == [mail(1)] == box(store, MailboxName("alice", "ActionItems"))


def test_example_2_of_the_rfc(store: Store) -> None:
    script(store, r"""if environment :matches "imap.mailbox" "*" { set "mailbox" "${1}"; }
        if allof (hasflag "\\Flagged", environment :contains "imap.changedflags" "\\Flagged") {
            notify :message "Important message in ${mailbox}" "mailto:tim@example.com"; }""")
    come(store, 1, 2)
    entry = store.entry(BOX)
    update_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.FLAGGED), "alice", event_of="alice")
    update_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.SEEN), "alice", event_of="alice")
    update_flags(store, entry, [1, 2], FlagAction.ADD, Flags(Flag.SEEN, ("x",)), "alice", event_of="alice")
    run_all(store)
    (_, recipient, octets), = letters(store)
    assert recipient == "tim@example.com" and b"Subject: Important message in Box\r\n" in octets


ACTIONS = [
    ("keep;", False, 0), ("discard;", True, 0), ("discard; keep;", False, 0), ('fileinto "Other";', True, 1),
    ('fileinto :copy "Other";', False, 1), ('fileinto "Other"; keep;', False, 1), ("", False, 0), ("stop;", False, 0),
    ('redirect "away@example.com";', True, 0), ('redirect :copy "away@example.com";', False, 0),
    ('fileinto "Nowhere";', False, 0), ('setflag "\\\\Seen"; discard;', True, 0)]


def test_what_is_not_kept_is_deleted(store: Store) -> None:
    r"""§3.1 to §3.5: it gets \Deleted, no other flag, and stays where it is. Where the mailbox is missing, it is kept.
    """
    filed: list[tuple[bytes, int, tuple[str, ...]]] = []
    sent = 0
    for number, (action, deleted, copies) in enumerate(ACTIONS):
        script(store, action)
        come(store, number)
        run_all(store)
        filed += [mail(number)] * copies
        sent += "redirect" in action
        assert box(store)[-1] == mail(number, Flag.DELETED if deleted else 0), action
        assert (box(store, OTHER), len(letters(store))) == (filed, sent), action
    assert len(box(store)) == len(ACTIONS)
    assert run_all(store) == 0 and notes(store) == []


def test_flags_are_changed_as_the_script_says(store: Store) -> None:
    """§3.8; another client's changes meanwhile stay."""
    script(store, r'removeflag ["\\Seen", "old"]; addflag ["\\Flagged", "new"];')
    come(store, 1)
    update_flags(store, store.entry(BOX), [1], FlagAction.ADD, Flags(Flag.SEEN, ("old", "other")))
    run_all(store)
    assert box(store) == [mail(1, Flag.FLAGGED, "other", "new")]


def test_changes_of_a_message_are_only_for_its_copies(store: Store) -> None:
    """§3.1, §3.7: what is kept is as it was."""
    script(store, 'addheader "X-A" "1"; fileinto :copy "Other"; deleteheader "subject"; fileinto "Other"; '
                  'redirect "away@example.com"; keep;')
    come(store, 1)
    run_all(store)
    assert box(store) == [mail(1)]
    assert [octets for octets, _, _ in box(store, OTHER)] == [
        b"X-A: 1\r\n" + MAIL % (1, 1, 1), (b"X-A: 1\r\n" + MAIL % (1, 1, 1)).replace(b"Subject: 1\r\n", b"")]
    assert b"\r\nSubject:" not in letters(store)[0][2]


FAILING = [
    ('require ["imapsieve", "vacation"]; keep;', "vacation is for mail that comes"),
    ('require ["imapsieve", "reject"]; discard;', "reject is for mail that comes"),
    ('require ["imapsieve", "ereject"]; discard;', "ereject is for mail that comes"),
    ('require ["imapsieve", "envelope"]; if envelope "from" "x" { discard; }', "envelope is for mail that comes"),
    ('require ["imapsieve", "include"]; discard; include "answers";', 'the script "answers" is for mail that comes'),
    ('discard;', 'requires "imapsieve"'),
    ('require ["imapsieve", "ihave", "imap4flags"]; addflag "x"; error "wrong";', "wrong")]


def test_a_script_that_fails_changes_nothing(store: Store) -> None:
    """§3.11, §4.6; its owner hears of it once a day."""
    account = store.directory.user("alice")
    assert account is not None
    userscripts.put(store, account.account, "answers", b'require "vacation"; keep;')
    for number, (text, why) in enumerate(FAILING):
        script(store, text, needs="")
        come(store, 2 * number, 2 * number + 1)
        run_all(store)
        *before, note = notes(store)
        assert len(before) == number and why.encode() in note
        assert b'"%d" stays in Box as it was, and nothing else' % (2 * number) in note
    assert box(store) == [mail(number) for number in range(2 * len(FAILING))] and letters(store) == []
    assert failures(store) == {"script": 2 * len(FAILING)}


def test_what_cannot_be_done_leaves_the_message(store: Store) -> None:
    script(store, 'addflag "x"; fileinto "Other";')
    come(store, 1)
    roots.set_quota(store, "alice", messages=2)
    run_all(store)
    assert box(store) == [mail(1)] and box(store, OTHER) == [] and len(notes(store)) == 1
    assert run_all(store) == 0


def test_at_delivery_there_is_no_event(store: Store) -> None:
    """§4.2: the items are empty then."""
    assert Filters.of(store)._environment().items() >= {"imap.user": "", "imap.email": ""}.items()


def test_the_script_of_the_server(store: Store, tmp_path: Path) -> None:
    """§2.3.1: where a mailbox names none. It is the site's before it is the owner's; for a mailbox the other way."""
    (tmp_path / "site" / "imap").mkdir(parents=True)
    (tmp_path / "site" / "imap" / "events.sieve").write_text('require ["imapsieve", "imap4flags"]; addflag "site";')
    filters = Filters.of(store)
    filters.follow(evolve(filters.settings, folder=tmp_path / "site", imap_script="events"))
    come(store, 1)
    run_all(store)
    script(store, 'addflag "own";')
    come(store, 2)
    run_all(store)
    annotate(store, store.entry(BOX), EVENT_SCRIPT, None)
    come(store, 3)
    run_all(store)
    assert box(store) == [mail(1, 0, "site"), mail(2, 0, "own"), mail(3, 0, "site")]
    filters.follow(evolve(filters.settings, enabled=False))
    come(store, 4)
    run_all(store)
    assert box(store)[3:] == [mail(4)]


def test_a_message_that_has_gone_is_passed_over(store: Store) -> None:
    script(store, 'addflag "x";')
    come(store, 1, 2)
    update_flags(store, store.entry(BOX), [1], FlagAction.ADD, Flags(Flag.DELETED))
    namespace.rename_mailbox(store, BOX, MailboxName("alice", "Renamed"))
    view = store.entry(MailboxName("alice", "Renamed"))
    expunge(store, view)
    assert run_all(store) == 2
    assert box(store, view.name) == [mail(2, 0, "x")]


def test_a_large_change_is_done_in_turns_and_a_script_that_takes_too_much_is_cut_off(
        store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, inbox = store.entry(BOX), store.entry(MailboxName("alice", INBOX))
    uid = put(store, 1)
    for _ in range(9):
        copy_messages(store, inbox, entry, [uid])
    for _ in range(6):
        view = store.open_mailbox(entry)
        copy_messages(store, entry, entry, view.rows["uid"])
    uids = store.open_mailbox(entry).rows["uid"]
    assert len(uids) == 9 * 64
    script(store, 'if hasflag "never" { discard; }')
    update_flags(store, entry, uids, FlagAction.ADD, Flags(Flag.SEEN), "alice", event_of="alice")
    events = store.partitions["primary"].script_events
    assert sum(len(event.uids) for event in events.of(entry.id, 99)) == len(uids)
    first = eventscripts.run_some(store, ("primary", entry.id))
    assert 0 < first < len(uids)                        # others have their turn
    while eventscripts.run_some(store, ("primary", entry.id)):
        pass
    assert events.mailboxes() == []
    monkeypatch.setattr(eventscripts, "PACE", Pace(evolve(DEFAULT, steps=3)))
    script(store, "if false {} if false {} if false {} discard;")
    update_flags(store, entry, uids, FlagAction.ADD, Flags(Flag.FLAGGED), "alice", event_of="alice")
    rows = len(events.of(entry.id, 99))
    while eventscripts.run_some(store, ("primary", entry.id)):
        rows -= 1
    assert rows <= 0 and events.mailboxes() == [] and len(notes(store)) == 1
    assert failures(store).keys() == {"limit"}
    assert not any(int(row["flags"]) & Flag.DELETED for row in store.open_mailbox(entry).rows)


def test_an_error_of_ours_keeps_no_other_message_from_its_script(store: Store, monkeypatch: pytest.MonkeyPatch,
                                                                 caplog: pytest.LogCaptureFixture) -> None:
    """The message stays as it is, is not tried again and again, and the log has the error."""
    script(store, 'addflag "\\\\Seen";')
    come(store, 1, 2, 3)
    run = eventscripts.run

    def failing(trees: list[Tree], state: Run) -> Outcome:
        if b"Subject: 2" in state.message.header:
            raise ValueError("no such thing")
        return run(trees, state)

    monkeypatch.setattr(eventscripts, "run", failing)
    assert run_all(store) == 3
    assert [flags for _, flags, _ in box(store)] == [int(Flag.SEEN), 0, int(Flag.SEEN)]
    assert "no such thing" in caplog.text and len(notes(store)) == 1
    assert b"an error of this server: ValueError" in notes(store)[0]
    assert run_all(store) == 0
    assert failures(store) == {"server": 1} and sum(Counters.of(store).scripts.steps.counts) == 2


def test_copies_that_are_messages_of_their_own_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many mailboxes a script names: what is held of a large message is no multiple of it, and what is not
    copied stays."""
    monkeypatch.setattr(eventscripts, "STORED", 2 * len(MAIL % (1, 1, 1)) + 100)
    held = list[list[bytes]]()
    do = eventscripts.Wanted._do
    monkeypatch.setattr(eventscripts.Wanted, "_do", lambda self, *more: (
        held.append([octets for _, octets in self._stored]), do(self, *more))[1])
    names = [f"Copy{number}" for number in range(6)]
    for name in names:
        namespace.create_mailbox(store, MailboxName("alice", name))
    script(store, 'addheader "X-Seen" "yes"; ' + "".join(f'fileinto "{name}"; ' for name in names))
    come(store, 1)
    assert run_all(store) == 1
    assert len(held[0]) == 2 and held[0][0] is held[0][1]
    assert [len(box(store, MailboxName("alice", name))) for name in names] == [1, 1, 0, 0, 0, 0]
    assert box(store) == [mail(1)]


def test_too_many_events_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventscripts, "MOST", 25)
    script(store, 'addflag "x";')
    come(store, 1)
    run_all(store)
    entry = store.entry(BOX)
    for number in range(40):
        update_flags(store, entry, [1], FlagAction.ADD if number % 2 else FlagAction.REMOVE, Flags(Flag.SEEN, ("y",)),
                     event_of="alice")
    run_all(store)
    assert store.partitions["primary"].script_events.mailboxes() == []


def test_a_row_that_cannot_be_read_is_forgotten(store: Store) -> None:
    partition = store.partitions["primary"]
    come(store, 1)
    run_all(store)
    script(store, 'addflag "x";')
    come(store, 2)
    events: ScriptEvents = partition.script_events
    event, = events.of(store.entry(BOX).id, 9)
    partition.transact(lambda txn: events._table.put(event.key, b"{", txn.handle))
    run_all(store)
    assert events.mailboxes() == [] and box(store) == [mail(1), mail(2)]
    assert not events.of(store.entry(BOX).id, 9) and np.array_equal(event.uids, [2])
