"""Back ends that move users to each other: real processes on loopback, and what keeps them busy meanwhile."""

import contextlib
import re
import socket
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define, field

from tests.support.clients.imap import Imap, Refused
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import command
from tests.support.processes.ports import free_port
from tests.support.servers.server import Server

HOSTS = ("one.example.org", "two.example.org")
LIMIT = 300.0               # seconds that a thread may take to see that it is to end
MESSAGE_ID = re.compile(rb"^Message-ID: <(\S+)>\r?$", re.MULTILINE)


class BackEnd(Server):
    """A server whose commands run in this process: each start of the program takes longer than what it does here."""

    def command(self, *arguments: str, status: int = 0, octets: bytes = b"") -> str:
        """What `onecopy` prints."""
        found, out, error = command.run_here(arguments, self.environment(), octets)
        assert found == status, f"onecopy {' '.join(arguments)}: {found}\n{out}{error}"
        return out


def two_servers(folder: Path, users: Sequence[str], options: Mapping[str, str] | None = None
                ) -> tuple[BackEnd, BackEnd]:
    """Not started yet. The users are on the first; the other one knows them from its own directory."""
    authorities = folder / "authorities.pem"
    ports = [free_port(), free_port()]
    made = []
    for number, host in enumerate(HOSTS):
        there = folder / host
        there.mkdir(exist_ok=True)         # the test may have mounted something there
        made.append(BackEnd(there, (), {
            "store.host": host, "exchange.address": "127.0.0.1", "exchange.port": str(ports[number]),
            "exchange.peers": f"{HOSTS[1 - number]}=127.0.0.1:{ports[1 - number]}",
            "exchange.authorities": str(authorities), "store.cache": "16M", **(options or {})}))
        made[-1].command("user", "add", "--password-stdin", "--host", HOSTS[0], *users, octets=b"secret\n")
    authorities.write_text("".join(each.command("config", "certificate") for each in made))
    return made[0], made[1]


def body(name: str, size: int = 0) -> bytes:
    """A message with that Message-ID."""
    return b"Message-ID: <%b>\r\nSubject: %b\r\n\r\n%b\r\n" % (name.encode(), name.encode(), b"x" * size)


