"""What the commands and tests of Sieve look like: which arguments each takes, and what it needs.

Each module of `actions/` and `conditions/` has a table of these, beside the functions that carry them out.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from attrs import field, frozen

from store.sieve.keymatching import (
    ASCII_CASEMAP,
    COMPARATORS,
    NUMERIC,
    PATTERN,
    RELATIONS,
    TYPES,
    UNICODE,
    Matching,
    folded,
    regular,
)
from store.sieve.scriptrun import Function, Node, Value


class Kind(Enum):
    """What an argument can be."""

    STRING = "a string"
    STRINGS = "a string or a list of strings"
    NUMBER = "a number"


@frozen
class Tag:
    """A tagged argument: what it needs beside its command, and the value that follows it. Of one `group` a command has
    one at most."""

    need: str = ""
    value: Kind | None = None
    group: str = ""


class Tests(Enum):
    """How many tests a command or test takes."""

    NONE = "no test"
    ONE = "one test"
    SOME = "a list of tests"


@frozen
class Form:
    """A command or a test.

    `need`: capabilities, of which one must be required ("" for what needs none). `values`: positional arguments;
    `optional_first`: the first may be missing; `optional_last`: the last may. `block`: commands follow in braces.
    `prepare` makes what the node keeps as `ready` and raises ValueError for arguments that cannot be; it is given the
    node before it has that.
    """

    function: Function
    need: tuple[str, ...] = ()
    tags: Mapping[str, Tag] = field(factory=dict)
    required: tuple[str, ...] = ()          # groups or tags of which one must be there
    values: tuple[Kind, ...] = ()
    optional_first: bool = False
    optional_last: bool = False
    tests: Tests = Tests.NONE
    block: bool = False
    prepare: Callable[[Node], Any] | None = None


MATCH: Mapping[str, Tag] = {
    "comparator": Tag(value=Kind.STRING),
    "is": Tag(group="match type"), "contains": Tag(group="match type"), "matches": Tag(group="match type"),
    "count": Tag("relational", Kind.STRING, "match type"), "value": Tag("relational", Kind.STRING, "match type"),
    "regex": Tag("regex", group="match type")}
#: Of tests of what may be addresses, which lists have (RFC 6134 §2.2).
MATCH_OR_LIST: Mapping[str, Tag] = {**MATCH, "list": Tag("extlists", group="match type")}


def constant(value: Value) -> str:
    """A string that must not have variables. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("variables cannot stand here")
    return value


def constants(value: Value) -> tuple[str, ...]:
    """The strings of a list that have no variables."""
    return tuple([one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, str)])


def matching(node: Node, about: tuple[Any, ...] | None = None, fields: frozenset[bytes] | None = None) -> Matching:
    """The match type and comparator that a test names, and its last argument, the keys. `about`, `fields`: see
    Matching. Raises ValueError."""
    kind = next((name for name in TYPES if name in node.tags), "is")
    comparator = constant(node.tags.get("comparator", NUMERIC if kind == "count" else ASCII_CASEMAP))
    if comparator not in COMPARATORS:
        raise ValueError(f'there is no comparator "{comparator}"')
    relation = ""
    if kind in ("count", "value"):
        relation = constant(node.tags[kind]).lower()
        if relation not in RELATIONS:
            raise ValueError(f'"{relation}" is none of the relations {", ".join(RELATIONS)}')
    if kind in ("contains", "matches", "regex") and comparator == NUMERIC:
        raise ValueError(f"{NUMERIC} cannot compare parts of values, as :{kind} asks")
    if kind == "regex":
        for key in constants(node.values[-1]):
            regular(key, comparator != "i;octet")
    return Matching(kind, comparator, relation, _keys(node.values[-1], kind, comparator), about, fields)


def _keys(value: Value, kind: str, comparator: str) -> tuple[str, ...] | None:
    """See Matching."""
    keys = constants(value)
    if not isinstance(value, tuple) or len(keys) != len(value) or comparator == NUMERIC:
        return None
    if kind == "matches" and (comparator == UNICODE or any("?" in key or len(key) > PATTERN for key in keys)):
        return None
    return tuple([folded(key, comparator) for key in keys]) if kind in ("is", "contains", "matches") else None
