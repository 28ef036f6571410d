"""The records of a mailbox as they are stored: one of them found in its chunk, and changed."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from store.tables.index import ROW, encode, flags_at, is_whole, place_of, with_flags


@given(uids=st.sets(st.integers(65, 128), max_size=64), wanted=st.integers(65, 128))
def test_a_record_is_found_in_its_chunk(uids, wanted):
    """Wherever UIDs are missing."""
    rows = np.zeros(len(uids), ROW)
    rows["uid"] = sorted(uids)
    at = place_of(encode(rows), wanted)
    assert at == (sorted(uids).index(wanted) * ROW.itemsize if wanted in uids else None)


@given(uids=st.sets(st.integers(1, 64), min_size=1), pick=st.integers(0, 63), flags=st.integers(0, 31),
       modseq=st.integers(1, 1 << 40))
def test_other_flags_of_one_record(uids, pick, flags, modseq):
    """Nothing else changes, and the checksum agrees."""
    rows = np.zeros(len(uids), ROW)
    rows["uid"] = sorted(uids)
    for at, name in enumerate(("zone", "keywords", "received", "size", "serial", "head")):
        rows[name] = at + 1
    expected = rows.copy()
    at = pick % len(uids)
    expected["flags"][at], expected["modseq"][at] = flags, modseq
    old, place = encode(rows), at * ROW.itemsize
    record, trailer = with_flags(old, place, flags, modseq)
    new = old[:place] + record + old[place + ROW.itemsize:-len(trailer)] + trailer
    assert new == encode(expected) and is_whole(new)
    assert flags_at(new, at * ROW.itemsize)[1::3] == (flags, modseq)
