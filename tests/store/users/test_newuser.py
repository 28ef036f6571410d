"""Many users are added at the same time (issue 24: a commit and a hash for each, one after the other, took 26 ms)."""

from threading import Barrier

from attrs import evolve

from mboxlist.engine.transact import COMMITS
from mboxlist.names import MailboxName
from store.settings import Settings
from store.users import newuser
from store.users.newuser import NewUser
from store.values import Secret
from tests.support.stores.stores import HASH


def test_few_commits(store) -> None:
    """A hundred users with six mailboxes each: transactions of a hundred rows or more."""
    store.settings = evolve(store.settings, special_mailboxes=Settings().special_mailboxes)
    before = COMMITS.total
    added, = newuser.add_users(store, [NewUser(f"u{number}", Secret(b"")) for number in range(100)], lambda _: HASH)
    assert (added.added, added.refused) == (100, {})
    assert COMMITS.total - before <= 30
    assert store.mailboxes.find(MailboxName("u99", "INBOX")) is not None


def test_hashes_are_made_side_by_side(store, faults) -> None:
    faults.around(newuser.os, "cpu_count", lambda _: 2)
    both = Barrier(2, timeout=180)

    def hashed(_: Secret) -> str:
        both.wait()
        return HASH

    added, = newuser.add_users(store, [NewUser(user, Secret(b"x")) for user in ("carol", "dave")], hashed)
    assert added.added == 2
