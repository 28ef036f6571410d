"""Quota roots of mailboxes: what they are charged, and how use moves between them."""

import errno
import shutil

import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.finishing.cutoperations import Finishing
from store.housekeeping import interrupted
from store.mailboxes import deletion, namespace
from store.mailboxes.deletion import undelete_mailbox
from store.operations import operationrecord
from store.partition.partition import Partition
from store.quota import roots
from store.tables.quotatable import UNLIMITED, QuotaUse
from store.users import lifecycle
from tests.store.quota.quotas import fill, make, problem, refusal, two_partitions, use
from tests.support.faults.planted import Faults
from tests.support.stores.stores import make_store, reopen_after_crash

# Roots of mailboxes

def test_a_root_takes_the_use_of_its_mailbox_and_those_below(store):
    make(store, "Archive", "Archive/2026", "Archive2")
    for mailbox in ("INBOX", "Archive", "Archive/2026", "Archive2"):
        fill(store, 1, f"user/alice/{mailbox}")
    roots.set_quota(store, "alice/Archive", octets=250)
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((200, 2), (200, 2))
    assert problem(store, 100, "user/alice/Archive/2026") is Problem.OVER_QUOTA
    make(store, "Archive/new")
    assert problem(store, 50, "user/alice/Archive/new") is None
    roots.set_quota(store, "alice/Archive/2026", octets=1000)
    assert (use(store, "alice/Archive"), use(store, "alice/Archive/2026")) == ((150, 2), (100, 1))
    assert roots.quota(store, "alice/Archive").message_limit == UNLIMITED
    roots.remove_quota_root(store, "alice/Archive")
    assert (use(store, "alice"), use(store, "alice/Archive/2026")) == ((350, 4), (100, 1))
    roots.remove_quota_root(store, "alice/Archive/2026")
    assert use(store, "alice") == (450, 5)
    assert [root for root, _ in store.partitions["primary"].quotas.all()] == ["alice"]


def test_a_root_may_be_there_before_its_mailbox_and_after_it(store):
    roots.set_quota(store, "alice/Archive", messages=1)
    archive, = make(store, "Archive")
    fill(store, 1, "user/alice/Archive")
    assert use(store, "alice/Archive") == (100, 1)
    deletion.delete_mailbox(store, archive.name)
    assert use(store, "alice/Archive") == (0, 0)
    undelete_mailbox(store, archive.name, new_name=MailboxName("alice", "Other"))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((100, 1), (0, 0))


def test_a_mailbox_comes_back_to_the_root_that_is_there_then(store):
    archive, = make(store, "Archive")
    fill(store, 1, "user/alice/Archive")
    roots.set_quota(store, "alice/Archive", octets=1000)
    deletion.delete_mailbox(store, archive.name)
    roots.remove_quota_root(store, "alice/Archive")
    entry = undelete_mailbox(store, archive.name)
    assert store.status(entry).quota_root == "alice"
    assert use(store, "alice") == (100, 1)
    assert [root for root, _ in store.partitions["primary"].quotas.all()] == ["alice"]


def test_renaming_moves_use_between_roots(store):
    make(store, "Archive", "Lists", "Lists/a")
    for mailbox in ("INBOX", "Lists", "Lists/a"):
        fill(store, 1, f"user/alice/{mailbox}")
    roots.set_quota(store, "alice/Archive", messages=2)
    namespace.rename_mailbox(store, MailboxName("alice", "Lists"), MailboxName("alice", "Archive/Lists"))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((100, 1), (200, 2))
    namespace.rename_mailbox(store, MailboxName("alice", "Archive/Lists/a"), MailboxName("alice", "a"))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((200, 2), (100, 1))
    namespace.rename_mailbox(store, MailboxName("alice", "Archive"), MailboxName("alice", "Old"))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((300, 3), (0, 0))


def test_what_does_not_fit_into_a_root_is_not_renamed_into_it(store):
    make(store, "Archive", "Lists")
    fill(store, 3, "user/alice/Lists")
    fill(store, 3)
    roots.set_quota(store, "alice/Archive", messages=2)
    for old, new in (("Lists", "Archive/Lists"), ("INBOX", "Archive/INBOX")):
        assert refusal(namespace.rename_mailbox, store, MailboxName("alice", old), MailboxName("alice", new)
                       ) is Problem.OVER_QUOTA
        assert store.mailboxes.find(MailboxName("alice", old)) and not store.mailboxes.find(MailboxName("alice", new))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((600, 6), (0, 0))


def test_a_crash_between_the_list_and_the_partition_is_put_right(store, faults, tmp_path):
    store = make_store(tmp_path / "other")
    make(store, "Archive", "Lists")
    fill(store, 2, "user/alice/Lists")
    roots.set_quota(store, "alice/Archive", messages=9)
    faults.around(roots, "recharge_renamed", lambda *_: None)
    namespace.rename_mailbox(store, MailboxName("alice", "Lists"), MailboxName("alice", "Archive/Lists"))
    assert use(store, "alice") == (200, 2)
    assert [finding.what for finding in check(store)] == [
        "is charged to quota root alice, its name says alice/Archive"]
    store = reopen_after_crash(store)
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((0, 0), (200, 2))
    assert check(store) == []
    store.close()


