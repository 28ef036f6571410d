"""What each of three clients believes of a mailbox is what is true, whatever they and others do to it (RFC 3501 §7.4.1,
RFC 7162); and one that comes back after a break knows as much as a new one."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.imap.model.machine import Machine

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "10"))
SMALL = {"store.partition.views.LARGE": 0, "store.partition.recordbuffers.LARGE": 0,
         "store.partition.recordbuffers.ROOM": 3, "imap.view.FEW": 0,
         "store.partition.views.MANY": 0, "store.partition.views.AT_ONCE": -1,
         "imap.selection.MANY": 0, "imap.selection.QUICK": 0, "imap.session.QUICK_UNITS": 0}


@pytest.mark.parametrize("as_large", [False, True])
@pytest.mark.parametrize("remembered", [1 << 18, 8])
def test_three_clients_believe_the_truth(place, as_large, remembered):
    """`as_large`: with the means of a large mailbox. `remembered`: octets of UIDs that were expunged."""
    place.remember(remembered)
    for name, value in SMALL.items() if as_large else ():
        place.patch.setattr(name, value)

    class Here(Machine):
        pass

    Here.place = place
    run_state_machine_as_test(Here, settings=settings(
        max_examples=EXAMPLES, stateful_step_count=30, deadline=None, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck)))
