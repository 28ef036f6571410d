"""The scripts of an open store: compiled once, and run for each message and recipient."""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from types import MappingProxyType

from attrs import define, evolve, field, frozen

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName, NameProblem
from store import offload
from store.addresses import canonical
from store.delivery.commit import Target
from store.delivery.durable import FEW
from store.errors import Problem, StoreError
from store.filtering import userscripts
from store.filtering.allowance import Allowance, take_creation
from store.filtering.disposition import Disposer, Disposition
from store.filtering.externallists import DirectoryNeeded, ExternalLists
from store.filtering.knownscripts import Known, KnownScripts, OwnScript, TooMuch
from store.filtering.sievesettings import Settings
from store.filtering.sitescripts import AFTER, BEFORE, SiteScripts
from store.filtering.storesurroundings import StoreSurroundings, name_of, owned_key
from store.filtering.usersettings import settings_of
from store.mailboxes import authorization, namespace
from store.message.headers import header_end
from store.metrics.processcounters import Counters
from store.metrics.scriptcounters import LIMIT, SCRIPT, SERVER, ScriptCounters
from store.partition.staged import Staged
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptlimits import DEFAULT, Limits
from store.sieve.scriptoutcome import JUST_KEPT, Outcome
from store.sieve.scriptrun import Run, Tree, run
from store.sieve.surroundings import Envelope
from store.store import Store

log = logging.getLogger(__name__)

HEADER = 256 << 10              # octets at the head of a message in which its header is looked for
QUICK = 16 << 10                # octets of a header with which scripts run at once, not in a thread
QUICK_NODES = 400               # commands and tests of such scripts, of all recipients,
RECIPIENT_NODES = 5             # and what a recipient counts for
QUICK_OCTETS = 4 << 10          # of one that is compiled at once
QUICK_RUN = evolve(DEFAULT, steps=2000, octets=256 << 10)      # what they may do at once: some milliseconds
_SLOW = frozenset(("body", "mime", "foreverypart", "replace", "enclose", "extracttext", "editheader", "regex",
                   "mailbox", "special-use", "include"))


@frozen
class Pace:
    """How long runs may take; `may_wait`: whether the directory may be asked about lists."""

    limits: Limits
    may_wait: bool = False


AT_ONCE, IN_A_THREAD, WAITING = Pace(QUICK_RUN), Pace(DEFAULT), Pace(DEFAULT, may_wait=True)

#: Items of RFC 6785 §4.2 to §4.5, as they are where mail comes.
NO_EVENT = {"imap.user": "", "imap.email": "", "imap.cause": "", "imap.mailbox": "", "imap.changedflags": ""}


@frozen
class Recipient:
    """Whose scripts run: where the message goes without one, and the address that RCPT named."""

    target: Target
    address: str


@define(eq=False)
class _Arrived:
    """A message for which scripts run. `outcomes`: of those that want the same for each recipient, by the number of
    addresses that it may be sent on to. `steps` and `octets` count what has been done at once."""

    message: ReceivedMail
    sender: str
    now: datetime
    pace: Pace
    outcomes: dict[tuple[tuple[Tree, ...], int], Outcome] = field(factory=dict)
    steps: int = 0
    octets: int = 0


