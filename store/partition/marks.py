"""Files that tell the next start something about a partition, or about the whole store, whatever its databases say.

    <partition>/users/epoch         how many unclean ends the partition had: see `MailboxState.from_bytes`
    <partition>/users/incomplete    message files are there whose records were lost: what nothing refers to is not swept
    <partition>/users/directory     see `store/userarea/directoryfile.py`
    <partition>/index/behind        files of the user area may be older than their mailboxes
    <partition>/users/generation    the newest generation of the partition's environment (`engine/generations.py`),
    <partition>/users/generation.list   and of the list's
    <store>/generations/<name>      the same of each partition, and of `mboxlist`
    <partition>/absent              the partition is on another machine alone: see `absent`
    <store>/restoring.json          a snapshot is being put back
    <store>/reconstruct/            databases are being rebuilt: see `is_half_made`
    <store>/standby.json            it is a standby, which nobody may open: see `store/standby`
    <store>/succession.json         which of several machines may serve it: see `store/standby/succession.py`
    <store>/read-only               it is a copy of the store that is named in it, for reading: see `store/readonly`
    <store>/as-of                   a copy that a standby has made has this moment of it: see `AsOf`
    <store>/without-files           it is a copy of databases alone: see `snapshots.comparison`
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import is_unanswered, replace_file, sync_folder
from mboxlist.engine.generations import read_mark, shown
from mboxlist.setaside import make_way
from store.errors import Problem, StoreError

EPOCH, INCOMPLETE = "epoch", "incomplete"
READ_ONLY, WITHOUT_FILES, AS_OF = "read-only", "without-files", "as-of"
GENERATION, GENERATION_OF_LIST, GENERATIONS = "generation", "generation.list", "generations"
ABSENT = "absent"               # which machine it is, as text
RESTORING = "restoring.json"        # there from when it is decided that a snapshot is put back
STANDBY, SUCCESSION = "standby.json", "succession.json"
SCRATCH = "reconstruct"         # the folder in the store that is there while all databases are rebuilt; in it is
IN_PLACE = "in-place.json"      # this file where they are made in their places, or `mboxlist` with the list of a plan


@frozen
class AsOf:
    """The state that a copy for reading has: the state of `host` at a Unix time (`moment`, by the clock of that
    machine), and where the logs of its environments ended then."""

    host: str
    moment: float
    ends: dict[str, tuple[int, int]] = field(factory=dict)

    @classmethod
    def of(cls, root: Path) -> "AsOf | None":
        """The state of the store there; None where it is no such copy."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found: dict[str, Any] = json.loads(privatefiles.read(root / AS_OF))
            return cls(found["host"], float(found["moment"]),
                       {name: (end[0], end[1]) for name, end in found["ends"].items()})
        return None

    def save(self, root: Path) -> None:
        """Note it in the store there. Raises OSError."""
        replace_file(root / AS_OF, json.dumps(asdict(self)).encode())


def absent(root: Path) -> dict[str, str]:
    """The partitions that are not here, each with the machine that alone has it. This store took that machine's place,
    and had not been asked to protect them (`onecopy standby create --partition`). Their mailboxes are in the list, and
    stay there."""
    found = dict[str, str]()
    for path in (root / "partitions").glob(f"[!.]*/{ABSENT}"):
        try:
            found[path.parent.name] = privatefiles.read_text(path).strip()
        except (OSError, ValueError):   # the file is there: that is enough
            found[path.parent.name] = "another machine"
    return dict(sorted(found.items()))


def is_absent(folder: Path) -> bool:
    """Whether the partition in that folder is one of these."""
    return (folder / ABSENT).exists()


def only_elsewhere(name: str, host: str) -> str:
    """The text about such a partition for administrators."""
    return (f"partition {name} is only on {host}, whose place this machine has taken: its mailboxes cannot be used "
            f"until `onecopy standby rejoin`, typed on {host}, has brought it here")


def is_down(root: Path) -> bool:
    """Whether a store has no list of mailboxes, or has one whose making was cut off while all databases were being
    made."""
    return (root / SCRATCH / IN_PLACE).exists() or not any((root / "mboxlist").glob("*.db"))


def is_half_made(root: Path) -> bool:
    """Whether all databases are being rebuilt (`rebuild`, `tools.spark.apply`), or such a rebuild was cut off."""
    scratch = root / SCRATCH
    return (scratch / IN_PLACE).exists() or (scratch / "mboxlist").is_dir() and is_down(root)


def require_no_standby(root: Path) -> None:
    """Raises StoreError UNAVAILABLE if the store is a standby: only `store/standby` opens one, or changes what is in
    it."""
    if (root / STANDBY).exists():
        raise StoreError(Problem.UNAVAILABLE, "It is a standby, which follows another back end: onecopy standby "
                                              "promote makes it one that serves")


def behind_marker(folder: Path) -> Path:
    """The file that is there while files of the partition in that folder may be older than its mailboxes."""
    return folder / "index" / "behind"


def mark_behind(folder: Path) -> None:
    """Note that `userareacheck` must look at all files of the partition in that folder. Raises OSError."""
    marker = behind_marker(folder)
    privatefiles.touch(marker)
    sync_folder(marker.parent)


def mark_incomplete(folder: Path, *, incomplete: bool) -> None:
    """Note, on disk, whether message files of the partition in that folder may belong to lost records. Raises OSError.
    """
    marker = folder / "users" / INCOMPLETE
    if incomplete != marker.exists():
        if incomplete:
            privatefiles.touch(marker)
        else:
            marker.unlink(missing_ok=True)
        sync_folder(marker.parent)


def is_incomplete(folder: Path) -> bool:
    """See `mark_incomplete`. If so, a message file to which nothing refers may be all that is left of a message."""
    return (folder / "users" / INCOMPLETE).exists()


def generations_of_list(root: Path) -> list[Path]:
    """Where the generation of the list's environment stands."""
    return [root / GENERATIONS / "mboxlist", *(folder / GENERATION_OF_LIST for folder in root.glob(
        "partitions/[!.]*/users"))]


def generations_of_partition(folder: Path) -> list[Path]:
    """Where the generation of a partition's environment stands: in its user area, and outside of the partition."""
    return [folder / "users" / GENERATION, folder.parent.parent / GENERATIONS / folder.name]


def mark_older(folder: Path, *, unclean: bool) -> None:
    """Have every `store.idx` of the partition that may be older than its mailbox compared with it: after an unclean
    end, and when an older user area has been put back."""
    there, newest = map(read_mark, generations_of_partition(folder))
    if there < newest and not unclean:
        import logging  # here: it is rare, and short commands do without
        logging.getLogger(__name__).warning(
            "users/ of partition %s is older (%s) than its databases (%s): each store.idx is compared with its mailbox",
            folder.name, shown(there), shown(newest))
    if there < newest or unclean:
        mark_behind(folder)


def write_epoch(folder: Path, epoch: int) -> None:
    """Write the epoch to the user area of the partition in that folder, too; on disk. Raises OSError."""
    if read_epoch(folder) != epoch:
        make_way(folder, folder / "users" / EPOCH)
        replace_file(folder / "users" / EPOCH, b"%d\n" % epoch)


def read_epoch(folder: Path) -> int:
    """The epoch that the user area has; 0 when it has none. Raises OSError when the disk gives no answer: with a
    smaller epoch UIDs would be given out again."""
    try:
        return int(privatefiles.read(folder / "users" / EPOCH)[:20])
    except ValueError:
        return 0
    except OSError as error:
        if is_unanswered(error):
            raise
        return 0