@define(eq=False)
class Relay:
    """Delivers messages, one after the other, to whichever back end takes them: as a relay does, it tries again when it
    is put off. What was taken is counted; a refusal for good is an error."""

    servers: Sequence[Server]
    users: Sequence[str]
    name: str
    taken: Counter[tuple[str, str]] = field(factory=Counter)       # user, Message-ID
    put_off: Counter[str] = field(factory=Counter)
    doubtful: set[str] = field(factory=set)         # Message-IDs that may have been taken without a word
    errors: list[str] = field(factory=list)
    stopping: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread | None = None
    _connections: dict[int, Lmtp] = field(factory=dict)

    def __enter__(self) -> "Relay":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Deliver what is under way, and no more."""
        self.stopping.set()
        if self._thread is not None:
            self._thread.join(LIMIT)
            assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            number = 0
            while not self.stopping.is_set():
                for user in self.users:
                    number += 1
                    self.deliver(user, f"{self.name}-{number}@example.org")
                    if self.stopping.is_set():
                        break
        except Exception as error:          # the test shows it
            self.errors.append(repr(error))

    def deliver(self, user: str, name: str) -> None:
        """Until it has been taken."""
        at = 0
        while True:
            try:
                reply, = self._to(at).deliver("relay@example.org", [user], body(name))
            except (OSError, ConnectionError):
                if at in self._connections:
                    self._connections.pop(at).close()
                    self.doubtful.add(name)
            else:
                if reply.code == 250:
                    self.taken[user, name] += 1
                    return
                if not 400 <= reply.code < 500:
                    self.errors.append(f"{user}: {reply}")
                    return
                self.put_off[str(reply.lines[0])[:60]] += 1
            at = (at + 1) % len(self.servers)

    def _to(self, at: int) -> Lmtp:
        if at not in self._connections:
            self._connections[at] = Lmtp(self.servers[at].lmtp)
        return self._connections[at]


@define(eq=False)
class Client:
    """Somebody's mail client: it stays connected, remembers what it has seen under which UID, and flags it. When it is
    sent away it comes again, wherever it is let in."""

    servers: Sequence[Server]
    user: str
    seen: dict[tuple[int, int], bytes] = field(factory=dict)        # UIDVALIDITY and UID: Message-ID
    flagged: set[tuple[int, int]] = field(factory=set)              # what it was told to be done
    farewells: Counter[str] = field(factory=Counter)
    errors: list[str] = field(factory=list)
    stopping: threading.Event = field(factory=threading.Event)
    connected: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread | None = None
    _known: int = 0
    _imap: Imap | None = None

    def __enter__(self) -> "Client":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Go away."""
        self.stopping.set()
        if self._imap is not None:
            with contextlib.suppress(OSError):
                self._imap.socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(LIMIT)
            assert not self._thread.is_alive()

    def _run(self) -> None:
        at = 0
        try:
            while not self.stopping.is_set():
                try:
                    with Imap(self.servers[at].imap) as imap:
                        self._imap = imap
                        if not self.stopping.is_set() and imap.command(f'LOGIN "{self.user}" "secret"').status == "OK":
                            self._stay(imap)
                except (OSError, ConnectionError):
                    pass
                at = (at + 1) % len(self.servers)
        except Exception as error:          # the test shows it
            self.errors.append(repr(error))

    def _stay(self, imap: Imap) -> None:
        validity = 0
        while not self.stopping.is_set():
            try:
                if not validity:
                    validity, _ = imap.select()
                    self.connected.set()
                self._look(imap, validity)
                self._idle(imap)
            except Refused as refused:              # while it is held
                if "INUSE" not in str(refused) and "UNAVAILABLE" not in str(refused):
                    raise

    def _look(self, imap: Imap, validity: int) -> None:
        new = {}
        for response in imap.ok(f"UID FETCH {self._known + 1}:* (UID BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)])").untagged:
            uid = re.search(rb"UID (\d+)", response.text)
            self._farewell(response.text)
            if uid and response.literals:
                found = MESSAGE_ID.search(response.literals[0])
                assert found, response
                new[int(uid[1])] = found[1]
        for uid, name in new.items():
            if self.seen.setdefault((validity, uid), name) != name:
                self.errors.append(f"{self.user}: UID {uid} was {self.seen[validity, uid]!r} and is {name!r}")
        fresh = sorted(uid for uid in new if uid > self._known)
        if fresh:
            imap.ok(f"UID STORE {fresh[0]}:{fresh[-1]} +FLAGS.SILENT (\\Flagged $kept)")
            self.flagged |= {(validity, uid) for uid in fresh}
            self._known = fresh[-1]

    def _idle(self, imap: Imap) -> None:
        imap.send(b"idle IDLE\r\n")
        while True:
            response = imap.response()
            self._farewell(response.text)
            if b" EXISTS" in response.text:
                break
        imap.send(b"DONE\r\n")
        imap.answer(b"idle")

    def _farewell(self, text: bytes) -> None:
        if text.startswith(b"* BYE"):
            self.farewells[text.decode()] += 1


def dump(server: Server, user: str) -> dict[str, object]:
    """All that a client can see of a user's mailboxes, as IMAP says it."""
    found: dict[str, object] = {}
    with Imap(server.imap, user) as imap:
        imap.ok("ENABLE CONDSTORE")
        listed = imap.ok('LIST "" "*" RETURN (SUBSCRIBED SPECIAL-USE)').untagged
        found["list"] = sorted(response.text for response in listed if response.text.startswith(b"* LIST"))
        for line in found["list"]:
            name = re.search(rb'"/" "?([^"]+)"?$', line)[1].decode()
            if b"\\NonExistent" in line or name.startswith("user/"):
                continue
            opened = imap.ok(f'EXAMINE "{name}"').untagged
            told = sorted(response.text for response in opened
                          if re.search(rb"UIDVALIDITY|UIDNEXT|HIGHESTMODSEQ|FLAGS|EXISTS", response.text))
            messages = []
            for response in imap.ok("UID FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE MODSEQ ENVELOPE BODYSTRUCTURE "
                                    "BODY.PEEK[])").untagged:
                if b" FETCH " in response.text:
                    text = re.sub(rb"^\* (\d+) FETCH", rb"\1", response.text)
                    messages.append((re.sub(rb" \\Recent|\\Recent ?", b"", text), response.literals))
            acl = sorted(response.text for response in imap.ok(f'GETACL "{name}"').untagged)
            found[name] = ([re.sub(rb" \[(.*)\].*", rb" \1", line) for line in told], messages, acl)
        quota = imap.ok("GETQUOTAROOT INBOX").untagged
        found["quota"] = sorted(response.text for response in quota)
    return found
