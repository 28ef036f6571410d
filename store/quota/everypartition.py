"""Changes of a quota root that has rows on several partitions, as a domain has on all: on all of them, or on none.

Each partition is an environment of its own, so that there is no transaction for all. The change is an operation on
record (`store.operations`): a process that is killed between two partitions leaves it to the start, which finishes it.
What is refused on one of them, for want of room or because a mailbox is being changed, is put back on those before it.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mboxlist.names import SEPARATOR
from store.errors import Problem, StoreError, disk_problem
from store.operations import operationrecord

if TYPE_CHECKING:
    from store.partition.partition import Partition
    from store.store import Store
    from store.tables.quotatable import QuotaUse

log = logging.getLogger(__name__)


def held_by(root: str) -> list[str]:
    """What an operation on a quota root holds: all roots of its user, since a command can change several."""
    return [root.partition(SEPARATOR)[0]]


@contextmanager
def all_or_none(store: "Store", root: str, places: "Sequence[Partition]", kind: str, arguments: dict[str, Any],
                put_back: "Callable[[Partition, QuotaUse | None], None]") -> Iterator[None]:
    """The block changes the root on these partitions. `put_back`: have it be there as it was, None: not at all.

    An earlier change of the root that was cut off, and of which this one leaves nothing, is not finished any more.
    Raises StoreError UNAVAILABLE while another one of the user's roots is not finished, which would be done behind this
    one; and READ_ONLY.
    """
    try:
        earlier = operationrecord.rivals_cut_off(store.root, kind, held_by(root))
    except OSError as error:
        raise disk_problem(error) from error
    arguments = {"root": root, **arguments}
    for each in earlier:
        if not _replaces(kind, arguments, each):
            raise StoreError(Problem.UNAVAILABLE, f"{each} was cut off, and is not finished yet: see onecopy status")
    if len(places) < 2:
        yield
    else:
        store.require_writable()
        with store.begun(kind, arguments, holds=held_by(root)) as begun, _put_back_if_refused(
                root, places, begun, put_back):
            yield
    for each in earlier:
        operationrecord.forget(store.root, each)


def _replaces(kind: str, arguments: dict[str, Any], earlier: operationrecord.Operation) -> bool:
    """Whether all that the earlier one did is done away with, or done again."""
    return earlier.arguments.get("root") == arguments["root"] and not earlier.arguments.get("composite") and (
        kind == "quota remove" or all(arguments[limit] is not None or earlier.arguments.get(limit) is None
                                      for limit in ("octets", "messages")))


@contextmanager
def _put_back_if_refused(root: str, places: "Sequence[Partition]", begun: operationrecord.Begun,
                         put_back: "Callable[[Partition, QuotaUse | None], None]") -> Iterator[None]:
    before = [(place, _row(place, root)) for place in places]
    try:
        yield
    except StoreError as refusal:
        try:
            for place, use in before:
                if _limits(_row(place, root)) != _limits(use):
                    put_back(place, use)
        except StoreError as error:
            log.error("the limits of %s are changed on some partitions only (%s), and cannot be put back (%s): "
                      "housekeeping goes on with the change", root, refusal, error)
            begun.half_way = True
        else:
            begun.is_undone = True
        raise


def _row(place: "Partition", root: str) -> "QuotaUse | None":
    return place.quotas.find(root) if place.quotas.has(root) else None


def _limits(use: "QuotaUse | None") -> tuple[int, int] | None:
    return None if use is None else (use.octet_limit, use.message_limit)
