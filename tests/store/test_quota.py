"""Quota: sums equal the records whatever happens, limits hold, and refusals become final when they should."""

import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mboxlist.kv import Deadlock
from mboxlist.names import MailboxName
from store import quotaroots
from store.check import check
from store.copying import copy_messages
from store.deliver import Delivered, Target
from store.discounts import reckon
from store.domains import FRESH, STALE
from store.errors import Problem, StoreError
from store.expunge import remove
from store.net import offload
from store.partition import Partition
from store.quota import DEFAULT, UNLIMITED, QuotaUse, readable, root_key
from store.removal import undelete_mailbox, undelete_messages
from store.store import Store
from tests.conftest import MEMORY
from tests.support.stores import HASH, SMALL, deliver, make_store, reopen_after_crash

DAY = 86400
NOW = 1_800_000_000
BODY = b"Subject: x\r\n\r\n".ljust(100, b"x")


def admit(store, entry, octets):
    """What LMTP asks at RCPT."""
    partition = store.partition_of(entry)
    quotaroots.admit(store, partition, partition.state(entry.id).quota_root, octets)



def body(number, size=100):
    return (b"Subject: %d\r\n\r\n" % number).ljust(size, b"x")


def fill(store, count, mailbox="user/alice/INBOX", size=100, first=0):
    """Deliver so many messages of that size; all must be taken."""
    for number in range(first, first + count):
        outcome, = deliver(store, body(number, size), mailbox)
        assert isinstance(outcome, Delivered), outcome


def set_clock(store, now):
    for partition in store.partitions.values():
        partition.quotas.clock = lambda: now


def problem(store, size=100, mailbox="user/alice/INBOX", number=999):
    """What a delivery of that size comes to: None when it is taken."""
    outcome, = deliver(store, body(number, size), mailbox)
    return outcome.problem if isinstance(outcome, StoreError) else None


def use(store, root):
    found = store.quota(root)
    return found.octets, found.messages


def make(store, *paths, owner="alice"):
    return [store.create_mailbox(MailboxName(owner, path)) for path in paths]


def refusal(work, *arguments, **more):
    with pytest.raises(StoreError) as error:
        work(*arguments, **more)
    return error.value.problem


# Rows

def test_a_row_comes_back_as_it_was():
    found = QuotaUse(5, 6, 7, UNLIMITED, NOW, NOW + 1, 3)
    assert QuotaUse.from_bytes(found.to_bytes()) == found


def test_the_roots_of_a_domain_stand_together_and_no_other_between():
    own = ["a@b.org", "z@b.org", "m@b.org/x@c.org", "public@b.org"]
    others = ["a@b.orga", "a@a.org", "a", "b.org", "public/b.org/x", "@b.org", "public", "a@b.org.uk", "é@é"]
    keys = sorted([*own, *others], key=root_key)
    first = min(keys.index(root) for root in own)
    assert set(keys[first:first + len(own)]) == set(own)
    assert len({root_key(root) for root in keys}) == len(keys)


@pytest.mark.parametrize(("octets", "text"), [
    (0, "0 octets"), (1023, "1023 octets"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), ((1 << 20) - 1, "1.0 MiB"),
    (50 << 20, "50.0 MiB"), (3 << 30, "3.0 GiB"), (1 << 60, "1024.0 PiB")])
def test_amounts_for_people(octets, text):
    assert readable(octets) == text


# Limits

def test_limits_hold_to_the_octet_and_to_the_message(store):
    store.set_quota("alice", octets=300, messages=4)
    fill(store, 2)
    assert problem(store, 101) is Problem.OVER_QUOTA
    assert problem(store, 100) is None
    store.set_quota("alice", octets=UNLIMITED)
    assert problem(store, 5000, number=1000) is None
    assert problem(store, 30, number=1001) is Problem.OVER_QUOTA
    assert use(store, "alice") == (5300, 4)


def test_nothing_is_delivered_where_the_limit_is_0(store):
    store.set_quota("alice", octets=0)
    assert problem(store) is Problem.QUOTA_GRACE_ENDED


