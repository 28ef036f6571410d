"""What serves mail from a standby, as far as no clients are needed to see it."""

from pathlib import Path
from threading import Event

import pytest

from store.errors import StoreError
from tools.cli import options
from tools.server.readingserver import ReadingServer


class FewLooks(Event):
    """An event that is set after some looks at it."""

    looks = 3

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def wait(self, timeout: float | None = None) -> bool:
        return False


def test_it_ends_when_there_is_no_standby_any_more(tmp_path: Path) -> None:
    """A promotion was quicker than its start: the store's own server needs these ports."""
    config = options.load({"root": str(tmp_path)}, {}, None)
    with pytest.raises(StoreError, match="no standby"):
        ReadingServer(config, [], FewLooks(), Event()).run()
