"""Receivers of the outbox that answer as a test says, and a store that sends to them."""

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from store.events.outboxtable import Parcel
from store.offload import Threads
from store.store import Store
from tests.support.stores.stores import deliver
from tools.outbox.destination import Down, Refused
from tools.outbox.outboxsettings import Settings
from tools.outbox.sendall import Dispatch

MAIL = b"Subject: %d\r\n\r\nText\r\n"


class Place:
    """A receiver. `says`: what it answers to the next batches, by turns: an exception, or "silence"; then it takes
    all. What it does not take is `wrong`: UIDs."""

    def __init__(self) -> None:
        self.says: list[Any] = []
        self.has: list[dict[str, Any]] = []
        self.asked = 0
        self.wrong: set[str] = set()
        self.answers: dict[str, Exception] = {}         # to mail, by recipient
        self.tried: list[str] = []
        self.let_go = False             # what it was sent last was cancelled
        self.closed = 0
        self.closing: Exception | None = None           # what a library raises

    async def send(self, batch: Sequence[Parcel]) -> None:
        self.asked += 1
        if self.says:
            answer = self.says.pop(0)
            if answer == "silence":
                try:
                    await Deferred()
                except CancelledError as error:
                    self.let_go = True
                    raise Down(f"what a library makes of it: {error}") from error
            raise answer
        self.tried += [parcel.body.get("to", "") for parcel in batch]
        for parcel in batch:
            if parcel.body.get("to") in self.answers:
                raise self.answers[parcel.body["to"]]
        if self.wrong.intersection(parcel.body.get("uidset") for parcel in batch):
            raise Refused("not this one")
        self.has += [{"id": parcel.id, **parcel.body} for parcel in batch]

    def close(self) -> None:
        self.closed += 1
        if self.closing is not None:
            raise self.closing

    @property
    def uids(self) -> list[str]:
        return [body["uidset"] for body in self.has if "uidset" in body]


def begin(store: Store, clock: Clock, **receivers: Settings) -> Dispatch:
    made = Dispatch(store, receivers, Threads(), clock)
    made.start()
    for each in made.sendings.values():
        each.chance = lambda: 1.0
    return made


def hook(name: str = "a", **how: Any) -> Settings:
    return Settings(f"https://{name}.example", **how)


def post(store: Store, *numbers: int) -> None:
    for number in numbers:
        deliver(store, MAIL % number, "user/alice/INBOX")


def run(clock: Clock, seconds: float) -> None:
    clock.pump([0.25] * int(seconds * 4))