def test_use_is_counted_but_not_limited_without_enforcement(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_enforce=False))
    store.set_quota("alice", octets=150)
    store.set_quota("@example.org", octets=150)
    fill(store, 3)
    assert use(store, "alice") == (300, 3)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    assert not store.over_quota(inbox, 1000)
    admit(store, inbox, 1000)
    copy_messages(store, inbox, inbox, [1])
    assert store.quota_warning(inbox) is not None
    assert check(store) == []
    store.close()


def test_default_limits_are_for_users_only(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, default_quota=250, default_message_quota=2))
    store.set_quota("alice/Archive", messages=10)
    make(store, "Archive")
    make(store, "news", owner="")
    fill(store, 2)
    assert problem(store) is Problem.OVER_QUOTA
    fill(store, 9, "user/alice/Archive")
    fill(store, 5, "public/news")
    store.set_quota("alice/Archive", messages=DEFAULT)
    fill(store, 5, "user/alice/Archive", first=20)
    assert check(store) == []
    store.close()


def test_quota_is_ignored_where_delivery_is_guaranteed(store):
    store.set_quota("alice", octets=1)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    staged = store.stage(inbox)
    staged.write(BODY)
    outcome, = offload.now(offload.deliver(store, staged, [Target(inbox, ignore_quota=True)]))
    assert isinstance(outcome, Delivered)


@pytest.mark.parametrize("root", ["", "alice//x", "@", "alice/", "a b", "public/", "alice/a%b", "@a/b", "nobody",
                                  "@b org"])
def test_names_that_are_no_quota_roots(store, root):
    assert refusal(store.set_quota, root, 100) in (Problem.BAD_NAME, Problem.NO_USER)
    assert refusal(store.remove_quota_root, root) is Problem.BAD_NAME


def test_no_user_is_called_like_the_root_of_a_domain(store):
    assert refusal(store.directory.add, "@b.org", HASH) is Problem.BAD_NAME


def test_only_roots_that_were_made_can_be_removed(store):
    make(store, "Archive")
    make(store, "news", owner="")
    fill(store, 1, "public/news")
    for root in ("alice", "alice/Archive", "public/news", "@example.org"):
        assert refusal(store.remove_quota_root, root) is Problem.BAD_NAME


# Grace

def grace(tmp_path):
    """A store in which alice has used 200 of 250 octets."""
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_grace=5 * DAY))
    set_clock(store, NOW)
    store.set_quota("alice", octets=250)
    fill(store, 2)
    return store


def test_refusals_are_final_when_the_grace_has_ended(tmp_path):
    store = grace(tmp_path)
    assert problem(store) is Problem.OVER_QUOTA
    assert store.quota("alice").refused == NOW
    set_clock(store, NOW + 5 * DAY - 1)
    assert problem(store) is Problem.OVER_QUOTA
    assert store.quota("alice").refused == NOW
    set_clock(store, NOW + 5 * DAY)
    assert problem(store) is Problem.QUOTA_GRACE_ENDED
    assert store.quota("alice").refused == NOW
    store.close()


def test_a_message_that_can_never_fit_is_refused_for_good_and_begins_no_period(tmp_path):
    store = grace(tmp_path)
    assert problem(store, 251) is Problem.QUOTA_GRACE_ENDED
    assert store.quota("alice").refused == 0
    assert problem(store, 250) is Problem.OVER_QUOTA
    store.close()


@pytest.mark.parametrize("end", ["taken", "removed", "raised", "messages left over"])
def test_how_a_period_ends(tmp_path, end):
    store = grace(tmp_path)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    assert problem(store) is Problem.OVER_QUOTA
    if end == "taken":
        fill(store, 1, size=50, first=50)
    elif end == "removed":
        remove(store, inbox, [1])
    elif end == "raised":
        store.set_quota("alice", octets=1000)
    else:
        store.set_quota("alice", messages=2)
        assert store.quota("alice").refused == NOW         # full still
        store.set_quota("alice", octets=UNLIMITED, messages=UNLIMITED)
    assert store.quota("alice").refused == 0
    set_clock(store, NOW + 6 * DAY)
    store.set_quota("alice", octets=store.quota("alice").octets + 99, messages=UNLIMITED)
    assert problem(store, 100) in (Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED)
    assert store.quota("alice").refused in (0, NOW + 6 * DAY)
    store.close()


