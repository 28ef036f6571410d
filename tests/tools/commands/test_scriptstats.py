"""`onecopy sieve stats`: sums over the processes of a server."""

from store.metrics.scriptcounters import ACTIONS, FAILURES, ScriptCounters
from tests.support.processes.program import Program
from tools.commands.sieve.scriptstats import summed


def test_what_several_processes_tell_is_summed() -> None:
    one, other = ScriptCounters(), ScriptCounters()
    one.ran(0.002, 10)
    one.ran(0.004, 20)
    other.ran(0.003, 60)
    one.actions["keep"], other.actions["keep"], other.failures["limit"] = 2, 3, 1
    found = summed([one.figures(), other.figures()])
    assert found["runs"] == 3 and abs(found["mean_seconds"] - 0.003) < 1e-9 and found["mean_steps"] == 30
    assert found["actions"] == {**dict.fromkeys(ACTIONS, 0), "keep": 5}
    assert found["failures"] == {**dict.fromkeys(FAILURES, 0), "limit": 1}
    assert summed([])["mean_seconds"] == 0.0


def test_without_a_server(onecopy: Program) -> None:
    assert "no server" in onecopy.refused("sieve", "stats")
