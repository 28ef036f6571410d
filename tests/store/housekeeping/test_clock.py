"""A clock that is far ahead removes nothing; and a store that was off for a month needs nobody."""

import errno
import json
import os

import pytest

from mboxlist.names import INBOX, MailboxName
from store.housekeeping.tasks import Round, one_process
from store.mailboxes.expunge import remove
from store.operations import clockrecord
from store.operations.clockrecord import LEAP, PATIENCE, ClockWatch, Known
from store.snapshots import retention, taking
from store.values import LONGEST_TIME
from tests.support.stores.stores import deliver
from tools.commands.messages import clockoption
from tools.exits import Failure

pytestmark = pytest.mark.few_folders
DAY = 86400.0
BY_AGE = {"expunged", "purge", "mailboxes", "expire", "outgoing", "users", "forgotten"}


class Times:
    """Two clocks: one that can be set, and one that cannot."""

    def __init__(self, now):
        self.now, self.steady = now, 1000.0
        self.watch = ClockWatch(lambda: self.now, lambda: self.steady)

    def run(self, root, seconds, step=60.0):
        """The store runs for so long; what is on record then."""
        for _ in range(round(seconds / step)):
            self.now, self.steady = self.now + step, self.steady + step
            found = self.watch.look(root)
        return found


def begin(store, unix_time):
    """A message was expunged a moment ago; the store knows what time it is."""
    deliver(store, b"Subject: one\r\n\r\n", "user/alice/INBOX")
    remove(store, store.entry(MailboxName("alice", INBOX)), [1])
    store.partitions["primary"].files.drop_staged_names()
    ClockWatch(lambda: unix_time.now).look(store.root)


def keep_house(store):
    for task in one_process(store):
        if task.by_age:
            work = Round(task, store)
            while work.step() is not None:
                pass


def files(store):
    return [record for _, record in store.partitions["primary"].refs.all(raw=True)]


def test_these_tasks_wait(store):
    assert {task.name for task in one_process(store) if task.by_age} == BY_AGE


def test_years_ahead_nothing_goes_and_afterwards_it_does(store, unix_time, caplog):
    begin(store, unix_time)
    there = files(store)
    unix_time.now += 3 * 365 * DAY
    keep_house(store)
    assert files(store) == there and len(list(store.partitions["primary"].removed.held())) == 1
    watch = ClockWatch(lambda: unix_time.now)
    for _ in range(3):
        watch.look(store.root)
    said, = [record.getMessage() for record in caplog.records if "nothing is purged" in record.getMessage()]
    assert "7.0 days more" in said
    unix_time.now -= 3 * 365 * DAY                          # it is set right
    watch.look(store.root)
    assert "the clock is believed again" in caplog.text
    unix_time.now += min(6 * DAY, store.settings.purge_delay - 60)
    keep_house(store)
    assert files(store) == there
    watch.look(store.root)
    unix_time.now += store.settings.purge_delay
    clockrecord.trust(store.root)
    keep_house(store)
    assert files(store) == []


def test_who_runs_a_week_with_it_believes_it(tmp_path):
    """A store that was off for a month, or whose clock nobody sets right: nobody has to type anything."""
    times = Times(1e9)
    assert times.run(tmp_path, 600) == Known(1e9 + 600)
    times.now += 30 * DAY                                   # it was off
    after = Times(times.now)
    found = after.run(tmp_path, PATIENCE - 3600, 3600.0)
    assert found.seen == 1e9 + 600 and found.is_ahead(after.now) and clockrecord.is_ahead(tmp_path, after.now)
    again = Times(after.now)                                # restarted: what it has run counts
    assert again.run(tmp_path, 3 * 3600, 3600.0) == Known(again.now)
    assert not clockrecord.is_ahead(tmp_path, again.now)


def test_off_for_some_days_is_nothing(tmp_path):
    times = Times(1e9)
    times.run(tmp_path, 60)
    times.now += LEAP - 3600
    assert times.run(tmp_path, 60) == Known(times.now)


def test_a_clock_that_is_back_removes_nothing_either_and_is_forgotten(tmp_path):
    """As of a machine that begins in 1970 and is set right: the time that was known stays known."""
    times = Times(1e9)
    times.run(tmp_path, 60)
    known, times.now = clockrecord.read(tmp_path), 0.0
    assert times.run(tmp_path, 600).seen == known.seen and not clockrecord.is_ahead(tmp_path, times.now)
    times.now = 1e9 + 600
    assert times.run(tmp_path, 60) == Known(times.now)
    times.now = 0.0                                         # and who goes on with it for a week believes it
    assert times.run(tmp_path, PATIENCE + 2 * 3600, 3600.0) == Known(times.now)


DAMAGED = ["", "{", "[]", "[" * 100_000, "\0" * 128, '{"seen": "x", "ran": 0}', '{"seen": 1}',
           '{"seen": NaN, "ran": 0}',
           '{"seen": Infinity, "ran": 0}', '{"seen": 1e300, "ran": 0}', '{"seen": -1e300, "ran": 0}',
           '{"seen": -5, "ran": 0}', '{"seen": 1e9, "ran": NaN}', '{"seen": 1e9, "ran": -Infinity}',
           '{"seen": 1e9, "ran": -1e12}', '{"seen": 1e9, "ran": 1e12}', '{"seen": 1' + "0" * 400 + ', "ran": 0}']