def test_a_period_goes_on_while_use_is_not_below_the_limit(tmp_path):
    store = grace(tmp_path)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    assert problem(store) is Problem.OVER_QUOTA
    store.set_quota("alice", octets=100)
    remove(store, inbox, [1])                   # 100 of 100: nothing would fit
    assert store.quota("alice").refused == NOW
    remove(store, inbox, [2])
    assert store.quota("alice").refused == 0
    store.close()


def test_the_first_refusal_is_kept_also_when_nobody_gets_the_message(tmp_path):
    store = grace(tmp_path)
    assert problem(store) is Problem.OVER_QUOTA
    store = reopen_after_crash(store)
    assert store.quota("alice").refused == NOW
    store.close()


def test_what_a_client_stores_begins_no_period(tmp_path):
    store = grace(tmp_path)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    assert refusal(copy_messages, store, inbox, inbox, [1]) is Problem.OVER_QUOTA
    for size in (100, 251):
        staged = store.stage(inbox)
        staged.write(body(7, size))
        outcome, = offload.now(offload.deliver(store, staged, [Target(inbox, appended=True)]))
        assert outcome.problem is Problem.OVER_QUOTA
    assert store.quota("alice").refused == 0
    store.close()


def test_a_refusal_before_the_message_counts(tmp_path):
    store = grace(tmp_path)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    admit(store, inbox, 50)
    assert store.quota("alice").refused == 0
    assert refusal(admit, store, inbox, 51) is Problem.OVER_QUOTA
    assert store.quota("alice").refused == NOW
    set_clock(store, NOW + 5 * DAY)
    assert refusal(admit, store, inbox, 51) is Problem.QUOTA_GRACE_ENDED
    assert refusal(admit, store, inbox, 251) is Problem.QUOTA_GRACE_ENDED
    store.close()


def test_the_others_get_the_message_and_the_refusal_is_kept(tmp_path):
    store = grace(tmp_path)
    refused, taken = deliver(store, body(9), "user/alice/INBOX", "user/bob/INBOX")
    assert refused.problem is Problem.OVER_QUOTA and isinstance(taken, Delivered)
    assert (store.quota("alice").refused, store.quota("bob").refused) == (NOW, 0)
    store.close()


# Roots of mailboxes

def test_a_root_takes_the_use_of_its_mailbox_and_those_below(store):
    make(store, "Archive", "Archive/2026", "Archive2")
    for mailbox in ("INBOX", "Archive", "Archive/2026", "Archive2"):
        fill(store, 1, f"user/alice/{mailbox}")
    store.set_quota("alice/Archive", octets=250)
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((200, 2), (200, 2))
    assert problem(store, 100, "user/alice/Archive/2026") is Problem.OVER_QUOTA
    make(store, "Archive/new")
    assert problem(store, 50, "user/alice/Archive/new") is None
    store.set_quota("alice/Archive/2026", octets=1000)
    assert (use(store, "alice/Archive"), use(store, "alice/Archive/2026")) == ((150, 2), (100, 1))
    assert store.quota("alice/Archive").message_limit == UNLIMITED
    store.remove_quota_root("alice/Archive")
    assert (use(store, "alice"), use(store, "alice/Archive/2026")) == ((350, 4), (100, 1))
    store.remove_quota_root("alice/Archive/2026")
    assert use(store, "alice") == (450, 5)
    assert [root for root, _ in store.partitions["primary"].quotas.all()] == ["alice"]


