"""Whole sessions, in memory: scripts that were cut, spliced and spoilt, in pieces, from all kinds of peers.

The octets of an input are choices (`Choices`): which script, which server, what is done to the script. So the fuzzer
learns which choices lead on.
"""

import logging
import re
import tempfile
from pathlib import Path
from random import Random

import pytest
from attrs import define, field

from lmtp.settings import Settings
from store.check.wholecheck import check
from store.opening import make_empty_store, open_store
from store.settings import Settings as StoreSettings
from store.store import Store
from tests.lmtp.conversation import SCRIPTS, SENDING, Place, Step, Tls, read_script, sent
from tests.lmtp.fuzz.answers import Client
from tests.lmtp.fuzz.parsers import PLACES
from tests.support.fuzz.changes import exchange, remove, repeat, shorten, spliced, spoil
from tests.support.fuzz.choices import Choices, in_pieces
from tests.support.fuzz.steps import counted
from tests.support.fuzz.watch import Loud, due
from tests.support.stores import small

LONGEST = 400               # octets of an input
MESSAGE_LIMIT = 200_000     # more than what is kept in memory before it goes to a file
SAMPLE = 50                 # of so many sessions one has its steps counted
STEPS = (20_000, 30)        # lines that a session may take, and for each of its octets
KEPT = 1000               # blocks of memory for what is made only once, however many sessions there are
SETTLED = 500               # sessions after which the second names of message files are all there are
USERS = ("alice; bob alias=info@example.org; carol; pat; jörg; relay password=secret; away password=secret; "
         "green room=100; full room=0; small room=1000; on-leave inactive; moving hold; gone disabled; old deleted; "
         "stuffed overquota; alice/box; alice/Lists/dev; bob/Lists; public/news; public/staff")

# What a server and its peer can be: settings, the client's address, the names of its certificate.
SERVERS = tuple((words.split(), peer, names) for words, peer, names in (
    ("tls", "127.0.0.1", ()),
    ("tls trusted_networks=127.0.0.1,local error_limit=1000", "127.0.0.1", ()),
    ("trusted_networks=127.0.0.1 networks=192.0.2.0/24 auth_users=relay delivered_to=yes", "127.0.0.1", ()),
    ("trusted_networks=192.0.2.0/24,2001:db8::/32 create_mailbox=yes idle_commands=100", "2001:db8::7", ()),
    ("tls auth_users=relay error_limit=50", "192.0.2.1", ()),
    ("implicit_tls auth_users=relay,away error_limit=50", "192.0.2.1", ()),
    ("tls client_ca=/ca.pem client_names=mx.example.org", "192.0.2.1", ("mx.example.org",)),
    ("implicit_tls client_ca=/ca.pem client_names=mx.example.org", "2001:db8::1", ("www.example.org",)),
    ("guaranteed", "::1", ()),
    ("create_mailbox=subscribed separator=- delivered_to=yes duplicate_window=3600", "127.0.0.1", ()),
    ("command_limit=512 recipient_limit=100 idle_commands=100 error_limit=3 swallow_limit=100000", "127.0.0.1", ()),
    ("networks=192.0.2.0/24", "192.0.2.1", ()),
    ("connections=1", "127.0.0.1", ()),
    ("", "203.0.113.9", ()),
))

_ADDRESSES = ("alice", "bob+Lists", "info@example.org", "jörg", "green", "full", "stuffed", "moving", "public+news",
              "nobody", "alice+a/b/c", '"alice"', "Postmaster")
_PARAMETERS = (" SIZE=10", " SIZE=99999999", " BODY=BINARYMIME", " SMTPUTF8", " AUTH=<>", " IGNOREQUOTA",
               " XQUOTA=100000,-2", " XQUOTA=1", " SIZE=1 SIZE=2", " =")

