"""How a process of the server takes over what has changed in the configuration: SIGHUP, `onecopy config reload`."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, field

import store.accounts.loginsettings
import store.audit.auditsettings
import store.settings
from store.audit.trail import Trail
from store.filtering.filters import Filters
from store.filtering.sievesettings import Settings as SieveSettings
from store.net.authentication import Authenticator
from store.net.openlogins import OpenLogins
from store.offload import Threads
from store.store import Store
from tools.cli.options import Config, option
from tools.commandaudit import hidden
from tools.exits import Failure
from tools.server.process import logs
from tools.server.process.listeners import Server
from tools.server.process.loglevels import Levels
from tools.server.process.reloadable import differing, is_reloaded, joined
from tools.server.tls.contexts import Certificates
from tools.serversettings import Log, Tls

log = logging.getLogger(__name__)


@define(eq=False)
class Reloading:
    """The configuration of a process, and how it takes over another one."""

    config: Config
    _store: Store
    _server: Server
    _certificates: Mapping[str, Certificates]
    _threads: Threads
    _levels: Levels
    _followers: Sequence[Callable[[Config], None]] = ()         # what else takes it over, in a thread
    rounds: int = field(default=0, init=False)
    applied: list[str] = field(factory=list, init=False)        # by the last round,
    waiting: list[str] = field(factory=list, init=False)        # and what a restart is needed for
    problem: str = field(default="", init=False)                # why nothing could be taken over
    started: float = field(factory=time.time, init=False)

    def shown(self) -> list[str]:
        """What the last round has taken over, with its values, but for what may be a password."""
        found = [(name, option(name)) for name in self.applied]
        return list(hidden([f"{name}={each.show(self.config.values[name])}" for name, each in found if each], {}))

    async def reload(self) -> None:
        """Read the sources again, and the certificates in any case."""
        self.problem, self.applied, self.waiting = "", [], []
        try:
            wanted = await self._threads.run("files", self.config.again)
            differ = differing(self.config, wanted)
            config = joined(self.config, wanted)
            await self._take_certificates(config.settings("tls", Tls))
            for follow in self._followers:
                await self._threads.run("files", partial(follow, config))
            self._take({name.partition(".")[0] for name in differ if is_reloaded(name)}, config)
        except (Failure, ValueError, OSError) as error:
            self.problem = str(error)
            log.error("the configuration is not taken over: %s", error)
        else:
            self.applied = [name for name in differ if is_reloaded(name)]
            self.waiting = [name for name in differ if not is_reloaded(name)]
            self.config = config
            log.info("certificates read again%s%s", _listed("; taken over: ", self.applied),
                     _listed("; not before a restart: ", self.waiting))
        finally:
            self.rounds += 1

    async def _take_certificates(self, settings: Tls) -> None:
        for each in self._certificates.values():
            await self._threads.run("files", partial(each.follow, settings))

    def _take(self, sections: set[str], config: Config) -> None:
        if "log" in sections:
            logs.follow(config.settings("log", Log))
            self._levels.follow(config.settings("log", Log))
        trail = self._store.owned.find(Trail)
        if "audit" in sections and trail is not None:
            trail.kinds = config.settings("audit", store.audit.auditsettings.Settings).kinds
        if "store" in sections:
            self._store.follow(config.settings("store", store.settings.Settings))
        if "login" in sections:
            Authenticator.of(self._store).follow(config.settings("login", store.accounts.loginsettings.Settings))
            OpenLogins.of(self._store).look_at_all()
        if "sieve" in sections:
            Filters.of(self._store).follow(config.settings("sieve", SieveSettings))
        self._server.follow(config, sections)

    def tell(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        """For those who ask."""
        return {"values": {name: found.show(value) for name, value in self.config.values.items()
                           if (found := option(name)) is not None},
                "rounds": self.rounds, "applied": self.applied, "waiting": self.waiting, "problem": self.problem,
                "file": None if self.config.file is None else str(self.config.file.absolute()),
                "started": self.started}


def _listed(words: str, names: list[str]) -> str:
    return words + ", ".join(names) if names else ""
