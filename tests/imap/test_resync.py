"""A client that comes back hears of everything that it has missed, and knows as much as one that asks for all."""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imap.verbs.resync import gaps, known_up_to
from imap.wire.modseq import SequenceMatch
from imap.wire.numbers import format_numbers
from imap.wire.scanner import parse_number_set
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.values import Flag, FlagAction, Flags
from tests.support.conversations.scripts import content

SETS = st.sets(st.integers(1, 30))


@given(SETS, SETS, st.integers(0, 31))
def test_gaps_are_what_is_not_there(there, asked, known):
    ranges = np.array(parse_number_set(format_numbers(sorted(asked)), 100).resolve(30) if asked else [], np.int64)
    found = gaps(np.array(sorted(there), np.uint32), ranges.reshape(-1, 2), known)
    uids = [uid for first, last in found.tolist() for uid in range(first, last + 1)]
    assert uids == sorted(uid for uid in asked - there if uid > known)


@given(SETS, SETS, st.randoms(use_true_random=False))
def test_a_client_that_has_a_message_under_its_number_has_all_before(there, also, chance):
    client = sorted(there | also)           # it knows all that is there, and some that is gone
    sample = sorted(chance.sample(range(1, len(client) + 1), chance.randint(0, len(client))))
    if sample:
        match = SequenceMatch(parse_number_set(format_numbers(sample), 100),
                              parse_number_set(format_numbers([client[number - 1] for number in sample]), 100))
        known = known_up_to(np.array(sorted(there), np.uint32), match)
        same = [number for number in sample if number <= len(there) and sorted(there)[number - 1] == client[number - 1]]
        assert known == (client[same[-1] - 1] if same else 0)
        assert {uid for uid in client if uid <= known} <= there


def test_match_data_of_four_billion_messages_take_no_room():
    huge = parse_number_set(b"1:4294967295", 10)
    assert known_up_to(np.array([1, 2, 5], np.uint32), SequenceMatch(huge, huge)) == 2
    assert known_up_to(np.empty(0, np.uint32), SequenceMatch(huge, huge)) == 0


NAMES = {r"\Seen": Flag.SEEN, r"\Flagged": Flag.FLAGGED, r"\Deleted": Flag.DELETED}
FETCHED = re.compile(r"\* (\d+) FETCH \((.*)\)")
EXPUNGED = re.compile(r"\* VANISHED (\(EARLIER\) )?([0-9:,]+)")
CODE = re.compile(r"\[HIGHESTMODSEQ (\d+)\]")


