"""A standby that protects some partitions: it has the list and these, and after a promotion nothing of the others is
made anew, reset or removed."""

import errno
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.engine.secondcopy import SecondCopy, State
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.delivery.commit import Delivered
from store.errors import Problem, StoreError
from store.housekeeping import interrupted
from store.mailboxes import deletion, firstuse, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.partition import marks
from store.partitions import volumes
from store.problems import is_standby_away
from store.quota import roots
from store.standby import promotion, seeding, standbystate
from store.standby.following import Reseed
from store.standby.source import instep
from store.standby.source.copysource import Source
from store.standby.source.instep import InStep
from store.standby.succession import Lineage
from store.store import Store
from store.users import lifecycle, renaming
from store.values import Flag, FlagAction, Flags
from tests.support.stores.standbypair import ADDRESS, HOST, INBOX, Standby, promoted
from tests.support.stores.stores import HASH, SMALL, deliver, make_store, reopen

BOB, OLD = MailboxName("bob", "INBOX"), MailboxName("alice", "Old")
GONE = MailboxName("alice", "Gone")

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """alice has her INBOX on the partition that is protected, and two mailboxes on the other one; bob has all there."""
    made = make_store(tmp_path / "one", ("alice",))
    volumes.add(made, "archive")
    firstuse.inbox(made, made.directory.add("bob", HASH, partition="archive"))
    for name in (OLD, GONE):
        namespace.insert_mailbox(made, name, "archive", None)
    for name in (INBOX, BOB, OLD, GONE):
        deliver(made, b"Subject: first\r\n\r\n", str(name))
    deletion.delete_mailbox(made, GONE)
    yield made
    assert check(made) == []
    made.close()


@pytest.fixture
def standby(store: Store, tmp_path: Path) -> Standby:
    made = Standby(store, tmp_path / "two", only=("primary",))
    made.create()
    return made


def refused(work: object, *arguments: object, **named: object) -> Problem:
    with pytest.raises(StoreError) as caught:
        work(*arguments, **named)               # type: ignore[operator]
    return caught.value.problem


def test_it_has_the_list_and_what_was_named(store: Store, standby: Standby) -> None:
    """Beside what is delivered to the other partition, and to both."""
    assert sorted(path.name for path in (standby.root / "partitions").iterdir()) == ["primary"]
    state = standbystate.read(standby.root)
    assert state is not None and state.others == {"archive": "mail.example.org"}
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(BOB))
        deliver(store, b"Subject: both %d\r\n\r\n" % number, str(INBOX), str(BOB))
    namespace.insert_mailbox(store, MailboxName("bob", "Late"), "archive", None)
    standby.follow()
    with closing(promoted(standby)) as other:
        assert marks.absent(other.root) == {"archive": "mail.example.org"}
        assert list(other.partitions) == ["primary"]
        assert [entry.name for entry in other.mailboxes.all()] == [entry.name for entry in store.mailboxes.all()]
        assert other.open_mailbox(other.entry(INBOX)).rows["uid"].tolist() == [1, 2, 3, 4]
        found = check(other)
        assert len(found) == 1, found
        finding, = found
        assert "only on mail.example.org" in finding.what and finding.where == "partition archive"


