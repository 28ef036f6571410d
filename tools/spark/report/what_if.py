"""What rules of expiry, another default quota or another charging policy would change. The rules are those of `onecopy
expire` (store/expiry), and what they hit is decided there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from store.expiry.decide import Mask, decide
from store.expiry.rulebook import Scope, Source, chosen, read
from store.expiry.rules import Action, Rule, parse
from store.tables.index import Rows, take
from tools.spark.source import rows
from tools.spark.source.reading import Task


def rules_of(text: str) -> Source:
    """The rule that is given on the command line: attributes of a rule, between semicolons. Raises ValueError."""
    rules, faults = parse("\n".join(part.strip() for part in text.split(";")))
    if faults:
        raise ValueError(faults[0].text)
    return _can_be_tried(Source(Scope.GLOBAL, "", text, rules))


def rules_in(path: Path) -> Source:
    """Those of a file. Raises ValueError, which says where it is wrong."""
    source = read(Scope.GLOBAL, "", path, missing_ok=False)
    assert source is not None
    if source.faults:
        raise ValueError(source.complaints()[0])
    return _can_be_tried(source)


def _can_be_tried(source: Source) -> Source:
    for rule in source.rules:
        if rule.headers:
            raise ValueError("a report reads no header fields: onecopy expire --dry-run does")
    return source


@frozen
class Left:
    """Gives the references that rules leave, of a part of them. What a rule reports or files elsewhere stays: it takes
    no less room there."""

    sources: Sequence[Source]
    now: float

    def __call__(self, task: Task) -> Iterator[pa.RecordBatch]:
        """See `rows.references`."""
        return rows.references(task, self.of)

    def of(self, name: str | None, special_use: str | None, records: Rows) -> Rows:
        """What is left of a mailbox; all of one whose name is lost."""
        if name is None:
            return records
        taken = self._taken([one.rule for one in chosen(self.sources, name, special_use).rules], records)
        return take(records, ~taken) if taken.any() else records

    def _taken(self, rules: Sequence[Rule], records: Rows) -> Mask:
        gone = np.zeros(len(records), np.bool_)
        for verdict in decide(rules, records, self.now, _unread):
            if rules[verdict.rule].action is Action.DISCARD:
                gone[verdict.places] = True
        return gone


def _unread(places: Any, name: str, text: str) -> Mask:
    raise AssertionError("rules about header fields are refused")


def compared(today: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Two reports side by side: their totals, what is freed, and who would be over quota, or would not be any more."""
    names = ("messages", "logical", "fair_share", "over", "warned")
    before, after = _over(today["users"]), _over(then["users"])
    return {
        "today": {name: today["totals"][name] for name in names},
        "then": {name: then["totals"][name] for name in names},
        "freed": today["totals"]["fair_share"] - then["totals"]["fair_share"],
        "messages_gone": today["totals"]["messages"] - then["totals"]["messages"],
        "over_then": sorted(after - before),
        "over_no_more": sorted(before - after),
    }


def _over(users: Iterable[Mapping[str, Any]]) -> set[str]:
    return {user["user"] for user in users if user["over"]}