def test_a_root_may_be_there_before_its_mailbox_and_after_it(store):
    store.set_quota("alice/Archive", messages=1)
    archive, = make(store, "Archive")
    fill(store, 1, "user/alice/Archive")
    assert use(store, "alice/Archive") == (100, 1)
    store.delete_mailbox(archive.name)
    assert use(store, "alice/Archive") == (0, 0)
    undelete_mailbox(store, archive.name, new_name=MailboxName("alice", "Other"))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((100, 1), (0, 0))


def test_a_mailbox_comes_back_to_the_root_that_is_there_then(store):
    archive, = make(store, "Archive")
    fill(store, 1, "user/alice/Archive")
    store.set_quota("alice/Archive", octets=1000)
    store.delete_mailbox(archive.name)
    store.remove_quota_root("alice/Archive")
    entry = undelete_mailbox(store, archive.name)
    assert store.status(entry).quota_root == "alice"
    assert use(store, "alice") == (100, 1)
    assert [root for root, _ in store.partitions["primary"].quotas.all()] == ["alice"]


def test_renaming_moves_use_between_roots(store):
    make(store, "Archive", "Lists", "Lists/a")
    for mailbox in ("INBOX", "Lists", "Lists/a"):
        fill(store, 1, f"user/alice/{mailbox}")
    store.set_quota("alice/Archive", messages=2)
    store.rename_mailbox(MailboxName("alice", "Lists"), MailboxName("alice", "Archive/Lists"))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((100, 1), (200, 2))
    store.rename_mailbox(MailboxName("alice", "Archive/Lists/a"), MailboxName("alice", "a"))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((200, 2), (100, 1))
    store.rename_mailbox(MailboxName("alice", "Archive"), MailboxName("alice", "Old"))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((300, 3), (0, 0))


def test_what_does_not_fit_into_a_root_is_not_renamed_into_it(store):
    make(store, "Archive", "Lists")
    fill(store, 3, "user/alice/Lists")
    fill(store, 3)
    store.set_quota("alice/Archive", messages=2)
    for old, new in (("Lists", "Archive/Lists"), ("INBOX", "Archive/INBOX")):
        assert refusal(store.rename_mailbox, MailboxName("alice", old), MailboxName("alice", new)) is Problem.OVER_QUOTA
        assert store.mailboxes.find(MailboxName("alice", old)) and not store.mailboxes.find(MailboxName("alice", new))
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((600, 6), (0, 0))


def test_a_crash_between_the_list_and_the_partition_is_put_right(store, monkeypatch, tmp_path):
    store = make_store(tmp_path / "other")
    make(store, "Archive", "Lists")
    fill(store, 2, "user/alice/Lists")
    store.set_quota("alice/Archive", messages=9)
    monkeypatch.setattr(quotaroots, "settle_renamed", lambda *_: None)
    store.rename_mailbox(MailboxName("alice", "Lists"), MailboxName("alice", "Archive/Lists"))
    assert use(store, "alice") == (200, 2)
    assert [finding.what for finding in check(store)] == [
        "is charged to quota root alice, its name says alice/Archive"]
    store = reopen_after_crash(store)
    assert (use(store, "alice"), use(store, "alice/Archive")) == ((0, 0), (200, 2))
    assert check(store) == []
    store.close()


def test_a_root_that_is_made_while_its_mailbox_is_being_made(store, monkeypatch):
    write = store.mailboxes.write

    def make_root_first(entry, txn):
        monkeypatch.undo()
        store.set_quota("alice/Archive", messages=5)
        write(entry, txn)

    monkeypatch.setattr(store.mailboxes, "write", make_root_first)
    archive, = make(store, "Archive")
    assert store.status(archive).quota_root == "alice/Archive"


