"""The machine that comes back sends a partition that only it has: see `partitionhome`."""

from collections.abc import Callable
from typing import Any

from attrs import define, field

from mboxlist.entry import MailboxId
from store import VERSION
from store.errors import Problem, StoreError
from store.problems import problems
from store.rejoin.sendinghome import HomePeer, Progress, newest
from store.snapshots import retention, taking
from store.snapshots.taking import Snapshot
from store.standby import succession
from store.standby.copyformat import partition_of
from store.standby.source.copysource import PARTITIONS, Source
from store.standby.source.fileanswers import Answer
from store.standby.sourcepeer import LONG, PATIENCE
from store.standby.succession import Lineage
from store.store import Store
from store.usermove.messageformat import BadMessage, Message, encode
from store.usermove.peer import said_of

AT_ONCE = 50_000            # mailboxes of which one message asks


def send(store: Store, peer: HomePeer, name: str, rate: int, progress: Progress) -> None:
    """Have the partition there, in use, on disk. `rate`: octets a second, at most; 0: as fast as they can. For who is
    alone in the store. Raises StoreError."""
    wire, source = peer.peer.wire, _PartitionSource(store, peer.peer.host)
    actions, sent, ours = source.actions(), 0, succession.read(store.root).lineage
    wire.limit(LONG)                    # it reads what came, between two questions
    try:
        peer.peer.tell({"op": "home partition", "name": name, "rate": rate, "promotion": newest(ours)})
        while "op" in (said := peer.peer.answer()).fields:
            fields, octets = _answered(actions, said)
            sent += len(octets)
            progress(f"partition {name}", sent, 0)
            try:
                wire.write(encode(fields, octets))
            except OSError as error:
                raise StoreError(Problem.UNAVAILABLE, f"The connection to {peer.peer.host} was lost", str(error)
                                 ) from error
    finally:
        wire.limit(PATIENCE)
        source.close()


def _answered(actions: dict[str, Callable[[Message], Any]], said: Message) -> Answer:
    try:
        with problems():
            found: Answer = actions[said.text("op")](said)
            return found
    except StoreError as refusal:
        return dict(said_of(refusal)), b""
    except (BadMessage, KeyError) as error:
        return dict(said_of(StoreError(Problem.UNAVAILABLE, f"There is no such thing to do: {error}"))), b""


def come_with_it(store: Store, peer: HomePeer, names: set[str]) -> set[MailboxId]:
    """The mailboxes that have come with those partitions, by this store's list: not those that are elsewhere there."""
    found = set[MailboxId]()
    for name in names:
        here = [entry.id for entry in store.mailboxes.all() if entry.partition == name]
        for at in range(0, len(here), AT_ONCE):
            some = here[at:at + AT_ONCE]
            elsewhere = peer.elsewhere(name, some)
            found.update(mailbox for mailbox in some if mailbox not in elsewhere)
    return found


@define(eq=False)
class _PartitionSource(Source):
    """What the promoted machine hears. It is no standby: it has more promotions than this one."""

    _made: Snapshot | None = field(default=None, init=False)

    def actions(self) -> dict[str, Callable[[Message], Any]]:
        """By the names that a standby uses. Small files are not for it, but for those of the partition: it has later
        ones."""
        found = super().actions()
        return {**found, "copy small": lambda message: (
            found["copy small"](message) if partition_of(message.text("folder")) else ({"files": []}, b""))}

    def _begin(self, message: Message) -> Answer:
        if message.text("version") != VERSION:
            raise StoreError(Problem.UNAVAILABLE, f"This back end has version {VERSION} of onecopy: both must have the "
                                                  "same one")
        self.store.join_all()
        partitions = self._choose(message.texts("only", PARTITIONS))
        (mailbox, validity) = self.store.mailboxes.last_identity()
        return {"host": self.store.settings.host, "identity": self.store.mailboxes.identity, "place": 0,
                "epochs": self._epochs(), "mailbox": int(mailbox), "validity": validity, "skipped": 0, "partings": {},
                **partitions, **Lineage.of(message).fields()}, b""

    def _snapshot(self, message: Message) -> Answer:
        """Of now: an earlier one may lack what came since."""
        if self._made is None:
            self._made = retention.make(self.store, verify=False)       # the other side reads all of it
        return self._manifest(self._made)

    def close(self) -> None:
        super().close()
        if self._made is not None:
            taking.remove(self._made)
            taking.keep_what_is_needed(self.store)
