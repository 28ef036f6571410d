"""What the last `onecopy check` has found, in few words: a file for `onecopy stats` and its metrics."""

import json
import logging
import time
from pathlib import Path
from typing import Any

from mboxlist import privatefiles

log = logging.getLogger(__name__)

FILE = "last-check"         # in the store's folder


def write(root: Path, began: float, findings: int) -> None:
    """Note a check that is over. A volume that takes no writes keeps what it has."""
    told = {"time": began, "seconds": round(time.time() - began, 3), "findings": findings}
    try:
        with privatefiles.replacing(root / FILE, sync=False) as file:
            file.write(json.dumps(told).encode())
    except OSError as error:
        log.debug("%s: %s", root / FILE, error)


def read(root: Path) -> dict[str, Any]:
    """When that was, how long it took, and how much it found; zeros if there was none."""
    try:
        told = json.loads(privatefiles.read(root / FILE))
        return {"time": float(told["time"]), "seconds": float(told["seconds"]), "findings": int(told["findings"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"time": 0.0, "seconds": 0.0, "findings": 0}
