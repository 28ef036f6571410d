"""Whether a store's databases are there, whole, told by what lies in its folder."""

from pathlib import Path

# The folder in the store that is there while all databases are made anew; in it are those into which a plan is loaded,
SCRATCH = "reconstruct"
IN_PLACE = "in-place.json"      # or this file: they are made where they belong


def is_down(root: Path) -> bool:
    """Whether a store has no list of mailboxes, or one that was being made with all else when that was cut off."""
    return (root / SCRATCH / IN_PLACE).exists() or not any((root / "mboxlist").glob("*.db"))


def is_half_made(root: Path) -> bool:
    """Whether all databases are being made anew (`rebuild`, `tools.spark.apply`), or that was cut off."""
    scratch = root / SCRATCH
    return (scratch / IN_PLACE).exists() or (scratch / "mboxlist").is_dir() and is_down(root)
