"""Whether the server is well, part by part, for load balancers, monitoring and the watchdog of systemd.

`ok`: as it should be. `degraded`: mail goes on, and an administrator should look. `failing`: clients cannot be served.
It waits for processes and for disks: not for an event loop.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, define, field, frozen

from mboxlist.engine import transact
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapsettings import Settings as DirectorySettings
from store.errors import StoreError
from store.net import controlchannel
from store.net.controlchannel import Unanswered
from store.partition.marks import absent
from store.standby.source import instep
from store.standby.source.instep import Step
from store.store import Store
from store.values import readable
from tools.cli.options import Config

OK, DEGRADED, FAILING = "ok", "degraded", "failing"
_ORDER = (OK, DEGRADED, FAILING)
ANSWER_TIME = 5.0           # seconds that a process may take to answer
LATE = 600.0                # seconds without a new round after which a task of housekeeping that runs is late
FRESH = 2.0                 # seconds for which a look holds, however many ask

_ERRORS = (StoreError, OSError, transact.Failure)


@frozen
class Part:
    """A part of the server, and how it is."""

    part: str
    state: str = OK
    reason: str = ""


def overall(parts: list[Part]) -> str:
    """The worst of them."""
    return max((each.state for each in parts), key=_ORDER.index, default=OK)


@define(eq=False)
class Health:
    """Looks at the parts of a server. `expected`: the names of its processes."""

    _store: Store
    _config: Config
    _expected: Sequence[str]
    _seen: "tuple[float, list[Part]] | None" = field(default=None, init=False)

    def look(self) -> list[Part]:
        """How everything is now, or was FRESH seconds ago. For a thread."""
        seen = self._seen
        if seen is None or time.monotonic() - seen[0] > FRESH:
            seen = self._seen = time.monotonic(), [*self._databases(), *self._partitions(), *self._processes(),
                                                   *self._standbys(), *self._directory()]
        return seen[1]

    def _databases(self) -> Iterator[Part]:
        """Whether the environments can be read."""
        store = self._store
        try:
            next(iter(store.mailboxes.pending.all(0)), None)
            yield Part("databases", DEGRADED, "nothing can be written to the volume of the store: mail can only be read"
                       ) if store.read_only else Part("databases")
        except _ERRORS as error:
            yield Part("databases", FAILING, f"the list of mailboxes cannot be read: {error}")

    def _partitions(self) -> Iterator[Part]:
        store = self._store
        for name, host in absent(store.root).items():
            yield Part(f"partition {name}", DEGRADED, f"it is only on {host}: its mailboxes cannot be used")
        for name, partition in sorted(store.partitions.items()):
            part = f"partition {name}"
            try:
                partition.env.statistics()
                free, used = partition.files.volume()
            except _ERRORS as error:
                yield Part(part, FAILING, f"it cannot be read: {error}")
                continue
            settings = store.settings
            if name not in store.writable:
                yield Part(part, DEGRADED, "nothing can be written to its volume: mail there can only be read")
            elif free < settings.disk_reserve or used * 100 >= (used + free) * settings.disk_threshold > 0:
                yield Part(part, DEGRADED, f"its volume is full ({readable(free)} are free): new mail is refused")
            else:
                yield Part(part)

    def _processes(self) -> Iterator[Part]:
        """Whether each process answers, and how housekeeping is, which they tell."""
        told: dict[str, Mapping[str, Any]] = {}
        for name in self._expected:
            try:
                answer = controlchannel.ask(self._store.root / "run", name, "stats", timeout=ANSWER_TIME)
            except (Unanswered, OSError) as error:
                yield Part(f"process {name}", FAILING, str(error))
                continue
            yield Part(f"process {name}") if answer else Part(f"process {name}", FAILING, "it does not run")
            told |= {name: answer} if answer else {}
        yield _housekeeping(told, time.time())

    def _standbys(self) -> Iterator[Part]:
        """Those that answers wait for."""
        found = instep.seen(self._store.root)
        why = ("it is not in step: what it has is not changed until it is" if found.get("refuse") else
               "it is not in step: answers do not wait for it")
        for host, each in sorted(found.get("standbys", {}).items()):
            if each["waited"]:
                yield Part(f"standby {host}", *(() if each["step"] == Step.IN_STEP.value else (DEGRADED, why)))

    def _directory(self) -> Iterator[Part]:
        settings = self._config.settings("directory", DirectorySettings)
        if not settings.uris:
            return
        try:
            tried = Servers(settings).try_each(self._config.settings("directory", MapSettings).base)
        except (OSError, ValueError) as error:
            tried = [("directory", 0.0, str(error))]
        wrong = [f"{uri}: {why}" for uri, _, why in tried if why]
        state = OK if not wrong else FAILING if len(wrong) == len(tried) else DEGRADED
        yield Part("directory", state, "; ".join(wrong))


def _housekeeping(told: Mapping[str, Mapping[str, Any]], now: float) -> Part:
    wrong = []
    for name, answer in told.items():
        for task in answer["tasks"]:
            if task["bad"]:
                wrong.append(f"{name}: {task['name']}: {task['bad']} items fail: see the log")
            elif task["running"] and now - task["began"] > LATE:
                wrong.append(f"{name}: {task['name']} has been at work for {now - task['began']:.0f} s")
    return Part("housekeeping", DEGRADED if wrong else OK, "; ".join(wrong))


def as_json(parts: list[Part]) -> dict[str, Any]:
    """For programs."""
    return {"state": overall(parts), "parts": [asdict(each) for each in parts]}
