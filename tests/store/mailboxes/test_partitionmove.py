"""Mailboxes moved to another partition."""

import contextlib
import errno
import os
import threading
import time
import zlib
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store import filelock, offload
from store.check.wholecheck import check
from store.delivery import durable, severalmessages
from store.delivery.commit import Target
from store.delivery.filecopy import FileCopier, copy_rows
from store.errors import Problem, StoreError
from store.mailboxes import crosspartition, deletion, expunge, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.deletion import deleted_messages, undelete_mailbox, undelete_messages
from store.mailboxes.expunge import remove, take_out
from store.mailboxes.flagchanges import change_flags
from store.partition.marks import behind_marker
from store.partitions import partitionmove, volumes
from store.partitions.holding import moves_no_more
from store.quota import roots
from store.store import Store
from store.tables.expunged import ExpungedMessages
from store.userarea import writing
from store.users import lifecycle
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge
from tests.support.stores.stores import deliver, let_go, reopen_after_crash

BODIES = [b"Subject: %d\r\n\r\n" % n + b"x" * (97 * n) for n in range(6)]
TRACE = b"Return-Path: <a@example.org>\r\nReceived: by one\r\n"


@pytest.fixture
def two(store):
    """A store with two partitions."""
    volumes.add(store, "second")
    return store


def name(path: str = "INBOX", user: str = "alice") -> MailboxName:
    return MailboxName(user, path)


def contents(store: Store, path: str = "INBOX", user: str = "alice") -> dict[int, tuple]:
    mailbox = store.open_mailbox(store.entry(name(path, user)))
    found = {}
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found[int(row["uid"])] = (file.read(0, file.size), int(row["size"]), int(row["flags"]),
                                      mailbox.keyword_names(int(row["keywords"])), int(row["received"]))
    return found


