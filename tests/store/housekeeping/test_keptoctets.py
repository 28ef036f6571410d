"""What a partition keeps, and would keep without single copy, counted some rows at a time."""

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.housekeeping import keptoctets
from store.housekeeping.tasks import Round, Task
from store.mailboxes.copymessages import copy_messages
from store.metrics.processcounters import Counters
from tests.support.stores.stores import deliver, make_store


def test_unique_and_referenced(tmp_path, monkeypatch):
    monkeypatch.setattr(keptoctets, "ROWS", 2)
    monkeypatch.setattr(keptoctets, "PARTS", 3)
    store = make_store(tmp_path / "store", ("alice", "bob"))
    for number in range(9):
        deliver(store, b"Subject: %d\r\n\r\n" % number + b"x" * number, "user/alice/INBOX")
    entry = store.entry(MailboxName("alice", "INBOX"))
    uids = store.open_mailbox(entry).uids
    copy_messages(store, entry, store.entry(MailboxName("bob", "INBOX")), uids[:4])
    rows = store.open_mailbox(entry).rows
    stored = [int(row["size"]) + int(row["header_length"]) for row in rows]

    counting = keptoctets.Counting()
    task = Round(Task("octets", 1, counting.items, counting.work), store)

    def finish():
        while task.step() is not None:
            pass

    finish()
    assert "primary" not in Counters.of(store).octets           # 6 of 9: no more in one round
    finish()
    found = Counters.of(store).octets["primary"]
    assert (found.files, found.references) == (9, 13)
    assert (found.unique, found.referenced) == (sum(stored), sum(stored) + sum(stored[:4]))
    finish()
    finish()
    again = Counters.of(store).octets["primary"]
    assert (again.files, again.unique) == (found.files, found.unique) and again.when >= found.when
    assert check(store) == []
    store.close()
