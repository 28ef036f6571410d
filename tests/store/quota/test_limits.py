"""Quota: limits hold, and refusals become final when they should."""


from functools import partial

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.errors import Problem
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.operations import clockrecord
from store.quota import roots
from store.tables.quotatable import DEFAULT, UNLIMITED, QuotaUse, root_key
from store.users import explanation
from store.values import readable
from tests.store.quota.quotas import BODY, DAY, NOW, admit, body, fill, make, problem, refusal, set_clock, use
from tests.support.stores.stores import HASH, SMALL, deliver, make_store, reopen_after_crash

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
    roots.set_quota(store, "alice", octets=300, messages=4)
    fill(store, 2)
    assert problem(store, 101) is Problem.OVER_QUOTA
    assert problem(store, 100) is None
    roots.set_quota(store, "alice", octets=UNLIMITED)
    assert problem(store, 5000, number=1000) is None
    assert problem(store, 30, number=1001) is Problem.OVER_QUOTA
    assert use(store, "alice") == (5300, 4)


def test_nothing_is_delivered_where_the_limit_is_0(store):
    roots.set_quota(store, "alice", octets=0)
    assert problem(store) is Problem.QUOTA_GRACE_ENDED


def test_use_is_counted_but_not_limited_without_enforcement(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_enforce=False))
    roots.set_quota(store, "alice", octets=150)
    roots.set_quota(store, "@example.org", octets=150)
    fill(store, 3)
    assert use(store, "alice") == (300, 3)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    assert roots.has_room(store, inbox, 1000)
    admit(store, inbox, 1000)
    copy_messages(store, inbox, inbox, [1])
    assert roots.warning(store, inbox) is not None
    assert check(store) == []
    store.close()


def test_default_limits_are_for_users_only(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, default_quota=250, default_message_quota=2))
    roots.set_quota(store, "alice/Archive", messages=10)
    make(store, "Archive")
    make(store, "news", owner="")
    fill(store, 2)
    assert problem(store) is Problem.OVER_QUOTA
    fill(store, 9, "user/alice/Archive")
    fill(store, 5, "public/news")
    roots.set_quota(store, "alice/Archive", messages=DEFAULT)
    fill(store, 5, "user/alice/Archive", first=20)
    assert check(store) == []
    store.close()


def test_quota_is_ignored_where_delivery_is_guaranteed(store):
    roots.set_quota(store, "alice", octets=1)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    staged = store.stage(inbox)
    staged.write(BODY)
    outcome, = offload.now(durable.deliver(store, staged, [Target(inbox, ignore_quota=True)]))
    assert isinstance(outcome, Delivered)


@pytest.mark.parametrize("root", ["", "alice//x", "@", "alice/", "a b", "public/", "alice/a%b", "@a/b", "nobody",
                                  "@b org"])
def test_names_that_are_no_quota_roots(store, root):
    assert refusal(partial(roots.set_quota, store), root, 100) in (Problem.BAD_NAME, Problem.NO_USER)
    assert refusal(partial(roots.remove_quota_root, store), root) is Problem.BAD_NAME


def test_no_user_is_called_like_the_root_of_a_domain(store):
    assert refusal(store.directory.add, "@b.org", HASH) is Problem.BAD_NAME


def test_only_roots_that_were_made_can_be_removed(store):
    make(store, "Archive")
    make(store, "news", owner="")
    fill(store, 1, "public/news")
    for root in ("alice", "alice/Archive", "public/news", "@example.org"):
        assert refusal(partial(roots.remove_quota_root, store), root) is Problem.BAD_NAME


# Grace

def grace(tmp_path):
    """A store in which alice has used 200 of 250 octets."""
    store = make_store(tmp_path / "store", settings=evolve(SMALL, quota_grace=5 * DAY))
    set_clock(store, NOW)
    roots.set_quota(store, "alice", octets=250)
    fill(store, 2)
    return store


def test_refusals_are_final_when_the_grace_has_ended(tmp_path):
    store = grace(tmp_path)
    assert problem(store) is Problem.OVER_QUOTA
    assert roots.quota(store, "alice").refused == NOW
    set_clock(store, NOW + 5 * DAY - 1)
    assert problem(store) is Problem.OVER_QUOTA
    assert roots.quota(store, "alice").refused == NOW
    set_clock(store, NOW + 5 * DAY)
    assert problem(store) is Problem.QUOTA_GRACE_ENDED
    assert roots.quota(store, "alice").refused == NOW
    store.close()


