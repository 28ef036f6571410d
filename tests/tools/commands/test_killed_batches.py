"""Commands that work in batches, killed and run again: in the end the work has been done once, and nothing is wrong
with the store. KILLS=20 tries so many moments of each; without it there is one, of the first only."""

import tempfile
import time
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.expiry.decide import DAY
from store.expiry.rulebook import set_mailbox
from store.mailboxes import deletion
from store.users.restorable import forget_user, undelete_user
from store.values import InternalDate
from tests.conftest import MEMORY
from tests.support.faults import killing
from tests.support.faults.killing import KILLS, kill_and_repeat
from tests.support.stores.stores import SMALL, deliver, make_store

NOW = int(time.time())
LARGE = b"0123456789abcdef" * 400 + b"\r\n"
BATCHES = {
    "store.expiry.work.BATCH": 3, "store.mailboxes.joining.CONTENTS_AT_A_TIME": 2, "store.mailboxes.joining.BATCH": 2}


def fill(root):
    store = make_store(root)
    for user in ("alice", "bob"):
        for number, age in enumerate(range(40, 28, -1)):
            deliver(store, b"Received: for %s\r\nFrom: a@example.org\r\nSubject: %d\r\n\r\n" % (user.encode(), number)
                    + LARGE, f"user/{user}/INBOX", received=InternalDate(NOW - age * DAY))
    return store


def texts(store):
    """Each message by its mailbox and its date, and how many there are: none is there twice."""
    found, count = {}, 0
    for entry in list(store.mailboxes.all()):
        box = store.open_mailbox(entry)
        for row in box.rows:
            count += 1
            with store.open_message(box.entry, row) as file:
                found[str(entry.name), int(row["received"])] = file.read(0, file.size)
    assert count == len(found)
    return found


def expire_before(store):
    for user in ("alice", "bob"):
        set_mailbox(store, store.entry(MailboxName(user, "INBOX")),
                    "many.messagecount: 3\nold.messagedays: 36\nold.action: fileinto:Old\n")
    before = texts(store)
    kept = {(f"user/{user}/INBOX", NOW - age * DAY) for user in ("alice", "bob") for age in (31, 30, 29)}
    filed = {(f"user/{user}/Old", NOW - age * DAY): before[f"user/{user}/INBOX", NOW - age * DAY]
             for user in ("alice", "bob") for age in range(40, 35, -1)}
    return {key: text for key, text in before.items() if key in kept} | filed


def relink_after(store):
    assert sum(bool(record.references) for _, record in store.partitions["primary"].refs.all()) == 12


def undelete_before(store):
    expected = texts(store)
    forget_user(store, "alice")
    return expected


def undelete_after(store):
    assert store.directory.find("alice") is not None
    with pytest.raises(Exception, match="has not been removed"):
        undelete_user(store, "alice")


def purge_before(store):
    deletion.delete_mailbox(store, MailboxName("alice", "INBOX"), even_inbox=True)
    return texts(store)


def purge_after(store):
    assert len(list(store.partitions["primary"].refs.all())) == 12
    assert len(list(store.partitions["primary"].files.folder.glob("?/??/*"))) == 12


@pytest.mark.parametrize(("words", "before", "after"), [
    (("expire", "--all"), expire_before, lambda store: None),
    (("relink",), texts, relink_after),
    (("user", "undelete", "alice"), undelete_before, undelete_after),
    (("purge", "--older-than", "0", "--yes"), purge_before, purge_after),
][:None if KILLS else 1], ids=lambda value: "-".join(value[:2]) if isinstance(value, tuple) else "")
def test_killed_and_run_again(tmp_path, words, before, after):
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY) as folder:
        start = Path(folder) / "start"
        store = fill(start / "store")
        expected = before(store)
        store.close()

        def look(store, here):
            """What is there must not only be what a run in peace leaves, but what these commands are for."""
            assert texts(store) == expected
            after(store)

        kill_and_repeat(start, tmp_path, *words, look=look, kills=1, seed=len(words[0]), settings=SMALL,
                        statuses=(0, 1) if "undelete" in words else (0,), batches=BATCHES)


def test_small_batches_are_more_transactions(tmp_path):
    """And so more moments, which then are nothing else."""
    fill(tmp_path / "start" / "store").close()
    moments = []
    for batches in ({name: 1000 for name in BATCHES}, BATCHES):
        with killing.copied(tmp_path / "start", tmp_path) as here:
            done = killing.run(here, ["relink"], batches=batches)
            assert done.status == 0, done.error
            moments.append(done.moments)
    assert 0 < moments[0] < moments[1]
