"""From `messages/` and `users/` alone the whole store comes back; what is damaged is a finding and costs no more."""

import shutil
import struct
import time

import numpy as np
import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.accounts.base import Status
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.authorization import visible
from store.mailboxes.copymessages import copy_messages
from store.opening import open_store
from store.partition.marks import IN_PLACE, SCRATCH, is_half_made
from store.rebuild.salvagedusers import salvage_users
from store.reconstruct import wholestore
from store.reconstruct.wholestore import rebuild
from store.tables.state import MODSEQ_SKIP, UID_SKIP
from store.userarea import idxfile, idxreading
from store.userarea.paths import place
from store.userarea.writing import write_changed
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import (
    ONE,
    TRACE,
    TWO,
    USERS,
    everything,
    forget_accounts,
    lose_databases,
    random_store,
    unused,
)

pytestmark = pytest.mark.long


def rebuilt(root):
    return rebuild(root, SMALL, users=USERS)


@pytest.mark.parametrize("seed", range(6))
def test_everything_comes_back(tmp_path, seed):
    root = tmp_path / "store"
    store = random_store(root, seed)
    write_changed(store)
    before = everything(store)
    unclaimed = unused(store.partitions["primary"])
    store.close()
    lose_databases(root)
    done = rebuilt(root)
    assert {finding.where[-64:] for finding in done.findings} == unclaimed
    for _ in range(2):
        store = open_store(root, SMALL)
        assert everything(store) == before
        assert {finding.where[-64:] for finding in check(store)} == unclaimed
        store.close()
        lose_databases(root)                  # and once more, from what the rebuild has written
        assert len(rebuilt(root).findings) == len(unclaimed)


@pytest.fixture
def root(tmp_path):
    """A store that was left clean: alice's INBOX has UIDs 1 to 70, her Archive the first two of them; no databases."""
    store = make_store(tmp_path / "store", ("alice", "bob"))
    for number in range(70):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), "user/alice/INBOX", trace=TRACE)
    archive = namespace.create_mailbox(store, MailboxName.parse("user/alice/Archive"))
    copy_messages(store, store.entry(MailboxName.parse("user/alice/INBOX")), archive, [1, 2])
    store.close()
    lose_databases(tmp_path / "store")
    return tmp_path / "store"


def inbox_file(root):
    return next((root / "partitions/primary/users").glob("*/*/alice/store.idx"))


def uids(store, name):
    return store.open_mailbox(store.entry(MailboxName.parse(name))).rows["uid"].tolist()


def message_files(root):
    return sorted((root / "partitions/primary/messages").glob("?/??/*"))


def test_what_may_have_been_shown_is_not_given_again(root):
    """RFC 3501 §2.3.1.1, RFC 7162 §3.1.2.1: mail that came after the file was written had UIDs and MODSEQs."""
    head = idxreading.read_head(inbox_file(root))
    assert rebuilt(root).findings == []
    store = open_store(root, SMALL)
    entry = store.entry(MailboxName.parse("user/alice/INBOX"))
    state = store.status(entry)
    assert state.uidvalidity == head.uidvalidity
    assert state.uidnext >= head.uidnext + UID_SKIP
    assert state.highestmodseq >= head.highestmodseq + MODSEQ_SKIP
    assert store.vanished(entry, head.highestmodseq) is None
    new = namespace.create_mailbox(store, MailboxName.parse("user/bob/New"))
    assert new.id > max(each.id for each in store.mailboxes.all() if each != new)
    assert new.uidvalidity > head.uidvalidity
    assert check(store) == []
    store.close()


def test_the_next_message_with_the_same_content_is_the_same_file(root):
    rebuilt(root)
    store = open_store(root, SMALL)
    deliver(store, b"Subject: 5\r\n\r\n5\r\n", "user/bob/INBOX", trace=TRACE)
    deliver(store, TWO, "user/bob/INBOX", trace=TRACE)
    assert check(store) == []
    assert len(message_files(root)) == 71
    store.close()


def test_users_that_nobody_brings_are_inactive(root):
    forget_accounts(root)
    done = rebuild(root, SMALL, users=USERS[:1])
    assert [finding.where for finding in done.findings] == ["user bob"]
    store = open_store(root, SMALL)
    assert store.directory.find("alice").status is Status.ACTIVE
    assert store.directory.find("bob").status is Status.INACTIVE
    store.close()


