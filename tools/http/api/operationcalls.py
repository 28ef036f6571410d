"""An operation that is asked for within this process: by the pages of the API, and by those of the console. Whoever
asks, the role's rights are looked at here, and the audit trail has the asker's name.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field
from twisted.internet.defer import ensureDeferred

from store import offload
from store.accounts.throttle.sharedcounts import Counts
from store.net.authentication import Authenticator
from store.store import Store
from tools.cli import registry
from tools.cli.options import Config
from tools.http.api.keptoutcomes import KeptOutcomes
from tools.http.api.operationlist import NOT_OFFERED, OperationList
from tools.http.api.operationprocess import NotBegun
from tools.http.api.permissions import OF_SNAPSHOTS, Asker, allowed, within_scope
from tools.http.api.running import Run, Runs
from tools.http.gathering import Gathering
from tools.http.settings import Settings
from tools.http.userroles import superiors
from tools.http.webpages import Refused

log = logging.getLogger(__name__)

AT_ONCE = 10.0              # seconds for which a caller waits, before it hears where to ask
TURN = 0.1                  # seconds between two looks whether an operation more may begin


@define(eq=False)
class OperationCalls:
    """The operations of a store, for who has a role. `config`: the configuration as it is now; `shared`: what all
    processes count together."""

    _store: Store
    _config: Callable[[], Config]
    _shared: Counts | None = None
    runs: Runs = field(init=False)
    _kept: KeptOutcomes = field(init=False)
    _known: OperationList | None = field(default=None, init=False)
    _looking: Gathering[OperationList] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.runs = Runs(self._config, self._shared)
        self._kept = KeptOutcomes(self._store.root)
        self._looking = Gathering(self._look)

    async def known(self) -> OperationList:
        """All operations. Raises Refused where they cannot be found out now."""
        if self._known is None:
            self._known = await self._looking.get()
        return self._known

    async def _look(self) -> OperationList:
        try:
            return await offload.run(self._store, "operations", self.runs.listed)
        except (NotBegun, OSError, ValueError) as error:
            log.error("it could not be found out which operations there are: %s", error)
            raise Refused(503, "no operation can be carried out at present", [("Retry-After", "10")]) from None

    def prepare(self) -> None:
        """Somebody will ask for operations in a moment: have the process started from which they are forked."""
        offload.start(self._store, "operations", self._prepare)

    def _prepare(self) -> None:
        try:
            self.runs.prepare()
        except OSError as error:
            log.warning("the process that operations are forked from could not be started: %s", error)

    async def carry_out_as(self, asker: Asker, operation: str, arguments: Mapping[str, Any], *, stdin: bytes = b"",
                           as_json: bool = True, wait: float = AT_ONCE, patience: float = 0.0) -> Run:
        """Have an operation carried out ("user show"), with arguments as the API has them. What is still under way
        after `wait` seconds (`exit` is None) can be asked for by `find`. Where too many are under way, it waits for its
        turn for `patience` seconds.

        Raises Refused: 400 for arguments that make no sense, 403 for what the role may not do, 404, 413 for too
        many or too long values, 429.
        """
        known = (await self.known()).by_path.get(operation.replace(" ", "/"))
        if known is None:
            raise Refused(404, "there is no such operation")
        if stdin and not known.reads_stdin:
            raise Refused(400, f"{known.name} reads no stdin")
        known.words(arguments)
        try:
            allowed(asker, known.name, arguments)
            given = await offload.run(self._store, "scope", self._within_scope, asker, known.name, arguments,
                                      user=asker.id)
        except Refused as refused:
            if refused.status == 403:
                Authenticator.of(self._store).turned.lacks_right(
                    "http", asker.peer, asker.id, f"{known.name}: {refused.public}", session=asker.session)
            raise
        deadline = time.monotonic() + patience
        while self.runs.is_full(asker) and time.monotonic() < deadline:
            await offload.threads_of(self._store).pause(TURN)
        if self.runs.is_full(asker):
            raise Refused(429, "too many operations are under way", [("Retry-After", "5")])
        run = self.runs.new(known.name, asker.id, as_json=as_json and "--json" in known.flags)
        log.info("%s by %s from %s: begins", known.name, asker, asker.peer)
        words = known.words(given, as_json=as_json)
        ensureDeferred(self._carry_out(run, words, stdin, asker)).addErrback(
            lambda failure: log.error("%s: its thread failed: %s", run.operation, failure.value))
        await offload.run(self._store, "waiting", run.done.wait, wait)
        if run.exit is None:
            await offload.run(self._store, "pages", self._kept.begin, run)
        if run.exit is not None:
            self.runs.forget(run)               # it is answered here
        return run

    def may(self, asker: Asker, operation: str, arguments: Mapping[str, Any] | None = None) -> bool:
        """Whether the role may do that at all, whoever it is about; cheap."""
        try:
            allowed(asker, operation, arguments or {})
        except Refused:
            return False
        return operation in registry.BY_NAME and operation not in NOT_OFFERED

    async def find(self, id: str, asker: Asker) -> Run | None:
        """What has become of an operation that this asker has asked for, whichever process carries it out."""
        return self.runs.find(id, asker.id) or await offload.run(self._store, "pages", self._kept.find, id, asker.id)

    def travels(self, asker: Asker) -> bool:
        """Whether the user of that scope may look into snapshots. For a thread."""
        try:
            self._within_scope(asker, min(OF_SNAPSHOTS), {"user": asker.scope})
        except Refused:
            return False
        return True

    def _within_scope(self, asker: Asker, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`permissions.within_scope`; superior are users, and groups of them, who may do more than users may."""
        logins, config = Authenticator.of(self._store).settings, self._config()
        settings = config.settings("http", Settings)
        above = frozenset((*logins.administrators, *logins.proxies, *superiors(settings), *str(
            config.values["imap.admins"]).replace(",", " ").split()))
        return within_scope(self._store, asker, operation, arguments, superiors=above,
                            most_octets=settings.helpdesk_quota,
                            travellers=str(config.values["imap.time_travel"]).replace(",", " ").split())

    async def _carry_out(self, run: Run, words: list[str], stdin: bytes, asker: Asker) -> None:
        try:
            await offload.run(self._store, "operations", self._work, run, words, stdin, asker)
        finally:
            self.runs.ended(run)

    def _work(self, run: Run, words: list[str], stdin: bytes, asker: Asker) -> None:
        self.runs.carry_out(run, words, stdin, f"{asker.service} {asker.name} {asker.role} {asker.scope}".rstrip())
        if self._kept.end(run):
            self.runs.forget(run)
        log.info("%s by %s: exit status %s", run.operation, asker, run.exit)
