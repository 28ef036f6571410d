"""Plays a conversation written as text (tests/scripts/lmtp/*.txt) against the server, in memory.

    # ...                    a comment
    have: alice; bob room=100; carol inactive; alice/Archive; public/news    users, mailboxes of theirs, and public ones
    have: relay password=secret; dora alias=info@example.org         a user who can log in; another address
    rights: alice/Archive bob lrp        what a user, a group or anyone may do with a mailbox
    with: error_limit=3 tls                                      settings of the server; a context for STARTTLS
    with: implicit_tls guaranteed     TLS from the start; the listener that ignores quota
    from: 192.0.2.1          the client's address (127.0.0.1)      certificate: mx.example.org    what the client shows
    fail: deliver DISK_FULL  the named step fails with that problem, or with an error that nobody expects
    C: NOOP                  a line from the client; lines that follow each other are one batch
    C~: \\x00\\r\\n             octets from the client, no line end is added
    octets: 1000             that many from the client, lines of 62      letters: 1000     all in one line, not ended
    repeat: 3 NOOP           a line from the client, that many times
    S: 250 2.0.0 *           a line from the server; * at the end is any text, $name captures and must match again
    answers: 3 250 *         that many of them
    hello:                   the whole reply to LHLO
    time: 300    stop:    another:    tls:    delete: alice/box         what else may happen
    closed:                  the server has ended the connection (it has not, where this is not said)
    box: alice/INBOX 1       messages in a mailbox     message: alice/INBOX ...     content of the last one
    trace: alice/INBOX ...   a text in the header that was put before it
"""

import re
from pathlib import Path

from attrs import define, evolve, field, frozen
from twisted.internet.task import Clock

from lmtp.protocol import factory
from lmtp.settings import Settings
from mboxlist.names import MailboxName
from store import hosting
from store.accounts.base import Status
from store.accounts.passwords import hash_password
from store.accounts.sasl.scram import HASHES
from store.delivery import durable
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.authorization import set_acl
from store.net import authentication
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.quota import roots
from store.users import lifecycle
from store.values import Secret
from tests.support.conversations.wire import Wire
from tests.support.faults.planted import Faults

SCRIPTS = Path(__file__).parent.parent / "scripts" / "lmtp"
SENDING = ("C", "C~", "octets", "letters", "repeat")
DETAIL = "what only the log is told"        # of a problem that is planted
PREPARED = ("have", "rights", "with", "from", "certificate", "fail")
CHECKS = ("S", "answers", "hello", "closed", "box", "message", "trace")


@frozen
class Step:
    """One line of a script."""

    line: int
    kind: str
    text: str


def named(text):
    """The mailbox "owner/path"."""
    owner, _, path = text.partition("/")
    return MailboxName("" if owner == "public" else owner, path)


def read_script(name):
    """The steps of a script."""
    lines = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8").split("\n")
    steps = []
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#"):
            kind, colon, text = line.partition(":")
            assert colon, f"{name}: {number}: no colon"
            steps.append(Step(number, kind, text.removeprefix(" ")))
    return steps


def unescaped(text):
    """Octets written with backslashes."""
    return text.encode("ascii").decode("unicode_escape").encode("latin-1")


