"""Expiry in a store: what goes, what stays whatever happens meanwhile, who is told, and what is counted."""

import logging
import os
import random
import time

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.expiry import rounds, work
from store.expiry.decide import DAY
from store.expiry.requested import expire_all
from store.expiry.rounds import Rounds
from store.expiry.rulebook import Rulebook, domain_file, partition_file, set_file, set_mailbox
from store.expiry.work import Counter, Plan, expire
from store.housekeeping import tasks
from store.housekeeping.tasks import Round, Task
from store.mailboxes import firstuse, namespace
from store.mailboxes.deletion import undelete_messages
from store.mailboxes.flagchanges import change_flags
from store.partition.partition import Partition
from store.partitions import volumes
from store.quota import roots
from store.tables.slices import PartlyDone
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.support.faults.planted import Faults
from tests.support.stores.stores import HASH, SMALL, deliver, make_store, reopen_after_crash

pytestmark = pytest.mark.few_folders

NOW = int(time.time())
SEEN = Flags(Flag.SEEN)


def body(number, subject="hello"):
    return b"From: a@example.org\r\nSubject: %s\r\nX-Number: %d\r\n\r\nHello.\r\n" % (subject.encode(), number)


def fill(store, *mailboxes, ages, **options):
    """A message of each age, in days."""
    for number, age in enumerate(ages):
        deliver(store, body(number), *mailboxes, received=InternalDate(NOW - age * DAY), **options)


def entry(store, user="alice", path="INBOX"):
    return store.entry(MailboxName(user, path))


def uids(store, *words):
    return store.open_mailbox(entry(store, *words)).rows["uid"].tolist()


def run(store, *words, **options):
    return expire(store, entry(store, *words), Rulebook(store), Plan(NOW, **options))


def rules(store, text, *words):
    set_mailbox(store, entry(store, *words), text)


def test_what_is_refused_half_way_is_counted_as_far_as_it_is_done(store):
    """By housekeeping and by the command: counters say what has gone, and a problem that it was not all."""
    fill(store, "user/alice/INBOX", "user/bob/INBOX", ages=(40, 41, 42))
    for user in ("alice", "bob"):
        rules(store, "messagedays: 30\n", user)
    with Faults() as faults:
        faults.fail_second(Partition, "transact", StoreError(Problem.DISK_FULL))
        record, _ = expire_all(store, [entry(store)], Rulebook(store), Plan(NOW, batch=1), lambda done: None)
    assert record.counters["user:alice:rule"].messages == 1 and len(uids(store)) == 2
    assert list(record.problems) == ["user/alice/INBOX: Done in part: " + StoreError(Problem.DISK_FULL).public]
    clocked = Rounds(clock=lambda: NOW, batch=1)
    with Faults() as faults:
        faults.fail_second(Partition, "transact", StoreError(Problem.DISK_FULL))
        with pytest.raises(PartlyDone):
            clocked.work(store, entry(store, "bob").id)
    assert clocked._record.counters["user:bob:rule"].messages == 1 and len(uids(store, "bob")) == 2


def test_messages_go_and_can_come_back(store):
    fill(store, "user/alice/INBOX", ages=(40, 3, 31, 1))
    rules(store, "messagedays: 30\n")
    used = roots.quota(store, "alice")
    assert run(store, change=False).counters == {"user:alice:rule": Counter(2, 2 * len(body(0)), NOW - 40 * DAY)}
    assert uids(store) == [1, 2, 3, 4]
    done = run(store)
    assert done.counters == {"user:alice:rule": Counter(2, 2 * len(body(0)), NOW - 40 * DAY)} and not done.problems
    assert uids(store) == [2, 4] and roots.quota(store, "alice").messages == used.messages - 2
    assert run(store).counters == {}
    assert undelete_messages(store, entry(store)) == [5, 6]


def test_age_in_trash_counts_from_when_it_came_there(tmp_path):
    """An old message that was put there today stays for the whole time (RFC 8514: SAVEDATE)."""
    store = make_store(tmp_path / "store", settings=evolve(SMALL, special_mailboxes=("Trash=Bin", "Junk")))
    other = namespace.create_mailbox(store, MailboxName("alice", "Trash"))        # a name is no special use
    fill(store, "user/alice/Bin", "user/alice/Junk", "user/alice/Trash", ages=(400,))
    for days, left in ((29, [1]), (30, [])):
        for path in ("Bin", "Junk"):
            expire(store, entry(store, "alice", path), Rulebook(store), Plan(time.time() + days * DAY))
            assert uids(store, "alice", path) == left
    expire(store, other, Rulebook(store), Plan(time.time() + 400 * DAY))
    assert uids(store, "alice", "Trash") == [1]
    assert check(store) == []
    store.close()


