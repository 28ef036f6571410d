"""Every kind of fault, planted alone: the check finds it, the command that it names exists, and does what it says:
after it the check finds nothing, at the first try; and no mailbox has lost a message of which evidence was left."""

import os
import shlex
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxId
from mboxlist.names import MailboxName
from store.accounts.passwords import hash_password
from store.backup.archive import Archive, Scope
from store.backup.creation import Form, Making
from store.backup.restore import Choice, Restoring
from store.check.causes import causes_among
from store.check.wholecheck import check_all
from store.mailboxes import subscribing
from store.partitions import volumes
from store.quota import roots as quotaroots
from store.reconstruct.procedures import reconstruct
from store.reconstruct.request import Request, silent
from store.tables.index import chunk_key, decode, encode
from store.tables.quotatable import root_key
from store.tables.state import state_key
from store.userarea import directoryfile, idxfile, idxreading, writing
from store.values import RECONSTRUCT, Repair, Secret
from tests.store.check import test_wholecheck as planted
from tests.store.check.test_wholecheck import change_entry, damaged, parts, purge_list, write  # noqa: F401
from tests.support.stores import small
from tools.cli import program
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import Plan
from tools.spark.source import reading
from tools.spark.verify.kinds import kind_of
from tools.spark.verify.mending import mend
from tools.spark.verify.verifyjob import verify

pytestmark = pytest.mark.long

LOSES = {"its file is missing", "its file has 5 octets"}        # only a backup has it


#: What a verification tells more exactly, since it reads message files and the records in store.idx: its kind, and
#: those that the check has for it.
FINER = {kind: {"index-fit", "index-figures", "index-flags", "index-uids", "idx-records"}
         for kind in ("index-different", "index-missing")} | {
    "message-cut": {"message-size"}, "idx-head": {"idx-damaged"}}


def forget_row(store, name="INBOX"):
    """As a lost octet of mailboxes.db does it: no other table hears of it."""
    entry = store.entry(MailboxName("alice", name))

    def work(txn):
        store.mailboxes._mailboxes.delete(str(entry.name).encode().replace(b"/", b"\1"), txn)
        store.mailboxes._names.delete(entry.id.to_bytes(4, "big"), txn)
    transact(store.mailboxes.env, work)
    return entry


def forget_figures(store, mailbox=None):
    partition, entry, _ = parts(store)
    write(store, lambda txn: partition.states.delete(state_key(mailbox or entry.id), txn))


def forget_both(store):
    forget_figures(store)
    forget_row(store)


def forget_all_but_the_file(store):
    forget_chunk(store)
    forget_both(store)


def forget_deleted_row(store):
    entry = planted.old(store)
    transact(store.mailboxes.env, lambda txn: store.mailboxes.deleted.remove(entry.id, txn))


def forget_chunk(store):
    partition, entry, _ = parts(store)
    write(store, lambda txn: partition.index.delete(chunk_key(entry.id, 0), txn))


def forget_records_and_figures(store):
    forget_chunk(store)
    write(store, lambda txn: store.partitions["primary"].states.delete(state_key(MailboxId(1)), txn))


def forget_header_fields(store):
    """The row of a number that nobody refers to."""
    partition = store.partitions["primary"]
    partition.transact(lambda txn: partition.private_headers.numbers([b"Delivered-To: x\r\n"], txn.handle))
    write(store, lambda txn: partition.private_headers._table.delete((1).to_bytes(4, "big"), txn))


def another_partition(store):
    volumes.add(store, "second")
    change_entry(store, partition="second")


def in_use_and_purged(store):
    digest = bytes(parts(store)[2]["digest"][0])
    purge_list(store, 1 << 30, digest)


def second_file(store):
    partition, _, rows = parts(store)
    path = Path(partition.files.path(bytes(rows["digest"][0])))
    path.with_name("copy").write_bytes(path.read_bytes())


def forget_record(store):
    """Of a mailbox that has changed since its store.idx was written."""
    partition, entry, rows = parts(store)
    planted.deliver(store, b"Subject: later\r\n\r\n", "user/alice/INBOX")
    rows = store.open_mailbox(entry).rows[1:].copy()
    write(store, lambda txn: partition.index.put(chunk_key(entry.id, 0), encode(rows), txn))
    partition.views.forget()
    writing.write_changed(store, hurry=True)        # does not write over what has the record


def lose_limit(store):
    quotaroots.set_quota(store, "alice", 5_000_000, 40)
    writing.write_changed(store, hurry=True)
    table = store.partitions["primary"].quotas._table
    write(store, lambda txn: table.delete(root_key("alice"), txn))


def lose_subscription(store):
    subscribing.subscribe(store, "alice", "Archive/2026")
    writing.write_changed(store, hurry=True)
    transact(store.mailboxes.env, lambda txn: store.mailboxes.subscriptions.remove("alice", "Archive/2026", txn))


def lose_account(store):
    transact(store.mailboxes.env, lambda txn: store.mailboxes.users.delete(b"alice", txn))


