"""How far a standby is: `standby.json` in its folder, which says that it is one, whose, and which state it has whole.

It is replaced in one step, and only when all that it says is on disk. Logs may go on behind the places that it names:
what is there counts for nothing, and is cut off before more comes.
"""

import json
import zlib
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from mboxlist.engine.generations import LogEnd
from mboxlist.engine.hotcopy import Position
from store.errors import Problem, StoreError
from store.partition.marks import STANDBY
from store.standby.succession import Lineage, Parting, partings_of, unnamed

TABLES_LOCK = "run/standby-tables.lock"     # of whoever changes tables, or has them stay as they are

# Phases. SWITCHING: a new copy of the databases is whole, and on its way to its place (`switching`). RETURNING: what is
# here is the store that another machine has taken the place of, and the copy of that one's is not whole.
BEGINNING, FOLLOWING, SWITCHING, RECOVERED, RETURNING = "beginning", "following", "switching", "recovered", "returning"


@frozen
class StandbyState:
    """What is on record. `host` and `address` ("192.0.2.1:4191") are of the one that is followed, `identity` that of
    its list of mailboxes; by environment `ends` are where the logs end, `first` the log files from which recovery needs
    them, `tables` the identity of each table's file, `applied` up to where the tables have what the log says.
    `moment`: the Unix time at which the store was like that, by the clock of the one that is followed. `succession`:
    how many promotions that one knows of, `line` their identities, and `partings` what those had that were promoted;
    `place`: which of its standbys this is. `above`: which machines that one follows, if it is a standby itself, with
    their addresses, the one that serves last; then `host` is the name that it has in common with them, and the place is
    one among the standbys of all. `skipped`: how far the last promotion went ahead.

    `only`: the partitions that it protects, none where it is all of them; `others`: those that it does not have, with
    the machine that alone has each. `epochs`: those of its partitions, now or from its next start on. RETURNING:
    `identities` are the last mailbox id and UIDVALIDITY that it gave.
    """

    host: str
    address: str
    identity: str = ""
    phase: str = BEGINNING
    moment: float = 0.0
    ends: dict[str, Position] = field(factory=dict)
    first: dict[str, int] = field(factory=dict)
    applied: dict[str, Position] = field(factory=dict)
    tables: dict[str, dict[str, str]] = field(factory=dict)
    epochs: dict[str, int] = field(factory=dict)
    small: dict[str, int] = field(factory=dict)
    succession: int = 0
    line: tuple[str, ...] = ()
    place: int = 0
    identities: tuple[int, int] = 0, 0
    above: tuple[str, ...] = ()
    skipped: int = 0
    partings: dict[str, Parting] = field(factory=dict)
    only: tuple[str, ...] = ()
    others: dict[str, str] = field(factory=dict)

    @property
    def serves(self) -> str:
        """The address of the machine that serves, also where others are between."""
        return self.above[-1] if self.above else self.address

    @property
    def lineage(self) -> Lineage:
        """The promotions that the one that is followed knows of."""
        return Lineage(self.succession, self.line)

    def parting(self, root: Path) -> Parting:
        """What a machine has that is promoted in this state. The checksum of a log that does not reach so far is 0."""
        return Parting({name: (*end, 0 if (there := LogEnd.of(root / name, end)) is None else there.checksum)
                          for name, end in self.ends.items()}, self.epochs, self.moment)

    def sums(self, root: Path) -> dict[str, int]:
        """What the one that is followed recognises its logs by. Raises StoreError UNAVAILABLE when one is missing."""
        found = {}
        for name, (_, _, checksum) in self.parting(root).ends.items():
            if not checksum:
                raise StoreError(Problem.UNAVAILABLE, f"The log of {name} does not reach so far as {STANDBY} says")
            found[name] = checksum
        return found

    def to_bytes(self) -> bytes:
        """The stored form, which tells when it is damaged."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{text}\n{zlib.crc32(text.encode()):08x}\n".encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "StandbyState":
        """From the stored form. Raises ValueError."""
        text, _, rest = data.decode().partition("\n")
        if rest != f"{zlib.crc32(text.encode()):08x}\n":
            raise ValueError("it is not whole")
        fields: dict[str, Any] = json.loads(text)
        for name in ("ends", "applied"):
            fields[name] = {key: (place[0], place[1]) for key, place in fields[name].items()}
        line = fields.get("line", unnamed(fields["succession"]))
        return cls(**{**fields, "line": tuple(line), "identities": tuple(fields.get("identities", (0, 0))),
                      "above": tuple(fields.get("above", ())), "only": tuple(fields.get("only", ())),
                      "partings": partings_of(fields.get("partings", {}))})

    def save(self, root: Path) -> None:
        """Have it on disk. Raises OSError."""
        replace_file(root / STANDBY, self.to_bytes())


def host_of(address: str) -> str:
    """The name of a machine, of its address."""
    return address.partition("=")[0].partition(":")[0]


def unprotected(partition: str, host: str) -> str:
    """What an administrator reads of a partition that this standby does not protect. `host`: the machine that serves
    it. Other standbys may have it, also the one that this one follows: nobody is told of all of them."""
    return (f"NOT PROTECTED: partition {partition} is on {host}, and not on this standby; if no other standby has it, "
            "its mail is lost with that machine")


def read(root: Path) -> StandbyState | None:
    """The state that is on record; None where there is no standby. Raises StoreError UNAVAILABLE when it cannot be
    read."""
    try:
        return StandbyState.from_bytes(privatefiles.read(root / STANDBY))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(Problem.UNAVAILABLE, f"{root / STANDBY} cannot be read: {error}") from error
