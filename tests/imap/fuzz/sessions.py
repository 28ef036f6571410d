"""Whole sessions, in memory, of one client or of two on one mailbox: commands and scripts that were cut, spliced and
spoilt, in pieces; some while the store fails.

The octets of an input are choices, so the fuzzer learns which of them lead on.
"""

import logging
import tempfile
import time
from pathlib import Path
from random import Random

import pytest
from attrs import define, evolve, field

from imap.settings import Settings
from store.accounts import passwords
from store.check.wholecheck import check
from store.mailboxes import deletion, firstuse
from store.opening import make_empty_store, open_store
from store.settings import Settings as StoreSettings
from store.store import Store
from store.userarea import writing
from store.users import lifecycle
from store.values import Secret
from tests.imap.fuzz.answers import Client
from tests.imap.fuzz.said import MAIL, SCRIPTED, in_pieces, written
from tests.support.conversations.scripts import Place, Player, content
from tests.support.fuzz.choices import Choices
from tests.support.fuzz.mail import broken
from tests.support.fuzz.steps import counted
from tests.support.fuzz.watch import Loud, due
from tests.support.stores import small
from tests.support.stores.purging import purge_mailboxes

LONGEST = 300               # octets of an input
PLACES = ("/imap/", "/store/net/")      # where steps are counted
SAMPLE = 50                 # of so many sessions one has its steps counted
STEPS = (60_000, 600)       # lines that a piece may take, and for each of its octets: a short FETCH asks for much
KEPT = 10_000               # blocks of memory for what is made only once,
EACH = 20                   # and for each session: atheris loses every array that code which it watches compares
CHECKED = 200               # sessions after which the store is checked
PURGED = 25                 # and after which what was deleted goes
FAILS = ("copy UNAVAILABLE", "flags UNAVAILABLE", "expunge BUSY", "search UNAVAILABLE", "read CORRUPT", "refresh BUSY",
         "open CORRUPT", "status UNAVAILABLE", "list UNAVAILABLE", "deliver DISK_FULL", "stage DISK_FULL",
         "write DISK_FULL", "flushed UNAVAILABLE", "authenticate UNAVAILABLE", "copy bug", "refresh bug", "search bug",
         "status bug")
PAUSES = (0, 1, 11, 30, 121, 301, 1801)
SERVERS = ({}, {}, {}, {}, {"tls": True}, {"peer": "192.0.2.1"}, {"tls": True, "peer": "192.0.2.1"},
           {"bad_commands": 3, "login_attempts": 2},
           {"line_limit": 200, "literal_limit": 50, "early_literal_limit": 20})


