"""Who wants which events: decided before anything is written.

`<root>/receivers` has the filters of all receivers, written by the server from its configuration, so that every process
in the store, a command too, records the same. Where to send is not in it: who sends knows that.
"""

import json
import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from store.events.eventvalues import GAP, OF_RECORDS, OF_THE_LIST, TYPES, Event

FILE = "receivers"
NAME = re.compile("[a-z][a-z0-9]{0,31}")


def _words(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, words)) or "(?s:.*)", re.IGNORECASE)


@frozen(slots=False)
class Receiver:
    """A receiver's filter. Each is a list of words, in which * and ? stand for others; empty: everything. `types` are
    names of events, `users` user ids, `domains` those of users as they are written in them ("": the default one),
    `mailboxes` names like user/alice/INBOX. `full`: so much waits for it that no more is written."""

    name: str
    types: tuple[str, ...] = field(default=(), converter=_words)
    users: tuple[str, ...] = field(default=(), converter=_words)
    domains: tuple[str, ...] = field(default=(), converter=_words)
    mailboxes: tuple[str, ...] = field(default=(), converter=_words)
    full: bool = False

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The types of events that it gets."""
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
    """All of them, and which want events of records, and of the list."""

    all: tuple[Receiver, ...] = ()
    of_records: tuple[Receiver, ...] = ()
    of_the_list: tuple[Receiver, ...] = ()

    @classmethod
    def of(cls, receivers: Iterable[Receiver]) -> "Receivers":
        """From each one's filter."""
        every = tuple(receivers)
        return cls(every, tuple(each for each in every if each.wanted.intersection(OF_RECORDS)),
                   tuple(each for each in every if each.wanted.intersection(OF_THE_LIST)))


def read(root: Path) -> Receivers:
    """What the file says; none where there is no file, or it cannot be read."""
    try:
        found: list[dict[str, Any]] = json.loads(privatefiles.read_text(root / FILE))
        return Receivers.of(Receiver(**each) for each in found)
    except FileNotFoundError:
        return Receivers()
    except (ValueError, TypeError) as error:
        raise OSError(f"{root / FILE} cannot be read: {error}") from error


def write(root: Path, receivers: Iterable[Receiver]) -> None:
    """Have these from now on; on disk when this returns."""
    replace_file(root / FILE, json.dumps([asdict(each) for each in receivers]).encode())
