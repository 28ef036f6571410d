"""A frame is what its label says, or nothing."""

import io
import random

import pytest

from store.backup import compression
from store.backup.compression import GZIP, ZSTD, chunks, label


@pytest.mark.parametrize("kind", [GZIP, ZSTD])
def test_another_whole_frame_in_its_place(kind: str) -> None:
    """A disk that wrote a block to the wrong place: the frame expands, and its checksum and length are right."""
    chance = random.Random(1)
    data = [chance.randbytes(3000) for _ in range(3)]
    packed = [compression._compressed(kind, one, 3) for one in data]
    assert len({len(one) for one in packed}) == 1
    archive = [label(kind, one, 3000 * at, 3000, 0) for at, one in enumerate(packed)]
    found = list(chunks(io.BytesIO(b"".join(archive)).read))
    assert [(piece.offset, piece.data) for piece in found] == [(3000 * at, one) for at, one in enumerate(data)]
    archive[1] = archive[1].replace(packed[1], packed[2])
    found = list(chunks(io.BytesIO(b"".join(archive)).read))
    assert [(piece.offset, piece.data) for piece in found] == [(0, data[0]), (6000, data[2])]