class Client:
    """A disconnected client as RFC 7162 §6 would have it: it keeps flags by UID, and the HIGHESTMODSEQ it may trust."""

    def __init__(self, place, box):
        self.place, self.box = place, box
        self.wire = None
        self.cache = {}             # UID -> flags
        self.modseq = None          # HIGHESTMODSEQ
        self.complete = 0           # it has asked for all UIDs up to here
        self.numbers = []           # while connected: the UID of each message number, None if it has not been told
        self.applied = None         # what STORE .SILENT does to flags

    def connect(self):
        self.wire = self.place.connect()
        self.wire.received()
        self.plain(f"x1 LOGIN {self.place.user} secret")
        self.plain("x2 ENABLE QRESYNC")

    def plain(self, command):
        self.wire.send(command.encode() + b"\r\n")
        got = self.wire.received().decode("latin-1")
        assert f"{command.partition(' ')[0]} OK" in got, got
        return got

    def say(self, command, lines=None):
        """Send a command; of the answer only so many lines arrive before the connection breaks, if not all do."""
        self.wire.send(f"a {command}\r\n".encode())
        got = [line for line in self.wire.received().decode("latin-1").split("\r\n")[:-1] if re.match(r"\*|a ", line)]
        code = highest = None
        for line in got if lines is None else got[:lines]:
            found = CODE.search(line)
            if found:
                code = int(found[1])
            highest = max(filter(None, (highest, self.hear(line))), default=None)
            if line.startswith("a "):
                assert line.startswith("a OK") or line.startswith("a NO"), line
                self.modseq = code if code is not None else max(filter(None, (self.modseq, highest)), default=None)
                if lines is not None and lines >= len(got):
                    break
        if lines is not None:
            self.wire.hang_up()
            self.wire = None

    def hear(self, line):
        """Take in a line; the MODSEQ in it."""
        if exists := re.fullmatch(r"\* (\d+) EXISTS", line):
            assert int(exists[1]) >= len(self.numbers)
            self.numbers += [None] * (int(exists[1]) - len(self.numbers))
        elif gone := EXPUNGED.fullmatch(line):
            for first, last in parse_number_set(gone[2].encode(), 10 ** 6).ranges:
                for uid in range(first, last + 1):
                    self.cache.pop(uid, None)
                    if not gone[1]:
                        self.numbers.remove(uid if uid in self.numbers else None)
                    assert uid not in self.numbers
        elif fetched := FETCHED.match(line):
            return self.fetched(int(fetched[1]), fetched[2])
        else:
            assert " EXPUNGE" not in line or line.startswith("a ")
        return None

    def fetched(self, number, items):
        uid, flags = re.search(r"UID (\d+)", items), re.search(r"FLAGS \(([^)]*)\)", items)
        modseq = re.search(r"MODSEQ \((\d+)\)", items)
        known = self.numbers[number - 1]
        if uid:
            assert known in (None, int(uid[1]))
            known = self.numbers[number - 1] = int(uid[1])
        if flags:
            assert uid, "FLAGS come with the UID"
            self.cache[known] = {name for name in flags[1].split() if name in NAMES}
        elif self.applied is not None and modseq and known in self.cache:
            self.cache[known] = self.applied(self.cache[known])
        return int(modseq[1]) if modseq else None

    def fresh(self):
        """Ask for what is new, until it has all."""
        if self.wire is not None and None in self.numbers:
            self.say(f"UID FETCH {self.complete + 1}:* (FLAGS MODSEQ)")
            assert None not in self.numbers
        if self.wire is not None:
            self.complete = max([self.complete, *self.numbers])

    def resync(self, known, match):
        """Come back after a break."""
        self.connect()
        self.cache = {uid: flags for uid, flags in self.cache.items() if uid <= self.complete}
        self.numbers = []
        parameters = f"QRESYNC ({self.box.validity} {self.modseq}" if self.modseq else "CONDSTORE"
        uids = sorted(self.cache)
        if self.modseq:
            if known and uids:
                parameters += " " + format_numbers(uids).decode()
            if match and uids:
                numbers = sorted({1 + at % len(uids) for at in match})
                theirs = [uids[number - 1] for number in numbers]
                parameters += f" ({format_numbers(numbers).decode()} {format_numbers(theirs).decode()})"
            parameters += ")"
        self.say(f"SELECT {self.box.path} ({parameters})")
        self.say(f"UID FETCH {self.complete + 1}:* (FLAGS MODSEQ)")
        assert len(self.numbers) == len(self.cache)
        self.numbers = sorted(self.cache)
        self.complete = max([self.complete, *self.numbers])


class Box:
    """A mailbox that is changed by others."""

    def __init__(self, place, path):
        self.place, self.path = place, path
        place.have(path, "")
        self.entry = place.entry(path)
        self.validity = self.entry.uidvalidity
        self.other = place.entry("INBOX")

    def truth(self):
        rows = self.place.store.open_mailbox(self.entry).rows
        return {int(row["uid"]): {name for name, flag in NAMES.items() if row["flags"] & flag} for row in rows}

    def change(self, what, at, flag):
        store, uids = self.place.store, sorted(self.truth())
        some = uids[at % len(uids):][:2] if uids else []
        if what == "deliver":
            self.place.deliver(self.path, content("one"), Flags(flag))
        elif what == "copy":
            copy_messages(store, self.entry, self.entry, some)
        elif what == "add":
            change_flags(store, self.entry, some, FlagAction.ADD, Flags(flag))
        elif what == "remove":
            change_flags(store, self.entry, some, FlagAction.REMOVE, Flags(flag))
        elif what == "expunge":
            expunge(store, self.entry)
        elif what == "move":
            copy_messages(store, self.entry, self.other, some, remove=True)


OTHERS = st.lists(st.tuples(st.sampled_from(["deliver", "deliver", "copy", "add", "remove", "expunge", "move"]),
                            st.integers(0, 9), st.sampled_from(list(NAMES.values()))), max_size=4)
