"""A tree of many mailboxes is renamed some at a time, so that nobody waits long for a page of the list (issue 22,
section 1), and still all of it or nothing: to who asked for it, to others in between, and after a kill."""

import errno
from functools import partial

import pytest

from mboxlist.names import MailboxName
from mboxlist.table import MailboxList
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.mailboxes import authorization, deletion, namespace
from store.opening import open_store
from store.quota import roots
from store.settings import Settings
from tests.support.faults.planted import Faults
from tests.support.stores.stores import deliver, make_store

TREE = ["Old", *(f"Old/{number:02}" for number in range(9)), "Old/03/deep", "Old/03/deep/er"]
BESIDE = ["New", "New/99", "Other"]


def name(path):
    return MailboxName("alice", path)


def tree(top):
    return {top + path.removeprefix("Old") for path in TREE}


def make_tree(store):
    for path in (*TREE, "Other"):
        namespace.create_mailbox(store, name(path), acl={"alice": "lrswipkxtea", "bob": "lr"})
    deliver(store, b"Subject: one\r\n\r\n", "user/alice/Old/03/deep")
    return ids(store)


def ids(store):
    """Path -> id, as anybody sees them at this moment."""
    return {entry.name.path: entry.id for entry in store.names("alice")}


def moved(before, old, new):
    return {new + path[len(old):] if path == old or path.startswith(old + "/") else path: mailbox
            for path, mailbox in before.items()}


def some_at_a_time(monkeypatch, between=lambda done: None):
    """Two in each transaction; `between` is called before each of them but the first, with its number."""
    def renamed(*_):
        done.append(None)
        if len(done) > 1:
            between(len(done) - 1)

    done = []
    monkeypatch.setattr(namespace, "RENAMED", 2)
    Faults(monkeypatch).before(namespace, "_rename_some", renamed)


@pytest.fixture
def before(store):
    return make_tree(store)


@pytest.mark.parametrize(("old", "new"), [
    ("Old", "New"), ("Old", "Far/below/New"), ("Old/03", "Up"), ("Old/03/deep", "Old/04/deep"), ("Old/03", "Older")])
def test_all_have_their_new_names_and_are_who_they_were(store, before, old, new, monkeypatch):
    some_at_a_time(monkeypatch)
    namespace.rename_mailbox(store, name(old), name(new))
    assert ids(store) == moved(before, old, new)
    assert {entry.name.path for entry in authorization.visible(store, "bob")} == ids(store).keys() - {"INBOX"}
    assert not list(store.mailboxes.renames.all())


def test_a_tree_takes_the_place_above_it(store, monkeypatch):
    """a/b/a/b gets the name that a/b has until then."""
    some_at_a_time(monkeypatch)
    paths = ["a/b", "a/b/b", "a/b/b/b", "a/b/b/a", "a/b/z", "a/b/a"]
    for path in paths:
        namespace.create_mailbox(store, name(path))
    before = ids(store)
    namespace.rename_mailbox(store, name("a/b"), name("a"))
    assert ids(store) == moved(before, "a/b", "a")
    namespace.rename_mailbox(store, name("a"), name("c"))
    assert ids(store) == moved(before, "a/b", "c")


def test_no_transaction_renames_more_than_some(store, before, monkeypatch):
    rows = {}

    def counted(listed, entry, txn, **_):
        rows[id(txn)] = [*rows.get(id(txn), [txn]), entry]      # who is kept has an id of its own

    monkeypatch.setattr(namespace, "RENAMED", 4)
    Faults(monkeypatch).before(MailboxList, "write", counted)
    namespace.rename_mailbox(store, name("Old"), name("New"))
    assert sorted(len(each) - 1 for each in rows.values()) == [4, 4, 4]


def test_others_see_each_mailbox_once_at_any_moment(store, before, monkeypatch):
    """By name, by id, and in a list that was being read when some were renamed."""
    seen = []

    def look(done):
        now = ids(store)
        assert sorted(now.values()) == sorted(before.values())
        assert all(store.mailboxes.find_id(mailbox).name.path == path for path, mailbox in now.items())
        assert len({entry.id for entry in authorization.visible(store, "bob")}) == len(before) - 1
        seen.append(now)

    some_at_a_time(monkeypatch, look)
    namespace.rename_mailbox(store, name("Old"), name("Zed"))
    assert len(seen) == len(TREE) // 2 - 1
    assert all(now not in (before, moved(before, "Old", "Zed")) for now in seen)


@pytest.mark.parametrize("renamed", [1, 10])
def test_who_reads_the_list_while_some_are_renamed_reads_it_again(store, before, renamed):
    """`renamed`: how often, while it is read; at last it is read in a transaction."""
    left = [(f"Z{number}", f"Z{number + 1}") for number in range(renamed)]
    namespace.rename_mailbox(store, name("Old"), name("Z0"))

    def read(txn):
        entries = store.mailboxes.below("alice")
        found = [next(entries), next(entries), next(entries)]
        if left and txn is None:
            found += [entry for entry in [next(entries, None)] if entry]
            old, new = left.pop(0)
            entries.close()
            namespace.rename_mailbox(store, name(old), name(new))
            entries = store.mailboxes.below("alice")
        return [*found, *entries] if txn is None else list(store.mailboxes.below("alice", txn=txn))

    found = store.mailboxes.at_one_moment(read)
    assert len({entry.id for entry in found}) == len(before)


