"""Commands of administrators, killed at random moments and run again: the work is done, and done once.

KILLS=20 tries so many moments of each command.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.mailboxes import namespace, subscribing
from store.mailboxes.authorization import set_acl
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.mailboxes.uidllist import give
from store.opening import open_store
from store.partition.messagefiles import MessageFiles
from store.partitions import volumes
from store.quota import roots
from store.tables.index import chunk_key
from store.values import Flag, FlagAction, Flags
from tests.conftest import MEMORY
from tests.support.faults import killing
from tests.support.faults.killing import kill_and_repeat
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import lose_databases

ALICE, BOB = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")
ARCHIVE = MailboxName("alice", "Archive")


CONTENTS = [b"Subject: %d\r\n\r\n%d\r\n" % (number, number) for number in range(12)]
_HASHED = sorted({f"{name[0]}/{name[1:3]}" for name in (hashlib.blake2b(content, digest_size=32).hexdigest()
                                                        for content in CONTENTS)})


@pytest.fixture(scope="module")
def start():
    """A store with two partitions; alice and bob share messages, some of which have been changed and expunged. It has
    few folders: there are many copies of it."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(MessageFiles, "folders", lambda self: (f"{self.folder}/{each}" for each in _HASHED))
        fill(Path(folder) / "start" / "store")
        yield Path(folder) / "start"


def fill(root):
    store = make_store(root, ("alice", "bob"))
    volumes.add(store, "second", None)
    for path in ("Archive", "Archive/2026", "Work"):
        namespace.create_mailbox(store, MailboxName("alice", path))
    for number, content in enumerate(CONTENTS):
        deliver(store, content, str(ALICE), str(BOB),
                flags=Flags(Flag.SEEN if number % 2 else Flag(0), ("todo",) if number % 3 else ()),
                header=b"Delivered-To: {}\r\n" if number > 9 else b"")
    copy_messages(store, store.entry(ALICE), store.entry(ARCHIVE), [1, 2, 3])
    copy_messages(store, store.entry(ALICE), store.entry(MailboxName("alice", "Archive/2026")), [4])
    change_flags(store, store.entry(ALICE), [2, 5], FlagAction.ADD, Flags(Flag.FLAGGED))
    remove(store, store.entry(ALICE), [7, 8])
    set_acl(store, ARCHIVE, "bob", "lr")
    give(store, store.entry(BOB), {1: b"first", 3: b"third"})
    roots.set_quota(store, "alice", 10_000_000)
    roots.set_quota(store, "alice/Archive", 5_000_000)
    subscribing.subscribe(store, "alice", "Archive")
    store.close()


def everything(store, here=None):
    """What users and administrators see, without UIDNEXT and MODSEQs: each death has them skip ahead."""
    boxes = {}
    for entry in list(store.mailboxes.all()):
        view = store.open_mailbox(entry)
        rows = [(int(row["uid"]), int(row["flags"]), int(row["keywords"]), int(row["received"]), int(row["size"]),
                 store.open_message(view.entry, row).read(0, int(row["size"]))) for row in view.rows]
        boxes[str(entry.name)] = (entry.partition, entry.uidvalidity, dict(entry.acl), view.state.keywords,
                                  store.uidls(entry), rows)
    uses = {root: (use.octets, use.messages, use.octet_limit) for partition in store.partitions.values()
            for root, use in partition.quotas.all()}
    files = {name: sorted((digest.hex(), record.references) for digest,
                          record in partition.refs.all() if record.references)
             for name, partition in store.partitions.items()}
    deleted = sorted(str(entry.name) for _, entry in store.mailboxes.deleted.all())
    return boxes, uses, files, deleted, subscribing.subscriptions(store, "alice"), sorted(map(str,
                                                                                              store.directory.all()))


