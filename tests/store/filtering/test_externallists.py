"""Lists that scripts ask about (RFC 6134): groups of the directory, as far as the owner of the script may know them."""

from collections.abc import Iterator

import pytest

from store.check.wholecheck import check
from store.filtering.externallists import ExternalLists
from store.filtering.sievesettings import Settings
from store.store import Store
from tests.support.stores.stores import make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = make_store(tmp_path_factory.mktemp("lists") / "store", ("alice", "bob", "carol", "dora@example.net"))
    made.directory.change("alice", groups=["staff", "sales%20team"])
    made.directory.change("bob", groups=["staff"], aliases=["robert@example.net"])
    made.directory.change("carol", groups=["board"])
    made.directory.change("dora@example.net", groups=["staff"])
    yield made
    assert check(made) == []
    made.close()


def lists(store: Store, user: str = "alice", **settings: tuple[str, ...]) -> ExternalLists:
    return ExternalLists(store, Settings(**settings), user, may_wait=False)


@pytest.mark.parametrize("name", [
    "tag:example.org,2026:staff", "tag:EXAMPLE.org,2026-11-27:Staff", "TAG:example.org,2026-11:staff", "group:staff",
    "tag:example.org,2026:Sales%20Team", "group:sales team"])
def test_names_of_lists(store: Store, name: str) -> None:
    assert lists(store).has(name)


@pytest.mark.parametrize("name", [
    "", "staff", "tag:example.net,2026:staff", "tag:example.org:staff", "tag:example.org,26:staff", "group:", "group:x",
    "urn:ietf:params:sieve:addrbook:default", ":addrbook:default", "ldap:///cn=staff,dc=example", "cn=staff,dc=example",
    "ldap://evil.example/cn=staff", "mailto:staff@example.org", "staff@example.org", "mailto:", "http://example.org/",
    "tag:example.org,2026:staff#x", "group:" + "x" * 2000, "\0", "@", "tag:\u00fc,2026:staff"])
def test_what_is_no_list_of_the_built_in_directory(store: Store, name: str) -> None:
    """There is no address book to answer with, so none is said to be there."""
    assert not lists(store).has(name) and not lists(store).holds(name, "bob@example.org")


@pytest.mark.parametrize("address, expected", [
    ("bob@example.org", True), ("BOB@Example.ORG", True), ("robert@example.net", True), ("dora@example.net", True),
    ("alice@example.org", True), ("carol@example.org", False), ("bob@example.net", False),
    ("stranger@x.example", False), ("@", False), ("bob", True), ("", False)])
def test_members(store: Store, address: str, expected: bool) -> None:
    """By any address that gets a member's mail; a name without a domain is in the default one."""
    assert lists(store).holds("group:staff", address) is expected


def test_a_group_that_is_not_the_owners_looks_as_one_that_is_not_there(store: Store) -> None:
    for name in ("group:board", "tag:example.org,2026:board", "group:none"):
        assert not lists(store).has(name) and not lists(store).holds(name, "carol@example.org")
    assert lists(store, "carol").holds("group:board", "carol@example.org")
    assert not lists(store, "carol").has("group:staff")


def test_the_administrator_opens_a_group_to_all(store: Store) -> None:
    opened = lists(store, lists=("board",))
    assert opened.has("group:board") and opened.holds("group:board", "carol@example.org") and opened.has("group:staff")
    assert lists(store, "nobody", lists=("board",)).has("tag:example.org,2026:board")


def test_the_tag_of_the_users_own_domain_counts(store: Store) -> None:
    own = lists(store, "dora@example.net")
    assert own.has("tag:example.net,2026:staff") and own.has("tag:example.org,2026:staff")
