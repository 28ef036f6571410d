"""What the last `onecopy check` has found: a file for `onecopy status`, `onecopy stats` and the metrics."""

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from store.values import Finding

log = logging.getLogger(__name__)

FILE = "last-check"         # in the store's folder
KEPT = 200                  # findings,
LETTERS = 2000              # and so much of each text


def write(root: Path, began: float, findings: Sequence[Finding]) -> None:
    """Note a check that is over. A volume that takes no writes keeps what it has."""
    first = [{"where": each.where[:LETTERS], "what": each.what[:LETTERS], "repair": str(each.repair)[:LETTERS]}
             for each in findings[:KEPT]]
    told = {"time": began, "seconds": round(time.time() - began, 3), "findings": len(findings), "first": first}
    try:
        with privatefiles.replacing(root / FILE, sync=False) as file:
            file.write(json.dumps(told).encode())
    except OSError as error:
        log.debug("%s: %s", root / FILE, error)


def read(root: Path) -> dict[str, Any]:
    """When that was, how long it took, and how much it found; zeros if there was none."""
    try:
        return _figures(json.loads(privatefiles.read(root / FILE)))
    except (OSError, ValueError, KeyError, TypeError):
        return {"time": 0.0, "seconds": 0.0, "findings": 0}


def read_with_findings(root: Path) -> dict[str, Any]:
    """What `read` gives, with the first findings: `where`, `what` and `repair` of each."""
    try:
        told = json.loads(privatefiles.read(root / FILE))
        return {**_figures(told), "first": [{name: str(each[name]) for name in ("where", "what", "repair")}
                                            for each in told.get("first", [])]}
    except (OSError, ValueError, KeyError, TypeError):
        return {**read(root), "first": []}


def _figures(told: Any) -> dict[str, Any]:
    return {"time": float(told["time"]), "seconds": float(told["seconds"]), "findings": int(told["findings"])}
