"""A mailbox whose figures are of a later epoch than its partition: it is read as it is, nobody gets a UID or a MODSEQ
in it, the check names it, and it is mended."""

from collections.abc import Callable

import pytest
from attrs import evolve

from mboxlist.names import INBOX, MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.mend import correctionrounds, scoped
from store.rebuild.outcome import Outcome
from store.store import Store
from store.tables.state import MODSEQ_SKIP, UID_SKIP
from store.userarea import writing
from store.values import Flag, FlagAction, Flags
from tests.support.stores.stores import deliver

ALICE, BOB = MailboxName("alice", INBOX), MailboxName("bob", INBOX)
LAST = (1 << 32) - 1


def spoil(store: Store, epoch: int, *, written: bool) -> None:
    """Four octets of the figures are others. `written`: store.idx says so, too."""
    partition, entry = store.partitions["primary"], store.entry(ALICE)
    writing.write_changed(store, hurry=True)
    partition.transact(lambda txn: txn.set_state(entry.id, None, evolve(txn.state(entry.id), epoch=epoch)))
    partition.views.forget()
    if written:
        writing.write_changed(store, hurry=True)
    else:
        partition.unwritten.forget()


def housekeeping(store: Store) -> None:
    task, = (each for each in tasks.every_process(store) if each.name == "repair")
    for item in task.items(store):
        task.work(store, item)


MENDS: dict[str, Callable[[Store], object]] = {
    "housekeeping": housekeeping,
    "reconstruct": lambda store: correctionrounds.mend(store, check, Outcome()),
    "reconstruct alice": lambda store: list(scoped.correct_some(store, store.partitions["primary"],
                                                                [store.entry(ALICE).id]))}


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("more", [1, 3, LAST])
@pytest.mark.parametrize("how", MENDS)
def test_it_is_refused_named_and_mended(store: Store, how: str, more: int, written: bool) -> None:
    partition, entry = store.partitions["primary"], store.entry(ALICE)
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(ALICE), str(BOB))
    before = store.status(entry)
    spoil(store, min(partition.epoch + more, LAST), written=written)
    writers: list[Callable[[], object]] = [
        lambda: change_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.FLAGGED)),
        lambda: change_flags(store, entry, [1, 2], FlagAction.ADD, Flags(Flag.FLAGGED, ("todo",))),
        lambda: remove(store, entry, [1]),
        lambda: store.claim_recent(entry),
        lambda: copy_messages(store, store.entry(BOB), entry, [1])]
    refusal, = deliver(store, b"Subject: 9\r\n\r\n", str(ALICE))
    assert isinstance(refusal, StoreError) and refusal.problem is Problem.CORRUPT
    for write in writers:
        with pytest.raises(StoreError) as refused:
            write()
        assert refused.value.problem is Problem.CORRUPT
    now, view = store.status(entry), store.open_mailbox(entry)
    assert (now.uidnext, now.highestmodseq) == (before.uidnext, before.highestmodseq) == (
        view.state.uidnext, view.state.highestmodseq)
    assert view.uids.tolist() == [1, 2, 3]
    assert [finding.what for finding in check(store) if "epoch" in finding.what] == [
        f"its figures are of epoch {min(partition.epoch + more, LAST)}, its partition has come to {partition.epoch}"]
    MENDS[how](store)
    writing.write_changed(store, hurry=True)
    assert check(store) == []
    after = store.status(entry)
    assert after.uidnext >= before.uidnext + UID_SKIP and after.highestmodseq >= before.highestmodseq + MODSEQ_SKIP
    deliver(store, b"Subject: 9\r\n\r\n", str(ALICE))
    assert store.open_mailbox(entry).uids.tolist() == [1, 2, 3, after.uidnext]
