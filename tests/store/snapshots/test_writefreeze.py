"""The store held still: nothing begins while it is, and it always goes on."""

import os
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

from mboxlist.engine.freezegate import Quiesced, ShutAlready, WriteFreeze
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import NotAtOnce, Problem, StoreError
from store.mailboxes import namespace, subscribing
from store.opening import open_store
from store.snapshots import writefreeze
from store.snapshots.writefreeze import frozen
from tests.support import ROOT
from tests.support.stores.stores import SMALL, deliver

ALICE = "user/alice/INBOX"
BODY = b"Subject: x\r\n\r\nx\r\n"


def image(store):
    """The databases and message files, octet for octet; the shared memory is nobody's business."""
    return {str(path): path.read_bytes() for path in sorted(store.root.rglob("*"))
            if path.is_file() and not path.name.startswith("__db.") and "run" not in path.parts}


def test_nothing_is_written_while_it_is_held_still(store):
    deliver(store, BODY, ALICE)
    done = []

    def write():
        namespace.create_mailbox(store, MailboxName.parse("user/alice/New"))
        done.append(1)

    thread = threading.Thread(target=write)
    with frozen(store, 600):
        before = image(store)
        thread.start()
        thread.join(0.3)                        # it looks whether it is held still for nothing, too
        for env in (store.mailboxes.env, store.partitions["primary"].env):
            env.checkpoint()                    # what the housekeeper does meanwhile
            assert env.drop_logs() == 0
        assert store.status(store.entry(MailboxName.parse(ALICE))).messages == 1        # reading goes on
        assert image(store) == before
        assert not done
    thread.join(180)
    assert done


def test_the_databases_are_whole_without_their_logs(store, tmp_path):
    """Everything is in the pages: they need no recovery."""
    from mboxlist.engine.btree import salvage
    from mboxlist.engine.hotcopy import faults
    for number in range(30):
        deliver(store, b"Subject: %d\r\n\r\nx\r\n" % number, ALICE)
    folder = store.partitions["primary"].folder / "index"
    copy = tmp_path / "copy"
    copy.mkdir()
    with frozen(store, 600):
        for path in folder.glob("*.db"):
            (copy / path.name).write_bytes(path.read_bytes())
    assert len(list(salvage(copy / "messages.db"))) == 30
    assert faults(copy) == []


def test_messages_that_were_committed_have_their_names(store):
    deliver(store, BODY, ALICE)
    partition = store.partitions["primary"]
    placed = next(path for path in partition.files.folder.glob("?/??/*"))
    placed.unlink()                             # as if the process that has committed it had not come to that yet
    with frozen(store, 600):
        assert placed.read_bytes() == BODY


def test_one_who_waits_goes_on_when_who_held_it_dies(store):
    code = ("import sys, time\nfrom pathlib import Path\nfrom store.opening import open_store\n"
            "from store.snapshots.writefreeze import frozen\nfrom tests.support.stores.stores import SMALL\n"
            "store = open_store(Path(sys.argv[1]), SMALL)\n"
            "with frozen(store, 3600):\n    print('held', flush=True)\n    sys.stdin.read()\n")
    child = subprocess.Popen([sys.executable, "-c", code, str(store.root)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout.readline() == b"held\n"
    with pytest.raises(StoreError) as refused, frozen(store, 1):
        pass
    assert refused.value.problem is Problem.BUSY
    done = threading.Event()
    thread = threading.Thread(target=lambda: (deliver(store, BODY, ALICE), done.set()))
    thread.start()
    assert store.write_freeze.shut
    assert not done.is_set()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert done.wait(180)
    thread.join()
    (path,) = [path for path in (store.root / "run" / "inside").iterdir() if path.name.startswith(f"{child.pid}.")]
    path.unlink()                               # or the fixture's store would have to be recovered


def test_what_takes_too_long_is_not_waited_for(store, monkeypatch):
    monkeypatch.setattr(writefreeze, "PATIENCE", 0.01)
    txn = store.mailboxes.env.begin()
    with pytest.raises(StoreError) as refused, frozen(store, 600):
        pass
    assert refused.value.problem is Problem.BUSY
    txn.abort()
    assert not store.write_freeze.shut
    deliver(store, BODY, ALICE)


def test_who_holds_it_for_too_long_is_told(store):
    """The store has gone on by itself: what was copied meanwhile may be torn."""
    with pytest.raises(StoreError) as refused, frozen(store, 600):
        store.write_freeze._shared[:8] = struct.pack("<d", time.time() - 1)      # the time is over
        deliver(store, BODY, ALICE)
    assert refused.value.problem is Problem.BUSY and "has gone on" in refused.value.public


def test_an_event_loop_does_not_wait(store):
    inbox = store.entry(MailboxName.parse(ALICE))
    deliver(store, BODY, ALICE)
    store.write_freeze.never_waits()
    with frozen(store, 600):
        with pytest.raises(NotAtOnce):
            store.claim_recent(inbox)
        with pytest.raises(Quiesced):
            subscribing.subscribe(store, "alice", "INBOX")
        assert store.open_mailbox(inbox).state.messages == 1
        thread = threading.Thread(target=store.claim_recent, args=(inbox,))
        thread.start()                                                  # in a thread it waits
        thread.join(0.1)
        assert thread.is_alive()
    thread.join(180)
    assert store.status(inbox).recent == 2


def test_a_gate(tmp_path):
    one, other = WriteFreeze(tmp_path / "gate"), WriteFreeze(tmp_path / "gate")
    assert not one.shut
    with one.keep_shut(60):
        assert other.shut
        with pytest.raises(ShutAlready), other.keep_shut(60):
            pass
        other._open_if_deserted()
        assert other.shut
    assert not other.shut
    with one.keep_shut(-1):
        assert not other.shut                   # its time is over
    one._shared[:8] = b"\x42" * 8                # of who has died
    assert other.shut
    other.wait()
    assert not one.shut
    one.close()
    other.close()


def test_a_process_that_comes_in_meanwhile_waits(store):
    opened = []

    def come():
        other = open_store(store.root, SMALL)
        opened.append(other)

    thread = threading.Thread(target=come)
    with frozen(store, 600):
        thread.start()
        thread.join(0.1)
        assert not opened
    thread.join(180)
    assert check(opened[0]) == []
    opened[0].close()
