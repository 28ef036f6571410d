"""What is on disk before it is acknowledged, at each level of the setting `sync`; and the files that are made ready."""

from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.engine.kv import Env
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable, severalmessages
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition.messagefiles import MessageFiles
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL, deliver, make_store

INBOX = MailboxName("alice", "INBOX")


@pytest.fixture
def calls(faults: Faults) -> list[str]:
    """The names of the syncs, as they happen."""
    seen: list[str] = []

    for owner, name, label in ((Staged, "sync", "file"), (MessageFiles, "sync_names", "names"), (Env, "flush", "log")):
        faults.before(owner, name, lambda *_, label=label: seen.append(label))
    return seen


def opened(root: Path, sync: str) -> Store:
    """A store with that level."""
    return make_store(root / "store", settings=evolve(SMALL, sync=sync))


@pytest.mark.parametrize(("sync", "delivery", "flag"), [
    ("everything", ["file", "names", "log"], ["log"]), ("messages", ["file", "names", "log"], []), ("none", [], [])])
def test_levels(tmp_path: Path, calls: list[str], sync: str, delivery: list[str], flag: list[str]) -> None:
    store = opened(tmp_path, sync)
    deliver(store, b"Subject: takes serials\r\n\r\n", str(INBOX))
    calls.clear()
    deliver(store, b"Subject: 1\r\n\r\nText\r\n", str(INBOX))
    assert calls == delivery
    calls.clear()
    entry = store.entry(INBOX)
    change_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.SEEN))
    offload.now(durable.flushed(store, entry))
    assert calls == flag
    assert check(store) == []
    store.close()


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="sync"):
        evolve(SMALL, sync="sometimes")


def test_a_message_in_a_file_made_ready_syncs_no_names(tmp_path: Path, calls: list[str]) -> None:
    store = opened(tmp_path, "everything")
    partition = store.partitions["primary"]
    partition.serials.make_ready()
    ready = partition.files.ready
    calls.clear()
    deliver(store, b"Subject: 1\r\n\r\nText\r\n", str(INBOX))
    assert calls == ["file", "log"] and partition.files.ready == ready - 1
    deliver(store, b"Subject: 1\r\n\r\nText\r\n", str(INBOX))              # its content is known: the file is not used
    assert partition.files.ready == ready - 1
    assert check(store) == []
    store.close()
    assert [path.name for path in partition.files.staging.iterdir()] == []


def test_messages_of_one_command_find_files_made_ready(tmp_path: Path, calls: list[str]) -> None:
    class AtOnce(durable.Durability):
        def make_ready(self, partition: Partition) -> None:
            partition.serials.make_ready()

    store = opened(tmp_path, "messages")
    partition, target = store.partitions["primary"], Target(store.entry(INBOX))
    store.owned.put(durable.Durability, AtOnce())
    partition.serials.make_ready()
    for round_ in range(6):
        messages = [_staged(store, b"Subject: %d %d\r\n\r\n" % (round_, number)) for number in range(50)]
        assert all(staged.named for staged in messages)
        calls.clear()
        offload.now(severalmessages.deliver_all(store, [(staged, target, None) for staged in messages]))
        # The next ones may come before these have been committed: so new files are made first.
        assert [call for call in calls if call != "names"] == ["file"] * 50 + ["log"]
        assert "names" not in calls[1:]
    assert store.status(store.entry(INBOX)).messages == 300
    store.close()


def test_what_was_made_ready_and_left_behind_is_swept(tmp_path: Path) -> None:
    store = opened(tmp_path, "everything")
    partition = store.partitions["primary"]
    partition.serials.make_ready()
    deliver(store, b"Subject: 1\r\n\r\nText\r\n", str(INBOX))
    partition.files._ready.clear()              # as a killed process leaves them
    store.close()
    assert list(partition.files.staging.iterdir())
    store = open_store(tmp_path / "store", SMALL)
    assert not list(partition.files.staging.iterdir())
    assert len(store.open_mailbox(store.entry(INBOX)).rows) == 1 and check(store) == []
    store.close()


def test_no_room_to_make_files_ready(tmp_path: Path, faults: Faults) -> None:
    store = opened(tmp_path, "everything")
    partition = store.partitions["primary"]
    faults.fail(MessageFiles, "sync_names", StoreError(Problem.DISK_FULL))
    with pytest.raises(StoreError):
        partition.serials.make_ready()
    faults.mend()
    assert partition.files.ready == 0 and not list(partition.files.staging.iterdir())
    outcome, = offload.now(durable.deliver(store, _staged(store), [Target(store.entry(INBOX))]))
    assert not isinstance(outcome, StoreError)
    store.close()


def _staged(store: Store, octets: bytes = b"Subject: 2\r\n\r\n") -> Staged:
    staged = store.stage(store.entry(INBOX))
    staged.write(octets)
    return staged