def test_everything_comes_along(two):
    for body in BODIES:
        deliver(two, body, "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    inbox = two.entry(name())
    archive = namespace.create_mailbox(two, name("Archive"), special_use="\\Archive")
    change_flags(two, inbox, [2, 3], FlagAction.ADD, Flags(Flag.SEEN, ("$Junk",)))
    copy_messages(two, inbox, archive, [1, 2, 3])
    remove(two, inbox, [5])
    roots.set_quota(two, "alice", 100_000)
    before = {path: contents(two, path) for path in ("INBOX", "Archive")}
    states = {path: two.status(two.entry(name(path))) for path in before}
    partitionmove.move_owner(two, "alice", "second")
    assert check(two) == []
    assert {path: contents(two, path) for path in before} == before
    for path, old in states.items():
        entry = two.entry(name(path))
        new = two.status(entry)
        assert entry.partition == "second"
        assert (new.uidvalidity, new.uidnext, new.recent, new.messages, new.unseen, new.keywords) == (
            old.uidvalidity, old.uidnext, old.recent, old.messages, old.unseen, old.keywords)
        assert new.highestmodseq >= old.highestmodseq
    assert two.vanished(two.entry(name()), 1).tolist() == [5]
    assert two.directory.find("alice").partition == "second"
    assert roots.quota(two, "alice").octet_limit == 100_000
    assert [item.uid for item in deleted_messages(two, two.entry(name()))] == [5]
    assert undelete_messages(two, two.entry(name())) == [7]
    assert contents(two)[7][0] == TRACE + BODIES[4]
    assert namespace.create_mailbox(two, name("New")).partition == "second"
    left = two.partitions["primary"]
    assert len(list(left.all_states())) == 1 and list(left.removed.all()) == []                 # bob's
    assert [root for root, _ in left.quotas.all()] == ["bob"]


def test_no_store_idx_is_left_behind_at_the_end(two):
    deliver(two, BODIES[0], "user/alice/INBOX", "user/bob/INBOX")
    writing.write_changed(two, hurry=True)
    partitionmove.move_owner(two, "alice", "second")
    writing.write_what_is_left(two)
    assert [behind_marker(partition.folder).exists() for partition in two.partitions.values()] == [False, False]
    assert [path.parent.name for path in two.partitions["primary"].folder.glob("users/**/store.idx")] == ["bob"]


def test_what_is_brought_is_kept_as_long_as_it_could_be_wanted(two):
    deliver(two, BODIES[3], "user/alice/INBOX", "user/bob/INBOX")
    partitionmove.move_owner(two, "bob", "second")
    remove(two, two.entry(name(user="bob")), [1])
    let_go(two)
    second, now = two.partitions["second"], int(time.time())
    row = two.open_mailbox(two.entry(name())).rows
    digest = bytes(row["digest"][0])

    def age(txn):
        txn.refs.park(digest, evolve(txn.refs.find(digest, txn.handle), released=now - 6 * 86400), txn.handle)

    second.transact(age)
    copy_rows(FileCopier(two.partitions["primary"], second), [row], now - 86400)
    assert second.refs.find(digest).released == now - 86400
    copy_rows(FileCopier(two.partitions["primary"], second), [row])
    assert second.refs.find(digest).released >= now
    assert purge(second, now + two.settings.purge_delay - 1) == 0


def test_there_is_one_copy_there_and_it_is_not_copied_twice(two):
    deliver(two, BODIES[3], "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    deliver(two, BODIES[4], "user/alice/INBOX", trace=TRACE)
    moved = partitionmove.move_owner(two, "alice", "second")
    assert (moved.mailboxes, moved.messages, moved.files) == (1, 2, 2)
    assert partitionmove.move_owner(two, "bob", "second").files == 0
    assert sorted(record.references for _, record in two.partitions["second"].refs.all()) == [1, 2]
    assert partitionmove.move_owner(two, "bob", "second") == partitionmove.Moved()
    assert partitionmove.move_owner(two, "bob", "primary").files == 0       # it waits for the purge there
    assert contents(two, user="bob")[1][0] == TRACE + BODIES[3]


@pytest.mark.parametrize("there", [b"", TRACE, TRACE.replace(b"one", b"two"), b"Return-Path: <b@example.org>\r\n"])
@pytest.mark.parametrize("here", [b"", TRACE])
def test_octets_stay_whatever_trace_header_the_content_has_there(two, here, there):
    partitionmove.move_owner(two, "bob", "second")
    deliver(two, BODIES[3], "user/bob/INBOX", trace=there)
    deliver(two, BODIES[3], "user/alice/INBOX", trace=here)
    deliver(two, BODIES[3], "user/alice/INBOX")                     # appended: it shows no trace header
    before = {user: contents(two, user=user) for user in ("alice", "bob")}
    mailbox = two.open_mailbox(two.entry(name()))
    structures = [(one.envelope, one.bodystructure) for one in two.cached(mailbox.entry, mailbox.rows)]
    partitionmove.move_owner(two, "alice", "second")
    assert {user: contents(two, user=user) for user in ("alice", "bob")} == before
    mailbox = two.open_mailbox(two.entry(name()))
    assert [(one.envelope, one.bodystructure) for one in two.cached(mailbox.entry, mailbox.rows)] == structures
    assert len(list(two.partitions["second"].refs.all())) == (1 if here in (b"", there) else 2)
    partitionmove.move_owner(two, "alice", "primary")
    assert {user: contents(two, user=user) for user in ("alice", "bob")} == before


def test_deleted_mailboxes_come_along(two):
    namespace.create_mailbox(two, name("Old"))
    deliver(two, BODIES[2], "user/alice/Old")
    deletion.delete_mailbox(two, name("Old"))
    partitionmove.move_owner(two, "alice", "second")
    assert check(two) == []
    undelete_mailbox(two, name("Old"))
    assert contents(two, "Old")[1][0] == BODIES[2]
    assert two.entry(name("Old")).partition == "second"


def test_a_deleted_mailbox_is_purged_where_it_is(two, faults):
    """Its user is moved when the purge has looked where that is: the next purge finds it."""
    namespace.create_mailbox(two, name("Old"))
    deliver(two, BODIES[1], "user/alice/Old")
    mailbox = two.entry(name("Old")).id
    deletion.delete_mailbox(two, name("Old"))
    faults.first(deletion, "_doom", lambda *_: partitionmove.move_owner(two, "alice", "second"))
    assert [deletion.purge_mailbox(two, mailbox) for _ in range(2)] == [0, 1]
    assert [partition.any_state(mailbox) for partition in two.partitions.values()] == [None, None]
    assert check(two) == []


def test_a_mailbox_is_restored_where_it_is(two, faults):
    """Its user is moved when it has been looked up, and is not in the list yet: it is restored from where it is now."""
    namespace.create_mailbox(two, name("Old"))
    deliver(two, BODIES[1], "user/alice/Old")
    deletion.delete_mailbox(two, name("Old"))
    faults.first(type(two.partitions["primary"]), "flush", lambda *_: partitionmove.move_owner(two, "alice", "second"))
    with pytest.raises(StoreError) as refused:
        undelete_mailbox(two, name("Old"))
    assert refused.value.problem is Problem.BUSY
    assert check(two) == []
    assert undelete_mailbox(two, name("Old")).partition == "second"
    assert [octets for octets, *_ in contents(two, "Old").values()] == [BODIES[1]]
    assert check(two) == []


def test_public_mailboxes(two):
    namespace.create_mailbox(two, MailboxName("", "news/local"))
    deliver(two, BODIES[2], "public/news/local")
    assert partitionmove.owners_on(two, "primary") == ["", "alice", "bob"]
    partitionmove.move_owner(two, "", "second")
    entry = two.entry(MailboxName("", "news/local"))
    assert (entry.partition, two.status(entry).messages) == ("second", 1)


def test_readers_own_flags_come_along(two):
    deliver(two, BODIES[2], "user/alice/INBOX")
    shared = evolve(two.entry(name()), acl={"bob": "lrs"})
    transact(two.mailboxes.env, lambda txn: two.mailboxes.write(shared, txn))
    change_flags(two, two.entry(name()), [1], FlagAction.ADD, Flags(Flag.SEEN), reader="bob")
    partitionmove.move_owner(two, "alice", "second")
    inbox = two.entry(name())
    assert [int(two.open_mailbox(inbox, reader).rows["flags"][0]) for reader in ("bob", "alice")] == [Flag.SEEN, 0]


def test_sessions_find_the_mailbox_with_what_they_knew_of_it(two):
    for body in BODIES[:3]:
        deliver(two, body, "user/alice/INBOX", trace=TRACE)
    before = two.open_mailbox(two.entry(name()))
    partitionmove.move_owner(two, "alice", "second")
    stale = before.entry
    with two.open_message(stale, before.rows[1]) as file:           # in the middle of a download
        assert file.read(0, file.size) == TRACE + BODIES[1]
    assert [one.digest for one in two.cached(stale, before.rows)] == before.rows["digest"].tolist()
    assert two.status(stale).messages == 3
    change_flags(two, stale, [2], FlagAction.ADD, Flags(Flag.SEEN))
    remove(two, stale, [1])
    after = two.refresh(before)
    assert after.entry.partition == "second"
    assert after.rows["uid"].tolist() == [2, 3] and int(after.rows["flags"][0]) == Flag.SEEN
    assert two.refresh(after) is after
    with two.open_message(after.entry, after.rows[0]) as file:
        assert file.read(0, file.size) == TRACE + BODIES[1]
    deletion.delete_mailbox(two, namespace.create_mailbox(two, name("x")).name)
    partitionmove.move_owner(two, "alice", "primary")
    assert two.refresh(before).rows["uid"].tolist() == [2, 3]


def test_a_message_on_its_way_is_delivered_where_the_mailbox_is_now(two):
    stale = {user: two.entry(name(user=user)) for user in ("alice", "bob")}
    staged = two.stage(stale["alice"], TRACE)
    staged.write(BODIES[3])
    partitionmove.move_owner(two, "alice", "second")
    outcomes = offload.now(durable.deliver(two, staged, [Target(entry) for entry in stale.values()]))
    assert [outcome.uid for outcome in outcomes] == [1, 1]
    assert contents(two)[1][0] == contents(two, user="bob")[1][0] == TRACE + BODIES[3]
    assert offload.now(crosspartition.copy_durably(two, stale["alice"], stale["bob"], np.array([1], np.uint32))) == [2]


def hold(store: Store, entry) -> None:
    def work(txn):
        txn.set_state(entry.id, None, evolve(txn.any_state(entry.id), moving=True))
    store.partition_of(entry).transact(work)


def test_who_writes_to_a_mailbox_that_is_held_waits(two, faults):
    inbox = two.entry(name())
    deliver(two, BODIES[1], "user/alice/INBOX")
    hold(two, inbox)
    with pytest.raises(StoreError) as refused:
        change_flags(two, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN))
    assert refused.value.problem is Problem.BUSY
    assert two.status(inbox).messages == 1
    waited = []

    def let_go(seconds: float) -> None:
        waited.append(seconds)
        two.partition_of(inbox).transact(lambda txn: moves_no_more(txn, inbox.id))

    faults.around(time, "sleep", lambda _, seconds: let_go(seconds))
    alice, bob = deliver(two, BODIES[2], "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    assert (alice.uid, bob.uid, len(waited)) == (2, 1, 1)
    hold(two, inbox)
    assert crosspartition.copy(two, inbox, two.entry(name(user="bob")), [1, 2], remove=True) == [2, 3]
    two.patience = 0
    faults.around(time, "sleep", lambda _, seconds: waited.append(seconds))
    hold(two, inbox)
    alice, bob = deliver(two, BODIES[3], "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    assert alice.problem is Problem.BUSY and bob.uid == 4
    let_go(0)


def arrived(store: Store, entry, numbers) -> list[tuple]:
    """Messages of a MULTIAPPEND that have come."""
    found = []
    for number in numbers:
        staged = store.stage(entry)
        staged.write(BODIES[number])
        found.append((staged, Target(entry, appended=True), None))
    return found


def test_many_messages_wait_for_a_mailbox_that_is_held(two, faults):
    """RFC 3502 §6.3.11: all or none, as ever; a mailbox that moves is no reason to refuse them."""
    inbox = two.entry(name())
    messages = arrived(two, inbox, [1, 2, 1])
    hold(two, inbox)
    waited = []

    def let_go(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            two.partition_of(inbox).transact(lambda txn: moves_no_more(txn, inbox.id))

    faults.around(time, "sleep", lambda _, seconds: let_go(seconds))
    assert offload.now(severalmessages.deliver_all(two, messages)) == [1, 2, 3]
    assert len(waited) == 2
    assert [found[0] for found in contents(two).values()] == [BODIES[1], BODIES[2], BODIES[1]]
    two.patience = 0
    hold(two, inbox)
    with pytest.raises(StoreError) as refused:
        offload.now(severalmessages.deliver_all(two, arrived(two, inbox, [3, 4])))
    assert refused.value.problem is Problem.BUSY
    two.partition_of(inbox).transact(lambda txn: moves_no_more(txn, inbox.id))
    assert len(contents(two)) == 3
    two.partitions["primary"].files.drop_staged_names()
    assert not list(two.partitions["primary"].files.staging.iterdir())


@pytest.mark.parametrize("known", [False, True])
def test_many_messages_on_their_way_go_where_the_mailbox_is_now(two, known):
    stale = two.entry(name())
    if known:               # on the partition where they will come
        partitionmove.move_owner(two, "bob", "second")
        deliver(two, BODIES[2], "user/bob/INBOX")
    messages = arrived(two, stale, [3, 2, 3])
    partitionmove.move_owner(two, "alice", "second")
    assert offload.now(severalmessages.deliver_all(two, messages)) == [1, 2, 3]
    assert [found[0] for found in contents(two).values()] == [BODIES[3], BODIES[2], BODIES[3]]
    for partition in two.partitions.values():
        partition.files.drop_staged_names()
        assert not list(partition.files.staging.iterdir())
    assert check(two) == []
    gone = arrived(two, stale, [1, 2])
    lifecycle.remove_mail(two, "alice")
    with pytest.raises(StoreError) as refused:
        offload.now(severalmessages.deliver_all(two, gone))
    assert refused.value.problem is Problem.NO_MAILBOX


class Cut(Exception):
    """The mover ends here."""


STEPS = ["_bring_mailbox", "_bring_expunged", "_hold", "_finish", "_arrive", "_switch", "_let_go", "_leave"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_move_that_is_cut_off_loses_nothing_and_can_be_done_again(two, faults, step, after):
    for body in BODIES:
        deliver(two, body, "user/alice/INBOX", trace=TRACE)
    namespace.create_mailbox(two, name("Archive"))
    remove(two, two.entry(name()), [2])
    before = contents(two)

    def cut(whole, *arguments):
        if after:
            whole(*arguments)
        raise Cut

    faults.around(partitionmove._Move, step, cut)
    with pytest.raises(Cut):
        partitionmove.move_owner(two, "alice", "second")
    faults.mend()
    assert check(two) == []
    assert contents(two) == before
    partitionmove.move_owner(two, "alice", "second")
    assert contents(two) == before
    assert deliver(two, b"x\r\n", "user/alice/INBOX")[0].uid == 7
    assert undelete_messages(two, two.entry(name())) == [8]


@pytest.mark.parametrize("step", ["_hold", "_finish", "_let_go", "_leave", "end"])
def test_a_crash_leaves_the_mailboxes_where_the_list_says(two, faults, step):
    for body in BODIES[:3]:
        deliver(two, body, "user/alice/INBOX", trace=TRACE)
    remove(two, two.entry(name()), [2])
    two.partitions["primary"].flush()
    before = contents(two)

    def crash(*_):
        two.__dict__.update(reopen_after_crash(two).__dict__)
        raise Cut

    if step != "end":
        faults.before(partitionmove._Move, step, crash)
    faults.around(partitionmove._Move, "_give_up", lambda *_: None)
    with contextlib.suppress(Cut):
        partitionmove.move_owner(two, "alice", "second")
    faults.mend()
    if step == "end":
        two.__dict__.update(reopen_after_crash(two).__dict__)
    assert two.entry(name()).partition == ("second" if step in ("_let_go", "_leave", "end") else "primary")
    assert check(two) == []
    assert contents(two) == before
    holding = [partition.name for partition in two.partitions.values() for _ in partition.removed.all()]
    assert holding == [two.entry(name()).partition]         # what was expunged is nowhere else any more
    deliver(two, BODIES[4], "user/alice/INBOX")
    partitionmove.move_owner(two, "alice", "second")
    assert len(contents(two)) == 3


def test_a_message_that_cannot_be_read_keeps_its_user_where_it_is(two):
    deliver(two, BODIES[3], "user/alice/INBOX")
    deliver(two, BODIES[4], "user/alice/INBOX")
    row = two.open_mailbox(two.entry(name())).rows[0]
    path = two.partitions["primary"].files.path(bytes(row["digest"]))
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole.replace(b"x", b"y"))
    with pytest.raises(StoreError) as refused:
        partitionmove.move_owner(two, "alice", "second")
    assert refused.value.problem is Problem.CORRUPT
    assert two.entry(name()).partition == "primary"
    deliver(two, BODIES[5], "user/alice/INBOX")
    Path(path).write_bytes(whole)
    partitionmove.move_owner(two, "alice", "second")
    assert len(contents(two)) == 3


def test_what_was_expunged_is_not_left_behind_because_the_disk_does_not_say_whether_it_is_there(two, faults):
    """Nobody could undelete it any more; nor is anything undeleted in part."""
    for body in BODIES[:2]:
        deliver(two, body, "user/alice/INBOX")
    inbox = two.entry(name())
    remove(two, inbox, [1])
    two.partitions["primary"].files.drop_staged_names()
    place = two.partitions["primary"].files.path(blake2b(BODIES[0], digest_size=32).digest())
    with faults:
        faults.fail(os, "stat", PermissionError(errno.EACCES, "no"), lambda path, **_: path == place)
        for refused in (lambda: partitionmove.move_owner(two, "alice", "second"),
                        lambda: undelete_messages(two, two.entry(name()))):
            with pytest.raises(StoreError) as refusal:
                refused()
            assert refusal.value.problem is Problem.UNAVAILABLE
    assert two.partition_of(two.entry(name())).name == "primary"
    partitionmove.move_owner(two, "alice", "second")
    assert undelete_messages(two, two.entry(name())) and check(two) == []


def test_limits_that_are_set_at_the_end_hold_where_the_mailboxes_are_now(two, faults):
    """When they have been copied and the list does not name the other partition yet."""
    deliver(two, BODIES[1], "user/alice/INBOX")
    roots.set_quota(two, "alice", 100_000)
    thread, waits = threading.Thread(target=lambda: roots.set_quota(two, "alice", 200_000)), threading.Event()

    def begin(*_):
        with (two.root / "run" / "limits.lock").open("rb+") as file:
            assert not filelock.lock_octet(file.fileno(), zlib.crc32(b"alice"), wait=False)
        thread.start()
        assert waits.wait(180)

    faults.before(filelock, "lock_octet", lambda *_, **__: threading.current_thread() is thread and waits.set())
    faults.before(partitionmove._Move, "_switch", begin)
    partitionmove.move_owner(two, "alice", "second")
    thread.join(180)
    assert two.partitions["second"].quotas.find("alice").octet_limit == 200_000
    assert roots.quota(two, "alice").octet_limit == 200_000
    assert not two.partitions["primary"].quotas.has("alice")


def test_two_do_not_move_at_the_same_time(two):
    with partitionmove.alone(two), pytest.raises(StoreError) as refused:
        partitionmove.move_owner(two, "alice", "second")
    assert refused.value.problem is Problem.BUSY


def test_nobodys_expunge_waits_for_what_is_copied(two, faults):
    """What can be undeleted of one user is brought while another one expunges."""
    deliver(two, BODIES[1], "user/alice/INBOX", "user/bob/INBOX")
    remove(two, two.entry(name()), [1])
    bob, partition = two.entry(name(user="bob")), two.partitions["primary"]

    def meanwhile(*_):
        partition.transact(lambda txn: take_out(txn, bob.id, txn.state(bob.id), txn.load(bob.id)), seconds=0)

    faults.first(partitionmove._Move, "_put_expunged", meanwhile)
    partitionmove.move_owner(two, "alice", "second")
    assert [len(deleted_messages(two, two.entry(name(user=user)))) for user in ("alice", "bob")] == [1, 1]
    assert check(two) == []


def test_what_was_expunged_is_let_go_some_at_a_time(two, faults, monkeypatch):
    """Nobody's mail waits until all of a user's expunges have given back their references."""
    monkeypatch.setattr(expunge, "FORGET", 2)
    for body in BODIES:
        deliver(two, body, "user/alice/INBOX")
    for uid in range(1, len(BODIES)):
        remove(two, two.entry(name()), [uid])
    together = faults.watch(ExpungedMessages, "forget", lambda table, keys, txn: len(keys))
    partitionmove.move_owner(two, "alice", "second")
    assert together == [2, 2, 1]
    assert list(two.partitions["primary"].removed.all()) == []
    assert len(deleted_messages(two, two.entry(name()))) == 5
    assert check(two) == []
