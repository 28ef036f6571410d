"""Limits that a directory names, as the store has them afterwards."""

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.accounts.base import Account
from store.accounts.ldap.ldapentry import Found
from store.accounts.ldap.ldapquota import QuotaWish
from store.errors import Problem, StoreError
from store.mailboxes import firstuse, namespace
from store.quota import roots as quotaroots
from store.tables.quotatable import DEFAULT, UNLIMITED
from store.users.provisioning import take_over_account
from tests.support.stores.stores import deliver

GREETING = b"From: bob@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
NOTHING_SAID, AS_IT_IS = QuotaWish(), QuotaWish(None, None)


def found(quota=NOTHING_SAID, domain="", domain_quota=AS_IT_IS, user="alice"):
    return Found(Account(user, "primary"), frozenset({user}), quota, domain, domain_quota)


def limits(store, root):
    use = quotaroots.quota(store, root)
    return use.octet_limit, use.message_limit


def roots(store):
    return {root for root, _ in store.partitions["primary"].quotas.all()}


@pytest.mark.parametrize(("wish", "after"), [
    (QuotaWish(5000, 7, said=True), (5000, 7)),
    (QuotaWish(0, UNLIMITED, said=True), (0, UNLIMITED)),
    (QuotaWish(), (DEFAULT, DEFAULT)),                  # nothing is said: the store's default
    (QuotaWish(None, 7, said=True), (1000, 7)),         # what could not be read stays
    (QuotaWish(None, None), (1000, 10)),                # the profile has no limits at all
])
def test_limits_of_a_user(store, wish, after):
    quotaroots.set_quota(store, "alice", 1000, 10)
    take_over_account(store, found(wish))
    assert limits(store, "alice") == after
    assert limits(store, "bob") == (DEFAULT, DEFAULT)


def test_a_limit_of_zero_lets_nothing_in(store):
    take_over_account(store, found(QuotaWish(0, UNLIMITED, said=True)))
    refused, = deliver(store, GREETING, "user/alice/INBOX")
    assert isinstance(refused, StoreError) and refused.problem in (Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED)
    take_over_account(store, found(QuotaWish(UNLIMITED, UNLIMITED, said=True)))
    assert not isinstance(deliver(store, GREETING, "user/alice/INBOX")[0], StoreError)


def test_mailboxes_get_roots_of_their_own_and_lose_them(store):
    archive = namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    deliver(store, GREETING, "user/alice/Archive")
    take_over_account(store, found(QuotaWish(5000, DEFAULT, (("Archive", 9000, None), ("Later", None, 3)), said=True)))
    assert limits(store, "alice/Archive") == (9000, UNLIMITED)
    assert limits(store, "alice/Later") == (UNLIMITED, 3)
    assert quotaroots.quota(store, "alice/Archive").messages == 1 and quotaroots.quota(store, "alice").messages == 0
    take_over_account(store, found(QuotaWish(None, DEFAULT, said=True)))       # it cannot be read: nothing goes
    assert roots(store) >= {"alice/Archive", "alice/Later"}
    take_over_account(store, found(QuotaWish(5000, DEFAULT, (("Archive", 9500, None),), said=True)))
    assert limits(store, "alice/Archive") == (9500, UNLIMITED) and "alice/Later" not in roots(store)
    take_over_account(store, found(QuotaWish(5000, DEFAULT, said=True)))
    assert "alice/Archive" not in roots(store)
    assert quotaroots.quota(store, "alice").messages == 1 and store.status(archive).messages == 1


def test_roots_made_by_hand_stay_where_the_directory_says_nothing(store):
    quotaroots.set_quota(store, "alice/Archive", 5000)
    take_over_account(store, found(QuotaWish()))
    assert "alice/Archive" in roots(store)


def test_limits_of_a_domain(store):
    store.directory.add("carol@example.net", "")
    firstuse.inbox(store, store.directory.find("carol@example.net"))
    carol = found(user="carol@example.net", domain="example.net", domain_quota=QuotaWish(70000, DEFAULT, said=True))
    take_over_account(store, carol)
    assert limits(store, "@example.net") == (70000, UNLIMITED)
    take_over_account(store, evolve(carol, domain_quota=QuotaWish(None, 5, said=True)))
    assert limits(store, "@example.net") == (70000, 5)
    take_over_account(store, evolve(carol, domain_quota=QuotaWish()))
    assert limits(store, "@example.net") == (UNLIMITED, UNLIMITED)
    take_over_account(store, found(domain="example.org", domain_quota=QuotaWish(800, 8, said=True)))
    assert limits(store, "@example.org") == (800, 8)


def test_what_is_right_is_not_written_again(store, faults):
    wish = QuotaWish(5000, 7, (("Archive", 9000, 1),), said=True)
    whole = found(wish, "example.org", QuotaWish(800, 8, said=True))
    take_over_account(store, whole)
    faults.forbid(quotaroots, "set_quota")
    faults.forbid(quotaroots, "remove_quota_root")
    take_over_account(store, whole)


def test_a_store_that_cannot_now_does_it_later(store, faults, caplog):
    faults.fail(quotaroots, "set_quota", StoreError(Problem.BUSY))
    take_over_account(store, found(QuotaWish(5000, 7, said=True)))
    faults.mend()
    assert "alice" in caplog.text
    take_over_account(store, found(QuotaWish(5000, 7, said=True)))
    assert limits(store, "alice") == (5000, 7)
