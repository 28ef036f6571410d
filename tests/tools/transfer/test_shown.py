"""UIDNEXT that a client has been told does not go down (RFC 9051 §2.3.1.1), though the mailbox is being brought from
another server, and an unclean end came in between."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from imap.protocol import factory
from imap.settings import Settings
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.store import Store
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import make_store, reopen_after_crash
from tests.tools.transfer.test_importmail import Killed, Old, contents, fill, take
from tools.transfer import importmail

OLD = MailboxName("alice", "Old")


@pytest.fixture
def cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, Old]:
    """A store in which an import has brought the first of several pieces when the machine stopped."""
    monkeypatch.setattr(importmail, "SLICE_MESSAGES", 4)
    store, old = make_store(tmp_path / "store"), Old(dies=6)
    fill(old, 20)
    with pytest.raises(Killed):
        take(store, old)
    store = reopen_after_crash(store)
    old.dies = 1 << 30
    return store, old


def ask(store: Store, command: str) -> list[int]:
    """The UIDNEXTs in what a client is told."""
    clock = Clock()
    wire = Wire(factory(store, Settings(), clock, None), clock)
    wire.send(b"a LOGIN alice secret\r\n")
    wire.received()
    wire.send(f"b {command}\r\n".encode())
    said = wire.received().decode()
    assert "\r\nb OK" in said
    wire.hang_up()
    return [int(found) for found in re.findall(r"UIDNEXT (\d+)", said)]


@pytest.mark.parametrize("command", ["STATUS Old (UIDNEXT)", "EXAMINE Old", "SELECT Old",
                                     'LIST "" * RETURN (STATUS (UIDNEXT))'])
@pytest.mark.parametrize("ends", [0, 2])
def test_what_was_shown_stays(cut_off: tuple[Store, Old], command: str, ends: int) -> None:
    store, old = cut_off
    shown = max(ask(store, command))
    for _ in range(ends):
        store = reopen_after_crash(store)
    taken, _ = take(store, old)
    view = store.open_mailbox(store.entry(OLD))
    new = view.rows["uid"][4:]
    assert len(new) and new.min() >= shown              # what came later has UIDs from there on
    assert min(ask(store, "STATUS Old (UIDNEXT)")) > shown
    assert taken.well and contents(store) == old.contents()
    assert check(store) == []
    store.close()


def looked_at_the_messages(store: Store) -> None:
    assert ask(store, "STATUS Old (MESSAGES UIDVALIDITY)") == []


def looked_at_another(store: Store) -> None:
    assert ask(store, "STATUS INBOX (UIDNEXT)") != []


@pytest.mark.parametrize("meanwhile", [lambda store: None, looked_at_the_messages, looked_at_another])
def test_what_was_not_shown_is_taken_back(cut_off: tuple[Store, Old], meanwhile: Callable[[Store], None]) -> None:
    store, old = cut_off
    meanwhile(store)
    assert take(store, old)[0].well
    assert store.open_mailbox(store.entry(OLD)).rows["uid"].tolist() == sorted(old.there)
    assert ask(store, "STATUS Old (UIDNEXT)") == [old.following]
    assert check(store) == []
    store.close()
