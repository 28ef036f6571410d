"""rights.db says what a walk over all access control lists would find, whatever was done to the mailboxes."""

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from mboxlist.table import MailboxList

WHO = ["alice", "al", "bob", "anyone", "group:staff", "-bob", "-anyone"]
NAMES = [MailboxName(owner, path) for owner in ("alice", "al", "") for path in ("INBOX", "a", "a/b", "ab")]
ACLS = st.dictionaries(st.sampled_from(WHO), st.sampled_from(["l", "lrs", "rs", "p", "al"]), max_size=4)
STEPS = st.lists(st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), ACLS),
    st.tuples(st.just("remove"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES))), max_size=12)


@pytest.fixture(scope="module")
def mailboxes(tmp_path_factory):
    opened = MailboxList(tmp_path_factory.mktemp("mboxlist"), cache=1 << 20, recover=True)
    yield opened
    opened.close()


def do(mailboxes, steps, txn):
    for kind, name, value in steps:
        entry = mailboxes.find(name, txn)
        if kind == "write":
            if entry is None:
                entry = MailboxEntry(mailboxes.next_identity(txn)[0], name, "primary", 1, 0)
            mailboxes.write(evolve(entry, acl=value), txn)
        elif kind == "remove":
            mailboxes.remove(name, txn)
        elif entry is not None and mailboxes.find(value, txn) is None:
            mailboxes.remove(name, txn)
            mailboxes.write(evolve(entry, name=value), txn)


def walk(mailboxes, identifiers):
    """The mailboxes whose lists grant look-up to one of these."""
    return {entry.name for entry in mailboxes.all()
            if any("l" in entry.acl.get(identifier, "") for identifier in identifiers)}


def empty(mailboxes):
    transact(mailboxes.env, lambda txn: [mailboxes.remove(entry.name, txn) for entry in list(mailboxes.all(txn))])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_it_is_what_a_walk_finds(mailboxes, steps):
    for step in steps:
        transact(mailboxes.env, lambda txn, step=step: do(mailboxes, [step], txn))
        for who in (["alice"], ["al", "anyone"], ["bob", "anyone", "group:staff"], ["group:staf"], []):
            found = walk(mailboxes, who)
            assert mailboxes.granted.of(who) == found
            for name in NAMES:
                assert set(mailboxes.granted.under(who, name)) == {
                    each for each in found if each == name or each.is_below(name)}
        assert list(mailboxes.granted.differences(mailboxes.all())) == []
    empty(mailboxes)
    assert mailboxes.granted.of(WHO) == set()


def test_one_transaction_sees_its_own_changes_and_leaves_nothing_when_it_fails(mailboxes):
    name = MailboxName("alice", "a")

    class Stop(Exception):
        pass

    def work(txn):
        do(mailboxes, [("write", name, {"bob": "l"})], txn)
        assert mailboxes.granted.of(["bob"], txn) == {name}
        raise Stop

    with pytest.raises(Stop):
        transact(mailboxes.env, work)
    assert mailboxes.granted.of(["bob"]) == set()


def test_differences_are_named_and_set_right(mailboxes):
    name, other = MailboxName("alice", "a"), MailboxName("", "news")
    transact(mailboxes.env, lambda txn: do(mailboxes, [
        ("write", name, {"bob": "lr", "-bob": "l", "group:staff": "r"}), ("write", other, {"anyone": "l"})], txn))
    entry, news = mailboxes.find(name), mailboxes.find(other)
    transact(mailboxes.env, lambda txn: mailboxes.granted.update(entry, evolve(entry, acl={"group:staff": "l"}), txn))
    assert list(mailboxes.granted.differences([entry, news])) == [
        ("bob", "user/alice/a", False), ("group:staff", "user/alice/a", True)]
    transact(mailboxes.env, lambda txn: mailboxes.granted.correct("bob", "user/alice/a", entry, txn))
    assert not transact(mailboxes.env, lambda txn: mailboxes.granted.correct("bob", "user/alice/a", entry, txn))
    assert transact(mailboxes.env, lambda txn: mailboxes.granted.correct("group:staff", "user/alice/a", entry, txn))
    assert list(mailboxes.granted.differences([entry, news])) == []
    assert mailboxes.granted.of(["bob", "group:staff", "anyone"]) == {name, other}
    empty(mailboxes)
