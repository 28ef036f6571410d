"""What sends a batch, and what may come of it."""

from collections.abc import Sequence
from typing import Protocol

from store.events.outboxtable import Parcel


class Down(Exception):
    """The receiver cannot be reached, does not answer, or is busy: it is tried again, and nothing is wrong with what
    was sent."""


class Refused(Exception):
    """The receiver has answered that it does not take this. `final`: nor will it, so it is not asked again."""

    def __init__(self, said: str, *, final: bool = False) -> None:
        super().__init__(said)
        self.final = final


class NotNow(Exception):
    """The receiver has answered that it does not take this now; what waits behind it may go on."""


class Destination(Protocol):
    """Where batches go."""

    async def send(self, batch: Sequence[Parcel]) -> None:
        """Return when the receiver has all of it. Raises Down, Refused; NotNow, of a batch of one."""

    def close(self) -> None:
        """No more is sent."""


def lines(batch: Sequence[Parcel]) -> bytes:
    """Their documents, each as one line."""
    return "".join([f"{parcel.document}\n" for parcel in batch]).encode()
