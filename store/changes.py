"""Who hears that a mailbox, or an account, may have changed: a hint for those who wait, never the truth."""

import threading
import zlib
from collections.abc import Callable, Iterable

Callback = Callable[[], None]
_ACCOUNTS = 1 << 31         # no mailbox has so high an id


def account(user: str) -> int:
    """The number under which it is told that the row of a user, or with an @ before it of a domain, may have changed.
    Two may have the same one."""
    return _ACCOUNTS | zlib.crc32(user.encode()) & _ACCOUNTS - 1


class News:
    """The listeners of this process, and the way to those of the others (`forward`)."""

    def __init__(self) -> None:
        self._listeners: dict[int, list[Callback]] = {}
        self.forward: Callable[[Iterable[int]], None] = lambda mailboxes: None
        self._thread = threading.get_ident()
        self._call: Callable[..., object] | None = None

    def listen_in_this_thread(self, call: Callable[..., object]) -> None:
        """Listeners are called in this thread only; `call` has it call a function with its arguments."""
        self._thread = threading.get_ident()
        self._call = call

    def subscribe(self, mailbox: int, callback: Callback) -> Callback:
        """Have `callback` called whenever the mailbox may have changed; returns what ends that."""
        self._listeners.setdefault(mailbox, []).append(callback)

        def unsubscribe() -> None:
            listeners = self._listeners.get(mailbox, [])
            if callback in listeners:
                listeners.remove(callback)
            if not listeners:
                self._listeners.pop(mailbox, None)

        return unsubscribe

    def subscribed(self) -> tuple[int, ...]:
        """The mailboxes that have listeners in this process."""
        return tuple(self._listeners)

    def tell(self, mailboxes: Iterable[int]) -> None:
        """A transaction of this process changed these mailboxes and has been committed."""
        if self._call is not None and threading.get_ident() != self._thread:
            self._call(self.hear, mailboxes)
        else:
            self.hear(mailboxes)
        self.forward(mailboxes)

    def hear(self, mailboxes: Iterable[int]) -> None:
        """Call the listeners of this process."""
        for mailbox in mailboxes:
            for callback in tuple(self._listeners.get(mailbox, ())):
                callback()