def test_users_are_found_in_a_table_that_is_left(tmp_path):
    store = make_store(tmp_path / "store", ("alice", "bob"))
    store.directory.change("bob", status=Status.DISABLED)
    before = [store.directory.user(user) for user in ("alice", "bob")]
    store.close()
    (tmp_path / "store" / "mboxlist").rename(tmp_path / "old")
    shutil.rmtree(tmp_path / "store/partitions/primary/index")
    found = salvage_users(tmp_path / "old" / "users.db")
    assert found == before
    assert rebuild(tmp_path / "store", SMALL, users=found).findings == []
    store = open_store(tmp_path / "store", SMALL)
    assert [store.directory.user(user) for user in ("alice", "bob")] == before
    store.close()
    (tmp_path / "old" / "users.db").write_bytes(b"nonsense" * 1000)
    assert salvage_users(tmp_path / "old" / "users.db") == []


def test_databases_are_not_overwritten(tmp_path):
    make_store(tmp_path / "store").close()
    for where in ("mboxlist", "partitions/primary/index"):
        with pytest.raises(StoreError) as error:
            rebuilt(tmp_path / "store")
        assert error.value.problem is Problem.STORE_IN_USE
        shutil.rmtree(tmp_path / "store" / where)
    assert rebuilt(tmp_path / "store").mailboxes == 2
    with pytest.raises(StoreError) as error:
        rebuilt(tmp_path / "nothing")
    assert error.value.problem is Problem.NO_STORE


def test_a_flipped_bit_costs_a_block_of_records(root):
    path = inbox_file(root)
    data = bytearray(path.read_bytes())
    start = struct.unpack_from("<8sQ", data, 16 + 32)[1]
    data[start + 65 * 96 + 3] ^= 1
    path.write_bytes(data)
    done = rebuilt(root)
    whole = [finding for finding in done.findings if "items" in finding.what]
    assert len(whole) == 1 and whole[0].what.startswith("its section rows has lost 6 of 70")
    assert len(done.findings) == 1 + 6          # six message files that only these records knew
    store = open_store(root, SMALL)
    assert uids(store, "user/alice/INBOX") == list(range(1, 65))
    assert len(check(store)) == 6
    store.close()


def damage_missing(path):
    path.unlink()


def damage_short(path):
    path.write_bytes(path.read_bytes()[:-3])


def damage_changed(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def damage_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [damage_missing, damage_short, damage_changed, damage_folder])
def test_a_damaged_message_costs_its_own_records(root, damage):
    digest = bytes(idxreading.read(inbox_file(root)).rows["digest"][0]).hex()
    damage(next(path for path in message_files(root) if path.name == digest))
    done = rebuilt(root)
    where = {finding.where for finding in done.findings}
    assert {"user/alice/INBOX, UID 1", "user/alice/Archive, UID 1"} <= where
    store = open_store(root, SMALL)
    assert uids(store, "user/alice/INBOX") == list(range(2, 71))
    assert uids(store, "user/alice/Archive") == [2]
    assert {finding.what for finding in check(store)} <= {
        "nothing is known of this file", "a folder is where a file belongs"}
    store.close()


def test_without_its_head_a_mailbox_has_the_name_of_its_place(root):
    path = next((root / "partitions/primary/users").glob("*/*/alice/Archive/store.idx"))
    data = bytearray(path.read_bytes())
    for number in (0, 2):
        data[struct.unpack_from("<8sQ", data, 16 + 32 * number)[1] + 5] ^= 1
    path.write_bytes(data)
    done = rebuilt(root)
    assert [finding.what for finding in done.findings] == ["its head is lost"]
    store = open_store(root, SMALL)
    entry = store.entry(MailboxName.parse("user/alice/Archive"))
    assert uids(store, "user/alice/Archive") == [1, 2]
    assert entry.id == 3 and entry.uidvalidity > store.entry(MailboxName.parse("user/alice/INBOX")).uidvalidity
    assert check(store) == []
    store.close()


