"""Which tests pytest-xdist gives to one process: those of a file, and those that share a session of Spark.

A session takes long to begin, and there can be one at a time in a process.
"""

from xdist.scheduler import LoadFileScheduling

SPARK, SESSIONS = "tests/tools/spark/", ("local[2]", "cluster")


class Scheduling(LoadFileScheduling):
    """By file, in the order of the files."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if file.startswith(SPARK):
            parameters = test.partition("[")[2]
            for session in SESSIONS:
                if session in parameters:
                    return SPARK + session
        return file
