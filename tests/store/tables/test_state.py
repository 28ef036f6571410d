"""The figures of a mailbox are of an epoch: earlier ones skip ahead, later ones stay, and all who read them agree."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from store.errors import Problem, StoreError
from store.tables import state
from store.tables.state import MODSEQ_SKIP, UID_SKIP, MailboxState

EPOCH = 7
STATES = st.builds(
    lambda uidnext, unclaimed, highest, epoch, removed, moving: evolve(
        MailboxState.new(5, epoch, "alice"), uidnext=uidnext, recent=max(1, uidnext - unclaimed), highestmodseq=highest,
        removed=removed, moving=moving),
    st.integers(1, 9), st.integers(0, 2), st.integers(1, 99), st.integers(0, 9) | st.just((1 << 32) - 1),
    st.sampled_from([0, 0, 1]), st.sampled_from([0, 0, 1]))


@given(STATES)
def test_all_readers_agree_about_the_epoch(stored: MailboxState) -> None:
    """RFC 3501 §2.3.1.1: UIDNEXT never goes down; RFC 7162 §3.1.2.1: nor does HIGHESTMODSEQ."""
    data, behind = stored.to_bytes(), max(0, EPOCH - stored.epoch)
    read = MailboxState.from_bytes(data, EPOCH)
    assert (read.uidnext, read.highestmodseq) == (stored.uidnext + behind * UID_SKIP,
                                                  stored.highestmodseq + behind * MODSEQ_SKIP)
    assert read.epoch == max(EPOCH, stored.epoch) and read.removed == stored.removed
    assert (state.before_skip(data, EPOCH) is not None) == (read.uidnext != stored.uidnext)
    assert MailboxState.from_bytes(state.in_epoch(data, EPOCH), EPOCH).to_bytes() == read.to_bytes()
    if not behind:
        assert state.is_unchanged(data, EPOCH, read.highestmodseq) == (not read.removed and not read.moving)
    assert not state.is_unchanged(data, EPOCH, read.highestmodseq - 1)
    claimed = state.all_claimed(data, EPOCH)
    assert claimed is None or claimed == read.uidnext == read.recent


@given(STATES)
def test_nobody_writes_to_what_is_of_a_later_epoch(stored: MailboxState) -> None:
    data, read = stored.to_bytes(), MailboxState.from_bytes(stored.to_bytes(), EPOCH)
    for write in (lambda: state.arrived(data, EPOCH, 10, 0)[0:2], lambda: state.flagged(data, EPOCH, 0, 0)[0],
                  lambda: state.claimed(data, EPOCH)[1]):
        try:
            given_out = write()
        except StoreError as refusal:
            wanted = Problem.NO_MAILBOX if read.removed else Problem.BUSY if read.moving else Problem.CORRUPT
            assert refusal.problem is wanted and (wanted is not Problem.CORRUPT or stored.epoch > EPOCH)
        else:
            assert stored.epoch <= EPOCH
            assert given_out in ((read.uidnext, read.highestmodseq + 1), read.highestmodseq + 1, read.uidnext)


def test_the_refusal_says_what_is_wrong() -> None:
    with pytest.raises(state.LaterEpoch, match="of epoch 9, its partition has come to 7"):
        state.claimed(evolve(MailboxState.new(5, 9, "alice"), uidnext=4).to_bytes(), EPOCH)
