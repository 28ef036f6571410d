"""Chunks of records in all forms, as `store/tables/index.py` says what they are, made and read by struct alone."""

import struct
import zlib

RECORD, FIRST, CHECK = 96, 24, 4     # octets
HEAD = FIRST + 4


def plain(records: bytes) -> bytes:
    """The plain form of these records."""
    return records + struct.pack("<I", zlib.crc32(records))


def divided(records: bytes) -> bytes:
    """The divided form."""
    each = _each(records)
    return plain(b"".join([record[:FIRST] + record[-4:] for record in each]
                          + [record[FIRST:-4] for record in each] + [b"\0"]))


def older(records: bytes) -> bytes:
    """The divided form of partitions of form 7."""
    each = _each(records)
    heads, rests = b"".join(record[:FIRST] for record in each), b"".join(record[FIRST:] for record in each)
    return plain(heads + struct.pack("<I", zlib.crc32(heads) ^ zlib.crc32(rests)) + rests)


def records(value: bytes) -> bytes:
    """The records of a chunk, one after the other."""
    count, over = divmod(len(value), RECORD)
    if over == CHECK:
        return value[:-CHECK]
    if over == 2 * CHECK:
        heads, rests = value[:count * FIRST], value[count * FIRST + CHECK:-CHECK]
        return b"".join(heads[at * FIRST:(at + 1) * FIRST] + rests[at * (RECORD - FIRST):(at + 1) * (RECORD - FIRST)]
                        for at in range(count))
    assert over == 1 + CHECK and value[-1 - CHECK] == 0
    rests, size = value[count * HEAD:], RECORD - HEAD
    return b"".join(value[at * HEAD:at * HEAD + FIRST] + rests[at * size:(at + 1) * size]
                    + value[at * HEAD + FIRST:(at + 1) * HEAD] for at in range(count))


def said(records: bytes) -> list[bytes]:
    """Records without their balances, which say nothing."""
    return [record[:-4] for record in _each(records)]


def _each(records: bytes) -> list[bytes]:
    return [records[at:at + RECORD] for at in range(0, len(records), RECORD)]
