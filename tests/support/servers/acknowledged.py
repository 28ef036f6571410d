"""Clients that change all that can be changed, and remember what was acknowledged: it must be there afterwards."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from attrs import define, field

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.servers.backends import MESSAGE_ID, body
from tests.support.servers.server import Server

LIMIT = 180.0                # seconds that a client may take to see that the server has gone
KINDS = ("deliver", "append", "flags", "copy", "move", "expunge", "rename", "create", "delete")
_COPIED = re.compile(r"COPYUID (\d+) (\d+) (\d+)")
_APPENDED = re.compile(r"APPENDUID (\d+) (\d+)")


@define(eq=False)
class Changes:
    """What one user's client has changed, `start` to the loss of the server; the user is named like the kind."""

    user: str
    count: Callable[[], None]
    there: dict[str, set[str]] = field(factory=dict)        # messages that must be in a mailbox, by their names
    gone: dict[str, set[str]] = field(factory=dict)         # and that must not
    uids: dict[tuple[str, int, int], str] = field(factory=dict)     # what a UID has meant: mailbox, UIDVALIDITY, UID
    flags: dict[str, int] = field(factory=dict)             # the number in the last keyword that was acknowledged
    boxes: set[str] = field(factory=set)                    # mailboxes that must be there,
    no_boxes: set[str] = field(factory=set)                 # and that must not
    number: int = 0
    errors: list[str] = field(factory=list)

    def run(self, server: Server, name: str) -> None:
        """Until the server has gone. `name`: what this time is called."""
        try:
            if self.user == "deliver":
                with Lmtp(server.lmtp) as lmtp:
                    while True:
                        self._deliver(lmtp, self._next(name))
            with Imap(server.imap, self.user) as imap:
                if self.user in ("copy", "move"):
                    imap.command("CREATE Other")
                validity, _ = imap.select()
                step = getattr(self, f"_{self.user}")
                while True:
                    step(imap, self._next(name), validity)
        except (OSError, IndexError, EOFError):
            pass
        except Exception as error:          # the test shows it
            self.errors.append(f"{self.user}: {error!r}")

    def _next(self, name: str) -> str:
        self.number += 1
        return f"{self.user}-{name}-{self.number}"

    def _put(self, mailbox: str, name: str) -> None:
        self.there.setdefault(mailbox, set()).add(name)
        self.count()

    def _deliver(self, lmtp: Lmtp, name: str) -> None:
        reply, = lmtp.deliver("relay@example.org", [self.user], body(name, 1500))
        if reply.code == 250:
            self._put("INBOX", name)
        elif not 400 <= reply.code < 500:
            self.errors.append(str(reply))

    def _append(self, imap: Imap, name: str, validity: int) -> int:
        answer = imap.append("INBOX", body(name, 500))
        if answer.status != "OK":
            raise EOFError(answer.text)     # it is refused: the standby is away
        found = _APPENDED.search(answer.text)
        assert found and int(found[1]) == validity
        self.uids["INBOX", validity, int(found[2])] = name
        self._put("INBOX", name)
        return int(found[2])

    def _ok(self, imap: Imap, command: str) -> str:
        answer = imap.command(command)
        if answer.status != "OK":
            raise EOFError(answer.text)
        return " ".join([answer.text, *(each.text.decode("latin-1") for each in answer.untagged)])

    def _flags(self, imap: Imap, name: str, validity: int) -> None:
        uid = self._append(imap, name, validity)
        for number in range(1, 6):
            self._ok(imap, f"UID STORE {uid} FLAGS.SILENT (k{number})")
            self.flags[name] = number
            self.count()

    def _copy(self, imap: Imap, name: str, validity: int, verb: str = "COPY") -> None:
        uid = self._append(imap, name, validity)
        if verb == "MOVE":
            self.there["INBOX"].discard(name)
        found = _COPIED.search(self._ok(imap, f"UID {verb} {uid} Other"))
        assert found, verb
        self.uids["Other", int(found[1]), int(found[3])] = name
        if verb == "MOVE":
            self.gone.setdefault("INBOX", set()).add(name)
        self._put("Other", name)

    def _move(self, imap: Imap, name: str, validity: int) -> None:
        self._copy(imap, name, validity, "MOVE")

    def _expunge(self, imap: Imap, name: str, validity: int) -> None:
        uid = self._append(imap, name, validity)
        self._ok(imap, f"UID STORE {uid} +FLAGS.SILENT (\\Deleted)")
        self.there["INBOX"].discard(name)
        self._ok(imap, f"UID EXPUNGE {uid}")
        self.gone.setdefault("INBOX", set()).add(name)
        self.count()

    def _create(self, imap: Imap, name: str, validity: int) -> None:
        self._ok(imap, f"CREATE {name}")
        self.boxes.add(name)
        self.count()

    def _rename(self, imap: Imap, name: str, validity: int) -> None:
        self._create(imap, name, validity)
        self.boxes.discard(name)
        self._ok(imap, f"RENAME {name} {name}-new")
        self.boxes.add(f"{name}-new")
        self.no_boxes.add(name)
        self.count()

    def _delete(self, imap: Imap, name: str, validity: int) -> None:
        self._create(imap, name, validity)
        self.boxes.discard(name)
        self._ok(imap, f"DELETE {name}")
        self.no_boxes.add(name)
        self.count()

    # Afterwards

    def problems(self, server: Server) -> Iterator[str]:
        """What was acknowledged and is not so, and UIDs that have two meanings."""
        yield from self.errors
        with Imap(server.imap, self.user) as imap:
            listed = {re.sub(rb'^.* "?([^" ]+)"?$', rb"\1", each.text).decode() for each in imap.ok(
                'LIST "" *').untagged if each.text.startswith(b"* LIST")}
            yield from (f"{self.user}: {name} is not there" for name in sorted(self.boxes - listed))
            yield from (f"{self.user}: {name} is there" for name in sorted(self.no_boxes & listed))
            for mailbox in sorted({"INBOX", *self.there, *(name for name, _, _ in self.uids)}):
                yield from self._problems_of(imap, mailbox)

    def _problems_of(self, imap: Imap, mailbox: str) -> Iterator[str]:
        validity, _ = imap.select(mailbox)
        found: Mapping[int, bytes] = imap.messages() if imap.uids() else {}
        names = {uid: MESSAGE_ID.search(octets)[1].decode() for uid, octets in found.items()}      # type: ignore[index]
        there = set(names.values())
        lost, left = self.there.get(mailbox, set()) - there, self.gone.get(mailbox, set()) & there
        yield from (f"{self.user}: {name} is not in {mailbox}" for name in sorted(lost))
        yield from (f"{self.user}: {name} is still in {mailbox}" for name in sorted(left))
        for uid, name in names.items():
            seen = self.uids.get((mailbox, validity, uid), name)
            if seen != name:
                yield f"{self.user}: UID {uid} of {mailbox} meant {seen}, and means {name}"
            self.uids[mailbox, validity, uid] = name
        if mailbox == "INBOX" and self.flags:
            flags = {uid: int(number) for uid, number in re.findall(
                r"UID (\d+) [^)]*?\bk(\d+)", self._ok(imap, "UID FETCH 1:* FLAGS"))}
            by_name = {name: flags.get(str(uid), 0) for uid, name in names.items()}
            yield from (f"{self.user}: {name} has the flag k{by_name.get(name)}, not k{number}"
                        for name, number in self.flags.items() if by_name.get(name, 0) < number)


