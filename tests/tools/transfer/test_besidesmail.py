"""What comes along beside messages, and what of it is refused: one line, and all else comes."""

from collections.abc import Sequence

import pytest
from attrs import define, field

from mboxlist.names import MailboxName
from store.filtering import userscripts
from store.filtering.sievesettings import Settings
from store.quota import roots
from store.store import Store
from store.tables.quotatable import UNLIMITED
from tools.transfer import besidesmail
from tools.transfer.sourcevalues import Limits, OldScript, Source

NONSENSE = OldScript("odd", b'require "no-such-thing";\r\n', active=True)
KEEP = OldScript("main", b"keep;\r\n", active=True)


@define(eq=False)
class Old(Source):
    kept: Sequence[OldScript] = field(factory=list)

    def scripts(self) -> Sequence[OldScript]:
        return self.kept


def keep(store: Store, *scripts: OldScript, dry_run: bool = False, settings: Settings | None = None) -> list[str]:
    told: list[str] = []
    account = store.directory.find("alice")
    assert account is not None
    besidesmail.keep_scripts(store, account, Old(scripts), settings or Settings(), told.append, dry_run=dry_run)
    return told


def held(store: Store) -> list[tuple[str, bytes, bool]]:
    return [(one.name, one.text, one.active) for one in userscripts.of_user(store.mailboxes, "alice")]


def test_a_script_that_is_not_understood_is_named_and_the_others_come(store: Store) -> None:
    told = keep(store, NONSENSE, OldScript("a\nb", b"keep;"), OldScript("main", b"keep;\r\n"))
    assert held(store) == [("main", b"keep;\r\n", False)]
    assert len(told) == 2 and "odd (the active one): " in told[0] and "no-such-thing" in told[0]


@pytest.mark.parametrize("dry_run", [False, True])
def test_one_whose_text_cannot_be_had_is_named_and_takes_the_place_of_none(store: Store, dry_run: bool) -> None:
    keep(store, KEEP)
    told = keep(store, OldScript("main", b"", active=True, problem="it is gone"), OldScript("a\x1bb", b"keep;"),
                dry_run=dry_run)
    assert told[0] == "the Sieve script main (the active one): it is gone" and "control characters" in told[1]
    assert held(store) == [("main", b"keep;\r\n", True)]


def test_a_dry_run_says_the_same_and_keeps_nothing(store: Store) -> None:
    assert keep(store, NONSENSE, KEEP, dry_run=True) == keep(store, NONSENSE)
    assert held(store) == []


def test_a_second_run_takes_what_has_changed_there(store: Store) -> None:
    assert keep(store, KEEP, OldScript("other", b"stop;\r\n")) == []
    assert keep(store, OldScript("main", b"discard;\r\n"), OldScript("other", b"stop;\r\n", active=True)) == []
    assert held(store) == [("main", b"discard;\r\n", False), ("other", b"stop;\r\n", True)]


def test_no_more_scripts_than_may_be(store: Store) -> None:
    told = keep(store, *(OldScript(f"s{number}", b"keep;\r\n") for number in range(3)), settings=Settings(scripts=2))
    assert len(held(store)) == 2 and len(told) == 1 and "s2" in told[0]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_limit_of_the_user_binds_and_the_active_one_comes_first(store: Store, dry_run: bool) -> None:
    """As for PUTSCRIPT: the user's or the domain's, in the place of the configuration's. The line names the option."""
    store.directory.change("alice", sieve="scripts=1")      # type: ignore[attr-defined]
    told = keep(store, OldScript("one", b"keep;"), OldScript("two", b"keep;"), KEEP, dry_run=dry_run)
    assert told == [f"the Sieve script {name}: there are as many scripts as may be: 1 at most (sieve.scripts)"
                    for name in ("one", "two")]
    assert held(store) == [] if dry_run else [("main", b"keep;\r\n", True)]


def test_one_sync_for_all_of_a_kind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many annotations, rights or subscriptions come: each may wait for the disk, and for a standby."""
    entry, told = store.entry(MailboxName("alice", "INBOX")), list[str]()
    env, flushes = store.mailboxes.env, list[int]()
    flush = env.flush

    def counted() -> None:
        flushes.append(1)
        flush()

    monkeypatch.setattr(env, "flush", counted)
    besidesmail.annotate(store, entry, {f"/shared/a{each}": b"x" for each in range(30)}, told.append)
    besidesmail.share(store, entry, {name: "lr" for name in ("bob", "anyone", "group:x")}, told.append)
    besidesmail.subscribe(store, "alice", Subscribed(), told.append)
    assert len(flushes) == 3 and told == []
    assert not store.mailboxes.env.log.grown
    besidesmail.annotate(store, entry, {f"/shared/b{each}": b"x" for each in range(2000)}, told.append)
    assert sum(1 for _ in store.mailboxes.annotations.of(entry.id)) == 1000
    assert len(told) == 1 and "no more of them come" in told[0]


class Subscribed(Source):
    def subscriptions(self) -> Sequence[str]:
        return [f"Archive/{each}" for each in range(30)]


def test_annotations_of_people_come_and_not_those_of_a_server(store: Store) -> None:
    entry = store.entry(MailboxName("alice", "INBOX"))
    values = {"/shared/comment": b"\0\xff", "/private/comment": b"own", "/private/specialuse": b"\\Sent",
              "/shared/vendor/cmu/cyrus-imapd/size": b"7", "/private/vendor/vendor.dovecot/x": b"x",
              "/shared/vendor/onecopy/x": b"x", "/onecopy/sieve/active": b"1", "comment": b"x", "/shared/a b": b"x"}
    told: list[str] = []
    before = set(store.mailboxes.annotations.of(entry.id))
    besidesmail.annotate(store, entry, {**values, "/shared/long": b"x" * (1 << 17)}, told.append)
    assert set(store.mailboxes.annotations.of(entry.id)) - before == {
        ("/shared/comment", "", b"\0\xff"), ("/private/comment", "alice", b"own")}
    assert len(told) == 1 and "/shared/long" in told[0]


def test_limits_are_set_where_there_are_any(store: Store) -> None:
    besidesmail.limit(store, "alice", Limits())
    before = roots.quota(store, "alice")
    besidesmail.limit(store, "alice", Limits(None, 0))
    assert roots.quota(store, "alice").limits(store.settings) == (before.limits(store.settings)[0], 0)
    besidesmail.limit(store, "alice", Limits(5 << 20, 70))
    assert roots.quota(store, "alice").limits(store.settings) == (5 << 20, 70)
    roots.set_quota(store, "alice", UNLIMITED, UNLIMITED)
    besidesmail.limit(store, "alice", Limits())
    assert roots.quota(store, "alice").limits(store.settings) == (None, None)
