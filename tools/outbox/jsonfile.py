"""A file that gets a line of JSON for each event. Whoever rotates it renames it: it is opened anew for each batch."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from store.events.outboxtable import Parcel
from tools.outbox.destination import Down, lines
from tools.outbox.outboxsettings import Settings
from tools.outbox.ownthread import OwnThread


@define(eq=False)
class JsonFile:
    """For its owner alone (0600)."""

    path: Path
    thread: OwnThread

    async def send(self, batch: Sequence[Parcel]) -> None:
        """Have the lines on disk. Raises Down."""
        try:
            await self.thread.run(partial(append, self.path, lines(batch)))
        except OSError as error:
            raise Down(f"{self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Nothing is open between two batches."""


def append(path: Path, octets: bytes) -> None:
    """All of it, or nothing; a line that was cut off before gets its end. Raises OSError."""
    new = not path.exists()
    with privatefiles.open_file(path, "r+b" if not new else "w+b", 0) as file:
        end = file.seek(0, os.SEEK_END)
        if end and (file.seek(end - 1), file.read(1))[1] != b"\n":
            octets = b"\n" + octets
        file.seek(end)
        try:
            view = memoryview(octets)
            while view:
                view = view[file.write(view):]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise
    if new:
        sync_folder(path.parent)


def of_settings(settings: Settings, reactor: Any) -> JsonFile:
    """The receiver's file."""
    return JsonFile(settings.path, OwnThread(f"outbox-{settings.path.name}", reactor.callFromThread))