def test_nothing_of_the_others_goes(store: Store, standby: Standby) -> None:
    with closing(promoted(standby)) as other:
        before = list(other.mailboxes.all()), list(other.mailboxes.deleted.all()), list(other.directory.all())
        bob = other.directory.find("bob")
        assert firstuse.inbox(other, bob) == other.entry(BOB)
        later = time.time() + 1000 * 86400
        for name in (BOB, OLD):
            assert refused(other.open_mailbox, other.entry(name)) is Problem.UNAVAILABLE
            assert refused(deliver, other, b"Subject: lost?\r\n\r\n", str(name)) is Problem.UNAVAILABLE
            assert refused(deletion.delete_mailbox, other, name, even_inbox=True) is Problem.UNAVAILABLE
        assert refused(namespace.create_mailbox, other, MailboxName("bob", "New")) is Problem.UNAVAILABLE
        gone, = other.mailboxes.deleted.all()
        assert refused(deletion.purge_mailbox, other, gone[1].id) is Problem.UNAVAILABLE
        assert deletion.due_mailboxes(other, later) == []
        assert refused(lifecycle.remove_mail, other, "alice") is Problem.UNAVAILABLE
        assert refused(renaming.rename_user, other, "bob", "robert") is Problem.UNAVAILABLE
        for root in ("bob", "alice", "alice/Old"):
            assert refused(roots.set_quota, other, root, octets=1000) is Problem.UNAVAILABLE, root
        assert refused(volumes.add, other, "archive") is Problem.UNAVAILABLE
        assert refused(volumes.remove, other, "archive") is Problem.UNAVAILABLE
        after = list(other.mailboxes.all()), list(other.mailboxes.deleted.all()), list(other.directory.all())
        assert after == before
        outcome, = deliver(other, b"Subject: after\r\n\r\n", str(INBOX))
        assert isinstance(outcome, Delivered)


def test_what_has_begun_is_taken_off_the_record(store: Store, standby: Standby) -> None:
    """An absent partition may never come: nothing waits for it."""
    with closing(promoted(standby)) as other:
        assert not list(other.mailboxes.pending.all())          # the start looked at all of it
        deletion.delete_mailbox(other, namespace.create_mailbox(other, MailboxName("alice", "New")).name)
        begun = list(other.mailboxes.pending.all())
        assert begun
        for item in begun:
            interrupted.finish(other, item)
        assert not list(other.mailboxes.pending.all())


def test_who_has_a_partition_that_the_other_lacks_does_not_follow_it(store: Store, standby: Standby, tmp_path: Path
                                                                     ) -> None:
    """A standby of all partitions, which another one was promoted beside, has what may be the only copy."""
    whole = Standby(store, tmp_path / "three", host="third.example.org")
    whole.create()
    with closing(promoted(standby)) as other:
        after = Standby(other, whole.root, host="third.example.org")
        with after.connected() as source:
            assert refused(seeding.go_over, whole.root, source, ADDRESS) is Problem.STORE_IN_USE
        state = standbystate.read(whole.root)
        assert state is not None
        with after.connected() as source:
            assert refused(seeding.seed, whole.root, state, source, print) is Problem.STORE_IN_USE
    with closing(promoted(whole)) as kept:
        assert len(kept.open_mailbox(kept.entry(BOB)).rows) == 1


def test_it_protects_more_when_it_is_made_again(store: Store, standby: Standby) -> None:
    standby.only = ()
    standby.create()
    state = standbystate.read(standby.root)
    assert state is not None and not state.others
    with closing(promoted(standby)) as other:
        assert check(other) == [] and len(other.open_mailbox(other.entry(OLD)).rows) == 1


