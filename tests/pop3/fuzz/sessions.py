"""Whole sessions, in memory: scripts that were cut, spliced and spoilt, in pieces, at all kinds of servers, while
others change the maildrop.

The octets of an input are choices (`Choices`): which script, which server, what is done to the script. So the fuzzer
learns which choices lead on.
"""

import logging
import tempfile
from pathlib import Path
from random import Random

import pytest
from attrs import define, evolve, field

from pop3.settings import Settings
from store.check.wholecheck import check
from store.mailboxes.expunge import remove
from store.mailboxes.uidllist import give
from tests.pop3.fuzz.answers import Client
from tests.pop3.fuzz.parsers import MESSAGES, PLACES
from tests.pop3.place import PASSWORD, SCRIPTS, Place, said
from tests.support.fuzz import changes
from tests.support.fuzz.choices import Choices, in_pieces
from tests.support.fuzz.steps import counted
from tests.support.fuzz.watch import Loud, due
from tests.support.stores.purging import purge

LONGEST = 300               # octets of an input
SAMPLE = 100                # of so many sessions one has its steps counted
STEPS = (20_000, 60)        # lines that a session may take, and for each of its octets
KEPT = 1500                 # blocks of memory for what is made only once, however many sessions there are
SETTLED = 500               # sessions after which what was removed is purged
FEWEST, MOST = 3, 40        # messages in INBOX when a session begins

PLAIN = Settings(bad_commands=1000)
SERVERS = (                 # settings, TLS, the client's address
    (PLAIN, True, "127.0.0.1"), (PLAIN, True, "192.0.2.1"), (PLAIN, False, "2001:db8::1"), (Settings(), False,
                                                                                            "127.0.0.1"),
    (evolve(PLAIN, sharing="shared", mark_seen=True, last=True), False, "127.0.0.1"),
    (evolve(PLAIN, order="date", uidl_format="%v.%u", utf8="refuse"), False, "127.0.0.1"),
    (evolve(PLAIN, leave_on_server=False, utf8="off", login_rate=3), False, "127.0.0.1"),
    (evolve(PLAIN, expire=86400, expire_for="bob=2d", expire_removes=True, uidl_format="%u"), True, "127.0.0.1"),
    (evolve(PLAIN, login_delay=60, login_delay_for="mrose=5", line_limit=300, login_attempts=1), False, "127.0.0.1"),
)
LOGIN = b"USER mrose\r\nPASS " + PASSWORD + b"\r\n"
SCRAPS = (
    LOGIN, LOGIN, LOGIN, b"AUTH PLAIN AG1yb3NlAHRhbnN0YWFm\r\n", b"AUTH PLAIN\r\n", b"AG1yb3NlAHRhbnN0YWFm\r\n",
    b"*\r\n",
    b"AUTH\r\n", b"CAPA\r\n", b"STAT\r\n", b"LIST\r\n", b"UIDL\r\n", b"LIST 1\r\n", b"UIDL 2\r\n", b"RETR 1\r\n",
    b"RETR 2\r\n",
    b"RETR 3\r\n", b"RETR 4\r\n", b"TOP 1 0\r\n", b"TOP 2 1\r\n", b"TOP 3 99\r\n", b"DELE 1\r\n", b"DELE 3\r\n",
    b"RSET\r\n",
    b"NOOP\r\n", b"LAST\r\n", b"LANG\r\n", b"LANG en\r\n", b"LANG *\r\n", b"UTF8\r\n", b"STLS\r\n", b"QUIT\r\n",
    b"XYZZY\r\n",
    b"USER \xc3\xa4\r\n", b"PASS \xff\r\n", b"\r\n", b"\n", b"\r", b"\0", b"\xff", b" ", b"x" * 600 + b"\r\n",
    b"retr 1 \r\n",
    b"LIST 0\r\n", b"LIST 9999999999\r\n", b"DELE -1\r\n")
PAUSES = (0, 1, 30, 61, 181, 601, 86400)
OTHERS = ("message", "message", "expunge", "purge", "uidl", "stop")         # what happens beside a session

SCRIPTED = [lines for lines in (list(said(path.read_text())) for path in sorted(SCRIPTS.glob("*.txt"))) if lines]


def written(choices):
    """The lines of a session: a script, and what was done to it."""
    lines = list(choices.one(SCRIPTED))
    if choices.below(2):
        lines[:0] = [LOGIN]
    for _ in range(choices.below(6)):
        at = choices.below(len(lines) + 1)
        choices.one(CHANGES)(choices, lines, at)
    return lines[:200]


