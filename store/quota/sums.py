"""Whether what quota roots use is the sum of what their mailboxes have, told by two tables of each partition alone.

Nearly always it is, and then nothing is left to do: so who recounts asks here first, and opens the store only to
correct something. Where nobody has the store open, and the last one left it clean, all is in the tables: they are read
as files, behind the shut door, and no environment is made. Where others have it open, this process joins the
environments of the partitions, and only those.
"""

import struct
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.engine import damagemarks
from mboxlist.engine.btree import salvage
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Deadlock, Failure, transact
from store.partition.processes import ProcessRegistry
from store.tables.counters import charge_of
from store.tables.quotatable import DOMAIN, QuotaUse, root_key

# Of userarea.RESTORING, recovery.MENDING and store.SCRATCH: the names of what is there while the databases are not
# those of the store.
UNDER_WAY = ("restoring.json", "mending", "reconstruct")
REBUILD = "rebuild"                     # as in `partitions`
_STATES, _QUOTAS = "state.db", "quota.db"
_FIRST = b"\x00\x00\x00\x01"            # the first key of `state.db` that is a mailbox
_DOMAINS = root_key(DOMAIN)             # with this the keys of domains begin, which come last
_CACHE, _LOCKS = 1 << 20, 1000          # who joins gets what the first process asked for

Row = tuple[bytes, bytes]


def are_right(root: Path, who: str, only: str | None = None) -> bool:
    """Whether quota use is right on all partitions, or on one. False also where this cannot be told without opening the
    store. `who`: see Presence. Raises StoreError UNAVAILABLE."""
    if any((root / name).exists() for name in UNDER_WAY) or not (root / "run").is_dir():
        return False
    process_registry = ProcessRegistry(root / "run", who)
    try:
        alone = process_registry.alone
        if not alone:
            process_registry.opened()
        names = _names(root, alone=alone)
        if not names or only is not None and only not in names:
            return False
        folders = [root / "partitions" / name for name in names if only in (None, name)]
        if any((folder / REBUILD).exists() for folder in folders):
            return False
        return all(map(_is_right_at_rest if alone else _is_right_in_use, folders))
    except (*Deadlock, Failure, OSError, struct.error, ValueError):
        return False                    # who opens the store finds out what is wrong, and says it
    finally:
        process_registry.leave()


def _names(root: Path, *, alone: bool) -> list[str]:
    """The partitions as the first process finds them, or as it has told the others."""
    if alone:
        return sorted(path.name for path in (root / "partitions").iterdir() if not path.name.startswith("."))
    return privatefiles.read_text(root / "run" / "partitions").split()


def _is_right_at_rest(folder: Path) -> bool:
    """Of a partition that nobody has open, and nobody can open now."""
    index = folder / "index"
    if (index / "unclean").exists() or damagemarks.marks(index) or not damagemarks.is_untouched(index):
        return False
    with closing(salvage(index / _STATES)) as states, closing(salvage(index / _QUOTAS)) as quotas:
        return _agree(states, quotas)


def _is_right_in_use(folder: Path) -> bool:
    """Of a partition that others have open. What seems wrong may have been changed between two looks: then once more,
    under locks."""
    env = Env(folder / "index", cache=_CACHE, locks=_LOCKS, recover=False, broken=lambda: None)
    try:
        states, quotas = (env.table(name, page=4096, glances=True) for name in (_STATES, _QUOTAS))
        return _agree(states.scan(_FIRST), quotas.scan()) or transact(env, lambda txn: _agree(
            states.scan(_FIRST, txn=txn, hold=True), quotas.scan(txn=txn, hold=True)), reads=True)
    finally:
        env.close()


def _agree(states: Iterable[Row], quotas: Iterable[Row]) -> bool:
    """Whether these rows of the two tables say the same. Raises struct.error, UnicodeDecodeError."""
    used: dict[bytes, tuple[int, int]] = {}
    for key, data in states:
        if key >= _FIRST and (charge := charge_of(data)) is not None:
            name, octets, messages = charge
            before = used.get(name, (0, 0))
            used[name] = before[0] + octets, before[1] + messages
    wanted = {root_key(name.decode()): use for name, use in used.items()}
    for key, data in quotas:
        if not key.startswith(_DOMAINS):
            said = QuotaUse.from_bytes(data)
            if wanted.pop(key, (0, 0)) != (said.octets, said.messages):
                return False
    return not any(use != (0, 0) for use in wanted.values())
