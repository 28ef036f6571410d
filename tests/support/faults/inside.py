"""A process inside a store, to be killed there.

python -m tests.support.faults.inside ROOT NAME [USER]: NAME is what it calls itself; with USER it has a transaction
open that holds a lock on that user's INBOX. Prints "inside" once it is, and leaves when standard input ends.
"""

import sys
from pathlib import Path

from mboxlist.names import MailboxName
from store.opening import open_store
from store.partition.transactions import WriteTxn
from store.settings import Settings


def hold() -> None:
    """Until standard input ends."""
    print("inside", flush=True)
    sys.stdin.read()


def main(root: str, who: str, user: str = "") -> None:
    """See the module's text."""
    store = open_store(Path(root), Settings(), who=who)
    if user:
        entry = store.entry(MailboxName(user, "INBOX"))

        def work(txn: WriteTxn) -> None:
            state = txn.state(entry.id)
            txn.set_state(entry.id, state, state)
            hold()

        store.partition_of(entry).transact(work)
    else:
        hold()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