def damage(root, text, when):
    """The file has that text, and was written then."""
    (root / clockrecord.FILE).write_text(text)
    os.utime(root / clockrecord.FILE, (when, when))


@pytest.mark.parametrize("text", DAMAGED)
def test_what_cannot_be_understood_is_made_again(tmp_path, text, caplog):
    """Nobody has to type anything, and the guard stays: when the file was written is known."""
    damage(tmp_path, text, 1e9)
    assert not clockrecord.is_ahead(tmp_path, 1e9 + DAY) and clockrecord.is_ahead(tmp_path, 1e9 + 400 * DAY)
    assert "is damaged" in clockrecord.damage(tmp_path)
    times = Times(1e9 + DAY)
    assert times.run(tmp_path, 60) == Known(times.now) == clockrecord.read(tmp_path)
    assert clockrecord.damage(tmp_path) == ""
    said, = [record.getMessage() for record in caplog.records]
    assert str(tmp_path / clockrecord.FILE) in said and "is damaged" in said and "made again" in said


@pytest.mark.parametrize("text", DAMAGED)
def test_what_is_damaged_trusts_no_clock_that_is_ahead_and_not_for_ever(tmp_path, text):
    damage(tmp_path, text, 1e9)
    times = Times(1e9 + 400 * DAY)
    found = times.run(tmp_path, DAY, 3600.0)
    assert found.seen == 1e9 and found.ran == pytest.approx(DAY, abs=3600) and found.is_ahead(times.now)
    assert times.run(tmp_path, PATIENCE, 3600.0) == Known(times.now)


def test_what_is_no_file_is_set_aside(tmp_path):
    (tmp_path / clockrecord.FILE / "within").mkdir(parents=True)
    assert clockrecord.damage(tmp_path)
    now = os.stat(tmp_path / clockrecord.FILE).st_mtime
    assert Times(now).run(tmp_path, 60) == clockrecord.read(tmp_path) == Known(now + 60)
    assert list(tmp_path.glob("set-aside/*/clock/within"))


def test_while_the_disk_does_not_say_nothing_goes(store, unix_time, faults):
    begin(store, unix_time)
    there = files(store)
    unix_time.now += 6 * DAY
    faults.fail(clockrecord.privatefiles, "read", OSError(errno.EIO, os.strerror(errno.EIO)))
    keep_house(store)
    assert files(store) == there
    faults.mend()


def test_the_commands_refuse_until_they_are_told_to_trust_it(store, unix_time):
    begin(store, unix_time)
    clockoption.require(store, trusted=False)
    unix_time.now += 400 * DAY
    with pytest.raises(Failure) as refused:
        clockoption.require(store, trusted=False)
    assert "--trust-clock" in str(refused.value)
    clockoption.require(store, trusted=True)
    clockoption.require(store, trusted=False)
    assert not clockrecord.is_ahead(store.root)
    keep_house(store)
    assert files(store) == []


def test_no_snapshot_goes(store, unix_time, faults):
    """One is made, since the newest seems old; what there was stays."""
    begin(store, unix_time)
    gone = faults.watch(taking, "retain")
    unix_time.now += 400 * DAY
    retention.make_due(store, "the newest is old")
    assert not gone
    clockrecord.trust(store.root)
    unix_time.now += DAY
    retention.make_due(store, "the newest is old")
    assert gone


def test_a_disk_that_is_full_for_a_week_does_not_stop_purging(tmp_path, faults):
    """It would stay full then."""
    times = Times(1e9)
    times.run(tmp_path, 60)
    file = tmp_path / clockrecord.FILE
    size = file.stat().st_size
    faults.fail(clockrecord.privatefiles, "replacing", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert times.run(tmp_path, LEAP + DAY, 3600.0) == Known(times.now) == clockrecord.read(tmp_path)
    assert not clockrecord.is_ahead(tmp_path, times.now) and file.stat().st_size == size
    faults.mend()


def test_a_loss_of_power_leaves_a_record(tmp_path, faults):
    """The clock may be lost by it, too: the file is on disk before it has its name."""
    synced, replaced = faults.watch(os, "fsync"), faults.watch(os, "replace")
    Times(1e9).run(tmp_path, 120)
    assert len(synced) == len(replaced) == 2


def test_what_the_file_says(tmp_path):
    clockrecord.trust(tmp_path, 1e9)
    assert json.loads((tmp_path / clockrecord.FILE).read_text()) == {"seen": 1e9, "ran": 0.0}
    assert clockrecord.warning(tmp_path, 1e9) == "" and "2001-09-09" in clockrecord.warning(tmp_path, 2e9)
    assert clockrecord.warning(tmp_path, LONGEST_TIME * 1e9)        # no year that a calendar has
