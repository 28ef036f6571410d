"""One session: the connection, what its client believes, and what it keeps when the connection breaks."""

import re

from tests.imap.model.client import Belief, Line, Sent, lines_of, uids_of
from tests.imap.model.commands import Wish, found_by, found_by_esearch, made
from tests.imap.model.world import OWNER, World


class Session:
    """One client: its connection, and what it keeps when that breaks."""

    def __init__(self, world: World, user: str, number: int) -> None:
        self.world, self.user, self.number = world, user, number
        self.wire = self.belief = self.idle = None
        self.read_only = False
        self.commands = self.last = 0           # `last`: the highest UID that it was told of
        self.cache: dict[int, frozenset[str]] = {}
        self.modseq = self.complete = 0

    @property
    def name(self) -> str:
        return self.world.path if self.user == OWNER else f"user/{OWNER}/{self.world.path}"

    def tag(self) -> str:
        self.commands += 1
        return f"c{self.number}n{self.commands}"

    def arrived(self, count: int) -> list[int]:
        new = [uid for uid in self.world.mails if uid > self.last][:count]
        assert len(new) == count, f"{count} new messages are announced, there are {new}"
        if new:
            self.last = new[-1]
        return new

    # The wire

    def connect(self, kind: str) -> None:
        self.wire = self.world.place.connect()
        self.wire.received()
        self.plain(f"LOGIN {self.user} secret")
        if kind:
            self.plain(f"ENABLE {kind}")
        self.kind = kind
        self.last = 0
        self.belief = Belief("rev2" in kind, "CONDSTORE" in kind or "QRESYNC" in kind, "QRESYNC" in kind, self.arrived,
                             self.world.texts.get)

    def plain(self, text: str) -> list[Line]:
        """A command that must work; its answer."""
        tag = self.tag()
        self.wire.send(f"{tag} {text}\r\n".encode())
        got = list(lines_of(self.wire.received()))
        assert got and got[-1].text.startswith(f"{tag} OK"), (text, got)
        return got

    def quiet(self) -> None:
        """Nothing comes while no command is in progress."""
        assert not self.wire.received()

    def open(self, kind: str, *, examine: bool, sync: bool, choice: int, lines: int | None) -> None:
        """Connect and select, as a client that has been here before if it has; `lines`: of the answer so many come."""
        self.connect(kind)
        belief = self.belief
        parameters = ""
        if belief.qresync and self.modseq:
            parameters = self._resync(choice)
        elif belief.condstore:
            parameters = " (CONDSTORE)"
        knew = bool(self.modseq) and belief.condstore
        if not knew:
            self.cache, self.modseq, self.complete = {}, 0, 0
        sent = Sent(self.tag(), f"{'EXAMINE' if examine else 'SELECT'} {self.name}{parameters}", "fetch")
        self.wire.send(f"{sent.tag} {sent.text}\r\n".encode())
        got = list(lines_of(self.wire.received()))
        assert got[-1].text.startswith(f"{sent.tag} OK"), got[-1].text
        for line in got[:lines]:
            self._select_line(line, sent)
        if lines is not None and lines < len(got):
            self.drop()
            return
        rights = set(self.world.rights_of(self.user))
        self.read_only = examine or rights.isdisjoint("istwe")
        # RFC 4314 §5.2: \Seen is the guest's own, so that s is no right to change what others see.
        assert ("[READ-ONLY]" in got[-1].text) == (examine or rights.isdisjoint("itwe"))
        assert len(belief.messages) == len(self.world.mails)
        if not knew:
            self.modseq = belief.modseq
            if sync and belief.messages:
                self.say([Wish("fetch", 0, frozenset(), 0)], None)
            return
        if not belief.qresync:                  # RFC 7162 §6, for a client that knows only CONDSTORE
            self._changed_since()
        self._come_back()

    def _resync(self, choice: int) -> str:
        known = sorted(self.cache)
        text = f" (QRESYNC ({self.world.entry.uidvalidity} {self.modseq}"
        if choice & 1 and known:
            text += f" {','.join(map(str, known))}"
        if choice & 2 and known:                # every second message number, or every third
            numbers = list(range(1, len(known) + 1))[choice % 2::1 + choice % 3 + 1]
            if numbers:
                text += f" ({','.join(map(str, numbers))} {','.join(str(known[number - 1]) for number in numbers)})"
        return text + "))"

    def _select_line(self, line: Line, sent: Sent) -> None:
        belief = self.belief
        if gone := re.fullmatch(r"\* VANISHED \(EARLIER\) ([0-9:,]+)", line.text):
            for uid in uids_of(gone[1]):
                assert uid not in self.world.mails
                self.cache.pop(uid, None)
        elif line.text.startswith("*"):
            belief.hear(line, sent)
            if " FETCH " in line.text:
                self._keep(line)
        else:
            belief.answered(line, sent)

    def _keep(self, line: Line) -> None:
        one = self.belief.messages[int(line.text.split()[1]) - 1]
        if one.uid in self.cache or (one.uid is not None and one.uid > self.complete):
            self.cache[one.uid] = one.flags

    def _changed_since(self) -> None:
        for line in self.plain(f"UID FETCH 1:* (FLAGS) (CHANGEDSINCE {self.modseq})"):
            if " FETCH (" in line.text:
                self.belief.hear(line, Sent("", "UID FETCH", "fetch"))
                self._keep(line)
        there: set[int] = set()
        for line in self.plain("UID SEARCH ALL"):
            if line.text.startswith("* SEARCH"):
                there |= {int(uid) for uid in line.text.split()[2:]}
            elif " ALL " in line.text:
                there |= set(uids_of(line.text.partition(" ALL ")[2]))
        self.cache = {uid: flags for uid, flags in self.cache.items() if uid in there}

    def _come_back(self) -> None:
        """Ask for what is new; then the client knows as much as one that asks for everything."""
        known = {uid: flags for uid, flags in self.cache.items() if uid <= self.complete}
        self.cache = known
        for line in self.plain(f"UID FETCH {self.complete + 1}:* (FLAGS MODSEQ)"):
            if " FETCH (" in line.text:
                self.belief.hear(line, Sent("", "UID FETCH", "fetch"))
                one = self.belief.messages[int(line.text.split()[1]) - 1]
                if one.uid > self.complete:
                    known[one.uid] = one.flags
        assert known == self.world.shown(self.user), f"{known} after a break"
        for one, uid in zip(self.belief.messages, sorted(known), strict=True):
            one.uid, one.flags = uid, known[uid]
        self.belief.note_complete()
        self.modseq = self.belief.modseq

    def drop(self) -> None:
        """The connection breaks; what the client knew by then is kept."""
        self.wire.hang_up()
        self.wire = self.idle = None

    def keep(self) -> None:
        """Note what would be kept if the connection broke now."""
        if self.belief.condstore:
            self.cache, self.modseq, self.complete = self.belief.cache(), self.belief.modseq, self.belief.complete
        else:
            self.cache, self.modseq, self.complete = {}, 0, 0

    # Commands

    def say(self, wishes: list[Wish], lines: int | None) -> None:
        """Send commands in one piece, and take in their answers, or so many lines of them."""
        all_sent = [made(wish, self.tag(), self.belief, self.name, alone=len(wishes) == 1) for wish in wishes]
        if len(wishes) == 1 and all_sent[0].since is not None:
            rows = self.world.fresh(self.user).rows
            all_sent[0].modseqs = dict(zip(rows["uid"].tolist(), rows["modseq"].tolist(), strict=True))
            all_sent[0].believed = {one.true: (one.flags, one.modseq) for one in all_sent[0].messages}
        self.send(all_sent, lines)

    def send(self, all_sent: list[Sent], lines: int | None) -> None:
        here = set(self.belief.messages)
        self.wire.send(b"".join(f"{sent.tag} {sent.text}\r\n".encode() for sent in all_sent))
        got = list(lines_of(self.wire.received()))
        heard = 0
        for together in _together(all_sent):
            parts: list[list[Line]] = []
            for sent in together:
                sent.here = {one for one in here if one.true in self.world.mails}
                end = next((at for at, line in enumerate(got) if line.text.startswith(sent.tag + " ")), None)
                assert end is not None, f"{sent.text} is not answered: {[line.text for line in got]}"
                part, got = got[:end + 1], got[end + 1:]
                self.world.carry_out(self.user, sent, part[-1].text, [line.text for line in part[:-1]],
                                     read_only=self.read_only)
                parts.append(part)
            for sent, part in zip(together, parts, strict=True):
                for line in part[:None if lines is None else max(lines - heard, 0)]:
                    heard += 1
                    self.hear(line, sent)
        assert not got, f"not asked for: {[line.text for line in got]}"
        self.keep()
        if lines is not None:
            self.drop()

    def hear(self, line: Line, sent: Sent) -> None:
        if not line.text.startswith("* "):
            self.belief.answered(line, sent)
            return
        if sent.wanted is not None and line.text.startswith(("* SEARCH", "* SORT")):
            found_by(sent, line.text, self.belief)
        elif sent.wanted is not None and line.text.startswith("* ESEARCH"):
            found_by_esearch(sent, line.text, self.belief)
        self.belief.hear(line, sent)

    def begin_idle(self) -> None:
        sent = Sent(self.tag(), "IDLE", "idle")
        self.wire.send(f"{sent.tag} IDLE\r\n".encode())
        got = list(lines_of(self.wire.received()))
        assert got[0].text.startswith("+")
        self.idle = sent
        for line in got[1:]:
            self.belief.hear(line, sent)
        self.keep()

    def news(self) -> None:
        """What comes during IDLE; then nothing is left to be told."""
        for line in lines_of(self.wire.received()):
            self.belief.hear(line, self.idle)
        self.compare()

    def done(self) -> None:
        sent, self.idle = self.idle, None
        self.wire.send(b"DONE\r\n")
        for line in lines_of(self.wire.received()):
            if line.text.startswith("* "):
                self.belief.hear(line, sent)
            else:
                assert line.text.startswith(f"{sent.tag} OK"), line.text
                self.belief.answered(line, sent)
        self.keep()

    # What must hold

    def compare(self) -> None:
        """The client's numbering is that of the mailbox, and the flags that it knows are those of the messages."""
        truth = self.world.shown(self.user)
        believed = [one.true for one in self.belief.messages]
        assert believed == list(truth), f"{self.user} believes {believed}, there are {list(truth)}"
        for one in self.belief.messages:
            assert one.flags is None or one.flags == truth[one.true], f"UID {one.true}: {one.flags} {truth[one.true]}"

    def no_loss(self, rows: dict[int, int]) -> None:
        """RFC 7162 §3.2, §6: what is as old as the client's HIGHESTMODSEQ is known to it. `rows`: MODSEQs by UID."""
        truth, store = self.world.shown(self.user), self.world.place.store
        gone = store.vanished(self.world.entry, self.modseq)
        for uid in self.cache:
            if uid not in truth:
                assert gone is None or uid in gone, f"UID {uid} went, before {self.modseq}"
            else:
                assert rows[uid] > self.modseq or self.cache[uid] == truth[uid], f"UID {uid}, before {self.modseq}"
        for uid in truth:
            assert uid > self.complete or uid in self.cache
        for one in self.belief.messages if self.wire else ():
            assert one.modseq is None or one.true not in rows or one.modseq <= rows[one.true]


def _together(all_sent: list[Sent]) -> list[list[Sent]]:
    """APPENDs that follow each other may be done as one: the answer to the first may announce the messages of all."""
    groups: list[list[Sent]] = []
    for sent in all_sent:
        if groups and sent.text.startswith("APPEND ") and groups[-1][-1].text.startswith("APPEND "):
            groups[-1].append(sent)
        else:
            groups.append([sent])
    return groups
