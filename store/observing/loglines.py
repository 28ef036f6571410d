"""Lines of the log about deliveries and slow commands. Their form is fixed: a test holds it, docs/logging.md says it.

    delivery: message="ID" session=ID from="A" message_id="I" size=N recipients=N delivered=N known=N refused=N
              seconds=N digest=D to="MAILBOX:UID ..." reply="R" reason="R"
    slow: command session=ID user="U" service=S command="C" seconds=N waited_for_client=N waited_for_flush=N ...
    slow: work user="U" thread=K waited_for_thread=N seconds=N

What is unknown is left out. What a client or a message says stands in double quotes, bounded, with escapes
(`refusallines.quoted`). The last kind says where the time of a command in threads went. Whoever takes the time compares
two numbers, and calls nothing here.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from attrs import define

from store.accounts.refusallines import LONGEST, ROUTINE, FieldLine, bounded, is_plain, quoted

#: What a session can wait for within a command. `turn`: other connections, or a pause that it must make; `work`: a
#: thread that reads or changes much.
WAITS = ("client", "flush", "disk", "lock", "directory", "work", "turn")
CLIENT, FLUSH, DISK, LOCK, DIRECTORY, WORK, TURN = WAITS
MOST_MAILBOXES = 5          # that a delivery's line names

delivery = logging.getLogger("delivery")
slow = logging.getLogger("slow")


class SpanMaker(Protocol):
    """Whoever makes spans of what is told (`tools/server/metrics/spans.py`)."""

    def command(self, session: str, user: str, service: str, name: str, seconds: float, waited: Mapping[str, float]
                ) -> None:
        """A command of the session has ended."""

    def delivery(self, session: str, facts: Mapping[str, str | int], seconds: float) -> None:
        """A delivery has; the command that it is part of ends next."""


@define
class Limit:
    """Seconds after which a command is told to anybody; after which the log is told of it as `slow`; and who makes
    spans of all, if anybody does."""

    seconds: float = math.inf
    slow: float = math.inf
    spans: SpanMaker | None = None

    def follow(self, slow: float, spans: SpanMaker | None) -> None:
        """Have it so from now on."""
        self.slow, self.spans = slow, spans
        self.seconds = slow if spans is None else -math.inf


LIMIT = Limit()


def tell_command(session: str, user: str, service: str, name: str, seconds: float, waited: Mapping[str, float]
                 ) -> None:
    """A command has taken so long, of which so much was spent in waiting, by what for."""
    if seconds > LIMIT.slow:
        times = " ".join(f"waited_for_{what}={waited.get(what, 0.0):.3f}" for what in WAITS)
        slow.warning("command session=%s user=%s service=%s command=%s seconds=%.3f %s", session, quoted(user), service,
                     quoted(name), seconds, times)
    if LIMIT.spans is not None:
        LIMIT.spans.command(session, user, service, name, seconds, waited)


def tell_slow_work(kind: str, user: str, waited: float, seconds: float) -> None:
    """Work in a thread has taken so long, and has waited for the thread before. Called in that thread."""
    if kind != "housekeeping":          # which takes long by its nature
        slow.warning("work user=%s thread=%s waited_for_thread=%.3f seconds=%.3f", quoted(user), kind, waited, seconds)


def tell_delivery(message: str, session: str, sender: str, message_id: str, size: int, delivered: int, known: int,
                  refused: int, seconds: float, digest: str, places: Sequence[str]) -> None:
    """A message has been delivered: to so many recipients, who had it, or were refused; `places`: mailbox and UID of
    those who have it. The ids and the digest are ours."""
    if LIMIT.spans is not None:
        LIMIT.spans.delivery(session, {
            "message": message, "size": size, "recipients": delivered + known + refused, "delivered": delivered,
            "known": known, "refused": refused}, seconds)
    if not delivery.isEnabledFor(logging.INFO):
        return
    shown = places[0] if len(places) == 1 else _several(places)
    said = f"{sender}{message_id}{shown}"
    if len(said) > LONGEST:
        sender, message_id, shown = bounded(sender), bounded(message_id), bounded(shown)
        said = f"{sender}{message_id}{shown}"
    taken = f"{seconds:.3f}"
    if ROUTINE.take is None or not is_plain(said):
        recipients = delivered + known + refused
        delivery.handle(FieldLine(
            delivery, logging.INFO,
            f"message={quoted(message)} session={session} from={quoted(sender)} message_id={quoted(message_id)} "
            f"size={size} recipients={recipients} delivered={delivered} known={known} refused={refused} "
            f"seconds={taken} digest={digest} to={quoted(shown)}", {
                "message": message, "session": session, "from": sender, "message_id": message_id, "size": size,
                "recipients": recipients, "delivered": delivered, "known": known, "refused": refused,
                "seconds": float(taken), "digest": digest, "to": shown}))
        return
    counts, as_json = _counted(delivered, known, refused)
    if ROUTINE.as_json:
        ROUTINE.take(
            "delivery", f'message=\\"{message}\\" session={session} from=\\"{sender}\\" message_id=\\"{message_id}\\" '
            f'size={size} {counts} seconds={taken} digest={digest} to=\\"{shown}\\"", "message": "{message}", '
            f'"session": "{session}", "from": "{sender}", "message_id": "{message_id}", "size": {size}, {as_json}, '
            f'"seconds": {taken}, "digest": "{digest}", "to": "{shown}"}}')
    else:
        ROUTINE.take(
            "delivery", f'message="{message}" session={session} from="{sender}" message_id="{message_id}" size={size} '
            f'{counts} seconds={taken} digest={digest} to="{shown}"')


@lru_cache(maxsize=1000)
def _counted(delivered: int, known: int, refused: int) -> tuple[str, str]:
    """Recipients, as text and JSON have them."""
    recipients = delivered + known + refused
    return (f"recipients={recipients} delivered={delivered} known={known} refused={refused}",
            f'"recipients": {recipients}, "delivered": {delivered}, "known": {known}, "refused": {refused}')


def _several(places: Sequence[str]) -> str:
    more = len(places) - MOST_MAILBOXES
    return " ".join(places[:MOST_MAILBOXES]) + (f" and {more} more" if more > 0 else "")


def tell_refused_delivery(message: str, session: str, sender: str, recipients: int, reply: str, reason: str) -> None:
    """A message has been refused for all of its recipients."""
    delivery.info("message=%s session=%s from=%s recipients=%d delivered=0 known=0 refused=%d reply=%s reason=%s",
                  quoted(message), session, quoted(sender), recipients, recipients, quoted(reply), quoted(reason))
