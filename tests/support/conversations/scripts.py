r"""Plays IMAP conversations written as text (tests/scripts/imap/*.txt) against the server: here in memory,
`over_tls` beside it on sockets.

    # ...                                   a comment
    have: INBOX one two(\Deleted); Sent     alice's mailboxes, and messages by their subjects, with flags
    have: C and C2 have selected INBOX      (examined; is logged in) before the script begins
    with: login_attempts=2 tls peer=192.0.2.1 clear=yes
                                            settings of the server, a context for STARTTLS, where clients come from
    C: a1 NOOP $uid                         a line from the client; lines that follow each other are one batch
    C~: \x00\r\n                            octets from the client; no line end is added. * 1000 after them repeats them
    S: a1 OK ...                            a line from the server: a last ... is any text, $name captures, must match
    S: ...                                  any untagged lines, up to one like the next S line
    S~: \x00                                octets from the server, which need not end a line
    C2: S2: C3: S3:                         the same for further connections, which open when they first say something
    ascending: $first $second               each of these numbers is greater than the one before
    nothing:                                nothing has come
    closed:                                 the server has ended the connection (it has not, where this is not said)
    time: 300     stop:     hangup:     tls:      what else may happen; tls: a handshake was asked for
    deliver: INBOX four                     a message arrives
    mail: INBOX Subject: one | Date: ...    one with this header arrives (" | " between the fields)
    message: INBOX (\Seen)                  a message arrives with these flags, made of the lines that follow:
    | Subject: one                          one of its lines, which ends in CRLF; octets may be written as escapes
    lose: INBOX 2                           the file of a UID is gone
    remember: 8                             so many octets of expunged UIDs are kept on record for a mailbox
    acl: user/bob/Team alice lrs            what an identifier may do with a mailbox (- for nothing)
    quota: 1000      quota: messages 2      alice's limit
    account: disabled                       alice's status; or `password`: another one
    fail: name PROBLEM                      from here on that function fails so; `bug` is an error that nobody expects
    slow: copy 25                           from here on that function takes so many seconds
    sieve: mark keep :flags "a";            alice's Sieve script of that name
    scripts:                                the server runs scripts for what commands did
    box: INBOX one(\Seen) two               what is in the mailbox in the end
"""

import codecs
import re
from itertools import pairwise

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from imap.protocol import factory
from imap.settings import Settings
from imap.verbs import search, selecting
from mboxlist.names import MailboxName
from store import offload
from store.accounts.base import Status
from store.accounts.passwords import hash_password
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.errors import Problem, StoreError
from store.filtering import eventscripts, userscripts
from store.filtering.filters import Filters
from store.mailboxes import crosspartition, namespace
from store.mailboxes.authorization import set_acl
from store.net import authentication
from store.partition.messagereading import MessageFile
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.views import MailboxViews
from store.quota import roots
from store.store import Store
from store.values import Flag, Flags, InternalDate, Secret
from tests.support import ROOT
from tests.support.conversations.wire import Wire
from tests.support.faults.planted import Faults

SCRIPTS = ROOT / "tests" / "scripts" / "imap"
_MESSAGE = re.compile(r"([^ (]+)(?:\(([^)]*)\))?")
_BEFORE = re.compile(r"((?:C\d?(?: and )?)+) (?:has|have|is|are) (selected|examined|logged in) ?(\S*)")
_CLIENT = re.compile(r"(C|S)(\d?)(~?)")


def octets(text):
    """Text with escapes, as it stands in a script; a trailing "* 100" repeats what is before it."""
    repeated = re.fullmatch(r"(.*\S) \* (\d+)", text, re.DOTALL)
    if repeated:
        return octets(repeated[1]) * int(repeated[2])
    return codecs.escape_decode(text.encode())[0]


def content(subject):
    """A message of that subject."""
    return f"From: bob@example.org\r\nSubject: {subject}\r\n\r\nThis is {subject}.\r\n".encode()