@define
class Played:
    """Plays sessions against a store."""

    store: Store
    password: str
    loud: Loud = field(factory=Loud)
    octets: int = 0
    commands: int = 0
    well: int = 0
    users: bool = False

    def play(self, data, count=False):
        """One session; `count`: its steps, too. Raises AssertionError."""
        choices = Choices(data)
        server = choices.one(SERVERS)
        said = in_pieces(choices, written(choices))
        fail, stop = choices.below(5 * len(FAILS)), choices.below(32)
        self.loud.errors.clear()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(logging.getLogger(), "handlers", [self.loud])
            place = Place(self.store, patched)
            self._prepare(place, choices, server)
            for what in FAILS[fail:fail + 1]:
                Player(place).on_fail(what, "")
            self._converse(place, choices, said, stop, count, fails=fail < len(FAILS))
        if fail >= len(FAILS):
            assert not self.loud.errors, self.loud.errors
        assert place.server is None or not place.server.streams, "a connection that has ended still counts"
        assert not place.clock.getDelayedCalls(), "a timer is left"

    def _prepare(self, place, choices, server):
        """New mailboxes, and a server."""
        self.clear()
        for user in ("alice", "bob"):
            firstuse.inbox(self.store, self.store.directory.add(user, self.password))
        self.users = True
        settings = {name: value for name, value in server.items() if name not in ("tls", "peer")}
        place.settings = evolve(Settings(), **settings)
        place.tls = object() if "tls" in server else None
        place.peer = server.get("peer", place.peer)
        for number in range(choices.below(6)):
            place.deliver("INBOX", content(str(number)))
        if choices.below(2):
            place.deliver("INBOX", choices.one(MAIL[:4]))
        if choices.below(4) == 0:
            place.deliver("INBOX", broken(choices)[:20_000] or b"x")
        if choices.below(2):
            place.have("Sent", "one two(\\Seen)")

    def _converse(self, place, choices, said, stop, count, *, fails):
        wires, clients = {}, {}
        for number, (which, octets) in enumerate(said):
            if which not in wires:
                wires[which] = place.connect()
                clients[which] = Client(min(place.settings.early_line_limit, place.settings.line_limit))
                clients[which].greeted(wires[which].received())
            if wires[which].closed:
                continue
            if count:
                counted(PLACES, STEPS[0] + STEPS[1] * len(octets), wires[which].send, octets)
            else:
                wires[which].send(octets)
            clients[which].sent(octets, wires[which].received(), cut_off=fails and wires[which].closed)
            if choices.below(64) == 0:
                place.clock.advance(choices.one(PAUSES))
            if stop == 0 and number == len(said) // 2:
                place.server.stop()
            for other, wire in wires.items():
                wire.settle()
                clients[other].sent(b"", wire.received())
                assert wire.closed == clients[other].over, "it is closed" if wire.closed else "it is not closed"
            assert not due(place.clock), "it is still at work"
        for which, wire in wires.items():
            wire.hang_up()
            self.commands += clients[which].answered
            self.well += clients[which].well
        self.octets += sum(len(octets) for _, octets in said)

    def clear(self):
        """Nobody has anything any more."""
        if not self.users:
            return
        for entry in self.store.names(""):
            deletion.delete_mailbox(self.store, entry.name)
        for user in ("alice", "bob"):
            lifecycle.remove_mail(self.store, user)
            self.store.directory.remove(user)
        self.users = False

    def purge(self):
        """What housekeeping does: what was deleted goes; and nothing may be left of what was on its way."""
        writing.write_changed(self.store, hurry=True)      # or what changed is remembered
        purge_mailboxes(self.store, time.time() + self.store.settings.purge_delay + 1)
        for partition in self.store.partitions.values():
            partition.files.drop_staged_names()
            assert not list(partition.files.staging.iterdir()), "a staged file is left"


@define
class Target:
    """See `tests.support.fuzz.driver`."""

    words = ()
    longest = LONGEST
    kept = KEPT
    each = EACH
    _folder: object = None
    _played: Played = None

    def begin(self):
        """Make a store."""
        memory = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(prefix="onecopy-fuzz-", dir=memory if memory.is_dir() else None)
        root = Path(self._folder.name) / "store"
        small.make()                    # a third of the time would go into hashes otherwise
        make_empty_store(root)
        self._played = Played(open_store(root, StoreSettings(
            message_limit=100_000, disk_reserve=0, cache=4 << 20, special_mailboxes=())),
                              passwords.hash_password(Secret(b"secret")))
        logging.getLogger().setLevel(logging.DEBUG)

    def corpus(self):
        """Each script as it is: line by line and all at once; and choices."""
        for script in range(len(SCRIPTED)):
            yield bytes((0, 0, script, 0, script % 2))
        for number in range(400):
            yield Random(number).randbytes(100)

    def run(self, data, number):
        """One session."""
        self._played.play(data, count=number % SAMPLE == 0)
        if number % PURGED == 0:
            self._played.purge()
        if number % CHECKED == 0:
            self._checked()

    def _checked(self):
        found = check(self._played.store)
        assert found == [], found

    def end(self):
        """The store must be in order."""
        played = self._played
        played.purge()
        self._checked()
        played.store.close()
        self._folder.cleanup()
        return f"{played.octets >> 10} KiB sent, {played.commands} commands, {played.well} of them OK"


TARGET = Target()
