"""The first machine is lost at every boundary of an operation, and the standby's power too: what was acknowledged is
on the standby that is promoted then.

`STANDBY_CUTS=all` looks at every state, of all operations, in all ways in which a standby has what comes.
"""

import os
from collections import Counter
from random import Random

import pytest

from tests.crash import harness, standbycuts
from tests.crash.conftest import Counts
from tests.crash.operations import OPERATIONS

pytestmark = pytest.mark.long

ALL = os.environ.get("STANDBY_CUTS") == "all"
STATES = 100_000 if ALL else 3          # of each, that are looked at
#: Each with another way; what scripts send has message files in folders that these small stores do not have, and no
#: standby has a store.idx.
SOME = dict(zip(("deliver", "append", "flags", "copy", "move", "expunge", "rename a tree", "create", "delete",
                 "restore what was lost", "deliver what was lost"), tuple(standbycuts.WAYS) * 2, strict=False))
CASES = [(name, how) for name, operation in OPERATIONS.items() for how in standbycuts.WAYS
         if not operation.alone and "script" not in name and "store.idx" not in name and (ALL or SOME.get(name) == how)]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_what_was_acknowledged_is_on_the_standby(counts: Counts, name: str, how: str) -> None:
    recording = standbycuts.record(name, how)
    found = list(harness.states(recording, range(2 if ALL else 1)).values())
    some = found if len(found) <= STATES else Random(f"{name} {how}").sample(found, STATES)
    wrong = [what for image, moments in some for what in standbycuts.judge(recording, how, image, moments)]
    counts.add(f"losses of a first machine, standby {how}", name, recording.points, len(some),
               sum(len(moments) for _, moments in some))
    assert not wrong, f"{len(wrong)} things are wrong, first of all\n" + "\n".join(wrong[:8])


def test_what_is_reported_too_early_is_seen() -> None:
    """The test can fail: a state before the answer is judged as if the answer had been given."""
    recording = standbycuts.record("deliver", "by the journal")
    image, moments = next(iter(harness.states(recording, ()).values()))
    early = [harness.Moment(each.how, each.changes, each.last, 1, each.views) for each in moments]
    assert standbycuts.judge(recording, "by the journal", image, moments) == []
    found = Counter("neither as answered" in what for what in standbycuts.judge(
        recording, "by the journal", image, early))
    assert found[True]
