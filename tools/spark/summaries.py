"""The only module in which rows of Spark come into the driver: tables of bounded size.

(tests/tools/spark/test_driver.py reads the jobs: none of them collects, or loops over rows.)
"""

from typing import Any

import pyarrow as pa

from tools.exits import Failure

ROWS = 3_000_000            # no answer has more rows


def table(frame: Any, most: int = ROWS) -> pa.Table:
    """All rows of a frame. Raises Failure if there are more than `most`."""
    found: pa.Table = frame.limit(most + 1).toArrow()
    if found.num_rows > most:
        raise Failure(f"the answer has more than {most} rows, which do not go through one process", 1)
    return found


def rows(frame: Any, most: int = ROWS) -> list[dict[str, Any]]:
    """All rows of a frame as dictionaries. Raises Failure if there are more than `most`."""
    found: list[dict[str, Any]] = table(frame, most).to_pylist()
    return found


def count(frame: Any) -> int:
    """How many rows a frame has."""
    return int(frame.count())
