"""Which messages of a mailbox rules hit: over the arrays of its index, all messages at a time. Nothing is changed."""

from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from store.expiry.rules import Action, How, Rule
from store.tables.index import Rows

DAY = 86400
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
Having = Callable[[Places, str, str], Mask]     # which of the messages at these places have this text in this field


@frozen(eq=False)
class Verdict:
    """What one rule does: to the messages at these places, ascending."""

    rule: int                   # number of the rule among those that were asked
    places: Places


def decide(rules: Sequence[Rule], rows: Rows, now: float, having: Having) -> list[Verdict]:
    """What each of the rules does to the messages; those come later in the list that weigh more.

    A message that several rules take away is taken by the one that weighs most. What is only reported is reported by
    every rule that says so.
    """
    taken = np.zeros(len(rows), np.bool_)
    found: list[Verdict] = []
    for number in reversed(range(len(rules))):
        mask = hits(rules[number], rows, now, having)
        if rules[number].action is not Action.REPORT:
            mask &= ~taken
            taken |= mask
        if mask.any():
            found.append(Verdict(number, np.flatnonzero(mask)))
    return found[::-1]


def hits(rule: Rule, rows: Rows, now: float, having: Having) -> Mask:
    """The messages that the rule is about."""
    flags = rows["flags"]
    needed, enough, saving = (np.uint16(rule.with_test(test)) for test in (How.AND, How.OR, How.NOT))
    found = _by_limits(rule, rows, now) if rule.has_limits else np.full(len(rows), bool(rule.headers or needed))
    found &= flags & needed == needed
    spared = flags & saving != 0
    anyway = flags & enough != 0
    for name, text in rule.headers:             # at last, and of as few as can be: they must be read
        places = np.flatnonzero(found & ~spared & ~anyway)
        if len(places):
            found[places] = having(places, name, text)
    return np.asarray((found | anyway) & ~spared)


def _by_limits(rule: Rule, rows: Rows, now: float) -> Mask:
    received = rows["received"]
    found = np.zeros(len(rows), np.bool_)
    if rule.days is not None:
        found |= received <= now - rule.days * DAY
    if rule.saved_days is not None:
        found |= saved(rows) <= now - rule.saved_days * DAY
    if rule.size is not None:
        found |= (rows["size"] > np.uint64(rule.size)) & (received <= now - rule.size_days * DAY)
    if rule.count is not None and len(rows) > rule.count:
        found[oldest_first(rows)[:len(rows) - rule.count]] = True
    if rule.octets is not None and (excess := int(rows["size"].sum()) - rule.octets) > 0:
        order = oldest_first(rows)
        found[order[:int(np.searchsorted(np.cumsum(rows["size"][order]), np.uint64(excess))) + 1]] = True
    return found


def saved(rows: Rows) -> NDArray[np.int64]:
    """When messages came into the mailbox: the internal date of those of which it is not known."""
    when = rows["saved"].astype(np.int64)
    return np.where(when > 0, when, rows["received"])


def oldest_first(rows: Rows) -> Places:
    """The places by internal date, and then by UID."""
    return np.argsort(rows["received"], kind="stable")
