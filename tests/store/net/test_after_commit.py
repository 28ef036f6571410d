"""Whatever fails after a commit turns no answer: every step that follows the first commit of every changing command is
made to fail, one at a time, and the answer is compared with what is there: of IMAP, LMTP and POP3.

OK: it is done. NO, -ERR, 4xx: nothing is done. No answer, because the session has ended: one of both.
"""

import errno
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest
from twisted.internet.task import Clock

import imap.protocol
import lmtp.protocol
import pop3.protocol
from imap.settings import Settings as ImapSettings
from lmtp.settings import Settings as LmtpSettings
from mboxlist.names import MailboxName
from pop3.settings import Settings as Pop3Settings
from store.delivery.commit import Delivered
from store.mailboxes import firstuse, namespace
from store.mailboxes.authorization import set_acl
from store.mailboxes.subscribing import subscribe, subscriptions
from store.store import Store
from store.values import Flag, Flags
from tests.support import ROOT
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import HASH, deliver, make_store

PRODUCT = tuple(str(ROOT / each) + "/" for each in ("imap", "lmtp", "mboxlist", "pop3", "store"))
Step = CodeType
EACH = 6            # of the steps of a command one in so many fails in a run: each command begins at another one


class Planted:
    """Watches the functions of the product that are called after the first commit. The first call of `step` fails."""

    def __init__(self, step: Step | None = None) -> None:
        self.steps: dict[Step, None] = {}
        self.step = step
        self._armed = False

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_return" and argument.__name__ == "commit":
            self._armed = True
        if event == "call" and self._armed and frame.f_code.co_filename.startswith(PRODUCT):
            self.steps.setdefault(frame.f_code)
            if frame.f_code is self.step:
                sys.setprofile(None)
                raise OSError(errno.EMFILE, "planted: no more descriptors")

    def __enter__(self) -> "Planted":
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


