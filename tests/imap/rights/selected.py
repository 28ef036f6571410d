r"""Every command of the selected state: in the mailbox with `r`, else in the user's own INBOX; and from there into it.

RFC 4314 §4: FETCH sets \Seen with `s` only, STORE and COPY do what s, t and w allow, EXPUNGE and CLOSE need `e`, MOVE
needs what STORE, COPY and EXPUNGE need together (RFC 6851 §4.2). Without `r` nothing of a mailbox is told, COPYUID
included (RFC 4315 §3).
"""

import re

from tests.imap.rights.authenticated import told_uids
from tests.imap.rights.model import allowed
from tests.imap.rights.stage import SYSTEM
from tests.imap.rights.talk import NEWS, Answer, Talk, expect, flags_in

SET_ANY = frozenset("stw")
READ_WRITE = frozenset("iewt")      # RFC 4314 §5.2, where \Seen is each reader's own
NUMBERS = ("", "UID ")


class Selected:
    """The mailbox that is selected now, as it must look."""

    def __init__(self, talk: Talk, name: str, *, examine: bool) -> None:
        self.talk = talk
        self.name = name
        self.box = talk.truth.boxes[name]
        self.examine = examine
        self.held = talk.truth.held(name)
        self.read_only = examine or not self.held & set("istwe")
        self.open()

    def open(self) -> None:
        """SELECT or EXAMINE tells what there is, and what may be changed."""
        answer = self.talk.well(f"{'EXAMINE' if self.examine else 'SELECT'} {self.name}", *NEWS, "LIST", code="*")
        own = self.talk.truth.own(self.name)
        may_change = self.held & (READ_WRITE | ({"s"} if own else set()))
        assert answer.code == ("READ-WRITE" if may_change and not self.examine else "READ-ONLY"), answer.octets
        exists, = answer.of("EXISTS")
        assert exists == f"* {len(self.box.messages)} EXISTS"
        self.check_permanent(next(text for text in answer.of("OK") if "[PERMANENTFLAGS" in text))

    def check_permanent(self, text: str) -> None:
        """§5.1.1: PERMANENTFLAGS is what the user may change."""
        told = set(text.partition("(")[2].partition(")")[0].split())
        system = told & SYSTEM.keys()
        assert system == (set() if self.read_only else allowed(self.held, set(SYSTEM))), text
        assert ("\\*" in told) == (not self.read_only and "w" in self.held), text

    def say(self, command: str, status: str = "OK", code: str = "*") -> Answer:
        return expect(self.talk.say(command), status, code, {*NEWS, "SEARCH", "SORT", "THREAD", "ESEARCH"})

    def set_of(self, uids: list[int], by_uid: str) -> str:
        """These messages, as a command names them."""
        there = sorted(self.box.messages)
        return ",".join(str(uid if by_uid else there.index(uid) + 1) for uid in uids)

    # CommandReader

    def check(self) -> None:
        """The messages and their flags are what they must be."""
        answer = self.say("UID FETCH 1:* (FLAGS)")
        found = {int(re.search(r"UID (\d+)", text)[1]): flags_in(text) for text in answer.of("FETCH")}
        assert found == self.box.messages, f"{self.talk.combination}: {found}, not {self.box.messages}"

    def fetch(self) -> None:
        r"""CommandReader sets \Seen with `s`."""
        if not self.box.messages:
            return
        uid = self.talk.rng.choice(sorted(self.box.messages))
        by_uid = self.talk.rng.choice(NUMBERS)
        which = self.set_of([uid], by_uid)
        answer = self.say(f"{by_uid}FETCH {which} {self.talk.rng.choice(('BODY[]', 'BODY[HEADER]', 'RFC822'))}")
        assert any(b"Subject: Qm" in literal for line in answer.lines for literal in line.literals)
        if "s" in self.held and not self.read_only:
            self.change(uid, self.box.messages[uid] | {"\\Seen"})
        if self.talk.rng.random() < 0.3:
            self.say(f"FETCH {self.set_of([uid], '')} (ENVELOPE INTERNALDATE RFC822.SIZE BODY.PEEK[HEADER])")

    def search(self) -> None:
        """SEARCH, SORT and THREAD find the messages, and change nothing."""
        by_uid = self.talk.rng.choice(NUMBERS)
        there = sorted(self.box.messages) if by_uid else [*range(1, len(self.box.messages) + 1)]
        answer = self.say(f"{by_uid}SEARCH {self.talk.rng.choice(('ALL', 'SUBJECT Qm', 'RETURN (COUNT) ALL'))}")
        if answer.of("SEARCH"):
            assert [int(number) for number in answer.of("SEARCH")[0].split()[2:]] == there
        answer = self.say(f"{by_uid}SORT (ARRIVAL) UTF-8 ALL")
        assert sorted(int(number) for number in answer.of("SORT")[0].split()[2:]) == there
        answer = self.say(f"{by_uid}THREAD {self.talk.rng.choice(('REFERENCES', 'ORDEREDSUBJECT'))} UTF-8 ALL")
        assert sorted(int(number) for number in re.findall(r"\d+", answer.of("THREAD")[0])) == there
        self.say("CHECK")

    # Changing

    def change(self, uid: int, flags: set[str]) -> None:
        self.box.messages[uid] = flags
        self.box.dirty = True

    def store(self) -> None:
        """STORE does what it may, and fails only where that is nothing (§4)."""
        rng = self.talk.rng
        if not self.box.messages:
            return
        uid = rng.choice(sorted(self.box.messages))
        words = [*SYSTEM, f"Qk{self.box.number}", "word"]
        wanted = set(rng.sample(words, rng.choice((0, 1, 1, 2, 4))))
        action, silent, by_uid = rng.choice(("", "+", "-")), rng.choice(("", ".SILENT")), rng.choice(NUMBERS)
        command = f"{by_uid}STORE {self.set_of([uid], by_uid)} {action}FLAGS{silent} ({' '.join(sorted(wanted))})"
        may = allowed(self.held, wanted)
        if self.read_only or (wanted and not may) or not (wanted or self.held & SET_ANY):
            answer = self.say(command, "NO")
            assert not answer.of("FETCH"), answer.octets
            return
        answer = self.say(command)
        old = self.box.messages[uid]
        kept = old - allowed(self.held, old)
        new = {"+": old | may, "-": old - may, "": kept | may}[action]
        self.change(uid, new)
        if not silent:
            assert [flags_in(text) for text in answer.of("FETCH")] == [new], answer.octets

    def copy(self, target: str, *, move: bool) -> None:
        """`i` on the target, and for MOVE `t` and `e` here; the flags that go with it are those of s, t and w there."""
        if not self.box.messages:
            return
        talk, truth = self.talk, self.talk.truth
        uid, by_uid = talk.rng.choice(sorted(self.box.messages)), talk.rng.choice(NUMBERS)
        form = f"{by_uid}{'MOVE' if move else 'COPY'} {self.set_of([uid], by_uid)} {{}}"
        there = truth.held(target)
        if move and (self.read_only or not {"t", "e"} <= self.held):
            self.say(form.format(target), "NO")
            return
        if "i" not in there:
            answer = talk.refused(form.format(target), truth.refusal(target, "TRYCREATE"))
            if "l" not in there:
                talk.like_missing(answer, form, target)
            return
        answer = self.say(form.format(target))
        told = [(answer.code, answer.rest)] if answer.code == "COPYUID" else re.findall(
            r"\[(COPYUID) ([^]]*)\]", "\n".join(answer.of("OK")))
        assert bool(told) == ("r" in there), answer.octets
        flags = allowed(there, self.box.messages[uid])
        if move:
            del self.box.messages[uid]
            self.box.dirty = True
        if target == "Sink":
            return
        other = truth.boxes[target]
        new, = told_uids(told[0][1].split(" ")[2]) if told else talk.stage.new_uids(target)
        other.messages[new] = flags
        other.dirty = True

    def expunge(self) -> None:
        r"""EXPUNGE takes what is \Deleted, with `e`."""
        by_uid = self.talk.rng.choice(NUMBERS)
        command = "UID EXPUNGE 1:*" if by_uid else "EXPUNGE"
        if self.read_only or "e" not in self.held:
            answer = self.say(command, "NO")
            assert not answer.of("EXPUNGE", "VANISHED"), answer.octets
            return
        self.say(command)
        self.without_deleted()

    def without_deleted(self) -> None:
        gone = [uid for uid, flags in self.box.messages.items() if "\\Deleted" in flags]
        for uid in gone:
            del self.box.messages[uid]
        self.box.dirty |= bool(gone)

    def leave(self, command: str) -> None:
        """CLOSE expunges with `e`, and never says that it did not; UNSELECT leaves everything as it is."""
        self.talk.well(command, code="*")
        if command == "CLOSE" and "e" in self.held and not self.read_only:
            self.without_deleted()