def keep_account(store):
    """carol, who has no INBOX."""
    store.directory.add("carol", hash_password(Secret(b"carol's")))
    writing.write_changed(store, hurry=True)


def lose_account_without_inbox(store):
    keep_account(store)
    transact(store.mailboxes.env, lambda txn: store.mailboxes.users.delete(b"carol", txn))


def damage_kept_accounts(store):
    keep_account(store)
    path = store.partitions["primary"].folder / "users" / directoryfile.NAME
    path.write_bytes(path.read_bytes().replace(b"carol", b"karol"))


def lose_kept_accounts(store):
    keep_account(store)
    (store.partitions["primary"].folder / "users" / directoryfile.NAME).unlink()


def change_kept_accounts(store):
    keep_account(store)
    path = store.partitions["primary"].folder / "users" / directoryfile.NAME
    kept = directoryfile.read(path.parents[1])
    path.write_bytes(evolve(kept, domains={"example.org": "+imap:*"}).to_bytes())


def forget_kept_account(store):
    contents = idxreading.read(planted.copy_of(store))
    idxfile.write(planted.copy_of(store), evolve(contents, account=b"", head=evolve(contents.head, account=0)))


FAULTS = {what: damage for what, (damage, _) in planted.DAMAGE.items()} | {
    "a row of the list is lost": forget_row,
    "figures are lost": forget_figures,
    "a row of the list and its figures are lost": forget_both,
    "all but store.idx is lost": forget_all_but_the_file,
    "a row of the list of deleted mailboxes is lost": forget_deleted_row,
    "a row of the list names another partition": another_partition,
    "a row of the list names another id": lambda store: change_entry(store, id=77),
    "a row of the list has a lower UIDVALIDITY": lambda store: change_entry(store, uidvalidity=7),
    "a chunk of records is lost": forget_chunk,
    "a chunk of records and the figures are lost": forget_records_and_figures,
    "figures are behind": lambda store: planted.change_state(store, uidnext=2, highestmodseq=2),
    "header fields are lost": forget_header_fields,
    "a message in use is on the purge list": in_use_and_purged,
    "a message file has a second name": second_file,
    "a record is lost of a mailbox that has changed since": forget_record,
    "a quota limit is lost": lose_limit,
    "a subscription is lost": lose_subscription,
    "an account is lost": lose_account,
    "an account without an INBOX is lost": lose_account_without_inbox,
    "what is kept of accounts is damaged": damage_kept_accounts,
    "what is kept of accounts is missing": lose_kept_accounts,
    "what is kept of accounts is not what is so": change_kept_accounts,
}


def messages(store):
    """By mailbox the digests of its messages, of deleted ones too."""
    found = {}
    for entry, removed in [*((entry, 0) for entry in store.mailboxes.all()),
                           *((entry, 1) for _, entry in store.mailboxes.deleted.all())]:
        chunks = [decode(value) for _, value in store.partitions[entry.partition].index.scan(
            chunk_key(entry.id, 0), chunk_key(MailboxId(entry.id + 1), 0))]
        digests = Counter(digest for rows in chunks for digest in rows["digest"].tolist())
        found[str(entry.name), removed] = digests
    return found


def wanted(store, what=None):
    return Request(store.root, "reconstruct", lambda: store.settings, lambda: nullcontext(store),
                   lambda store, address: address, check_all, lambda: None, lambda: nullcontext(silent), what,
                   what is None)


@pytest.fixture(autouse=True)
def few_folders(request, monkeypatch):
    """To make 4,096 folders of messages, and to look into them, is most of what a test costs."""
    if not any(word in request.node.name for word in ("this file", "the folder", "verification")):
        small.few_folders(monkeypatch.setattr)
        look = reading.message_files
        monkeypatch.setattr(reading, "message_files", lambda task: look(evolve(task, places=tuple(
            place for place in task.places if os.path.isdir(
                f"{task.folder}/{place if place == reading.STAGING else f'messages/{place[0]}/{place[1:3]}'}")))))


@pytest.mark.parametrize("what", FAULTS)
def test_what_is_named_mends(damaged, what, tmp_path):        # noqa: F811
    """The check and the verification find it, once, and call it the same."""
    before = messages(damaged)
    if what in LOSES:
        with open(tmp_path / "archive", "wb") as file:
            Making(damaged, Scope()).write(file.write, Form())
    FAULTS[what](damaged)
    found = causes_among(damaged, check_all(damaged))
    told = verify(damaged.root, tmp_path / "plan", Local(), damaged).own
    assert (len(found), len(told)) == (1, 1), (found, told)
    assert kind_of(found[0]) in FINER.get(told[0].kind, {told[0].kind})
    outcome = reconstruct(wanted(damaged))
    if what in LOSES:
        assert [finding.repair for finding in outcome.left] == [Repair.RESTORE.of()]
        done = Restoring(damaged, [Archive(tmp_path / "archive")], Choice(over=True)).run()
        assert (done.findings, check_all(damaged), messages(damaged)) == ([], [], before)
        return
    assert {finding.repair for finding in found} <= {RECONSTRUCT, Repair.OWNER.of()}        # the latter of folders
    assert (check_all(damaged), outcome.left, outcome.findings) == ([], [], [])
    after = messages(damaged)
    assert [name for name in before if before[name] - after.get(name, Counter())] == []
    assert reconstruct(wanted(damaged)).corrections == []           # nothing moves any more


