"""onecopy reconstruct of parts: cache records, quotas, rights, a partition, the list; and what it says it would do."""

import json
import shutil

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.mailboxes import firstuse, namespace
from store.mailboxes.authorization import set_acl
from store.opening import open_store
from tests.support.stores.stores import SMALL, deliver
from tests.support.stores.whole import forget_accounts, lose_databases

pytestmark = pytest.mark.long


@pytest.fixture
def mail(onecopy):
    """alice has ten messages, of which bob has five; bob's INBOX is shared."""
    store = open_store(onecopy.root, SMALL)
    for user in ("alice", "bob"):
        firstuse.inbox(store, store.directory.find(user))
    for number in range(10):
        to = ["user/alice/INBOX", "user/bob/INBOX"] if number < 5 else ["user/alice/INBOX"]
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), *to)
    namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    set_acl(store, MailboxName("bob", "INBOX"), "alice", "lrs")
    store.close()
    return onecopy


def spoil(program, work):
    store = open_store(program.root, SMALL)
    found = work(store, store.partitions["primary"])
    store.close()
    return found


def lose_cached(*uids, other=False):
    """Cache records are gone, or another message's."""
    def work(store, partition):
        rows = store.open_mailbox(store.entry(MailboxName("alice", "INBOX"))).rows
        for row in rows[[uid - 1 for uid in uids]]:
            serial, wrong = int(row["serial"]), partition.serials.cached([int(rows[-1]["serial"])])[0]
            if other:
                partition.transact(lambda txn, serial=serial, wrong=wrong: partition.serials.write_cached(
                    serial, wrong, txn.handle))
            else:
                partition.transact(lambda txn, serial=serial: partition.serials.forget_cached(serial, txn.handle))
    return work


def cached(program):
    def work(store, partition):
        rows = store.open_mailbox(store.entry(MailboxName("alice", "INBOX"))).rows
        return [each is not None and each.digest == bytes(row["digest"]) for row, each in zip(
            rows, partition.serials.cached(rows["serial"].tolist()), strict=True)]
    return spoil(program, work)


@pytest.mark.parametrize("other", [False, True])
def test_the_cache_of_some_messages(mail, other):
    spoil(mail, lose_cached(2, 3, 8, other=other))
    assert "3 left" in mail("reconstruct", "alice", "--cache", "--dry-run", status=1)
    assert cached(mail).count(False) == 3
    assert "2 corrections; 0 left" in mail("reconstruct", "user/alice/INBOX", "--uid", "1:5", "--cache")
    assert cached(mail) == [True] * 7 + [False] + [True] * 2
    found = mail.json("reconstruct", "--all", "--cache")
    assert len(found["corrections"]) == 1 and found["messages"] == 10      # once, however many mailboxes have it
    assert mail("check") == "nothing wrong was found\n"


def test_message_files_that_are_gone_or_damaged_are_told_of(mail):
    first, second = sorted(path for path in mail.root.glob("partitions/*/messages/*/*/*"))[:2]
    octets = first.read_bytes()
    first.unlink()
    found = mail("reconstruct", "alice", status=1)
    assert f"message {first.name}: its file is missing (repair: onecopy restore ARCHIVE --over)" in found
    second.write_bytes(second.read_bytes()[:-1] + b"x")
    found = mail("reconstruct", "alice", "--cache", "--force", status=1)
    assert f"message {second.name}: its file cannot be used: it does not agree with its digest" in found
    assert f"message {first.name}: its file cannot be used" in found
    first.write_bytes(octets)
    second.write_bytes(second.read_bytes()[:-1] + b"\n")
    assert "0 corrections; 0 left" in mail("reconstruct", "alice", "--force")


def test_quotas_and_rights_by_themselves(mail):
    spoil(mail, lambda store, partition: partition.transact(lambda txn: txn.charge_root("alice", 7, 1, enforce=False)))
    spoil(mail, lambda store, partition: partition.transact(lambda txn: txn.charge_root("bob", 9, 1, enforce=False)))
    spoil(mail, lambda store, partition: transact(store.mailboxes.env, lambda txn: [
        store.mailboxes.granted.update(entry, None, txn) for entry in list(store.mailboxes.all(txn))]))
    assert "3 left" in mail("reconstruct", "--quota", "--rights", "--check", status=1)
    found = mail("reconstruct", "bob", "--quota")
    assert "quota root bob: the quota's use was wrong by 9 octets, 1 messages" in found and "alice" not in found
    assert "user/bob/INBOX: the table of rights did not agree with its ACL" in mail("reconstruct", "--rights")
    assert "quota root alice" in mail("reconstruct", "user/alice/Archive", "--quota")
    assert mail("check") == "nothing wrong was found\n"
    assert "0 corrections" in mail("reconstruct", "--quota", "--rights")