def in_the_mailbox(talk: Talk) -> None:
    """All of it with `r`; without `r` SELECT and EXAMINE are refused."""
    family, name = talk.family, talk.family.mailbox
    if "r" not in talk.truth.held(name):
        talk.needs("r", "SELECT {}", name)
        nothing_is_selected(talk, ("FETCH 1 BODY[]", "STORE 1 FLAGS ()", "SEARCH ALL", "COPY 1 Sink", "MOVE 1 Sink"))
        talk.needs("r", "EXAMINE {}", name)
        nothing_is_selected(talk, ("SORT (DATE) UTF-8 ALL", "THREAD REFERENCES UTF-8 ALL", "EXPUNGE", "CHECK", "CLOSE",
                                   "UNSELECT"))
        return
    here = Selected(talk, name, examine=True)
    talk.rng.choice((here.fetch, here.store, here.expunge, lambda: here.copy("Sink", move=True)))()
    ways = talk.rng.sample(("UNSELECT", "CLOSE"), 2)
    here.leave(ways[0])
    here = Selected(talk, name, examine=False)
    here.fetch()
    here.store()
    here.search()
    here.store()
    here.copy(talk.rng.choice((*family.all(), "Sink")), move=False)
    here.copy(talk.rng.choice((*family.all(), "Sink")), move=True)
    if talk.rng.random() < 0.5:
        here.expunge()
    here.check()
    here.leave(ways[1])