def set_root(store):
    roots.set_quota(store, "alice/Archive", messages=99)


def remove_root(store):
    roots.remove_quota_root(store, "alice/Archive")


def cut_off(store, change, slices, error):
    """The change ends so behind that many transactions of two mailboxes each, which are on disk."""
    def between(*_):
        store.partitions["primary"].flush()
        done.append(None)
        if len(done) > slices:
            raise error

    done = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises((KeyboardInterrupt, StoreError)):
        patch.setattr(roots, "ARRANGED", 2)
        Faults(patch).before(roots, "_arrange", between)
        change(store)


def many_below_archive(tmp_path, change):
    store = make_store(tmp_path / "other")
    if change is remove_root:
        set_root(store)
    make(store, "Archive", *(f"Archive/{number}" for number in range(6)))
    for mailbox in ("Archive", "Archive/0", "Archive/5"):
        fill(store, 1, f"user/alice/{mailbox}")
    for item in list(store.mailboxes.pending.all()):        # it was some time ago that they were made
        interrupted.finish(store, item)
    assert not list(store.mailboxes.pending.all())
    return store


@pytest.mark.parametrize("slices", [1, 2, 3])
@pytest.mark.parametrize("change", [set_root, remove_root])
def test_the_start_charges_the_rest_of_many_when_a_kill_has_cut_it_off(tmp_path, change, slices):
    """Issue 23, section 2. A root that was being removed is still there, with all that it had."""
    store = many_below_archive(tmp_path, change)
    cut_off(store, change, slices, KeyboardInterrupt())
    store = reopen_after_crash(store)
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((0, 0), (300, 3))
    assert check(store) == []
    change(store)
    assert use(store, "alice") == ((0, 0) if change is set_root else (300, 3))
    store.close()


@pytest.mark.parametrize("change", [set_root, remove_root])
def test_housekeeping_charges_the_rest_of_many_when_the_disk_was_full(tmp_path, change):
    store = many_below_archive(tmp_path, change)
    cut_off(store, change, 2, OSError(errno.ENOSPC, "full"))
    for _ in range(2):
        for item in list(store.mailboxes.pending.all()):
            interrupted.finish(store, item)
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((0, 0), (300, 3))
    assert check(store) == [] and not list(store.mailboxes.pending.all())
    store.close()


# Roots on several partitions

ONE, OTHER = (100_000, 5), (200_000, 7)         # limits


def limits_everywhere(store, root):
    """The limits of a root on each partition, None where it is not."""
    found = [place.quotas.find(root) if place.quotas.has(root) else None for place in store.partitions.values()]
    return [use and (use.octet_limit, use.message_limit) for use in found]


def set_one(store, root):
    roots.set_quota(store, root, *ONE)


def set_other(store, root):
    roots.set_quota(store, root, *OTHER)


def several(tmp_path, root, before):
    """Two partitions, with public mailboxes on both; the root is there if something was done `before`."""
    store = two_partitions(tmp_path)
    news = MailboxName("", "news")
    namespace.create_mailbox(store, news)
    for number in range(2):
        namespace.insert_mailbox(store, MailboxName("", f"news/{number}"), "second", None)
        fill(store, 1, f"public/news/{number}")
    for item in list(store.mailboxes.pending.all()):        # it was some time ago that they were made
        interrupted.finish(store, item)
    before(store, root)
    return store


STEPS = ((Partition, "transact"), (Partition, "flush"), (operationrecord, "_write"), (operationrecord, "_remove"))


def cut_at(store, change, root, moment, error):
    """The change ends with the error before that step of it, counted from 0; whether there is such a step."""
    def step(*_, **__):
        done.append(None)
        if len(done) == moment + 1:
            raise error

    done = []
    with pytest.MonkeyPatch.context() as patch:
        for where, name in STEPS:
            Faults(patch).before(where, name, step)
        try:
            change(store, root)
        except (KeyboardInterrupt, StoreError):
            return True
    return False


CHANGES = [(set_one, lambda *_: None, [ONE] * 2), (set_other, set_one, [OTHER] * 2),
           (roots.remove_quota_root, set_one, [None] * 2)]


@pytest.mark.parametrize("root", ["public/news/1", "@b.org"])
@pytest.mark.parametrize(("change", "before", "wanted"), CHANGES)
def test_the_start_finishes_what_was_cut_off_between_two_partitions(tmp_path, root, change, before, wanted):
    """Issue 23: a SETQUOTA killed between two partitions left the root on the first only. Every step is a boundary."""
    seen = set()
    for moment in range(99):
        store = several(tmp_path / str(moment), root, before)
        first = limits_everywhere(store, root)
        was_cut = cut_at(store, change, root, moment, KeyboardInterrupt())
        store = reopen_after_crash(store)
        Finishing().at_start(store)
        found = limits_everywhere(store, root)
        assert found in (first, wanted) if was_cut else found == wanted
        assert check(store) == [] and operationrecord.under_way(store.root) == ([], [])
        store.close()
        shutil.rmtree(tmp_path / str(moment))
        seen.add(tuple(found))
        if not was_cut:
            break
    assert moment > 4 and seen == {tuple(first), tuple(wanted)}


