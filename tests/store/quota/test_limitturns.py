"""Whoever changes limits of an owner has the owner's turn meanwhile, as a move has when it takes them along."""

import zlib

import pytest

from store import filelock, hosting
from store.backup.userrows import restore_limits
from store.errors import Problem, StoreError
from store.mend.userrecords import restore_records
from store.partition.partition import Partition
from store.quota import limitturns, roots
from store.tables.quotatable import ALONE, QuotaTable
from store.userarea import writing
from store.users import restorable
from tests.store.quota.quotas import two_partitions

ROOT = "alice"


def row(root):
    """What an archive says of a root."""
    return {"root": root, "partition": "primary", "octets": 3000, "messages": 3}


def set_one(store):
    roots.set_quota(store, ROOT, 5000, 10)


def set_all(store):
    roots.set_all(store, ROOT, {ROOT: 4000})


def restore_an_archive(store):
    restore_limits(store, [row(ROOT)], None, store.partition)


def bring_back(store):
    set_one(store)
    restorable.forget_user(store, ROOT)
    restorable.undelete_user(store, ROOT)


def mend_what_is_lost(store):
    set_one(store)
    partition = store.partitions["primary"]
    writing.write_round(store, partition, hurry=True)
    partition.transact(lambda txn: txn.partition.quotas.forget(ROOT, txn.handle))
    list(restore_records(store, partition, [entry.id for entry in store.names(ROOT)]))


def is_free(store):
    with (store.root / "run" / "limits.lock").open("rb+") as file:
        return filelock.lock_octet(file.fileno(), zlib.crc32(ROOT.encode()), wait=False)


@pytest.mark.parametrize("change", [set_one, set_all, restore_an_archive, bring_back, mend_what_is_lost])
def test_limits_change_in_turn(tmp_path, faults, change):
    store = two_partitions(tmp_path)
    seen = faults.watch(QuotaTable, "set_limits", lambda *_: is_free(store))
    change(store)
    assert seen and not any(seen)
    assert store.partitions["primary"].quotas.find(ROOT).octet_limit > 0 and is_free(store)
    store.close()


def test_what_was_refused_is_put_back_in_the_same_turn(tmp_path, faults):
    """A user who moves before that would take along limits that nobody has set."""
    store = two_partitions(tmp_path)
    roots.set_quota(store, "@b.org", 5)
    second, turns = store.partitions["second"], list[None]()
    faults.fail(Partition, "transact", StoreError(Problem.DISK_FULL), when=lambda place, _: place is second)
    faults.after(filelock, "lock_octet", lambda *_, **__: turns.append(None))
    seen = faults.watch(QuotaTable, "put_back", lambda *_: len(turns))
    with pytest.raises(StoreError):
        roots.set_quota(store, "@b.org", 1)
    assert seen == [1] and len(turns) == 1
    store.close()


def test_nobody_changes_limits_in_the_turn_of_another(store):
    def change(txn, turn, root):
        txn.partition.quotas.set_limits(root, 1, 1, txn.handle, turn)

    with limitturns.in_turn(store, "alice") as alices, limitturns.in_turn(store, "") as publics:
        for turn, root, fits in ((alices, "alice", True), (alices, "alice/Archive", True), (alices, "bob", False),
                                 (alices, "public/news", False), (publics, "public/news", True),
                                 (publics, "alice", False), (ALONE, "bob", True)):
            assert turn.covers(root) is fits
        with pytest.raises(AssertionError):
            store.partitions["primary"].transact(lambda txn: change(txn, alices, "bob"))


def test_an_archive_sets_no_limits_of_who_is_on_another_back_end(store, faults):
    faults.around(hosting, "is_elsewhere", lambda real, store, user, txn=None: user == ROOT)
    restore_limits(store, [row(ROOT), row("bob")], None, store.partition)
    quotas = store.partitions["primary"].quotas
    assert [quotas.has(each) for each in (ROOT, "bob")] == [False, True]
