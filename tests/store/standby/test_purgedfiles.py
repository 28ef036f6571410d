"""What is purged at the machine that serves goes at the standby, too, and never earlier than its databases say."""

import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from mboxlist.engine import hotcopy, kv
from store.check.wholecheck import check
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import digest_in
from store.standby import applying, longfollowing, purgedfiles, standbystate
from store.standby.following import Follower
from store.standby.purgedfiles import Purging
from store.standby.reading import readingstate
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge
from tests.support.stores.standbypair import INBOX, Standby, is_equal, promoted, work
from tests.support.stores.stores import deliver

pytestmark = [pytest.mark.long, pytest.mark.few_folders]
OCTETS = b"Subject: gone\r\n\r\nGone.\r\n"


def digests(root: Path) -> set[bytes]:
    """Those of all message files that have their place."""
    files = MessageFiles(root / "partitions/primary")
    return {digest for folder in files.folders() for path in Path(folder).glob("*") if (digest := digest_in(path.name))}


@pytest.fixture(autouse=True)
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kv, hotcopy, applying):
        monkeypatch.setattr(module, "LOG_FILE", 256 << 10)
    monkeypatch.setattr(kv, "LOG_BUFFER", 32 << 10)


def go_on(store: Store) -> None:
    """What the log has until now is not needed any more by a recovery."""
    env, inbox = store.partitions["primary"].env, store.entry(INBOX)
    before, uids = env.log_end()[0], store.open_mailbox(inbox).rows["uid"].tolist()
    for action in itertools.cycle((FlagAction.ADD, FlagAction.REMOVE)):
        change_flags(store, inbox, uids, action, Flags(Flag.SEEN))
        if env.log_end()[0] > before:
            break
    env.checkpoint()


def purge_one(store: Store) -> bytes:
    """A message comes, is expunged, and is purged: its digest."""
    deliver(store, OCTETS, str(INBOX))
    row = store.open_mailbox(store.entry(INBOX)).rows[-1]
    digest = bytes(row["digest"])
    remove(store, store.entry(INBOX), [int(row["uid"])])
    return digest


def purge_all(store: Store) -> None:
    shutil.rmtree(store.root / "snapshots")         # what they have stays
    assert purge(store.partitions["primary"], time.time() + 1e9)
    go_on(store)


def take_over(root: Path) -> standbystate.StandbyState:
    """The tables take over what the logs have, and what they do not know is looked for."""
    state = standbystate.read(root)
    assert state is not None
    applying.apply(root, state)
    purgedfiles.note_unknown(root, state)
    applying.applied(root, state, state)
    return state


@pytest.fixture
def gone(store: Store, standby: Standby) -> Iterator[bytes]:
    """A message that the standby has, and which is purged at the other machine. All else is as it was, afterwards."""
    standby.create()
    work(store, 1)
    digest = purge_one(store)
    standby.follow()
    assert digest in digests(standby.root)
    yield digest
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_a_purged_file_goes_when_the_tables_know_it_no_more(store: Store, standby: Standby, gone: bytes) -> None:
    purge_all(store)
    there = digests(standby.root)
    work_left = Purging(standby.root)
    work_left.begin(take_over(standby.root))        # the tables know it still: the purge has not come
    assert not work_left.is_under_way
    standby.follow()
    assert digests(standby.root) == there
    work_left.begin(take_over(standby.root))
    while work_left.is_under_way:
        work_left.step()
    assert gone not in digests(standby.root)
    assert digests(standby.root) == digests(store.root)


def test_one_look_notes_no_more_than_it_may(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held in memory does not grow with what has been purged: the next look finds the rest."""
    standby.create()
    for number in range(5):
        deliver(store, b"Subject: gone %d\r\n\r\n" % number, str(INBOX))
    uids = store.open_mailbox(store.entry(INBOX)).rows["uid"].tolist()
    remove(store, store.entry(INBOX), uids[-5:])
    standby.follow()
    purge_all(store)
    standby.follow()
    monkeypatch.setattr(purgedfiles, "MOST", 2)
    purges, looks = Purging(standby.root), list[int]()
    while not looks or not purges.is_all:
        purges.begin(take_over(standby.root))
        looks.append(sum(map(len, purges._left.values())))
        while purges.is_under_way:
            purges.step()
    assert max(looks) == 2 and len(looks) >= 3
    assert digests(standby.root) == digests(store.root)


@pytest.mark.parametrize("when", ["before it is looked at", "after"])
def test_a_message_that_comes_again_stays(store: Store, standby: Standby, gone: bytes, when: str) -> None:
    """Its file is not sent again where it is there still."""
    purge_all(store)
    standby.follow()
    state, purges = take_over(standby.root), Purging(standby.root)
    with standby.following() as follower:
        follower.came = purges.came
        if when == "after":
            purges.begin(state)
            assert purges.is_under_way
        deliver(store, OCTETS, str(INBOX))
        follower.round(0)
        if when != "after":
            follower.finish()
            purges.begin(state)
        assert not any(gone in left for left in purges._left.values())
        while purges.is_under_way:
            purges.step()
        follower.finish()
    assert gone in digests(standby.root)


def test_nothing_goes_that_a_copy_for_reading_has(store: Store, standby: Standby, gone: bytes, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purgedfiles, "LOOK", 0)
    old, new = tmp_path / "old", tmp_path / "new"
    readingstate.make(standby.root, old)
    purge_all(store)
    standby.follow()
    purges = Purging(standby.root)
    purges.begin(take_over(standby.root))
    purges.step()
    assert gone in digests(standby.root)
    readingstate.make(standby.root, new)
    purges.step()
    assert gone in digests(standby.root)
    readingstate.make(standby.root, old)        # in the place of the earlier one
    purges.step()
    assert gone not in digests(standby.root)


def test_who_follows_does_it_by_itself(store: Store, standby: Standby, gone: bytes, monkeypatch: pytest.MonkeyPatch
                                       ) -> None:
    purge_all(store)
    monkeypatch.setattr(longfollowing, "APPLY_OCTETS", 1)
    monkeypatch.setattr(longfollowing, "WAIT", 0.01)
    asked = itertools.count()

    class Until:
        def is_set(self) -> bool:
            return gone not in digests(standby.root) or next(asked) > 500

        def wait(self, seconds: float) -> bool:
            return False

    with ExitStack() as stack:
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    Until()).run()      # type: ignore[arg-type]
    assert gone not in digests(standby.root)


def test_what_follows_hears_of_all_that_comes(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is little, or comes piece by piece."""
    standby.create()
    for much in (False, True):
        heard = list[str]()
        with standby.following() as follower:
            follower.came = lambda environment, octets, heard=heard: heard.append(environment)
            if much:
                monkeypatch.setattr(Follower, "_large", lambda *_: False)
            deliver(store, b"Subject: %d\r\n\r\nx\r\n" % much, str(INBOX))
            follower.round(0)
            follower.finish()
        assert "partitions/primary/index" in heard