@pytest.mark.parametrize("root", ["public/news/1", "@b.org"])
@pytest.mark.parametrize(("change", "before", "wanted"), CHANGES)
def test_what_one_partition_refuses_is_put_back_on_the_others(tmp_path, faults, root, change, before, wanted):
    """An answer of NO says that nothing was done."""
    store = several(tmp_path, root, before)
    first = limits_everywhere(store, root)
    second = store.partitions["second"]
    with pytest.MonkeyPatch.context() as patch:
        Faults(patch).fail(Partition, "transact", StoreError(Problem.DISK_FULL), when=lambda place, _: place is second)
        assert refusal(change, store, root) is Problem.DISK_FULL
    assert limits_everywhere(store, root) == first and operationrecord.under_way(store.root) == ([], [])
    assert check(store) == []
    change(store, root)
    assert limits_everywhere(store, root) == wanted
    store.close()


def test_an_earlier_change_that_was_cut_off_is_not_finished_behind_a_later_one(tmp_path):
    store = several(tmp_path, "@b.org", lambda *_: None)
    assert cut_at(store, set_one, "@b.org", 2, KeyboardInterrupt())
    assert refusal(lambda: roots.set_quota(store, "@b.org", OTHER[0])) is Problem.UNAVAILABLE     # it set both
    roots.set_quota(store, "alice", *ONE)           # another's
    set_other(store, "@b.org")
    assert limits_everywhere(store, "@b.org") == [OTHER] * 2 and list(Finishing().waiting(store)) == []
    assert cut_at(store, roots.remove_quota_root, "@b.org", 2, KeyboardInterrupt())
    for which in Finishing().waiting(store):
        Finishing().finish(store, which)
    assert limits_everywhere(store, "@b.org") == [None] * 2
    store.close()


def test_a_root_that_is_made_while_its_mailbox_is_being_made(store, faults):
    faults.first(store.mailboxes, "write", lambda *_: roots.set_quota(store, "alice/Archive", messages=5))
    archive, = make(store, "Archive")
    assert store.status(archive).quota_root == "alice/Archive"


def test_public_mailboxes_are_charged_by_their_first_level(store):
    make(store, "news", "news/2026", "other/deep", owner="")
    for mailbox in ("public/news", "public/news/2026", "public/other/deep"):
        fill(store, 1, mailbox)
    assert (use(store, "public/news"), use(store, "public/other")) == ((200, 2), (100, 1))
    roots.set_quota(store, "public/news/2026", octets=150)
    assert (use(store, "public/news"), use(store, "public/news/2026")) == ((100, 1), (100, 1))
    assert problem(store, 100, "public/news/2026") is Problem.OVER_QUOTA
    roots.set_quota(store, "public/news/2026", octets=200)
    namespace.rename_mailbox(store, MailboxName("", "other"), MailboxName("", "news/2026/other"))
    assert use(store, "public/other") == (0, 0)
    roots.remove_quota_root(store, "public/news/2026")
    assert use(store, "public/news") == (300, 3)


def test_a_user_called_public_shares_no_root_with_public_mailboxes(tmp_path):
    store = make_store(tmp_path / "store", ("alice", "public"))
    make(store, "news", owner="")
    make(store, "news", owner="public")
    fill(store, 1, "public/news")
    fill(store, 2, "user/public/news")
    roots.set_quota(store, "public/news", octets=1000)
    assert (use(store, "public/news"), use(store, "public")) == ((100, 1), (200, 2))
    assert check(store) == []
    store.close()


def test_a_removed_user_leaves_no_rows(store):
    make(store, "Archive")
    roots.set_quota(store, "alice/Archive", octets=1000)
    fill(store, 1, "user/alice/Archive")
    roots.set_quota(store, "bob", octets=1000)
    lifecycle.remove_mail(store, "alice")
    store.directory.remove("alice")
    assert [root for root, _ in store.partitions["primary"].quotas.all()] == ["bob"]


def test_a_users_row_is_on_the_users_partition(tmp_path):
    store = two_partitions(tmp_path)
    roots.set_quota(store, "bob@b.org", octets=150)
    fill(store, 1, "user/bob@b.org/INBOX")
    assert roots.quota(store, "bob@b.org") == QuotaUse(100, 1, 150)
    assert problem(store, mailbox="user/bob@b.org/INBOX") is Problem.OVER_QUOTA
    assert not store.partitions["primary"].quotas.has("bob@b.org")
    store.close()
