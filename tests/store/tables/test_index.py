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
    checked_heads,
    chunk_key,
    decode,
    divided,
    encode,
    extend,
    flags_at,
    heads_of,
    is_divided,
    is_whole,
    join,
    octets_of_chunks,
    other_heads,
    place_of,
    records_in,
    with_flags,
    writable,
)
from tests.support.stores import chunkforms

FORMS = st.sampled_from((encode, divided))
CHUNKS = st.dictionaries(st.integers(0, 5), st.sets(st.integers(1, CHUNK), min_size=1), min_size=1)


def records(uids, seed=0):
    """Of which no octet is like another one by its place."""
    octets = np.random.default_rng(seed).bytes(len(uids) * ROW.itemsize)
    rows = np.frombuffer(bytearray(octets), ROW)
    rows["uid"] = sorted(uids)
    return rows


@given(uids=st.sets(st.integers(65, 128), max_size=64), wanted=st.integers(65, 128), form=FORMS)
def test_a_record_is_found_in_its_chunk(uids, wanted, form):
    """Wherever UIDs are missing."""
    at = place_of(form(records(uids)), wanted)
    size = chunkforms.HEAD if form is divided and uids else ROW.itemsize
    assert at == (sorted(uids).index(wanted) * size if wanted in uids else None)


@given(uids=st.sets(st.integers(1, 64), min_size=1), pick=st.integers(0, 63), flags=st.integers(0, 31),
       modseq=st.integers(1, 1 << 40), form=FORMS)
def test_other_flags_of_one_record(uids, pick, flags, modseq, form):
    """Nothing else changes, and the checksum agrees."""
    rows = records(uids)
    expected, at = rows.copy(), pick % len(uids)
    expected["flags"][at], expected["modseq"][at] = flags, modseq
    old = form(rows)
    place = place_of(old, sorted(uids)[at])
    record, end, check = with_flags(old, place, flags, modseq)
    assert record == expected[at].tobytes()
    new = bytearray(old)
    new[place:place + chunkforms.HEAD] = record[:chunkforms.HEAD]
    new[end:end + len(check)] = check
    assert new == form(expected) and is_whole(bytes(new))
    assert flags_at(bytes(new), place)[1::3] == (flags, modseq)


@given(uids=st.sets(st.integers(1, 64), min_size=1), seed=st.integers(1, 99))
def test_what_the_forms_are(uids, seed):
    rows = records(uids, seed)
    assert encode(rows) == chunkforms.plain(rows.tobytes()) and divided(rows) == chunkforms.divided(rows.tobytes())
    assert is_divided(divided(rows)) and not is_divided(encode(rows))
    assert len(divided(rows)) == len(encode(rows)) + chunkforms.CHECK


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


@given(uids=st.sets(st.integers(1, 64), min_size=1), seed=st.integers(1, 99))
def test_heads_and_rests_of_two_moments(uids, seed):
    """Other heads of the same messages fit; heads of others do not, with their check value or without."""
    old, others = records(uids, seed), records(uids, seed + 100)
    now = old.copy()
    for name in ("flags", "keywords", "modseq"):
        now[name] = others[name]
    value, size = divided(old), len(checked_heads(divided(old)))
    new = other_heads(heads_of(now), checked_heads(value))
    assert new + value[size:] == divided(now) and is_whole(divided(now))
    for heads in checked_heads(divided(others)), heads_of(others) + new[-chunkforms.CHECK:]:
        assert len(heads) == size and not is_whole(heads + value[size:])
