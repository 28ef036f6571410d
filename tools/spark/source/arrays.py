"""Arrow columns from whole numpy arrays: no Python object for a row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tools.spark.source.schema import TEXTS, TIME

Array = NDArray[Any]

_DIGITS = np.array([f"{octet:02x}".encode() for octet in range(256)], "S2").view("<u2")
_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799       # the years 1 to 9999, which is what Python can show


def repeated(values: Sequence[object], counts: Array, kind: pa.DataType) -> pa.Array:
    """Each value as many times as its count says."""
    if len(values) == 1:
        return pa.repeat(pa.scalar(values[0], kind), int(counts[0]))
    return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(values)), counts)))


def numbers(values: Array) -> pa.Array:
    """A column of 64-bit integers."""
    return pa.array(values.astype(np.int64))


def times(seconds: Array, absent: int | None = None) -> pa.Array:
    """Unix times in seconds; null for `absent`, and for what is in no year that can be written."""
    seconds = seconds.astype(np.int64)
    lost = ~can_be_written(seconds)
    if absent is not None:
        lost |= seconds == absent
    return pa.array(np.where(lost, 0, seconds) * 1_000_000, pa.int64(), mask=lost).cast(TIME)


def can_be_written(seconds: Array) -> Array:
    """Whether these Unix times are in years that can be written."""
    told: Array = (seconds >= _EARLIEST) & (seconds <= _LATEST)
    return told


def digests(own_digests: Array) -> pa.Array:
    """Digests in hexadecimal digits, of a column of void."""
    octets = np.ascontiguousarray(own_digests).view(np.uint8)
    width = 2 * own_digests.dtype.itemsize
    offsets = np.arange(len(own_digests) + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(len(own_digests), pa.py_buffer(offsets), pa.py_buffer(_DIGITS[octets]))


def named_bits(bits: Array, names: Sequence[Sequence[str]], counts: Array) -> pa.Array:
    """For each number the names of its bits. Names go by mailbox: `counts` numbers have the first ones, and so on. Bits
    without a name are left out."""
    if not bits.any() or not any(names):
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(bits) + 1, np.int32)), pa.array([], pa.string()), TEXTS)
    width = max(map(len, names))
    octets = np.ascontiguousarray(bits.astype("<u8")).view(np.uint8).reshape(-1, 8)
    is_set = np.unpackbits(octets, axis=1, bitorder="little", count=width).astype(np.bool_)
    if len(names) > 1:
        is_set &= np.arange(width) < np.repeat([len(some) for some in names], counts)[:, None]
    number, bit = np.nonzero(is_set)
    starts = np.cumsum([0, *map(len, names[:-1])])
    flat = pa.array([name for some in names for name in some], pa.string())
    offsets = np.zeros(len(bits) + 1, np.int32)
    np.cumsum(is_set.sum(axis=1), out=offsets[1:])
    values = flat.take(pa.array(bit + np.repeat(starts, counts)[number]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, TEXTS)
