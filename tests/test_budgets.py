"""Work budgets: whatever one client sends, a turn of the event loop is short, and so is every transaction, so that
others go on. Each command of the three protocols is sent as the largest and worst that the limits allow, while another
user does NOOP, SELECT and FETCH between two turns. What is counted is work, not time: see `conversations.turns`.

A command that is added needs its worst input here.
"""

import base64
import itertools
import logging
import tempfile
from pathlib import Path

import pytest
from attrs import evolve

from imap import protocol as imap
from imap.settings import Settings as ImapSettings
from imap.wire.commandlimits import Limits
from imap.wire.commands import COMMANDS as IMAP
from imap.wire.metadata import MAX_ENTRIES
from lmtp import protocol as lmtp
from lmtp.settings import Settings as LmtpSettings
from lmtp.states import COMMANDS as LMTP
from mboxlist.names import MailboxName
from pop3 import protocol as pop3
from pop3.settings import Settings as Pop3Settings
from pop3.states import COMMANDS as POP3
from store import offload
from store.accounts.loginsettings import Settings as LoginSettings
from store.delivery import durable
from store.delivery.commit import Target
from store.mailboxes import deletion, firstuse, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.flagchanges import change_flags
from store.net import authentication
from store.offload import Threads
from store.opening import make_empty_store, open_store
from store.settings import Settings
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.conftest import MEMORY
from tests.support.conversations.turns import PausingThreads, WorkClock, WorkWire, transactions_noted
from tests.support.stores.stores import HASH

MESSAGES = 262_144          # of the largest mailboxes
MAILBOXES = 320             # more than are listed there
TURN_UNITS = 100_000        # calls in one turn at most: about 20 ms
TURN_OCTETS = 32 << 20      # allocated at the same time in a turn at most: an array of all records is 25 MiB
TRANSACTION_UNITS = 12_000  # of work in one transaction at most: about 10 ms (`slices.UNITS` is less)
LIMITS = Limits()


def filled(before: bytes, item: bytes, after: bytes, most: int, *, line: int = LIMITS.line) -> bytes:
    """A line with as many items as it may have; `%d` in the item is its number."""
    words: list[bytes] = []
    room = line - len(before) - len(after) - 8
    for number in range(most):
        word = item % number if b"%d" in item else item
        room -= len(word) + 1
        if room < 0:
            break
        words.append(word)
    return before + b" ".join(words) + after


def message(header: bytes, body: bytes = b"The text.\r\n") -> bytes:
    return b"From: a@example.org\r\nSubject: x\r\n" + header + b"\r\n" + body