def test_public_mailboxes_are_charged_by_their_first_level(store):
    make(store, "news", "news/2026", "other/deep", owner="")
    for mailbox in ("public/news", "public/news/2026", "public/other/deep"):
        fill(store, 1, mailbox)
    assert (use(store, "public/news"), use(store, "public/other")) == ((200, 2), (100, 1))
    store.set_quota("public/news/2026", octets=150)
    assert (use(store, "public/news"), use(store, "public/news/2026")) == ((100, 1), (100, 1))
    assert problem(store, 100, "public/news/2026") is Problem.OVER_QUOTA
    store.set_quota("public/news/2026", octets=200)
    store.rename_mailbox(MailboxName("", "other"), MailboxName("", "news/2026/other"))
    assert use(store, "public/other") == (0, 0)
    store.remove_quota_root("public/news/2026")
    assert use(store, "public/news") == (300, 3)


def test_a_user_called_public_shares_no_root_with_public_mailboxes(tmp_path):
    store = make_store(tmp_path / "store", ("alice", "public"))
    make(store, "news", owner="")
    make(store, "news", owner="public")
    fill(store, 1, "public/news")
    fill(store, 2, "user/public/news")
    store.set_quota("public/news", octets=1000)
    assert (use(store, "public/news"), use(store, "public")) == ((100, 1), (200, 2))
    assert check(store) == []
    store.close()


def test_a_removed_user_leaves_no_rows(store):
    make(store, "Archive")
    store.set_quota("alice/Archive", octets=1000)
    fill(store, 1, "user/alice/Archive")
    store.set_quota("bob", octets=1000)
    store.remove_user("alice")
    store.directory.remove("alice")
    assert [root for root, _ in store.partitions["primary"].quotas.all()] == ["bob"]


def two_partitions(tmp_path):
    root = tmp_path / "store"
    Store.make(root)
    Partition.make(root / "partitions" / "second")
    store = Store(root, SMALL)
    store.inbox(store.directory.add("alice", HASH))
    store.inbox(store.directory.add("bob@b.org", HASH, partition="second"))
    store.inbox(store.directory.add("carol@b.org", HASH))
    return store


def test_a_users_row_is_on_the_users_partition(tmp_path):
    store = two_partitions(tmp_path)
    store.set_quota("bob@b.org", octets=150)
    fill(store, 1, "user/bob@b.org/INBOX")
    assert store.quota("bob@b.org") == QuotaUse(100, 1, 150)
    assert problem(store, mailbox="user/bob@b.org/INBOX") is Problem.OVER_QUOTA
    assert not store.partitions["primary"].quotas.has("bob@b.org")
    store.close()


# Domains

def test_the_total_of_a_domain_is_the_sum_of_its_users_on_all_partitions(tmp_path):
    store = two_partitions(tmp_path)
    fill(store, 2, "user/bob@b.org/INBOX")
    fill(store, 1, "user/carol@b.org/INBOX")
    fill(store, 4)
    make(store, "Archive", owner="carol@b.org")
    fill(store, 1, "user/carol@b.org/Archive")
    store.set_quota("carol@b.org/Archive", octets=500)
    store.set_quota("@B.org", octets=550)
    assert use(store, "@b.org") == (400, 4)
    assert use(store, "@example.org") == (400, 4)
    fill(store, 1, "user/carol@b.org/INBOX", first=10)
    assert problem(store, 100, "user/bob@b.org/INBOX") is Problem.OVER_QUOTA
    assert problem(store, 100) is None
    assert problem(store, 50, "user/bob@b.org/INBOX", 1000) is None
    assert use(store, "@b.org") == (550, 6)
    assert store.quota("bob@b.org").refused == 0            # the one that was taken ended the period
    store = reopen_after_crash(store)
    assert problem(store, 30, "user/bob@b.org/INBOX") is Problem.OVER_QUOTA
    store.remove_quota_root("@b.org")
    assert problem(store, 100, "user/bob@b.org/INBOX") is None
    assert check(store) == []
    store.close()


def test_the_default_domain(store):
    store.set_quota("@example.org", messages=2)
    fill(store, 1)
    outcomes = deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")      # one transaction, of the same domain
    assert [isinstance(outcome, Delivered) for outcome in outcomes] == [True, False]
    assert use(store, "@example.org") == (200, 2)


