"""Quota of domains, fair shares, and warnings."""


import pytest
from attrs import evolve

from mboxlist.engine.transact import Deadlock
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.delivery.commit import Delivered
from store.errors import Problem
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.quota import roots
from store.quota.accounting import reckon
from store.tables.domainlimits import FRESH, STALE
from store.tables.quotatable import UNLIMITED, QuotaUse
from tests.store.quota.quotas import BODY, body, fill, make, problem, two_partitions, use
from tests.support.stores.stores import SMALL, deliver, make_store, reopen_after_crash

# Domains

def test_the_total_of_a_domain_is_the_sum_of_its_users_on_all_partitions(tmp_path):
    store = two_partitions(tmp_path)
    fill(store, 2, "user/bob@b.org/INBOX")
    fill(store, 1, "user/carol@b.org/INBOX")
    fill(store, 4)
    make(store, "Archive", owner="carol@b.org")
    fill(store, 1, "user/carol@b.org/Archive")
    roots.set_quota(store, "carol@b.org/Archive", octets=500)
    roots.set_quota(store, "@B.org", octets=550)
    assert use(store, "@b.org") == (400, 4)
    assert use(store, "@example.org") == (400, 4)
    fill(store, 1, "user/carol@b.org/INBOX", first=10)
    assert problem(store, 100, "user/bob@b.org/INBOX") is Problem.OVER_QUOTA
    assert problem(store, 100) is None
    assert problem(store, 50, "user/bob@b.org/INBOX", 1000) is None
    assert use(store, "@b.org") == (550, 6)
    assert roots.quota(store, "bob@b.org").refused == 0            # the one that was taken ended the period
    store = reopen_after_crash(store)
    assert problem(store, 30, "user/bob@b.org/INBOX") is Problem.OVER_QUOTA
    roots.remove_quota_root(store, "@b.org")
    assert problem(store, 100, "user/bob@b.org/INBOX") is None
    assert check(store) == []
    store.close()


def test_the_default_domain(store):
    roots.set_quota(store, "@example.org", messages=2)
    fill(store, 1)
    outcomes = deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")      # one transaction, of the same domain
    assert [isinstance(outcome, Delivered) for outcome in outcomes] == [True, False]
    assert use(store, "@example.org") == (200, 2)


def test_a_process_counts_what_it_takes_in_and_looks_again(store):
    """Two processes: this one, and another one, whose deliveries this one learns of when it sums up again."""
    roots.set_quota(store, "@example.org", octets=1000)
    now = [100.0]
    store.domains.clock = lambda: now[0]
    fill(store, 2)
    other = open_store(store.root, store.settings)
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
    roots.set_quota(store, "@example.org", octets=350)
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
    roots.set_quota(store, "@b.org", octets=250)
    outcomes = [deliver(store, body(number), "user/alice/INBOX", "user/bob@b.org/INBOX") for number in range(3)]
    assert [isinstance(outcome, Delivered) for pair in outcomes for outcome in pair] == [True] * 5 + [False]
    assert (use(store, "alice"), use(store, "@b.org")) == ((300, 3), (200, 2))
    store.close()


def test_what_is_too_big_for_a_domain_is_refused_for_good(store):
    roots.set_quota(store, "@example.org", octets=150)
    assert problem(store, 151) is Problem.QUOTA_GRACE_ENDED
    assert problem(store, 150) is None
    assert problem(store, 30) is Problem.OVER_QUOTA


# Fair shares

def test_fair_shares_are_accounted_and_held_against_no_limit(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_charge="fair"))
    for number in range(4):
        deliver(store, body(number), "user/alice/INBOX", "user/bob/INBOX")
    roots.set_quota(store, "alice", octets=400)
    assert problem(store, 200, number=50) is Problem.OVER_QUOTA
    assert reckon(store, "primary") == 2
    assert (roots.quota(store, "alice").discount, roots.quota(store, "bob").discount) == (200, 200)
    assert roots.quota(store, "alice").accounted(store.settings).per_cent(store.settings) == 50
    assert roots.quota(store, "alice").per_cent(store.settings) == 100
    assert problem(store, 1, number=51) is Problem.OVER_QUOTA
    remove(store, store.entry(MailboxName("bob", "INBOX")), [1, 2, 3, 4])
    reckon(store, "primary")
    assert (roots.quota(store, "alice").discount, roots.quota(store, "bob").discount) == (0, 0)
    assert check(store) == []
    store.close()


def test_a_discount_is_divided_among_a_users_roots(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_charge="fair"))
    make(store, "Archive")
    roots.set_quota(store, "alice/Archive", octets=1000)
    for number in range(3):
        deliver(store, body(number), "user/alice/Archive", "user/bob/INBOX")
    fill(store, 1, first=9)
    reckon(store, "primary")                    # alice has 400 octets, and a fair share of 250
    assert [roots.quota(store, root).discount for root in ("alice", "alice/Archive", "bob")] == [37, 112, 150]
    store.close()


def test_discounts_do_not_count_where_octets_are_charged(store):
    deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    reckon(store, "primary")
    roots.set_quota(store, "alice", octets=150)
    assert roots.quota(store, "alice").discount == 50
    assert problem(store) is Problem.OVER_QUOTA


# Warnings

def test_the_threshold(store):
    inbox = store.entry(MailboxName("alice", "INBOX"))
    roots.set_quota(store, "alice", octets=1000, messages=100)
    fill(store, 8)
    assert roots.warning(store, inbox) is None
    fill(store, 1, first=8)
    found = roots.warning(store, inbox)
    assert (found.root, found.text) == (
        "alice", "Your mail quota is 90 % full: 900 octets of 1000 octets, 9 of 100 messages")
    roots.set_quota(store, "alice", octets=UNLIMITED)
    assert roots.warning(store, inbox) is None
    roots.set_quota(store, "alice", messages=9)
    assert roots.warning(store, inbox).text == "Your mail quota is 100 % full: 9 of 9 messages"


def test_no_warning_where_there_is_no_threshold_or_no_mail(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_warn=0))
    inbox = store.entry(MailboxName("alice", "INBOX"))
    roots.set_quota(store, "alice", octets=100)
    fill(store, 1)
    assert roots.warning(store, inbox) is None
    store.close()
    assert not QuotaUse(octet_limit=0).deserves_warning(SMALL)
    assert QuotaUse(octets=1, octet_limit=0).deserves_warning(SMALL)


@pytest.mark.parametrize("value", [-1, 101])
def test_a_threshold_is_per_cent(value):
    with pytest.raises(ValueError, match="between 0 and 100"):
        evolve(SMALL, quota_warn=value)
