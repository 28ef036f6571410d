"""The store against plain dictionaries: whatever is done to both, they agree, also after a crash."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mboxlist.names import MailboxName
from store.check import check
from store.copying import copy_messages
from store.deliver import Delivered
from store.errors import Problem, StoreError
from store.expunge import expunge, purge, remove
from store.flags import change_flags
from store.quota import UNLIMITED
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.conftest import MEMORY
from tests.support.stores import deliver, make_store, reopen_after_crash

USERS = ("alice", "bob", "carol")
BODIES = [b"Subject: %d\r\n\r\n" % n + b"x" * (97 * n) for n in range(6)]
PATHS = st.sampled_from(["INBOX", "INBOX", "Archive", "Archive", "Archive/2026", "Lists/a/b"])
PICKS = st.just(255) | st.integers(0, 255)      # all of the first eight, or some
WORDS = st.sampled_from(["$Junk", "todo", "Later"])
FLAGS = st.builds(lambda flags, words: Flags(Flag(sum(flags)), tuple(words)),
                  st.sets(st.sampled_from([1, 2, 4, 8, 16])), st.sets(WORDS))


@define
class Box:
    """A mailbox of the model: UID -> (body, system flags, keywords)."""

    validity: int
    messages: dict[int, tuple[bytes, Flag, frozenset[str]]] = field(factory=dict)
    used: set[int] = field(factory=set)


class StoreAgainstDictionaries(RuleBasedStateMachine):
    """See the module's text. All that a rule has done is flushed at its end, as if a client had been answered."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.exists() else None))
        self.store: Store = make_store(self.folder / "store", USERS)
        self.boxes: dict[tuple[str, str], Box] = {}
        self.limits: dict[str, int] = {}
        self.validities: set[int] = set()
        for user in USERS:
            self.learn(user, "INBOX")
            self.create(user, "Archive")
        for at in range(6):                     # something to work on: each body comes twice
            self.deliver(BODIES[at % 3], set(USERS), "INBOX", Flags(Flag(at & 1)), b"")

    def teardown(self) -> None:
        try:
            assert check(self.store) == []
        finally:
            self.store.close()
            shutil.rmtree(self.folder)

    # The model

    def entry(self, user: str, path: str):
        return self.store.entry(MailboxName(user, path))

    def learn(self, user: str, path: str) -> Box:
        validity = self.entry(user, path).uidvalidity
        assert validity not in self.validities, "a UIDVALIDITY came twice"
        self.validities.add(validity)
        box = self.boxes[user, path] = Box(validity)
        return box

    def use(self, user: str) -> int:
        return sum(len(message[0]) for (owner, _), box in self.boxes.items() if owner == user
                   for message in box.messages.values())

    def fits(self, user: str, octets: int) -> bool:
        return user not in self.limits or self.use(user) + octets <= self.limits[user]

    def arrived(self, box: Box, uid: int, body: bytes, flags: Flag, words: frozenset[str]) -> None:
        assert uid not in box.used and uid > max(box.used, default=0), "a UID came again, or out of order"
        box.used.add(uid)
        box.messages[uid] = body, flags, words

    def flush(self) -> None:
        for partition in self.store.partitions.values():
            partition.env.flush()

    # What is done to both

    @rule(body=st.sampled_from(BODIES), users=st.sets(st.sampled_from(USERS), min_size=1), path=PATHS,
          flags=FLAGS, trace=st.sampled_from([b"", b"Return-Path: <a@example.org>\r\n"]))
    def deliver(self, body, users, path, flags, trace):
        there = [user for user in sorted(users) if (user, path) in self.boxes]
        if not there:
            return
        outcomes = deliver(self.store, body, *(f"user/{user}/{path}" for user in there), flags=flags)
        for user, outcome in zip(there, outcomes, strict=True):
            if isinstance(outcome, Delivered):
                assert self.fits(user, len(body))
                self.arrived(self.boxes[user, path], outcome.uid, body, flags.system, frozenset(flags.keywords))
            else:
                assert outcome.problem is Problem.OVER_QUOTA and not self.fits(user, len(body))

    @rule(user=st.sampled_from(USERS), source=PATHS, into=PATHS, pick=PICKS, move=st.booleans())
    def copy(self, user, source, into, pick, move):
        if (user, source) not in self.boxes or (user, into) not in self.boxes:
            return
        box, other = self.boxes[user, source], self.boxes[user, into]
        uids = [uid for at, uid in enumerate(sorted(box.messages)) if pick >> at % 8 & 1]
        octets = sum(len(box.messages[uid][0]) for uid in uids)
        try:
            new = copy_messages(self.store, self.entry(user, source), self.entry(user, into), uids, remove=move)
        except StoreError as refused:
            assert refused.problem is Problem.OVER_QUOTA and not move and not self.fits(user, octets)
            return
        assert move or not uids or self.fits(user, octets)
        for uid, copy in zip(uids, new, strict=True):
            message = box.messages.pop(uid) if move else box.messages[uid]
            self.arrived(other, copy, *message)
        self.flush()

    @rule(user=st.sampled_from(USERS), path=PATHS)
    def copy_what_is_gone(self, user, path):
        if (user, path) not in self.boxes:
            return
        box = self.boxes[user, path]
        try:
            copy_messages(self.store, self.entry(user, path), self.entry(user, "INBOX"),
                          [*box.messages, max(box.used, default=0) + 1])
        except StoreError as refused:
            assert refused.problem is Problem.GONE
        else:
            raise AssertionError("a message that does not exist was copied")

    @rule(user=st.sampled_from(USERS), path=PATHS, pick=PICKS, action=st.sampled_from(FlagAction),
          flags=FLAGS)
    def change_flags(self, user, path, pick, action, flags):
        if (user, path) not in self.boxes:
            return
        box = self.boxes[user, path]
        uids = [uid for at, uid in enumerate(sorted(box.used)) if pick >> at % 8 & 1]
        gone = change_flags(self.store, self.entry(user, path), uids, action, flags)
        assert sorted(gone.tolist()) == [uid for uid in uids if uid not in box.messages]
        for uid in set(uids) & set(box.messages):
            body, old, words = box.messages[uid]
            given = frozenset(flags.keywords)
            if action is FlagAction.ADD:
                box.messages[uid] = body, old | flags.system, words | given
            elif action is FlagAction.REMOVE:
                box.messages[uid] = body, old & ~flags.system, words - given
            else:
                box.messages[uid] = body, flags.system, given
        self.flush()

    @rule(user=st.sampled_from(USERS), path=PATHS, only=st.none() | PICKS)
    def expunge(self, user, path, only):
        if (user, path) not in self.boxes:
            return
        box = self.boxes[user, path]
        chosen = [uid for at, uid in enumerate(sorted(box.used)) if only is None or only >> at % 8 & 1]
        doomed = [uid for uid in chosen if uid in box.messages and box.messages[uid][1] & Flag.DELETED]
        assert expunge(self.store, self.entry(user, path), None if only is None else chosen) == doomed
        for uid in doomed:
            del box.messages[uid]
        self.flush()

    @rule(user=st.sampled_from(USERS), path=PATHS, pick=PICKS)
    def remove(self, user, path, pick):
        if (user, path) not in self.boxes:
            return
        box = self.boxes[user, path]
        uids = [uid for at, uid in enumerate(sorted(box.messages)) if pick >> at % 8 & 1]
        assert remove(self.store, self.entry(user, path), uids) == uids
        for uid in uids:
            del box.messages[uid]
        self.flush()

    @rule(user=st.sampled_from(USERS), path=PATHS)
    def create(self, user, path):
        try:
            self.store.create_mailbox(MailboxName(user, path))
        except StoreError as refused:
            assert refused.problem is Problem.MAILBOX_EXISTS and (user, path) in self.boxes
        else:
            assert (user, path) not in self.boxes
            self.learn(user, path)

    @rule(user=st.sampled_from(USERS), path=PATHS)
    def delete(self, user, path):
        try:
            self.store.delete_mailbox(MailboxName(user, path))
        except StoreError as refused:
            expected = Problem.NO_PERMISSION if path == "INBOX" else Problem.NO_MAILBOX
            assert refused.problem is expected and (path == "INBOX" or (user, path) not in self.boxes)
        else:
            del self.boxes[user, path]

    @rule(user=st.sampled_from(USERS), old=PATHS, new=PATHS)
    def rename(self, user, old, new):
        tree = {path for owner, path in self.boxes if owner == user and (path == old or path.startswith(old + "/"))}
        moved = {path: new + path[len(old):] for path in tree}
        there = {path for owner, path in self.boxes if owner == user}
        try:
            self.store.rename_mailbox(MailboxName(user, old), MailboxName(user, new))
        except StoreError as refused:
            if old == "INBOX":
                assert refused.problem is Problem.MAILBOX_EXISTS and new in there
            elif new == "INBOX" or new.startswith(old + "/"):
                assert refused.problem is Problem.BAD_NAME
            elif not tree:
                assert refused.problem is Problem.NO_MAILBOX
            else:
                assert refused.problem is Problem.MAILBOX_EXISTS
                assert set(moved.values()) & (there - tree) or len(set(moved.values())) < len(moved)
            return
        if old == "INBOX":
            into, inbox = self.learn(user, new), self.boxes[user, "INBOX"]
            uids = sorted(self.store.open_mailbox(self.entry(user, new)).rows["uid"].tolist())
            for uid, old_uid in zip(uids, sorted(inbox.messages), strict=True):
                self.arrived(into, uid, *inbox.messages.pop(old_uid))
            return
        boxes = {path: self.boxes.pop((user, path)) for path in tree}
        self.boxes.update({(user, moved[path]): box for path, box in boxes.items()})

    @rule(user=st.sampled_from(USERS), limit=st.none() | st.integers(0, 1500))
    def set_quota(self, user, limit):
        self.store.set_quota(user, UNLIMITED if limit is None else limit)
        self.limits.pop(user, None)
        if limit is not None:
            self.limits[user] = limit

    @rule()
    def purge(self):
        for partition in self.store.partitions.values():
            purge(partition, now=2e9 + partition.settings.purge_delay)

    @rule()
    def reopen(self):
        self.store.close()
        self.store = Store(self.store.root, self.store.settings)

    @rule()
    def crash(self):
        self.store = reopen_after_crash(self.store)

    # What must be so

    @invariant()
    def the_mailboxes_agree(self):
        for user in USERS:
            assert {entry.name.path for entry in self.store.names(user)} == {p for u, p in self.boxes if u == user}
        for (user, path), box in self.boxes.items():
            entry = self.entry(user, path)
            assert entry.uidvalidity == box.validity
            mailbox = self.store.open_mailbox(entry)
            assert mailbox.state.uidnext > max(box.used, default=0)
            found = {}
            for row in mailbox.rows:
                with self.store.open_message(entry, row) as file:
                    found[int(row["uid"])] = (file.read(0, file.size), Flag(int(row["flags"])),
                                              frozenset(mailbox.keyword_names(int(row["keywords"]))))
            assert found == box.messages

    @invariant()
    def each_body_is_kept_once(self):
        uses = Counter(message[0] for box in self.boxes.values() for message in box.messages.values())
        records = [record for _, record in self.store.partitions["primary"].refs.all() if record.references]
        assert sorted(record.references for record in records) == sorted(uses.values())

    @invariant()
    def quota_agrees(self):
        for user in USERS:
            use = self.store.quota(user)
            assert use.octets == self.use(user)
            assert use.messages == sum(len(box.messages) for (owner, _), box in self.boxes.items() if owner == user)


TestModel = StoreAgainstDictionaries.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None,
                              suppress_health_check=list(HealthCheck))
