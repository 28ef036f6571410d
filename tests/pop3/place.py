"""A store with one user, a POP3 server on it in memory, and the means to play a conversation that is written down."""

import codecs
import re
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from attrs import evolve
from twisted.internet.task import Clock

from pop3 import maildropopening, update
from pop3.protocol import factory
from pop3.settings import Settings
from store import offload
from store.accounts import passwords
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.sasl.scram import HASHES
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.mailboxes.uidllist import give
from store.net import authentication
from store.opening import make_empty_store, open_store
from store.partition.messagereading import MessageFile
from store.settings import Settings as StoreSettings
from store.users import lifecycle
from store.values import Flag, FlagAction, Flags, InternalDate, Secret
from tests.support.conversations.wire import Wire
from tests.support.faults.planted import Faults

PASSWORD = b"tanstaaf"                  # of RFC 1939 §10's day


class Place:
    """A store in `folder` with a user mrose, and as many servers and connections as wanted."""

    def __init__(self, folder: Path) -> None:
        make_empty_store(folder)
        self.store = open_store(folder, StoreSettings(special_mailboxes=()))
        authentication.attach(self.store, LoginSettings(slow_first=0, scram_keys=tuple(HASHES)))
        self.clock = Clock()
        self.wires = []
        self._hash = passwords.hash_password(Secret(PASSWORD), HASHES)
        self.begin()

    def begin(self):
        """Make the user, and an empty INBOX."""
        self.inbox = firstuse.inbox(self.store, self.store.directory.add("mrose", self._hash))

    def end(self):
        """Take away what a test has made."""
        for wire in self.wires:
            wire.hang_up()
        self.wires.clear()
        lifecycle.remove_mail(self.store, "mrose")
        self.store.directory.remove("mrose")

    def server(self, settings=None, tls=None, **options):
        return factory(self.store, settings or Settings(), self.clock, tls, **options)

    def connect(self, server=None, peer="127.0.0.1"):
        self.wires.append(Wire(server or self.server(), self.clock, peer))
        return self.wires[-1]

    def deliver(self, octets, date=0):
        staged = self.store.stage(self.inbox)
        staged.write(octets)
        delivered, = offload.now(durable.deliver(self.store, staged, [Target(self.inbox)], InternalDate(date)))
        assert isinstance(delivered, Delivered)
        return delivered.uid

    def copy(self, count):
        """More messages, of the same content as the first."""
        first = self.uids()[0]
        for _ in range(count):
            copy_messages(self.store, self.inbox, self.inbox, [first])

    def uids(self):
        return self.store.open_mailbox(self.inbox).rows["uid"].tolist()

    def seen(self):
        rows = self.store.open_mailbox(self.inbox).rows
        return rows["uid"][rows["flags"] & np.uint16(Flag.SEEN) != 0].tolist()

    def expunge(self, uid):
        remove(self.store, self.inbox, [uid])

    def path(self, uid):
        row = self.store.open_mailbox(self.inbox).row(uid)
        return self.store.partition_of(self.inbox).files.locate(bytes(row["digest"]), int(row["serial"]))


SCRIPTS = Path(__file__).parent.parent / "scripts" / "pop3"


def said(script):
    """What the client says in a script, line by line."""
    for line in script.splitlines():
        verb, _, rest = line.partition(":")
        if verb in ("C", "C2"):
            yield octets(rest.removeprefix(" ") + "\\r\\n")
        elif verb in ("C~", "C2~"):
            yield octets(rest.removeprefix(" "))


def octets(text):
    """Text with escapes, as it stands in a script."""
    return codecs.escape_decode(text.encode("utf-8"))[0]