def test_wrong_use(mail):
    assert "--uid is for --cache" in mail.refused("reconstruct", "alice", "--uid", "1", status=2)
    mail.refused("reconstruct", "alice", "--cache", "--uid", "x", status=2)
    mail.refused("reconstruct", "--all", "--cache", "--engine", "local", status=2)
    mail.refused("reconstruct", "--cache", status=2)
    assert "--force" in mail.refused("reconstruct", "--mboxlist", status=2)
    mail.refused("reconstruct", "--partition", "nowhere", "--force")


def test_a_partition(mail):
    before = mail.json("mailbox", "list")
    shutil.rmtree(mail.root / "partitions" / "primary" / "index")
    found = mail("reconstruct", "--partition", "primary", "--check", status=1)
    assert "partition primary: it has no databases" in found
    assert not (mail.root / "partitions" / "primary" / "index").exists()
    assert "3 mailboxes, 15 records, 10 messages; 0 corrections; 0 left" in mail("reconstruct", "--all")
    after = mail.json("mailbox", "list")
    for box in (*before, *after):
        del box["uidnext"], box["highestmodseq"]
    assert after == before
    assert mail("check") == "nothing wrong was found\n"


def test_the_list(mail):
    before = mail.json("mailbox", "list"), mail.json("user", "list")
    assert "would be rebuilt" in mail("reconstruct", "--mboxlist", "--force", "--check", status=1)
    assert "3 mailboxes, 15 records" in mail("reconstruct", "--mboxlist", "--force")
    assert (mail.json("mailbox", "list"), mail.json("user", "list")) == before       # accounts as well
    assert mail("check") == "nothing wrong was found\n"
    for each in mail.root.glob("mboxlist*"):
        shutil.rmtree(each)
    forget_accounts(mail.root)
    assert "it is lost" in mail("reconstruct", "--all", "--check", status=1)
    assert "user alice: it is inactive, and has no password" in mail("reconstruct", "--all", status=1)
    assert mail.json("mailbox", "list") == before[0]
    assert mail("check", status=1) == (
        "mboxlist/users.db: the account is lost of each user (2), alice, bob: nobody can log in (repair: onecopy "
        "reconstruct --mboxlist --force --users FILE)\n")


def test_the_list_with_the_accounts_of_the_user_area(mail):
    """Who could log in before can log in after."""
    users = mail.json("user", "list")
    for each in mail.root.glob("mboxlist*"):
        shutil.rmtree(each)
    mail("reconstruct", "--mboxlist")
    assert mail.json("user", "list") == users and mail("check") == "nothing wrong was found\n"


def test_accounts_come_from_a_snapshot(mail):
    users = mail.json("user", "list")
    for time in ("20260101T000000Z", "20260102T000000Z"):
        folder = mail.root / "snapshots" / time / "mboxlist"
        folder.mkdir(parents=True)
        shutil.copy(mail.root / "mboxlist" / "users.db", folder)
    (folder / "users.db").write_bytes(b"nonsense")          # the newest one cannot be read
    lose_databases(mail.root)
    assert "0 left" in mail("reconstruct", "--all")
    assert mail.json("user", "list") == users
    assert mail("check") == "nothing wrong was found\n"


def test_what_nothing_claims_is_kept(mail):
    """A mailbox's store.idx is lost with the databases: its mail is the administrator's."""
    shutil.copy(mail.root / "mboxlist" / "users.db", mail.root.parent)
    lose_databases(mail.root)
    next(mail.root.glob("partitions/primary/users/*/*/alice/store.idx")).unlink()
    found = mail("reconstruct", "--all", "--users", str(mail.root.parent / "users.db"))
    assert found.count("it is in public/Lost/primary") == 5          # the others are bob's, too
    assert "5 corrections; 0 left" in found
    assert mail("check") == "nothing wrong was found\n"
    assert json.loads(mail("mailbox", "info", "public/", "Lost/primary", "--json"))["messages"] == 5
    assert "0 corrections; 0 left" in mail("reconstruct", "--all")


# What a mailbox that seems to be whole is asked

def records(store):
    return store.open_mailbox(store.entry(MailboxName("alice", "INBOX"))).rows