# What goes between the lines of a script.
SCRAPS = (
    *(f"RCPT TO:<{address}>\r\n".encode() for address in _ADDRESSES),
    *(f"RCPT TO:<alice>{parameter}\r\n".encode() for parameter in _PARAMETERS),
    *(f"MAIL FROM:<alice@example.org>{parameter}\r\n".encode() for parameter in _PARAMETERS),
    "MAIL FROM:<jörg@bücher.example> SMTPUTF8\r\n".encode(), b"MAIL FROM:<>\r\n", b"LHLO a\r\n", b"DATA\r\n", b".\r\n",
    b"RSET\r\n", b"NOOP\r\n", b"QUIT\r\n", b"STARTTLS\r\n", b"HELO a\r\n", b"VRFY alice\r\n", b"HELP\r\n", b"FLY\r\n",
    b"AUTH PLAIN AHJlbGF5AHNlY3JldA==\r\n", b"AUTH PLAIN\r\n", b"AHJlbGF5AHNlY3JldA==\r\n", b"*\r\n",
    b"AUTH LOGIN cmVsYXk=\r\n", b"c2VjcmV0\r\n", b"AUTH SCRAM-SHA-1 biwsbj1yZWxheSxyPWFiYw==\r\n",
    b"XCLIENT ADDR=192.0.2.7 NAME=relay.example.net\r\n", b"XCLIENT ADDR=203.0.113.9\r\n", b"XCLIENT LOGIN=a+0Ab\r\n",
    b"XCLIENT ADDR=IPV6:::1 HELO=[UNAVAILABLE]\r\n", b"BDAT x\r\n", b"BDAT 0 LAST\r\n", b"BDAT 0\r\n",
    b"BDAT 10 LAST\r\n1234567890", b"BDAT 10\r\n1234567890", b"BDAT 99999999999999999999\r\n", b"bdat\t  3 last\r\nabc",
    b"\r\n", b"\n", b"\r", b"\0", b"\xff", b"\r\n.\r\n", b"\n.\n", b"..\r\n", b"x" * 600 + b"\r\n", b"x" * 3000,
    b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n", b"Message-ID: <1@x>\r\n",
)
BIG = (b"x" * 998 + b"\r\n") * 150
FAILS = ("deliver DISK_FULL", "stage DISK_FULL", "write DISK_FULL", "look_up UNAVAILABLE", "authenticate UNAVAILABLE")
PAUSES = (0, 1, 30, 181, 301, 700)


def read_scripts():
    """What the client says in each script, line by line."""
    scripts = []
    for path in sorted(SCRIPTS.glob("*.txt")):
        lines = [sent(step) for step in read_script(path.stem) if step.kind in SENDING]
        scripts.append([line for line in lines if len(line) <= 5000])
    return [script for script in scripts if script]


SCRIPTED = read_scripts()


def written(choices):
    """The lines of a session: a script, and what was done to it."""
    lines = list(choices.one(SCRIPTED))
    for _ in range(choices.below(6)):
        at = choices.below(len(lines) + 1)
        choices.one(CHANGES)(choices, lines, at)
    return lines[:300]


def insert(choices, lines, at):
    """Something comes between."""
    lines[at:at] = [choices.one(SCRAPS) for _ in range(1 + choices.below(4))]


def insert_message(choices, lines, at):
    """A message of its own comes between, by DATA or by BDAT."""
    lines[at:at] = [b"RSET\r\n", b"LHLO a\r\n", b"MAIL FROM:<>\r\n", b"RCPT TO:<alice>\r\n",
                    *[choices.one(SCRAPS[:len(_ADDRESSES)]) for _ in range(choices.below(4))],
                    choices.one((b"DATA\r\nSubject: a\r\n\r\ntext\r\n.\r\n", b"BDAT 4\r\ntextBDAT 3 LAST\r\nend",
                                 b"BDAT 12 LAST\r\nSubject: b\r\n"))]


def insert_much(choices, lines, at):
    """A message that is not kept in memory, or does not fit into the limit; rarely, for it takes long."""
    count = (0, 0, 0, 0, 0, 0, 1, 2)[choices.below(8)]
    lines[at:at] = [*[b"BDAT %d\r\n" % (count * len(BIG))] * choices.below(2), *[BIG] * count]


