"""A promoted standby is the store as it was at one moment, and no UID comes again."""

import itertools
import json
import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import StoreError
from store.mailboxes import namespace
from store.opening import make_empty_store, open_store
from store.operations import clockrecord
from store.partition.messagefiles import MessageFiles
from store.rebuild import emptying
from store.snapshots import reset
from store.standby import longfollowing, promotion, standbystate
from store.standby.sourcepeer import PLACES, SourcePeer
from store.store import Store
from store.tables.state import UID_SKIP
from store.usermove.messageformat import Message
from tests.support.stores.standbypair import INBOX, Standby, is_equal, promoted, work
from tests.support.stores.stores import SMALL, deliver
from tests.support.stores.whole import everything

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


def test_no_uid_comes_again(store: Store, standby: Standby) -> None:
    """Not even those of messages that came when the standby was away."""
    standby.create()
    work(store, 1)
    lost = store.open_mailbox(store.entry(INBOX)).state
    with closing(promoted(standby)) as other:
        found, = deliver(other, b"Subject: after\r\n\r\n", str(INBOX))
        state = other.open_mailbox(other.entry(INBOX)).state
        assert found.uid > lost.uidnext
        assert state.highestmodseq > lost.highestmodseq
        made = namespace.create_mailbox(other, MailboxName("alice", "Made1"))
        lately = store.entry(MailboxName("alice", "Renamed1"))
        assert made.id > lately.id and made.uidvalidity > lately.uidvalidity


def test_a_standby_that_was_long_behind_skips_more(store: Store, standby: Standby) -> None:
    """The other machine may have given out so many UIDs meanwhile. What it has given out is not known here; for how
    long it may have, is."""
    standby.create()
    with closing(promoted(standby)) as other:
        usual, = deliver(other, b"Subject: after\r\n\r\n", str(INBOX))
    shutil.rmtree(standby.root)
    standby.create()
    (standby.root / "run").mkdir(exist_ok=True)
    (standby.root / longfollowing.SEEN).write_text(json.dumps({
        "current": time.time() - 86_400, "monotonic": 0, "boot": "another"}))
    with closing(promoted(standby)) as other:
        found, = deliver(other, b"Subject: after\r\n\r\n", str(INBOX))
        assert found.uid - usual.uid > 86_400 * 1000
        ids = other.entry(INBOX)
        made = namespace.create_mailbox(other, MailboxName("alice", "Later"))
        assert ids.uidvalidity < made.uidvalidity < ids.uidvalidity + (1 << 24)     # these do not run out


def test_two_standbys_never_skip_to_one_place() -> None:
    """However long each was behind; and 15 promotions leave UIDs (RFC 9051 §2.3.1.1)."""
    late = [0.0, 299.0, 301.0, *(hours * 3600.0 for hours in (1, 7, 9, 17, 25, 63, 65, 1000, 100_000))]
    for place, other in itertools.combinations(range(PLACES + 1), 2):
        assert not {promotion.skipped(place, behind) for behind in late} & {
            promotion.skipped(other, behind) for behind in late}
    assert sorted(late) == sorted(late, key=lambda behind: promotion.skipped(3, behind))
    assert 15 * promotion.UNCLEAN_ENDS * UID_SKIP * promotion.skipped(7, late[-1]) < 1 << 32


def test_a_promotion_without_the_last_round(store: Store, standby: Standby) -> None:
    """What was being written then is cut off: all is as it was at one moment."""
    standby.create()
    work(store, 1)
    standby.follow()
    known = everything(store)
    work(store, 2)
    state = standbystate.read(standby.root)
    assert state is not None
    standby.follow()
    state.save(standby.root)            # as if it had been killed before that
    with closing(promoted(standby)) as other:
        assert everything(other) == known
        assert check(other) == []


def test_what_had_not_come_whole_goes(store: Store, standby: Standby) -> None:
    """Files that were being written when the process that followed was killed."""
    standby.create()
    message = Path(MessageFiles(standby.root / "partitions/primary").path(bytes(32)))
    left = [standby.root / "audit/head.new", standby.root / "access/1.new", message.with_name(f"{message.name}.new")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    with closing(promoted(standby)) as other:
        assert check(other) == []
    assert not any(path.exists() for path in left)


def test_the_clock_is_believed_as_where_it_was(store: Store, standby: Standby) -> None:
    """It may have the record of its own clock of weeks ago, when it was the first one: nothing would be purged for a
    week after each change of machines. Without any, a clock that is years ahead would be believed."""
    standby.create()
    clockrecord.trust(standby.root, time.time() - 30 * 86_400)
    with closing(promoted(standby)) as other:
        assert not clockrecord.is_ahead(other.root)
        assert clockrecord.is_ahead(other.root, time.time() + 30 * 86_400)


def test_nobody_opens_a_standby(standby: Standby) -> None:
    standby.create()
    with pytest.raises(StoreError, match="onecopy standby promote"):
        open_store(standby.root, SMALL)
    with pytest.raises(StoreError, match="There is a store"):
        make_empty_store(standby.root)
    for nobody_else in (reset.nobody_else, emptying.nobody_else):       # `snapshot restore`, `reconstruct --all`
        with pytest.raises(StoreError, match="onecopy standby promote"), nobody_else(standby.root):
            pass


def test_a_promotion_that_is_cut_off_is_done_again(store: Store, standby: Standby,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    standby.create()
    work(store, 1)
    standby.follow()
    for name in ("_go_ahead", "sync_folder"):
        with monkeypatch.context() as patched:
            def cut(*arguments: object) -> None:
                raise OSError(5, "cut")

            patched.setattr(promotion, name, cut)
            with pytest.raises(StoreError):
                promotion.promote(standby.root)
    with closing(promoted(standby)) as other:
        is_equal(store, other)


@pytest.mark.parametrize("place", [0, PLACES])
def test_each_place_can_be_had_the_last_one_too(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    monkeypatch.setattr(SourcePeer, "_ask", lambda self, fields: Message({"place": place}))
    assert SourcePeer.__new__(SourcePeer).place("b.example.org") == place
