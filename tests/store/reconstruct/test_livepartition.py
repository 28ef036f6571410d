"""A partition, or the list, made anew while the rest is there: the list decides, and store.idx has the records."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition.filejournal import FileJournal
from store.partitions import volumes
from store.partitions.partitionmove import move_owner
from store.rebuild.salvagedusers import salvage_users
from store.reconstruct import livepartition, mailboxlist
from store.tables.state import MODSEQ_SKIP, UID_SKIP
from store.userarea.paths import place
from store.userarea.writing import write_changed
from store.values import Flag, FlagAction, Flags
from tests.store.reconstruct.test_wholestore import uids
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import everything, random_store, unused

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

ALICE = MailboxName("alice", "INBOX")


def again(root, name="primary", **rest):
    @contextlib.contextmanager
    def opened():
        store = open_store(root, SMALL)
        try:
            yield store
        finally:
            store.close()

    return livepartition.rebuild_partition(root, name, SMALL, opened, restart=lambda: None, **rest)


def damaged_head(octets):
    """A store.idx whose head cannot be read: only its place says whose it is."""
    return octets.replace(b'"id":', b'"ix":')


def lose(root, name="primary"):
    shutil.rmtree(root / "partitions" / name / "index")


@pytest.fixture
def root(tmp_path):
    """alice has INBOX and Archive, bob a shared mailbox and one that was deleted."""
    store = make_store(tmp_path / "store")
    for number in range(5):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), str(ALICE), "user/bob/INBOX")
    for name in ("user/alice/Archive", "user/bob/Gone"):
        entry = namespace.create_mailbox(store, MailboxName.parse(name))
        copy_messages(store, store.entry(ALICE), entry, [1, 2])
    change_flags(store, store.entry(ALICE), [3], FlagAction.ADD, Flags(Flag.FLAGGED, ("todo",)))
    deletion.delete_mailbox(store, MailboxName.parse("user/bob/Gone"))
    store.close()
    return tmp_path / "store"


@contextlib.contextmanager
def opened(root, tolerated=()):
    store = open_store(root, SMALL)
    yield store
    assert [finding for finding in check(store) if finding.what not in tolerated] == []
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_everything_on_it_comes_back(tmp_path, seed):
    store = random_store(tmp_path / "store", seed)
    write_changed(store)
    before = everything(store)
    unclaimed = unused(store.partitions["primary"])
    store.close()
    lose(tmp_path / "store")
    done = again(tmp_path / "store")
    assert {finding.where[-64:] for finding in done.findings} == unclaimed
    store = open_store(tmp_path / "store", SMALL)
    assert everything(store) == before
    assert {finding.where[-64:] for finding in check(store)} == unclaimed
    store.close()


def test_what_may_have_been_shown_is_not_given_again(root):
    with opened(root) as store:
        before = store.status(store.entry(ALICE))
    lose(root)
    again(root)
    with opened(root) as store:
        after = store.status(store.entry(ALICE))
        assert after.uidvalidity == before.uidvalidity and after.uidnext >= before.uidnext + UID_SKIP
        assert after.highestmodseq >= before.highestmodseq + MODSEQ_SKIP


def test_until_then_it_is_refused_for_now(root):
    lose(root)
    (root / "partitions/primary" / volumes.REBUILD).mkdir()
    store = open_store(root, SMALL)
    with pytest.raises(StoreError) as refused:
        store.open_mailbox(store.entry(ALICE))
    assert refused.value.problem is Problem.UNAVAILABLE
    store.close()
    assert not (root / "partitions/primary/index").exists()


def test_only_a_partition_that_nobody_makes_anew_is_reported(root, caplog):
    again(root, force=True)
    assert "is not there" not in caplog.text
    lose(root)
    (root / "partitions/primary" / volumes.REBUILD).mkdir()          # left by one that was killed
    open_store(root, SMALL).close()
    assert caplog.text.count("partition primary is not there") == 1


def test_databases_that_were_deleted_are_not_made_empty(root):
    """Or else every mailbox on it would be taken for one without messages."""
    for path in (root / "partitions/primary/index").iterdir():
        path.unlink()
    with opened(root, {"it has no cache record"}) as store:      # these are made in the background
        assert uids(store, str(ALICE)) == [1, 2, 3, 4, 5]


def test_by_force_the_databases_tell_first_what_only_they_know(root):
    store = open_store(root, SMALL)
    files = {path: path.read_bytes() for path in (root / "partitions/primary/users").rglob("store.idx")}
    change_flags(store, store.entry(ALICE), [4], FlagAction.ADD, Flags(Flag.SEEN))
    remove(store, store.entry(ALICE), [5])
    store.close()
    for path, octets in files.items():
        path.write_bytes(octets)                # as if the process had been killed
    again(root, force=True)
    with opened(root) as store:
        rows = store.open_mailbox(store.entry(ALICE)).rows
        assert rows["uid"].tolist() == [1, 2, 3, 4] and int(rows["flags"][3]) & Flag.SEEN
    assert len(list((root / "partitions/primary").glob("index.damaged-*"))) == 1


def test_damaged_databases_tell_nothing(root):
    for path in (root / "partitions/primary/index").iterdir():
        path.write_bytes(b"nonsense" * 2000)
    again(root, force=True)
    with opened(root) as store:
        assert uids(store, str(ALICE)) == [1, 2, 3, 4, 5]


def test_the_list_decides(root):
    """Names, deleted mailboxes and mailboxes without a file are as the list has them; twice is as good as once."""
    with opened(root) as store:
        archive = store.entry(MailboxName.parse("user/alice/Archive"))
        path = place(store.partitions["primary"], archive.name)
    stale = path.read_bytes()
    with opened(root) as store:
        namespace.rename_mailbox(store, archive.name, MailboxName.parse("user/alice/Old"))
        namespace.create_mailbox(store, MailboxName.parse("user/alice/Unwritten"))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(stale)
    place_of = root.glob("partitions/primary/users/*/*/alice/Unwritten/store.idx")
    next(place_of).unlink()
    for _ in range(2):
        lose(root)
        done = again(root)
        with opened(root) as store:
            assert uids(store, "user/alice/Old") == [1, 2]
            assert store.mailboxes.find(archive.name) is None
            assert uids(store, "user/alice/Unwritten") == []
            assert [str(entry.name) for _, entry in store.mailboxes.deleted.all()] == ["user/bob/Gone"]
    assert done.findings == []                  # now it has a file


def test_a_mailbox_of_another_list_is_added(root, tmp_path):
    """Its file may be all that is left of it. Its owner is not in the directory."""
    other = make_store(tmp_path / "other", ("zoe",))
    deliver(other, b"Subject: 1\r\n\r\n1\r\n", "user/zoe/INBOX")
    validity = other.entry(MailboxName("zoe", "INBOX")).uidvalidity
    path = place(other.partitions["primary"], MailboxName("zoe", "INBOX"))
    other.close()
    target = root / path.relative_to(tmp_path / "other")
    target.parent.mkdir(parents=True)
    shutil.copy(path, target)
    for _ in range(2):
        lose(root)
        again(root)
        with opened(root) as store:
            assert uids(store, "user/zoe/INBOX") == [1]
            assert store.entry(MailboxName("zoe", "INBOX")).uidvalidity == validity
            assert len(store.names("zoe")) == 1


def left_behind(root, change=lambda octets: octets):
    """alice's INBOX has moved to another partition, and its old file is there again."""
    with opened(root) as store:
        path = place(store.partitions["primary"], ALICE)
        stale = path.read_bytes()
        volumes.add(store, "second")
        move_owner(store, "alice", "second")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(change(stale))
    lose(root)