def test_what_is_not_there_is_not_protected(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no partition arhcive"):
        Standby(store, tmp_path / "three", host="third.example.org", only=("primary", "arhcive")).create()


def test_names_that_lead_elsewhere(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A promotion makes a folder for each partition that only the other machine has."""
    choose = Source._choose
    for named in ({"unprotected": ["../elsewhere"]}, {"partitions": ["primary", "../elsewhere"]},
                  {"absent": {"../elsewhere": "mail.example.org"}}, {"absent": {"elsewhere": "mail\nexample.org"}}):
        monkeypatch.setattr(Source, "_choose", lambda self, names, named=named: {**choose(self, names), **named})
        with pytest.raises(StoreError) as caught:
            Standby(store, tmp_path / "three", host="third.example.org", only=("primary",)).create()
        assert caught.value.problem is Problem.UNAVAILABLE and not (tmp_path / "three").exists(), named


def test_what_an_answer_waits_for_is_on_disk(store: Store, standby: Standby) -> None:
    """Whoever waits for the standby syncs no log: that of a partition which it does not have is synced as well."""
    archive, second = store.partitions["archive"], store.write_freeze.second
    standby.group = InStep.of(second, [HOST], waited=[HOST])
    try:
        with standby.in_step():
            for number in range(5):
                with second.exempt():           # it does not wait, and syncs by itself
                    deliver(store, b"Subject: %d\r\n\r\n" % number, str(BOB))
                store.claim_recent(store.entry(BOB))
                second.wait(second.ask())
                assert archive.env.log.known == archive.env.log_end()
    finally:
        standby.group.close()
        second.forget()


def test_what_need_not_wait_for_the_standby(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is named asks no standby; the list and the others do."""
    store.close()
    reopen(store, evolve(SMALL, asynchronous_partitions=("archive",)))
    asked, ask = list[int](), SecondCopy.ask

    def noted(second: SecondCopy) -> int:
        asked.append(1)
        return ask(second)

    standby.group = InStep.of(store.write_freeze.second, [HOST], waited=[HOST])
    try:
        with standby.in_step():
            monkeypatch.setattr(SecondCopy, "ask", noted)
            deliver(store, b"Subject: archive\r\n\r\n", str(BOB))
            assert not asked
            deliver(store, b"Subject: primary\r\n\r\n", str(INBOX))
            count = len(asked)
            namespace.insert_mailbox(store, MailboxName("bob", "Later"), "archive", None)
            assert 0 < count < len(asked)
            monkeypatch.undo()
    finally:
        standby.group.close()
        store.write_freeze.second.forget()


def test_a_partition_that_comes_later_is_not_protected(store: Store, standby: Standby) -> None:
    """Nothing is copied again for it, and a promotion knows it by its mailboxes."""
    volumes.add(store, "later")
    try:
        namespace.insert_mailbox(store, MailboxName("alice", "Later"), "later", None)
        standby.follow()
    except Reseed:
        pytest.fail("the databases would be copied again")
    promotion.promote(standby.root)
    assert marks.absent(standby.root) == dict.fromkeys(("archive", "later"), "mail.example.org")


@contextmanager
def away(store: Store, standby: Standby) -> Iterator[InStep]:
    """The server of the first machine has started, and this standby has not come yet."""
    standby.group = InStep.of(store.write_freeze.second, [HOST], waited=[HOST])
    try:
        yield standby.group
    finally:
        standby.group.close()
        store.write_freeze.second.forget()


def is_protected(store: Store, name: MailboxName) -> bool:
    """Whether a delivery is refused while the standby is away. If not, it is on disk."""
    outcome: object
    try:
        outcome, = deliver(store, b"Subject: meanwhile\r\n\r\n", str(name))
    except StoreError as error:         # there is no number for another message file
        outcome = error
    if isinstance(outcome, StoreError):
        assert outcome.problem is Problem.UNAVAILABLE and is_standby_away(outcome)
        return True
    assert isinstance(outcome, Delivered)
    env = store.partition(store.entry(name).partition).env
    assert env.log.known == env.log_end()
    return False


def test_a_standby_that_is_away_stops_what_it_has(store: Store, standby: Standby, tmp_path: Path) -> None:
    """Not the partition that it lacks, from the next start on, either; all of the list, which it has. When it is made
    again with all partitions, it has this one, too, from the first octet on."""
    second = store.write_freeze.second
    with away(store, standby):
        assert is_protected(store, BOB)             # nobody knows yet what it has
        with standby.in_step():
            pass
        assert not is_protected(store, BOB) and is_protected(store, INBOX)
        rows = store.open_mailbox(store.entry(BOB)).rows["uid"]
        change_flags(store, store.entry(BOB), rows, FlagAction.ADD, Flags(Flag.SEEN))
        remove(store, store.entry(BOB), rows[:1])
        for change in (partial(namespace.create_mailbox, store, MailboxName("bob", "New")),
                       partial(deletion.delete_mailbox, store, OLD),
                       partial(copy_messages, store, store.entry(BOB), store.entry(INBOX), rows[1:])):
            with pytest.raises(StoreError) as caught:
                change()
            assert is_standby_away(caught.value)
        assert not store.names("bob")[1:] and store.entry(OLD)
    second.put(State.REFUSING, 0)                   # as the keeper does at once
    assert is_protected(store, BOB)
    with away(store, standby):
        assert not is_protected(store, BOB) and is_protected(store, INBOX)
        standby.only = ()
        with standby.connected() as source:
            source.begin(Lineage(), standby.only)
        assert is_protected(store, BOB) and is_protected(store, INBOX)
    with away(store, standby):
        assert is_protected(store, BOB)


def test_it_stops_what_it_has_until_it_has_given_that_up(store: Store, tmp_path: Path) -> None:
    """When it is made again with fewer partitions, it can be promoted with all of them until it follows."""
    whole = Standby(store, tmp_path / "three")
    whole.create()
    with away(store, whole) as group:
        with whole.in_step():
            pass
        whole.only = ("primary",)
        with whole.connected() as source:
            seeding.begin(whole.root, source, ADDRESS, whole.only)      # and it is cut off
        assert is_protected(store, BOB)
        whole.create()
        assert is_protected(store, BOB)
        with whole.in_step():
            assert group.members[HOST].unprotected == ["archive"]
        assert not is_protected(store, BOB) and is_protected(store, INBOX)


def test_what_a_process_that_was_killed_said_last_counts_no_more(store: Store, standby: Standby) -> None:
    """The next one looks at what is on disk."""
    with away(store, standby) as group:
        group.members[HOST].lacks(["archive"])
        assert not is_protected(store, BOB)
        group.members[HOST].unprotected = []
        group.note(sync=True)
        assert group.lead is not None
        group.lead.close()
        group.lead = None
        another = InStep.of(store.write_freeze.second, [HOST], waited=[HOST])
        assert is_protected(store, BOB)
        another.close()


def test_a_note_that_cannot_be_written_frees_nothing(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                     ) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with away(store, standby) as group:
        member = group.members[HOST]
        with monkeypatch.context() as patch:
            patch.setattr(instep, "replace_file", full)
            with pytest.raises(OSError, match="full"):
                member.lacks(["archive"])
        assert is_protected(store, BOB)
        member.lacks(["archive"])
        assert not is_protected(store, BOB)


def test_after_a_promotion_nothing_is_known_of_standbys(store: Store, standby: Standby) -> None:
    """They may have followed another machine meanwhile, with other partitions."""
    path = standby.root / "run" / "standbys"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"time": 1, "refuse": true, "standbys": {"mail.example.org": {"unprotected": ["primary"]}}}')
    promotion.promote(standby.root)
    assert instep.seen(standby.root) == {}


def test_of_two_standbys_one_has_it(store: Store, standby: Standby) -> None:
    """Then it is protected."""
    second, third = store.write_freeze.second, "third.example.org"
    group = InStep.of(second, [HOST, third], waited=[HOST, third])
    try:
        group.members[HOST].lacks(["archive"])
        assert is_protected(store, BOB)
        group.members[third].lacks(["archive", "other"])
        assert not is_protected(store, BOB)
        group.members[third].lacks([])
        assert is_protected(store, BOB)
    finally:
        group.close()
        second.forget()


def test_nor_does_it_stop_what_need_not_wait_for_it(store: Store, standby: Standby) -> None:
    """Although it has this partition."""
    store.close()
    reopen(store, evolve(SMALL, asynchronous_partitions=("archive",)))
    with away(store, standby):
        assert not is_protected(store, BOB) and is_protected(store, INBOX)
        one, other = deliver(store, b"Subject: both\r\n\r\n", str(BOB), str(INBOX))
        assert isinstance(one, Delivered) and isinstance(other, StoreError)


def test_in_step_it_does_not_hold_up_what_it_lacks(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                   ) -> None:
    """Also a partition that is added while it follows."""
    volumes.add(store, "later")
    namespace.insert_mailbox(store, MailboxName("alice", "Later"), "later", None)
    asked, ask = list[int](), SecondCopy.ask
    monkeypatch.setattr(SecondCopy, "ask", lambda second: (asked.append(1), ask(second))[1])
    with away(store, standby) as group, standby.in_step():
        assert group.members[HOST].unprotected == ["archive", "later"]
        asked.clear()
        deliver(store, b"Subject: archive\r\n\r\n", str(BOB))
        deliver(store, b"Subject: later\r\n\r\n", "user/alice/Later")
        assert not asked
        deliver(store, b"Subject: primary\r\n\r\n", str(INBOX))
        assert asked
