"""Databases made anew in bulk: what comes back is what was there, record by record, also after a start that was cut off
in it or had no room."""

import contextlib
import errno
import os
import resource
import shutil
import signal
from collections import Counter
from random import Random

import numpy as np
import pytest

from mboxlist.engine import damage, pages
from mboxlist.engine.btree import salvage
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import StoreError
from store.housekeeping.tasks import Round, Task
from store.mailboxes import namespace, uidllist
from store.mailboxes.authorization import set_acl
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition import filecontent
from store.partition.marks import behind_marker
from store.rebuild import loader, recount, referencepass
from store.rebuild.referencepass import Gathered
from store.recovery import knownfiles
from store.recovery.environments import recovery_of
from store.recovery.userareacheck import reconcile
from store.tables.index import ROW
from store.userarea import writing
from store.values import Flag, FlagAction, Flags
from tests.crash import harm
from tests.support.faults.volume import Volume
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import in_use

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

ALICE, BOB = "user/alice/INBOX", "user/bob/INBOX"
TRACE = b"Return-Path: <sender@example.org>\r\nReceived: from a\r\n"
INDEX = "partitions/primary/index"
TABLES = [f"{name}.db" for name in ("arrivals", "cache", "heads", "index", "messages", "outbox", "purge", "quota",
                                    "removed", "seen", "state", "uidls", "vanished")]
MAIN = ("index.db", "heads.db", "seen.db", "uidls.db")       # every row of these must come back


@pytest.fixture(autouse=True)
def small_logs():
    """So small that the beginning of the log is dropped: what is lost does not come back from there."""
    with harm.small():
        yield


def make(root):
    """A store with something in every table, closed; what its tables have, and what it says."""
    store = make_store(root)
    for number in range(150):
        deliver(store, b"Subject: %d\r\n\r\n%s\r\n" % (number, b"x" * number), *[ALICE, BOB][:1 + number % 2],
                trace=TRACE if number % 3 else b"", header=b"X-For: {} %d\r\n" % (number % 4) if number % 5 else b"")
    alice, bob = (store.entry(MailboxName.parse(name)) for name in (ALICE, BOB))
    archive = namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    copy_messages(store, alice, archive, np.arange(60, 131))
    going = [4, 64, 65, 66, 129, *range(70, 120)]
    change_flags(store, alice, going, FlagAction.ADD, Flags(Flag.DELETED, ("a",)))
    expunge(store, alice)
    change_flags(store, alice, [9, 10], FlagAction.ADD, Flags(Flag.DELETED | Flag.FLAGGED))
    alice = set_acl(store, alice.name, "bob", "lrs")
    change_flags(store, alice, [1, 130], FlagAction.ADD, Flags(Flag.SEEN), reader="bob")
    uidllist.give(store, bob, {1: b"old-1", 70: b"old-70"})
    said = figures(store)
    store.close()
    return rows_of(root), said


def rows_of(root):
    return {name: dict(salvage(root / INDEX / name)) for name in MAIN}


def figures(store):
    """What state.db, messages.db and quota.db say that does not count the starts."""
    partition = store.partitions["primary"]
    states = {mailbox: (state.uidvalidity, state.messages, state.unseen, state.deleted, state.octets, state.keywords,
                        state.quota_root) for mailbox, state in partition.all_states()}
    files = {digest: (record.serial, record.references, record.size, record.trace, record.check)
             for digest, record in in_use(partition).items()}
    return states, files, {root: (use.octets, use.messages) for root, use in partition.quotas.all() if root[0] != "@"}


def lose(root, names):
    for name in names:
        if name:
            (root / INDEX / name).unlink()
        else:
            shutil.rmtree(root / INDEX)
            shutil.rmtree(root / "mboxlist")


def is_whole(root, before, said):
    store = open_store(root, SMALL)
    assert not any("log, from" in event.source for event in recovery_of(store).events.values())
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    assert figures(store) == said and check(store) == []
    deliver(store, b"Subject: after\r\n\r\n", ALICE, BOB)
    assert check(store) == []
    store.close()
    after = rows_of(root)
    for name, rows in before.items():
        new = after[name].keys() - rows.keys()
        assert {key: after[name].get(key) for key in rows} == rows and len(new) == (2 if name == "index.db" else 0)


@pytest.mark.parametrize("names", [[""], *([name] for name in TABLES), ["index.db", "messages.db"],
                                   ["index.db", "heads.db", "state.db"]])
def test_every_record_comes_back(names, tmp_path):
    before, said = make(tmp_path / "store")
    assert all(before.values())
    lose(tmp_path / "store", names)
    is_whole(tmp_path / "store", before, said)
    again = open_store(tmp_path / "store", SMALL)
    assert not recovery_of(again).events
    again.close()


@pytest.mark.parametrize("name", ["index.db", "messages.db", "state.db"])
def test_no_message_file_is_opened_before_it_serves(name, tmp_path, faults):
    """Nor those that nobody has looked at since an earlier loss."""
    before, said = make(tmp_path / "store")
    lose(tmp_path / "store", [""])
    open_store(tmp_path / "store", SMALL).close()
    lose(tmp_path / "store", [name])
    looked = faults.watch(filecontent, "trace_of")
    open_store(tmp_path / "store", SMALL).close()
    assert looked == []
    faults.mend()
    is_whole(tmp_path / "store", before, said)