@define(eq=False)
class Load:
    """Clients of all KINDS at the same time."""

    changes: list[Changes] = field(factory=list)
    counted: int = 0
    _limit: int = 0
    _enough: threading.Event = field(factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        self.changes += [Changes(kind, self._count) for kind in KINDS]

    def _count(self) -> None:
        self.counted += 1
        if self.counted >= self._limit:
            self._enough.set()

    def prepare(self, server: Server) -> None:
        """Have each user's first mailbox made."""
        for each in self.changes:
            with Imap(server.imap, each.user) as imap:
                imap.select()

    def until(self, server: Server, name: str, count: int, kill: Callable[[], None]) -> None:
        """Have so many changes acknowledged, and then `kill` called; all have seen it when this returns."""
        self._limit = self.counted + count
        self._enough.clear()
        threads = [threading.Thread(target=partial(each.run, server, name), daemon=True) for each in self.changes]
        for thread in threads:
            thread.start()
        try:
            assert self._enough.wait(LIMIT), "too little is acknowledged"
        finally:
            kill()
            for thread in threads:
                thread.join(LIMIT)
                assert not thread.is_alive()

    def problems(self, server: Server) -> list[str]:
        """All that is not as it was acknowledged."""
        return [problem for each in self.changes for problem in each.problems(server)]
