"""Who hears that a mailbox, or an account, may have changed: a hint for those who wait, never the truth."""

import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence

from attrs import define

from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxId

Callback = Callable[[], None]
_ACCOUNTS = 1 << 31         # no mailbox has so high an id


def account(user: str) -> int:
    """The number under which it is told that the row of a user, or with an @ before it of a domain, may have changed.
    Two may have the same one."""
    return _ACCOUNTS | zlib.crc32(user.encode()) & _ACCOUNTS - 1


@define                 # `frozen` would set each of the attributes by a call, for each change of each mailbox
class Change:
    """What a transaction changed in a mailbox: it was committed when the mailbox's HIGHESTMODSEQ was `before`, which is
    one more since, and changed these chunks of its index. Who has read the mailbox need not look at the others. Nobody
    changes one."""

    partition: int              # `partition_number`
    mailbox: MailboxId
    before: int
    chunks: frozenset[int] | None      # None: many


def partition_number(name: str) -> int:
    """The number under which the changes of a partition's mailboxes are told."""
    return zlib.crc32(name.encode())


@define(eq=False)
class _Listener:
    """`is_behind`: whether it has something to hear, where nothing has been told. `ended`: it listens no more."""

    callback: Callback
    is_behind: Callable[[], bool]
    ended: bool = False

    def look(self) -> None:
        """Have it called if it is behind."""
        if not self.ended and self.is_behind():
            self.callback()


class News:
    """The listeners of this process, and the way to those of the others (`forward`)."""

    def __init__(self) -> None:
        self._listeners: dict[int, list[_Listener]] = {}
        self._learners: dict[int, Callable[[Change], None]] = {}
        self.forward: Callable[[Collection[int], Sequence[Change]], None] = lambda mailboxes, changes: None
        self.first: Callable[[], None] = lambda: None       # called when somebody listens and nobody did
        self.interest: Callable[[int, int], None] = lambda mailbox, more: None
        """Called when somebody listens to a mailbox and nobody did (1), and when nobody does any more (-1)."""
        self.shown: Callable[[MailboxId], list[Change]] = lambda mailbox: []
        """What other processes have changed in a mailbox lately, in no order: some of it has been heard."""
        self._thread = threading.get_ident()
        self._call: Callable[..., object] | None = None

    def listen_in_this_thread(self, call: Callable[..., object]) -> None:
        """Listeners are called in this thread only; `call` has it call a function with its arguments."""
        self._thread = threading.get_ident()
        self._call = call

    def subscribe(self, mailbox: int, callback: Callback, is_behind: Callable[[], bool] = lambda: True) -> Callback:
        """Have `callback` called whenever the mailbox may have changed, and when it `is_behind` without having been
        told; returns what ends that."""
        if not self._listeners:
            self.first()
        listener = _Listener(callback, is_behind)
        if mailbox not in self._listeners:
            self.interest(mailbox, 1)
        self._listeners.setdefault(mailbox, []).append(listener)

        def unsubscribe() -> None:
            listener.ended = True
            listeners = self._listeners.get(mailbox, [])
            if listener in listeners:
                listeners.remove(listener)
            if not listeners and self._listeners.pop(mailbox, None) is not None:
                self.interest(mailbox, -1)

        return unsubscribe

    def subscribed(self) -> tuple[int, ...]:
        """The mailboxes that have listeners in this process."""
        return tuple(self._listeners)

    def learn(self, partition: int, callback: Callable[[Change], None]) -> None:
        """Have `callback` called, in the listeners' thread, for what other processes changed on that partition."""
        self._learners[partition] = callback

    def tell(self, mailboxes: Collection[int], changes: Sequence[Change] = ()) -> None:
        """A transaction of this process changed these mailboxes and has been committed; `changes`: what it changed, as
        far as that is said. Nothing about this turns what was done into a refusal."""
        if self._call is not None and threading.get_ident() != self._thread:
            after_commit(self._call, self.hear, mailboxes)
        elif self._listeners:
            self.hear(mailboxes)
        after_commit(self.forward, mailboxes, changes)

    def hear(self, mailboxes: Iterable[int], changes: Iterable[Change] = ()) -> None:
        """Call the listeners of this process; `changes` are those of others."""
        for change in changes:
            if (learner := self._learners.get(change.partition)) is not None:
                after_commit(learner, change)
        for mailbox in mailboxes:
            for listener in tuple(self._listeners.get(mailbox, ())):
                after_commit(listener.callback)

    def look(self, mailboxes: Iterable[int], ask: Callable[[Callback], None] = after_commit) -> None:
        """News of these may have been lost: call the listeners that are behind. `ask` calls what asks one of them, now
        or later."""
        for mailbox in mailboxes:
            for listener in tuple(self._listeners.get(mailbox, ())):
                ask(listener.look)
