"""From a user who has logged in to a maildrop, and back: who may have it now, and which messages are in it."""

import logging
import math
import time
from collections.abc import Callable

from attrs import define, field

from mboxlist.entry import MailboxEntry
from pop3 import uniqueids
from pop3.logins import Logins
from pop3.maildrop import Maildrop, MaildropLocks
from pop3.policy import DAY, PerUser, shortest
from pop3.replies import IN_USE, refused
from pop3.settings import DATE, EXCLUSIVE, Settings
from store import offload
from store.accounts.base import Account
from store.errors import Problem, StoreError
from store.mailboxes import authorization, firstuse
from store.store import Store
from store.tables.index import Rows, take
from store.tables.state import Mailbox

log = logging.getLogger(__name__)

QUICK = 10_000              # messages of a mailbox that is opened without a thread
FEW = 1000                  # messages whose unique-ids are read without one


class NotNow(Exception):
    """The maildrop is not to be had: the reply."""

    def __init__(self, reply: bytes) -> None:
        super().__init__()
        self.reply = reply


@define(eq=False)
class Admission:
    """What all sessions of a server share of it. `clock` measures spans of time."""

    _store: Store
    _settings: Settings
    _locks: MaildropLocks
    _logins: Logins
    _clock: Callable[[], float]
    _delays: PerUser = field(init=False)
    _expiries: PerUser = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._delays = PerUser.parse(self._settings.login_delay, self._settings.login_delay_for)
        self._expiries = PerUser.parse(self._settings.expire, self._settings.expire_for)

    async def enter(self, account: Account) -> Maildrop:
        """The maildrop, frozen as it is now. Raises NotNow, StoreError."""
        entry = await firstuse.find_inbox(self._store, account)
        if not authorization.may(self._store, account.user, entry, "r"):          # RFC 4314 §4, as for SELECT
            raise StoreError(Problem.NO_PERMISSION)
        exclusive = self._settings.sharing == EXCLUSIVE
        if exclusive and not self._locks.take(entry.id):
            raise NotNow(IN_USE)
        made = None
        try:
            delay, rate = self._delay(account.user), self._settings.login_rate
            if (delay or rate) and (left := self._logins.wait(entry.id, self._clock(), delay, rate)):
                raise NotNow(refused(f"log in again in {math.ceil(left)} seconds", "LOGIN-DELAY"))
            made = await self._maildrop(account.user, entry)
        finally:
            if made is None and exclusive:
                self._locks.release(entry.id)
        if delay or rate:
            self._logins.note(entry.id, self._clock())
        return made

    def leave(self, maildrop: Maildrop) -> None:
        """Others may have it."""
        if self._settings.sharing == EXCLUSIVE:
            self._locks.release(maildrop.mailbox.entry.id)

    def capabilities(self, user: str) -> list[str]:
        """EXPIRE and LOGIN-DELAY (RFC 2449 §6.5, §6.7); before login (user "") what may be so for somebody."""
        return [self._expire(user), *self._login_delay(user)]

    def _expire(self, user: str) -> str:
        if not self._settings.leave_on_server:
            return "EXPIRE 0"
        time = self._expiries.of(user, self._store.settings.default_domain) if user else shortest(self._expiries)
        days = str(time // DAY) if time else "NEVER"
        return f"EXPIRE {days} USER" if self._expiries.differs and not user else f"EXPIRE {days}"

    def _login_delay(self, user: str) -> list[str]:
        delay = self._delay(user) if user else max(self._delays.values)
        if not delay and not (user and self._delays.differs and max(self._delays.values)):
            return []
        return [f"LOGIN-DELAY {delay} USER" if self._delays.differs and not user else f"LOGIN-DELAY {delay}"]

    def _delay(self, user: str) -> int:
        return self._delays.of(user, self._store.settings.default_domain)

    async def _maildrop(self, user: str, entry: MailboxEntry) -> Maildrop:
        mailbox = await self._open(entry)
        rows, expired = mailbox.rows, mailbox.rows[:0]
        if expiry := self._expiries.of(user, self._store.settings.default_domain):
            rows, expired = _parted(rows, int(time.time()) - expiry)
        if self._settings.order == DATE:
            rows = take(rows, rows["received"].argsort(kind="stable"))
        own = await self._own_unique_ids(mailbox)
        names = uniqueids.UniqueIds(uniqueids.parse(self._settings.uidl_format), mailbox.state.uidvalidity, own)
        return Maildrop(mailbox, rows, names, expired["uid"].tolist())

    async def _own_unique_ids(self, mailbox: Mailbox) -> dict[int, bytes]:
        """The unique-ids that messages brought along."""
        store, entry = self._store, mailbox.entry
        if len(mailbox.rows) > FEW and store.partition_of(entry).uidls.any(entry.id):
            return await offload.run(store, "files", store.uidls, entry)
        return store.uidls(entry)

    async def _open(self, entry: MailboxEntry) -> Mailbox:
        return await offload.change(self._store, lambda: self._store.open_mailbox(entry), entry.name.owner, "views")


def _parted(rows: Rows, since: int) -> tuple[Rows, Rows]:
    """The messages that have arrived in INBOX since then, and the others."""
    kept = rows["saved"] > max(0, since)
    return (rows, rows[:0]) if kept.all() else (take(rows, kept), take(rows, ~kept))
