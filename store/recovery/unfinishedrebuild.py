"""Whether a store's databases are there, whole, told by what lies in its folder."""

from pathlib import Path

SCRATCH = "reconstruct"         # the folder in the store that is there while all databases are made anew; in it is
IN_PLACE = "in-place.json"      # this file where they are made in their places, or `mboxlist` with the list of a plan


def is_down(root: Path) -> bool:
    """Whether a store has no list of mailboxes, or one that was being made with all else when that was cut off."""
    return (root / SCRATCH / IN_PLACE).exists() or not any((root / "mboxlist").glob("*.db"))


def is_half_made(root: Path) -> bool:
    """Whether all databases are being made anew (`rebuild`, `tools.spark.apply`), or that was cut off."""
    scratch = root / SCRATCH
    return (scratch / IN_PLACE).exists() or (scratch / "mboxlist").is_dir() and is_down(root)
