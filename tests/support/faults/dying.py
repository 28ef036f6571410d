"""A worker of Spark that dies in the middle of a task, once: the task is done again by another."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tools.spark.rebuild.sparkplan import Spark

T = TypeVar("T")


def dies_once(mark: Path) -> Callable[[Iterable[T]], Iterator[T]]:
    """Batches of a task as they come; but after the first one the executor is killed, once, and the process that works
    for it. Then there is a file `mark`.

    (A function within another one is pickled as it is: workers have no tests. So it imports what it needs.)
    """
    place = str(mark)

    def dying(batches):     # type: ignore[no-untyped-def]
        import os
        import signal
        for batch in batches:
            yield batch
            try:
                os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                continue
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
    return dying


def engine(session: Any, deadly: Mapping[str, Callable[[Any], Any]]) -> Spark:
    """Spark that makes plans; the batches of the tasks of a table go through what is `deadly` for it."""
    class Mortal(Spark):
        def run(self, plan: Any, name: str, tasks: Any, work: Any) -> None:
            through = deadly.get(name)
            super().run(plan, name, tasks, work if through is None else lambda task: through(work(task)))
    return Mortal(session)
