"""Who wants which events: decided before anything is written.

`<root>/receivers` has the filters of all receivers, written by the server from its configuration, so that every process
in the store, a command too, records the same. Where to send is not in it: who sends knows that.
"""

import json
import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from store.events.eventvalues import (
    APPEND,
    CLEAR,
    EVENT,
    GAP,
    MAIL,
    NEW,
    OF_QUOTA,
    OF_RECORDS,
    OF_THE_LIST,
    READ,
    SET,
    TRASH,
    TYPES,
    Event,
)
from store.filelock import in_turn

FILE = "receivers"
LOCK = "receivers.lock"
NAME = re.compile("[a-z][a-z0-9]{0,31}")


def _words(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, words)) or "(?s:.*)", re.IGNORECASE)


@frozen(slots=False)
class Receiver:
    """A receiver's filter. Each is a list of words, in which * and ? stand for others; empty: everything. `types` are
    names of events, `users` user ids, `domains` those of users as they are written in them ("": the default one),
    `mailboxes` names like user/alice/INBOX. `full`: so much waits for it that no more is written. `missed`: why it is
    still to be told that events are missing. `kind`: what it gets, events or mail."""

    name: str
    types: tuple[str, ...] = field(default=(), converter=_words)
    users: tuple[str, ...] = field(default=(), converter=_words)
    domains: tuple[str, ...] = field(default=(), converter=_words)
    mailboxes: tuple[str, ...] = field(default=(), converter=_words)
    full: bool = False
    missed: str = ""
    kind: str = EVENT

    @cached_property
    def waiting(self) -> bytes:
        """What the keys of all that waits for it in the outbox begin with."""
        return b"w%b\0" % self.name.encode()

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The types of events that it gets."""
        if self.kind != EVENT:
            return frozenset()
        pattern = _pattern(self.types)
        return frozenset(each for each in TYPES if pattern.fullmatch(each)) | {GAP}

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
        return _pattern(self.users), _pattern(self.domains), _pattern(self.mailboxes)

    def concerns(self, owner: str, name: str | None) -> bool:
        """Whether it wants what happens to that user and, if there is one, that mailbox."""
        users, domains, mailboxes = self._patterns
        return bool((not self.users or users.fullmatch(owner))
                    and (not self.domains or domains.fullmatch(owner.partition("@")[2]))
                    and (not self.mailboxes or name is not None and mailboxes.fullmatch(name)))

    def wants(self, event: Event) -> bool:
        """Whether it gets that event. A mailbox that is renamed concerns who wants either name."""
        return event.type in self.wanted and any(
            self.concerns(event.owner if name is None else name.owner, None if name is None else str(name))
            for name in {event.name, event.former or event.name})


@frozen
class Receivers:
    """All of them, and which want events of records, of the list, and of quota; whether any wants `arrivals` of
    messages, and `flags`; whether any is `full`."""

    all: tuple[Receiver, ...] = ()
    of_records: tuple[Receiver, ...] = ()
    of_the_list: tuple[Receiver, ...] = ()
    of_quota: tuple[Receiver, ...] = ()
    relay: Receiver | None = None           # which takes mail
    arrivals: bool = False
    flags: bool = False
    full: bool = False

    @classmethod
    def of(cls, receivers: Iterable[Receiver]) -> "Receivers":
        """From each one's filter."""
        every = tuple(receivers)
        of_records, of_the_list, of_quota = (tuple(each for each in every if each.wanted.intersection(types))
                                             for types in (OF_RECORDS, OF_THE_LIST, OF_QUOTA))
        relay = next((each for each in every if each.kind == MAIL), None)
        arrivals, flags = (any(each.wanted.intersection(types) for each in of_records)
                           for types in ((NEW, APPEND), (READ, TRASH, SET, CLEAR)))
        return cls(every, of_records, of_the_list, of_quota, relay, arrivals, flags, any(each.full for each in every))


def seen(root: Path) -> tuple[int, ...]:
    """What tells one state of the file from another. Raises OSError."""
    try:
        status = (root / FILE).stat()
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_ino, status.st_size


def read(root: Path) -> Receivers:
    """What the file says; none where there is no file. Raises OSError when it cannot be read."""
    try:
        found: list[dict[str, Any]] = json.loads(privatefiles.read_text(root / FILE))
        return Receivers.of(Receiver(**each) for each in found)
    except FileNotFoundError:
        return Receivers()
    except (ValueError, TypeError) as error:
        raise OSError(f"{root / FILE} cannot be read: {error}") from error


def change(root: Path, work: Callable[[tuple[Receiver, ...]], Iterable[Receiver]]) -> None:
    """Have those from now on that `work` makes of those that there are, of none where the file is damaged; on disk
    when this returns. Processes take turns. Raises OSError, also when the disk does not give the file just now."""
    with in_turn(root / "run" / LOCK):
        try:
            before = read(root).all
        except OSError as error:
            if error.errno is not None:         # else the file says nothing that can be understood
                raise
            before = ()
        after = tuple(work(before))
        if after != before or not (root / FILE).exists():
            replace_file(root / FILE, json.dumps([asdict(each) for each in after]).encode())


def note_missed(root: Path, why: str) -> None:
    """What waited is lost, or is of another time: each receiver is told that events are missing, by the server once it
    runs. Raises OSError."""
    if (root / FILE).exists():
        change(root, lambda before: [evolve(each, missed=each.missed or why) for each in before])