def test_a_process_counts_what_it_takes_in_and_looks_again(store):
    """Two processes: this one, and another one, whose deliveries this one learns of when it sums up again."""
    store.set_quota("@example.org", octets=1000)
    now = [100.0]
    store.domains.clock = lambda: now[0]
    fill(store, 2)
    other = Store(store.root, store.settings)
    fill(other, 6, "user/bob/INBOX", first=20)
    assert problem(store, 300, number=30) is None           # 200 + 600 + 300: unknown to this process
    remove(other, other.entry(MailboxName("bob", "INBOX")), range(1, 5))
    other.close()
    now[0] += FRESH
    store.domains.refresh()
    assert problem(store, 400, number=31) is Problem.OVER_QUOTA
    assert problem(store, 300, number=32) is None           # 200 + 200 + 300 + 300
    assert problem(store, 30, number=33) is Problem.OVER_QUOTA
    remove(store, store.entry(MailboxName("bob", "INBOX")), [5, 6])
    assert problem(store, 200, number=34) is None
    now[0] += STALE + 1
    assert problem(store, 30, number=35) is Problem.OVER_QUOTA


def test_a_transaction_that_is_run_again_counts_once(store):
    store.set_quota("@example.org", octets=350)
    partition = store.partitions["primary"]
    inbox = store.entry(MailboxName("alice", "INBOX"))
    runs = []

    def work(txn):
        txn.charge(txn.state(inbox.id), 100, 1)
        runs.append(1)
        if len(runs) < 3:
            raise Deadlock[0]
        txn.charge(txn.state(inbox.id), -100, -1)

    fill(store, 1)
    partition.transact(work)
    total = store.domains.limited[""]
    assert total.use.octets + total.octets == 100


def test_the_first_sum_is_made_in_the_middle_of_a_transaction(tmp_path):
    """The rows of both users are on one page of quota.db, which the transaction has locked by then."""
    store = make_store(tmp_path / "store", ("alice", "bob@b.org"))
    store.set_quota("@b.org", octets=250)
    outcomes = [deliver(store, body(number), "user/alice/INBOX", "user/bob@b.org/INBOX") for number in range(3)]
    assert [isinstance(outcome, Delivered) for pair in outcomes for outcome in pair] == [True] * 5 + [False]
    assert (use(store, "alice"), use(store, "@b.org")) == ((300, 3), (200, 2))
    store.close()


def test_what_is_too_big_for_a_domain_is_refused_for_good(store):
    store.set_quota("@example.org", octets=150)
    assert problem(store, 151) is Problem.QUOTA_GRACE_ENDED
    assert problem(store, 150) is None
    assert problem(store, 30) is Problem.OVER_QUOTA


# Fair shares

def test_fair_shares_are_held_against_the_limit(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_charge="fair"))
    for number in range(4):
        deliver(store, body(number), "user/alice/INBOX", "user/bob/INBOX")
    store.set_quota("alice", octets=400)
    assert problem(store, 200, number=50) is Problem.OVER_QUOTA
    assert reckon(store, "primary") == 2
    assert (store.quota("alice").discount, store.quota("bob").discount) == (200, 200)
    assert store.quota("alice").per_cent(store.settings) == 50
    assert problem(store, 201, number=51) is Problem.OVER_QUOTA
    assert problem(store, 200, number=52) is None
    remove(store, store.entry(MailboxName("bob", "INBOX")), [1, 2, 3, 4])
    reckon(store, "primary")
    assert (store.quota("alice").discount, store.quota("bob").discount) == (0, 0)
    assert check(store) == []
    store.close()


def test_a_discount_is_divided_among_a_users_roots(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_charge="fair"))
    make(store, "Archive")
    store.set_quota("alice/Archive", octets=1000)
    for number in range(3):
        deliver(store, body(number), "user/alice/Archive", "user/bob/INBOX")
    fill(store, 1, first=9)
    reckon(store, "primary")                    # alice has 400 octets, and a fair share of 250
    assert [store.quota(root).discount for root in ("alice", "alice/Archive", "bob")] == [37, 112, 150]
    store.close()