class Player:
    """Plays a script. Lines are

    `C: text` (a command; `C~:` octets without CRLF, with escapes; those that follow each other go out in one piece),
    `S: text` (the next line of the server; `*` anything, `$name` captured, and the same where it comes again; `S~:`
    octets as they come, with escapes; `sent: text count` the same line so often),
    `closed:` (the server has closed), `nothing:` (it has said nothing more), `hangup:` (the client goes),
    `again:` (what follows comes on a new connection), `have: word` (the rest of an answer of several lines,
                                                                     one of which
    has that word),
    `time: seconds` (pass), `stop:` (the server is told to stop), `tls:` (a handshake was asked for; what follows comes
    under it). `C2:`, `S2:` and so on are those of a second connection.

    `message: octets` (in INBOX, before or during the session), `dated: date octets` (with that internal date, a Unix
    time), `long: lines` (a message of so many lines of 16 octets, and a header of 8), `uidl: uid text` (what it had
    elsewhere), `flag: uid` (it has been read), XX, `box: uid ...` (what INBOX holds now), `seen: uid ...`,
    `fail: what PROBLEM` (from here
    on it fails so; `bug` for an exception), and before the first connection `set: name=value`, `with: tls`,
    `peer: address`.
    """

    def __init__(self, place, monkeypatch, *, bytewise=False):
        self.place = place
        self.bytewise = bytewise                # each octet comes for itself
        self.patch = monkeypatch
        self.settings = Settings()
        self.tls = None
        self.peer = "127.0.0.1"
        self.server = None
        self.wires = {}
        self.got = {"": b"", "2": b""}
        self.names = {}
        self.waiting = []                       # client lines that go out as one piece

    def play(self, script):
        for line in script.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            verb, _, rest = line.partition(":")
            which = "2" if verb.endswith("2") else ""
            verb = verb.removesuffix("2")
            if verb not in ("C", "C~"):
                self.send()
            getattr(self, "on_" + verb.lower().replace("~", "_raw"))(rest.removeprefix(" "), which)
        self.send()
        for which, wire in self.wires.items():
            self.got[which] += wire.received()
        assert not any(self.got.values()), f"not expected: {self.got}"

    def wire(self, which):
        if self.server is None:
            self.server = self.place.server(self.settings, self.tls)
        if which not in self.wires:
            self.wires[which] = self.place.connect(self.server, self.peer)
        return self.wires[which]

    def send(self):
        if self.waiting:
            which = self.waiting[0][0]
            data, self.waiting = b"".join(data for _, data in self.waiting), []
            for piece in [data[at:at + 1] for at in range(len(data))] if self.bytewise else [data]:
                self.wire(which).send(piece)

    def on_c(self, text, which):
        self.on_c_raw(text + "\\r\\n", which)

    def on_c_raw(self, text, which):
        if self.waiting and self.waiting[0][0] != which:
            self.send()
        self.waiting.append((which, octets(text)))

    def on_s(self, text, which):
        self.got[which] += self.wire(which).received()
        line, end, self.got[which] = self.got[which].partition(b"\r\n")
        assert end, f"expected {text!r}, and there is only {line!r}"
        pattern = re.sub(r"\\\*", ".*", re.escape(octets(text).decode("latin-1")))
        names = re.findall(r"\\\$(\w+)", pattern)
        for name in names:
            known = self.names.get(name)
            pattern = pattern.replace(rf"\${name}", re.escape(known) if known is not None else rf"(?P<{name}>.+)", 1)
        found = re.fullmatch(pattern, line.decode("latin-1"), re.DOTALL)
        assert found, f"expected {text!r}, not {line!r}"
        self.names.update(found.groupdict())

    def on_s_raw(self, text, which):
        self.got[which] += self.wire(which).received()
        expected = octets(text)
        assert self.got[which].startswith(expected), self.got[which][:80]
        self.got[which] = self.got[which][len(expected):]

    def on_sent(self, text, which):
        line, _, count = text.rpartition(" ")
        self.on_s_raw((line + "\\r\\n") * int(count), which)

    def on_have(self, text, which):
        """The rest of an answer of several lines, among them this one, or one that begins with it."""
        self.got[which] += self.wire(which).received()
        lines, end, self.got[which] = self.got[which].partition(b"\r\n.\r\n")
        assert end and any(text in line.split() for line in lines.decode("ascii").split("\r\n")), lines

    def on_again(self, text, which):
        del self.wires[which]

    def on_nothing(self, text, which):
        self.got[which] += self.wire(which).received()
        assert not self.got[which]

    def on_closed(self, text, which):
        self.on_nothing(text, which)
        assert self.wire(which).closed

    def on_hangup(self, text, which):
        self.wire(which).hang_up()

    def on_time(self, text, which):
        self.wire("")
        self.place.clock.advance(float(text))

    def on_stop(self, text, which):
        self.server.stop()

    def on_tls(self, text, which):
        assert self.wire(which).transport.tls is self.tls

    def on_set(self, text, which):
        name, _, value = text.partition("=")
        kind = type(getattr(self.settings, name))
        self.settings = evolve(self.settings, **{name: value == "yes" if kind is bool else kind(value)})

    def on_with(self, text, which):
        assert text == "tls"
        self.tls = object()

    def on_peer(self, text, which):
        self.peer = text

    def on_message(self, text, which):
        self.place.deliver(octets(text))

    def on_long(self, text, which):
        self.place.deliver(b"A: b\r\n\r\n" + b"0123456789abcd\r\n" * int(text))

    def on_uidl(self, text, which):
        uid, uidl = text.split()
        give(self.place.store, self.place.inbox, {int(uid): uidl.encode()})

    def on_dated(self, text, which):
        date, _, message = text.partition(" ")
        self.place.deliver(octets(message), int(date))

    def on_days(self, text, which):
        later = time.time() + 86400 * int(text)
        self.patch.setattr(maildropopening, "time", SimpleNamespace(time=lambda: later))

    def on_flag(self, text, which):
        change_flags(self.place.store, self.place.inbox, [int(text)], FlagAction.ADD, Flags(Flag.SEEN))

    def on_expunge(self, text, which):
        self.place.expunge(int(text))

    def on_purge(self, text, which):
        path = self.place.path(int(text))
        self.place.expunge(int(text))
        staging = self.place.store.partition_of(self.place.inbox).files.staging
        if path is not None:                    # or it has been purged in another script
            for name in [path, *(twin for twin in staging.iterdir() if twin.samefile(path))]:
                name.unlink(missing_ok=True)

    def on_box(self, text, which):
        assert self.place.uids() == [int(uid) for uid in text.split()]

    def on_seen(self, text, which):
        assert self.place.seen() == [int(uid) for uid in text.split()]

    def on_fail(self, text, which):
        what, problem = text.split()
        error = RuntimeError("a bug") if problem == "bug" else StoreError(Problem[problem], detail="for the log only")
        owner, name = {
            "authenticate": (authentication, "account_that_logs_in"), "flush": (durable, "flushed"),
            "inbox": (firstuse, "find_inbox"), "open": (self.place.store, "open_mailbox"),
            "message": (self.place.store, "open_message"), "read": (MessageFile, "read"),
            "later": (MessageFile, "read"), "remove": (update, "remove"),
            "mark": (update, "change_flags"),
        }[what]
        Faults(self.patch).fail(owner, name, error, when=lambda *given, **_: what != "later" or given[1] > 0)