#: What concerns mailboxes of one user.
OF_A_USER = (
    "a row of the list is lost", "figures are lost", "a row of the list and its figures are lost",
    "a row of the list names another partition", "a row of the list names another id", "a chunk of records is lost",
    "a row of the list has a lower UIDVALIDITY", "a chunk of records and the figures are lost", "figures are behind",
    "does not agree with its checksum", "messages: 9 in its figures", "UIDVALIDITY is", "is charged to quota root",
    "its figures say that it was deleted", "bob's own flags of chunk 0 do not agree with their checksum",
    "is still there", "UID 77 was expunged and is not below UIDNEXT", "UID 1 is there and can be undeleted as well",
    "an account is lost", "a record is lost of a mailbox that has changed since", "a quota limit is lost",
    "a subscription is lost", "2 records refer to it, counted are 1", "quota says", "it is damaged",
    "is not found by its id")


@pytest.mark.parametrize("what", OF_A_USER)
def test_of_a_user_alone(damaged, what):            # noqa: F811
    before = messages(damaged)
    FAULTS[what](damaged)
    outcome = reconstruct(wanted(damaged, "alice"))
    assert (check_all(damaged), outcome.left, outcome.findings) == ([], [], [])
    after = messages(damaged)
    assert [name for name in before if before[name] - after.get(name, Counter())] == []


#: Faults that can be there together.
TOGETHER = (
    "nothing is known of this file", "readers' own flags of a mailbox",
    "records of a mailbox that has no figures", "it waits for the purge since 5", "will be given out again",
    "quota says", "annotations of a mailbox that is not in the list", "its figures do not say so",
    "a message file has a second name", "header fields are lost", "a row of the list is lost")


def test_a_verification_puts_right_what_it_finds(damaged, tmp_path):        # noqa: F811
    """`onecopy check --engine local --apply`, of many at once."""
    before = messages(damaged)
    for what in TOGETHER:
        FAULTS[what](damaged)
    found = verify(damaged.root, tmp_path / "plan", Local(), damaged)
    assert len(found.own) == len(TOGETHER) - 3      # all of mailbox 4242 is one; the quota follows from the lost row
    done = mend(damaged, Plan(tmp_path / "plan"), found)
    assert (check_all(damaged), done.left) == ([], [])
    again = verify(damaged.root, tmp_path / "again", Local(), damaged)
    assert again.own == []
    after = messages(damaged)
    assert [name for name in before if before[name] - after.get(name, Counter())] == []


@pytest.mark.parametrize("repair", Repair, ids=lambda repair: repair.name)
def test_every_command_that_is_named_is_one(repair, capsys):
    """The real parser takes it."""
    about = ["alice", "Archive (7)"][:repair.value.count("{}")]
    words = shlex.split(repair.of(*about).replace("HOST:PORT", "second.example.org:4190"))
    given = program.parse([*words, "--root", "/nonexistent"])
    assert given.arguments.program == "onecopy " + " ".join(words[:len(given.arguments.program.split()) - 1])


def test_limits_subscriptions_and_accounts_come_back(damaged):       # noqa: F811
    account = damaged.directory.user("alice")
    for lose in (lose_limit, lose_subscription, lose_account):
        lose(damaged)
        reconstruct(wanted(damaged))
    use = damaged.partitions["primary"].quotas.find("alice")
    assert (use.octet_limit, use.message_limit) == (5_000_000, 40) and damaged.directory.user("alice") == account
    assert subscribing.subscriptions(damaged, "alice") == ["Archive/2026"]


def test_a_lost_account_is_told_once(damaged):      # noqa: F811
    """Of a user who has two mailboxes, and of one whose account only stands for the lost one."""
    planted.namespace.create_mailbox(damaged, MailboxName("alice", "Second"))
    damaged.directory.remove("alice")
    forget_kept_account(damaged)
    found = [finding for finding in check_all(damaged) if "account" in finding.what]
    assert [(finding.where, finding.repair) for finding in found] == [("user alice", "user add alice")]
    assert "(2)" in found[0].what
    assert evolve(found[0], what="") in [evolve(each, what="") for each in reconstruct(wanted(damaged)).left]


def test_rows_of_another_mailbox_do_not_count_for_ever(damaged):        # noqa: F811
    """Records of a mailbox that is not there raised the counts of sound references, again and again."""
    partition, _, rows = parts(damaged)
    count = partition.refs.find(bytes(rows["digest"][0])).references
    write(damaged, lambda txn: partition.index.put(chunk_key(4242, 0), encode(rows), txn))
    reconstruct(wanted(damaged))
    assert partition.refs.find(bytes(rows["digest"][0])).references == count and check_all(damaged) == []
