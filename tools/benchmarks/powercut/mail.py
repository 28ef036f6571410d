"""Mail that comes and goes while the power is on: deliveries, clients that change their mailboxes, and a reader."""

import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from attrs import define, evolve, field

from tools.benchmarks.powercut.ledger import Actor, Known, Ledger, Mailbox, Who, digest
from tools.benchmarks.powercut.machine import Site
from tools.benchmarks.powercut.mailclients import Imap, Lmtp, RefusedError

WORDS = ("\\Seen", "\\Flagged", "\\Answered", "$Forwarded", "todo")
SMALL, BIG = (200, 20_000), (150_000, 300_000)          # octets of a message
MOST_MAILBOXES = 8
END = 120.0                     # seconds until threads have seen that the power is off


def text(random: Random) -> bytes:
    """The text of a message: seldom more than is kept in memory."""
    size = random.randrange(*BIG) if random.random() < 0.03 else random.randrange(*SMALL)
    line = b"%030x" % random.getrandbits(120) + b" the text of a message\r\n"
    return (line * (size // len(line) + 1))[:size].rstrip(b"\r")


def relay(ledger: Ledger, site: Site, users: Sequence[str], random: Random) -> None:
    """One connection that delivers message after message until the power goes."""
    lmtp = Lmtp(site.ports["lmtp"])
    while ledger.is_open:
        recipients = random.sample(users, random.choice((1, 1, 2, min(3, len(users)))))
        number, octets = ledger.begin(text(random), [(site.name, user) for user in recipients])
        for user, reply in lmtp.deliver(recipients, octets):
            if reply.startswith(b"250"):
                ledger.delivered((site.name, user), number)
            elif ledger.is_open and not reply.startswith(b"451 4.2.0"):       # busy: the user is being moved
                raise RefusedError(f"{user}: {reply!r}")


def reader(ledger: Ledger, site: Site, users: Sequence[str], random: Random) -> None:
    """Reads what is newest, before or after its sender has an answer."""
    newest: dict[str, int] = {}
    while ledger.is_open:
        user = random.choice(users)
        imap = Imap(site.ports["imap"], user)
        uidvalidity = imap.examine("INBOX")
        for _ in range(20):
            for uid, message in imap.messages(f"{newest.get(user, 0) + 1}:*"):
                newest[user] = max(uid, newest.get(user, 0))
                if wrong := ledger.means((site.name, user), "INBOX", uidvalidity, uid, digest(message.octets)):
                    raise RefusedError(wrong)
            imap.ok("NOOP")
        imap.close()


@define(eq=False)
class Client:
    """Changes a user's mailboxes, one command after the other."""

    ledger: Ledger
    site: Site
    user: str
    actor: Actor
    random: Random
    _imap: Imap = field(init=False)
    _selected: str = ""
    _made: int = 0

    @property
    def who(self) -> Who:
        """The user."""
        return self.site.name, self.user

    @property
    def state(self) -> dict[str, Mailbox]:
        """The mailboxes as they are."""
        return dict(self.actor.current[self.who] or {})

    def run(self) -> None:
        """Until the power goes."""
        self._imap = Imap(self.site.ports["imap"], self.user)
        commands = (self.append, self.append, self.store, self.copy, self.move, self.expunge, self.create, self.rename,
                    self.delete)
        while self.ledger.is_open:
            self.random.choice(commands)()

    def _do(self, command: str, after: dict[str, Mailbox], literal: bytes | None = None) -> bytes:
        """The tagged line, once it has been noted that the command began."""
        self.actor.begin(command, {self.who: after})
        return self._imap.ok(command, literal)[1]

    def _select(self, name: str) -> None:
        if self._selected != name:
            self._imap.ok(f'SELECT "{name}"')
            self._selected = name

    def _some(self) -> tuple[str, list[int]]:
        """A mailbox with messages, which is selected then, and some of their UIDs; or none."""
        names = [name for name, mailbox in self.state.items() if mailbox.messages]
        if not names:
            return "", []
        name = self.random.choice(sorted(names))
        uids = sorted(self.state[name].messages)
        self._select(name)
        return name, sorted(self.random.sample(uids, self.random.randrange(1, min(len(uids), 6) + 1)))

    def append(self) -> None:
        """APPEND (RFC 3501 §6.3.11), APPENDUID (RFC 4315 §3)."""
        name = self.random.choice(sorted(self.state))
        octets = b"Subject: appended\r\n\r\n" + text(self.random) + b"\r\n"
        flags = frozenset(self.random.sample(WORDS, self.random.randrange(3)))
        box, known = self.state[name], Known(digest(octets), flags)
        line = self._do(f'APPEND "{name}" ({" ".join(sorted(flags))})', {**self.state, name: evolve(box, new=(known,))},
                        octets)
        uid = int(_found(rb"APPENDUID \d+ (\d+)", line))
        self.actor.done({self.who: {**self.state, name: box.plus({uid: known})}})

    def store(self) -> None:
        """UID STORE."""
        name, uids = self._some()
        if uids:
            box, word, sign = self.state[name], self.random.choice(WORDS), self.random.choice("+-")
            after = {uid: evolve(known, flags=known.flags | {word} if sign == "+" else known.flags - {word})
                     for uid in uids for known in (box.messages[uid],)}
            self._do(f"UID STORE {_set(uids)} {sign}FLAGS.SILENT ({word})", {**self.state, name: box.plus(after)})
            self.actor.done()

    def copy(self, *, move: bool = False) -> None:
        """UID COPY, UID MOVE (RFC 6851)."""
        name, uids = self._some()
        targets = sorted(self.state.keys() - {name})
        if uids and targets:
            target, box = self.random.choice(targets), self.state[name]
            new = tuple(box.messages[uid] for uid in uids)
            left = {**self.state, name: box.without(uids) if move else box}
            command = f'UID {"MOVE" if move else "COPY"} {_set(uids)} "{target}"'
            self.actor.begin(command, {self.who: {**left, target: evolve(left[target], new=new)}})
            untagged, line = self._imap.ok(command)
            told = b"".join(text for text, _ in untagged) + line
            where = _numbers(_found(rb"COPYUID \d+ [0-9,:]+ ([0-9,:]+)", told))
            self.actor.done({self.who: {**left, target: left[target].plus(dict(zip(where, new, strict=True)))}})

    def move(self) -> None:
        """UID MOVE."""
        self.copy(move=True)

    def expunge(self) -> None:
        """UID STORE of \\Deleted, UID EXPUNGE."""
        name, uids = self._some()
        if uids:
            box = self.state[name]
            marked = box.plus({uid: evolve(box.messages[uid], flags=box.messages[uid].flags | {"\\Deleted"})
                               for uid in uids})
            self._do(f"UID STORE {_set(uids)} +FLAGS.SILENT (\\Deleted)", {**self.state, name: marked})
            self.actor.done()
            self._do(f"UID EXPUNGE {_set(uids)}", {**self.state, name: box.without(uids)})
            self.actor.done()

    def create(self) -> None:
        """CREATE."""
        if len(self.state) < MOST_MAILBOXES:
            self._made += 1
            name = f"Made{self._made}"
            self._do(f'CREATE "{name}"', {**self.state, name: Mailbox()})
            self.actor.done()

    def rename(self) -> None:
        """RENAME."""
        if name := self._other_than_inbox():
            self._made += 1
            new = f"Renamed{self._made}"
            state = {new + other[len(name):] if _is_at(other, name) else other: mailbox
                     for other, mailbox in self.state.items()}
            self._do(f'RENAME "{name}" "{new}"', state)
            self.actor.done()

    def delete(self) -> None:
        """DELETE."""
        name = self._other_than_inbox()
        if name and sum(_is_at(other, name) for other in self.state) == 1:
            state = self.state
            del state[name]
            self._do(f'DELETE "{name}"', state)
            self.actor.done()

    def _other_than_inbox(self) -> str:
        names = sorted(self.state.keys() - {"INBOX"})
        if not names:
            return ""
        self._select("INBOX")
        return self.random.choice(names)


@define(eq=False)
class Load:
    """Threads of all kinds. What goes wrong in them while there is power is in `wrong`."""

    ledger: Ledger
    wrong: list[str] = field(factory=list)
    _threads: list[threading.Thread] = field(factory=list)

    def begin(self, work: Callable[[], None]) -> None:
        """In a thread of its own."""
        thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, RefusedError) as error:
            if self.ledger.is_open:
                self.wrong.append(f"while there was power: {error!r}")

    def ended(self) -> None:
        """Wait until all have seen that the power is off."""
        for thread in self._threads:
            thread.join(END)


def begin(load: Load, site: Site, users: Sequence[str], clients: dict[str, Actor], random: Random) -> None:
    """Two relays and a reader for the users, and a client for each of `clients`."""
    for work in (relay, relay, reader):
        load.begin(partial(work, load.ledger, site, users, Random(random.random())))
    for user, actor in clients.items():
        client = Client(load.ledger, site, user, actor, Random(random.random()))
        load.begin(client.run)


def _is_at(other: str, name: str) -> bool:
    return other == name or other.startswith(f"{name}/")


def _set(uids: Sequence[int]) -> str:
    return ",".join(map(str, uids))


def _found(pattern: bytes, text: bytes) -> str:
    found = re.search(pattern, text)
    if not found:
        raise RefusedError(f"nothing like {pattern!r} in {text!r}")
    return found[1].decode()


def _numbers(uids: str) -> list[int]:
    """Of a uid-set (RFC 4315 §4), which is in order."""
    numbers: list[int] = []
    for part in uids.split(","):
        first, _, last = part.partition(":")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
