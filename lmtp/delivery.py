"""One mail transaction, from its recipients to one message file and N index records (RFC 2033 §4.2).

    RCPT          `recipient` asks `recipients.py` for the mailbox, and says at once whether it takes the message
    DATA, BDAT    `begin` opens one message file, in the partition of the first mailbox; its octets go there as they
                  arrive (`receiving.py`)
    the end       `finish` gives it to the store: one transaction, N records, one sync; a reply for each accepted RCPT

A file that is not finished is removed, however the transaction ends (`abort`).
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter

from attrs import define, field

from lmtp import noting, replies
from lmtp.noting import why
from lmtp.receiving import Incoming, failure
from lmtp.recipients import Recipients
from lmtp.refusals import refusal
from lmtp.replies import Reply
from lmtp.settings import Settings
from lmtp.wire import Mail, Rcpt
from mboxlist.engine.transact import Commits, Unflushed, unless_committed
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry, MailboxId
from store import offload
from store.delivery import durable
from store.delivery.commit import Delivered, Outcome, Target, Unfiled
from store.errors import Problem, StoreError
from store.filtering import filtereddelivery
from store.filtering.filtereddelivery import Rejected
from store.observing import loglines
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.quota import roots
from store.store import Store

log = logging.getLogger(__name__)

_ENTRY = attrgetter("entry")
_TAKEN = Delivered, Unfiled         # what has become of a message that its recipient has, or wanted no more


@define(eq=False)
class Delivery:
    """What MAIL began. `guaranteed`: it came to the listener whose mail ignores quota; `peer`: from whom, in
    the session of that id."""

    store: Store
    settings: Settings
    mail: Mail = Mail(None)
    guaranteed: bool = False
    peer: str = ""
    session: str = ""
    incoming: Incoming | None = field(default=None, init=False)
    reason: str = field(default="", init=False)         # of the last recipient that was refused, for the log
    _delivered: tuple[Staged, int] | None = field(default=None, init=False)
    _id: str = field(default="", init=False)
    _partitions: dict[str, Partition] = field(factory=dict, init=False)         # of those who were accepted, by name
    _recipients: Recipients | None = field(default=None, init=False)
    _targets: dict[MailboxId, Target] = field(factory=dict, init=False)         # each mailbox once: one copy in each
    _accepted: list[MailboxId] = field(factory=list, init=False)                # one for each RCPT that was accepted,
    _addresses: list[str] = field(factory=list, init=False)                     # and what it named

    async def recipient(self, rcpt: Rcpt) -> Reply:
        """Take one more recipient, or say why not."""
        if len(self._accepted) >= self.settings.recipient_limit:
            return self._noted(rcpt, replies.TOO_MANY_RECIPIENTS, "lmtp.recipient_limit")
        if not (self.mail.utf8 or rcpt.recipient.text.isascii()):
            return self._noted(rcpt, replies.NOT_ASCII, "an address outside ASCII, without SMTPUTF8")
        recipients = self._recipients
        if recipients is None:
            recipients = self._recipients = Recipients(self.store, self.settings, self.mail.sender)
        try:
            ignore_quota = self.guaranteed or rcpt.ignore_quota
            entry = await recipients.find(rcpt.recipient, ignore_quota=ignore_quota)
            assert entry is not None                # INBOX is made
            if rcpt.limits is not None:
                await offload.run(self.store, "names", self._set_limits, entry, *rcpt.limits)
            if entry.id not in self._targets:
                partition = await recipients.admit(entry, self.mail.size, ignore_quota=ignore_quota)
                self._partitions[partition.name] = partition
                header = f"Delivered-To: {rcpt.recipient}\r\n".encode() if self.settings.delivered_to else b""
                self._targets[entry.id] = Target(
                    entry, ignore_quota=ignore_quota, header=header, suppress=self.settings.duplicate_window,
                    repeat=self.settings.repeat_window)
        except StoreError as error:
            if error.problem is Problem.ELSEWHERE:      # the relay asks the wrong one: its maps are old, or not right
                log.warning("recipient <%s>: %s", rcpt.recipient, error)
            return self._noted(rcpt, refusal(error), why(error))
        self._accepted.append(entry.id)
        self._addresses.append(rcpt.recipient.text)
        return replies.RECIPIENT_OK

    def _noted(self, rcpt: Rcpt, reply: Reply, reason: str) -> Reply:
        self.reason = reason
        envelope = noting.Envelope("", self.peer, self.mail.sender, self.session)
        noting.recipient(self.store.delivery_log, envelope, rcpt.recipient, reply, reason)
        return reply

    def _set_limits(self, entry: MailboxEntry, octets: int, messages: int | None) -> None:
        """The relay knows the user's limits from the directory (XQUOTA)."""
        user = entry.name.owner
        if user:
            known = roots.quota(self.store, user)
            if octets != known.octet_limit or messages not in (None, known.message_limit):
                roots.set_quota(self.store, user, octets, messages)

    async def begin(self, trace: bytes, name: str, clock: Callable[[], float]) -> Incoming:
        """The message, still empty. `name` is its id in the log and in replies. Raises StoreError."""
        self._id = name
        refused = None
        for partition in self._partitions.values():     # the first recipient's, unless only another one takes anything
            try:
                staged = await offload.change(self.store, partial(partition.stage, trace))
            except StoreError as error:
                refused = refused or error
            else:
                self.incoming = Incoming(self.store, self.settings, clock, staged)
                return self.incoming
        assert refused is not None
        raise refused

    def abort(self) -> None:
        """Nothing will be delivered."""
        if self.incoming is not None:
            self.incoming.abort()

    async def finish(self) -> list[Reply]:
        """Give the message to the store; a reply for each RCPT that was accepted, in order.

        Its file is the store's from here on, also when this fails. Raises Unflushed when no reply would be true.
        """
        incoming, self.incoming = self.incoming, None
        if incoming is None or incoming.staged is None:
            refused = replies.LOCAL_ERROR if incoming is None or incoming.refused is None else incoming.refused
            return self._all_refused(refused, "it could not be received")
        self._delivered = staged, before = incoming.staged, Commits.total
        began = incoming.clock()
        try:                # only now: a script may have been changed while the message came
            scripts = self.store.mailboxes.scripted(map(_ENTRY, self._targets.values()))
        except Exception as error:
            after_commit(staged.abort)
            return self._failed(error)
        try:
            if scripts is not None or self.store.filtered:
                by_mailbox = await filtereddelivery.deliver(
                    self.store, staged, str(self.mail.sender or ""), self._targets,
                    dict(zip(reversed(self._accepted), reversed(self._addresses), strict=True)), scripts=scripts)
            else:
                outcomes = await durable.deliver(self.store, staged, tuple(self._targets.values()))
                by_mailbox = dict(zip(self._targets, outcomes, strict=True))
        except Unflushed:
            raise
        except Exception as error:
            unless_committed(before, error)
            return self._failed(error)
        if loglines.LIMIT.spans is not None or loglines.delivery.isEnabledFor(logging.INFO):
            after_commit(self._log, staged, by_mailbox, incoming.clock() - began)
        taken = replies.taken(self._id)
        found = []
        for mailbox in self._accepted:
            outcome = by_mailbox[mailbox]
            found.append(taken if isinstance(outcome, _TAKEN) else replies.rejected(outcome.reason)
                         if isinstance(outcome, Rejected) else refusal(outcome) if isinstance(outcome, StoreError)
                         else replies.known(self._id))
        envelope = noting.Envelope(self._id, self.peer, self.mail.sender, self.session)
        after_commit(noting.message, self.store.delivery_log, envelope, staged, self._accepted, self._addresses,
                     found, by_mailbox)
        return found

    def _failed(self, error: Exception) -> list[Reply]:
        return self._all_refused(failure(f"message {self._id} could not be delivered", error), why(error))

    def _all_refused(self, reply: Reply, reason: str) -> list[Reply]:
        envelope = noting.Envelope(self._id, self.peer, self.mail.sender, self.session)
        loglines.tell_refused_delivery(self._id, self.session, str(self.mail.sender or ""), len(self._accepted),
                                       str(reply), reason)
        noting.refused(self.store.delivery_log, envelope, tuple(self._addresses), reply, reason)
        return [reply] * len(self._accepted)

    def unanswered(self) -> None:
        """The relay is gone, and has no reply to what `finish` has done."""
        if self._delivered is not None:
            after_commit(durable.unanswered, self.store, self._delivered[0], tuple(self._targets.values()))

    def _log(self, staged: Staged, by_mailbox: Mapping[MailboxId, Outcome], seconds: float) -> None:
        """A line of the log; a mailbox that is the recipient of several addresses counts for each."""
        delivered = known = refused = 0
        for mailbox in self._accepted:
            outcome = by_mailbox[mailbox]
            if isinstance(outcome, _TAKEN):
                delivered += 1
            elif isinstance(outcome, StoreError):
                refused += 1
            else:
                known += 1
        sender = self.mail.sender
        loglines.tell_delivery(
            self._id, self.session, "" if sender is None else sender.text, staged.message_id.decode("utf-8", "replace"),
            staged.size, delivered, known, refused, seconds, staged.digest.hex(), [
                f"{outcome.entry.name}:{outcome.uid}" for outcome in by_mailbox.values()
                if isinstance(outcome, Delivered)])