def test_a_record_of_which_only_counts_tell_is_itself_counted(tmp_path, faults):
    """Neither index nor store.idx has it, and nobody has looked at its file since an earlier loss."""
    make(tmp_path / "store")
    lose(tmp_path / "store", [""])
    faults.around(writing, "write_what_is_left", lambda *_: None)
    store = open_store(tmp_path / "store", SMALL)
    before = figures(store)
    reconcile(store)
    alice, bob = (store.entry(MailboxName.parse(name)) for name in (ALICE, BOB))
    copy_messages(store, alice, bob, np.array([11]))
    said = figures(store)
    assert said != before
    store.close()
    faults.mend()
    lose(tmp_path / "store", ["index.db"])
    store = open_store(tmp_path / "store", SMALL)
    assert "flags and dates of 1 messages" in str(recovery_of(store).events)
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    assert figures(store)[1:] == said[1:] and check(store) == []
    store.close()


@pytest.mark.parametrize("name", ["index.db", "cache.db"])
def test_what_has_been_looked_through_is_not_read_again(name, tmp_path, faults):
    make(tmp_path / "store")
    lose(tmp_path / "store", [name])
    looked = faults.watch(pages, "look")
    store = open_store(tmp_path / "store", SMALL)
    assert looked == [] and [event.lost for event in recovery_of(store).events.values()] == [{name: "is missing"}]
    store.close()


@pytest.mark.parametrize(("harmed", "deep"), [("missing", False), ("page", False), ("suspect", True), ("log", True)])
def test_how_tables_hang_together_is_looked_at_where_more_than_pages_may_be_wrong(harmed, deep, tmp_path, faults):
    make(tmp_path / "store")
    folder = tmp_path / "store" / INDEX
    table = folder / "index.db"
    if harmed == "missing":
        table.unlink()
    elif harmed == "page":
        with table.open("r+b") as file:
            file.seek(32768 + 100)
            file.write(b"junk")
    elif harmed == "suspect":
        (folder / "suspect").write_text("a page of a wrong type")
        table.unlink()
    else:
        next(folder.glob("log.*")).unlink()
    given = faults.watch(damage, "mend", lambda *args, **options: options)
    store = open_store(tmp_path / "store", SMALL)
    assert [options["deep"] or options["cut"] or harmed == "log" for options in given] == [deep] and check(store) == []
    store.close()


@pytest.mark.parametrize("names", [[""], ["index.db"]])
def test_a_stop_right_after_such_a_start_has_no_file_of_every_mailbox_to_write(names, tmp_path):
    """They are compared in the background, however long that takes; what differs is written."""
    make(tmp_path / "store")
    lose(tmp_path / "store", names)
    store = open_store(tmp_path / "store", SMALL)
    partition = store.partitions["primary"]
    assert not partition.unwritten.changed and behind_marker(partition.folder).exists()
    before = {path: path.stat().st_ino for path in partition.folder.glob("users/**/store.idx")}
    store.close()
    assert {path: path.stat().st_ino for path in partition.folder.glob("users/**/store.idx")} == before
    store = open_store(tmp_path / "store", SMALL)
    assert reconcile(store) == 3
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    assert check(store) == []
    assert not behind_marker(partition.folder).exists()
    store.close()


def test_the_search_for_lost_cache_records_can_be_left_off(tmp_path, monkeypatch, faults):
    """Where hardly any is lost it looks at a million messages before it finds one."""
    make(tmp_path / "store")
    lose(tmp_path / "store", ["index.db"])
    monkeypatch.setattr(recount, "CACHED_AT_A_TIME", 10)
    store = open_store(tmp_path / "store", SMALL)
    items = list(knownfiles.uncached(store))
    assert items[-1] == ("primary", b"") and items[:-1] == [("primary", None)] * 15
    round, looked = Round(Task("cache", 1, knownfiles.uncached, knownfiles.cache_one), store), []
    faults.around(knownfiles, "lost_cached", lambda real, partition: map(
        lambda lost: looked.append(lost) or lost, real(partition)))
    assert round.step(lambda: len(looked) == 2) is None and len(looked) == 2
    for item in items:
        knownfiles.cache_one(store, item)
    assert check(store) == []
    store.close()


@pytest.mark.parametrize("place", [loader, knownfiles])
def test_a_process_that_makes_a_table_is_killed_and_the_next_start_begins_anew(place, tmp_path, faults):
    before, said = make(tmp_path / "store")
    lose(tmp_path / "store", [""])
    name = {loader: "chunks_of", knownfiles: "files_of"}[place]

    def dying(rows, stream):
        for number, row in enumerate(rows(stream)):
            yield row
            if number == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    faults.around(place, name, dying)
    with pytest.raises(StoreError):
        open_store(tmp_path / "store", SMALL)
    faults.mend()
    assert not list((tmp_path / "store" / INDEX).glob("*.loading")) and (tmp_path / "store/mending").exists()
    harm.let_go(tmp_path / "store")
    is_whole(tmp_path / "store", before, said)