def test_a_file_that_was_left_behind_by_a_move_is_nobodys(root):
    """Nor does it count: bob's mailboxes alone are made, and no record only to be thrown away again."""
    left_behind(root)
    done = again(root)
    assert (done.mailboxes, done.records) == (2, 7)
    with opened(root) as store:
        assert store.entry(ALICE).partition == "second" and uids(store, str(ALICE)) == [1, 2, 3, 4, 5]
        assert uids(store, "user/bob/INBOX") == [1, 2, 3, 4, 5]


def test_one_of_which_only_the_place_is_known_is_kept_beside(root):
    """It may be another mailbox that had the name, and all that is left of it."""
    left_behind(root, damaged_head)
    again(root)
    with opened(root) as store:
        assert uids(store, str(ALICE)) == [1, 2, 3, 4, 5]
        other, = [entry for entry in store.names("alice") if entry.partition == "primary"]
        assert uids(store, str(other.name)) == [1, 2, 3, 4, 5]


def test_only_one_makes_it(root):
    lose(root)
    with livepartition._nobody_else(root / "partitions/primary"), pytest.raises(StoreError) as refused:
        again(root)
    assert refused.value.problem is Problem.STORE_IN_USE
    with pytest.raises(StoreError) as refused:
        again(root, "nowhere")
    assert refused.value.problem is Problem.UNAVAILABLE