class Place:
    """A store, in which `user` is new, and an IMAP server on it."""

    def __init__(self, store, monkeypatch, user="alice"):
        self.store = store
        self.patch = monkeypatch
        self.faults = Faults(monkeypatch)
        self.user = user
        self.settings = Settings()
        self.tls = None
        self.peer = "127.0.0.1"
        self.clock = Clock()
        self.server = None
        self.damaged = False
        self.bugs = False           # whether a bug was ordered

    def connect(self):
        if self.server is None:
            self.server = factory(self.store, self.settings, self.clock, self.tls)
        return Wire(self.server, self.clock, self.peer)

    def remember(self, octets):
        """How much is kept of what was expunged from a mailbox."""
        for partition in self.store.partitions.values():
            self.patch.setattr(partition.vanished, "limit", octets)

    def configure(self, **settings):
        """Other settings of the store."""
        self.patch.setattr(self.store, "settings", evolve(self.store.settings, **settings))

    def entry(self, path):
        return self.store.entry(self.name(path))

    def name(self, path):
        """A name of the user's, or a canonical one of somebody else's."""
        return MailboxName.from_client(self.user, path)

    def deliver(self, path, data, flags=Flags()):
        entry = self.entry(path)
        staged = self.store.stage(entry)
        staged.write(data)
        target, received = Target(entry, flags), InternalDate(1_000_000_000, 60)
        outcome, = offload.now(durable.deliver(self.store, staged, [target], received))
        assert isinstance(outcome, Delivered), outcome
        return outcome.uid

    def have(self, path, messages):
        if path != "INBOX":
            namespace.create_mailbox(self.store, self.name(path))
        for subject, flags in _MESSAGE.findall(messages):
            self.deliver(path, content(subject), flags_of(flags))

    def subjects(self, path):
        """What is in the mailbox, as `have` would say it."""
        mailbox = self.store.open_mailbox(self.entry(path))
        found = []
        for row in mailbox.rows:
            with self.store.open_message(mailbox.entry, row) as file:
                subject = re.search(rb"Subject: (.*)\r\n", file.read(0, 1000))
            flags = [f"\\{flag.name.capitalize()}" for flag in Flag if row["flags"] & flag]
            flags += mailbox.keyword_names(int(row["keywords"]))
            found.append((subject[1].decode() if subject else "?") + (f"({' '.join(flags)})" if flags else ""))
        return " ".join(found)

    def lose(self, path, uid):
        """Take a message's file away."""
        mailbox = self.store.open_mailbox(self.entry(path))
        row = mailbox.row(uid)
        self.store.partition_of(mailbox.entry).files.remove(bytes(row["digest"]), int(row["serial"]))
        self.damaged = True


def flags_of(words):
    """Flags by their names."""
    system, keywords = Flag(0), []
    for word in words.split():
        if word.startswith("\\"):
            system |= Flag[word[1:].upper()]
        else:
            keywords.append(word)
    return Flags(system, tuple(keywords))


def _has_line(got):
    return b"\r\n" in got


