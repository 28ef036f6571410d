"""What an administrator can choose about the audit trail."""

from attrs import frozen

from store.audit.auditline import CHOICES, USUAL
from store.values import setting


def _known(kinds: tuple[str, ...]) -> None:
    unknown = [kind for kind in kinds if kind not in CHOICES]
    if unknown:
        raise ValueError(f"{unknown[0]} is none of {', '.join(CHOICES)}")


@frozen
class Settings:
    """What is noted."""

    kinds: tuple[str, ...] = setting(USUAL, f"what is noted of who did what: {', '.join(CHOICES)}; empty: nothing",
                                     check=_known)
