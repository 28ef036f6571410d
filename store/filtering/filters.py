"""The scripts of an open store: compiled once, and run for each message and recipient."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from threading import Lock

from attrs import define, evolve, field, frozen

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName, NameProblem
from store import offload
from store.addresses import canonical
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.filtering import userscripts
from store.filtering.allowance import Allowance, take_creation
from store.filtering.disposition import Disposer, Disposition
from store.filtering.sievesettings import Settings
from store.filtering.sitescripts import AFTER, BEFORE, SiteScripts
from store.filtering.storesurroundings import StoreSurroundings, name_of, owned_key
from store.filtering.usersettings import settings_of
from store.mailboxes import authorization, namespace
from store.message.headers import header_end
from store.partition.staged import Staged
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptlimits import DEFAULT, Limits
from store.sieve.scriptproblems import ScriptProblem
from store.sieve.scriptrun import Run, Tree, run
from store.sieve.surroundings import Envelope
from store.store import Store

log = logging.getLogger(__name__)

REMEMBERED = 2000               # compiled scripts of users,
REMEMBERED_NODES = 300_000      # and their commands and tests
HEADER = 256 << 10              # octets at the head of a message in which its header is looked for
QUICK = 16 << 10                # octets of a header with which scripts run at once, not in a thread
QUICK_NODES = 400               # commands and tests of such scripts
QUICK_OCTETS = 4 << 10          # of one that is compiled at once
QUICK_RUN = evolve(DEFAULT, steps=2000, octets=256 << 10)      # what they may do at once: some milliseconds
_SLOW = frozenset(("body", "mime", "foreverypart", "replace", "enclose", "extracttext", "editheader", "regex",
                   "mailbox", "special-use", "include"))


class _TooMuch(Exception):  # noqa: N818 - not an error
    """It takes longer than the event loop has time: once more, in a thread."""


@frozen
class Recipient:
    """Whose scripts run: where the message goes without one, and the address that RCPT named."""

    target: Target
    address: str


@define(eq=False)
class Filters:
    """Of an open store; see `of`."""

    store: Store
    settings: Settings = field(factory=Settings)
    site: SiteScripts = field(init=False)
    allowance: Allowance = field(factory=Allowance, init=False)
    _trees: OrderedDict[tuple[MailboxId, int], tuple[bytes, Tree | None]] = field(factory=OrderedDict, init=False)
    _nodes: int = field(default=0, init=False)          # of all in `_trees`
    _lock: Lock = field(factory=Lock, init=False)       # of both: threads run scripts, too

    @site.default
    def _site_scripts(self) -> SiteScripts:
        self.store.filtered = self.settings.folder is not None
        return SiteScripts(self.settings.folder)

    @classmethod
    def of(cls, store: Store, settings: Settings | None = None) -> "Filters":
        """Those of the store; `settings` are for the first who asks."""
        return store.owned.get(cls, lambda: cls(store, settings or Settings()))

    def follow(self, settings: Settings) -> None:
        """Mail that comes from now on obeys these."""
        if settings.folder != self.settings.folder:
            self.site = SiteScripts(settings.folder)
            self.store.filtered = settings.folder is not None
        self.settings = settings

    def settings_of(self, user: str) -> Settings:
        """Those that hold for that user."""
        return settings_of(self.store, self.settings, user)

    def trees(self, user: str, *, quick: bool = False) -> tuple[Tree, ...]:
        """The scripts that run for the user, in order: the site's, the user's or the default one, the site's. `quick`:
        raises _TooMuch when that takes long."""
        settings = self.settings_of(user)
        if not settings.enabled:
            return ()
        domain = user.rpartition("@")[2] if "@" in user else self.store.settings.default_domain
        inbox = self.store.mailboxes.find(MailboxName(user, INBOX))
        stored = None if inbox is None else userscripts.active(self.store.mailboxes, inbox, own=settings.own)
        own = self.site.default(domain) if inbox is None or stored is None else self._own(inbox, *stored, quick=quick)
        if self.settings.folder is None:
            return () if own is None else (own,)
        return (*self.site.around(BEFORE, domain), *(() if own is None else (own,)), *self.site.around(AFTER, domain))

    def _own(self, inbox: MailboxEntry, number: int, stored: bytes, *, quick: bool = False) -> Tree | None:
        """The compiled script; None for one that cannot be compiled any more, which then does nothing."""
        key = inbox.id, number
        with self._lock:
            known = self._trees.get(key)
            if known is not None:
                self._trees.move_to_end(key)
        if known is None or known[0] != stored:
            if quick and len(stored) > QUICK_OCTETS:
                raise _TooMuch
            script = userscripts.UserScript.from_bytes(number, stored)
            try:
                tree: Tree | None = userscripts.compiled(script)
            except (ScriptProblem, userscripts.ScriptRefused) as problem:
                log.error("%s cannot be run, mail is kept: %s", script.of(inbox.name.owner), problem)
                tree = None
            known = stored, tree
            with self._lock:
                self._nodes += _weight(tree) - _weight(self._trees.pop(key, known)[1] if key in self._trees else None)
                self._trees[key] = known
                while len(self._trees) > REMEMBERED or self._nodes > REMEMBERED_NODES and len(self._trees) > 1:
                    self._nodes -= _weight(self._trees.popitem(last=False)[1][1])
        return known[1]

    def _included(self, user: str, name: str, site: bool) -> Tree | None:
        if site:
            return self.site.included(name)
        with suppress(userscripts.ScriptRefused):
            inbox, script = self.store.mailboxes.find(MailboxName(user, INBOX)), userscripts.find(
                self.store.mailboxes, user, name)
            return None if inbox is None else self._own(inbox, script.number, script.to_bytes())
        return None

    async def decide(self, staged: Staged, sender: str, recipients: Sequence[Recipient]
                     ) -> dict[MailboxId, Disposition]:
        """What becomes of a message, whole but not delivered yet, for each of the recipients who have a script, by the
        mailbox of its target. Raises StoreError."""
        if not (staged.written or staged.size > QUICK or len(recipients) > 1):
            with suppress(_TooMuch):
                return self._decide(staged, sender, recipients, QUICK_RUN)
        return await offload.run(self.store, "files", self._decide, staged, sender, recipients, DEFAULT)

    def _decide(self, staged: Staged, sender: str, recipients: Sequence[Recipient], limits: Limits
                ) -> dict[MailboxId, Disposition]:
        quick = limits is QUICK_RUN
        trees = [self.trees(each.target.entry.name.owner, quick=quick) if each.target.entry.name.owner else ()
                 for each in recipients]
        if not any(trees):
            return {}
        if quick and any(map(_is_slow, trees)):
            raise _TooMuch
        head = staged.peek(0, HEADER)
        end = header_end(head)
        head = head[:end if end is not None else len(head)]
        found, now = {}, datetime.now(UTC).astimezone()
        for group, (recipient, own) in enumerate(zip(recipients, trees, strict=True), 1):
            if own:
                message = ReceivedMail(head, staged.size, staged.peek)
                found[recipient.target.entry.id] = self._disposed(message, sender, recipient, own, group, now, limits)
        return found

    def _disposed(self, message: ReceivedMail, sender: str, recipient: Recipient, trees: Sequence[Tree], group: int,
                  now: datetime, limits: Limits) -> Disposition:
        """`dispose`; an error of ours in one script keeps the message, and is no matter of the other recipients."""
        try:
            return self.dispose(message, sender, recipient, trees, group, now, limits)
        except (StoreError, _TooMuch):
            raise
        except Exception as error:
            log.exception("a script of %s could not be run, the message is kept", recipient.target.entry.name.owner)
            return Disposition((recipient.target,), failure=f"an error of this server: {type(error).__name__}")

    def dispose(self, message: ReceivedMail, sender: str, recipient: Recipient, trees: Sequence[Tree], group: int,
                now: datetime, limits: Limits = DEFAULT) -> Disposition:
        """What these scripts do with the message for that recipient."""
        user, state = self.state(message, sender, recipient, now, limits)
        original = ReceivedMail(message.header, message.size, message.read)
        outcome = run(trees, state)
        if state.exhausted and limits is QUICK_RUN:
            raise _TooMuch
        settings = self.settings_of(user)
        disposer = Disposer(self.store, settings, recipient.target, original, state.envelope, now,
                            state.surroundings.addresses, group, partial(self._create, recipient.target.entry),
                            lambda letters: self.allowance.take(user, letters, settings.hourly))
        disposition = disposer.dispose(outcome)
        if disposition.failure:
            log.warning("a script of %s failed, the message is kept: %s", user, disposition.failure)
        for note in disposition.notes:
            log.info("script of %s: %s", user, note)
        return disposition

    def state(self, message: ReceivedMail, sender: str, recipient: Recipient, now: datetime,
              limits: Limits = DEFAULT) -> tuple[str, Run]:
        """The user whose scripts run, and a run that is about to begin."""
        entry = recipient.target.entry
        user, partition = entry.name.owner, self.store.partition(entry.partition)
        surroundings = StoreSurroundings(
            now, self._environment(user), self._addresses(user), store=self.store, user=user, settings=self.settings,
            duplicates=partition.duplicates, key=owned_key(self.store, entry))
        redirects = self.settings_of(user).redirects
        if redirects > limits.redirects:
            limits = evolve(limits, redirects=redirects)
        return user, Run(message, Envelope(sender, self._whole(recipient.address)), surroundings, limits,
                         compiled=partial(self._included, user))

    def _environment(self, user: str) -> dict[str, str]:
        """RFC 5183 §4.1."""
        host = self.store.settings.host or self.store.recorder.server
        return {"domain": host.partition(".")[2], "host": host, "location": "MS", "name": "onecopy", "phase": "post",
                "version": "1"}

    def _addresses(self, user: str) -> frozenset[str]:
        """All addresses of the user that the store knows."""
        row = self.store.directory.user(user)
        written = (user, *(row.account.aliases if row is not None else ()))
        return frozenset(canonical(self._whole(one)) for one in written)

    def _whole(self, address: str) -> str:
        """With the default domain, if it has none: a relay may leave that away, and what a script sends may not."""
        domain = self.store.settings.default_domain
        return address if "@" in address or not domain else f"{address}@{domain}"

    def _create(self, entry: MailboxEntry, name: str, use: str) -> MailboxEntry | None:
        """A mailbox that a script of the owner of `entry` files into with `:create`; None where there can be none."""
        user = entry.name.owner
        try:
            named = name_of(user, name)
            if not authorization.may_create(self.store, user, named):
                raise StoreError(Problem.NO_PERMISSION)
            if not take_creation(self.store.partition_of(entry), owned_key(self.store, entry),
                                 self.settings_of(entry.name.owner).creations):
                raise StoreError(Problem.LIMIT, "Scripts have made enough mailboxes for this day (sieve.creations)")
            made = namespace.create_mailbox(self.store, named, special_use=use or None)
            return made if authorization.may(self.store, user, made, "i") else None
        except (NameProblem, StoreError) as problem:
            log.info("a script of %s cannot make %s: %s", user, name, problem)
            return None


def _weight(tree: Tree | None) -> int:
    return tree.count if tree is not None else 0


def _is_slow(trees: Sequence[Tree]) -> bool:
    return any(not tree.needs.isdisjoint(_SLOW) or tree.count > QUICK_NODES for tree in trees)