def test_discounts_do_not_count_where_octets_are_charged(store):
    deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    reckon(store, "primary")
    store.set_quota("alice", octets=150)
    assert store.quota("alice").discount == 50
    assert problem(store) is Problem.OVER_QUOTA


# Warnings

def test_the_threshold(store):
    inbox = store.entry(MailboxName("alice", "INBOX"))
    store.set_quota("alice", octets=1000, messages=100)
    fill(store, 8)
    assert store.quota_warning(inbox) is None
    fill(store, 1, first=8)
    found = store.quota_warning(inbox)
    assert (found.root, found.text) == (
        "alice", "Your mail quota is 90 % full: 900 octets of 1000 octets, 9 of 100 messages")
    store.set_quota("alice", octets=UNLIMITED)
    assert store.quota_warning(inbox) is None
    store.set_quota("alice", messages=9)
    assert store.quota_warning(inbox).text == "Your mail quota is 100 % full: 9 of 9 messages"


def test_no_warning_where_there_is_no_threshold_or_no_mail(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_warn=0))
    inbox = store.entry(MailboxName("alice", "INBOX"))
    store.set_quota("alice", octets=100)
    fill(store, 1)
    assert store.quota_warning(inbox) is None
    store.close()
    assert not QuotaUse(octet_limit=0).deserves_warning(SMALL)
    assert QuotaUse(octets=1, octet_limit=0).deserves_warning(SMALL)


@pytest.mark.parametrize("value", [-1, 101])
def test_a_threshold_is_per_cent(value):
    with pytest.raises(ValueError, match="between 0 and 100"):
        evolve(SMALL, quota_warn=value)


# Side by side

def test_roots_are_made_and_removed_while_mail_arrives(store):
    make(store, "Archive")
    stop, failures = threading.Event(), []

    def arrange():
        try:
            while not stop.is_set():
                store.set_quota("alice/Archive", octets=10_000_000)
                store.remove_quota_root("alice/Archive")
        except StoreError as error:
            if error.problem is not Problem.BUSY:
                failures.append(error)
        except Exception as error:
            failures.append(error)

    other = threading.Thread(target=arrange)
    other.start()
    try:
        fill(store, 60, "user/alice/Archive", first=100)
    finally:
        stop.set()
        other.join()
    assert not failures
    total = [sum(column) for column in zip(use(store, "alice"), use(store, "alice/Archive"), strict=True)]
    assert total == [6000, 60]


# Whatever happens

PATHS = st.sampled_from(["INBOX", "A", "A/B", "A/B/C", "D", "D/B", "INBOX/x"])
PICKS = st.integers(0, 255)


