"""The records of a mailbox as they are stored: one of them found in its chunk, and changed."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from mboxlist.entry import MailboxId
from store.partition.records import sound, sound_rows
from store.rebuild.salvage import readable
from store.tables.index import (
    CHUNK,
    ROW,
    balanced,
    chunk_key,
    decode,
    differ,
    divided,
    encode,
    extend,
    flags_at,
    heads_of,
    is_divided,
    is_older,
    is_whole,
    join,
    octets_of_chunks,
    place_of,
    records_in,
    with_flags,
    writable,
)
from tests.support.stores import chunkforms


def older(rows):
    return chunkforms.older(rows.tobytes())


WRITTEN = st.sampled_from((encode, divided))
FORMS = st.sampled_from((encode, divided, older))
CHUNKS = st.dictionaries(st.integers(0, 5), st.sets(st.integers(1, CHUNK), min_size=1), min_size=1)


def records(uids, seed=0):
    """Of which no octet is like another one by its place."""
    octets = np.random.default_rng(seed).bytes(len(uids) * ROW.itemsize)
    rows = np.frombuffer(bytearray(octets), ROW)
    rows["uid"] = sorted(uids)
    return rows


@given(uids=st.sets(st.integers(65, 128), min_size=1), wanted=st.integers(65, 128), form=WRITTEN)
def test_a_record_is_found_in_its_chunk(uids, wanted, form):
    """Wherever UIDs are missing."""
    at = place_of(form(records(uids)), wanted)
    size = chunkforms.HEAD if form is divided else ROW.itemsize
    assert at == (sorted(uids).index(wanted) * size if wanted in uids else None)


@given(uids=st.sets(st.integers(1, 64), min_size=1), pick=st.integers(0, 63), flags=st.integers(0, 31),
       modseq=st.integers(1, 1 << 40), form=WRITTEN)
def test_other_flags_of_one_record(uids, pick, flags, modseq, form):
    """Nothing else that is said changes; the checksum is the same, and agrees. Half of the change would be seen."""
    rows = records(uids)
    expected, at = rows.copy(), pick % len(uids)
    expected["flags"][at], expected["modseq"][at] = flags, modseq
    old = form(rows)
    place = place_of(old, sorted(uids)[at])
    record, part = with_flags(old, place, flags, modseq)
    new = old[:place] + part + old[place + len(part):]
    assert is_whole(new) and new[-chunkforms.CHECK:] == old[-chunkforms.CHECK:]
    assert chunkforms.said(chunkforms.records(new)) == chunkforms.said(expected.tobytes())
    assert chunkforms.records(new)[at * ROW.itemsize:(at + 1) * ROW.itemsize] == record
    assert decode(new).tobytes() == chunkforms.records(new)
    assert flags_at(new, place)[1::3] == (flags, modseq)
    half = old[:place] + part[:chunkforms.FIRST] + old[place + chunkforms.FIRST:]
    assert is_whole(half) == (half == old)


@given(uids=st.sets(st.integers(1, 64), min_size=1), ends=st.tuples(st.integers(0, 63), st.integers(0, 63)),
       form=WRITTEN, seed=st.integers(1, 99))
def test_other_flags_of_some_records(uids, ends, form, seed):
    """From one to another one."""
    rows, others = records(uids), records(uids, seed)
    first, last = sorted(at % len(uids) for at in ends)
    expected = rows.copy()
    for name in ("flags", "keywords", "modseq"):
        expected[name][first:last + 1] = others[name][first:last + 1]
    old, size = form(rows), chunkforms.HEAD if form is divided else ROW.itemsize
    octets = heads_of(expected) if form is divided else expected.tobytes()
    part = balanced(octets[first * size:(last + 1) * size], first * size, old)
    new = old[:first * size] + part + old[(last + 1) * size:]
    assert is_whole(new) and new[-chunkforms.CHECK:] == old[-chunkforms.CHECK:]
    assert chunkforms.said(chunkforms.records(new)) == chunkforms.said(expected.tobytes())


@given(uids=st.sets(st.integers(1, 64), min_size=1), name=st.sampled_from(ROW.names))
def test_a_record_says_all_but_its_balance(uids, name):
    rows, others = records(uids), records(uids, 1)
    new = rows.copy()
    new[name] = others[name]
    assert (differ(rows, new) == (rows[name] != others[name]) & (name != "balance")).all()


@given(uids=st.sets(st.integers(1, 64), min_size=1), seed=st.integers(1, 99))
def test_what_the_forms_are(uids, seed):
    rows = records(uids, seed)
    assert encode(rows) == chunkforms.plain(rows.tobytes()) and divided(rows) == chunkforms.divided(rows.tobytes())
    for form, is_one in ((encode, (False, False)), (divided, (True, False)), (older, (True, True))):
        assert (is_divided(form(rows)), is_older(form(rows))) == is_one
        assert chunkforms.records(form(rows)) == rows.tobytes()


@given(chunks=CHUNKS, forms=st.lists(FORMS, min_size=6, max_size=6), seed=st.integers(1, 99))
def test_chunks_of_both_forms_beside_each_other(chunks, forms, seed):
    """Everybody reads them as one."""
    parts = [(number, records([number * CHUNK + uid for uid in chunks[number]], seed + number))
             for number in sorted(chunks)]
    values = [(number, form(part)) for (number, part), form in zip(parts, forms, strict=False)]
    octets, only = b"".join(part.tobytes() for _, part in parts), [value for _, value in values]
    assert join(only).tobytes() == writable(only).tobytes() == octets_of_chunks([None, *only]) == octets
    assert sound_rows(values).tobytes() == octets and all(sound(MailboxId(7), *each) for each in values)
    found, broken = readable(MailboxId(7), [(chunk_key(7, number), value) for number, value in values])
    assert found.tobytes() == octets and not broken
    assert [records_in(value) for value in only] == [len(part) for _, part in parts]
    assert b"".join(decode(value).tobytes() for value in only) == octets


@given(uids=st.sets(st.integers(1, 64), min_size=1), more=st.integers(1, 3), form=FORMS, seed=st.integers(1, 99),
       spot=st.integers(0, 1 << 20), bits=st.integers(0, 255))
def test_records_at_the_end(uids, more, form, seed, spot, bits):
    """What comes of it is plain; what was damaged stays so."""
    rows, new = records(uids, seed), records(range(65, 65 + more), seed + 100)
    assert extend(form(rows), new.tobytes()) == chunkforms.plain(rows.tobytes() + new.tobytes())
    value = bytearray(form(rows))
    value[spot % len(value)] ^= bits
    assert is_whole(extend(bytes(value), new.tobytes())) == (not bits)


@given(uids=st.sets(st.integers(1, 64), min_size=1), form=FORMS, seed=st.integers(1, 99), spot=st.integers(0, 1 << 20),
       bits=st.integers(1, (1 << 32) - 1))
def test_damage_of_up_to_four_octets_is_seen(uids, form, seed, spot, bits):
    """Wherever it is: that is what a CRC-32 says of itself."""
    value = bytearray(form(records(uids, seed)))
    at = spot % (len(value) - 3)
    value[at:at + 4] = (int.from_bytes(value[at:at + 4], "little") ^ bits).to_bytes(4, "little")
    assert not is_whole(bytes(value)) and not is_whole(bytes(value[:-1]))
