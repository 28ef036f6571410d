"""Commands that are killed (SIGKILL, in a process of their own) before any of their transactions, and run again: in the
end the work has been done once, and nothing is wrong with the store. COMMAND_KILLS=20 kills each command
so often; without it only the first is killed, once."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from mboxlist.names import MailboxName
from store.check import check
from store.expiry.decide import DAY
from store.expiry.rulebook import set_mailbox
from store.forgotten import undelete_user
from store.store import Store
from store.users import forget_user
from store.values import InternalDate
from tests.support.stores import SMALL, deliver, make_store

KILLS = int(os.environ.get("COMMAND_KILLS", "1"))
NOW = int(time.time())
LARGE = b"0123456789abcdef" * 400 + b"\r\n"
CHILD = """
import os, signal, sys
import mboxlist.kv, store.expiry.work, store.joining
store.expiry.work.BATCH, store.joining.PIECE, store.joining.BATCH = 3, 2, 2
left, real = int(sys.argv[1]), mboxlist.kv.Env.begin
def begin(self, **options):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, **options)
mboxlist.kv.Env.begin = begin
from tools.cli import main
sys.exit(main(sys.argv[2:]))
"""


def command(root, kill_at, *words):
    return subprocess.run([sys.executable, "-P", "-c", CHILD, str(kill_at), *words, "--root", str(root)], check=False,
                          env={**os.environ, "ONECOPY_STORE_SPECIAL_MAILBOXES": ""}, cwd=root.parent,
                          capture_output=True, text=True)


def fill(root):
    store = make_store(root)
    for user in ("alice", "bob"):
        for number, age in enumerate(range(40, 28, -1)):
            deliver(store, b"Received: for %s\r\nFrom: a@example.org\r\nSubject: %d\r\n\r\n" % (user.encode(), number)
                    + LARGE, f"user/{user}/INBOX", received=InternalDate(NOW - age * DAY))
    return store


def texts(store):
    found = {}
    for entry in list(store.mailboxes.all()):
        box = store.open_mailbox(entry)
        for row in box.rows:
            with store.open_message(box.entry, row) as file:
                found[str(entry.name), int(row["received"])] = file.read(0, file.size)
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


def expire_after(store, expected):
    assert texts(store) == expected
    sizes = [len(store.open_mailbox(store.entry(MailboxName(user, "Old"))).rows) for user in ("alice", "bob")]
    assert sizes == [5, 5]                              # none twice


def relink_after(store, expected):
    assert texts(store) == expected
    assert sum(bool(record.references) for _, record in store.partitions["primary"].refs.all()) == 12


def undelete_before(store):
    expected = texts(store)
    forget_user(store, "alice")
    return expected


def undelete_after(store, expected):
    assert texts(store) == expected and store.directory.find("alice") is not None
    with pytest.raises(Exception, match="has not been removed"):
        undelete_user(store, "alice")


def purge_before(store):
    store.delete_mailbox(MailboxName("alice", "INBOX"), even_inbox=True)
    return texts(store)


def purge_after(store, expected):
    assert texts(store) == expected
    assert len(list(store.partitions["primary"].refs.all())) == 12
    assert len(list(store.partitions["primary"].files.folder.glob("?/??/*"))) == 12


# `most`: how many transactions the command has, or a few less.
@pytest.mark.parametrize(("words", "before", "after", "most"), [
    (("expire", "--all"), expire_before, expire_after, 22),
    (("relink",), texts, relink_after, 45),
    (("user", "undelete", "alice"), undelete_before, undelete_after, 11),
    (("purge", "--older-than", "0", "--yes"), purge_before, purge_after, 20),
][:None if "COMMAND_KILLS" in os.environ else 1],
    ids=lambda value: (
        "-".join(value[:2]) if isinstance(value, tuple) else ""))
def test_killed_and_run_again(tmp_path, words, before, after, most):
    chance = random.Random(" ".join(words))
    root = tmp_path / "store"
    store = fill(root)
    expected = before(store)
    store.close()
    killed = 0
    for _ in range(KILLS):
        killed += command(root, chance.randint(4, most), *words).returncode == -signal.SIGKILL
    assert killed
    command(root, 0, *words)
    again = command(root, 0, *words)
    assert again.returncode in ((1,) if "undelete" in words else (0,)), again.stderr
    store = Store(root, SMALL)
    after(store, expected)
    assert check(store) == []
    store.close()
