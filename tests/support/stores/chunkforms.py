"""Chunks of records in both forms, as `store/tables/index.py` says what they are, made and read by struct alone."""

import struct
import zlib

RECORD, HEAD, CHECK = 96, 24, 4     # octets


def plain(records: bytes) -> bytes:
    """The plain form of these records."""
    return records + struct.pack("<I", zlib.crc32(records))


def divided(records: bytes) -> bytes:
    """The divided form."""
    each = [records[at:at + RECORD] for at in range(0, len(records), RECORD)]
    heads, rests = b"".join(record[:HEAD] for record in each), b"".join(record[HEAD:] for record in each)
    value = heads + struct.pack("<I", zlib.crc32(heads) ^ zlib.crc32(rests)) + rests
    return value + struct.pack("<I", zlib.crc32(value))


def records(value: bytes) -> bytes:
    """The records of a chunk, one after the other."""
    count, over = divmod(len(value), RECORD)
    if over == CHECK:
        return value[:-CHECK]
    assert over == 2 * CHECK
    heads, rests, size = value[:count * HEAD], value[count * HEAD + CHECK:-CHECK], RECORD - HEAD
    return b"".join(heads[at * HEAD:(at + 1) * HEAD] + rests[at * size:(at + 1) * size] for at in range(count))
