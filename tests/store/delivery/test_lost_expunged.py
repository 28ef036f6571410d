"""A file is lost or cut off of which all messages are expunged, and not purged yet: the same content is taken as if it
had never been there."""

import pytest

from store.check.wholecheck import check
from store.delivery.replacement import LostFile
from store.mailboxes.deletion import undelete_messages
from store.mailboxes.expunge import remove
from store.migration.messageimport import Contents, Known, add, new_rows
from store.rebuild.desired import new_mailbox
from store.values import InternalDate
from tests.store.delivery.test_missing_files import BOB, BODY, LONGER, TRACE, harm, octets
from tests.support.stores.stores import deliver


@pytest.mark.parametrize("undelete", [False, True])
@pytest.mark.parametrize("way", ["deliver", "import"])
@pytest.mark.parametrize("trace", [TRACE, LONGER, b""])
@pytest.mark.parametrize("cut", [False, True])
def test_it_is_taken(store, cut, trace, way, undelete):
    deliver(store, BODY, "user/bob/INBOX", trace=TRACE)
    entry = store.entry(BOB)
    remove(store, entry, [1])
    harm(store.partitions["primary"], cut=cut)
    if way == "deliver":
        deliver(store, BODY, "user/bob/INBOX", trace=trace)
        expected = trace + BODY
    else:
        contents = Contents(store.partitions["primary"])
        known = Known(contents.store([BODY]), len(BODY), InternalDate(1, 0))
        contents.keep()
        rows, keywords, there = new_rows(contents, [known])
        assert there == [True]
        add(store.partitions["primary"], entry, new_mailbox(entry.name, rows, keywords), all_of_them=True)
        contents.drop()
        expected = BODY
    assert octets(store) == [expected]
    store.partitions["primary"].files.drop_staged_names()
    assert octets(store) == [expected]
    if undelete:
        undelete_messages(store, entry)
        found = octets(store)
        assert found[0] == expected and all(each.endswith(BODY) for each in found)
    assert check(store) == []


def test_what_others_have_still_is_not_let_go_of(store):
    """Nobody can read it now, and the file may come back."""
    for user in ("alice", "bob"):
        deliver(store, BODY, f"user/{user}/INBOX", trace=TRACE)
    entry = store.entry(BOB)
    remove(store, entry, [1])
    path, kept = harm(store.partitions["primary"])
    outcome, = deliver(store, BODY, "user/bob/INBOX", trace=LONGER)
    assert isinstance(outcome, LostFile)
    path.write_bytes(kept)
    assert undelete_messages(store, entry) == [2] and octets(store) == [TRACE + BODY]
    assert check(store) == []
