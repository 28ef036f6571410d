"""What clients hear of their own STOREs is true, and in the end all, though another process changes the mailbox just
before a STORE is carried out, and between that and what is said of it (RFC 3501 §7.4.1, RFC 7162 §3.2.10.2)."""

import os
import re

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from imap.selection import Selection
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags, update_one
from store.opening import open_store
from store.partition.views import MailboxViews
from store.values import Flag, FlagAction, Flags
from tests.imap.test_three_sessions import SMALL
from tests.support.conversations.scripts import content
from tests.support.stores import stores

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "10"))
NAMES = ["\\Seen", "\\Flagged", "\\Deleted", "word"]
SYSTEM = [Flag.SEEN, Flag.FLAGGED, Flag.DELETED]
ELSEWHERE = st.none() | st.tuples(
    st.sampled_from(["other", "here"]), st.sampled_from(["one", "one", "word", "all", "expunge", "arrive"]),
    st.integers(0, 7), st.integers(0, 2), st.booleans())
STEPS = st.lists(st.tuples(
    st.integers(0, 1), st.sampled_from(["STORE", "UID STORE", "STORE", "UID STORE", "NOOP", "IDLE"]),
    st.sampled_from(["one", "one", "one", "some", "all", "since"]), st.integers(0, 7), st.sampled_from("+-="),
    st.integers(0, 3), st.booleans(), ELSEWHERE, ELSEWHERE), min_size=2, max_size=14)
KINDS = st.tuples(*[st.sampled_from(["", "CONDSTORE", "QRESYNC"])] * 2)


class Truth:
    """The mailbox, in two processes, and all that was ever true of its messages."""

    def __init__(self, place, other):
        self.place, self.other, self.ever = place, other, {}
        self.entry = place.entry("INBOX")
        for at in range(6):
            place.deliver("INBOX", content(f"m{at}"))
        self.note()

    def now(self):
        """MODSEQ and flags of each UID, read anew."""
        box = MailboxViews(self.other.partition_of(self.entry)).read(self.entry)
        return {int(row["uid"]): (max(int(row["modseq"]), box.least_modseq), frozenset(
            [*(name for name, flag in zip(NAMES, SYSTEM, strict=False) if row["flags"] & flag),
             *box.keyword_names(int(row["keywords"]))])) for row in box.rows}

    def note(self):
        """What is so now was true."""
        for uid, what in self.now().items():
            self.ever.setdefault(uid, set()).add(what)

    def change(self, where, what, pick, flag, add):
        """Another process, or another thread of this one, changes something."""
        self.note()
        store, uids = self.other if where == "other" else self.place.store, sorted(self.now())
        action = FlagAction.ADD if add else FlagAction.REMOVE
        if what == "arrive":
            stores.deliver(store, content(f"new {len(self.ever)}"), str(self.entry.name))
        elif uids:
            uid = uids[pick % len(uids)]
            if what == "one":
                update_one(store, self.entry, uid, action, Flags(SYSTEM[flag]), "alice")
            elif what == "expunge":
                remove(store, self.entry, [uid])
            else:
                change_flags(store, self.entry, uids if what == "all" else [uid], action, Flags(
                    Flag(0) if what == "word" else SYSTEM[flag], ("word",) if what == "word" else ()))
        self.note()