class SumsAgainstDictionaries(RuleBasedStateMachine):
    """A user's mailboxes and roots, and the same in dictionaries: path -> UID -> octets."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.exists() else None))
        self.store = make_store(self.folder / "store")
        self.boxes = {"INBOX": {}}
        self.gone = {}                      # path -> its messages, of the mailbox last deleted under that name
        self.expunged = {}                  # mailbox id -> octets of the messages expunged
        self.roots = set()
        self.number = 0

    def teardown(self):
        try:
            assert check(self.store) == []
        finally:
            self.store.close()
            shutil.rmtree(self.folder)

    def entry(self, path):
        return self.store.entry(MailboxName("alice", path))

    def root(self, path):
        levels = path.split("/")
        for depth in range(len(levels), 0, -1):
            if "/".join(levels[:depth]) in self.roots:
                return "alice/" + "/".join(levels[:depth])
        return "alice"

    @rule(path=PATHS, size=st.integers(30, 300))
    def deliver(self, path, size):
        if path in self.boxes:
            self.number += 1
            outcome, = deliver(self.store, body(self.number, size), f"user/alice/{path}")
            self.boxes[path][outcome.uid] = size

    @rule(source=PATHS, into=PATHS, pick=PICKS, move=st.booleans())
    def copy(self, source, into, pick, move):
        if source in self.boxes and into in self.boxes:
            uids = [uid for at, uid in enumerate(sorted(self.boxes[source])) if pick >> at % 8 & 1]
            new = copy_messages(self.store, self.entry(source), self.entry(into), uids, remove=move)
            for uid, copy in zip(uids, new, strict=True):
                self.boxes[into][copy] = self.boxes[source].pop(uid) if move else self.boxes[source][uid]

    @rule(path=PATHS, pick=PICKS)
    def remove(self, path, pick):
        if path in self.boxes:
            uids = [uid for at, uid in enumerate(sorted(self.boxes[path])) if pick >> at % 8 & 1]
            entry = self.entry(path)
            for uid in remove(self.store, entry, uids):
                self.expunged.setdefault(entry.id, []).append(self.boxes[path].pop(uid))

    @rule(path=PATHS)
    def bring_back(self, path):
        if path in self.boxes:
            entry = self.entry(path)
            uids = undelete_messages(self.store, entry)
            sizes = self.expunged.pop(entry.id, [])
            rows = self.store.open_mailbox(entry).rows
            found = {int(row["uid"]): int(row["size"]) for row in rows if int(row["uid"]) in uids}
            assert sorted(found.values()) == sorted(sizes)
            self.boxes[path].update(found)

    @rule(path=PATHS)
    def create(self, path):
        if path not in self.boxes:
            self.store.create_mailbox(MailboxName("alice", path))
            self.boxes[path] = {}

    @rule(path=PATHS)
    def delete(self, path):
        if path in self.boxes and path != "INBOX":
            self.store.delete_mailbox(MailboxName("alice", path))
            self.gone[path] = self.boxes.pop(path)

    @rule(path=PATHS, new=PATHS)
    def undelete(self, path, new):
        if path in self.gone and new not in self.boxes:
            undelete_mailbox(self.store, MailboxName("alice", path), new_name=MailboxName("alice", new))
            self.boxes[new] = self.gone.pop(path)
            self.gone.clear()               # which one is the last of a name is not this model's business

    @rule(old=PATHS, new=PATHS)
    def rename(self, old, new):
        tree = {path for path in self.boxes if path == old or path.startswith(old + "/")}
        moved = {path: new + path[len(old):] for path in tree}
        if "INBOX" in (old, new) or new.startswith(old + "/") or not tree or {new, *moved.values()} & self.boxes.keys():
            return
        self.store.rename_mailbox(MailboxName("alice", old), MailboxName("alice", new))
        boxes = {moved[path]: self.boxes.pop(path) for path in tree}
        self.boxes.update(boxes)

    @rule(path=PATHS)
    def make_root(self, path):
        self.store.set_quota(f"alice/{path}", octets=1 << 40)
        self.roots.add(path)

    @rule(path=PATHS)
    def remove_root(self, path):
        if path in self.roots:
            self.store.remove_quota_root(f"alice/{path}")
            self.roots.remove(path)

    @rule()
    def crash(self):
        for partition in self.store.partitions.values():
            partition.env.flush()
        self.store = reopen_after_crash(self.store)

    @invariant()
    def sums_are_right(self):
        for root in ["alice", *(f"alice/{path}" for path in self.roots)]:
            boxes = [box for path, box in self.boxes.items() if self.root(path) == root]
            found = self.store.quota(root)
            assert found.octets == sum(sum(box.values()) for box in boxes), root
            assert found.messages == sum(len(box) for box in boxes), root
        rows = {root for root, _ in self.store.partitions["primary"].quotas.all()}
        assert rows - {"alice", "bob"} == {f"alice/{path}" for path in self.roots}


TestSums = SumsAgainstDictionaries.TestCase
TestSums.settings = settings(max_examples=25, stateful_step_count=30, deadline=None,
                             suppress_health_check=list(HealthCheck))