COMMANDS = [
    "NOOP", "EXPUNGE", "UID EXPUNGE {uid}", "UID MOVE {uid} INBOX", "FETCH 1:* (FLAGS MODSEQ UID)", "SEARCH ALL",
    "UID SEARCH UNSEEN", "UID SEARCH 1:{n}", "FETCH {n} BODY[TEXT]", "UID FETCH 1:* (BODY[TEXT] UID)", "CHECK",
    "UID FETCH 1:* (FLAGS) (CHANGEDSINCE {modseq} VANISHED)", "STORE {n} +FLAGS ({flag})",
    "UID STORE {uid} -FLAGS ({flag})",
    "STORE 1:{n} +FLAGS.SILENT ({flag})", "UID STORE 1:{uid} -FLAGS.SILENT ({flag})",
    "STORE {n} (UNCHANGEDSINCE {modseq}) +FLAGS.SILENT ({flag})",
    "UID STORE 1:* (UNCHANGEDSINCE {modseq}) FLAGS ({flag})",
]
STEPS = st.lists(st.tuples(OTHERS, st.sampled_from(COMMANDS), st.integers(0, 9), st.sampled_from(list(NAMES)),
                           st.none() | st.integers(0, 12), st.booleans(), st.lists(st.integers(0, 20), max_size=4)),
                 min_size=1, max_size=8)


@pytest.mark.parametrize("remembered", [1 << 18, 16, 0])
def test_after_any_break_a_client_knows_as_much_as_a_new_one(place, remembered):
    place.remember(remembered)
    count = 0

    @settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def converse(steps):
        nonlocal count
        count += 1
        box = Box(place, f"box{count}")
        client = Client(place, box)
        for others, command, at, flag, lines, known, match in steps:
            for change in others:
                box.change(*change)
            if client.wire is None:
                client.resync(known, match)
                assert client.cache == box.truth()
            elif client.numbers:
                number = 1 + at % len(client.numbers)
                client.applied = applied(command, flag)
                client.say(command.format(n=number, uid=client.numbers[number - 1], modseq=client.modseq, flag=flag),
                           lines)
                client.applied = None
                client.fresh()
            else:
                client.say("NOOP", lines)
                client.fresh()
        if client.wire is not None:
            client.say("NOOP")
            client.fresh()
            assert client.cache == box.truth()
            client.wire.hang_up()
        client.resync(False, [])
        assert client.cache == box.truth()
        client.wire.hang_up()

    converse()


@pytest.mark.parametrize(("known", "match"), [(True, []), (False, []), (False, [0, 1])])
def test_what_a_client_has_seen_and_was_lost(place, known, match):
    """It has seen flags, an expunge and an arrival that an unclean end, or a failover, has lost: their MODSEQs are
    above all that there is. Later it knows what there is, and STORE fails where it knew better (RFC 7162 §3.1.3)."""
    box = Box(place, "box")
    for _ in range(4):
        box.change("deliver", 0, Flag.SEEN)
    client = Client(place, box)
    client.resync(False, [])
    client.wire.hang_up()
    client.cache[1] = {r"\\Flagged"}
    del client.cache[2]
    client.cache[5], client.complete, client.modseq = set(), 5, client.modseq + 3
    partition, = place.store.partitions.values()
    partition.skip_to(partition.epoch + 1, partition.serials.first_free())
    box.change("deliver", 0, Flag.FLAGGED)
    stale = client.modseq
    client.resync(known, match)
    assert client.cache == box.truth() and len(client.cache) == 5
    client.wire.hang_up()
    client.cache[1], client.modseq = {r"\Flagged"}, client.modseq + (1 << 30)      # another machine's
    client.resync(known, match)
    assert client.cache == box.truth()
    for command in (f"UID FETCH 1:* (FLAGS) (CHANGEDSINCE {stale})", f"UID SEARCH MODSEQ {stale + 1}"):
        said = client.plain(f"x {command}")
        assert len(re.findall(r"FETCH \(", said)) == 5 or "SEARCH 1 2 3 4 " in said
    said = client.plain("x UID FETCH 1 (MODSEQ)")
    seen = int(re.search(r"MODSEQ \((\d+)\)", said)[1])
    assert seen > stale
    assert "[MODIFIED 1]" in client.plain(f"x UID STORE 1 (UNCHANGEDSINCE {stale}) +FLAGS (\\Deleted)")
    assert "MODIFIED" not in client.plain(f"x UID STORE 1 (UNCHANGEDSINCE {seen}) +FLAGS (\\Answered)")
    client.wire.hang_up()


def applied(command, flag):
    """What a .SILENT command does to a message's flags."""
    if ".SILENT" not in command:
        return None
    return (lambda flags: flags | {flag}) if "+" in command else (lambda flags: flags - {flag})