def test_switched_off(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, special_mailboxes=("Trash", "Junk"), expire_junk=0,
                                                           expire_trash=5 * DAY))
    fill(store, "user/alice/Trash", "user/alice/Junk", ages=(1,))
    for path, left in (("Trash", []), ("Junk", [1])):
        expire(store, entry(store, "alice", path), Rulebook(store), Plan(time.time() + 6 * DAY))
        assert uids(store, "alice", path) == left
    store.close()


def test_header_fields(store):
    """One that the cache has, one that it has not; of a message with many fields the cache has none."""
    many = b"References: " + b"<a@example.org>\r\n " * 400 + b"<b@example.org>\r\n"
    for subject, extra in ((b"=?utf-8?q?Gr=C3=BCne?=", b""), (b"other", b""), (b"gr\xc3\xbcne", many)):
        deliver(store, b"Subject: " + subject + b"\r\nX-Kind: One\r\n" + extra + b"\r\ntext GR\xc3\x9cNE\r\n",
                "user/alice/INBOX")
    rules(store, "messageheader.Subject: GRÜNE\naction: report\nkind.messageheader.x-kind: one\nkind.action: report\n"
                 "both.messageheader.Subject: other\nboth.messageheader.X-Kind: two\nboth.action: report\n")
    assert {item.rule: item.uids for item in run(store).reported} == {
        "user:alice:rule": (1, 3), "user:alice:kind": (1, 2, 3)}
    assert uids(store) == [1, 2, 3]


def test_filed_into_a_mailbox_that_is_made(store):
    fill(store, "user/alice/INBOX", ages=(40, 3, 31))
    change_flags(store, entry(store), [1], FlagAction.ADD, Flags(Flag.FLAGGED, ("$Work",)))
    rules(store, "messagedays: 30\naction: fileinto:Old/2020\n")
    used = roots.quota(store, "alice")
    assert run(store).counters == {"user:alice:rule": Counter(2, 2 * len(body(0)), NOW - 40 * DAY)}
    assert uids(store) == [2] and roots.quota(store, "alice") == used
    old = store.open_mailbox(entry(store, "alice", "Old/2020"))
    assert old.rows["received"].tolist() == [NOW - 40 * DAY, NOW - 31 * DAY]
    assert old.rows["flags"][0] == Flag.FLAGGED and old.keyword_names(int(old.rows["keywords"][0])) == ("$Work",)
    done = run(store, "alice", "Old/2020")
    assert (done.counters, done.problems) == ({}, [])                   # into itself: nothing


def test_filed_onto_another_partition(tmp_path):
    store = make_store(tmp_path / "store")
    volumes.add(store, "archive")
    namespace.insert_mailbox(store, MailboxName("alice", "Old"), "archive", None)
    fill(store, "user/alice/INBOX", ages=(40, 3))
    rules(store, "messagedays: 30\naction: fileinto:Old\n")
    assert run(store).messages == 1
    assert uids(store) == [2] and uids(store, "alice", "Old") == [1]
    assert check(store) == []
    store.close()


def test_what_cannot_be_filed_stays(store):
    fill(store, "user/alice/INBOX", ages=(40,))
    for target, why in (("user/bob/INBOX", "another user's mailbox"), ("public/none", "There is no mailbox")):
        rules(store, f"messagedays: 30\naction: fileinto:{target}\n")
        done = run(store)
        assert done.messages == 0 and why in done.problems[0] and uids(store) == [1]


