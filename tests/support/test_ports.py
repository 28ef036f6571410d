"""Free ports are ports that every client opens."""

import os

import pytest

from tests.support.processes import ports
from tests.support.processes.ports import free_port


def test_a_port_that_browsers_refuse_is_never_given() -> None:
    """Fetch standard, "bad port": the only one of the list above 10,000 is amanda's."""
    with pytest.raises(OSError, match="no free port between 10080 and 10081"):
        free_port(10_080, 10_081)


def test_a_port_is_given_once() -> None:
    assert len({free_port(31_000, 31_050) for _ in range(10)}) == 10


def test_no_other_process_is_given_it() -> None:
    """Another run of the tests beside this one, with workers of the same names."""
    port = free_port()
    if not (child := os.fork()):
        ports._given.clear()
        try:
            free_port(port, port + 1)
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
