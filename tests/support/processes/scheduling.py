"""Which tests pytest-xdist gives to one process: those of a file, and those that share a session of Spark.

A session takes long to begin, and there can be one at a time in a process. What takes longest begins first, so that no
process is at it alone in the end.
"""

from typing import Any

from xdist.scheduler import LoadFileScheduling

SPARK, SESSIONS = "tests/tools/spark/", ("local[2]", "cluster")


LONGEST = (                 # by the clock of a whole run, in which each of these took 15 seconds or more
    SPARK + "local[2]", SPARK + "cluster", "tests/crash/test_boundaries.py", "tests/interop/test_first_hour.py",
    SPARK + "test_verify.py", "tests/tools/test_debian_package.py", "tests/crash/test_power.py",
    "tests/store/test_model.py", "tests/interop/test_older_stores.py", "tests/imap/test_fuzz.py",
    "tests/crash/test_processes.py", "tests/crash/test_kill.py", "tests/test_budgets.py",
    "tests/interop/test_main_job.py", SPARK + "test_session.py", "tests/tools/test_package.py",
    "tests/interop/test_roundcube.py", "tests/tools/test_bench.py", "tests/tools/test_site.py",
    "tests/tools/test_image.py", "tests/tools/http/test_console.py", "tests/interop/test_standby_operations.py",
    "tests/tools/commands/test_every_fault.py", "tests/interop/test_commands_as_root.py",
    "tests/interop/test_partitions.py",
    "tests/store/message/test_fuzz_mime.py", "tests/crash/test_cut_commands.py", "tests/imap/test_over_tls.py",
    "tests/interop/test_relays.py", "tests/interop/test_two_tiers.py", "tests/imap/test_rights_everywhere.py",
    "tests/lmtp/test_fuzz.py", "tests/interop/test_huge.py", "tests/interop/test_thunderbird.py")


def order(nodeid: str) -> int:
    """When the test begins: by that number."""
    scope = _scope(nodeid)
    return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)


def _scope(nodeid: str) -> str:
    file, _, test = nodeid.partition("::")
    if file.startswith(SPARK):
        parameters = test.partition("[")[2]
        for session in SESSIONS:
            if session in parameters:
                return SPARK + session
    return file


class Scheduling(LoadFileScheduling):
    """By file, in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """The test that was running when the process ended; it is not run again, or it would end the next too."""
        workload = self.assigned_work.pop(node)
        running = next(((unit, test) for unit in workload.values() for test, ended in unit.items() if not ended), None)
        if running is None:
            return None
        unit, test = running
        unit[test] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return test
