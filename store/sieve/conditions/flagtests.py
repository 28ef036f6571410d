"""Flags and their test: RFC 5232."""

import re
from collections.abc import Iterable

from store.sieve.commandforms import MATCH, Form, Kind, matching
from store.sieve.scriptrun import Node, Run

_FLAG = re.compile(r"\\(?:answered|flagged|deleted|seen|draft)|[^\x00-\x20(){%*\"\\\]\x7f-\U0010ffff]{1,250}",
                   re.IGNORECASE | re.ASCII)      # else it leaves out k and s, which are the Kelvin sign and a long s
_SYSTEM = {name.lower(): name for name in ("\\Answered", "\\Flagged", "\\Deleted", "\\Seen", "\\Draft")}
MOST = 100                              # flags of one list


def flags_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The flags that these strings name, each once; a string may name several (RFC 5232 §2). What is no flag of IMAP
    (RFC 9051 §9) goes."""
    found: dict[str, str] = {}
    for text in texts:
        for flag in text.split():
            if _FLAG.fullmatch(flag) and len(found) < MOST:
                found.setdefault(flag.lower(), _SYSTEM.get(flag.lower(), flag))
    return tuple(found.values())


def read(run: Run, names: Iterable[str]) -> list[str]:
    """The flags in these variables."""
    return [flag for name in names for flag in flags_of(run.variable(name.lower()).split())]


def has_flag(run: Run, node: Node) -> bool:
    """RFC 5232 §4."""
    held = list(run.flags) if len(node.values) == 1 else read(run, run.list(node.values[0]))
    keys = run.list(node.values[-1])
    return bool(node.ready.any(run, node, held, keys if node.ready.type != "is" else flags_of(keys) or keys))


TESTS = {
    "hasflag": Form(has_flag, ("imap4flags",), MATCH, values=(Kind.STRINGS, Kind.STRINGS), optional_first=True,
                    prepare=matching),
}