@define(eq=False)
class Filters:
    """Of an open store; see `of`."""

    store: Store
    settings: Settings = field(factory=Settings)
    site: SiteScripts = field(init=False)
    allowance: Allowance = field(factory=Allowance, init=False)
    _counted: ScriptCounters = field(init=False)
    known: KnownScripts = field(init=False)
    _second: tuple[int, datetime] = field(default=(0, datetime.fromtimestamp(0, UTC)), init=False)
    _host: tuple[str, Mapping[str, str]] = field(default=("", {}), init=False)      # what scripts hear of it

    @site.default
    def _site_scripts(self) -> SiteScripts:
        self._tell_store(self.settings)
        return SiteScripts(self.settings.folder)

    def _tell_store(self, settings: Settings) -> None:
        self.store.filtered = settings.folder is not None
        self.store.event_script = settings.imap_script

    @_counted.default
    def _counters(self) -> ScriptCounters:
        return Counters.of(self.store).scripts

    @known.default
    def _known_scripts(self) -> KnownScripts:
        return KnownScripts(self.store, self._counted)

    @classmethod
    def of(cls, store: Store, settings: Settings | None = None) -> "Filters":
        """Those of the store; `settings` are for the first who asks."""
        return store.owned.get(cls, lambda: cls(store, settings or Settings()))

    def follow(self, settings: Settings) -> None:
        """Mail that comes from now on obeys these."""
        if settings.folder != self.settings.folder:
            self.site = SiteScripts(settings.folder)
        self._tell_store(settings)
        self.settings = settings

    def settings_of(self, user: str) -> Settings:
        """Those that hold for that user."""
        return settings_of(self.store, self.settings, user)

    def trees(self, user: str) -> tuple[Tree, ...]:
        """The scripts that run for the user, in order: the site's, the user's or the default one, the site's."""
        inbox = self.store.mailboxes.find(MailboxName(user, INBOX))
        return self._around(user, OwnScript(self.settings_of(user)) if inbox is None else self.known.of(
            inbox, self.known.at(self.store.mailboxes.version(), self.settings)))

    def _around(self, user: str, own: OwnScript) -> tuple[Tree, ...]:
        """See `trees`."""
        if self.settings.folder is None or not own.settings.enabled:
            return () if own.tree is None else (own.tree,)
        domain = user.rpartition("@")[2] if "@" in user else self.store.settings.default_domain
        tree = own.tree if own.stored else self.site.default(domain)
        return (*self.site.around(BEFORE, domain), *(() if tree is None else (tree,)), *self.site.around(AFTER, domain))

    def _included(self, user: str, name: str, site: bool) -> Tree | None:
        if site:
            return self.site.included(name)
        with suppress(userscripts.ScriptRefused):
            script = userscripts.find(self.store.mailboxes, user, name)
            return self.known.tree(user, script.number, script.to_bytes())
        return None

    def on_events(self, user: str, name: str, *, site_first: bool) -> Tree | None:
        """The script of that name which runs on events of IMAP: one of the user's, else one of the site's, or the other
        way round."""
        if not self.settings_of(user).own:
            return self.site.on_events(name)
        own = partial(self._included, user, name, False)
        return (self.site.on_events(name) or own()) if site_first else (own() or self.site.on_events(name))

    async def decide(self, staged: Staged, sender: str, recipients: Sequence[Recipient],
                     version: tuple[int, int] | None = None) -> dict[MailboxId, Disposition]:
        """What becomes of a message, whole but not delivered yet, for each of the recipients whose scripts do more than
        keep it, by the mailbox of its target. `version`: that of the list just now. Raises StoreError."""
        known = self.known.at(version or self.store.mailboxes.version(), self.settings)
        try:
            if not staged.written and len(recipients) <= FEW:
                with suppress(TooMuch):
                    return self._decide(staged, sender, recipients, known, AT_ONCE)
            return await offload.run(self.store, "files", self._decide, staged, sender, recipients, known, IN_A_THREAD,
                                     user=recipients[0].target.entry.name.owner)
        except DirectoryNeeded:
            return await offload.run(self.store, "remote", self._decide, staged, sender, recipients, known, WAITING,
                                     user=recipients[0].target.entry.name.owner)

    def _decide(self, staged: Staged, sender: str, recipients: Sequence[Recipient], known: Known, pace: Pace
                ) -> dict[MailboxId, Disposition]:
        quick = pace is AT_ONCE
        octets = DEFAULT.script if not quick else QUICK_OCTETS if len(recipients) == 1 else 0
        trees, settings = [], []
        for each in recipients:
            entry = each.target.entry
            user = entry.name.owner
            own = self.known.of(entry, known, octets) if user else OwnScript(self.settings)
            settings.append(own.settings)
            trees.append(self._around(user, own) if user else ())
        if not any(trees):
            return {}
        head = staged.peek(0, QUICK if quick else HEADER)
        end = header_end(head)
        if quick and (end is None and staged.size > QUICK or not _are_quick(trees)):
            raise TooMuch
        message = ReceivedMail(head if end is None else head[:end], staged.size, staged.peek)
        arrived = _Arrived(message, sender, self._now(), pace)
        # All of them before anything is done: what takes too long begins again.
        wanted = [self._wanted(arrived, recipient, own, holds) if own else None
                  for recipient, own, holds in zip(recipients, trees, settings, strict=True)]
        decided = {}
        for group, (recipient, outcome, holds) in enumerate(zip(recipients, wanted, settings, strict=True), 1):
            if outcome is not None and not self._stays(outcome):
                decided[recipient.target.entry.id] = self._disposed(arrived, recipient, outcome, holds, group)
        return decided

    def _stays(self, outcome: Outcome | Exception) -> bool:
        """Whether all goes on as without a script, as it does for most mail."""
        if isinstance(outcome, Exception) or outcome.files != JUST_KEPT or outcome.actions > 1 or (
                outcome.failure or outcome.seen):
            return False
        self._counted.kept()
        return True

    def _now(self) -> datetime:
        """In whole seconds, in the zone of this machine, of which the system is asked once a second."""
        second, known = int(time.time()), self._second
        if known[0] != second:
            self._second = known = second, datetime.fromtimestamp(second, UTC).astimezone()
        return known[1]

    def _wanted(self, arrived: "_Arrived", recipient: Recipient, trees: tuple[Tree, ...], settings: Settings
                ) -> Outcome | Exception:
        """What these scripts want, which may be known from another recipient. An error of ours in one script is no
        matter of the other recipients."""
        same = trees, settings.redirects
        if same in arrived.outcomes:
            return arrived.outcomes[same]
        try:
            envelope = self.envelope(arrived.sender, recipient)
            state = self.state(arrived.message, envelope, recipient.target.entry, arrived.now, settings, arrived.pace)
            quick = arrived.pace is AT_ONCE
            if quick:                               # all that is done at once counts together
                state.steps, state.octets = arrived.steps, arrived.octets
            steps, began = state.steps, perf_counter()
            outcome = run(trees, state)
            if quick and state.exhausted:
                raise TooMuch
            self._counted.ran(perf_counter() - began, state.steps - steps)
        except (StoreError, TooMuch, DirectoryNeeded):
            raise
        except Exception as error:
            return self._failed(recipient, error)
        if outcome.failure:
            self._counted.failures[LIMIT if state.exhausted else SCRIPT] += 1
        arrived.steps, arrived.octets = state.steps, state.octets
        if all([tree.alike for tree in trees]):
            arrived.outcomes[same] = outcome
        return outcome

    def _failed(self, recipient: Recipient, error: Exception) -> Exception:
        user = recipient.target.entry.name.owner
        self._counted.failures[SERVER] += 1
        log.error("a script of %s could not be run, the message is kept", user, exc_info=error)
        return error

    def _disposed(self, arrived: "_Arrived", recipient: Recipient, outcome: Outcome | Exception, settings: Settings,
                  group: int) -> Disposition:
        """What that outcome means for the recipient: after an error of ours the message is kept."""
        user = recipient.target.entry.name.owner
        if not isinstance(outcome, Exception):
            envelope = self.envelope(arrived.sender, recipient)
            disposer = self.disposer(arrived.message, envelope, recipient.target, arrived.now, settings, group)
            try:
                disposition = disposer.dispose(outcome)
            except StoreError:
                raise
            except Exception as error:
                outcome = self._failed(recipient, error)
        if isinstance(outcome, Exception):
            return Disposition((recipient.target,), failure=f"an error of this server: {type(outcome).__name__}")
        self._counted.decided(outcome, len(disposition.notes))
        if disposition.failure:
            log.warning("a script of %s failed, the message is kept: %s", user, disposition.failure)
        for note in disposition.notes:
            log.info("script of %s: %s", user, note)
        return disposition

    def disposer(self, message: ReceivedMail, envelope: Envelope, base: Target, now: datetime, settings: Settings,
                 group: int) -> Disposer:
        """What carries out the outcome of the scripts of one recipient."""
        user = base.entry.name.owner
        return Disposer(self.store, settings, base, message, envelope, now, group,
                        addresses=partial(self._addresses, user), create=partial(self.create, base.entry),
                        may_send=lambda letters: self.allowance.take(user, letters, settings.hourly))

    def envelope(self, sender: str, recipient: Recipient) -> Envelope:
        """That of the message for that recipient."""
        return Envelope(sender, self.whole_address(recipient.address))

    def state(self, message: ReceivedMail, envelope: Envelope, entry: MailboxEntry, now: datetime, settings: Settings,
              pace: Pace) -> Run:
        """A run, which is about to begin, of the scripts of the owner of that mailbox."""
        user, partition = entry.name.owner, self.store.partition(entry.partition)
        surroundings = StoreSurroundings(
            now, self._environment(), store=self.store, user=user, settings=self.settings,
            duplicates=partition.duplicates, key=owned_key(self.store, entry),
            lists=ExternalLists(self.store, settings, user, pace.may_wait))
        limits = pace.limits
        if settings.redirects > limits.redirects:
            limits = evolve(limits, redirects=settings.redirects)
        return Run(message, envelope, surroundings, limits, compiled=partial(self._included, user))

    def _environment(self) -> Mapping[str, str]:
        """RFC 5183 §4.1."""
        host, known = self.store.settings.host or self.store.recorder.server, self._host
        if known[0] != host:
            self._host = known = host, MappingProxyType({
                "domain": host.partition(".")[2], "host": host, "location": "MS", "name": "onecopy", "phase": "post",
                "version": "1", **NO_EVENT})
        return known[1]

    def _addresses(self, user: str) -> frozenset[str]:
        """All addresses of the user that the store knows."""
        row = self.store.directory.user(user)
        written = (user, *(row.account.aliases if row is not None else ()))
        return frozenset(canonical(self.whole_address(one)) for one in written)

    def whole_address(self, address: str) -> str:
        """With the default domain, if it has none: a relay may leave that away, and what a script sends may not."""
        domain = self.store.settings.default_domain
        return address if "@" in address or not domain else f"{address}@{domain}"

    def create(self, entry: MailboxEntry, name: str, use: str) -> MailboxEntry | None:
        """A mailbox that a script of the owner of `entry` files into with `:create`; None where there can be none."""
        user = entry.name.owner
        try:
            named = name_of(user, name)
            if not authorization.may_create(self.store, user, named):
                raise StoreError(Problem.NO_PERMISSION)
            if not take_creation(self.store.partition_of(entry), owned_key(self.store, entry),
                                 self.settings_of(user).creations):
                raise StoreError(Problem.LIMIT, "Scripts have made enough mailboxes for this day (sieve.creations)")
            made = namespace.create_mailbox(self.store, named, special_use=use or None)
            return made if authorization.may(self.store, user, made, "i") else None
        except (NameProblem, StoreError) as problem:
            log.info("a script of %s cannot make %s: %s", user, name, problem)
            return None


def _are_quick(scripts: Sequence[tuple[Tree, ...]]) -> bool:
    """Whether the scripts of all recipients together take some milliseconds at most."""
    nodes, known = 0, set()
    for trees in scripts:
        nodes += RECIPIENT_NODES
        if trees in known:
            continue
        alike = True
        for tree in trees:
            if not tree.needs.isdisjoint(_SLOW):
                return False
            nodes += tree.count
            alike = alike and tree.alike
        if alike:
            known.add(trees)
    return nodes <= QUICK_NODES
