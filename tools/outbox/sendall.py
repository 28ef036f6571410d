"""All receivers of a server: what they want is written down for those who record, and each is sent what waits for it.

A receiver for which too much waits gets no more: `full` in the file of receivers, which every process looks at. When
half of it has left it gets events again, and one that says that some are missing (`vnd.onecopy.EventsLost`): that it is
still to be told stands in the file (`missed`), so a stop in between changes nothing.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, evolve, field

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
from store.events import receivers
from store.events.eventvalues import MAIL
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
    "amqp": Later("tools.outbox.broker:of_settings"), "amqps": Later("tools.outbox.broker:of_settings"),
    "smtp": Later("tools.outbox.mailrelay:of_settings"), "smtps": Later("tools.outbox.mailrelay:of_settings")}


def of_config(config: Config) -> dict[str, Settings]:
    """The receivers that are on."""
    found = {name: config.settings(f"outbox.{name}", Settings) for name in config.names("outbox")}
    return {name: evolve(settings, batch=1) if settings.is_relay else settings
            for name, settings in found.items() if settings.to}


def outboxes(store: Store) -> dict[str, tuple[Env, OutboxTable]]:
    """Those of all environments that take changes, by their names."""
    found = {"mboxlist": (store.mailboxes.env, store.outbox)}
    return found | {name: (partition.env, partition.outbox) for name, partition in store.writable.items()}


@define(eq=False)
class Dispatch:
    """For the keeper. `threads`: where rows are read and taken away."""

    store: Store
    receivers: Mapping[str, Settings]
    threads: Threads
    reactor: Any
    sendings: dict[str, Sending] = field(factory=dict, init=False)
    _heard: dict[str, float] = field(factory=dict, init=False)      # when all processes have heard who is full no more

    def start(self) -> None:
        """Write down who wants what, and begin to send. On a full disk what was wanted before holds."""
        try:
            self._change()
        except OSError as error:
            log.error("who wants which events cannot be written down: %s", error)
        for name, settings in self.receivers.items():
            more = (self.store.root,) if settings.is_relay else ()
            destination = _MADE[settings.kind](settings, self.reactor, *more)
            self.sendings[name] = Sending(name, settings, destination, lambda: outboxes(self.store), self.threads,
                                          self.reactor)
            self.sendings[name].start()

    def stop(self) -> None:
        """Send no more."""
        for each in self.sendings.values():
            each.stop()

    def status(self) -> list[dict[str, Any]]:
        """How each receiver stands."""
        full = {name for name, noted in self._noted().items() if noted.full}
        return [{**each.status(), "full": name in full} for name, each in self.sendings.items()]

    def task(self) -> Task:
        """See to it that no receiver has too much waiting."""
        return Task("outbox", BACKLOG_INTERVAL, lambda store: tuple(self.sendings), lambda store, name: self.look(name))

    def look(self, name: str) -> int:
        """Whether the receiver is full, and was, or is to be told that events are missing. In a thread."""
        each, recorder = self.sendings[name], self.store.recorder
        recorder.look()
        noted = self._noted().get(name)
        if noted is None:
            self._change()              # it could not be written down at the start
        elif not noted.full and each.waiting > each.settings.backlog:
            log.error("outbox %s: %d %s wait, and more are not kept until half of them have left", name, each.waiting,
                      each.settings.gets)
            self._change(name, full=True)
        elif noted.full and each.waiting <= each.settings.backlog // 2:
            self._heard[name] = time.monotonic() + BACKLOG_INTERVAL
            self._change(name, full=False, missed="more waited than is kept")
        elif noted.missed and noted.kind == MAIL:
            log.error("outbox %s: mail that waited may be lost: %s", name, noted.missed)
            self._change(name, missed="")
        elif noted.missed and not noted.full and time.monotonic() >= self._heard.get(name, 0.0):
            transact(self.store.mailboxes.env, lambda txn: recorder.write_gap(
                self.store.outbox, noted.missed, txn, [name]))
            self.store.mailboxes.env.flush()
            self._change(name, missed="")
            log.warning("outbox %s: it is told that events are missing: %s", name, noted.missed)
        return 1

    def _noted(self) -> dict[str, Receiver]:
        """What is written down."""
        return {each.name: each for each in self.store.recorder.receivers.all}

    def _change(self, name: str = "", **how: Any) -> None:
        """Write down who wants what, and of that receiver this too."""
        def work(before: tuple[Receiver, ...]) -> list[Receiver]:
            known = {each.name: each for each in before}
            wanted = [settings.receiver(each) for each, settings in self.receivers.items()]
            kept = [evolve(each, full=known[each.name].full, missed=known[each.name].missed)
                    if each.name in known else each for each in wanted]
            return [evolve(each, **how) if each.name == name else each for each in kept]

        receivers.change(self.store.root, work)
        self.store.recorder.look()
