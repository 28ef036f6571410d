"""What is found wrong in a store."""

from attrs import frozen

RECONSTRUCT = "reconstruct"
RESTORE = "restore"
RESTART = "restart"


@frozen
class Finding:
    """What is wrong, where, and what repairs it: a command of `onecopy`."""

    what: str
    where: str
    repair: str