def test_what_is_no_file_of_ours_is_reported(root):
    users = root / "partitions/primary/users"
    for name, data in (("0c/00/eve/store.idx", b"nonsense"), ("deleted/77/store.idx", b""), ("store.idx", b"x" * 600)):
        (users / name).parent.mkdir(parents=True, exist_ok=True)
        (users / name).write_bytes(data)
    (users / "0c/01/eve/store.idx").mkdir(parents=True)
    (root / "partitions/primary/messages/0/00/no digest").write_bytes(b"x")
    done = rebuilt(root)
    assert {finding.where.rpartition("users/")[2] for finding in done.findings if "store.idx" in finding.where} == {
        "0c/00/eve/store.idx", "0c/01/eve/store.idx", "deleted/77/store.idx", "store.idx"}
    assert done.mailboxes == 3
    assert any(finding.where.endswith("no digest") for finding in done.findings)
    open_store(root, SMALL).close()


def test_of_two_files_of_a_mailbox_the_newer_counts(root):
    """A crash in the middle of a rename: both have the same id."""
    old = inbox_file(root).parent / "Archive" / "store.idx"
    new = inbox_file(root).parent / "Old" / "store.idx"
    left = idxreading.read(old)
    new.parent.mkdir()
    idxfile.write(new, evolve(left, head=evolve(left.head, name="user/alice/Old", written=time.time_ns())))
    assert rebuilt(root).findings == []
    store = open_store(root, SMALL)
    assert [str(entry.name) for entry in store.mailboxes.below("alice")] == ["user/alice/INBOX", "user/alice/Old"]
    assert check(store) == []
    store.close()
    assert not old.parent.exists()


def test_of_two_mailboxes_with_a_name_the_older_gets_another(root):
    old = inbox_file(root).parent / "Archive" / "store.idx"
    other = inbox_file(root).parent / "Older" / "store.idx"
    left = idxreading.read(old)
    other.parent.mkdir()
    idxfile.write(other, evolve(left, head=evolve(left.head, id=2_000, uidvalidity=9, written=1)))
    done = rebuilt(root)
    assert [finding.repair for finding in done.findings] == ["mailbox rename alice 'Archive (2000)' NEW"]
    store = open_store(root, SMALL)
    assert uids(store, "user/alice/Archive") == uids(store, "user/alice/Archive (2000)") == [1, 2]
    assert check(store) == []
    store.close()


@pytest.mark.parametrize("trace", [TRACE, b""])
@pytest.mark.parametrize("body", [ONE, b"Return-Path: <own>\r\nReceived: own\r\n" + ONE])
def test_a_message_that_has_not_got_its_place_is_found_in_staging(tmp_path, trace, body):
    """Its transaction is on disk, and its second name is not."""
    store = make_store(tmp_path / "store")
    deliver(store, body, "user/alice/INBOX", trace=trace)
    deliver(store, TWO, "user/bob/INBOX", trace=trace)
    write_changed(store)
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    store.close()
    lose_databases(copy)
    for path in message_files(copy):
        path.unlink()
    done = rebuilt(copy)
    assert done.findings == []
    store = open_store(copy, SMALL)
    mailbox = store.open_mailbox(store.entry(MailboxName.parse("user/alice/INBOX")))
    with store.open_message(mailbox.entry, mailbox.rows[0]) as file:
        assert file.read(0, 10_000) == trace + body
    assert len(message_files(copy)) == 2
    assert check(store) == []
    store.close()


def test_staged_messages_that_nobody_knows_are_kept(tmp_path):
    """They were delivered after the last `store.idx`, and lie in staging only."""
    store = make_store(tmp_path / "store")
    write_changed(store)
    deliver(store, ONE, "user/alice/INBOX", trace=TRACE)
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    store.close()
    lose_databases(copy)
    for path in message_files(copy):
        path.unlink()
    done = rebuilt(copy)
    assert [finding.what for finding in done.findings] == ["nothing is known of this file"]
    assert [path.read_bytes() for path in message_files(copy)] == [TRACE + ONE]


