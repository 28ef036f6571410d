"""One mail transaction, from its recipients to one message file and N index records (RFC 2033 §4.2).

    RCPT    `recipient` finds the mailbox and says at once whether it takes the message; nothing is decided elsewhere
    DATA    `begin` opens one message file, in the partition of the first mailbox
            `complete` writes the octets to it as they arrive, whatever their number, and gives it to the store:
            one transaction, N records, one sync; then a reply for each accepted RCPT

A file that is not finished is removed, however the transaction ends.
"""

import logging
from collections.abc import Callable, Sequence

from attrs import define, field

from lmtp import replies
from lmtp.paths import Address
from lmtp.refusals import refusal
from lmtp.replies import Farewell, Reply
from lmtp.settings import Settings
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName, NameProblem, legal_path
from store import quotaroots, rights
from store.accounts.base import Account, Status
from store.deliver import Outcome, Target
from store.errors import Problem, StoreError
from store.messagefiles import Staged
from store.net import offload
from store.net.dots import DotReader
from store.net.lines import TimedOut
from store.net.stream import Stream
from store.store import Store

CHUNK = 64 * 1024       # octets of a message taken at a time

log = logging.getLogger(__name__)


@define(eq=False)
class Delivery:
    """What MAIL began. `size` is what the client announced, 0 when it did not."""

    store: Store
    settings: Settings
    sender: Address | None = None
    size: int = 0
    _targets: dict[MailboxId, Target] = field(factory=dict, init=False)         # each mailbox once: one copy in each
    _accepted: list[MailboxId] = field(factory=list, init=False)                # one for each RCPT that was accepted
    _sender: str | None = field(default=None, init=False)                       # the sender's user id, when it is known

    # RCPT

    async def recipient(self, address: Address) -> Reply:
        """Take `address` as one more recipient, or say why not."""
        if len(self._accepted) >= self.settings.recipient_limit:
            return replies.TOO_MANY_RECIPIENTS
        try:
            entry = await self._mailbox(address)
            if entry.id not in self._targets:
                self.store.partition_of(entry).check_room()
                quotaroots.admit(self.store, entry, max(self.size, 1))
                self._targets[entry.id] = Target(entry)
        except StoreError as error:
            return refusal(error)
        self._accepted.append(entry.id)
        return replies.RECIPIENT_OK

    async def _mailbox(self, address: Address) -> MailboxEntry:
        """The mailbox of an address: the one that its sub-address names, if it takes mail of the sender, else INBOX."""
        account = await offload.look_up(self.store, address.plain)
        if account is not None:
            return await self._inbox(_open(account))
        divided = address.divided(self.settings.separator)
        if divided is not None:
            user, mailbox = divided
            account = await offload.look_up(self.store, user.plain)
            if account is not None:
                return await self._named(_open(account), mailbox) or await self._inbox(account)
            if self._is_public(user):
                return await self._public(mailbox)
        raise StoreError(Problem.NO_USER)

    async def _inbox(self, account: Account) -> MailboxEntry:
        entry = self._find(MailboxName(account.user, INBOX))
        if entry is None:       # its first use: making it syncs
            entry = await offload.run(self.store, "names", self.store.inbox, account)
        return entry

    async def _named(self, account: Account, path: str) -> MailboxEntry | None:
        """The account's own mailbox of that name, exactly as the sender wrote it, unless it is shared and the sender
        may not post to it (RFC 4314 §4, `p`)."""
        entry = self._find_path(account.user, path)
        if entry is None or not entry.acl:
            return entry
        sender = await self._sending_user()
        return entry if sender == account.user or rights.may(self.store, sender, entry, "p") else None

    def _is_public(self, user: Address) -> bool:
        settings = self.store.settings
        ending = "@" + settings.default_domain.lower()
        return user.plain.lower().removesuffix(ending) == settings.public_user.lower().removesuffix(ending)

    async def _public(self, path: str) -> MailboxEntry:
        """A public mailbox that the sender may post to. Only who may look it up hears that it is there; for the others
        it takes as long as if it were not. Raises StoreError NO_PERMISSION, NO_USER.
        """
        sender = await self._sending_user()
        entry = self._find_path("", path)
        if entry is None:
            raise StoreError(Problem.NO_USER)
        if rights.may(self.store, sender, entry, "p"):
            return entry
        known = sender and rights.may(self.store, sender, entry, "l")
        raise StoreError(Problem.NO_PERMISSION if known else Problem.NO_USER)

    async def _sending_user(self) -> str:
        """The user id of the sender; "" for a stranger, whom only `anyone` speaks of. Raises StoreError UNAVAILABLE."""
        if self._sender is None:
            account = None if self.sender is None else await offload.look_up(self.store, self.sender.plain)
            self._sender = account.user if account is not None else ""
        return self._sender

    def _find_path(self, owner: str, path: str) -> MailboxEntry | None:
        try:
            return self._find(MailboxName(owner, legal_path(path)))
        except NameProblem:
            return None

    def _find(self, name: MailboxName) -> MailboxEntry | None:
        try:
            return self.store.entry(name)
        except StoreError as error:
            if error.problem is Problem.NO_MAILBOX:
                return None
            raise

    # DATA

    def begin(self, trace: bytes) -> Staged:
        """The message file, still empty. Raises StoreError."""
        return self.store.stage(next(iter(self._targets.values())).entry, trace)

    async def complete(self, stream: Stream, staged: Staged, name: str, clock: Callable[[], float]) -> list[Reply]:
        """Receive the message and deliver it; a reply for each RCPT that was accepted, in order. `name` is its id.

        Raises ConnectionLost, TimedOut, Farewell.
        """
        try:
            refused = await self._receive(stream, staged, clock)
        except BaseException:
            staged.abort()
            raise
        if refused is not None:
            return [refused] * len(self._accepted)
        return await self._finish(staged, name)

    async def _receive(self, stream: Stream, staged: Staged, clock: Callable[[], float]) -> Reply | None:
        """Take the message up to the final dot; if it must be refused it is swallowed, and the reply says why."""
        reader = DotReader()
        refused: Reply | None = None
        swallowed = 0
        deadline = clock() + self.settings.message_time
        while not reader.done:
            chunk = await stream.some(CHUNK, self.settings.block_time)
            octets = reader.feed(chunk)
            if refused is None:
                refused = await _write(self.store, staged, octets)
            else:
                swallowed += len(octets)
            deadline += len(chunk) / self.settings.slowest_rate
            if swallowed > self.settings.swallow_limit:
                raise Farewell(replies.TOO_MUCH)
            if clock() > deadline:
                raise TimedOut
            await stream.breathe()
        if reader.left:
            stream.unread(chunk[-reader.left:])         # commands sent ahead (RFC 2920)
        return refused

    async def _finish(self, staged: Staged, name: str) -> list[Reply]:
        """Give the message to the store; its file is the store's from here on, also when this fails."""
        try:
            outcomes = await offload.deliver(self.store, staged, tuple(self._targets.values()))
        except Exception as error:
            return [_failure(f"message {name} could not be delivered", error)] * len(self._accepted)
        taken = replies.taken(name)
        answers = {}
        for mailbox, outcome in zip(self._targets, outcomes, strict=True):
            answers[mailbox] = refusal(outcome) if isinstance(outcome, StoreError) else taken
        if log.isEnabledFor(logging.INFO):
            self._log(staged, name, outcomes)
        return [answers[mailbox] for mailbox in self._accepted]

    def _log(self, staged: Staged, name: str, outcomes: Sequence[Outcome]) -> None:
        """One line a message: who got it, under which UID, and who did not."""
        found = [f"{target.entry.name}: {outcome if isinstance(outcome, StoreError) else outcome.uid}"
                 for target, outcome in zip(self._targets.values(), outcomes, strict=True)]
        log.info("message %s from <%s>, %d octets, %s: %s", name, self.sender or "", staged.size, staged.mid.hex(),
                 ", ".join(found))


def _open(account: Account) -> Account:
    """The account, if it takes mail. Raises StoreError USER_INACTIVE, USER_DISABLED."""
    if account.status is Status.INACTIVE:
        raise StoreError(Problem.USER_INACTIVE)
    if account.status is Status.REMOVED:
        raise StoreError(Problem.NO_USER)
    if account.status is Status.DISABLED:
        raise StoreError(Problem.USER_DISABLED)
    return account


async def _write(store: Store, staged: Staged, octets: bytes) -> Reply | None:
    """Write, or say why this message cannot be taken; then its file is gone."""
    try:
        staged.write(octets)
        if staged.full:
            await offload.spill(store, staged)
    except Exception as error:
        staged.abort()
        return _failure("a message could not be received", error)
    return None


def _failure(what: str, error: Exception) -> Reply:
    """The reply to an error that all recipients share; an unexpected one shows nothing of itself (RFC 3463 §3.4)."""
    if isinstance(error, StoreError):
        log.warning("%s: %s", what, error)
        return refusal(error)
    log.error("%s", what, exc_info=error)
    return replies.LOCAL_ERROR
