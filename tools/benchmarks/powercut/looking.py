"""What clients see of the users of a store."""

import time
from collections.abc import Iterable

from attrs import define, field

from mboxlist import privatefiles
from tools.benchmarks.powercut.ledger import Known, Mailbox, State, Who
from tools.benchmarks.powercut.machine import MOST_SAID, Machine, Site
from tools.benchmarks.powercut.mailclients import Imap, Message, RefusedError

BACKGROUND = 30.0               # seconds in which what a start does in the background is done
LOOK = 0.5


@define
class Eyes:
    """Sees each user once."""

    sites: dict[str, Site]
    _seen: dict[Who, tuple[State | None, dict[int, Message]]] = field(factory=dict)

    def look(self, who: Who) -> tuple[State | None, dict[int, Message]]:
        """A user's mailboxes, and the messages of INBOX; None without a login, and when a mailbox cannot be read. A
        store without a server has none."""
        if who not in self._seen:
            store, user = who
            self._seen[who] = _look(self.sites[store], user) if store in self.sites else (None, {})
        return self._seen[who]


def _look(site: Site, user: str) -> tuple[State | None, dict[int, Message]]:
    try:
        imap = Imap(site.ports["imap"], user)
    except RefusedError:
        return None, {}
    try:
        state: dict[str, Mailbox] = {}
        inbox: dict[int, Message] = {}
        for name in imap.names():
            uidvalidity = imap.examine(name)
            messages = dict(imap.messages())
            state[name] = Mailbox(uidvalidity, {uid: Known.of(message) for uid, message in messages.items()})
            if name == "INBOX":
                inbox = messages
        return state, inbox
    except RefusedError:
        return None, {}
    finally:
        imap.close()


def check(machine: Machine, sites: Iterable[Site]) -> list[str]:
    """What `onecopy check` finds, once what the start mends in the background is done."""
    wrong = []
    for site in sites:
        deadline = time.monotonic() + BACKGROUND
        while True:
            begun = machine.log.stat().st_size
            if not machine.run(site, "check"):
                break
            if time.monotonic() < deadline:
                time.sleep(LOOK)
                continue
            said = privatefiles.read(machine.log)[begun:].decode(errors="replace")
            wrong.append(f"check of {site.name}: {said.strip()[:MOST_SAID]}")
            break
    return wrong