def test_the_strictest_decides_and_an_exclusive_one_alone(store):
    fill(store, "user/alice/INBOX", ages=(40, 20, 5))
    rules(store, "a.messagedays: 30\nb.messagedays: 10\n")
    assert run(store, change=False).counters.keys() == {"user:alice:b"}         # the later one has both
    rules(store, "a.messagedays: 30\na.exclusive: yes\nb.messagedays: 10\n")
    assert run(store, change=False).messages == 1
    choice = Rulebook(store).choice(entry(store))
    assert [one.rule.name for one in choice.rules] == ["a"] and [one.rule.name for one in choice.others] == ["b"]
    rules(store, "a.messagedays: 30\na.exclusive: yes\nb.messagedays: 10\nb.exclusive: yes\n")
    assert run(store, change=False).messages == 2                               # the last one


def test_scopes(tmp_path):
    """Each narrower file has its say; an exclusive rule of a narrower one replaces those of wider ones."""
    path = tmp_path / "rules"
    path.write_text("all.folderpattern: user/*\nall.messagedays: 100\n")
    store = make_store(tmp_path / "store", settings=evolve(SMALL, expire_rules=path))
    firstuse.inbox(store, store.directory.add("carol@example.com", HASH))
    for name in ("A", "A/B", "C"):
        namespace.create_mailbox(store, MailboxName("alice", name))
    set_file(partition_file(store.partitions["primary"]), "part.folderpattern: user/%/A/*\npart.messagecount: 9\n")
    set_file(domain_file(store, "example.com"), "dom.folderpattern: user/*\ndom.seen: or\n")
    rules(store, "mine.messagesize: 10\n")
    rules(store, "deep.messagedays: 3\n", "alice", "A")
    rules(store, "keep.exclusive: yes\n", "alice", "C")

    def of(*words):
        return [one.key for one in Rulebook(store).choice(entry(store, *words)).rules]

    assert of() == ["global:all", "user:alice:mine"]
    assert of("alice", "A/B") == [
        "global:all", "partition:primary:part", "user:alice:mine", "mailbox:user/alice/A:deep"]
    assert of("alice", "A") == ["global:all", "user:alice:mine", "mailbox:user/alice/A:deep"]
    assert of("alice", "C") == ["mailbox:user/alice/C:keep"]
    assert of("carol@example.com", "INBOX") == ["global:all", "domain:example.com:dom"]
    assert of("bob") == ["global:all"]
    fill(store, "user/alice/C", ages=(1000,))
    assert run(store, "alice", "C").messages == 0
    assert {source.of for source in Rulebook(store).all()} == {
        "", "primary", "example.com", "alice", "user/alice/A", "user/alice/C"}
    namespace.rename_mailbox(store, MailboxName("alice", "A"), MailboxName("alice", "Z"))         # rules go along
    assert of("alice", "Z/B")[-1] == "mailbox:user/alice/Z:deep"
    store.close()


def test_a_faulty_file_expires_nothing(tmp_path):
    """Not in any mailbox that it is for: what it does not say might be what keeps the mail."""
    path = tmp_path / "rules"
    path.write_text("all.folderpattern: user/*\nall.messagedays: 1\n"
                    "keep.folderpattern: user/alice/*\nkeep.exlusive: 1\n")
    store = make_store(tmp_path / "store", settings=evolve(SMALL, expire_rules=path))
    fill(store, "user/alice/INBOX", "user/bob/INBOX", ages=(40,))
    done = run(store)
    assert done.messages == 0 and f"{path}:4:6: exlusive is not an attribute" in done.problems[0]
    path.write_text("all.folderpattern: user/*\nall.messagedays: 1\n")
    domain_file(store, "example.org").parent.mkdir()
    domain_file(store, "example.org").write_bytes(b"\xff\n")
    assert run(store).messages == 0
    domain_file(store, "example.org").unlink()
    with pytest.raises(StoreError, match="line 1, column 14"):
        rules(store, "messagedays: x\n")
    store.mailboxes.annotations.set(entry(store).id, "/shared/vendor/onecopy/expire", b"messagedays: x", None)
    assert run(store).messages == 0 and run(store, "bob").messages == 1
    path.unlink()
    assert "No such file" in run(store, "bob").problems[0]
    store.close()


def test_who_is_excluded(tmp_path):
    path = tmp_path / "exclude"
    path.write_text("# those who keep all\nALICE@example.org\n")
    store = make_store(tmp_path / "store", settings=evolve(SMALL, expire_exclude=path))
    fill(store, "user/alice/INBOX", "user/bob/INBOX", ages=(40,))
    for user in ("alice", "bob"):
        rules(store, "messagedays: 1\n", user)
    assert run(store).messages == 0 and run(store).problems == [] and run(store, "bob").messages == 1
    path.unlink()                               # nobody knows who is on it
    fill(store, "user/bob/INBOX", ages=(40,))
    assert run(store, "bob").messages == 0 and "No such file" in run(store, "bob").problems[0]
    store.close()


