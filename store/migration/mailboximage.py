"""What a mailbox of a live store is to be, wherever it comes from: a backup, another server, a folder of files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mboxlist.names import MailboxName
from store.tables.index import ROW, Rows

Own = tuple[int, str, NDArray[Any]]         # flags that a reader has for himself: chunk, reader, flags
Note = tuple[str, str, bytes]               # an annotation: entry name, user, value


def _no_rows() -> Rows:
    return np.empty(0, ROW)


@frozen(eq=False)
class MailboxImage:
    """`uidvalidity` 0: a new one; `uidnext` and `highestmodseq` are the least that it has.

    `rows` are its records, of `messageimport.Contents.translated` or `new_rows`; `keywords` what their bits stand for;
    `own` and `uidls`, the unique-ids of POP3, go by the UIDs of `rows`. `subscriptions` are the owner's, to be added to
    those that there are.
    """

    name: MailboxName
    uidvalidity: int = 0
    uidnext: int = 1
    highestmodseq: int = 1
    recent: int = 1
    created: int = 0
    special_use: str | None = None
    acl: Mapping[str, str] = field(factory=dict)
    keywords: Sequence[str] = ()
    annotations: Sequence[Note] = ()
    subscriptions: Sequence[str] = ()
    rows: Rows = field(factory=_no_rows)
    own: Sequence[Own] = ()
    uidls: Mapping[int, bytes] = field(factory=dict)