HOSTILE = [
    message(b"".join(b"X-%d: a\r\n" % (number % 1000) for number in range(50_000))),
    message(b"A:\r\n" * 100_000),
    message(b"Content-Type: multipart/mixed; boundary=b\r\n", b"--b\r\n\r\nx\r\n" * 12_000 + b"--b--\r\n"),
    message(b"", b"".join(b"Content-Type: message/rfc822\r\n\r\n" for _ in range(300)) + b"Subject: y\r\n\r\nz\r\n"),
    message(b"Content-Type: message/rfc822\r\n", b"Content-Type: message/rfc822\r\n\r\n" * 300 + b"A: y\r\n\r\nz"),
    message(b"To: " + b"a@b.example, " * 40_000 + b"a@b.example\r\n"),
    message(b"References: " + b"<a@b.example> " * 40_000 + b"\r\n"),
    message(b"Subject: " + b"=?utf-8?B?eA==?= " * 30_000 + b"\r\n"),
    message(b"Content-Transfer-Encoding: base64\r\n", base64.encodebytes(bytes(1 << 20)).replace(b"\n", b"\r\n")),
]
SETS = b",".join(b"%d" % number for number in range(1, MESSAGES, 30))        # over all of it, as long as a line may be
UIDS = b",".join(b"%d" % number for number in range(1, MESSAGES, 2))[:65_000].rpartition(b",")[0]
SEARCHES = filled(b"", b"NOT KEYWORD k%d", b"", LIMITS.keys // 2)
NUMBERS = filled(b"", b"NOT 1,3,5:7,9,11:200,1%d:*", b"", LIMITS.keys // 2)
NAME = b"n" * 180
DEEP = b"/".join([b"d"] * 60)
LONG = b"x" * 60_000
ITEMS = filled(b"(", b"BODY.PEEK[HEADER.FIELDS (X-%d)]", b")", LIMITS.items - 1)
PARTS = filled(b"(", b"BODY.PEEK[1%d.MIME]", b")", LIMITS.items - 1)
PORTIONS = filled(b"(", b"BINARY.PEEK[1]<%d000.1000>", b")", LIMITS.items - 1)
ENTRIES = filled(b"", b"/private/entry/%d", b"", MAX_ENTRIES)
FLAGS = filled(b"(", b"k%d", b" \\Flagged \\Answered)", 60)
PATTERNS = b'LIST "" (' + b" ".join(b'"' + b"*a" * 60 + b'%db"' % number for number in range(250)) + b")"
APPENDED = message(b"A:\r\n" * 20_000)
SEVERAL = b"".join(b" {%d+}\r\n%b" % (len(APPENDED), APPENDED) for _ in range(20))


def pipelined(octets: bytes, times: int) -> bytes:
    """So many commands without waiting, each with that message."""
    return b"\r\nx APPEND ".join([b"Drop {%d+}\r\n%b" % (len(octets), octets)] * times)


AHEAD = [pipelined(octets, times) for octets, times in (
    (message(b""), 2000),
    (message(b"Content-Type: multipart/mixed; boundary=b\r\n", b"--b\r\n\r\nx\r\n" * 150 + b"--b--\r\n"), 40),
    (message(b"To: " + b"a@b.example, " * 4_500 + b"a@b.example\r\n"), 20))]

#: Of each command the worst that can be sent, several where one is not enough. `LARGE` has been selected before those
#: that need it; those under `FRESH` are sent by a connection that has not logged in.
WORST_IMAP: dict[bytes, list[bytes]] = {
    b"CAPABILITY": [b""], b"NOOP": [b""], b"LOGOUT": [b""], b"IDLE": [b"\r\nDONE"], b"NAMESPACE": [b""],
    b"CHECK": [b""], b"ID": [b"(" + b" ".join(b'"%d" "%s"' % (number, b"v" * 1000) for number in range(30)) + b")"],
    b"STARTTLS": [b""], b"UNAUTHENTICATE": [b""],
    b"LOGIN": [b"alice " + b"x" * 1000, b"u" * 1000 + b" secret"],
    b"AUTHENTICATE": [b"PLAIN " + base64.b64encode(b"\0alice\0" + b"x" * 700), b"SCRAM-SHA-256 " + b"biws" * 200],
    b"ENABLE": [filled(b"", b"X-%d", b"", 20_000)],
    b"SELECT": [b"Large", b"Large (QRESYNC (1 1 1:20000))"], b"EXAMINE": [b"Large", LONG],
    b"CREATE": [DEEP, NAME, LONG], b"DELETE": [b"Parent", LONG], b"RENAME": [b"Parent Renamed", b"Renamed Parent"],
    b"SUBSCRIBE": [NAME, LONG], b"UNSUBSCRIBE": [NAME, LONG],
    b"LIST": [PATTERNS.removeprefix(b"LIST "), b'"" * RETURN (STATUS (MESSAGES UNSEEN SIZE DELETED-STORAGE RECENT))',
              b'(RECURSIVEMATCH SUBSCRIBED) "" (' + b'"%" ' * 250 + b'"*")', b'"" "' + b"*%" * 30_000 + b'"'],
    b"LSUB": [b'"" "' + b"*a" * 20_000 + b'"', b'"" *'],
    b"STATUS": [b"Large (MESSAGES UIDNEXT UNSEEN SIZE DELETED DELETED-STORAGE RECENT HIGHESTMODSEQ)"],
    b"SETACL": [b"Acl " + NAME + b" lrswipkxtea", b"Acl bob " + LONG], b"DELETEACL": [b"Acl " + NAME],
    b"GETACL": [b"Acl"], b"LISTRIGHTS": [b"Acl " + NAME], b"MYRIGHTS": [b"Acl"],
    b"GETMETADATA": [b"(DEPTH infinity MAXSIZE 1) Large (" + ENTRIES + b")"],
    b"SETMETADATA": [b"Large (" + b" ".join(
        b'/private/entry/%d "%b"' % (number, b"x" * 4000) for number in range(15)) + b")"],
    b"GETQUOTA": [b"alice", LONG], b"GETQUOTAROOT": [b"Large", LONG],
    b"SETQUOTA": [filled(b"alice (", b"X-%d 1", b")", 10_000)],
    b"APPEND": [b"Drop" + SEVERAL, b"Drop " + FLAGS + b" {%d+}\r\n%b" % (len(HOSTILE[2]), HOSTILE[2]), *AHEAD],
    b"CLOSE": [b""], b"UNSELECT": [b""], b"EXPUNGE": [b""], b"UID EXPUNGE": [UIDS],
    b"SEARCH": [SEARCHES, b"TEXT nothing-like-it", b"(" * 99 + b"ALL" + b")" * 99, b"NOT " * 99 + b"ALL",
                b"RETURN (MIN MAX COUNT ALL) OR SUBJECT x FROM y", SETS],
    b"UID SEARCH": [b"UID " + UIDS, b"NOT UID " + UIDS],
    b"SORT": [b"(SUBJECT FROM TO CC REVERSE DATE SIZE) UTF-8 ALL"],
    b"UID SORT": [b"(ARRIVAL) UTF-8 " + NUMBERS], b"THREAD": [b"REFERENCES UTF-8 ALL", b"ORDEREDSUBJECT UTF-8 ALL"],
    b"UID THREAD": [b"REFERENCES UTF-8 NOT KEYWORD k"],
    b"FETCH": [b"1:20000 (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)", SETS + b" FLAGS",
               b"1:5000 BODY.PEEK[HEADER.FIELDS (SUBJECT X-A)]", b"1:500 BODY[]"],
    b"UID FETCH": [b"1:* (FLAGS) (CHANGEDSINCE 1 VANISHED)", b"1:5000 (BODY.PEEK[HEADER])", UIDS + b" FLAGS"],
    b"STORE": [b"1:* +FLAGS " + FLAGS, b"1:* -FLAGS.SILENT (\\Flagged)", SETS + b" +FLAGS (\\Seen)"],
    b"UID STORE": [b"1:* (UNCHANGEDSINCE 1) +FLAGS (\\Draft)", b"1:* FLAGS.SILENT (\\Deleted)"],
    b"COPY": [b"1:* Copies", SETS + b" Copies"], b"UID COPY": [b"1:* Large"],
    b"MOVE": [b"1:* Moved"], b"UID MOVE": [UIDS + b" Moved"],
}
#: What is sent to the mailbox with the worst messages.
WORST_MESSAGES = [b"FETCH 1:* (ENVELOPE BODYSTRUCTURE)", b"FETCH 1:* " + ITEMS, b"FETCH 3:5 " + PARTS,
                  b"FETCH 9 " + PORTIONS, b"FETCH 1:* BODY.PEEK[HEADER.FIELDS.NOT (X-1)]", b"FETCH 1:* BODY.PEEK[]",
                  b"FETCH 9 (BINARY.PEEK[1] BINARY.SIZE[1])", b"SEARCH HEADER A b", b"SEARCH BODY x",
                  b"SORT (SUBJECT TO) UTF-8 ALL", b"THREAD REFERENCES UTF-8 ALL"]
FRESH = {b"STARTTLS", b"LOGIN", b"AUTHENTICATE"}
EXPUNGES = {b"EXPUNGE", b"UID EXPUNGE", b"CLOSE"}
REFUSED = FRESH | {b"ENABLE", b"SETQUOTA", b"CREATE", b"GETQUOTA"}       # their worst asks for too much, or is wrong

WORST_POP3: dict[bytes, list[bytes]] = {
    b"CAPA": [b"CAPA"], b"STLS": [b"STLS"], b"USER": [b"USER " + b"u" * 500], b"PASS": [b"PASS " + b"x" * 500],
    b"AUTH": [b"AUTH PLAIN " + base64.b64encode(b"\0carol\0" + b"x" * 300)], b"STAT": [b"STAT"],
    b"LIST": [b"LIST", b"LIST 12000"], b"RETR": [b"RETR 1"], b"DELE": [b"DELE %d" % number for number in range(1, 400)],
    b"NOOP": [b"NOOP"], b"RSET": [b"RSET"], b"TOP": [b"TOP 1 1000000"], b"UIDL": [b"UIDL"], b"LAST": [b"LAST"],
    b"UTF8": [b"UTF8"], b"LANG": [b"LANG " + b"l" * 500], b"QUIT": [b"QUIT"],
}
POP3_FRESH = {b"STLS", b"USER", b"PASS", b"AUTH", b"UTF8"}

RECIPIENTS = b"".join(b"RCPT TO:<u%d@example.org>\r\n" % number for number in range(1000))
WORST_LMTP: dict[bytes, bytes] = {
    b"LHLO": b"LHLO " + b"x" * 2000, b"MAIL": b"MAIL FROM:<" + b"a" * 1900 + b"@example.org>",
    b"RCPT": b"MAIL FROM:<>\r\n" + RECIPIENTS + b"RCPT TO:<alice>\r\nRSET",
    b"DATA": b"MAIL FROM:<>\r\nRCPT TO:<alice>\r\nRCPT TO:<carol>\r\nDATA\r\n" + HOSTILE[2] + b"\r\n"
             + b"..\r\n" * 20_000 + b".",
    b"BDAT": b"MAIL FROM:<>\r\nRCPT TO:<alice>\r\n" + b"BDAT 1\r\nx" * 3000 + b"BDAT %d LAST\r\n" % len(HOSTILE[1])
             + HOSTILE[1],
    b"RSET": b"RSET", b"NOOP": b"NOOP " + b"x" * 2000, b"VRFY": b"VRFY " + b"x" * 2000, b"HELP": b"HELP " + b"x" * 2000,
    b"STARTTLS": b"STARTTLS", b"AUTH": b"AUTH PLAIN " + base64.b64encode(b"\0alice\0" + b"x" * 700),
    b"XCLIENT": b"XCLIENT ADDR=" + b"1" * 1900, b"QUIT": b"QUIT",
}


@pytest.fixture(scope="module")
def filled_store():
    """alice with a large mailbox, hostile messages and many mailboxes; bob with a small one; carol with a maildrop."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY) as folder:
        root = Path(folder) / "store"
        make_empty_store(root)
        store = open_store(root, Settings(disk_reserve=0, special_mailboxes=()))
        authentication.attach(store, LoginSettings(slow_first=0))
        boxes = {user: firstuse.inbox(store, store.directory.add(user, HASH)) for user in ("alice", "bob", "carol")}
        for number in range(40):
            deliver(store, boxes["bob"], message(b"Message-ID: <%d@example.org>\r\n" % number))
        few = store.open_mailbox(boxes["bob"]).rows["uid"]
        alice = {name: namespace.create_mailbox(store, MailboxName("alice", name))
                 for name in ("Large", "Hostile", "Drop", "Copies", "Moved", "Acl", "Parent")}
        for target in (alice["Large"], boxes["carol"]):
            copy_messages(store, boxes["bob"], target, few)
            fill(store, target)
        for octets in HOSTILE:
            deliver(store, alice["Hostile"], octets)
        for number in range(MAILBOXES):
            namespace.create_mailbox(store, MailboxName("alice", f"Parent/{'a' * 150}{number}"))
        yield store
        store.close()


def fill(store, entry):
    """Have as many messages in it as a large one has."""
    while (missing := MESSAGES - store.status(entry).messages) > 0:
        copy_messages(store, entry, entry, store.open_mailbox(entry).rows["uid"][:missing])


def deliver(store, entry, octets):
    staged = store.stage(entry)
    staged.write(octets)
    offload.now(durable.deliver(store, staged, [Target(entry)], InternalDate(1_000_000_000)))


class Budget:
    """The clock of a server, and a bystander who says something between any two turns of an attack."""

    def __init__(self, store):
        self.store = store
        self.clock = WorkClock()
        store.owned.put(Threads, PausingThreads(self.clock))
        settings = ImapSettings(plaintext_login=True)
        self.servers = {"imap": imap.factory(store, evolve(settings, command_time=1e9), self.clock),
                        "pop3": pop3.factory(store, Pop3Settings(plaintext_login=True), self.clock),
                        "lmtp": lmtp.factory(store, LmtpSettings(), self.clock)}
        self.bystander = self.connect("imap")
        self.say(self.bystander, b"LOGIN bob secret")
        self._beat = itertools.cycle((b"NOOP", b"SELECT INBOX", b"FETCH 1:* (UID FLAGS)"))
        self._busy = False
        self.served = 0

    def connect(self, protocol):
        return WorkWire(self.servers[protocol], self.clock)

    def say(self, wire, command, tag=b"a"):
        wire.send(tag + b" " + command + b"\r\n")
        return wire.received()

    def live(self):
        """One command of the bystander's: it is answered in the same turn."""
        if not self._busy:
            self._busy, between, weighing = True, self.clock.between, self.clock.weighing
            self.clock.weighing = False
            assert b"b OK" in self.say(self.bystander, next(self._beat), b"b")
            self.served += 1
            self._busy, self.clock.between, self.clock.weighing = False, between, weighing

    def attack(self, wire, octets):
        """Have it sent: no turn, and no transaction, is longer than it may be. What the client was told."""
        self.clock.longest = self.clock.largest = 0
        with transactions_noted() as changes:
            self.clock.between, self.clock.weighing = self.live, True
            wire.send(octets)
            self.clock.between, self.clock.weighing = lambda: None, False
        self.live()
        assert self.clock.longest <= TURN_UNITS
        assert self.clock.largest <= TURN_OCTETS
        largest = {}
        for txn, work in changes:
            largest[id(txn)] = largest.get(id(txn), 0) + work
        assert max(largest.values(), default=0) <= TRANSACTION_UNITS
        return wire.received()


@pytest.fixture
def budget(filled_store, caplog):
    yield Budget(filled_store)
    assert not [record for record in caplog.records if record.exc_info and record.levelno >= logging.ERROR]


def test_every_command_has_its_worst():
    assert WORST_IMAP.keys() == IMAP.keys()
    assert WORST_POP3.keys() == POP3.keys()
    assert WORST_LMTP.keys() == LMTP.keys()


def test_no_worst_is_longer_than_a_line_may_be():
    assert all(len(line) <= LIMITS.line for lines in WORST_IMAP.values() for rest in lines
               for line in rest.split(b"\r\n") if b"{" not in rest)


def all_as_before(store, name):
    """The large mailbox, with UIDs from 1 on; all messages have \\Deleted if they are to be expunged."""
    large = store.entry(MailboxName("alice", "Large"))
    if (status := store.status(large)).messages != MESSAGES or status.uidnext != MESSAGES + 1:
        deletion.delete_mailbox(store, large.name)
        full = store.entry(MailboxName("carol", "INBOX"))
        large = namespace.create_mailbox(store, large.name)
        copy_messages(store, full, large, store.open_mailbox(full).rows["uid"])
    action = FlagAction.ADD if name in EXPUNGES else FlagAction.REMOVE
    change_flags(store, large, store.open_mailbox(large).rows["uid"], action, Flags(Flag.DELETED))


@pytest.mark.parametrize("name", IMAP, ids=lambda name: name.decode())
def test_imap(budget, name):
    for rest in WORST_IMAP[name]:
        all_as_before(budget.store, name)
        wire = budget.connect("imap")
        if name not in FRESH:
            assert b"a OK" in budget.say(wire, b"LOGIN alice secret\r\na ENABLE QRESYNC\r\na SELECT Large")
        blank = b" " if rest and not rest.startswith(b"\r\n") else b""
        said = budget.attack(wire, b"x " + name + blank + rest + b"\r\n")
        assert b"x OK" in said or name in REFUSED or rest in (LONG, DEEP), said[-200:]
        wire.hang_up()


@pytest.mark.parametrize("command", WORST_MESSAGES, ids=range(len(WORST_MESSAGES)))
def test_imap_on_the_worst_messages(budget, command):
    wire = budget.connect("imap")
    budget.say(wire, b"LOGIN alice secret")
    budget.say(wire, b"SELECT Hostile")
    assert b"x OK" in budget.attack(wire, b"x " + command + b"\r\n")


@pytest.mark.parametrize("name", POP3, ids=lambda name: name.decode())
def test_pop3(budget, name):
    wire = budget.connect("pop3")
    if name not in POP3_FRESH:
        wire.send(b"USER carol\r\nPASS secret\r\n")
    wire.received()
    assert budget.attack(wire, b"".join(line + b"\r\n" for line in WORST_POP3[name]))
    wire.hang_up()


@pytest.mark.parametrize("name", LMTP, ids=lambda name: name.decode())
def test_lmtp(budget, name):
    wire = budget.connect("lmtp")
    wire.send(b"LHLO relay.example.org\r\n" if name != b"LHLO" else b"")
    wire.received()
    assert budget.attack(wire, WORST_LMTP[name] + b"\r\n")
    wire.hang_up()
