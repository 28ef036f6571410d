"""RFC 4314 in 1,000 combinations of users and rights, against every command: no name, count or content is told that the
access control lists do not grant, and everything is done that they do."""

import os
from collections import Counter

import pytest

from imap.wire.commands import COMMANDS
from store.check.wholecheck import check
from store.opening import make_empty_store, open_store
from store.settings import Settings
from tests.imap.rights.combinations import combinations
from tests.imap.rights.conversation import play
from tests.imap.rights.stage import Stage

COUNT = int(os.environ.get("RIGHTS_COMBINATIONS", "300"))
SEED = int(os.environ.get("RIGHTS_SEED", "4314"))
PARTS = 2               # so that two processes can share the work


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_told_that_is_not_granted(tmp_path, part):
    make_empty_store(tmp_path / "store")
    store = open_store(tmp_path / "store", Settings(
        message_limit=100_000, disk_reserve=0, cache=4 << 20, special_mailboxes=()))
    try:
        stage, played = Stage(store), Counter()
        some = [one for one in combinations(COUNT, SEED) if one.number % PARTS == part]
        for one in some:
            play(stage, one, played)
        for name in COMMANDS:
            plain = name.removeprefix(b"UID ")
            both = played[plain.decode()] + played[f"UID {plain.decode()}"]
            assert both >= len(some) and played[name.decode()] >= len(some) // 8, f"{name!r}: {both}"
        assert check(store) == []
    finally:
        store.close()
