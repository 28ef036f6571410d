"""What became of messages is noted at no cost to deliveries, bounded in size and age, and found again."""

import json
import os
import time
from functools import partial
from types import SimpleNamespace

import pytest

from lmtp import noting
from lmtp.replies import Reply
from mboxlist.names import MailboxName
from store.delivery.commit import Delivered, Duplicate
from store.deliverylog import ENDING, FILES, FOLDER, MOST_WAITING, DeliveryLog, FileDeliveryLog, read, short
from store.errors import Problem, StoreError
from store.operations import clockrecord


class Clock:
    def __init__(self) -> None:
        self.now = float(int(time.time()))      # of which the files have their dates

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def make(root, clock, *, size=1 << 20, seconds=86400, name="lmtp-1"):
    return FileDeliveryLog(root, name, lambda: (size, seconds), clock,
                           holds_back=partial(clockrecord.holds_back, root))


def test_what_is_noted_is_found(tmp_path, clock):
    began = clock.now
    first, second = make(tmp_path, clock), make(tmp_path, clock, name="lmtp-2")
    first.note("message", lambda: {"from": "ä@example.org", "message_id": "<1@example.org>"})
    clock.now += 60
    second.note("refused", lambda: {"from": ""})
    assert list(read(tmp_path)) == []                       # nothing is written by the one who notes
    first.write()
    second.write()
    assert [(each["kind"], each["time"]) for each in read(tmp_path)] == [
        ("message", began), ("refused", began + 60)]
    assert [each["from"] for each in read(tmp_path, marks=("1@example.org",))] == ["ä@example.org"]
    os.utime(next((tmp_path / FOLDER).glob("lmtp-2.*")), (began + 60, began + 60))
    assert [each["kind"] for each in read(tmp_path, since=began + 1)] == ["refused"]


def test_a_clock_that_is_far_ahead_removes_no_notes(tmp_path, clock):
    clockrecord.trust(tmp_path, clock.now)
    for at in (0, 400 * 86400):
        clock.now += at
        delivery_log = make(tmp_path, clock, name=f"lmtp-{at}")
        delivery_log.note("message", lambda at=at: {"from": f"{at}"})
        delivery_log.write()
        os.utime(next((tmp_path / FOLDER).glob(f"lmtp-{at}.*")), (clock.now, clock.now))
    assert len(list(read(tmp_path))) == 2
    clockrecord.trust(tmp_path, clock.now)
    make(tmp_path, clock, name="lmtp-3").write()
    later = make(tmp_path, clock, name="lmtp-4")
    later.note("message", dict)
    later.write()
    assert len(list(read(tmp_path))) == 2


def test_facts_are_made_when_they_are_written(tmp_path, clock):
    made = []
    delivery_log = make(tmp_path, clock)
    delivery_log.note("message", lambda: made.append(1) or {})
    assert not made and delivery_log.waits
    delivery_log.write()
    assert made == [1] and not delivery_log.waits


def test_one_that_cannot_be_noted_keeps_no_mail_waiting(tmp_path, clock):
    delivery_log = make(tmp_path, clock)
    (tmp_path / FOLDER).write_text("in the way")
    delivery_log.note("message", dict)
    delivery_log.write()
    assert delivery_log.counted["not noted"] == 1
    (tmp_path / FOLDER).unlink()
    delivery_log.note("message", dict)
    delivery_log.write()
    assert len(list(read(tmp_path))) == 1


def test_memory_is_bounded(tmp_path, clock):
    delivery_log = make(tmp_path, clock)
    for _ in range(MOST_WAITING + 7):
        delivery_log.note("message", dict)
    assert delivery_log.counted["not noted"] == 7
    delivery_log.write()
    assert sum(1 for _ in read(tmp_path)) == MOST_WAITING


def test_size_and_age_are_bounded(tmp_path, clock):
    size, line = 40_000, 1000
    delivery_log = make(tmp_path, clock, size=size)
    other = make(tmp_path, clock, name="imap-1")            # of a process that has ended long ago
    other.note("message", dict)
    other.close()
    os.utime(next((tmp_path / FOLDER).glob("imap-1.*")), (clock.now, clock.now))
    for number in range(200):
        clock.now += 1
        delivery_log.note("message", lambda number=number: {"number": number, "fill": "x" * line})
        delivery_log.write()
        assert sum(path.stat().st_size for path in (tmp_path / FOLDER).glob("lmtp-1.*")) < size + size // FILES + line
    kept = [each["number"] for each in read(tmp_path) if "number" in each]
    assert kept == list(range(kept[0], 200)) and 20 < len(kept) < 60         # the latest, without a gap
    clock.now += 2 * 86400
    for path in (tmp_path / FOLDER).glob(f"*{ENDING}"):
        os.utime(path, (clock.now - 2 * 86400, clock.now - 2 * 86400))
    delivery_log.note("message", lambda: {"number": 200})
    delivery_log.write()
    assert [each["number"] for each in read(tmp_path)] == [200]


