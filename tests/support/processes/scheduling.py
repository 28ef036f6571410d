"""Which tests pytest-xdist gives to one process: those of a file, and those that share a session of Spark.

A session takes long to begin, and there can be one at a time in a process.
"""

from typing import Any

from xdist.scheduler import LoadFileScheduling

SPARK, SESSIONS = "tests/tools/spark/", ("local[2]", "cluster")


def is_long(nodeid: str) -> bool:
    """Whether the test belongs to those that keep one process for minutes."""
    return _scope(nodeid) in {SPARK + session for session in SESSIONS}


def _scope(nodeid: str) -> str:
    file, _, test = nodeid.partition("::")
    if file.startswith(SPARK):
        parameters = test.partition("[")[2]
        for session in SESSIONS:
            if session in parameters:
                return SPARK + session
    return file


class Scheduling(LoadFileScheduling):
    """By file, in the order in which they were collected."""

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