def test_no_clock_that_is_far_ahead_ends_the_grace(tmp_path):
    """All mail to users over quota would go back to its senders, for good, while nobody has waited."""
    store = grace(tmp_path)
    clockrecord.trust(store.root, NOW)
    roots.set_quota(store, "alice", octets=200)
    assert problem(store) is Problem.OVER_QUOTA
    set_clock(store, NOW + 400 * DAY)
    assert problem(store) is Problem.OVER_QUOTA
    told = explanation.quota(store, "alice", NOW + 400 * DAY).roots[0]
    assert (told.verdict, told.refused_for_good) == ("refused for now", None)
    clockrecord.trust(store.root, NOW + 400 * DAY)
    assert problem(store) is Problem.QUOTA_GRACE_ENDED
    assert explanation.quota(store, "alice", NOW + 400 * DAY).roots[0].verdict == "refused for good"
    store.close()


def test_a_message_that_can_never_fit_is_refused_for_good_and_begins_no_period(tmp_path):
    store = grace(tmp_path)
    assert problem(store, 251) is Problem.QUOTA_GRACE_ENDED
    assert roots.quota(store, "alice").refused == 0
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
        roots.set_quota(store, "alice", octets=1000)
    else:
        roots.set_quota(store, "alice", messages=2)
        assert roots.quota(store, "alice").refused == NOW         # full still
        roots.set_quota(store, "alice", octets=UNLIMITED, messages=UNLIMITED)
    assert roots.quota(store, "alice").refused == 0
    set_clock(store, NOW + 6 * DAY)
    roots.set_quota(store, "alice", octets=roots.quota(store, "alice").octets + 99, messages=UNLIMITED)
    assert problem(store, 100) in (Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED)
    assert roots.quota(store, "alice").refused in (0, NOW + 6 * DAY)
    store.close()


def test_a_period_goes_on_while_use_is_not_below_the_limit(tmp_path):
    store = grace(tmp_path)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    assert problem(store) is Problem.OVER_QUOTA
    roots.set_quota(store, "alice", octets=100)
    remove(store, inbox, [1])                   # 100 of 100: nothing would fit
    assert roots.quota(store, "alice").refused == NOW
    remove(store, inbox, [2])
    assert roots.quota(store, "alice").refused == 0
    store.close()


def test_the_first_refusal_is_kept_also_when_nobody_gets_the_message(tmp_path):
    store = grace(tmp_path)
    assert problem(store) is Problem.OVER_QUOTA
    store = reopen_after_crash(store)
    assert roots.quota(store, "alice").refused == NOW
    store.close()


def test_what_a_client_stores_begins_no_period(tmp_path):
    store = grace(tmp_path)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    assert refusal(copy_messages, store, inbox, inbox, [1]) is Problem.OVER_QUOTA
    for size in (100, 251):
        staged = store.stage(inbox)
        staged.write(body(7, size))
        outcome, = offload.now(durable.deliver(store, staged, [Target(inbox, appended=True)]))
        assert outcome.problem is Problem.OVER_QUOTA
    assert roots.quota(store, "alice").refused == 0
    store.close()


def test_a_refusal_before_the_message_counts(tmp_path):
    store = grace(tmp_path)
    inbox = store.entry(MailboxName("alice", "INBOX"))
    admit(store, inbox, 50)
    assert roots.quota(store, "alice").refused == 0
    assert refusal(admit, store, inbox, 51) is Problem.OVER_QUOTA
    assert roots.quota(store, "alice").refused == NOW
    set_clock(store, NOW + 5 * DAY)
    assert refusal(admit, store, inbox, 51) is Problem.QUOTA_GRACE_ENDED
    assert refusal(admit, store, inbox, 251) is Problem.QUOTA_GRACE_ENDED
    store.close()


def test_the_others_get_the_message_and_the_refusal_is_kept(tmp_path):
    store = grace(tmp_path)
    refused, taken = deliver(store, body(9), "user/alice/INBOX", "user/bob/INBOX")
    assert refused.problem is Problem.OVER_QUOTA and isinstance(taken, Delivered)
    assert (roots.quota(store, "alice").refused, roots.quota(store, "bob").refused) == (NOW, 0)
    store.close()