def test_hostile_figures_do_no_harm(root):
    """Everything that a checksum does not forbid."""
    path = inbox_file(root)
    left = idxreading.read(path)
    rows = left.rows.copy()
    rows["modseq"] = np.iinfo(np.uint64).max
    rows["serial"] = np.iinfo(np.uint64).max
    rows["keywords"] = np.iinfo(np.uint64).max
    rows["header_length"][:3] = 7
    rows["size"][5] = np.iinfo(np.uint64).max
    rows["uid"][-1] = np.iinfo(np.uint32).max - 1
    head = evolve(left.head, highestmodseq=(1 << 62), quota_root="", readers=["bad name"], special_use=None)
    own = np.zeros(2, idxfile.OWN)
    own["reader"] = [0, 99]
    own["chunk"] = 2**32 - 1
    idxfile.write(path, idxfile.Contents(head, rows, own))
    done = rebuilt(root)
    assert done.mailboxes == 3
    store = open_store(root, SMALL)
    assert len(uids(store, "user/alice/INBOX")) == 66
    assert {finding.what for finding in check(store)} <= {"nothing is known of this file"}
    assert place(store.partitions["primary"], MailboxName.parse("user/alice/INBOX")).exists()
    store.close()


def test_deleted_mailboxes_can_still_be_brought_back(tmp_path):
    store = make_store(tmp_path / "store", ("alice", "bob"))
    deliver(store, ONE, "user/alice/INBOX")
    archive = namespace.create_mailbox(store, MailboxName.parse("user/alice/Archive"))
    copy_messages(store, store.entry(MailboxName.parse("user/alice/INBOX")), archive, [1])
    deletion.delete_mailbox(store, archive.name)
    store.close()
    lose_databases(tmp_path / "store")
    assert rebuilt(tmp_path / "store").findings == []
    store = open_store(tmp_path / "store", SMALL)
    assert check(store) == []
    deletion.undelete_mailbox(store, archive.name)
    assert uids(store, "user/alice/Archive") == [1]
    assert check(store) == []
    store.close()


def test_rights_and_annotations_that_nobody_could_have_set_are_left_out(root):
    path = inbox_file(root)
    left = idxreading.read(path)
    values = {"": "eA==", "bob": "no base64 é", "alice": "eA=="}
    head = evolve(left.head, acl={"bob": "lr", "two words": "l", "": "l", "--x": "l", "eve": "lz"},
                  annotations={"/shared/a": values, "/private/a": values, "/other/a": values, "/shared/*": values})
    idxfile.write(path, idxfile.Contents(head, left.rows, left.own))
    rebuilt(root)
    store = open_store(root, SMALL)
    entry = store.entry(MailboxName.parse("user/alice/INBOX"))
    assert entry.acl == {"bob": "lr"}
    assert set(store.mailboxes.annotations.of(entry.id)) == {("/shared/a", "", b"x"), ("/private/a", "alice", b"x")}
    assert [each.name for each in visible(store, "bob") if each.id == entry.id] == [entry.name]
    assert check(store) == []
    store.close()


class Killed(BaseException):
    """Stands for SIGKILL: nobody expects it."""


@pytest.mark.parametrize("by_plan", [True, False])
@pytest.mark.parametrize("removed", range(3))
def test_who_is_killed_while_clearing_what_was_cut_off_goes_on(root, faults, by_plan, removed):
    """A rebuild was cut off, with or without a plan; what removes its databases is killed, too."""
    left = [removed]
    faults.fail(wholestore, "write_user_area", Killed)
    with pytest.raises(Killed):
        rebuilt(root)
    faults.mend()
    if by_plan:                         # which has its list beside, and no note before all is in its place
        (root / SCRATCH / IN_PLACE).unlink()
        (root / "mboxlist").rename(root / SCRATCH / "mboxlist")
    assert is_half_made(root)

    def is_last(*_, **__):
        left[0] -= 1
        return left[0] < 0

    faults.fail(shutil, "rmtree", Killed, is_last)
    try:
        rebuilt(root)
    except Killed:
        pass
    faults.mend()
    if not is_half_made(root):          # only what is left of the folder for it could not be removed
        shutil.rmtree(root / SCRATCH)
        lose_databases(root)
    assert rebuilt(root).findings == []
    store = open_store(root, SMALL)
    assert uids(store, "user/alice/INBOX") == list(range(1, 71)) and check(store) == []
    store.close()
