"""A message is delivered as its recipients' scripts want: `durable.deliver` with what `filters` has decided.

All targets are delivered to in one transaction of their partition, with what follows: mail that leaves, and what
scripts remember. A message that a script has changed is another message: it is on disk before, and is delivered in that
transaction, too. (On another partition than its recipient's INBOX it is delivered first, and when that fails the
recipient is refused for now, so that the message comes again.) Notes to the owner and copies of what is sent come last,
and only when all else is done.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from attrs import evolve

from mboxlist.engine.transact import Unflushed
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxId
from store import offload
from store.delivery import durable
from store.delivery.alongside import Alongside, discard, placed, prepared
from store.delivery.commit import Delivered, Outcome, Target, Unfiled
from store.errors import Problem, StoreError
from store.filtering.disposition import Disposition
from store.filtering.filters import Filters, Recipient
from store.partition.staged import Staged
from store.store import Store
from store.values import InternalDate

log = logging.getLogger(__name__)


class Rejected(StoreError):
    """The recipient's script refuses the message (RFC 5429); `reason` is for the sender."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(Problem.NO_PERMISSION, "A script of the recipient refuses the message")


async def deliver(store: Store, staged: Staged, sender: str, targets: Mapping[MailboxId, Target],
                  addresses: Mapping[MailboxId, str], *, scripts: tuple[int, int] | None = None,
                  received: InternalDate | None = None) -> dict[MailboxId, Outcome]:
    """Deliver a received message; an outcome for each mailbox that it is for. `addresses`: what RCPT named for each;
    `scripts`: what `MailboxNames.scripted` has said just now.
    Otherwise as `durable.deliver`, also in what it raises. The staged message is used up."""
    try:
        decided = await Filters.of(store).decide(
            staged, sender, [Recipient(target, addresses[mailbox]) for mailbox, target in targets.items()], scripts)
    except BaseException:
        after_commit(staged.abort)
        raise
    if not decided:
        return dict(zip(targets, await durable.deliver(store, staged, tuple(targets.values()), received), strict=True))
    outcomes: dict[MailboxId, Outcome] = {}
    wanted: list[tuple[MailboxId, Target]] = []
    edited: dict[MailboxId, list[Alongside]] = {}
    try:
        for mailbox, target in targets.items():
            disposition = decided.get(mailbox)
            if disposition is None:
                wanted.append((mailbox, target))
            elif disposition.refused is not None:
                outcomes[mailbox] = Rejected(disposition.refused.reason)
            elif not disposition.others:
                wanted += [(mailbox, each) for each in disposition.targets]
            else:
                try:
                    edited[mailbox] = await _edited(store, disposition, received)
                except StoreError as refusal:
                    outcomes[mailbox] = refusal
                    continue
                first, *others = disposition.targets
                first = evolve(first, follows=(*(one.deliver for one in edited[mailbox]), *first.follows))
                wanted += [(mailbox, each) for each in (first, *others)]
        if not wanted:
            after_commit(staged.abort)
            return outcomes
        found = await durable.deliver(store, staged, [target for _, target in wanted], received)
    except Unflushed:               # what is in `staging/` is taken up later
        raise
    except BaseException:
        for messages in edited.values():
            discard(store, messages)
        raise
    for (mailbox, _), outcome in zip(wanted, found, strict=True):
        outcomes[mailbox] = _worse(outcomes.get(mailbox), outcome)
    for mailbox, messages in edited.items():
        if isinstance(outcomes[mailbox], Delivered | Unfiled):
            for one in messages:
                one.is_delivered()
    if edited:
        await placed(store, [one for messages in edited.values() for one in messages])
    for mailbox, disposition in decided.items():
        if disposition.copies and isinstance(outcomes[mailbox], Delivered | Unfiled):
            await _deliver_copies(store, disposition.copies)
    return outcomes


async def _edited(store: Store, disposition: Disposition, received: InternalDate | None) -> list[Alongside]:
    """What a script has made of the message, ready for the transaction that delivers; what goes to another partition is
    delivered. Raises StoreError."""
    place = store.partition_of(disposition.targets[0].entry)
    here = [each for each in disposition.others if store.partition_of(each[1].entry) is place]
    there = [each for each in disposition.others if store.partition_of(each[1].entry) is not place]
    if (failed := await _deliver_others(store, there, received)) is not None:
        raise failed
    return await prepared(store, here, received or InternalDate(int(time.time())))


def _worse(one: Outcome | None, other: Outcome) -> Outcome:
    """What is said of a recipient with several targets: what failed, else where the message is."""
    if one is None or isinstance(other, StoreError):
        return other
    return other if isinstance(other, Delivered) and not isinstance(one, StoreError | Delivered) else one


async def _deliver_copies(store: Store, copies: Sequence[tuple[bytes, Target]]) -> None:
    """Deliver notes, and copies of what is sent. The message is delivered, and its answer stays: otherwise it would
    come again, and these with it each time."""
    try:
        failed = await _deliver_others(store, copies, None)
    except Exception as error:
        log.exception("a copy of what a script sends could not be filed: %s", type(error).__name__)
        return
    if failed is not None:
        log.warning("a copy of what a script sends could not be filed: %s", failed)


async def _deliver_others(store: Store, messages: Sequence[tuple[bytes, Target]], received: InternalDate | None
                          ) -> StoreError | None:
    """Deliver what is another message; why that failed."""
    for octets, target in messages:
        try:
            partition = store.partition_of(target.entry)
            staged = await offload.change(store, lambda: partition.stage(b""))      # noqa: B023
            if staged.write(octets):
                await durable.spill(store, staged)
            outcome, = await durable.deliver(store, staged, (target,), received)
        except StoreError as refusal:
            return refusal
        if isinstance(outcome, StoreError):
            return outcome
    return None

