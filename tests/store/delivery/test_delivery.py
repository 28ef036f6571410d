"""Delivery: one file for all, one transaction, a refusal for one alone, and what a crash in between leaves."""

import errno
import os
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store import offload
from store.delivery import durable
from store.delivery.commit import Delivered, Target, commit
from store.errors import Problem, StoreError
from store.mailboxes import deletion, firstuse, namespace
from store.opening import open_store
from store.partition import messagefiles
from store.partition.partition import Partition
from store.quota import roots
from store.tables.state import state_key
from store.values import Flag, Flags, InternalDate
from tests.support.stores.stores import HASH, SMALL, deliver, reopen, reopen_after_crash

BODY = b"From: a@example.org\r\nSubject: x\r\n\r\nhello\r\n"
TRACE = b"Return-Path: <a@example.org>\r\nReceived: from relay\r\n"


def inbox(store, user="alice"):
    return store.entry(MailboxName(user, "INBOX"))


def files(store):
    return [path for path in store.partitions["primary"].files.folder.glob("?/??/*")]


def staged_files(store):
    return sorted(os.listdir(store.partitions["primary"].files.staging))


def lose_file(store):
    """The only message file, of which a second name must not be left; where it was, and its octets."""
    store.partitions["primary"].files.drop_staged_names()
    lost, = files(store)
    kept = lost.read_bytes()
    lost.unlink()
    return lost, kept


class DiskAtWork(durable.Durability):
    """Says what of a message is known when its file begins to be synced, and when that has ended."""

    def __init__(self):
        self.known = []

    def staged(self, staged, partition):
        """The sync begins now, and is over when somebody waits for it."""
        staged.spill()
        self.known.append((bool(staged.digest), hasattr(staged, "cached")))

        async def rest():
            self.known.append((bool(staged.digest), hasattr(staged, "cached")))
            await super(DiskAtWork, self).staged(staged, partition)

        return rest()


def test_the_structure_is_made_while_the_file_goes_to_disk(store):
    disk = DiskAtWork()
    store.owned.put(durable.Durability, disk)
    staged = store.partition_of(inbox(store)).stage()
    staged.write(BODY)
    outcome, = offload.now(durable.deliver(store, staged, (Target(inbox(store)),)))
    assert isinstance(outcome, Delivered) and disk.known == [(True, False), (True, True)]
    assert read(store) == BODY and staged.message_id == b""


def test_a_file_that_fails_is_waited_for_before_it_is_let_go_of(store, faults):
    disk, ended = DiskAtWork(), []
    store.owned.put(durable.Durability, disk)
    staged = store.partition_of(inbox(store)).stage()
    staged.write(BODY)
    faults.before(type(staged), "abort", lambda *_: ended.append(len(disk.known)))
    faults.fail(type(staged), "finish", OSError(errno.ENOMEM, "no memory"))
    outcome, = offload.now(durable.deliver(store, staged, (Target(inbox(store)),)))
    assert isinstance(outcome, StoreError) and ended[0] == 2


def read(store, user="alice", at=-1):
    entry = inbox(store, user)
    with store.open_message(entry, store.open_mailbox(entry).rows[at]) as file:
        return file.read(0, file.size)


def test_one_file_for_all_recipients_and_deliveries(store):
    outcomes = deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    assert [outcome.uid for outcome in outcomes] == [1, 1]
    other = b"Return-Path: <a@example.org>\r\nReceived: from elsewhere\r\n"
    deliver(store, BODY, "user/bob/INBOX", trace=other)
    assert len(files(store)) == 1
    assert files(store)[0].read_bytes() == TRACE + BODY
    assert read(store, "alice") == read(store, "bob", 0) == TRACE + BODY
    assert read(store, "bob", 1) == other + BODY
    row = store.open_mailbox(inbox(store)).rows[0]
    assert (int(row["size"]), int(row["header_length"])) == (len(TRACE + BODY), 0)


