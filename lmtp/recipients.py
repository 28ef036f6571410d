"""Which mailbox an address is, and whether it takes mail now: the one place that decides it.

RCPT asks here, and so do relays that want to know before they take a message (`verification.py`).
"""

from functools import partial

from attrs import define, field

from lmtp.settings import Settings
from lmtp.smtppaths import Address
from mboxlist.entry import MailboxEntry
from mboxlist.names import INBOX, MailboxName, NameProblem, legal_path
from store import hosting, offload
from store.accounts.base import Account, Status, delivery_problem
from store.addresses import canonical
from store.errors import Problem, StoreError
from store.mailboxes import authorization, firstuse, namespace, subscribing
from store.partition.partition import Partition
from store.quota import roots
from store.store import Store


@define(eq=False)
class Recipients:
    """The recipients of messages of one sender, None for <>; `asking` says that there is no message: make nothing."""

    store: Store
    settings: Settings
    sender: Address | None
    asking: bool = False
    _sender: str | None = field(default=None, init=False)           # the sender's user id, once looked up
    _without_inbox: Account | None = field(default=None, init=False)    # the one that `find` gave None for

    async def find(self, address: Address, *, ignore_quota: bool = False) -> MailboxEntry | None:
        """The mailbox of an address; None when it is an INBOX that has not been made, or is on another back end (only
        when `asking`).

        The one that its sub-address names, if it takes mail of the sender, else INBOX. Raises StoreError NO_USER,
        NO_PERMISSION, ELSEWHERE, and what its account's status says.
        """
        account = await hosting.look_up(self.store, address.plain)
        if account is not None:
            return await self._inbox(account) if self._takes(account, ignore_quota) else None
        divided = address.divided(self.settings.separator)
        if divided is not None:
            user, mailbox = divided
            account = await hosting.look_up(self.store, user.plain)
            if account is not None:
                if not self._takes(account, ignore_quota):
                    return None
                return await self._named(account, mailbox) or await self._inbox(account)
            if self._is_public(user):
                return await self._public(mailbox)
        raise StoreError(Problem.NO_USER)

    async def admit(self, entry: MailboxEntry, octets: int, *, ignore_quota: bool = False) -> Partition:
        """The partition of the mailbox, if a message of at least that size would be taken. A refusal is written down.

        Raises StoreError OVER_QUOTA, QUOTA_GRACE_ENDED, DISK_FULL.
        """
        partition, root = self.store.quota_of(entry)
        partition.check_room()
        if not (ignore_quota or roots.fits(self.store, partition, root, octets or 1)):
            await self._admit(partition, root, octets)
        return partition

    async def _admit(self, partition: Partition, root: str, octets: int) -> None:
        await offload.change(self.store, partial(roots.admit, self.store, partition, root, octets or 1))

    async def check(self, address: Address, octets: int) -> None:
        """Whether a message of that size (0: not known) to that address would be taken. Raises StoreError."""
        entry = await self.find(address)
        if entry is not None:
            await self.admit(entry, octets)
        elif self._without_inbox is not None:
            partition = self.store.partition(self._without_inbox.partition)
            partition.check_room()
            await self._admit(partition, self._without_inbox.user, octets)

    def may_be_public(self, address: Address) -> bool:
        """Whether the address is of the form of a public mailbox's; whether there is one depends on who asks."""
        divided = address.divided(self.settings.separator)
        return divided is not None and self._is_public(divided[0])

    def _takes(self, account: Account, ignore_quota: bool) -> bool:
        """Whether this back end keeps the account's mail. Whoever asks hears that it takes mail; whether there is
        room, only the right one knows. Whoever brings mail has come to the wrong one.

        Raises StoreError with what the account's status says, ELSEWHERE.
        """
        problem = delivery_problem(account.status) if account.status is not Status.ACTIVE else None
        if problem is not None and not (ignore_quota and problem is Problem.OVER_QUOTA):
            raise StoreError(problem)
        if hosting.is_here(self.store, account):
            return True
        if not self.asking:
            raise StoreError(Problem.ELSEWHERE, detail=f"{account.user} is on {account.host}")
        return False

    async def _inbox(self, account: Account) -> MailboxEntry | None:
        entry = self.store.mailboxes.find(MailboxName(account.user, INBOX))
        if entry is None and self.asking:
            self._without_inbox = account
        elif entry is None:             # its first use: making it syncs
            entry = await offload.run(self.store, "names", firstuse.inbox, self.store, account)
        return entry

    async def _named(self, account: Account, path: str) -> MailboxEntry | None:
        """The account's own mailbox of that name, exactly as the sender wrote it, unless it is shared and the sender
        may not post to it (RFC 4314 §4, `p`)."""
        entry = self._find_path(account.user, path)
        if entry is None and self.settings.create_mailbox != "no" and not self.asking:
            entry = await offload.run(self.store, "names", self._create, account, path)
        if entry is None or not entry.acl:
            return entry
        sender = await self._sending_user()
        return entry if sender == account.user or authorization.may(self.store, sender, entry, "p") else None

    def _create(self, account: Account, path: str) -> MailboxEntry | None:
        """The mailbox, made; None when that cannot be, and the mail is for INBOX."""
        try:
            name = MailboxName(account.user, legal_path(path))
            firstuse.inbox(self.store, account)       # a new user has that, and more, before what mail makes
            entry = namespace.create_mailbox(self.store, name)
            if self.settings.create_mailbox == "subscribed":
                subscribing.subscribe(self.store, account.user, path)
        except NameProblem:
            return None
        except StoreError as refusal:
            if refusal.problem not in (Problem.MAILBOX_EXISTS, Problem.BAD_NAME, Problem.LIMIT):
                raise
            return self._find_path(account.user, path)
        return entry

    def _is_public(self, user: Address) -> bool:
        settings = self.store.settings
        ending = "@" + settings.default_domain
        try:
            return canonical(user.plain).removesuffix(ending) == canonical(settings.public_user).removesuffix(ending)
        except ValueError:
            return False

    async def _public(self, path: str) -> MailboxEntry:
        """A public mailbox that the sender may post to. Only who may look it up hears that it is there; for the others
        it takes as long as if it were not. Raises StoreError NO_PERMISSION, NO_USER.
        """
        sender = await self._sending_user()
        entry = self._find_path("", path)
        if entry is None:
            raise StoreError(Problem.NO_USER)
        if authorization.may(self.store, sender, entry, "p"):
            return entry
        known = sender and authorization.may(self.store, sender, entry, "l")
        raise StoreError(Problem.NO_PERMISSION if known else Problem.NO_USER)

    async def _sending_user(self) -> str:
        """The user id of the sender; "" for a stranger, whom only `anyone` speaks of. Raises StoreError UNAVAILABLE."""
        if self._sender is None:
            account = None if self.sender is None else await hosting.look_up(self.store, self.sender.plain)
            self._sender = account.user if account is not None else ""
        return self._sender

    def _find_path(self, owner: str, path: str) -> MailboxEntry | None:
        try:
            return self.store.mailboxes.find(MailboxName(owner, legal_path(path)))
        except NameProblem:
            return None
