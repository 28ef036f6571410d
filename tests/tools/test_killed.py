"""Commands of administrators, killed at random moments and run again: the work is done, and done once.

KILLS=50 tries that many moments of each command.
"""

import tempfile
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store import partitions
from store.copying import copy_messages
from store.expunge import remove
from store.flags import change_flags
from store.rights import set_acl
from store.uidls import bring
from store.values import Flag, FlagAction, Flags
from tests.conftest import MEMORY
from tests.support import killing
from tests.support.killing import kill_and_repeat
from tests.support.stores import deliver, make_store

ALICE, BOB = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")
ARCHIVE = MailboxName("alice", "Archive")


@pytest.fixture(scope="module")
def start():
    """A store with two partitions; alice and bob share messages, some of which have been changed and expunged."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY) as folder:
        fill(Path(folder) / "start" / "store")
        yield Path(folder) / "start"


def fill(root):
    store = make_store(root, ("alice", "bob"))
    partitions.add(store, "second", None)
    for path in ("Archive", "Archive/2026", "Work"):
        store.create_mailbox(MailboxName("alice", path))
    for number in range(12):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), str(ALICE), str(BOB),
                flags=Flags(Flag.SEEN if number % 2 else Flag(0), ("todo",) if number % 3 else ()),
                header=b"Delivered-To: {}\r\n" if number > 9 else b"")
    copy_messages(store, store.entry(ALICE), store.entry(ARCHIVE), [1, 2, 3])
    copy_messages(store, store.entry(ALICE), store.entry(MailboxName("alice", "Archive/2026")), [4])
    change_flags(store, store.entry(ALICE), [2, 5], FlagAction.ADD, Flags(Flag.FLAGGED))
    remove(store, store.entry(ALICE), [7, 8])
    set_acl(store, ARCHIVE, "bob", "lr")
    bring(store, store.entry(BOB), {1: b"first", 3: b"third"})
    store.set_quota("alice", 10_000_000)
    store.set_quota("alice/Archive", 5_000_000)
    store.subscribe("alice", "Archive")
    store.close()


def everything(store, here=None):
    """What users and administrators see, without UIDNEXT and MODSEQs: each death has them skip ahead."""
    boxes = {}
    for entry in list(store.mailboxes.all()):
        picture = store.open_mailbox(entry)
        rows = [(int(row["uid"]), int(row["flags"]), int(row["keywords"]), int(row["received"]), int(row["size"]),
                 store.open_message(picture.entry, row).read(0, int(row["size"]))) for row in picture.rows]
        boxes[str(entry.name)] = (entry.partition, entry.uidvalidity, dict(entry.acl), picture.state.keywords,
                                  store.uidls(entry), rows)
    uses = {root: (use.octets, use.messages, use.octet_limit) for partition in store.partitions.values()
            for root, use in partition.quotas.all()}
    files = {name: sorted((mid.hex(), record.references) for mid, record in partition.refs.all() if record.references)
             for name, partition in store.partitions.items()}
    deleted = sorted(str(entry.name) for _, entry in store.mailboxes.deleted.all())
    return boxes, uses, files, deleted, store.subscriptions("alice"), sorted(map(str, store.directory.all()))


def test_what_is_counted(start, tmp_path):
    """A command that does nothing to mail has few moments, one that moves it many; the same run has the same."""
    with killing._copy(start, tmp_path) as here:
        few = killing.run(here, ["user", "list"])
        many = killing.run(here, ["user", "move", "alice", "--to", "second"])
        assert few.status == many.status == 0 and 0 < few.moments < many.moments
        dead = killing.run(here, ["user", "move", "alice", "--to", "primary"], at=many.moments // 2)
        assert dead.status == -9 and dead.moments == 0


def test_user_move(start, tmp_path):
    kill_and_repeat(start, tmp_path, "user", "move", "alice", "--to", "second", look=everything, kills=3)
