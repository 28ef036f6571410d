"""Quota: the sums equal the records, whatever happens."""

import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.deletion import undelete_mailbox, undelete_messages
from store.mailboxes.expunge import remove
from store.quota import roots
from tests.conftest import MEMORY
from tests.store.quota.quotas import body, fill, make, use
from tests.support.stores.stores import deliver, make_store, reopen_after_crash

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

# Side by side

def test_roots_are_made_and_removed_while_mail_arrives(store):
    make(store, "Archive")
    stop, failures = threading.Event(), []

    def arrange():
        try:
            while not stop.is_set():
                roots.set_quota(store, "alice/Archive", octets=10_000_000)
                roots.remove_quota_root(store, "alice/Archive")
        except StoreError as error:
            if error.problem is not Problem.BUSY:
                failures.append(error)
        except Exception as error:
            failures.append(error)

    other = threading.Thread(target=arrange)
    other.start()
    try:
        fill(store, 60, "user/alice/Archive", first=100)
    finally:
        stop.set()
        other.join()
    assert not failures
    total = [sum(column) for column in zip(use(store, "alice"), use(store, "alice/Archive"), strict=True)]
    assert total == [6000, 60]


# Whatever happens

PATHS = st.sampled_from(["INBOX", "A", "A/B", "A/B/C", "D", "D/B", "INBOX/x"])
PICKS = st.integers(0, 255)
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "10"))


class SumsAgainstDictionaries(RuleBasedStateMachine):
    """A user's mailboxes and roots, and the same in dictionaries: path -> UID -> octets."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.exists() else None))
        self.store = make_store(self.folder / "store")
        self.boxes = {"INBOX": {}}
        self.gone = {}                      # path -> its messages, of the mailbox last deleted under that name
        self.expunged = {}                  # mailbox id -> octets of the messages expunged
        self.roots = set()
        self.number = 0

    def teardown(self):
        try:
            assert check(self.store) == []
        finally:
            self.store.close()
            shutil.rmtree(self.folder)

    def entry(self, path):
        return self.store.entry(MailboxName("alice", path))

    def root(self, path):
        levels = path.split("/")
        for depth in range(len(levels), 0, -1):
            if "/".join(levels[:depth]) in self.roots:
                return "alice/" + "/".join(levels[:depth])
        return "alice"

    @rule(path=PATHS, size=st.integers(30, 300))
    def deliver(self, path, size):
        if path in self.boxes:
            self.number += 1
            outcome, = deliver(self.store, body(self.number, size), f"user/alice/{path}")
            self.boxes[path][outcome.uid] = size

    @rule(source=PATHS, into=PATHS, pick=PICKS, move=st.booleans())
    def copy(self, source, into, pick, move):
        if source in self.boxes and into in self.boxes:
            uids = [uid for at, uid in enumerate(sorted(self.boxes[source])) if pick >> at % 8 & 1]
            new = copy_messages(self.store, self.entry(source), self.entry(into), uids, remove=move)
            for uid, copy in zip(uids, new, strict=True):
                self.boxes[into][copy] = self.boxes[source].pop(uid) if move else self.boxes[source][uid]

    @rule(path=PATHS, pick=PICKS)
    def remove(self, path, pick):
        if path in self.boxes:
            uids = [uid for at, uid in enumerate(sorted(self.boxes[path])) if pick >> at % 8 & 1]
            entry = self.entry(path)
            for uid in remove(self.store, entry, uids):
                self.expunged.setdefault(entry.id, []).append(self.boxes[path].pop(uid))

    @rule(path=PATHS)
    def bring_back(self, path):
        if path in self.boxes:
            entry = self.entry(path)
            uids = undelete_messages(self.store, entry)
            sizes = self.expunged.pop(entry.id, [])
            rows = self.store.open_mailbox(entry).rows
            found = {int(row["uid"]): int(row["size"]) for row in rows if int(row["uid"]) in uids}
            assert sorted(found.values()) == sorted(sizes)
            self.boxes[path].update(found)

    @rule(path=PATHS)
    def create(self, path):
        if path not in self.boxes:
            namespace.create_mailbox(self.store, MailboxName("alice", path))
            self.boxes[path] = {}

    @rule(path=PATHS)
    def delete(self, path):
        if path in self.boxes and path != "INBOX":
            deletion.delete_mailbox(self.store, MailboxName("alice", path))
            self.gone[path] = self.boxes.pop(path)

    @rule(path=PATHS, new=PATHS)
    def undelete(self, path, new):
        if path in self.gone and new not in self.boxes:
            undelete_mailbox(self.store, MailboxName("alice", path), new_name=MailboxName("alice", new))
            self.boxes[new] = self.gone.pop(path)
            self.gone.clear()               # which one is the last of a name is not this model's business

    @rule(old=PATHS, new=PATHS)
    def rename(self, old, new):
        tree = {path for path in self.boxes if path == old or path.startswith(old + "/")}
        moved = {path: new + path[len(old):] for path in tree}
        if "INBOX" in (old, new) or new.startswith(old + "/") or not tree or {new, *moved.values()} & self.boxes.keys():
            return
        namespace.rename_mailbox(self.store, MailboxName("alice", old), MailboxName("alice", new))
        boxes = {moved[path]: self.boxes.pop(path) for path in tree}
        self.boxes.update(boxes)

    @rule(path=PATHS)
    def make_root(self, path):
        roots.set_quota(self.store, f"alice/{path}", octets=1 << 40)
        self.roots.add(path)

    @rule(path=PATHS)
    def remove_root(self, path):
        if path in self.roots:
            roots.remove_quota_root(self.store, f"alice/{path}")
            self.roots.remove(path)

    @rule()
    def crash(self):
        for partition in self.store.partitions.values():
            partition.env.flush()
        self.store = reopen_after_crash(self.store)

    @invariant()
    def sums_are_right(self):
        for root in ["alice", *(f"alice/{path}" for path in self.roots)]:
            boxes = [box for path, box in self.boxes.items() if self.root(path) == root]
            found = roots.quota(self.store, root)
            assert found.octets == sum(sum(box.values()) for box in boxes), root
            assert found.messages == sum(len(box) for box in boxes), root
        rows = {root for root, _ in self.store.partitions["primary"].quotas.all()}
        assert rows - {"alice", "bob"} == {f"alice/{path}" for path in self.roots}


TestSums = SumsAgainstDictionaries.TestCase
TestSums.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None,
                             suppress_health_check=list(HealthCheck))