class Client:
    """A client, and what it believes: for each message a UID, MODSEQ and flags, or None where it does not know."""

    def __init__(self, truth, kind):
        self.truth, self.kind, self.wire = truth, kind, truth.place.connect()
        self.wire.received()
        self.messages, self.tag = [], 0
        self.ask("LOGIN alice secret")
        if kind:
            self.ask(f"ENABLE {kind}")
        self.ask("SELECT INBOX")
        self.learn()

    def ask(self, text):
        """Say a command, and hear the answer."""
        self.tag += 1
        self.wire.send(f"t{self.tag} {text}\r\n".encode())
        *lines, answer = self.wire.received().decode().splitlines()
        assert answer.startswith(f"t{self.tag} ") and " BAD" not in answer, (text, answer)
        self.hear(lines, text)
        return answer

    def hear(self, lines, text):
        """Untagged lines, while this command was under way."""
        numbered = text.startswith("STORE")
        for line in lines:
            if found := re.match(r"\* (\d+) EXISTS", line):
                assert int(found[1]) >= len(self.messages), line
                self.messages += [None] * (int(found[1]) - len(self.messages))
            elif found := re.match(r"\* (\d+) EXPUNGE", line):
                assert not numbered and self.kind != "QRESYNC", line
                del self.messages[int(found[1]) - 1]
            elif found := re.match(r"\* VANISHED (\S+)", line):
                assert not numbered and self.kind == "QRESYNC", line
                gone = {uid for part in found[1].split(",") for ends in [part.split(":")]
                        for uid in range(int(ends[0]), int(ends[-1]) + 1)}
                kept = [each for each in self.messages if not each or each[0] not in gone]
                for _ in range(len(gone) - len(self.messages) + len(kept)):
                    kept.remove(None)           # one that it has never asked for
                self.messages = kept
            elif found := re.match(r"\* (\d+) FETCH \((.*)\)", line):
                self.told(int(found[1]) - 1, found[2], text)

    def told(self, at, said, text):
        """A FETCH response, which must be of the message at that place, and true at some moment."""
        known = self.messages[at]
        uid, modseq = re.search(r"UID (\d+)", said), re.search(r"MODSEQ \((\d+)\)", said)
        flags = re.search(r"FLAGS \(([^)]*)\)", said)
        uid = int(uid[1]) if uid else known[0] if known else None
        assert known is None or known[0] == uid, said
        told = frozenset(flags[1].split()) - {"\\Recent"} if flags else known[2] if known else None
        assert modseq or not self.kind or not flags, "RFC 7162 §3.2: whoever has enabled it hears each MODSEQ"
        if uid is not None and flags:
            ever = self.truth.ever[uid]
            assert any(told == one[1] and (not modseq or int(modseq[1]) == one[0]) for one in ever), (text, said, ever)
        if uid is not None:
            self.messages[at] = uid, int(modseq[1]) if modseq else known[1] if known else None, told

    def idle(self):
        """For a moment."""
        self.wire.send(b"i IDLE\r\n")
        self.wire.send(b"DONE\r\n")
        first, *lines, last = self.wire.received().decode().splitlines()
        assert first.startswith("+") and last.startswith("i OK"), (first, lines, last)
        self.hear(lines, "IDLE")

    def learn(self):
        """Ask for all, what is not known with it."""
        if self.messages:
            self.ask("UID FETCH 1:* (UID FLAGS" + (" MODSEQ)" if self.kind else ")"))

    def store(self, by_uid, which, pick, sign, flag, silent):
        known = [at for at, each in enumerate(self.messages) if each]
        if not known:
            return
        chosen = known if which == "all" else known[:1 + pick % 3] if which == "some" else [known[pick % len(known)]]
        names = [self.messages[at][0] if by_uid else at + 1 for at in chosen]
        since = ""
        if which == "since" and self.kind:
            since = f"(UNCHANGEDSINCE {max(self.messages[at][1] for at in chosen)}) "
        sign = "" if sign == "=" else sign
        for at in chosen if silent else ():
            uid, modseq, flags = self.messages[at]
            new = {"+": flags | {NAMES[flag]}, "-": flags - {NAMES[flag]}, "": frozenset([NAMES[flag]])}[sign]
            self.messages[at] = uid, modseq, new
        answer = self.ask(f"{'UID ' * by_uid}STORE {','.join(map(str, names))} {since}{sign}FLAGS"
                          f"{'.SILENT' * silent} ({NAMES[flag]})")
        assert " OK" in answer or not by_uid and " NO" in answer, answer

    def compare(self):
        """After NOOP all is known. (Flags that have come back to what they were may have a later MODSEQ.)"""
        self.ask("NOOP")
        now = self.truth.now()
        assert len(self.messages) == len(now)
        for each, (uid, (modseq, flags)) in zip(self.messages, sorted(now.items()), strict=True):
            if each:
                assert (each[0], each[2]) == (uid, flags), f"{each} is {modseq} {flags}"
                assert not self.kind or each[1] <= modseq, f"{each} is {modseq}"
        self.learn()


@pytest.fixture(scope="module")
def other(shared_store):
    store = open_store(shared_store.root, shared_store.settings)
    yield store
    store.close()


@pytest.mark.parametrize("as_large", [False, True])
def test_clients_hear_what_is_true(place, other, as_large):
    """`as_large`: with the means of a large mailbox. No client hears of flags and a MODSEQ that never were together."""
    for name, value in SMALL.items() if as_large else ():
        place.patch.setattr(name, value)
    tell, hooks = Selection.tell, []

    async def told(self, **options):
        if hooks and not self._listening:
            hooks.pop()()
        await tell(self, **options)

    def first(of_own):
        def told_own(self, *given, **options):
            if hooks:
                hooks.pop()()
            return of_own(self, *given, **options)

        return told_own

    place.patch.setattr(Selection, "tell", told)
    for name in ("tell_own", "follow_own"):
        place.patch.setattr(Selection, name, first(getattr(Selection, name)))

    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate, Phase.shrink],
              suppress_health_check=list(HealthCheck))
    @given(steps=STEPS, kinds=KINDS)
    def play(steps, kinds):
        hooks.clear()
        truth = Truth(place, other)
        clients = []
        try:
            clients += [Client(truth, kind) for kind in kinds]
            for number, what, which, pick, sign, flag, silent, before, between in steps:
                client = clients[number]
                if before:
                    truth.change(*before)
                if what == "NOOP":
                    client.compare()
                elif what == "IDLE":
                    client.idle()
                else:
                    hooks[:] = [lambda between=between: (truth.note(), between and truth.change(*between))]
                    client.store(what == "UID STORE", which, pick, sign, flag, silent)
                    hooks.clear()
                    truth.note()
            for client in clients:
                client.compare()
        finally:
            for client in clients:
                client.wire.hang_up()
            remove(place.store, truth.entry, sorted(truth.now()))

    play()
    for partition in other.partitions.values():
        partition.files.drop_staged_names()