# What happens meanwhile

def between(store, faults, *changes):
    """Have something happen after a decision, before the transaction, once for each."""
    left = list(changes)
    faults.after(work, "decide", lambda *_: left and left.pop(0)())


@pytest.mark.parametrize("action", ["discard", "fileinto:Old"])
def test_what_is_flagged_meanwhile_stays(store, faults, action):
    fill(store, "user/alice/INBOX", ages=(40, 39, 38))
    rules(store, f"messagedays: 30\nflagged: not\naction: {action}\n")
    between(store, faults, lambda: change_flags(store, entry(store), [2], FlagAction.ADD, Flags(Flag.FLAGGED)))
    assert run(store).messages == 2 and uids(store) == [2]


def test_what_arrives_meanwhile_stays(store, faults):
    fill(store, "user/alice/INBOX", ages=(40, 39))
    rules(store, "messagecount: 0\n")
    between(store, faults, lambda: fill(store, "user/alice/INBOX", ages=(50,)))
    assert run(store).messages == 2 and uids(store) == [3]


def test_a_number_of_messages_that_others_expunge_meanwhile(store, faults):
    """Of ten, five are to stay: no more go because others went at the same moment."""
    fill(store, "user/alice/INBOX", ages=range(20, 10, -1))
    rules(store, "messagecount: 5\n")
    from store.mailboxes.expunge import remove
    between(store, faults, lambda: remove(store, entry(store), [8, 9, 10]))
    assert run(store).messages == 2 and uids(store) == [3, 4, 5, 6, 7]


def test_between_two_transactions(store, faults):
    """A count that was decided on is decided anew when something happens half way."""
    fill(store, "user/alice/INBOX", ages=range(20, 10, -1))
    rules(store, "messagecount: 3\nflagged: not\n")
    calls = faults.watch(work, "take_out", lambda *words: len(words[3]))
    faults.after(work._Expected, "committed", lambda _: len(calls) == 1 and change_flags(
        store, entry(store), [3, 4], FlagAction.ADD, Flags(Flag.FLAGGED)))
    done = run(store, batch=2)
    assert uids(store) == [3, 4, 8, 9, 10] and done.messages == 5 and max(calls) <= 2


def test_it_changes_all_the_time(store, faults):
    fill(store, "user/alice/INBOX", ages=(40,))
    rules(store, "messagedays: 30\n")
    keywords = [Flags(Flag(0), (f"k{number}",)) for number in range(30)]
    between(store, faults, *[
        lambda one=one: change_flags(store, entry(store), [1], FlagAction.ADD, one) for one in keywords])
    done = run(store)
    assert done.messages == 0 and "changes all the time" in done.problems[0] and uids(store) == [1]


def test_a_moved_message_is_not_moved_twice(store, faults):
    fill(store, "user/alice/INBOX", ages=(40, 39))
    rules(store, "messagedays: 30\naction: fileinto:Old\n")
    between(store, faults, lambda: change_flags(store, entry(store), [1], FlagAction.ADD, SEEN))
    assert run(store).messages == 2 and uids(store) == [] and len(uids(store, "alice", "Old")) == 2


# Rounds

class Clock:
    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


def round_of(store, clock, **sizes):
    keeper = Rounds(clock, **sizes)
    return Round(Task("expire", 1, keeper.items, keeper.work), store)


def finish(round):
    while round.step() is not None:
        pass


@pytest.fixture
def hourly(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, expire_schedule="1h", housekeeping_rate=0))
    yield store
    assert check(store) == []
    store.close()