def test_a_start_that_is_killed_in_it_leaves_nothing_that_stays(tmp_path, faults):
    before, said = make(tmp_path / "store")
    lose(tmp_path / "store", ["index.db"])

    def killed():
        faults.before(loader, "chunks_of", lambda stream: os.kill(os.getppid(), signal.SIGKILL))
        open_store(tmp_path / "store", SMALL)

    assert damage.apart(killed, tmp_path) is None
    assert list((tmp_path / "store" / INDEX).glob("*.loading"))
    faults.mend()
    harm.let_go(tmp_path / "store")
    is_whole(tmp_path / "store", before, said)
    assert not list((tmp_path / "store" / INDEX).glob("*.loading"))


def test_a_disk_that_is_full_in_it(tmp_path, faults):
    with Volume(tmp_path / "volume", 192 << 20) as volume:
        root = volume.folder / "store"
        before, said = make(root)
        lose(root, [""])

        def full(rows, stream):
            for row in rows(stream):             # in a process of its own; the start gives room back beside it
                with contextlib.suppress(OSError):
                    volume.fill(0)
                yield row

        def refused():
            faults.around(loader, "chunks_of", full)
            try:
                open_store(root, SMALL)
            except StoreError as error:
                return f"{error} {error.detail}"
            return ""

        then = damage.apart(refused, tmp_path)
        assert os.strerror(errno.ENOSPC) in then, then
        volume.release()
        harm.let_go(root)
        is_whole(root, before, said)


def test_who_has_many_files_open_mends_too(tmp_path):
    """As a server does that meets damage while thousands are connected."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert damage.apart(lambda: {"table": "wrong"}, tmp_path) == {"table": "wrong"}
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_whatever_a_start_that_was_cut_off_left_of_a_table_goes(tmp_path):
    """Berkeley DB has a name of its own, with ours in it, for a file that it removes."""
    folder, aside = tmp_path / "index", tmp_path / "aside"
    folder.mkdir()
    aside.mkdir()
    for name in ("messages.db", "log.0000000001", "__db.001", "messages.db.loading", "__db.messages.db.loading"):
        (folder / name).touch()
    damage.bring(aside, folder, [])
    assert not list(folder.iterdir())


# Counting

@pytest.mark.parametrize("seed", range(5))
def test_where_digests_are_among_others(seed):
    """In any order, and where many begin with the same octets."""
    random = Random(seed)
    some = [bytes(8 * (seed % 2)) + random.randbytes(32 - 8 * (seed % 2)) for _ in range(100)]
    some[1:9] = [some[0][:8] + random.randbytes(24) for _ in range(8)]
    digests, others = random.sample(some, 70), random.sample(some, 60)
    if seed > 2:
        others.sort()
    found = referencepass.places_among(*(np.frombuffer(b"".join(each), "V32") for each in (digests, others)))
    assert found.tolist() == [others.index(digest) if digest in others else -1 for digest in digests]


def test_what_is_counted_of_message_files(tmp_path):
    """Serials that have a place of their own, and those that are too large, by hand."""
    store = make_store(tmp_path / "store")
    gathered = Gathered(store.partitions["primary"], 30, most=50)
    expected, header_lengths, sizes = Counter(), Counter(), Counter()
    for mailbox in range(1, 8):
        rows = np.zeros(40, ROW)
        rows["uid"] = np.arange(1, 41)
        rows["serial"] = [1 + (mailbox * 37 + uid * 11) % 97 for uid in range(40)]
        rows["digest"] = [bytes([serial] * 32) for serial in rows["serial"].tolist()]
        rows["header_length"], rows["size"] = mailbox, 1000 + rows["serial"] - mailbox
        gathered.add(mailbox, rows)
        for serial in rows["serial"].tolist():
            expected[serial] += 1
            header_lengths[serial] = max(header_lengths[serial], mailbox)
            sizes[serial] = 1000 + serial
    found = gathered.all()
    assert not gathered.clash and found["digest"].tolist() == sorted(found["digest"].tolist())
    for name, wanted in (("references", expected), ("header_length", header_lengths), ("size", sizes)):
        assert dict(zip(found["serial"].tolist(), found[name].tolist(), strict=True)) == wanted
    store.close()


@pytest.mark.parametrize("serial", [7, 60])
@pytest.mark.parametrize("octet", [0, 8, 31])
def test_two_files_of_one_serial_are_noticed(serial, octet, tmp_path):
    store = make_store(tmp_path / "store")
    gathered = Gathered(store.partitions["primary"], most=50)
    rows = np.zeros(5, ROW)
    rows["uid"], rows["serial"], rows["digest"] = [1, 2, 3, 4, 5], serial, bytes(range(1, 33))
    gathered.add(1, rows)
    other = bytearray(range(1, 33))
    other[octet] ^= 1
    rows = rows.copy()
    rows["digest"][3] = bytes(other)
    gathered.add(2, rows)
    gathered.all()
    assert gathered.clash
    store.close()
