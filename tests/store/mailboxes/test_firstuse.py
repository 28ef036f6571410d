"""What a new user has (RFC 6154): mailboxes with a special use, and INBOX last."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.mailboxes import deletion, firstuse, namespace, subscribing
from store.settings import Settings, special_names
from store.store import Store

USES = {"\\Drafts": "Drafts", "\\Sent": "Sent", "\\Junk": "Junk", "\\Trash": "Trash", "\\Archive": "Archive"}


@pytest.fixture
def fresh(store: Store) -> Store:
    """carol is new, and the settings are those that one gets."""
    store.settings = evolve(store.settings, special_mailboxes=Settings().special_mailboxes)
    store.directory.add("carol", "")            # type: ignore[attr-defined]
    return store


def uses(store: Store, user: str) -> dict[str, str]:
    return {entry.special_use: entry.name.path for entry in store.names(user) if entry.special_use}


def test_a_new_user_has_them_subscribed(fresh):
    entry = firstuse.inbox(fresh, fresh.directory.find("carol"))
    assert entry.name.is_inbox() and entry.special_use is None
    assert uses(fresh, "carol") == USES
    assert set(subscribing.subscriptions(fresh, "carol")) == {"INBOX", *USES.values()}
    assert firstuse.inbox(fresh, fresh.directory.find("carol")) == entry


def test_who_was_there_before_gets_nothing_more(fresh):
    firstuse.inbox(fresh, fresh.directory.find("alice"))
    assert [entry.name.path for entry in fresh.names("alice")] == ["INBOX"]


def test_who_has_other_mailboxes_is_no_new_user(fresh):
    namespace.create_mailbox(fresh, MailboxName("carol", "Imported"))
    firstuse.inbox(fresh, fresh.directory.find("carol"))
    assert [entry.name.path for entry in fresh.names("carol")] == ["INBOX", "Imported"]


def test_what_is_deleted_does_not_come_back(fresh):
    carol = fresh.directory.find("carol")
    firstuse.inbox(fresh, carol)
    deletion.delete_mailbox(fresh, MailboxName("carol", "Trash"))
    firstuse.inbox(fresh, carol)
    assert "Trash" not in {entry.name.path for entry in fresh.names("carol")}


@pytest.mark.parametrize("made", [0, 1, 5, 6])
def test_what_a_crash_cuts_off_is_made_at_the_next_use(fresh, faults, made):
    carol, count = fresh.directory.find("carol"), iter(range(made))
    faults.fail(namespace, "create_mailbox", KeyboardInterrupt, when=lambda *_, **__: next(count, None) is None)
    with pytest.raises(KeyboardInterrupt) if made < 6 else nullcontext():
        firstuse.inbox(fresh, carol)
    faults.mend()
    firstuse.inbox(fresh, carol)
    assert uses(fresh, "carol") == USES
    assert len(fresh.names("carol")) == 6


@pytest.mark.parametrize("problem", [Problem.DISK_FULL, Problem.UNAVAILABLE, Problem.BUSY])
@pytest.mark.parametrize("made", [0, 3])
def test_what_a_full_disk_cuts_off_is_made_at_the_next_use(fresh, faults, problem, made):
    """INBOX, which makes an end of it, must not be made before."""
    carol, count = fresh.directory.find("carol"), iter(range(made))
    faults.fail(namespace, "create_mailbox", StoreError(problem), when=lambda *_, **__: next(count, None) is None)
    with pytest.raises(StoreError) as refused:
        firstuse.inbox(fresh, carol)
    faults.mend()
    assert refused.value.problem is problem
    firstuse.inbox(fresh, carol)
    assert uses(fresh, "carol") == USES


def test_another_process_may_make_the_same_at_the_same_time(fresh, faults):
    carol = fresh.directory.find("carol")
    faults.first(namespace, "create_mailbox", lambda *_, **__: firstuse.inbox(fresh, carol))
    assert firstuse.inbox(fresh, carol).name.is_inbox()
    assert uses(fresh, "carol") == USES


def test_without_room_for_them_there_is_inbox(fresh, faults):
    faults.fail(namespace, "create_mailbox", StoreError(Problem.LIMIT), when=lambda _, name, **__: not name.is_inbox())
    assert firstuse.inbox(fresh, fresh.directory.find("carol")).name.is_inbox()


def test_names_of_ones_own(fresh):
    fresh.settings = evolve(fresh.settings, special_mailboxes=("sent=Gesendet", "TRASH", "junk = Mail/Junk"))
    firstuse.inbox(fresh, fresh.directory.find("carol"))
    assert uses(fresh, "carol") == {"\\Sent": "Gesendet", "\\Trash": "Trash", "\\Junk": "Mail/Junk"}


@pytest.mark.parametrize("wrong", [("All",), ("Sent", "sent"), ("Sent=X", "Trash=X"), ("Sent=INBOX",), ("Sent=a//b",),
                                   ("",), ("=X",), ("Inbox",), ("Trash=a%b",)])
def test_what_can_be_none(wrong):
    with pytest.raises(ValueError):
        Settings(special_mailboxes=wrong)


def test_none():
    assert special_names(()) == {} == Settings(special_mailboxes=()).special_names


def test_store_settings_of_tests_make_none(tmp_path: Path, store: Store):
    """So that what the other tests count is what they made."""
    assert store.settings.special_mailboxes == ()
