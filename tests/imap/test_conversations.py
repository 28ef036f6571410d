"""Every conversation of tests/scripts/imap, whole and octet by octet."""

import pytest

from tests.support.scripts import SCRIPTS, Player

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_conversation(place, name):
    Player(place).play((SCRIPTS / f"{name}.txt").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_conversation_in_single_octets(place, name):
    script = (SCRIPTS / f"{name}.txt").read_text()
    if "pipelined" not in script:
        Player(place, piece=1).play(script)