def test_one_on_another_volume(root, tmp_path, caplog):
    """It is reached by a link, as `onecopy partition add --path` makes one."""
    (root / "partitions/primary").rename(tmp_path / "volume")
    (root / "partitions/primary").symlink_to(tmp_path / "volume")
    again(root, force=True)
    with opened(root) as store:
        assert uids(store, str(ALICE)) == [1, 2, 3, 4, 5]
    lose(root)
    again(root)
    with opened(root) as store:
        assert uids(store, str(ALICE)) == [1, 2, 3, 4, 5]
    assert "is not there" not in caplog.text


def test_it_waits_until_all_have_left(root, monkeypatch):
    """A process that has the partition open, and is not a server's, must end by itself."""
    store = open_store(root, SMALL)
    monkeypatch.setattr(livepartition, "LEAVE", 0)
    asked = []
    with pytest.raises(StoreError) as refused:
        livepartition.rebuild_partition(root, "primary", SMALL, lambda: None, restart=lambda: asked.append(1),
                                        force=True)
    assert refused.value.problem is Problem.UNAVAILABLE and asked == [1]
    store.close()
    again(root, force=True)
    with opened(root) as store:
        assert uids(store, str(ALICE)) == [1, 2, 3, 4, 5]


# The list

@pytest.mark.parametrize("seed", range(2))
def test_the_list_alone(tmp_path, seed):
    root = tmp_path / "store"
    store = random_store(root, seed)
    write_changed(store)
    before = everything(store)
    last = store.mailboxes.last_identity()
    store.close()
    users = salvage_users(root / "mboxlist" / "users.db")
    shutil.rmtree(root / "mboxlist")
    assert mailboxlist.only_list_is_lost(root)
    assert mailboxlist.rebuild_list(root, SMALL, users=users).findings == []
    assert not mailboxlist.only_list_is_lost(root)
    store = open_store(root, SMALL)
    assert everything(store) == before and check(store) == []
    assert store.mailboxes.last_identity()[0] <= last[0]
    assert namespace.create_mailbox(store, MailboxName("bob", "New")).id > max(
        entry.id for entry in store.mailboxes.all() if entry.name.path != "New")
    store.close()


def test_what_only_a_file_journal_has_is_there_when_the_list_is_rebuilt(root):
    """The power went: of a message that was answered the file has its name in `staging/`, and no octets."""
    with opened(root) as store:
        partition = store.partitions["primary"]
        staged = store.stage(store.entry(ALICE))
        staged.write(b"Subject: journalled\r\n\r\nText\r\n")
        staged.digested()
        made = FileJournal.make(partition.files, partition.serials.next_serial())
        assert made.append(staged)
        os.fdatasync(made.handle)
        staged.on_disk = True
        offload.now(durable.deliver(store, staged, [Target(store.entry(ALICE))]))
        file, name = Path(partition.files.staged_path(staged.serial)), Path(partition.files.path(staged.digest))
    made.close()
    name.unlink()
    file.write_bytes(b"")
    shutil.rmtree(root / "mboxlist")
    mailboxlist.rebuild_list(root, SMALL)
    assert name.read_bytes() == b"Subject: journalled\r\n\r\nText\r\n" and not file.exists()
    with opened(root) as store:
        assert check(store) == []


def test_a_mailbox_whose_name_nobody_knows(root):
    with opened(root) as store:
        number = store.entry(MailboxName.parse("user/alice/Archive")).id
    for path in root.glob("partitions/primary/users/*/*/alice/**/store.idx"):
        path.unlink()
    shutil.rmtree(root / "mboxlist")
    done = mailboxlist.rebuild_list(root, SMALL)
    assert {finding.where for finding in done.findings if "store.idx" in finding.what} == {
        "user/alice/INBOX", f"user/alice/Recovered ({number})"}
    with opened(root) as store:
        assert uids(store, str(ALICE)) == [1, 2, 3, 4, 5]
        assert uids(store, f"user/alice/Recovered ({number})") == [1, 2]


def test_the_list_is_not_overwritten_and_nobody_is_in_the_store(root):
    with pytest.raises(StoreError) as refused:
        mailboxlist.rebuild_list(root, SMALL)
    assert refused.value.problem is Problem.STORE_IN_USE
    lose(root)
    shutil.rmtree(root / "mboxlist")
    assert not mailboxlist.only_list_is_lost(root)
