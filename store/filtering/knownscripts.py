"""Which script runs for mail to a mailbox: compiled once, and found in one look until anything in the list changes.

Active scripts, settings of users and of domains are all rows of the list's environment, whose log grows with each
change by any process. What was looked up holds as long as that log ends where it ended before the look.
"""

import logging
from collections import OrderedDict
from threading import Lock

from attrs import define, field, frozen

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName
from store.filtering import userscripts
from store.filtering.sievesettings import Settings
from store.filtering.usersettings import settings_of
from store.metrics.scriptcounters import INVALID, ScriptCounters
from store.sieve.scriptlimits import DEFAULT
from store.sieve.scriptproblems import ScriptProblem
from store.sieve.scriptrun import Tree
from store.store import Store

log = logging.getLogger(__name__)

REMEMBERED = 2000               # compiled scripts of users,
REMEMBERED_NODES = 300_000      # and their commands and tests
MAILBOXES = 50_000              # for which it is remembered what runs


class TooMuch(Exception):  # noqa: N818 - not an error
    """It takes longer than the event loop has time: once more, in a thread."""


@frozen
class OwnScript:
    """What runs for the owner of a mailbox, beside the site's scripts. `stored`: whether there is an active script,
    which may be the directory's; `tree`: that, compiled, None if it cannot be; `settings`: for all that runs."""

    settings: Settings
    stored: bool = False
    tree: Tree | None = None


@frozen(eq=False)
class Known:
    """What was looked up at that `version` of the list with these settings: by the mailbox that mail is for, and its
    owner, who may have been another one when somebody looked for it."""

    version: tuple[int, int]
    settings: Settings
    scripts: dict[tuple[MailboxId, str], OwnScript] = field(factory=dict)


NOTHING = Known((-1, -1), Settings())


@define(eq=False)
class KnownScripts:
    """Those of one store."""

    store: Store
    _counted: ScriptCounters
    # By the text of the script, and whether it is the directory's.
    _trees: OrderedDict[tuple[bool, bytes], Tree | None] = field(factory=OrderedDict, init=False)
    _nodes: int = field(default=0, init=False)          # of all in `_trees`
    _lock: Lock = field(factory=Lock, init=False)       # of both: threads run scripts, too
    _known: Known = field(default=NOTHING, init=False)

    def at(self, version: tuple[int, int], settings: Settings) -> Known:
        """What is known at that version of the list, which has been asked for just now, with these settings of the
        configuration."""
        known = self._known
        if known.version != version or known.settings is not settings or len(known.scripts) > MAILBOXES:
            self._known = known = Known(version, settings)
        return known

    def of(self, entry: MailboxEntry, known: Known, octets: int = DEFAULT.script) -> OwnScript:
        """What runs for mail to that mailbox, which has an owner. Raises TooMuch when a script of more octets had to be
        compiled."""
        user = entry.name.owner
        found = known.scripts.get((entry.id, user))
        if found is None:
            mailboxes = self.store.mailboxes
            settings = settings_of(self.store, known.settings, user)
            inbox = entry if entry.name.path == INBOX else mailboxes.find(MailboxName(user, INBOX))
            stored = None
            if inbox is not None and settings.enabled:
                stored = userscripts.active(mailboxes, inbox, own=settings.own)
            found = OwnScript(settings, stored is not None, None if stored is None else self.tree(
                user, *stored, octets))
            known.scripts[entry.id, user] = found
        return found

    def tree(self, user: str, number: int, stored: bytes, octets: int = DEFAULT.script) -> Tree | None:
        """The compiled script, one for all users with the same text; None for one that cannot be compiled any more,
        which then does nothing. Raises TooMuch when it has more octets and is not compiled yet."""
        key = number == userscripts.OF_DIRECTORY, stored.partition(b"\n")[2]
        with self._lock:
            if key in self._trees:
                self._trees.move_to_end(key)
                return self._trees[key]
        if len(stored) > octets:
            raise TooMuch
        script = userscripts.UserScript.from_bytes(number, stored)
        try:
            tree: Tree | None = userscripts.compiled(script)
        except (ScriptProblem, userscripts.ScriptRefused) as problem:
            log.error("%s cannot be run, mail is kept: %s", script.of(user), problem)
            self._counted.failures[INVALID] += 1
            tree = None
        with self._lock:
            self._nodes += _weight(tree) - _weight(self._trees.pop(key, None))
            self._trees[key] = tree
            while len(self._trees) > REMEMBERED or self._nodes > REMEMBERED_NODES and len(self._trees) > 1:
                self._nodes -= _weight(self._trees.popitem(last=False)[1])
                self._known = NOTHING       # else it would stay in memory
        return tree


def _weight(tree: Tree | None) -> int:
    return tree.count if tree is not None else 0