def insert(choices, lines, at):
    """Something comes between."""
    lines[at:at] = [choices.one(SCRAPS) for _ in range(1 + choices.below(6))]


CHANGES = (changes.remove, changes.repeat, changes.exchange, changes.spliced(SCRIPTED), insert, insert, insert,
           changes.spoil, changes.shorten)


@define
class Played:
    """Plays sessions against a store."""

    place: Place
    loud: Loud = field(factory=Loud)
    octets: int = 0
    answers: int = 0

    def play(self, data, count=False):
        """One session; `count`: its steps, too. Raises AssertionError."""
        choices = Choices(data)
        settings, tls, peer = choices.one(SERVERS)
        pieces = in_pieces(choices, written(choices))
        self.refill(choices)
        self.place.clock.advance(61)            # what one session has done is no other's login delay
        self.loud.errors.clear()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(logging.getLogger(), "handlers", [self.loud])
            server = self.place.server(settings, object() if tls else None)
            wire = self.place.connect(server, peer)
            try:
                self._connected(server, wire, pieces, choices, count)
            finally:
                wire.hang_up()
                self.place.wires.clear()
        assert not self.loud.errors, self.loud.errors
        assert not server.streams, "a connection that has ended still counts"
        assert not self.place.clock.getDelayedCalls(), "a timer is left"

    def _connected(self, server, wire, pieces, choices, count):
        client = Client()
        client.greeted(wire.received())
        for piece in pieces:
            if wire.closed:
                break
            if count:
                counted(PLACES, STEPS[0] + STEPS[1] * len(piece), wire.send, piece)
            else:
                wire.send(piece)
            client.sent(piece, wire.received())
            if choices.below(32) == 0:
                self.place.clock.advance(choices.one(PAUSES))
                client.sent(b"", wire.received())
            if choices.below(16) == 0:
                self.beside(server, choices.one(OTHERS))
                client.sent(b"", wire.received())
            assert not client.over or wire.closed
            assert not due(self.place.clock), "it is still at work"
        self.octets += sum(map(len, pieces))
        self.answers += client.answers

    def beside(self, server, what):
        """Another session, or a relay, changes something."""
        uids = self.place.uids()
        if what == "stop":
            server.stop()
        elif what == "message" and len(uids) < MOST:
            self.place.deliver(MESSAGES[len(uids) % len(MESSAGES)])
        elif what == "uidl" and uids:
            give(self.place.store, self.place.inbox, {uids[0]: b"own-%d" % uids[0]})
        elif uids:
            self.place.expunge(uids[-1])
            if what == "purge":
                purge(self.place.store.partition_of(self.place.inbox), 2**31)

    def refill(self, choices):
        """As many messages as a session needs."""
        uids = self.place.uids()
        if len(uids) > MOST:
            remove(self.place.store, self.place.inbox, uids[FEWEST:])
        for number in range(FEWEST - len(uids)):
            self.place.deliver(MESSAGES[(number + choices.below(4)) % len(MESSAGES)])


@define
class Target:
    """See `tests.support.fuzz.driver`."""

    words = ()
    longest = LONGEST
    kept = KEPT
    _folder: object = None
    _played: Played = None

    def begin(self):
        """Make a store."""
        self._folder = tempfile.TemporaryDirectory(prefix="onecopy-fuzz-")
        self._played = Played(Place(Path(self._folder.name) / "store"))
        logging.getLogger().setLevel(logging.DEBUG)

    def corpus(self):
        """Each script at each kind of server, as it is: line by line and all at once."""
        for server in range(len(SERVERS)):
            for script in range(len(SCRIPTED)):
                yield bytes((server, script, 0, (server + script) % 2))
        for number in range(200):
            yield Random(number).randbytes(100)

    def run(self, data, number):
        """One session."""
        self._played.play(data, count=number % SAMPLE == 0)
        if number % SETTLED == 0:
            place = self._played.place
            partition = place.store.partition_of(place.inbox)
            partition.files.drop_staged_names()
            purge(partition, 2**31)

    def end(self):
        """The store must be in order."""
        store = self._played.place.store
        assert check(store) == []
        store.close()
        self._folder.cleanup()
        return f"{self._played.octets >> 10} KiB sent, {self._played.answers} answers read"


TARGET = Target()