class Player:
    """Plays one script. `piece`: how many octets of the client's arrive together; 0: as many as it sends."""

    def __init__(self, place, piece=0):
        self.place = place
        self.piece = piece
        self.wires = {}
        self.got = {}
        self.names = {}
        self.closed = set()
        self.waiting = []
        self.skipping = set()
        self.message = []           # lines of one that is to arrive,
        self.into = ("", "")        # and its mailbox and flags

    def play(self, script):
        """Play it from the first line to the last; afterwards nothing may be left over."""
        for number, line in enumerate(script.splitlines(), 1):
            if line.startswith("|"):
                self.message.append(octets(line[2:]) + b"\r\n")
                continue
            self.deliver_message()
            if not line.strip() or line.startswith("#"):
                continue
            verb, colon, rest = line.partition(":")
            assert colon, f"line {number}: no colon"
            try:
                self.step(verb, rest.removeprefix(" "))
            except AssertionError as error:
                raise AssertionError(f"line {number}: {line}\n{error}") from error
        self.deliver_message()
        self.flush()
        for which, wire in self.wires.items():
            self.look(which)
            assert not self.got[which], f"not expected: {self.got}"
            assert wire.closed == (which in self.closed), f"connection {which or '1'}: closed is {wire.closed}"

    def step(self, verb, text):
        client = _CLIENT.fullmatch(verb)
        if client is None:
            self.flush()
            name = verb.rstrip("0123456789")
            getattr(self, f"on_{name}")(text, verb[len(name):])
        elif client[1] == "C":
            if self.waiting and self.waiting[0][0] != client[2]:
                self.flush()
            text = re.sub(r"\$([a-z]+)", lambda found: self.names.get(found[1], found[0]), text)
            self.waiting.append((client[2], octets(text) if client[3] else text.encode() + b"\r\n"))
        else:
            self.flush()
            (self.expect_octets if client[3] else self.expect_line)(client[2], text)

    def wire(self, which):
        if which not in self.wires:
            self.wires[which] = self.place.connect()
            self.got[which] = b""
            if self.greets:
                self.until(which, _has_line)
                self.got[which] = self.got[which].partition(b"\r\n")[2]
        return self.wires[which]

    greets = False              # whether the greeting is passed over, as it is after the first "have: C ..."

    def flush(self):
        if self.waiting:
            which = self.waiting[0][0]
            data = b"".join(piece for _, piece in self.waiting)
            self.waiting = []
            step = self.piece or len(data)
            for at in range(0, len(data), step):
                self.wire(which).send(data[at:at + step])

    def look(self, which):
        self.got[which] += self.wire(which).received()

    def more(self, which):
        """Wait for octets on this connection; whether there can be any. In memory all have come that will."""
        return False

    def until(self, which, enough):
        """Look, until what has come is enough, or nothing more can."""
        self.look(which)
        while not enough(self.got[which]) and self.more(which):
            self.look(which)

    def line(self, which):
        self.until(which, _has_line)
        line, end, rest = self.got[which].partition(b"\r\n")
        assert end, f"there is only {line!r}"
        self.got[which] = rest
        return line.decode("latin-1")

    def expect_line(self, which, text):
        self.wire(which)
        if text == "...":
            self.skipping.add(which)
            return
        while which in self.skipping:
            self.until(which, _has_line)
            first = self.got[which].partition(b"\r\n")[0].decode("latin-1")
            if not first.startswith("*") or self.matches(text, first):
                self.skipping.discard(which)
            else:
                self.line(which)
        line = self.line(which)
        found = self.matches(text, line)
        assert found, f"it is {line!r}, then {self.got[which][:300]!r}"
        self.names.update(found.groupdict())

    def matches(self, text, line):
        pattern = ""
        for piece in re.split(r"(\$[a-z]+|\.\.\.$)", text):
            if piece == "...":
                pattern += ".*"
            elif piece.startswith("$") and piece[1:]:
                known = self.names.get(piece[1:])
                pattern += re.escape(known) if known is not None else f"(?P<{piece[1:]}>[^ \\]]+)"
            else:
                pattern += re.escape(piece)
        return re.fullmatch(pattern, line, re.DOTALL)

    def expect_octets(self, which, text):
        wanted = octets(text)
        self.until(which, lambda got: len(got) >= len(wanted) or not wanted.startswith(got))
        got = self.got[which][:len(wanted)]
        assert got == wanted, f"it is {got[:300]!r}"
        self.got[which] = self.got[which][len(wanted):]

    # What happens

    def on_have(self, text, _):
        for item in text.split("; "):
            before = _BEFORE.fullmatch(item)
            if before is None:
                path, _, messages = item.partition(" ")
                self.place.have(path, messages)
                continue
            for client in before[1].split(" and "):
                self.greets = True
                self.prepare(client[1:], before[2], before[3])

    def prepare(self, which, how, path):
        self.say(which, f"x1 LOGIN {self.place.user} secret")
        if how != "logged in":
            self.say(which, f"x2 {'SELECT' if how == 'selected' else 'EXAMINE'} {path}")

    def say(self, which, command):
        """A command of which only the success matters."""
        wire = self.wire(which)
        wire.send(command.encode() + b"\r\n")
        tag = b"\r\n" + command.partition(" ")[0].encode()
        self.until(which, lambda got: tag + b" " in b"\r\n" + got and got.endswith(b"\r\n"))
        assert tag + b" OK" in b"\r\n" + self.got[which], self.got[which]
        self.got[which] = b""

    def on_with(self, text, _):
        for item in text.split():
            name, _, value = item.partition("=")
            if name == "tls":
                self.place.tls = object()
            elif name == "peer":
                self.place.peer = value
            elif name == "clear":
                self.place.settings = evolve(self.place.settings, plaintext_login=True)
            else:
                self.place.settings = evolve(self.place.settings, **{name: int(value) if value.isdigit() else value})

    def on_ascending(self, text, _):
        numbers = [int(self.names[name.removeprefix("$")]) for name in text.split()]
        assert all(one < other for one, other in pairwise(numbers)), numbers

    def on_nothing(self, _, which):
        self.look(which)
        assert not self.got[which], self.got[which]

    def on_closed(self, _, which):
        self.closed.add(which)
        while self.more(which):
            self.look(which)
        assert self.wire(which).closed

    def on_time(self, text, _):
        self.place.clock.advance(float(text))

    def on_stop(self, _, __):
        self.place.server.stop()

    def on_hangup(self, _, which):
        self.wire(which).hang_up()
        self.closed.add(which)

    def on_tls(self, _, which):
        assert self.wire(which).transport.tls is self.place.tls

    def on_deliver(self, text, _):
        path, _, subject = text.partition(" ")
        for one, flags in _MESSAGE.findall(subject):
            self.place.deliver(path, content(one), flags_of(flags))
        for wire in self.wires.values():
            wire.settle()

    def on_mail(self, text, _):
        path, _, header = text.partition(" ")
        fields = header.encode("latin-1").decode("unicode_escape").replace(" | ", "\r\n").encode("latin-1")
        self.place.deliver(path, fields + b"\r\n\r\nText\r\n")

    def on_message(self, text, _):
        path, _, flags = text.partition(" ")
        self.into = (path, flags.strip("()"))

    def deliver_message(self):
        if self.message:
            (path, flags), lines, self.message = self.into, self.message, []
            self.place.deliver(path, b"".join(lines), flags_of(flags))
            for wire in self.wires.values():
                wire.settle()

    def on_lose(self, text, _):
        path, _, uid = text.partition(" ")
        self.place.lose(path, int(uid))

    def on_remember(self, text, _):
        self.place.remember(int(text))

    def on_quota(self, text, _):
        octets_or_messages, _, number = text.rpartition(" ")
        roots.set_quota(self.place.store, self.place.user, **{octets_or_messages or "octets": int(number)})

    def on_account(self, text, _):
        directory = self.place.store.directory
        if text == "password":
            directory.change(self.place.user, password_hash=hash_password(Secret(b"another")))
        else:
            directory.change(self.place.user, status=Status(text))
        for wire in self.wires.values():
            wire.settle()

    def on_acl(self, text, _):
        name, identifier, rights = text.split(" ")
        set_acl(self.place.store, self.place.name(name), identifier, "" if rights == "-" else rights)

    def on_sieve(self, text, _):
        name, _, script = text.partition(" ")
        store = self.place.store
        Filters.of(store)
        userscripts.put(store, store.directory.user(self.place.user).account, name, script.encode())

    def on_scripts(self, _, __):
        for item in eventscripts.waiting(self.place.store):
            eventscripts.run_some(self.place.store, item)
        for wire in self.wires.values():
            wire.settle()

    def on_box(self, text, _):
        path, _, subjects = text.partition(" ")
        found = self.place.subjects(path)
        assert found == subjects, f"it has {found}"

    def on_fail(self, text, _):
        what, problem = text.split()
        error = RuntimeError("secret") if problem == "bug" else StoreError(Problem[problem], detail="for the log")
        self.place.bugs |= problem == "bug"
        self.place.faults.fail(*FAILING[what], error)

    def on_slow(self, text, _):
        what, seconds = text.split()

        async def slowly(real, *args, **options):
            done = Deferred()
            self.place.clock.callLater(float(seconds), done.callback, None)
            await done
            return await real(*args, **options)

        self.place.faults.around(*WAITING[what], slowly)


WAITING = {
    "authenticate": (authentication, "account_that_logs_in"), "flushed": (durable, "flushed"),
    "deliver": (durable, "deliver"), "run": (offload, "run"), "copy": (crosspartition, "copy_durably"),
}
FAILING = {
    **{what: WAITING[what] for what in ("authenticate", "flushed", "deliver", "copy")},
    "write": (Staged, "write"), "stage": (Partition, "stage"), "read": (MessageFile, "read"),
    "refresh": (MailboxViews, "glance"),
    "open": (Store, "_open"), "status": (Store, "status"), "list": (Store, "names"),
    "alert": (roots, "warning"),
    "flags": (Store, "transact"), "expunge": (selecting, "expunge_messages"), "search": (search, "find"),
}
