"""A machine asks those that have followed it whether one of them has been promoted: then it serves no more
(`store.standby.succession`). It asks before it serves, and while it does, unless they follow it at that moment.

The supervisor asks first, in its own process, where nothing serves yet. Then a thread of the keeper does.
"""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import define, evolve, field

from store.errors import Problem, StoreError
from store.standby import succession
from store.standby.succession import Other
from store.store import Store
from store.usermove.messageformat import BadMessage
from tools.cli.options import Config
from tools.exits import Failure
from tools.server.control.backendlink import Listener, Place
from tools.serversettings import Exchange

log = logging.getLogger(__name__)

ASK_SECONDS = 5.0           # between two questions while this machine serves. Who follows says something each second
PATIENCE = 5.0              # seconds in which a machine is to answer


def require_first(config: Config) -> None:
    """Before anything serves. Raises Failure when another machine serves this store, or was promoted besides, or may
    serve and `exchange.start_alone` is not set."""
    _require(config, succession.require_first)


def require_again(config: Config) -> None:
    """Before processes serve in the place of others that have died: who has served goes on beside another one that was
    promoted besides. Raises Failure as `require_first` does otherwise."""
    _require(config, succession.require_not_superseded)


def _require(config: Config, look: Callable[[Path], None]) -> None:
    try:
        known = succession.read(config.root)
        succession.require_not_superseded(config.root)
        unknown = ask(config, {*known.followers, *configured(config.settings("exchange", Exchange))}, known.identity)
        look(config.root)
        if unknown := {host: why for host, why in unknown.items() if host in known.followers}:
            _start_alone(config, unknown)
    except StoreError as error:
        raise Failure(str(error), 1) from error


def require(config: Config) -> None:
    """As far as it is on record. Raises Failure."""
    try:
        succession.require_not_superseded(config.root)
    except StoreError as error:
        raise Failure(str(error), 1) from error


def configured(settings: Exchange) -> set[str]:
    """The machines that may follow this one: each may have been promoted, also when this store, which may come from a
    backup, does not know that it has followed."""
    return {each.partition("=")[0].strip().lower() for each in settings.standbys}


def _start_alone(config: Config, unknown: dict[str, str]) -> None:
    for host, why in unknown.items():
        log.warning("nobody knows whether %s has been promoted: %s", host, why)
    if not config.settings("exchange", Exchange).start_alone:
        host = next(iter(unknown))
        raise StoreError(Problem.UNAVAILABLE, f"{host} has followed this machine, may have been promoted, and cannot "
                         f"be asked: {unknown[host]}. exchange.start_alone = true lets this machine serve all the "
                         f"same; `onecopy standby forget {host}` says that {host} will never serve")


def ask(config: Config, hosts: Collection[str], identity: str, place: Place | None = None) -> dict[str, str]:
    """Ask these, who have had the store of that identity, whether they have been promoted; one that has is on record
    then. Those that do not say, and why. Raises StoreError."""
    if not hosts or not identity:
        return {}
    try:
        place = place or Place.of(config, str(config.values["store.host"]))
    except Failure as error:
        return dict.fromkeys(hosts, str(error))

    def heard(host: str) -> str:
        try:
            other = _said_by(place, host, identity)
        except StoreError as error:
            return str(error)
        if other is not None:
            succession.note_other(config.root, other.serves or host, other)
        return ""

    with ThreadPoolExecutor(len(hosts)) as pool:        # one that does not answer keeps no other waiting
        return {host: why for host, why in zip(hosts, pool.map(heard, hosts), strict=True) if why}


def _said_by(place: Place, host: str, identity: str) -> Other | None:
    """What that machine says of its promotions; None where it has another store. Raises StoreError UNAVAILABLE."""
    with contextlib.closing(evolve(place, greeting_time=PATIENCE).connect(host)) as peer:
        peer.wire.limit(PATIENCE)
        said = peer.ask_for({"op": "copy succession"})
        try:
            return Other.of(said) if said.text("identity") == identity else None
        except BadMessage as error:
            raise peer.unclear(str(error)) from error


@define(eq=False)
class Watch:
    """Asks again and again, in a thread of its own, those that have followed and do not at that moment. `fenced` is
    called, once, when one of them has been promoted."""

    config: Config
    identity: str                               # of the store's list of mailboxes
    following: Callable[[], Collection[str]]
    fenced: Callable[[], None]
    place: Callable[[], Place | None] = lambda: None        # as the last reload has it
    _stop: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="succession", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()

    def _run(self) -> None:
        contender, wait = "", 0.0
        while not self._stop.wait(wait):
            wait = ASK_SECONDS
            try:
                known = succession.read(self.config.root)
                place = self.place()
                settings = self.config.settings("exchange", Exchange) if place is None else place.settings
                others = {*known.followers, *configured(settings), known.before, known.contender} - {""}
                ask(self.config, others - set(self.following()), self.identity, place)  # `before` may serve again,
                succession.require_not_superseded(self.config.root)                     # after `standby forget`
                before, contender = contender, succession.read(self.config.root).contender
                if contender and contender != before:
                    log.critical("two machines serve one store: %s", succession.contested("this machine", contender))
            except StoreError as error:
                if error.problem is not Problem.STORE_IN_USE:
                    log.error("nobody knows whether a standby has been promoted: %s", error)
                    continue
                log.critical("this machine serves no more: %s", error)
                self.fenced()
                return
            except OSError as error:
                log.error("nobody knows whether a standby has been promoted: %s", error)


def watch(config: Config, store: Store, listener: Listener | None, supervisor: int) -> Watch | None:
    """For the process that keeps the store for all: nobody follows, or none may, where there is no watch. When a
    standby has been promoted the supervisor of that number stops the server, and says why."""
    if store.read_only or not (config.settings("exchange", Exchange).standbys or succession.read(store.root).followers):
        return None
    following, place = (set, lambda: None) if listener is None else (
        lambda: listener.callers(ASK_SECONDS), lambda: listener.place)
    return Watch(config, store.mailboxes.identity, following, lambda: os.kill(supervisor, signal.SIGTERM), place)
