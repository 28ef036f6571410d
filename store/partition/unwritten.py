"""The mailboxes whose `store.idx` is older than they are, because this process has changed them."""

import logging
import threading

from attrs import define, field

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName

log = logging.getLogger(__name__)


@define(eq=False)
class Unwritten:
    """The mailboxes of a partition that this process changed since their files were written.

    `users` are users and domains of which something has changed that only `users/directory` can have;
    `directory_known`: that file is there. Any thread may add to `changed` and `users` at any time. `names` are the
    names that mailboxes have or had, where a file may have to be removed; `failing` is why the last try failed. When
    `stop` is set, nothing waits any more.
    """

    changed: set[int] = field(factory=set)
    names: dict[int, set[MailboxName]] = field(factory=dict)
    failing: dict[int, str] = field(factory=dict)
    users: set[str] = field(factory=set)
    directory_known: bool = False
    stop: threading.Event = field(factory=threading.Event)
    _lock: threading.Lock = field(factory=threading.Lock)

    def note(self, entry: MailboxEntry) -> None:
        """The mailbox begins or ends, or something beside its records changes."""
        with self._lock:
            self.names.setdefault(entry.id, set()).add(entry.name)
        self.changed.add(entry.id)

    def forget(self) -> None:
        """Forget all changes so far, but for those that `userareacheck` finds."""
        with self._lock:
            self.names.clear()
        self.changed.clear()

    def take(self) -> list[int]:
        """Take all that are to be written now; those that failed last time are at the end."""
        found = []
        for _ in range(len(self.changed)):          # one at a time: other threads may add meanwhile
            found.append(self.changed.pop())
        return sorted(found, key=lambda mailbox: (mailbox in self.failing, mailbox))

    def take_users(self) -> set[str]:
        """Take the `users` so far."""
        found = set()
        for _ in range(len(self.users)):
            found.add(self.users.pop())
        return found

    def names_of(self, mailbox: int) -> set[MailboxName]:
        """The names under which a file of the mailbox may be."""
        with self._lock:
            return set(self.names.get(mailbox, ()))

    def tidied(self, mailbox: int, names: set[MailboxName]) -> None:
        """The file is where it belongs, and under none of the other names."""
        with self._lock:
            left = self.names.pop(mailbox, set()) - names
            if left:
                self.names[mailbox] = left

    def failed(self, mailbox: int, reason: str, level: int = logging.ERROR) -> None:
        """Writing it failed: it comes again in the next round, after all others. The reason is logged once."""
        if self.failing.get(mailbox) != reason:
            log.log(level, "store.idx of mailbox %d cannot be written: %s", mailbox, reason)
            self.failing[mailbox] = reason
        self.changed.add(mailbox)