def sent(step):
    """The octets of a step of the client's."""
    if step.kind == "C":
        return step.text.encode() + b"\r\n"
    if step.kind == "C~":
        return unescaped(step.text)
    count, _, line = step.text.partition(" ")
    if step.kind == "letters":
        return b"x" * int(count)
    if step.kind == "octets":
        return (b"x" * 60 + b"\r\n") * (int(count) // 62) + b"x" * (int(count) % 62)
    return (line.encode("ascii") + b"\r\n") * int(count)


@define
class Tls:
    """In the place of a TLS context."""

    names: tuple = ()

    def certificate_names(self, connection):
        """Those of the client's certificate."""
        return self.names


@define
class Place:
    """A store with what a script says, and a server in front of it."""

    store: object
    monkeypatch: object
    settings: Settings = Settings(hostname="store.example.org")
    tls: Tls = None
    peer: str = "127.0.0.1"
    listener: dict = field(factory=dict)
    clock: Clock = field(factory=Clock)
    factory: object = None
    wire: Wire = None
    names: dict = field(factory=dict)
    said: list = field(factory=list)

    def prepare(self, steps):
        """Users, mailboxes and settings; then a connection."""
        for step in steps:
            if step.kind == "have":
                for item in step.text.split("; "):
                    self._have(item)
            elif step.kind == "rights":
                mailbox, identifier, rights = step.text.split()
                set_acl(self.store, named(mailbox), identifier, rights)
            elif step.kind == "with":
                for item in step.text.split():
                    self._with(*item.partition("="))
            elif step.kind == "from":
                self.peer = step.text
            elif step.kind == "certificate":
                self.tls.names = (step.text,)
            elif step.kind == "fail":
                self._fail(*step.text.split())
        self.factory = factory(self.store, self.settings, self.clock, self.tls, now=lambda: 1795178580.0,
                               **self.listener)
        self.connect()

    def connect(self):
        """One more connection."""
        self.wire = Wire(self.factory, self.clock, self.peer)

    def remove_users(self):
        """Leave the store as it was."""
        for entry in reversed(self.store.names("")):
            deletion.delete_mailbox(self.store, entry.name)
        for account in list(self.store.directory.all()):
            lifecycle.remove_mail(self.store, account.user)
            self.store.directory.remove(account.user)

    def _have(self, item):
        if "/" in item:
            namespace.create_mailbox(self.store, named(item))
            return
        user, *words = re.split(r" (?=room=|password=|alias=|inactive|hold|disabled|deleted|overquota)", item)
        self.store.directory.add(user.replace(" ", "."), "no password")
        for word in words:
            name, _, value = word.partition("=")
            if name == "room":
                roots.set_quota(self.store, user, octets=int(value))
            elif name == "password":
                self.store.directory.change(user, password_hash=hash_password(Secret(value.encode()), HASHES))
            elif name == "alias":
                self.store.directory.change(user, aliases=[value])
            else:
                self.store.directory.change(user, status=Status(word))

    def _with(self, name, _, value):
        if name == "tls":
            self.tls = Tls()
        elif name in ("implicit_tls", "guaranteed"):
            self.listener[name] = True
            self.tls = self.tls or Tls()
        else:
            kind = type(getattr(self.settings, name))
            read = {tuple: lambda text: tuple(text.split(",")), type(None): Path}.get(kind, kind)
            self.settings = evolve(self.settings, **{name: read(value)})

    def _fail(self, what, problem):
        error = RuntimeError("something secret") if problem == "unexpected" else StoreError(
            Problem[problem], detail=DETAIL)
        places = {"deliver": (durable, "deliver"), "look_up": (hosting, "look_up"), "stage": (Partition, "stage"),
                  "authenticate": (authentication, "account_that_logs_in"), "write": (Staged, "write")}
        faults = Faults(self.monkeypatch)
        faults.fail(*places.get(what, places["write"]), error)
        if what == "deliver":
            faults.before(*places[what], lambda store, staged, *_, **__: staged.abort())

    def entry(self, text):
        """The mailbox "owner/path", or None."""
        try:
            return self.store.entry(named(text))
        except StoreError:
            return None

    def messages(self, text):
        """The contents of a mailbox, trace headers included."""
        entry = self.entry(text)
        if entry is None:
            return []
        found = []
        for row in self.store.open_mailbox(entry).rows:
            with self.store.open_message(entry, row) as file:
                found.append(file.read(0, file.size))
        return found


def play(place, steps):
    """Play the steps in order."""
    batch, answers = [], []
    for step in [*steps, Step(0, "end", "")]:
        if step.kind in SENDING:
            batch.append(sent(step))
            continue
        if batch:
            assert not answers, f"unexpected before line {step.line}: {answers}"
            place.wire.send(b"".join(batch))
            batch.clear()
        lines = place.wire.received().splitlines()
        place.said += lines
        answers += lines
        if step.kind in CHECKS:
            check(place, step, answers)
        elif step.kind not in PREPARED:
            assert not answers, f"unexpected before line {step.line}: {answers}"
            happen(place, step)
    closed = any(step.kind == "closed" for step in steps)
    assert place.wire.closed == closed


def happen(place, step):
    """What is neither said nor checked."""
    if step.kind == "time":
        place.clock.advance(int(step.text))
    elif step.kind == "stop":
        place.factory.stop()
    elif step.kind == "another":
        place.connect()
    elif step.kind == "tls":
        assert place.wire.transport.tls is place.tls
    elif step.kind == "delete":
        deletion.delete_mailbox(place.store, named(step.text))
    else:
        assert step.kind == "end", f"line {step.line}: {step.kind}"


def check(place, step, answers):
    """What must be so."""
    name, _, rest = step.text.partition(" ")
    if step.kind == "S":
        assert answers, f"line {step.line}: nothing came"
        match_line(place, step.text, answers.pop(0), step.line)
    elif step.kind == "answers":
        for _ in range(int(name)):
            match_line(place, rest, answers.pop(0), step.line)
    elif step.kind == "hello":
        while answers and answers[0].startswith(b"250-"):
            answers.pop(0)
        match_line(place, "250 ENHANCEDSTATUSCODES", answers.pop(0), step.line)
    elif step.kind == "closed":
        assert place.wire.closed, f"line {step.line}"
    else:
        check_mailbox(place, step)


def match_line(place, expected, line, number):
    """One line of the server's."""
    text = line.decode("ascii")
    pattern = ""
    for piece in re.split(r"(\$[a-z]+|\*$)", expected):
        if piece == "*":
            pattern += ".*"
        elif piece.startswith("$"):
            pattern += re.escape(place.names[piece]) if piece in place.names else f"(?P<{piece[1:]}>.+)"
        else:
            pattern += re.escape(piece)
    match = re.fullmatch(pattern, text)
    assert match, f"line {number}: {text!r} is not {expected!r}"
    place.names.update({"$" + name: value for name, value in match.groupdict().items()})


def check_mailbox(place, step):
    """What a mailbox holds."""
    mailbox, rest = split_mailbox(step)
    messages = place.messages(mailbox)
    if step.kind == "box":
        assert len(messages) == int(rest), f"line {step.line}"
    elif step.kind == "message":
        assert messages, f"line {step.line}"
        header = re.match(rb"(?:Delivered-To: .*\r\n)?Return-Path: .*\r\nReceived: .*\r\n(?:\t.*\r\n)*", messages[-1])
        assert messages[-1][header.end():] == unescaped(rest), f"line {step.line}"
    else:
        wanted = unescaped(rest) if "\\" in rest else rest.encode()
        assert wanted in messages[-1].partition(b"\r\n\r\n")[0], f"line {step.line}"


def split_mailbox(step):
    """The mailbox of a step, whose name may have blanks when only a number follows."""
    if step.kind == "box":
        mailbox, _, rest = step.text.rpartition(" ")
    else:
        mailbox, _, rest = step.text.partition(" ")
    return mailbox, rest
