"""Chunks of records that are judged together are judged as each of them is by itself."""

import numpy as np
import pytest

from mboxlist.entry import MailboxId
from store.partition.records import are_sound, sound
from store.tables.index import ROW, encode


def chunk(number, *uids):
    rows = np.zeros(len(uids), ROW)
    rows["uid"] = uids
    return number, encode(rows)


def cut(item):
    return item[0], item[1][:-1]


def turned(item):
    value = bytearray(item[1])
    value[50] ^= 4
    return item[0], bytes(value)


GOOD = chunk(0, 1, 5, 64), chunk(1, 65, 128), chunk(7, 449), chunk((1 << 26) - 1, (1 << 32) - 63, (1 << 32) - 1)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("wrong", [
    cut(chunk(0, 2)), turned(chunk(0, 2)), (0, b""), (0, bytes(4)), chunk(0, 0), chunk(0, 0, 1), chunk(0, 3, 3),
    chunk(0, 4, 3), chunk(0, 3, 65), chunk(0, 65), chunk(1, 64), chunk(1, 64, 65), chunk(2, 1, 200, 130)])
def test_one_that_cannot_be_used(wrong, at):
    chunks = [*GOOD[:at], wrong, *GOOD[at:]]
    assert not sound(MailboxId(1), *wrong) and not are_sound(chunks) and not are_sound([wrong])


def test_all_can_be_used():
    assert all(sound(MailboxId(1), *item) for item in GOOD)
    assert are_sound(GOOD) and are_sound(GOOD[2:3]) and are_sound([])
