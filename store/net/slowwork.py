"""Commands, and work in threads, that take long are told to the log (`log.slow`): two kinds of line, named `slow`.

    slow: command session=ID user="U" service=S command=C seconds=N waited_for_client=N
    slow: work user="U" kind=K waited_for_thread=N seconds=N

The second says where the time of the first went: the kinds are those of `threads.POOLS`; work of the kinds `held` and
`locked` waits for a lock, `sync` for the disk. Whoever takes the time compares two numbers, and calls nothing of this.
"""

import logging
import math

from attrs import define

from store.accounts.refusallines import quoted

log = logging.getLogger("slow")

LONG = frozenset({"housekeeping"})      # kinds of work that take long by their nature


@define
class Limit:
    """Seconds after which something is told."""

    seconds: float = math.inf


LIMIT = Limit()


def command(session: str, user: str, service: str, name: str, seconds: float, for_client: float) -> None:
    """A command has taken so long, of which so much was spent in waiting for the client to take what was sent."""
    log.warning("command session=%s user=%s service=%s command=%s seconds=%.3f waited_for_client=%.3f", session,
                quoted(user), service, quoted(name), seconds, for_client)


def work(kind: str, user: str, waited: float, seconds: float) -> None:
    """Work in a thread has taken so long, and has waited for the thread before. Called in that thread."""
    if kind not in LONG:
        log.warning("work user=%s kind=%s waited_for_thread=%.3f seconds=%.3f", quoted(user), kind, waited, seconds)