def test_the_same_message_brings_a_lost_file_back(store):
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    lose_file(store)
    assert [outcome.uid for outcome in deliver(store, BODY, "user/bob/INBOX", trace=TRACE)] == [1]
    assert read(store, "alice") == read(store, "bob") == TRACE + BODY and staged_files(store) == []


def test_a_message_whose_file_is_lost_is_not_acknowledged_without_one(store):
    """The file that came begins otherwise, so it cannot stand in for the one that older records mean."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    lost, kept = lose_file(store)
    refused, = deliver(store, BODY, "user/bob/INBOX", trace=TRACE + b"X-Other: 1\r\n")
    assert isinstance(refused, StoreError) and refused.problem is Problem.CORRUPT
    assert store.status(inbox(store, "bob")).messages == 0 and staged_files(store) == []
    lost.write_bytes(kept)


def test_the_file_is_named_by_the_digest_of_its_content(store):
    import hashlib
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    name = hashlib.blake2b(BODY, digest_size=32).hexdigest()
    assert files(store) == [store.root / "partitions/primary/messages" / name[0] / name[1:3] / name]


def test_an_appended_message_has_no_trace_header(store):
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    deliver(store, BODY, "user/bob/INBOX")
    assert len(files(store)) == 1
    assert read(store, "bob") == BODY
    row = store.open_mailbox(inbox(store, "bob")).rows[0]
    assert (int(row["size"]), int(row["header_length"])) == (len(BODY), len(TRACE))


def test_another_senders_address_is_not_shown(store):
    """Each delivery has its own trace fields, and nobody those of another."""
    deliver(store, BODY, "user/alice/INBOX", trace=b"Return-Path: <list+alice@example.org>\r\n")
    deliver(store, BODY, "user/bob/INBOX", trace=b"Return-Path: <list+bob@example.org>\r\n")
    assert len(files(store)) == 1
    assert read(store, "alice") == b"Return-Path: <list+alice@example.org>\r\n" + BODY
    assert read(store, "bob") == b"Return-Path: <list+bob@example.org>\r\n" + BODY


def test_a_target_over_quota_is_refused_alone(store):
    deliver(store, BODY, "user/alice/INBOX")
    roots.set_quota(store, "alice", len(BODY) + 1)
    refused, delivered = deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    assert isinstance(refused, StoreError) and refused.problem is Problem.OVER_QUOTA
    assert isinstance(delivered, Delivered)
    assert roots.quota(store, "alice").octets == len(BODY) == roots.quota(store, "bob").octets


def test_quota_can_be_ignored(store):
    roots.set_quota(store, "alice", 10)
    staged = store.stage(inbox(store))
    staged.write(BODY)
    outcomes = offload.now(durable.deliver(store, staged, [Target(inbox(store), ignore_quota=True)]))
    assert isinstance(outcomes[0], Delivered)


def test_a_message_that_all_refuse_leaves_nothing(store):
    roots.set_quota(store, "alice", None, 0)
    assert deliver(store, BODY, "user/alice/INBOX")[0].problem is Problem.QUOTA_GRACE_ENDED
    assert files(store) == [] and staged_files(store) == []


def test_a_mailbox_deleted_meanwhile_is_refused_alone(store):
    archive = namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    staged = store.stage(archive)
    staged.write(BODY)
    deletion.delete_mailbox(store, archive.name)
    gone, delivered = offload.now(durable.deliver(store, staged, [Target(archive), Target(inbox(store))]))
    assert gone.problem is Problem.NO_MAILBOX and delivered.uid == 1


def test_flags_and_date_are_kept(store):
    deliver(store, BODY, "user/alice/INBOX", flags=Flags(Flag.SEEN | Flag.DELETED, ("$Junk", "todo")),
            received=InternalDate(1_000_000_000, -90))
    mailbox = store.open_mailbox(inbox(store))
    row = mailbox.rows[0]
    assert (row["flags"], row["received"], row["zone"]) == (Flag.SEEN | Flag.DELETED, 1_000_000_000, -90)
    assert mailbox.keyword_names(int(row["keywords"])) == ("$Junk", "todo")
    assert (mailbox.state.unseen, mailbox.state.deleted) == (0, 1)


def test_too_big(store, tmp_path):
    store.close()
    from attrs import evolve
    small = open_store(store.root, evolve(SMALL, message_limit=100))
    staged = small.stage(inbox(small))
    with pytest.raises(StoreError) as refused:
        staged.write(b"x" * 101)
    assert refused.value.problem is Problem.TOO_BIG
    staged.abort()
    small.close()
    reopen(store, SMALL)


@pytest.mark.parametrize("size", [0, 1, 200_000, 2_000_000])
def test_octets_out_are_octets_in(store, size):
    body = os.urandom(size)
    deliver(store, body, "user/alice/INBOX")
    assert read(store) == body


def test_an_aborted_message_leaves_nothing(store):
    staged = store.stage(inbox(store))
    staged.write(b"x" * 1_000_000)
    assert staged_files(store)
    staged.abort()
    staged.abort()
    assert staged_files(store) == []


def cached(store, user):
    """What is cached of the first message in the INBOX."""
    view = store.open_mailbox(inbox(store, user))
    found, = store.partition_of(view.entry).serials.cached([int(view.row(1)["serial"])])
    return found


def test_users_of_two_partitions_have_a_file_on_each(store):
    Partition.make(store.root / "partitions" / "second")
    store.close()
    reopen(store, SMALL)
    firstuse.inbox(store, store.directory.add("carol", HASH, partition="second"))
    deliver(store, BODY, "user/alice/INBOX", trace=b"Return-Path: <another-and-longer@example.org>\r\n")
    targets = "user/alice/INBOX", "user/carol/INBOX", "user/bob/INBOX"
    assert [outcome.uid for outcome in deliver(store, BODY, *targets, trace=TRACE)] == [2, 1, 1]
    assert read(store, "carol") == read(store, "bob") == TRACE + BODY
    first, other = cached(store, "bob"), cached(store, "carol")
    assert (first.envelope, first.bodystructure) == (other.envelope, other.bodystructure) and b'"x"' in other.envelope
    for partition in store.partitions.values():
        assert len(list(partition.files.folder.glob("?/??/*"))) == 1
        partition.files.drop_staged_names()
        assert list(partition.files.staging.iterdir()) == []


@pytest.mark.parametrize(("call", "error"), [("open", errno.EMFILE), ("write", errno.ENOSPC), ("half", errno.EIO)])
def test_a_file_that_could_not_be_written_once_is_not_delivered(store, faults, call, error):
    """It is written for the copy on the other partition first, which fails; then for its own, which would not fail."""
    Partition.make(store.root / "partitions" / "second")
    store.close()
    reopen(store, SMALL)
    firstuse.inbox(store, store.directory.add("carol", HASH, partition="second"))
    name, failures = "open" if call == "open" else "write", iter([True])

    def failing(real, *arguments, **options):
        mine = name == "write" or str(store.root / "partitions/primary/staging") in str(arguments[0])
        if mine and next(failures, False):
            if call == "half":
                real(arguments[0], bytes(arguments[1])[:10])
            raise OSError(error, os.strerror(error))
        return real(*arguments, **options)

    faults.around(os, name, failing)
    targets = "user/alice/INBOX", "user/carol/INBOX"
    outcomes = deliver(store, BODY, *targets, trace=TRACE)
    assert next(failures, False) is False
    problem = Problem.DISK_FULL if error == errno.ENOSPC else Problem.UNAVAILABLE
    assert [isinstance(each, StoreError) and each.problem for each in outcomes] == [problem, problem]
    assert not len(store.open_mailbox(inbox(store)).rows)
    assert staged_files(store) == []
    assert [outcome.uid for outcome in deliver(store, BODY, *targets, trace=TRACE)] == [1, 1]
    assert read(store) == read(store, "carol") == TRACE + BODY


def test_a_crash_before_the_commit_sweeps_the_file(store):
    staged = store.stage(inbox(store))
    staged.write(BODY)
    staged.finish()
    staged.sync()
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert staged_files(store) == [] and files(store) == []
    assert len(store.open_mailbox(inbox(store)).rows) == 0


def test_a_crash_before_the_file_got_its_name_finishes_it(store):
    staged = store.stage(inbox(store), TRACE)
    staged.write(BODY)
    staged.finish()
    staged.sync()
    partition = store.partitions["primary"]
    commit(partition, staged, [Target(inbox(store))], InternalDate(0))
    assert files(store) == []
    assert read(store) == TRACE + BODY          # readers look in staging/ as well
    partition.env.flush()
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert len(files(store)) == 1 and staged_files(store) == []
    assert read(store) == TRACE + BODY


def test_uids_skip_ahead_after_a_crash(store):
    deliver(store, BODY, "user/alice/INBOX")
    before = store.status(inbox(store))
    store.__dict__.update(reopen_after_crash(store).__dict__)
    after = store.status(inbox(store))
    assert after.uidnext > before.uidnext + 1000 and after.highestmodseq > before.highestmodseq
    assert deliver(store, BODY, "user/alice/INBOX")[0].uid == after.uidnext


def test_a_clean_stop_skips_nothing(store):
    deliver(store, BODY, "user/alice/INBOX")
    store.close()
    reopen(store, SMALL)
    assert deliver(store, BODY, "user/alice/INBOX")[0].uid == 2


def test_a_name_that_comes_during_the_sync_stays(store, faults):
    files = store.partitions["primary"].files
    deliver(store, BODY, "user/alice/INBOX")
    faults.before(messagefiles, "sync_file_system",
                  lambda folder: deliver(store, BODY + b"late", "user/alice/INBOX"))
    assert files.drop_staged_names() == 1
    assert len(staged_files(store)) == 1            # the late one's second name may not be on disk yet
    faults.mend()
    assert files.drop_staged_names() == 1
    assert staged_files(store) == []


@pytest.mark.long
def test_a_store_has_one_file_system_of_its_own_names(store):
    partition = store.root / "partitions" / "primary"
    assert {path.name for path in partition.iterdir()} == {"messages", "staging", "users", "index"}
    assert len(list((partition / "messages").glob("*/*"))) == 16 * 256
    assert Path(partition / "messages/3/fa").is_dir()


def test_a_committed_message_keeps_the_name_that_is_on_disk_whoever_lets_go_of_it(store):
    staged = store.stage(inbox(store))
    staged.write(b"Subject: kept\r\n\r\n")
    offload.now(durable.deliver(store, staged, [Target(inbox(store))]))
    path = Path(staged.files.staged_path(staged.serial))
    staged.abort()                      # as APPEND does at its end, whatever came of it
    assert path.exists()
    staged.files.drop_staged_names()               # now the other name is on disk
    assert not path.exists()
    assert staged.files.locate(staged.digest, staged.serial)


class Kinds(offload.Threads):
    """Says which kind of thread each piece of work is for."""

    def __init__(self):
        self.kinds = []

    def run(self, kind, work, then=None, user=""):
        """The result of `work`."""
        self.kinds.append(kind)
        return super().run(kind, work, then, user)


@pytest.mark.parametrize("more", [0, 1])
def test_a_message_for_many_is_committed_in_a_thread(store, monkeypatch, more):
    """One transaction all the same: see `durable.MANY`."""
    monkeypatch.setattr(durable, "MANY", 2 - more)
    store.owned.put(offload.Threads, kinds := Kinds())
    before = store.partitions["primary"].states.get(state_key(inbox(store).id))
    outcomes = deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    assert all(isinstance(outcome, Delivered) for outcome in outcomes) and kinds.kinds.count("held") == more
    assert store.partitions["primary"].states.get(state_key(inbox(store).id)) != before and len(files(store)) == 1