def nothing_is_selected(talk: Talk, commands: tuple[str, ...]) -> None:
    """After a SELECT that was refused there is nothing that these could tell of (RFC 3501 §6.3.1)."""
    for command in commands:
        by_uid = talk.rng.choice(NUMBERS) if command not in ("CHECK", "CLOSE", "UNSELECT") else ""
        command = "UID EXPUNGE 1:*" if by_uid and command == "EXPUNGE" else by_uid + command
        expect(talk.say(command), "BAD", "", ())
    talk.well("NOOP")                   # or there are too many bad ones in a row


def from_outside(talk: Talk) -> None:
    """From the user's own INBOX into the mailbox, of which nothing is told that `r` does not grant."""
    name = talk.family.mailbox
    here = Selected(talk, "INBOX", examine=talk.rng.random() < 0.1)
    here.copy(name, move=False)
    here.copy(name, move=True)
    talk.rng.choice((here.fetch, here.store, here.search, here.expunge))()
    idle(talk)
    here.leave(talk.rng.choice(("UNSELECT", "CLOSE")))


def idle(talk: Talk) -> None:
    """News of a mailbox that is not selected are told to nobody."""
    talk.played["IDLE"] += 1
    talk.wire.send(b"t IDLE\r\n")
    assert talk.wire.received() == b"+ idling\r\n"
    if talk.family.mailbox in talk.truth.boxes and talk.rng.random() < 0.2:
        talk.stage.bring(talk.family.mailbox, 1)
        talk.truth.boxes[talk.family.mailbox].dirty = True
        talk.wire.settle()
    assert talk.wire.received() == b""
    talk.wire.send(b"DONE\r\n")
    expect(talk.heard("DONE"), "OK", "*", ())
