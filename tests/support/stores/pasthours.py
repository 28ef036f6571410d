"""A day of figures, as a server has taken them that runs for long: what the console's charts show."""

import time
from pathlib import Path

from tools.server.metrics import history
from tools.server.metrics.history import History


def fill(root: Path) -> None:
    """The last 24 hours, in each more failed logins and deliveries, and a volume from which things go."""
    made, now = History(root / history.FILE, 0), time.time()
    for hour in range(24):
        made.take([{"process": "a", "pid": 1, "started": now, "failed_logins": hour, "mail": {"delivered": hour},
                    "servers": {}}], [(hour, 24 - hour)], now - 3600 * (24 - hour))