def write_record(change):
    """What is known of the message file of alice's third message, or of her eighth, which she alone has, is changed."""
    def work(uid):
        def spoiling(store, partition):
            digest = records(store)["digest"][uid - 1].tobytes()
            record = partition.refs.find(digest)
            partition.transact(lambda txn: txn.refs.write(digest, evolve(record, **change(record)), txn.handle))
        return spoiling
    return work


FEWER = write_record(lambda record: {"references": record.references - 1})
TWO_FEWER = write_record(lambda record: {"references": 0})
OTHER_SUM = write_record(lambda record: {"check": record.check ^ 1})


@pytest.mark.parametrize(("spoiling", "found"), [
    (FEWER(8), True), (OTHER_SUM(8), True),             # hers alone: counted exactly
    (TWO_FEWER(3), True),                               # bob has it, too: fewer than hers cannot be
    (OTHER_SUM(3), False),                              # and what the others have is not looked at
])
def test_references_that_cannot_be_right_are_counted(mail, spoiling, found):
    spoil(mail, spoiling)
    told = mail("reconstruct", "user/alice/INBOX")
    assert told.count("message ") == found
    assert ("1 corrections; 0 left" in told) == found
    assert ("nothing wrong" in mail("check", status=0 if found else 1)) == found
    mail("reconstruct", "--all")
    assert mail("check") == "nothing wrong was found\n"


def damage_cached(change):
    def work(store, partition):
        for row in records(store)[[1, 7]]:
            value = bytearray(partition.serials._cache.get(int(row["serial"]).to_bytes(8, "big")))
            value = change(value)
            partition.transact(lambda txn, row=row, value=value: partition.serials._cache.put(
                int(row["serial"]).to_bytes(8, "big"), bytes(value), txn.handle))
    return work


def other_version(value):
    value[36] ^= 0x40           # behind the digest (32 octets) and the length of the trace header (4)
    return value


@pytest.mark.parametrize("spoiling", [
    lose_cached(2, 8), lose_cached(2, 8, other=True), damage_cached(lambda value: value[:20]),
    damage_cached(lambda value: value[:70]), damage_cached(other_version)])
def test_cache_records_that_cannot_be_used_are_made_anew(mail, spoiling):
    before = spoil(mail, lambda store, partition: partition.serials.cached(records(store)["serial"].tolist()))
    spoil(mail, spoiling)
    assert "2 corrections; 0 left" in mail("reconstruct", "user/alice/INBOX")
    assert spoil(mail, lambda store, partition: partition.serials.cached(records(store)["serial"].tolist())) == before
    assert "0 corrections; 0 left" in mail("reconstruct", "alice")
    assert mail("check") == "nothing wrong was found\n"


def test_files_that_have_other_octets_are_found_when_they_are_read(mail):
    spoil(mail, lambda store, partition: deliver(store, b"Subject: t\r\n\r\nt\r\n", "user/alice/INBOX",
                                                 trace=b"Return-Path: <sender@example.org>\r\n"))
    first, second, third, *_ = sorted(mail.root.glob("partitions/*/messages/*/*/*"))
    kept = {path: path.read_bytes() for path in (first, second, third)}
    first.write_bytes(kept[first][:-1] + b"x")
    second.write_bytes(kept[second] + b"x")
    third.unlink()
    told = mail("reconstruct", "alice", status=1)
    assert first.name not in told and "2 left" in told
    assert f"message {second.name}: its file has {len(kept[second]) + 1} octets instead of {len(kept[second])}" in told
    told = mail("reconstruct", "alice", "--deep", status=1)
    assert f"message {first.name}: its file cannot be used: it does not agree with its digest" in told
    assert f"message {third.name}: its file is missing" in told and "3 left" in told
    assert "3 left" in mail("reconstruct", "--all", "--deep", status=1)
    for path, octets in kept.items():
        path.write_bytes(octets)
    assert "0 corrections; 0 left" in mail("reconstruct", "alice", "--deep")
    for words in (["--quota", "--deep"], ["alice", "--deep", "--check"], ["--partition", "primary", "--deep"]):
        assert "--deep is for" in mail.refused("reconstruct", *words, status=2)


def test_store_idx_is_as_the_mailbox_is_afterwards(mail):
    path = next(mail.root.glob("partitions/*/users/*/*/alice/store.idx"))
    octets = path.read_bytes()
    path.write_bytes(octets[:-40] + bytes(40))
    assert "0 left" in mail("reconstruct", "user/alice/INBOX")
    assert mail("check") == "nothing wrong was found\n"
    path.unlink()
    mail("reconstruct", "user/alice/INBOX")
    assert path.exists() and mail("check") == "nothing wrong was found\n"