def add_parameter(choices, lines, at):
    """A MAIL or RCPT, if there is one, has one more."""
    for number, line in enumerate(lines[at:], at):
        if line.upper().startswith((b"MAIL", b"RCPT")):
            lines[number] = line.removesuffix(b"\r\n") + choices.one(_PARAMETERS).encode() + b"\r\n"
            return


def lie(choices, lines, at):
    """A BDAT, if there is one, says another size."""
    for number, line in enumerate(lines[at:], at):
        if match := re.match(rb"(BDAT +)(\d+)", line, re.IGNORECASE):
            size = max(0, int(match[2]) + choices.one((-5, -2, -1, 1, 2, 10, 100_000)))
            lines[number] = match[1] + b"%d" % size + line[match.end():]
            return


CHANGES = (remove, repeat, exchange, spliced(SCRIPTED), insert, insert, insert_message, insert_much, spoil, shorten,
           add_parameter, lie)


@define
class Played:
    """Plays sessions against a store."""

    store: Store
    loud: Loud = field(factory=Loud)
    octets: int = 0
    taken: int = 0

    def prepare(self):
        """The users of all scripts."""
        place = Place(self.store, pytest.MonkeyPatch())
        place.prepare([Step(1, "have", USERS)])
        place.wire.hang_up()

    def play(self, data, count=False):
        """One session; `count`: its steps, too. Raises AssertionError."""
        choices = Choices(data)
        words, peer, names = choices.one(SERVERS)
        pieces = in_pieces(choices, written(choices))
        steps = [Step(1, "with", " ".join(words))] if words else []
        stop, fail, another = (choices.below(16) for _ in range(3))
        steps += [Step(1, "certificate", name) for name in names]
        steps += [Step(1, "fail", what) for what in FAILS[fail:fail + 1]]
        self.loud.errors.clear()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(logging.getLogger(), "handlers", [self.loud])
            place = Place(self.store, patched, Settings(hostname="store.example.org"), Tls(), peer)
            place.prepare(steps)
            others = [place.wire] * (another == 0)
            if others:
                place.connect()
            self._connected(place, Client(place.settings.command_limit), pieces, choices, stop == 0, count)
            for wire in others:
                wire.hang_up()
        assert not self.loud.errors, self.loud.errors
        assert not place.factory.streams, "a connection that has ended still counts"
        assert not place.clock.getDelayedCalls(), "a timer is left"

    def _connected(self, place, client, pieces, choices, stop, count):
        wire = place.wire
        client.greeted(wire.received())
        for number, piece in enumerate(pieces):
            if wire.closed:
                break
            if count:
                counted(PLACES, STEPS[0] + STEPS[1] * len(piece), wire.send, piece)
            else:
                wire.send(piece)
            client.sent(piece, wire.received())
            if choices.below(64) == 0:
                place.clock.advance(choices.one(PAUSES))
                client.sent(b"", wire.received())
            if stop and number == len(pieces) // 2:
                place.factory.stop()
                client.sent(b"", wire.received())
            assert wire.closed == client.over
            assert not due(place.clock), "it is still at work"
        wire.hang_up()
        self.octets += sum(map(len, pieces))
        self.taken += client.taken

    def settle(self):
        """Nothing may be left of what was on its way."""
        for partition in self.store.partitions.values():
            partition.files.drop_staged_names()
            assert not list(partition.files.staging.iterdir()), "a staged file is left"


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
        root = Path(self._folder.name) / "store"
        small.make()                    # a tenth of the time would go into hashes otherwise
        make_empty_store(root)
        self._played = Played(open_store(root, StoreSettings(
            message_limit=MESSAGE_LIMIT, disk_reserve=0, special_mailboxes=())))
        self._played.prepare()
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
            self._played.settle()

    def end(self):
        """The store must be in order."""
        played = self._played
        played.settle()
        assert check(played.store) == []
        played.store.close()
        self._folder.cleanup()
        return f"{played.octets >> 10} KiB sent, {played.taken} copies delivered"


TARGET = Target()