def test_torn_and_damaged_lines_are_passed_over(tmp_path, clock):
    delivery_log = make(tmp_path, clock)
    for number in range(3):
        delivery_log.note("message", lambda number=number: {"number": number})
    delivery_log.write()
    path, = (tmp_path / FOLDER).iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\xff\xfe{\n[1]\n{}\n" + lines[1] + lines[2][:20])
    assert [each["number"] for each in read(tmp_path)] == [0, 1]


def test_nothing_is_noted_where_that_is_not_wanted(tmp_path, clock):
    DeliveryLog().note("message", lambda: 1 / 0)
    delivery_log = make(tmp_path, clock, size=0)
    delivery_log.note("message", lambda: delivery_log.counted.update(messages=1) or {})
    delivery_log.close()
    assert delivery_log.counted["messages"] == 1                 # what is counted is counted all the same
    assert not (tmp_path / FOLDER).exists()


def test_lines_are_json_on_one_line(tmp_path, clock):
    delivery_log = make(tmp_path, clock)
    delivery_log.note("message", lambda: {"message_id": "<a\nb\u2028@example.org>"})
    delivery_log.close()
    path, = (tmp_path / FOLDER).iterdir()
    line, = path.read_bytes().split(b"\n")[:-1]
    assert json.loads(line)["message_id"] == "<a\nb\u2028@example.org>"
    assert path.stat().st_mode & 0o777 == 0o600


NAUGHTY = 'a"b\\c \r\n\x00\x7f\u2028é\ud800'


@pytest.mark.parametrize("said", [NAUGHTY, "a@example.org", "", "x" * 5000, "}, {", "%s{0}"])
def test_whatever_is_said_stays_in_its_field(tmp_path, clock, said):
    """A message for three, of whom one had it and one has no room: each field as it was told, but what cannot be
    written."""
    delivery_log, name = make(tmp_path, clock), MailboxName("alice", "In " + said[:100].replace("\r\n\x00", ""))
    entry = SimpleNamespace(name=name)
    over = StoreError(Problem.OVER_QUOTA, "Over quota", said)
    full, fine = Reply(552, "5.2.2", ("Full",)), Reply(250, "2.1.5", ("Ok",))
    outcomes = {7: Delivered(entry, 9), 8: Duplicate(entry, repeated=False), 9: over}
    sender = SimpleNamespace(text=said) if said else None
    noting.message(delivery_log, noting.Envelope("1-7b-1", "192.0.2.1", sender, "7b-1"), SimpleNamespace(
        message_id=said.encode("utf-8", "replace"), digest=b"\x01\xff", size=12), [7, 8, 9, 7], [said, "b", "c", "d"],
        [fine, fine, full, fine], outcomes)
    delivery_log.write()
    found, = read(tmp_path)
    text = short(said.replace("\ud800", "?"))
    assert {name: found[name] for name in found if name not in ("to", "time")} == {
        "kind": "message", "id": "1-7b-1", "session": "7b-1", "peer": "192.0.2.1", "from": text, "message_id": text,
        "mid": "01ff", "size": 12}
    mailbox = str(name).replace("\ud800", "?")
    assert found["to"] == [
        {"recipient": text, "reply": "250 2.1.5", "mailbox": mailbox, "mailbox_id": 7, "uid": 9},
        {"recipient": "b", "reply": "250 2.1.5", "mailbox": mailbox, "mailbox_id": 8,
         "why": "it had come before (lmtp.duplicate_window)"},
        {"recipient": "c", "reply": "552 5.2.2", "why": short(f"Over quota: {said}" if said else "Over quota").replace(
            "\ud800", "?")},
        {"recipient": "d", "reply": "250 2.1.5", "mailbox": mailbox, "mailbox_id": 7, "uid": 9}]
    assert delivery_log.counted == {"messages": 1, "delivered": 2, "duplicates": 1, "refused for good": 1,
                                    "over quota": 1}
