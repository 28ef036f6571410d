"""What the script of a mailbox would do after a command of IMAP (RFC 6785), without doing it: `onecopy sieve test`."""

from collections.abc import Callable

import numpy as np

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.events.scriptevents import ScriptEvent
from store.filtering.eventscripts import EventRun, Message, Wanted, script_name
from store.filtering.filters import Filters
from store.sieve.scriptrun import Node, Tree
from store.store import Store


def script_of(store: Store, entry: MailboxEntry) -> Tree:
    """The script that runs on events in the mailbox. Raises StoreError NO_MAILBOX if none does."""
    name = script_name(store, entry)
    found = None if name is None else Filters.of(store).on_events(entry.name.owner, name.name, site_first=name.server)
    if found is None:
        why = "no script is named for it" if name is None else f"there is no script {name.name}"
        raise StoreError(Problem.NO_MAILBOX, f"No script runs on events in {entry.name.path}: {why}")
    return found


def try_event(store: Store, entry: MailboxEntry, uid: int, event: tuple[str, tuple[str, ...]], tree: Tree,
              noted: Callable[[Node, bool | None], None], made: list[str]) -> Wanted | None:
    """What that script wants for a message that is there, after an event: its cause (APPEND, COPY, FLAG), and which
    flags were changed. `noted` hears of each step; `made` gets the names of mailboxes that it wants to have made. None:
    there is no such message. Raises StoreError."""
    view, owner = store.open_mailbox(entry), entry.name.owner
    row = view.row(uid)
    if row is None:
        return None
    cause, flags = event
    with store.open_message(entry, row) as file:
        begun = EventRun.begin(store, ScriptEvent(b"", cause, owner, flags, np.array([uid], np.uint32)),
                               Message.of(view, uid, row), file)
        begun.state.noted = noted
        begun.disposer.only_tried(made)
        return begun.ended(tree, file)