class Place:
    """A store and its three servers. Each try has mailboxes of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = Clock()
        self.servers = {
            "imap": imap.protocol.factory(store, ImapSettings(plaintext_login=True), self.clock),
            "pop3": pop3.protocol.factory(store, Pop3Settings(plaintext_login=True), self.clock),
            "lmtp": lmtp.protocol.factory(store, LmtpSettings(repeat_window=0), self.clock)}
        self.tries = 0
        self.session: Wire | None = None

    def logged_in(self) -> Wire:
        """An IMAP session of alice's."""
        if self.session is None or self.session.closed:
            self.session = self.connect("imap")
            self.session.send(b"x LOGIN alice secret\r\n")
            assert b"x OK" in self.session.received()
        return self.session

    def connect(self, server: str) -> Wire:
        return Wire(self.servers[server], self.clock)

    def prepare(self) -> str:
        """Mailboxes for one try; what their names begin with."""
        self.tries += 1
        name = f"t{self.tries}"
        for path in (f"{name}/a", f"{name}/b"):
            entry = namespace.create_mailbox(self.store, MailboxName("alice", path))
            set_acl(self.store, entry.name, "bob", "lr")
        subscribe(self.store, "alice", f"{name}/b")
        for number in range(3):
            deliver(self.store, b"Subject: %d\r\n\r\nText\r\n" % number, f"user/alice/{name}/a",
                    flags=Flags(Flag.DELETED) if number == 1 else Flags())
        return name

    def seen(self, name: str) -> object:
        """What a client can see of them, each message by its subject and flags."""
        found = {}
        for entry in self.store.names("alice"):
            if entry.name.path.startswith(f"{name}/"):
                mailbox = self.store.open_mailbox(entry)
                found[entry.name.path.removeprefix(name)] = (sorted(entry.acl.items()), [
                    (row["size"].item(), row["flags"].item()) for row in mailbox.rows])
        return found, sorted(path.removeprefix(name) for path in subscriptions(self.store, "alice")
                             if path.startswith(f"{name}/"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    store = make_store(tmp_path_factory.mktemp("after") / "store")
    yield Place(store)
    store.close()


IMAP = [b"STORE 1:2 +FLAGS (\\Flagged)", b"STORE 1 +FLAGS.SILENT (\\Seen)", b"UID STORE 1:3 FLAGS (word)",
        b"COPY 1:2 %b/b", b"MOVE 2:3 %b/b", b"UID MOVE 1 %b/b", b"EXPUNGE", b"UID EXPUNGE 1:3", b"CLOSE",
        b"APPEND %b/b {12+}\r\nSubject: x\r\n", b"CREATE %b/c", b"DELETE %b/b", b"RENAME %b/b %b/d",
        b"SUBSCRIBE %b/a", b"UNSUBSCRIBE %b/b", b"SETACL %b/a bob lrs", b"DELETEACL %b/b bob"]


def one_try(place: Place, command: bytes, step: Step | None) -> tuple[str, object, object, dict[Step, None], bytes]:
    """The answer (OK, NO, or none), what there was before and after, and the steps after the first commit."""
    name = place.prepare()
    wire = place.logged_in()
    wire.send(b"y SELECT %b/a\r\n" % name.encode())
    assert b"y OK" in wire.received()
    before = place.seen(name)
    with Planted(step) as planted:
        wire.send(b"a " + command.replace(b"%b", name.encode()) + b"\r\n")
    said = wire.received()
    answer = next((line[2:4].decode() for line in said.split(b"\r\n") if line.startswith(b"a ")), "")
    assert answer in ("OK", "NO") or not answer and wire.closed, said
    after = place.seen(name)
    return answer, before, after, planted.steps, said


@pytest.mark.parametrize("command", IMAP)
def test_no_step_after_a_commit_turns_an_answer_of_imap(place: Place, command: bytes) -> None:
    answer, before, after, steps, _ = one_try(place, command, None)
    assert answer == "OK" and before != after and steps
    untrue = []
    for step in list(steps)[len(command) % EACH::EACH]:
        answer, there, now, _, said = one_try(place, command, step)
        if there != before or now not in {"OK": [after], "NO": [before], "": [before, after]}[answer]:
            untrue.append(f"{step.co_qualname}: {said!r}: {now}")
    assert not untrue, f"{len(untrue)} of {len(steps)}:\n" + "\n".join(untrue)


LMTP = {
    "one": (b"DATA\r\n", b"Subject: %d\r\n\r\nText\r\n.\r\n", (b"alice",)),
    "two": (b"DATA\r\n", b"Subject: %d\r\n\r\nText\r\n.\r\n", (b"alice", b"bob")),
    "known": (b"DATA\r\n", b"Subject: known\r\n\r\nText\r\n.\r\n", (b"alice", b"bob")),
    "chunk": (b"", b"BDAT 9 LAST\r\nSubject: ", (b"alice", b"bob"))}


def delivery(place: Place, how: str, step: Step | None) -> tuple[list[int | None], list[int], dict[Step, None]]:
    """The codes of the replies (None: there is none), how often each recipient has got the message, and the steps."""
    place.tries += 1
    begin, octets, users = LMTP[how]
    wire = place.connect("lmtp")
    wire.send(b"LHLO relay\r\nMAIL FROM:<a@example.org>\r\n" + b"".join(b"RCPT TO:<%b>\r\n" % user for user in users))
    wire.send(begin)
    said = wire.received()
    assert said.count(b"250 2.1.5 ") == len(users), said
    entries = [place.store.entry(MailboxName(user.decode(), "INBOX")) for user in users]
    before = [place.store.status(entry).messages for entry in entries]
    with Planted(step) as planted:
        wire.send(octets.replace(b"%d", b"%d" % place.tries))
    codes: list[int | None] = [int(line[:3]) for line in wire.received().splitlines()]
    assert len(codes) == len(users) or wire.closed, codes
    codes = [*codes[:len(users)], *[None] * (len(users) - len(codes))]       # it may say 421 after them
    wire.hang_up()
    for entry in entries:               # nothing that was acknowledged, or is seen, has lost its file
        for row in place.store.open_mailbox(entry).rows[-1:]:
            with place.store.open_message(entry, row) as file:
                assert b"Subject" in file.read(0, file.size), step
    return codes, [place.store.status(entry).messages - there for entry, there in zip(entries, before, strict=True)], \
        planted.steps


@pytest.mark.parametrize("how", LMTP)
def test_no_step_after_a_commit_turns_an_answer_of_lmtp(place: Place, how: str) -> None:
    """Each recipient has an answer of its own (RFC 2033 §4.2): 250 is delivered once, 4xx is not."""
    codes, times, steps = delivery(place, how, None)
    assert set(codes) == {250} and set(times) == {1} and steps
    untrue = []
    for step in list(steps)[len(how) % EACH::EACH]:
        codes, times, _ = delivery(place, how, step)
        possible = [{250: (1,), None: (0, 1)}.get(code, (0,)) for code in codes]
        if any(found not in each for found, each in zip(times, possible, strict=True)):
            untrue.append(f"{step.co_qualname}: {codes}: {times}")
    assert not untrue, f"{len(untrue)} of {len(steps)}:\n" + "\n".join(untrue)


POP3 = {"deleted": b"DELE 1\r\nDELE 3\r\n", "read and deleted": b"RETR 2\r\nDELE 1\r\n"}


def quit_after(place: Place, commands: bytes, step: Step | None) -> tuple[bytes, set[int], dict[Step, None]]:
    """The answer to QUIT, which of three messages have gone, and the steps."""
    place.tries += 1
    user = f"p{place.tries}"
    firstuse.inbox(place.store, place.store.directory.add(user, HASH))
    for number in range(3):
        outcome, = deliver(place.store, b"Subject: %d\r\n\r\nText\r\n" % number, f"user/{user}/INBOX")
        assert isinstance(outcome, Delivered), outcome
    wire = place.connect("pop3")
    wire.send(b"USER %b\r\nPASS secret\r\n" % user.encode() + commands)
    assert b"-ERR" not in wire.received()
    with Planted(step) as planted:
        wire.send(b"QUIT\r\n")
    said = wire.received()
    assert said or wire.closed
    left = place.store.open_mailbox(place.store.entry(MailboxName(user, "INBOX"))).rows["uid"].tolist()
    return said[:4], {1, 2, 3} - set(left), planted.steps


@pytest.mark.parametrize("how", POP3)
def test_no_step_after_a_commit_turns_an_answer_of_pop3(place: Place, how: str) -> None:
    """QUIT says whether what was marked has been removed (RFC 1939 §6)."""
    said, gone, steps = quit_after(place, POP3[how], None)
    assert said == b"+OK " and gone == {"deleted": {1, 3}, "read and deleted": {1}}[how] and steps
    untrue = []
    for step in list(steps)[len(how) % EACH::EACH]:
        said, now, _ = quit_after(place, POP3[how], step)
        if now not in {b"+OK ": [gone], b"-ERR": [set()], b"": [gone, set()]}[said]:
            untrue.append(f"{step.co_qualname}: {said!r}: {now}")
    assert not untrue, f"{len(untrue)} of {len(steps)}:\n" + "\n".join(untrue)
