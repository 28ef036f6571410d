"""Rows that follow each other in groups, as whole arrays; and sums of tables that come piece by piece."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field
from numpy.typing import NDArray

Numbers = NDArray[Any]


def begins(lines: pa.Table, names: Sequence[str]) -> NDArray[np.bool_]:
    """Whether one of these columns is another than in the line before."""
    found = np.zeros(len(lines), np.bool_)
    found[:1] = True
    for name in names:
        column = lines[name].combine_chunks()
        found[1:] |= pc.fill_null(pc.not_equal(column[1:], column[:-1]), True).to_numpy(zero_copy_only=False)
    return found


def starts(*columns: Numbers) -> NDArray[np.bool_]:
    """Whether one of these columns of numbers is another than in the line before."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def places(first: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The place of each line in its group, from 1."""
    every = np.arange(len(first))
    return every - np.maximum.accumulate(np.where(first, every, 0)) + 1


def of_group(first: NDArray[np.bool_], values: NDArray[Any], what: np.ufunc) -> NDArray[np.int64]:
    """For each line the sum, or the like, of its group."""
    if not len(first):
        return np.zeros(0, np.int64)
    made: NDArray[np.int64] = what.reduceat(values.astype(np.int64), np.flatnonzero(first))[np.cumsum(first) - 1]
    return made


def numbers(column: Any, absent: int) -> NDArray[np.int64]:
    """A column of numbers, `absent` for null."""
    found: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), absent).to_numpy()
    return found


def class_of(values: Numbers, bounds: Sequence[tuple[int, str]], rest: str) -> pa.Array:
    """The name of the class in which each value is."""
    names = [name for _, name in bounds] + [rest]
    return pa.array(names).take(pa.array(np.searchsorted([most for most, _ in bounds], values)))


@define(eq=False)
class Numbered:
    """Texts that have numbers, in the order in which they came; null is one, too."""

    names: list[str | None] = field(factory=list)
    _numbers: dict[str | None, int] = field(factory=dict)

    def number(self, name: str | None) -> int:
        """The number of a text."""
        if (found := self._numbers.get(name)) is None:
            found = self._numbers[name] = len(self.names)
            self.names.append(name)
        return found

    def numbers(self, texts: pa.ChunkedArray) -> Numbers:
        """The numbers of these texts, -1 for null."""
        coded = texts.combine_chunks().dictionary_encode()
        codes = np.array([self.number(name) for name in coded.dictionary.to_pylist()] + [-1])
        found: Numbers = codes[numbers(coded.indices, -1)]
        return found


@define(eq=False)
class Sums:
    """A table that is summed up by `keys` while its rows come, some at a time: `how` says of each other column whether
    it is the "sum", "max" or "min" that is wanted. What is in memory are the sums."""

    keys: tuple[str, ...]
    how: Mapping[str, str]
    _table: pa.Table | None = field(default=None, init=False)

    def add(self, rows: pa.Table) -> None:
        """These rows as well."""
        rows = rows.select([*self.keys, *self.how])
        if self._table is not None:
            rows = pa.concat_tables([self._table, rows])
        self._table = rows.group_by(list(self.keys)).aggregate(list(self.how.items())).rename_columns(
            [*self.keys, *self.how])

    @property
    def table(self) -> pa.Table:
        """The sums of what has come."""
        assert self._table is not None
        return self._table

    def rows(self) -> list[dict[str, Any]]:
        """The sums as dictionaries."""
        found: list[dict[str, Any]] = [] if self._table is None else self._table.to_pylist()
        return found
