"""What reads messages against a fuzzer. `tests/store/fuzz` says what must hold for each message."""

import os
from random import Random

import pytest

from store.message import text
from store.message.cacherecord import PartSpan
from tests.store.fuzz.growth import PATTERNS, PLACES
from tests.store.fuzz.mime import examine, message_of
from tests.support.fuzz.choices import Choices
from tests.support.fuzz.growth import lines
from tests.support.fuzz.guided import find_nothing

COUNTS = {"mime": 150}       # CONTRIBUTING says how to play more
BROKEN = int(os.environ.get("BROKEN_MAIL", "2000"))
FIRST = 20_000                  # lines: until DEPTH multiparts are open, each delimiter costs more than the one before


def test_the_guided_fuzzer_finds_nothing(tmp_path):
    find_nothing("tests.store.fuzz", COUNTS, tmp_path)


@pytest.mark.long
def test_broken_mail():
    for seed in range(BROKEN):
        data = Random(seed).randbytes(20 + seed % 300)
        try:
            examine(message_of(data), Choices(data))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


# Linear: lines of Python here; `python -m tests.store.fuzz.growth` shows what regular expressions take

@pytest.mark.long
@pytest.mark.parametrize("start", sorted({pattern.start for pattern in PATTERNS}))
def test_twice_the_input_is_twice_the_work(start):
    for pattern in PATTERNS:
        if pattern.start == start:
            half, whole = lines(pattern, PLACES)
            assert whole <= 2 * half + FIRST, (pattern.name, half, whole)


# Found by it

@pytest.mark.parametrize(("body", "decoded"), [
    (b"a=\rb c\r\nd", b"a=\rb c\r\nd"),         # no soft line break (RFC 2045 §6.7): what is broken stays as it is
    (b"a=\r\nb", b"ab"), (b"a=\nb", b"ab"), (b"=\r=41\rx", b"=\rA\rx"), (b"=3D=\r", b"==\r"),
    (b"a=", b"a="), (b"a= ", b"a="), (b"a=\r\n", b"a"),      # §6.7, note (3): as any "=" that is no escape
])
@pytest.mark.parametrize("window", [1, 2, 3, 5, 100])
def test_a_bare_cr_after_an_equals_sign(body, decoded, window):
    part = PartSpan(0, 0, len(body), b"APPLICATION", b"X", b"QUOTED-PRINTABLE")
    assert b"".join(text.body_octets(lambda at, count: body[at:at + count], part, window=window)) == decoded
