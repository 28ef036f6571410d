"""What the harness makes of what is raised: the product's faults are findings, its own and Ctrl-C are not."""

from pathlib import Path

import pytest

from store.tables.references import MessageRecord
from tests.crash import faults as crashfaults
from tests.crash import harness
from tests.crash.raised import raised


def error_of(work):
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_the_product_raises_is_a_finding():
    refused = error_of(lambda: harness.open_store(Path("/nonexistent"), harness.OPERATIONS["deliver"].settings))
    assert raised("it does not open", refused).startswith("it does not open: Traceback")
    slip = error_of(lambda: MessageRecord.from_bytes(None))
    assert "TypeError" in raised("it does not work", slip)


def test_a_slip_in_the_harness_is_raised():
    with pytest.raises(AttributeError):
        raised("it does not work", error_of(lambda: (None).views))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_who_stops_the_tests_is_heard(error, tmp_path, faults):
    for module, ask in ((harness, lambda: harness.judged(tmp_path, harness.OPERATIONS["deliver"], None, [])),
                        (crashfaults, lambda: crashfaults._opened_again(
                            tmp_path, harness.OPERATIONS["deliver"], None, None, after_loss=False))):
        faults.fail(module, "open_store", error)
        with pytest.raises(type(error)):
            ask()
