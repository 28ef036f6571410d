"""What a `store.idx` says that the databases do not is neither replaced by what is older nor swept, and no mailbox is
made where it stands."""

import logging
from pathlib import Path

import pytest

from mboxlist.engine.transact import transact
from mboxlist.names import INBOX, MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.mailboxes import deletion, firstuse, namespace
from store.recovery import userareacheck
from store.store import Store
from store.tables.index import chunk_key
from store.tables.state import state_key
from store.userarea import idxreading, writing
from store.userarea.paths import place, place_of_deleted
from tests.support.stores.stores import deliver

NAME = MailboxName("alice", INBOX)


def texts(store: Store, name: MailboxName) -> dict[int, bytes]:
    """The messages of a mailbox by UID."""
    entry, found = store.entry(name), {}
    for row in store.open_mailbox(entry).rows:
        with store.open_message(entry, row) as file:
            found[int(row["uid"])] = file.read(0, file.size)
    return found


def lose_row(store: Store, name: MailboxName) -> None:
    """The row of the list is gone, as a damaged page takes it."""
    key = str(name).encode().replace(b"/", b"\x01")
    assert transact(store.mailboxes.env, lambda txn: store.mailboxes._mailboxes.delete(key, txn))


@pytest.mark.parametrize("name", [NAME, MailboxName("alice", "Archive")])
def test_a_mailbox_whose_row_is_lost_is_brought_back_and_not_made(store: Store, name: MailboxName,
                                                                  caplog: pytest.LogCaptureFixture) -> None:
    if not name.is_inbox():
        namespace.create_mailbox(store, name)
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(name))
    writing.write_changed(store, hurry=True)
    before, entry = texts(store, name), store.entry(name)
    lose_row(store, name)
    if name.is_inbox():
        firstuse.inbox(store, store.directory.find("alice"))
    else:
        with pytest.raises(StoreError) as refused:
            namespace.create_mailbox(store, name)
        assert refused.value.problem is Problem.MAILBOX_EXISTS
    assert texts(store, name) == before and store.entry(name).uidvalidity == entry.uidvalidity
    assert any(str(name) in line and "there again" in line for line in caplog.messages)
    writing.write_changed(store, hurry=True)
    assert check(store) == []


def test_a_mailbox_of_which_nothing_but_the_file_is_left_is_not_made_anew(store: Store,
                                                                          caplog: pytest.LogCaptureFixture) -> None:
    deliver(store, b"Subject: 1\r\n\r\n", str(NAME))
    writing.write_changed(store, hurry=True)
    entry, partition = store.entry(NAME), store.partitions["primary"]
    state = partition.states.get(state_key(entry.id))
    lose_row(store, NAME)
    transact(partition.env, lambda txn: partition.states.delete(state_key(entry.id), txn))
    with pytest.raises(StoreError) as refused:
        firstuse.inbox(store, store.directory.find("alice"))
    assert refused.value.problem is Problem.UNAVAILABLE
    assert any("onecopy reconstruct" in line and str(NAME) in line for line in caplog.messages)
    assert place(partition, NAME).exists()
    transact(partition.env, lambda txn: partition.states.put(state_key(entry.id), state, txn))
    firstuse.inbox(store, store.directory.find("alice"))


def test_the_file_of_a_mailbox_that_damage_took_out_of_the_list_is_not_swept(store: Store) -> None:
    deliver(store, b"Subject: 1\r\n\r\n", str(NAME))
    writing.write_changed(store, hurry=True)
    path = place(store.partitions["primary"], NAME)
    lose_row(store, NAME)
    userareacheck.sweep(store, store.partitions["primary"])
    assert path.exists()
    firstuse.inbox(store, store.directory.find("alice"))


def test_the_file_of_a_mailbox_that_was_deleted_is_swept(store: Store) -> None:
    """As a process leaves it that is killed before it takes the file away."""
    name = MailboxName("alice", "Gone")
    entry = namespace.create_mailbox(store, name)
    deliver(store, b"Subject: 1\r\n\r\n", str(name))
    writing.write_changed(store, hurry=True)
    path = place(store.partitions["primary"], name)
    octets = path.read_bytes()
    deletion.delete_mailbox(store, name)
    deletion.purge_mailbox(store, next(iter(deletion.due_mailboxes(store, 1 << 33))))
    writing.write_changed(store, hurry=True)
    path.parent.mkdir()
    path.write_bytes(octets)
    assert idxreading.read_head(path).id == entry.id
    userareacheck.sweep(store, store.partitions["primary"])
    assert not path.exists()
    assert namespace.create_mailbox(store, name).id != entry.id


def test_the_purge_takes_the_file_of_a_mailbox_away_at_once(store: Store) -> None:
    """Else it brings the mailbox back when databases are rebuilt before housekeeping comes."""
    name = MailboxName("alice", "Gone")
    entry = namespace.create_mailbox(store, name)
    deliver(store, b"Subject: 1\r\n\r\n", str(name))
    deletion.delete_mailbox(store, name)
    writing.write_changed(store, hurry=True)
    path = place_of_deleted(store.partitions["primary"], entry.id)
    assert path.exists()
    assert deletion.purge_mailbox(store, entry.id) == 1
    assert not path.exists()
    assert check(store) == []


def test_a_file_that_is_newer_than_its_mailbox_stays_and_gives_it_what_it_lacks(store: Store, tmp_path: Path,
                                                                                caplog: pytest.LogCaptureFixture
                                                                                ) -> None:
    """The rows of a mailbox are as they were some deliveries ago."""
    caplog.set_level(logging.WARNING)
    partition, entry = store.partitions["primary"], store.entry(NAME)
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(NAME))
    rows = [(partition.states, state_key(entry.id)), (partition.index, chunk_key(entry.id, 0))]
    then = [(table, key, table.get(key)) for table, key in rows]
    for number in range(3, 6):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(NAME))
    writing.write_changed(store, hurry=True)
    before = texts(store, NAME)
    transact(partition.env, lambda txn: [table.put(key, value, txn) for table, key, value in then])
    partition.unwritten.changed.add(entry.id)
    path = place(partition, NAME)
    octets = path.read_bytes()
    writing.write_changed(store, hurry=True)
    assert path.read_bytes() == octets
    for item in tasks._damaged(store):
        tasks._repair(store, item)
    assert texts(store, NAME) == before
    kept = list((partition.folder / "set-aside").iterdir())
    assert [each.read_bytes() for each in kept] == [octets]
    assert any(str(kept[0].parent) in line for line in caplog.messages)
    writing.write_changed(store, hurry=True)
    assert check(store) == []
    deliver(store, b"Subject: new\r\n\r\n", str(NAME))
    assert max(texts(store, NAME)) > max(before)
