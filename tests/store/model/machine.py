"""The store and the dictionaries side by side: whatever is done to both, they agree, from wherever one looks."""

from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mboxlist.names import MailboxName
from store.errors import Problem
from store.tables.references import mark
from store.values import Flag, FlagAction
from tests.store.model.acts import LOG_LIMIT, digest
from tests.store.model.boxes import Box
from tests.store.model.expected import USERS, Expected, Reference, Refusal, private
from tests.store.model.places import OneProcess, ThreeProcesses

IDS = [b"Message-ID: <%d@example.org>\r\n" % (n // 2) * (n > 3) for n in range(12)]      # most are those of two bodies
BODIES = [IDS[n] + b"Subject: %d\r\n\r\n" % n + b"x" * (61 * n) for n in range(12)]
HEADERS = [[], [], [b"Delivered-To: one@example.org\r\n"],
           [b"Delivered-To: a@example.org\r\n", b"", b"Delivered-To: b@example.org\r\nX-Two: 2\r\n"]]
TRACES = [b"", b"", b"Return-Path: <a@example.org>\r\nReceived: 1\r\n",
          b"Return-Path: <a@example.org>\r\nReceived: from elsewhere\r\n", b"Return-Path: <b@example.org>\r\n"]
PATHS = ["INBOX", "INBOX", "Archive", "Archive", "Archive/2026", "Lists/a/b", "Lists"]
OWN = [f"user/{user}/{path}" for user in USERS for path in PATHS]
NUMBERS = st.integers(0, 15)
NAMES = st.sampled_from([*OWN, *OWN, "public/news", "public/news/world"])
THERE = st.one_of(NUMBERS, NUMBERS, NUMBERS, NAMES)     # a number: one of the mailboxes that there are
NEW_NAMES = st.one_of(NAMES, st.sampled_from(["user/dave/INBOX", f"user/alice/{'x' * 240}/{'y' * 240}/{'z' * 240}/"
                                              f"{'w' * 175}"]))
PICKS = st.just(255) | st.integers(0, 255)      # all of the first eight, or some
WORDS = st.sampled_from(["$Junk", "$junk", "todo", "Later"])
MANY = [f"w{number}" for number in range(70)]
KEYWORDS = st.one_of(st.lists(WORDS, max_size=2), st.integers(55, 70).map(lambda most: MANY[:most])).map(
    lambda words: tuple({word.lower(): word for word in words}.values()))
SYSTEM = st.sets(st.sampled_from([1, 2, 4, 8, 16])).map(lambda flags: Flag(sum(flags)))
READERS = st.sampled_from(["", *USERS])
OWN_ROOTS = ["alice/Archive", "alice/Lists", "bob/Archive/2026", "bob/INBOX", "carol/Archive"]
ROOTS = [*USERS, *USERS, "public/news", *OWN_ROOTS]
AT = st.integers(0, ThreeProcesses.count - 1)
LIMITS = st.none() | st.integers(0, 2000)
START = 1_900_000_000       # Unix time


class Machine(RuleBasedStateMachine):
    """See the module's text; a subclass says from which place. `at` is the process that does something."""

    place: ClassVar[OneProcess | ThreeProcesses]

    def __init__(self) -> None:
        super().__init__()
        self.model = Expected(START)
        self.validities: set[int] = set()
        self.steps = 0
        self.place.begin(START)
        try:
            self.fill()
        except BaseException:
            self.place.end(START)
            raise

    def fill(self) -> None:
        for user in USERS:
            self.learn(f"user/{user}/INBOX")
            self.create(0, f"user/{user}/Archive")
        for name in ("user/alice/INBOX", "user/bob/INBOX", "user/carol/Archive"):
            self.set_acl(0, name, "anyone", "lrswipte")
        for at in range(6):             # something to work on: each body comes twice
            self.deliver(at % self.place.count, [f"user/{user}/INBOX" for user in USERS], BODIES[at % 3], b"",
                         Flag(at & 1), [("todo",), (), ("Later",)][at % 3], "", HEADERS[at % 4])
        for user in USERS:              # the same keywords in another order
            self.deliver(0, [f"user/{user}/Archive"], BODIES[3], b"", Flag(0), ("$Junk", "Later"), "")

    def teardown(self) -> None:
        try:
            self.agree(list(self.model.boxes), USERS)
            self.purge(0, 0, None)
            assert self.do(0, "check") == []
            digests = [digest(body) for body in BODIES]
            assert self.do(0, "files", digests) == [body in self.model.files for body in BODIES]
        finally:
            self.place.end(self.model.now)

    # Both

    def do(self, at: int, act: str, *arguments: Any) -> Any:
        """What the store does."""
        return self.place.do(at % self.place.count, self.model.now, act, *arguments)

    def both(self, at: int, act: str, *arguments: Any) -> Any:
        """The outcome, which is what was expected; None when that is a refusal."""
        try:
            expected = getattr(self.model, act)(*arguments)
        except Refusal as refusal:
            expected = refusal.problems
        found = self.do(at, act, *arguments)
        assert _agrees(found, expected), f"{act}{arguments}: {found} instead of {expected}"
        return None if isinstance(found, Problem) else found

    def new(self, at: int, act: str, *arguments: str) -> tuple[int, int] | None:
        """The id and UIDVALIDITY of a mailbox that comes; None when it is refused, as was expected."""
        try:
            getattr(self.model, act)(*arguments)
        except Refusal as refusal:
            assert self.do(at, act, *arguments) in refusal.problems
            return None
        found = self.do(at, act, *arguments)
        assert not isinstance(found, Problem), f"{act}{arguments}: {found}"
        return found

    def learn(self, name: str) -> tuple[int, int]:
        """A new mailbox is there; its id and UIDVALIDITY."""
        seen = self.do(self.steps, "look", name, "", [])
        above = next((each for each in self.parents(name) if each in self.model.boxes), None)
        acl = dict(self.model.boxes[above].acl) if above else {}        # it is shared as the one above it is
        self.model.boxes[name] = Box(seen["id"], seen["validity"][0], highest=seen["highest"], acl=acl)
        self.new_validity(seen["validity"][0])
        return seen["id"], seen["validity"][0]

    def parents(self, name: str) -> list[str]:
        """The names above it, the nearest first."""
        return ["/".join(name.split("/")[:depth]) for depth in range(name.count("/"), 1, -1)]

    def new_validity(self, validity: int) -> None:
        assert validity not in self.validities, "a UIDVALIDITY came twice"
        self.validities.add(validity)

    def name(self, which: int | str) -> str:
        """A mailbox by its number among those that there are, the fullest first, or by its name."""
        if isinstance(which, str):
            return which
        there = sorted(self.model.boxes, key=lambda name: (-len(self.model.boxes[name].messages), name))
        return there[which % len(there)]

    def picked(self, name: Reference, pick: int, *, gone: bool = False) -> list[int]:
        """Some UIDs of a mailbox, with `gone` also those that are no more."""
        box = self.model._find(name)
        if box is None:
            return [1]
        uids = sorted({*box.messages, *(uid for _, uid in box.log)} if gone else box.messages)
        return [uid for at, uid in enumerate(uids) if pick >> at % 8 & 1]

    # What is done to both

    @rule(at=AT, names=st.lists(THERE, min_size=1, max_size=4), body=st.sampled_from(BODIES),
          trace=st.sampled_from(TRACES), flags=SYSTEM, words=KEYWORDS, reader=st.just("") | READERS,
          headers=st.sampled_from(HEADERS), window=st.sampled_from([0, 0, 500]))
    def deliver(self, at, names, body, trace, flags, words, reader, headers=HEADERS[0], window=0):
        there = [name for name in map(self.name, names) if name in self.model.boxes]
        if there:
            self.both(at, "deliver", there, body, b"" if reader else trace, flags, words, reader, headers, window)

    @rule(at=AT, source=THERE, into=THERE, pick=PICKS, move=st.booleans(), reader=READERS, gone=st.integers(0, 7))
    def copy(self, at, source, into, pick, move, reader, gone):
        source, into = self.name(source), self.name(into)
        uids = self.picked(source, pick)
        if not gone:
            uids.append(1 << 30)                # what is not there
        self.both(at, "copy", source, into, uids, move, reader)

    @rule(at=AT, name=THERE, pick=PICKS, action=st.sampled_from(FlagAction), flags=SYSTEM, words=KEYWORDS,
          reader=READERS)
    def change_flags(self, at, name, pick, action, flags, words, reader):
        name = self.name(name)
        self.both(at, "change_flags", name, self.picked(name, pick, gone=True), action, flags, words, reader)

    @rule(at=AT, name=THERE, marked=st.none() | PICKS, only=st.none() | PICKS)
    def expunge(self, at, name, marked, only):
        name = self.name(name)
        if marked is not None:
            self.both(at, "change_flags", name, self.picked(name, marked), FlagAction.ADD, Flag.DELETED, (), "")
        self.both(at + 1, "expunge", name, None if only is None else self.picked(name, only, gone=True))

    @rule(at=AT, name=THERE, pick=PICKS, back=st.sampled_from(["", "now", "before the purge"]))
    def remove(self, at, name, pick, back):
        name = self.name(name)
        self.both(at, "remove", name, self.picked(name, pick, gone=True))
        if back:
            self.both(at + 1, "undelete_messages", name, self.model.now, None)
        if back == "before the purge":
            self.model.now += 1100
            self.both(at, "purge")

    @rule(at=AT, name=THERE, age=st.sampled_from([0, 0, 500, 2000]), pick=st.none() | PICKS)
    def undelete_messages(self, at, name, age, pick):
        name, since = self.name(name), self.model.now - age
        found = self.both(at, "deleted_messages", name, since) or []
        uids = None if pick is None else [uid for place, (_, uid, _) in enumerate(found) if pick >> place % 8 & 1]
        self.both(at, "undelete_messages", name, since, uids)

    @rule(at=AT, name=THERE)
    def claim_recent(self, at, name):
        self.both(at, "claim_recent", self.name(name))

    @rule(at=AT, name=NEW_NAMES)
    def create(self, at, name):
        found = self.new(at, "create", name)
        if found is not None:
            assert self.learn(name) == found

    @rule(at=AT, name=THERE)
    def delete(self, at, name):
        self.both(at, "delete", self.name(name))

    @rule(at=AT, pick=st.integers(0, 9), new=st.none() | NAMES)
    def undelete(self, at, pick, new):
        names = [name for _, name, _ in self.model.deleted] or ["user/alice/Archive"]
        name = names[pick % len(names)]
        found = self.new(at, "undelete", name, new or name)
        if found is None:
            return
        box = self.model.boxes[new or name]
        assert found[0] == box.id
        box.validity = found[1]
        self.new_validity(box.validity)
        if box.header_lengths:
            self.skipped(new or name, box)

    @rule(at=AT, old=THERE, new=NEW_NAMES)
    def rename(self, at, old, new):
        old = self.name(old)
        if not MailboxName.parse(old).is_inbox() or MailboxName.parse(old).owner != MailboxName.parse(new).owner:
            self.both(at, "rename", old, new)
            return
        try:
            self.model.create(new)
        except Refusal as refusal:
            assert self.do(at, "rename", old, new) in refusal.problems
            return
        found = self.do(at, "rename", old, new)
        if found is not None:                           # it was made, and its messages found no room
            self.model.boxes[new] = Box(0, 0)
            with pytest.raises(Refusal) as refusal:
                self.model.rename_inbox(old, new)
            assert found in refusal.value.problems
            del self.model.boxes[new]
            when, number, validity = self.do(at, "deleted", new)
            self.model.deleted.append((when, new, Box(number, validity, acl=dict(self.model.boxes[old].acl))))
            return
        self.learn(new)
        if self.model.rename_inbox(old, new):
            self.model.boxes[new].highest = 0           # it had its messages when it was looked at

    @rule(at=AT, pick=st.integers(0, 9), name=THERE, uid=st.integers(1, 3))
    def use_what_was_deleted(self, at, pick, name, uid):
        """Somebody still holds a mailbox that has been deleted."""
        if not self.model.deleted:
            return
        name = self.name(name)
        _, old, box = self.model.deleted[pick % len(self.model.deleted)]
        stale = old, box.id, box.validity
        if name in self.model.boxes:
            self.both(at, "deliver", [name, stale], BODIES[uid], b"", Flag.SEEN, (), "", HEADERS[3], 500)
        self.both(at, "change_flags", stale, [uid], FlagAction.ADD, Flag.SEEN, (), "")
        self.both(at, "copy", name, stale, [], False, "")
        self.both(at, "expunge", stale, None)
        self.both(at, "undelete_messages", stale, 0, None)
        self.both(at, "claim_recent", stale)

    @rule(at=AT, root=st.sampled_from(ROOTS), octets=LIMITS, messages=st.none() | st.integers(0, 12),
          pick=st.integers(0, 15))
    def set_quota(self, at, root, octets, messages, pick):
        """Or take a root of its own away: of those that there are, or of one that there may not be."""
        there = [*sorted(self.model.roots), *OWN_ROOTS][pick] if pick < len(self.model.roots) + 1 else None
        if there is None:
            self.both(at, "set_quota", root, octets, messages)
        else:
            self.both(at, "remove_quota_root", there)

    @rule(at=AT, name=THERE, identifier=st.sampled_from([*USERS, "anyone", "-bob", "-anyone", "dave"]),
          modification=st.sampled_from(["lrswipkxtea", "lrswt", "-s", "-w", "-t", "+st", "+w", "lr", ""]))
    def set_acl(self, at, name, identifier, modification):
        self.both(at, "set_acl", self.name(name), identifier, modification)

    @rule(at=AT, seconds=st.sampled_from([1, 400, 1100]), made=st.sampled_from(["snapshot", "forget_snapshots", None]))
    def purge(self, at, seconds, made):
        self.model.now += seconds
        if made is not None:
            self.both(at, made)
        self.both(at, "purge")

    @rule(how=st.sampled_from(["reopen", "crash", "kill", "older"]))
    def restart(self, how):
        getattr(self.place, how)(self.model.now)
        if how == "reopen":
            return
        self.steps += 1
        for name, box in self.model.boxes.items():
            box.highest = self.skipped(name, box)
        for _, _, box in self.model.deleted:
            box.header_lengths = True

    def skipped(self, name: str, box: Box) -> int:
        """After a crash UIDs and MODSEQs skip ahead, so that none comes again; the MODSEQ."""
        seen = self.do(self.steps, "look", name, "", [])
        assert seen["uidnext"] >= box.uidnext and seen["highest"] >= box.highest
        box.uidnext, box.header_lengths = seen["uidnext"], False
        return seen["highest"]

    # What must be so

    @invariant()
    def the_mailboxes_agree(self):
        """What has changed is looked at now, and some of the others."""
        self.steps += 1
        names = list(self.model.boxes)
        others = names[self.steps % len(names):][:2]
        self.agree({name for name in names if self.model.boxes[name].moved} | set(others),
                   [USERS[self.steps % len(USERS)]])

    def agree(self, names, readers) -> None:
        """These mailboxes are as they should be, for their owner and these readers."""
        for owner in (*USERS, ""):
            assert self.do(self.steps, "names", owner) == sorted(
                self.model.owned(owner), key=lambda name: name.split("/"))
        for name in sorted(names):
            box = self.model.boxes[name]
            history = sorted({0, *(modseq for modseq, _ in box.log), box.highest})
            since = [*history[:1], *history[len(history) // 2:][:1], *history[-1:]]
            seen = [(reader, self.do(self.steps + at, "look", name, reader, since))
                    for at, reader in enumerate(("", *readers))]
            self.same_mailbox(name, box, seen[0][1])
            for reader, view in seen:
                self.same_messages(name, box, reader, view)
                self.same_log(box, since, view)
            box.looked_at({reader for reader, _ in seen}, seen[0][1]["highest"])

    def same_mailbox(self, name: str, box: Box, seen: dict[str, Any]) -> None:
        assert (seen["id"], seen["validity"]) == (box.id, (box.validity, box.validity))
        assert seen["uidnext"] == box.uidnext
        assert seen["root"] == self.model.root(name)
        assert seen["words"] == sorted(box.words.values())
        assert (seen["highest"] > box.highest) == box.moved, "HIGHESTMODSEQ"
        box.log += [(seen["highest"], uid) for uid in sorted(box.fresh)]
        messages = box.messages.values()
        assert seen["figures"] == (
            len(messages), sum(not message.flags & Flag.SEEN for message in messages),
            sum(bool(message.flags & Flag.DELETED) for message in messages), sum(len(each.text) for each in messages))

    def same_messages(self, name: str, box: Box, reader: str, seen: dict[str, Any]) -> None:
        mine = private(name, reader)
        assert not reader or seen["rights"] == self.model.rights(name, reader)
        assert [row[:4] for row in seen["rows"]] == [
            (uid, message.text, box.shown(uid, reader, mine), frozenset(box.words[word] for word in message.words))
            for uid, message in sorted(box.messages.items())]
        before, now = box.modseqs.get(reader, {}), {row[0]: row[4] for row in seen["rows"]}
        for uid, modseq in now.items():
            if (uid, None) in box.touched or (uid, reader) in box.touched:
                assert modseq > before.get(uid, 0) and modseq > box.told.get(reader, 0), f"UID {uid} has no new MODSEQ"
            elif uid in before:
                assert modseq == before[uid], f"UID {uid} has a new MODSEQ"
        box.modseqs[reader] = now

    def same_log(self, box: Box, since: list[int], seen: dict[str, Any]) -> None:
        """RFC 7162 §3.2.5.1: what went after a MODSEQ, as long as that is known."""
        for modseq, gone in zip(since, seen["gone"], strict=True):
            if gone is None:
                assert 8 * len(box.log) > LOG_LIMIT, "the log has been trimmed too early"
                assert modseq < max(then for then, _ in box.log), "the newest is not known"
            else:
                assert gone == sorted(uid for then, uid in box.log if then > modseq)

    @invariant()
    def quota_agrees(self):
        for root in {self.model.root(name) for name in self.model.boxes} | set(USERS) | self.model.roots:
            assert self.do(self.steps, "quota", root) == self.model.use(root)

    @invariant()
    def each_body_is_kept_once(self):
        """One file for each content; the references are those of the records, also by their check value, with those
        that were expunged and can be brought back."""
        uses = self.model.references()
        marks = dict.fromkeys(uses, 0)
        for box in self.model.every():
            for uid, message in [*box.messages.items(), *(item[1:] for item in box.expunged)]:
                marks[message.body] += mark(box.id, uid)
        assert self.do(self.steps, "references") == {
            digest(body): (uses[body], marks.get(body, 0) & 0xFFFFFFFFFFFFFFFF) for body in self.model.files}
        for bodies in self.model.snapshots.values():
            assert bodies <= self.model.files.keys(), "a snapshot refers to a file that is gone"


def _agrees(found: Any, expected: Any) -> bool:
    """Whether an outcome is the expected one, or one of the expected refusals."""
    if isinstance(expected, frozenset):
        return isinstance(found, Problem) and found in expected
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_agrees, found, expected))
    return isinstance(found, Problem) is False and found == expected
