"""What holds for the scripts of one user: the user's word before the domain's before the configuration's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import fields_dict

from store.accounts.sieverules import READERS, BadSieveRule, parse
from store.check.wholecheck import check
from store.filtering import userscripts, wrongscripts
from store.filtering.filters import Filters
from store.filtering.sievesettings import Settings
from store.filtering.userscripts import Refusal, ScriptRefused
from store.filtering.usersettings import origins, settings_of
from store.mailboxes import firstuse
from store.metrics.processcounters import Counters
from store.metrics.scriptcounters import INVALID
from store.store import Store
from tests.support.stores.stores import make_store

CONFIGURED = Settings(redirects=7, hourly=100)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = make_store(tmp_path / "store", ("alice", "bob@example.net"))
    yield made
    assert check(made) == []
    made.close()


def keep(store: Store, user: str, text: bytes, *, active: bool = True, **settings: int) -> None:
    account = store.directory.find(user)
    assert account is not None
    userscripts.put(store, account, "main", text, Settings(**settings))
    if active:
        userscripts.activate(store, user, "main")


def names(filters: Filters, user: str) -> list[list[str]]:
    return [[node.name for node in tree.nodes] for tree in filters.trees(user)]


def test_what_can_differ_are_settings() -> None:
    assert READERS.keys() <= fields_dict(Settings).keys()
    text = "enabled=no OWN=yes scripts=3 script_size=16K redirects=0 hourly=5 vacation=off vacation_least=7d"
    assert parse(text) == {
        "enabled": False, "own": True, "scripts": 3, "script_size": 16384, "redirects": 0, "hourly": 5,
        "vacation": False, "vacation_least": 604_800}
    assert parse("redirects=1 redirects=2") == {"redirects": 2} and parse(" ") == {}


@pytest.mark.parametrize("text", [
    "off", "redirects", "redirects=", "redirects=-1", "redirects=x", "redirects=1e3", "folder=/etc", "scripts=101",
    "script_size=64K", "vacation=perhaps", "vacation_least=soon", "enabled = no", "=1", "redirects=" + "9" * 1100])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(BadSieveRule):
        parse(text)


def test_the_user_goes_before_the_domain_and_that_before_the_configuration(store: Store) -> None:
    assert settings_of(store, CONFIGURED, "alice") is CONFIGURED
    store.directory.domains.set_sieve("example.net", "redirects=1 hourly=10")
    store.directory.change("bob@example.net", sieve="redirects=2")
    found = settings_of(store, CONFIGURED, "bob@example.net")
    assert (found.redirects, found.hourly, found.vacation) == (2, 10, True)
    assert {name: whose for name, whose in origins(store, "bob@example.net").items() if not whose.startswith("sieve.")
            } == {"redirects": "the user", "hourly": "its domain: onecopy user domain"}
    assert settings_of(store, CONFIGURED, "alice") is CONFIGURED
    store.directory.domains.set_sieve("example.org", "vacation=no")          # the default one, whose users have no @
    assert not settings_of(store, CONFIGURED, "alice").vacation


def test_a_row_that_cannot_be_read_leaves_the_sites_scripts(store: Store) -> None:
    store.directory.change("alice", sieve="from a later version")
    found = settings_of(store, CONFIGURED, "alice")
    assert found.enabled and not found.own


def test_the_switch(store: Store, tmp_path: Path) -> None:
    """`enabled=no`: nothing runs. `own=no`: what the site and the directory have."""
    (tmp_path / "site").mkdir()
    for name in ("before", "default"):
        (tmp_path / "site" / f"{name}.sieve").write_text({"before": "keep;", "default": "stop;"}[name])
    filters = Filters(store, Settings(folder=tmp_path / "site"))
    keep(store, "alice", b"discard;")
    assert names(filters, "alice") == [["keep"], ["discard"]]
    store.directory.change("alice", sieve="own=no")
    assert names(filters, "alice") == [["keep"], ["stop"]]
    userscripts.take_over(store, "alice", ("discard; keep;",))
    assert names(filters, "alice") == [["keep"], ["discard", "keep"]]
    store.directory.change("alice", sieve="enabled=no")
    assert names(filters, "alice") == []
    store.directory.change("alice", sieve="")
    assert names(filters, "alice") == [["keep"], ["discard"]]
    filters.follow(Settings(enabled=False))
    assert names(filters, "alice") == []
    store.directory.change("alice", sieve="enabled=yes")                # for a trial with one user
    assert names(filters, "alice") == [["discard"]]


def test_the_first_who_asks_for_them_in_a_store_gets_them(store: Store) -> None:
    """`onecopy sieve test` does before anything counts: once it waited for itself."""
    assert store.owned.find(Counters) is None and Filters.of(store) is Filters.of(store)


def test_limits_of_number_and_size(store: Store) -> None:
    with pytest.raises(ScriptRefused, match="20 at most") as refused:
        keep(store, "alice", b"#" * 21, script_size=20)
    assert refused.value.refusal is Refusal.QUOTA_MAXSIZE
    keep(store, "alice", b"#" * 20, active=False, script_size=20, scripts=1)
    account = store.directory.find("alice")
    assert account is not None
    with pytest.raises(ScriptRefused, match="1 at most") as refused:
        userscripts.put(store, account, "second", b"keep;", Settings(scripts=1))
    assert refused.value.refusal is Refusal.QUOTA_MAXSCRIPTS
    keep(store, "alice", b"keep;", scripts=1)                            # in the place of one is no more of them


def test_what_the_directory_has_runs_while_no_other_is_active(store: Store) -> None:
    filters = Filters(store, Settings())
    userscripts.take_over(store, "alice", ("stop;", "keep; discard;"))
    inbox = store.names("alice")[0]
    assert store.mailboxes.scripted([inbox])             # what a delivery asks first
    assert names(filters, "alice") == [["stop", "keep", "discard"]]
    assert userscripts.of_user(store.mailboxes, "alice") == []              # no client sees it
    keep(store, "alice", b"discard;", active=False)
    assert names(filters, "alice") == [["stop", "keep", "discard"]]
    userscripts.activate(store, "alice", "main")
    assert names(filters, "alice") == [["discard"]]
    userscripts.take_over(store, "alice", ("keep;",))
    assert names(filters, "alice") == [["discard"]]
    userscripts.activate(store, "alice", "")
    assert names(filters, "alice") == [["keep"]]
    userscripts.take_over(store, "alice", ())
    assert names(filters, "alice") == [] and not store.mailboxes.scripted([inbox])


def test_what_is_not_new_is_not_written(store: Store) -> None:
    userscripts.take_over(store, "alice", ("keep;",))
    version = store.mailboxes.version()
    userscripts.take_over(store, "alice", ("keep;",))
    assert store.mailboxes.version() == version


def test_who_has_no_inbox_has_none(store: Store) -> None:
    store.directory.add("new", "no password")
    userscripts.take_over(store, "new", ("keep;",))
    assert userscripts.of_directory(store.mailboxes, "new") is None
    account = store.directory.find("new")
    assert account is not None
    firstuse.inbox(store, account)


def test_wrong_scripts_are_found_wherever_they_are(store: Store, tmp_path: Path,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    filters = Filters(store, Settings())
    userscripts.take_over(store, "alice", ("keep;", "keep"))
    assert filters.trees("alice") == () and len(caplog.messages) == 1       # so mail is kept
    assert filters.trees("alice") == () and len(caplog.messages) == 1
    assert "the directory's script of alice cannot be run, mail is kept: line 1, column 5" in caplog.text
    assert Counters.of(store).scripts.failures[INVALID] == 1
    (tmp_path / "site" / "example.net").mkdir(parents=True)
    (tmp_path / "site" / "example.net" / "after.sieve").write_text("fail;")
    (tmp_path / "site" / "before.sieve").write_text("keep;")
    found = [*wrongscripts.of_users(store, ["alice", "bob@example.net"]), *wrongscripts.of_site(tmp_path / "site"),
             *wrongscripts.of_site(None)]
    assert [(one.script.rpartition("/")[2], one.runs) for one in found] == [
        ("the directory's script of alice", True), ("after.sieve", True)]
