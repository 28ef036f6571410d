"""Scripts of users where they live: with the INBOX, whatever becomes of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mboxlist.annotations import MAX_VALUE
from mboxlist.names import INBOX, MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.filtering import userscripts
from store.filtering.filters import Filters
from store.filtering.sievesettings import Settings
from store.filtering.userscripts import Refusal, ScriptRefused
from store.mailboxes import namespace, subscribing
from store.opening import open_store
from store.sieve.scriptlimits import DEFAULT
from store.store import Store
from store.users import renaming, restorable
from tests.support.stores.stores import make_store
from tests.support.stores.whole import give_scripts, lose_databases


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = make_store(tmp_path / "store", ("alice", "bob"))
    give_scripts(made, "alice")
    yield made
    assert check(made) == []
    made.close()


def state(store: Store, user: str = "alice") -> dict[str, bool]:
    return {one.name: one.active for one in userscripts.of_user(store.mailboxes, user)}


def test_the_largest_script_with_the_longest_name_fits(store: Store) -> None:
    text = b"#" * (DEFAULT.script - 1) + b"\n"
    userscripts.put(store, store.directory.user("bob").account, "n" * userscripts.LONGEST, text)
    assert userscripts.find(store.mailboxes, "bob", "n" * userscripts.LONGEST).text == text
    assert DEFAULT.script + userscripts.LONGEST < MAX_VALUE


def test_a_renamed_user_has_them(store: Store) -> None:
    renaming.rename_user(store, "alice", "ada")
    assert state(store, "ada") == {"main": True, "Уход": False} and state(store) == {}
    assert len(Filters.of(store).trees("ada")) == 1


def test_a_renamed_inbox_leaves_them(store: Store) -> None:
    """RFC 3501 §6.3.5: INBOX gives its messages away and stays."""
    namespace.rename_mailbox(store, MailboxName("alice", INBOX), MailboxName("alice", "Old"))
    assert state(store) == {"main": True, "Уход": False}


def test_a_user_who_comes_back_has_them(store: Store) -> None:
    restorable.forget_user(store, "alice")
    assert state(store) == {}
    restorable.undelete_user(store, "alice")
    assert state(store) == {"main": True, "Уход": False}


@pytest.mark.long
def test_lost_databases_come_back_with_them(tmp_path: Path) -> None:
    store = make_store(tmp_path / "lost", ("alice",))
    give_scripts(store, "alice")
    store.close()
    lose_databases(tmp_path / "lost")
    again = open_store(tmp_path / "lost", store.settings)
    inbox = again.mailboxes.find(MailboxName("alice", INBOX))
    assert state(again) == {"main": True, "Уход": False} and inbox is not None
    assert again.mailboxes.scripted([inbox]) and check(again) == []
    again.close()


def test_others_scripts_are_untouched(store: Store) -> None:
    give_scripts(store, "bob")
    userscripts.activate(store, "bob", "")
    assert state(store) == {"main": True, "Уход": False} and state(store, "bob") == {"main": False, "Уход": False}


@pytest.mark.parametrize("name", ["", "a\nb", "\x7f", "x" * 513, "\u2028", "\ud800"])
def test_names_that_cannot_be(store: Store, name: str) -> None:
    with pytest.raises(ScriptRefused) as raised:
        userscripts.put(store, store.directory.user("alice").account, name, b"keep;")
    assert raised.value.refusal is Refusal.BAD_NAME


def test_a_changed_script_runs_at_once_and_a_wrong_one_not_at_all(store: Store) -> None:
    filters = Filters.of(store)
    first, = filters.trees("alice")
    userscripts.put(store, store.directory.user("alice").account, "main", b"discard;")
    second, = filters.trees("alice")
    assert first is not second and filters.trees("alice") == (second,)
    assert filters.trees("bob") == ()


def test_scripts_of_the_site_run_around_those_of_users(store: Store, tmp_path: Path) -> None:
    folder, now = tmp_path / "site", [0.0]
    for path, text in {"before": "keep;", "after": "stop;", "default": "discard;", "example.net/before": "stop;",
                       "example.net/default": "keep;", "include/x": "keep;"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{path}.sieve").write_text(text)
    filters = Filters(store, Settings(folder=folder))
    filters.site.clock = lambda: now[0]
    assert [[node.name for node in tree.nodes] for tree in filters.trees("alice")] == [["keep"], ["fileinto"], ["stop"]]
    assert [[node.name for node in tree.nodes] for tree in filters.trees("bob")] == [["keep"], ["discard"], ["stop"]]
    assert [[node.name for node in tree.nodes] for tree in filters.trees("eve@example.net")] == [
        ["keep"], ["stop"], ["keep"], ["stop"]]
    assert filters.site.included("x") is not None and filters.site.included("../before") is None
    (folder / "before.sieve").write_text("this is none")
    (folder / "after.sieve").unlink()
    now[0] += 10
    assert [[node.name for node in tree.nodes] for tree in filters.trees("alice")] == [["keep"], ["fileinto"]]
    filters.follow(Settings())
    assert [[node.name for node in tree.nodes] for tree in filters.trees("bob")] == [] and not store.filtered


def test_a_user_without_mailboxes(store: Store) -> None:
    store.directory.add("new", "no password")
    assert state(store, "new") == {}
    with pytest.raises(ScriptRefused):
        userscripts.activate(store, "new", "x")
    userscripts.put(store, store.directory.user("new").account, "x", b"keep;")
    assert state(store, "new") == {"x": False} and subscribing.subscriptions(store, "new") is not None


def test_nobody_writes_into_a_store_that_takes_no_writes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.mailboxes, "guard", _refuse)
    with pytest.raises(StoreError):
        userscripts.activate(store, "alice", "")
    assert state(store) == {"main": True, "Уход": False}


def _refuse(owner: str, txn: object) -> None:
    raise StoreError(Problem.BUSY)