def test_what_is_counted(start, tmp_path):
    """A command that does nothing to mail has few moments, one that moves it many; the same run has the same."""
    with killing.copied(start, tmp_path) as here:
        few = killing.run(here, ["user", "list"])
        many = killing.run(here, ["user", "move", "alice", "--to", "second"])
        assert few.status == many.status == 0 and 0 < few.moments < many.moments
        dead = killing.run(here, ["user", "move", "alice", "--to", "primary"], at=many.moments // 2)
        assert dead.status == -9 and dead.moments == 0


def gone(store, here=None):
    """What is left of removed users and mailboxes; which of several deaths made it wait for the purge is no matter."""
    boxes, uses, files, deleted, subscribed, users = everything(store)
    return boxes, {root: use for root, use in uses.items() if use[0] or use[1]}, files, deleted, subscribed, users


DONE = (0, 1, 2)            # the work may have been done when it died: then it says that there is nothing to do
COMMANDS = {
    "user move": (["user", "move", "alice", "--to", "second"], {}),
    "user remove": (["user", "remove", "alice", "--now", "--yes"], {"look": gone, "statuses": DONE}),
    "user rename": (["user", "rename", "alice", "zoe"], {"look": gone, "statuses": DONE}),
    "mailbox rename": (["mailbox", "rename", "alice", "Archive", "Old"], {"statuses": DONE}),
    "mailbox delete": (["mailbox", "delete", "alice", "Archive", "Work", "--yes"], {"look": gone, "statuses": DONE}),
    "quota set": (["quota", "set", "alice/Archive", "--octets", "7M"], {}),
    "quota remove": (["quota", "remove", "alice/Archive"], {"statuses": DONE}),
    "partition add": (["partition", "add", "third"], {"statuses": DONE}),
    "partition remove": (["partition", "remove", "second", "--yes"], {"statuses": DONE}),
    "uidl import": (["uidl", "import", "alice", "-"], {"octets": b"1 one\n2 two\n3 three\n9 nine\n"}),
    "relink": (["relink"], {}),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(start, tmp_path, name):
    words, rest = COMMANDS[name]
    kill_and_repeat(start, tmp_path, *words, **{"look": everything, "kills": 1, "seed": len(name), **rest})


def test_init(tmp_path):
    """A store that is not whole yet is made whole."""
    (tmp_path / "start").mkdir()
    kill_and_repeat(tmp_path / "start", tmp_path, "init", kills=3, statuses=(0, 2), look=everything)


def test_restore_of_everything(start, tmp_path):
    with killing.copied(start, tmp_path) as here:
        assert killing.run(here, ["backup", "--to", killing.HERE + "/backup.tar"]).status == 0
        shutil.rmtree(here / "store")
        folder = tmp_path / "copies"
        folder.mkdir()
        kill_and_repeat(here, folder, "restore", killing.HERE + "/backup.tar", look=gone, kills=4)


HERE = killing.HERE
BACKUP = ["backup", "--to", HERE + "/backup.tar"]
ADD = ["user", "add", "carol", "--password-file", HERE + "/password"]
#: What was done before, the command, and how it is judged. A new user's mail may need folders that the store lacks.
PREPARED = {
    "restore over": ([BACKUP, ["mailbox", "delete", "alice", "Archive", "--yes"]],
                     ["restore", "--user", "alice", "--over", HERE + "/backup.tar"], {}),
    "import mbox": ([["export", "--format", "mbox", "--to", HERE + "/mbox", "alice"], ADD],
                    ["import", "mbox", "carol", HERE + "/mbox"], {"tolerated": ("the folder is missing",)}),
    "snapshot restore": ([["snapshot", "create"], ["user", "move", "alice", "--to", "second"]],
                         ["snapshot", "restore", "--yes"], {}),
    "import maildir": ([["export", "--format", "maildir", "--to", HERE + "/maildir", "alice"], ADD],
                       ["import", "maildir", "carol", HERE + "/maildir"], {"tolerated": ("the folder is missing",)}),
    "restore into": ([BACKUP], ["restore", "--user", "alice", "--into", "Back", HERE + "/backup.tar"], {}),
    "restore messages": ([BACKUP], ["restore", "--user", "alice", "--mailbox", "INBOX", "--into", "Few", HERE
                                    + "/backup.tar", "--message", "1", "2", "3"], {}),
    "partition drain": ([], ["partition", "drain", "primary", "--to", "second", "--store-default-partition", "second"],
                        {}),
    "backup": ([], BACKUP, {}),
    "export": ([], ["export", "--format", "maildir", "--to", HERE + "/maildir", "alice"], {}),
    "recover": ([], ["recover"], {}),
    "undelete": ([], ["undelete", "alice", "INBOX"], {"statuses": (0, 1)}),
    "mailbox undelete": ([["mailbox", "delete", "alice", "Archive", "--yes"]],
                         ["mailbox", "undelete", "alice", "Archive"], {"statuses": DONE}),
}


def shown(store, here):
    """Each message by its mailbox, with flags and date, as often as it is there; who there is, and what they use."""
    texts = {name: sorted((flags, received, text) for _, flags, _, received, _, text in box[-1])
             for name, box in everything(store)[0].items()}
    exported = sorted((path.parent.name, path.read_bytes()) for path in (here / "maildir").rglob("cur/*"))
    return texts, exported, {account.user: roots.quota(store, account.user) for account in store.directory.all()}


@pytest.mark.parametrize("name", list(PREPARED)[:None if killing.KILLS else 3])
def test_commands_that_need_something(start, tmp_path, name):
    before, words, rest = PREPARED[name]
    with killing.copied(start, tmp_path) as here:
        (here / "password").write_text("secret")
        for each in before:
            assert killing.run(here, each).status == 0
        folder = tmp_path / "copies"
        folder.mkdir()
        kill_and_repeat(here, folder, *words, **{"look": shown, "kills": 1, "seed": len(name), **rest})


def test_user_purge(start, tmp_path):
    """Of a user who was removed, and whose delay is over."""
    with killing.copied(start, tmp_path) as here:
        assert killing.run(here, ["user", "remove", "alice", "--yes"]).status == 0
        (tmp_path / "copies").mkdir()
        kill_and_repeat(here, tmp_path / "copies", "user", "purge", "--yes", look=gone, kills=1,
                        environment={"ONECOPY_STORE_USER_DELAY": "0"})


# Reconstruct

@pytest.fixture
def broken(start, tmp_path):
    """A copy of the store, to be damaged."""
    with killing.copied(start, tmp_path) as here:
        yield here


def spoil(here, work):
    store = open_store(here / "store", SMALL)
    work(store, store.partitions["primary"])
    store.close()


def spoil_chunk(store, partition):
    key = chunk_key(store.entry(ALICE).id, 0)
    partition.transact(lambda txn: partition.index.put(key, partition.index.get(key, txn.handle)[:-8] + bytes(8),
                                                       txn.handle))


def spoil_sums(store, partition):
    partition.transact(lambda txn: txn.charge_root("bob", 77, 1, enforce=False))
    transact(store.mailboxes.env, lambda txn: [
        store.mailboxes.granted.update(entry, None, txn) for entry in list(store.mailboxes.all(txn))])


def spoil_much(store, partition):
    """A chunk, a quota, references, a cache record, the table of rights."""
    spoil_chunk(store, partition)
    spoil_sums(store, partition)
    digest, record = next(iter(list(partition.refs.all())))
    partition.transact(lambda txn: txn.refs.write(digest, evolve(record, references=9), txn.handle))
    partition.transact(lambda txn: partition.serials.forget_cached(record.serial, txn.handle))


def lose_index(here, name):
    shutil.rmtree(here / "store" / "partitions" / name / "index")


def lose_all(here):
    shutil.copy(here / "store" / "mboxlist" / "users.db", here / "users.db")
    lose_databases(here / "store")


FORMS = {
    "all": (["reconstruct", "--all"], lambda here: spoil(here, spoil_much)),
    "mailbox": (["reconstruct", "user/alice/INBOX"], lambda here: spoil(here, spoil_chunk)),
    "cache": (["reconstruct", "alice", "--cache", "--uid", "1:20"], lambda here: None),
    "quota and rights": (["reconstruct", "--quota", "--rights"], lambda here: spoil(here, spoil_sums)),
    "partition": (["reconstruct", "--partition", "primary"], lambda here: lose_index(here, "primary")),
    "partition by force": (["reconstruct", "--partition", "primary", "--force"], lambda here: None),
    "mboxlist": (["reconstruct", "--mboxlist", "--force"], lambda here: None),
    "everything": (["reconstruct", "--all", "--users", killing.HERE + "/users.db"], lose_all),
}


@pytest.mark.parametrize("form", FORMS)
def test_reconstruct(broken, tmp_path, form):
    words, damage = FORMS[form]
    damage(broken)
    folder = tmp_path / "copies"
    folder.mkdir()
    kill_and_repeat(broken, folder, *words, look=everything, kills=2 if "part" in form else 1, statuses=(0, 1),
                    seed=len(form))


def test_reconstruct_of_everything_between_transactions(broken, tmp_path):
    """What is half made is not taken for a store, neither by the command when it is repeated nor by who opens it."""
    words, damage = FORMS["everything"]
    damage(broken)
    folder = tmp_path / "copies"
    folder.mkdir()
    batches = {"store.rebuild.messagescan.FILES": 2, "store.rebuild.loader.MAILBOXES": 1}
    done = kill_and_repeat(broken, folder, *words, look=everything, kills=4, seed=2, batches=batches)
    assert all("5 mailboxes, 26 records" in each.again.out for each in done[:3])
    with killing.copied(broken, folder) as here:
        killing.run(here, words, at=done[1].moment, batches=batches)
        other = killing.run(here, ["mailbox", "list"])
        assert other.status == 1 and "onecopy reconstruct --all finishes it" in other.error
