"""Who hears that a mailbox may have changed: a hint for IDLE, never the truth."""

from collections.abc import Callable, Iterable

Callback = Callable[[], None]


class News:
    """The listeners of this process, and the way to those of the others (`forward`)."""

    def __init__(self) -> None:
        self._listeners: dict[int, list[Callback]] = {}
        self.forward: Callable[[Iterable[int]], None] = lambda mailboxes: None

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

    def tell(self, mailboxes: Iterable[int]) -> None:
        """A transaction of this process changed these mailboxes and has been committed."""
        self.hear(mailboxes)
        self.forward(mailboxes)

    def hear(self, mailboxes: Iterable[int]) -> None:
        """Call the listeners of this process."""
        for mailbox in mailboxes:
            for callback in tuple(self._listeners.get(mailbox, ())):
                callback()