def test_a_round_by_the_clock(hourly, caplog):
    store, clock = hourly, Clock()
    fill(store, "user/alice/INBOX", "user/bob/INBOX", ages=(40, 3))
    rules(store, "messagedays: 30\n")
    rules(store, "r.messagedays: 30\nr.action: report\n", "bob")
    round = round_of(store, clock)
    finish(round)                                   # a store that has never had a round waits for the first
    assert uids(store) == [1, 2] and rounds.load(store).since == NOW
    clock.now += 3599
    finish(round)
    assert uids(store) == [1, 2]
    clock.now += 1
    with caplog.at_level(logging.INFO):
        finish(round)
    assert uids(store) == [2] and uids(store, "bob") == [1, 2]
    record = rounds.load(store)
    assert (record.began, record.position, record.mailboxes) == (NOW + 3600, "", 2) and not record.running
    assert record.counters == {"user:alice:rule": Counter(1, len(body(0)), NOW - 40 * DAY),
                               "user:bob:r": Counter(1, len(body(0)), NOW - 40 * DAY)}
    assert any("user/bob/INBOX uidvalidity" in line and "1 messages by user:bob:r: 1" in line
               for line in caplog.messages)
    assert "hello" not in caplog.text
    fill(store, "user/alice/INBOX", ages=(41,))
    finish(round)
    assert uids(store) == [2, 3]                    # not before the next
    clock.now += 3600
    finish(round_of(store, clock))                  # in another process
    assert uids(store) == [2]


def test_a_large_mailbox_goes_in_pieces(hourly, monkeypatch):
    """Others have their turn, and a stop is heard, between two of them."""
    monkeypatch.setattr(tasks, "SLICE", 600.0)      # however slow the machine is
    store, clock = hourly, Clock()
    fill(store, "user/alice/INBOX", ages=(40,) * 10)
    rules(store, "messagedays: 30\n")
    round = round_of(store, clock, most=3)
    finish(round)
    clock.now += 3600
    left = iter([False] * 3 + [True])
    assert round.step(lambda: next(left)) is None
    assert len(uids(store)) == 1
    finish(round)
    assert uids(store) == [] and rounds.load(store).counters["user:alice:rule"].messages == 10


def test_one_bad_mailbox_keeps_no_other(hourly, faults):
    store, clock = hourly, Clock()
    fill(store, "user/alice/INBOX", "user/bob/INBOX", ages=(40,))
    for user in ("alice", "bob"):
        rules(store, "messagedays: 30\n", user)
    bad = [entry(store).id]
    faults.fail(rounds, "expire", StoreError(Problem.CORRUPT), when=lambda store, entry, *_: entry.id in bad)
    round = round_of(store, clock)
    finish(round)
    clock.now += 3600
    finish(round)
    assert uids(store) == [1] and uids(store, "bob") == []
    bad.clear()
    clock.now += 3600
    finish(round)
    assert uids(store) == []


class Stop(BaseException):
    pass


@pytest.mark.long
@pytest.mark.parametrize("seed", range(int(os.environ.get("EXPIRY_KILLS", "4"))))
def test_killed_anywhere_and_begun_again(tmp_path, seed, faults):
    """Between any two transactions the process ends, what was not flushed is lost; the next one goes on, and in the end
    each message has gone once: no copy twice, none too many taken."""
    chance = random.Random(seed)
    store = make_store(tmp_path / "store", settings=evolve(SMALL, expire_schedule="1h", housekeeping_rate=0))
    sizes = {"batch": 2, "saved_every": chance.choice((-1, 1e9))}
    for user in ("alice", "bob"):
        fill(store, f"user/{user}/INBOX", ages=range(40, 28, -1))
        rules(store, "many.messagecount: 3\nold.messagedays: 36\nold.action: fileinto:Old\n", user)
    clock = Clock()
    finish(round_of(store, clock, **sizes))
    clock.now += 3600
    store.partitions["primary"].flush()
    kills = 0
    while True:
        left = iter(range(chance.randint(1, 7) if kills < 6 else 1000))
        faults.fail(Partition, "transact", Stop, when=lambda *_, left=left, **__: next(left, None) is None)
        try:
            finish(round_of(store, clock, **sizes))
        except Stop:
            kills += 1
            faults.mend()
            store = reopen_after_crash(store)
        else:
            break
    faults.mend()
    assert kills
    for user in ("alice", "bob"):
        assert uids(store, user) == [10, 11, 12]
        old = store.open_mailbox(entry(store, user, "Old")).rows["received"].tolist()
        assert old == [NOW - age * DAY for age in range(40, 35, -1)]
    assert not rounds.load(store).running and check(store) == []
    store.close()
