"""All receivers of a server: what they want is written down for those who record, and each is sent what waits for it.

A receiver for which too much waits gets no more: `full` in the file of receivers, which every process looks at. When
half of it has left it gets events again, and one that says that some are missing (`vnd.onecopy.EventsLost`).
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
from store.events import receivers
from store.events.outboxtable import OutboxTable
from store.events.receivers import Receiver
from store.housekeeping.tasks import Task
from store.offload import Threads
from store.store import Store
from tools.cli.later import Later
from tools.cli.options import Config
from tools.outbox.destination import Destination
from tools.outbox.outboxsettings import Settings
from tools.outbox.sending import Sending

log = logging.getLogger(__name__)

BACKLOG_INTERVAL = 5.0      # seconds between two looks whether a receiver is full; all processes have heard by then

_MADE: Mapping[str, Callable[..., Destination]] = {
    "file": Later("tools.outbox.jsonfile:of_settings"), "unix": Later("tools.outbox.unixsocket:of_settings"),
    "https": Later("tools.outbox.webhook:of_settings"), "http": Later("tools.outbox.webhook:of_settings"),
    "amqp": Later("tools.outbox.broker:of_settings"), "amqps": Later("tools.outbox.broker:of_settings")}


def of_config(config: Config) -> dict[str, Settings]:
    """The receivers that are on."""
    found = {name: config.settings(f"outbox.{name}", Settings) for name in config.names("outbox")}
    return {name: settings for name, settings in found.items() if settings.to}


def outboxes(store: Store) -> dict[str, tuple[Env, OutboxTable]]:
    """Those of all environments that take changes, by their names."""
    found = {"mboxlist": (store.mailboxes.env, store.outbox)}
    return found | {name: (partition.env, partition.outbox) for name, partition in store.writable.items()}


@define(eq=False)
class Dispatch:
    """For the keeper. `made` makes a destination of settings, threads and the reactor."""

    store: Store
    receivers: Mapping[str, Settings]
    threads: Threads
    reactor: Any
    sendings: dict[str, Sending] = field(factory=dict, init=False)
    _full: set[str] = field(factory=set, init=False)
    _gaps: dict[str, float] = field(factory=dict, init=False)       # when those that are full no more are told so

    def start(self) -> None:
        """Write down who wants what, and begin to send. On a full disk what was wanted before holds."""
        try:
            before = receivers.read(self.store.root)
            self._full = {each.name for each in before.all if each.full} & self.receivers.keys()
            if self._wanted() != list(before.all):
                self._write()
        except OSError as error:
            log.error("who wants which events cannot be written down: %s", error)
        for name, settings in self.receivers.items():
            destination = _MADE[settings.kind](settings, self.threads, self.reactor)
            self.sendings[name] = Sending(name, settings, destination, lambda: outboxes(self.store), self.threads,
                                          self.reactor)
            self.sendings[name].start()

    def stop(self) -> None:
        """Send no more."""
        for each in self.sendings.values():
            each.stop()

    def status(self) -> list[dict[str, Any]]:
        """How each receiver stands."""
        return [{**each.status(), "full": name in self._full} for name, each in self.sendings.items()]

    def task(self) -> Task:
        """See to it that no receiver has too much waiting."""
        return Task("outbox", BACKLOG_INTERVAL, lambda store: tuple(self.sendings), lambda store, name: self.look(name))

    def look(self, name: str) -> int:
        """Whether the receiver is full, and was. In a thread."""
        each = self.sendings[name]
        if each.waiting > each.settings.backlog and name not in self._full:
            log.error("outbox %s: %d events wait, and more are not kept until half of them have left", name,
                      each.waiting)
            self._full.add(name)
            self._write()
        elif name in self._full and each.waiting <= each.settings.backlog // 2:
            self._full.discard(name)
            self._write()
            self._gaps[name] = time.monotonic() + BACKLOG_INTERVAL
        elif name in self._gaps and time.monotonic() >= self._gaps[name]:
            transact(self.store.mailboxes.env, lambda txn: self.store.recorder.write_gap(
                self.store.outbox, "more waited than is kept", txn, [name]))
            del self._gaps[name]
            log.warning("outbox %s: events are kept again; it is told that some are missing", name)
        return 1

    def _wanted(self) -> list[Receiver]:
        return [settings.receiver(name, full=name in self._full) for name, settings in self.receivers.items()]

    def _write(self) -> None:
        receivers.write(self.store.root, self._wanted())
        self.store.recorder.look()

