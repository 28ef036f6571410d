"""The list of mailboxes as it was: that of a copy, for reading."""

from pathlib import Path

from mboxlist.annotations import Annotations
from mboxlist.engine.hotcopy import Still
from mboxlist.rights import Granted
from mboxlist.table import MailboxList


class SnapshotList(MailboxList):
    """`find`, `find_id`, `below`, `all`, `annotations` and `granted` of a list in a folder that nobody writes to;
    nothing else of `MailboxList`.

    Raises Failure (of `transact`).
    """

    def __init__(self, folder: Path, cache: int) -> None:       # not that of MailboxList: there is nothing to write to
        self._still = Still(folder, cache)
        self._mailboxes = self._still.table("mailboxes.db")
        self._names = self._still.table("names.db")
        self.annotations = Annotations(self._still.table("annotations.db"))
        self.granted = Granted(self._still.table("rights.db"))

    def close(self, *, clean: bool = False) -> None:
        """Let go of it; nobody reads any more."""
        self._still.close()