def test_a_mailbox_is_found_by_its_id_while_it_is_renamed(store, before, faults):
    """Between the look at what its name is and the look at the row of that name."""
    faults.first(store.mailboxes, "find", lambda *_, **__: namespace.rename_mailbox(store, name("Old"), name("New")))
    assert store.mailboxes.find_id(before["Old/05"]).name == name("New/05")


def test_no_other_name_of_that_user_changes_meanwhile(store, before, monkeypatch):
    """A new mailbox could be in the way of those that come, or of those that must go back."""
    store.patience = 0
    refused = []

    def change(done):
        for work in (partial(namespace.create_mailbox, store, name("New/04")),
                     partial(deletion.delete_mailbox, store, name("Other")),
                     partial(namespace.rename_mailbox, store, name("Other"), name("Old/new"))):
            with pytest.raises(StoreError) as raised:
                work()
            refused.append(raised.value.problem)
        namespace.create_mailbox(store, MailboxName("bob", f"Another{done}"))

    some_at_a_time(monkeypatch, change)
    namespace.rename_mailbox(store, name("Old"), name("New"))
    assert set(refused) == {Problem.BUSY}
    assert ids(store) == moved(before, "Old", "New")
    namespace.create_mailbox(store, name("Old"))


@pytest.mark.parametrize("taken", ["New", "New/07", "New/03/deep/er", "Old"])
def test_what_is_in_the_way_is_found_before_anything_is_renamed(store, before, taken, monkeypatch):
    """Also the mailbox itself."""
    if taken != "Old":
        namespace.create_mailbox(store, name(taken))
    there = ids(store)
    some_at_a_time(monkeypatch, lambda done: pytest.fail("some were renamed"))
    with pytest.raises(StoreError) as raised:
        namespace.rename_mailbox(store, name("Old"), name("Old" if taken == "Old" else "New"))
    assert raised.value.problem is Problem.MAILBOX_EXISTS
    assert ids(store) == there and not list(store.mailboxes.renames.all())


def failing(after, error):
    def fail(done):
        if done == after:
            raise error
    return fail


@pytest.mark.parametrize("after", range(1, len(TREE) // 2))
def test_what_fails_is_undone(store, before, after, monkeypatch):
    """The disk is full for one of the transactions; there is room for those that undo the others."""
    some_at_a_time(monkeypatch, failing(after, OSError(errno.ENOSPC, "full")))
    with pytest.raises(StoreError) as raised:
        namespace.rename_mailbox(store, name("Old"), name("New"))
    assert raised.value.problem is Problem.DISK_FULL
    assert ids(store) == before and not list(store.mailboxes.renames.all())


def test_what_cannot_be_undone_is_undone_by_housekeeping(store, before, monkeypatch):
    def full(done):
        if done >= 3:
            raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        some_at_a_time(patch, full)
        with pytest.raises(StoreError):
            namespace.rename_mailbox(store, name("Old"), name("New"))
    assert sorted(ids(store).values()) == sorted(before.values()) and ids(store) != before
    task = next(task for task in tasks.every_process(store) if task.name == "renames")
    assert [task.work(store, owner) for owner in task.items(store)] == [1]
    assert ids(store) == before and not list(store.mailboxes.renames.all()) and not list(task.items(store))


@pytest.mark.parametrize("after", [1, 3, 5])
def test_what_is_cut_off_with_its_process_is_undone_by_the_next_start(tmp_path, after, monkeypatch):
    store = make_store(tmp_path / "store")
    before = make_tree(store)
    with monkeypatch.context() as patch:
        some_at_a_time(patch, failing(after, KeyboardInterrupt()))
        Faults(patch).around(namespace, "_undo_or_leave", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            namespace.rename_mailbox(store, name("Old"), name("New"))
    assert ids(store) != before
    store.close()
    again = open_store(tmp_path / "store")
    try:
        assert ids(again) == before and not list(again.mailboxes.renames.all())
        assert check(again) == []
        namespace.rename_mailbox(again, name("Old"), name("New"))
        assert ids(again) == moved(before, "Old", "New")
    finally:
        again.close()


def test_many_are_charged_to_another_root_some_at_a_time(tmp_path, monkeypatch):
    """When the new names are below a root of their own."""
    store = make_store(tmp_path / "store", settings=Settings(disk_reserve=0, special_mailboxes=()))
    try:
        make_tree(store)
        roots.set_quota(store, "alice/New", 10_000)
        charged, arrange = [], roots._arrange
        monkeypatch.setattr(roots, "ARRANGED", 3)
        monkeypatch.setattr(roots, "_arrange", lambda *all: charged.append(arrange(*all)) or charged[-1])
        namespace.rename_mailbox(store, name("Old"), name("New"))
        assert [len(each) for each in charged] == [3, 3, 3, 3, 0]
        use, limit = roots.quota(store, "alice/New"), roots.quota(store, "alice")
        assert (use.messages, limit.messages) == (1, 0)
        roots.remove_quota_root(store, "alice/New")
        assert roots.quota(store, "alice").messages == 1
        assert check(store) == []
    finally:
        store.close()
