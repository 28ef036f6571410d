"""LIST, STATUS, MYRIGHTS and GETQUOTAROOT in snapshots (`imap.snapshotnames`).

"#" breaks out (RFC 3501 §6.3.8, RFC 9051 §6.3.9): a pattern that begins with #snapshots is taken as it is, whatever the
reference. Only such patterns, and references that lead there, are looked for in snapshots. So a client that lists
everything does not find all its mailboxes again for each snapshot.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

from attrs import define, field

from imap.session import Session
from imap.snapshotnames import PREFIX, RIGHTS, ROOT, Seen, Visit, is_there, shown
from imap.states import Reply
from imap.verbs import statusfigures
from imap.verbs.listednames import children, for_levels, joined, matching, parents
from imap.wire import responses
from imap.wire.accesscontrol import MyRights, format_myrights
from imap.wire.listing import List, ListOption, Status, StatusItem
from imap.wire.quotaroots import GetQuotaRoot, format_quotaroot
from mboxlist.names import SEPARATOR
from store.errors import Problem, StoreError
from store.progress import Progress
from store.snapshots.snapshotreader import SnapshotReader
from store.snapshots.taking import Snapshot

log = logging.getLogger(__name__)


async def status(session: Session, command: Status) -> Reply:
    """The figures that a mailbox had."""
    if StatusItem.HIGHESTMODSEQ in command.items:
        session.enable_condstore()
    session.stream.write(await session.snapshots.look(
        command.mailbox, "r", lambda snapshot, seen: _status(session, snapshot, seen, command.items)))
    return Reply("STATUS completed")


async def my_rights(session: Session, command: MyRights) -> Reply:
    """The user's rights there: to look up and to read if it had these, and nothing else."""
    seen = await session.snapshots.look(command.mailbox, "l", lambda snapshot, seen: seen)
    session.stream.write(format_myrights(seen.entry.name.to_client(session.user), RIGHTS if seen.readable else "l",
                                         utf8=session.utf8))
    return Reply("MYRIGHTS completed")


async def get_quota_root(session: Session, command: GetQuotaRoot) -> Reply:
    """No quota root: what is only in a snapshot is charged to nobody."""
    seen = await session.snapshots.look(command.mailbox, "r", lambda snapshot, seen: seen)
    session.stream.write(format_quotaroot(seen.entry.name.to_client(session.user), [], utf8=session.utf8))
    return Reply("GETQUOTAROOT completed")


async def list_snapshots(session: Session, command: List) -> None:
    """Write the names in snapshots that match, if any are asked for."""
    patterns = _patterns(command)
    never = {ListOption.SUBSCRIBED, ListOption.SPECIAL_USE}
    if not patterns or not session.snapshots.granted or never & command.select:
        return                      # nobody is subscribed there, and no mailbox there has a special use
    progress = session.progress()

    def work() -> list[bytes]:
        return joined(_Names(session, command, patterns, progress).lines(), progress)

    for piece in await session.snapshots.run(work, progress):
        session.stream.write(piece)
        await session.stream.drain(session.settings.command_time)


def _patterns(command: List) -> list[str]:
    found = []
    for pattern in filter(None, command.patterns):
        pattern = pattern if is_there(pattern) else command.reference + pattern
        if pattern.startswith(ROOT[0]):
            found.append(pattern)
    return found


@define
class _Names:
    """The names in snapshots, as one LIST command looks at them. For a thread."""

    session: Session
    command: List
    patterns: list[str]
    progress: Progress
    _accepts: Callable[[str], bool] = field(init=False)
    _levels: Callable[[str], bool] = field(init=False)      # names that are no mailboxes

    def __attrs_post_init__(self) -> None:
        self._accepts = matching("", self.patterns)
        self._levels = matching("", for_levels(self.command, self.patterns))

    def lines(self) -> Iterator[bytes]:
        """The LIST responses, the oldest snapshot first. Raises StoreError, Abandoned."""
        snapshots = self.session.snapshots.all()
        if self._levels(ROOT):
            yield self._level(ROOT, bool(snapshots))
        for snapshot in snapshots:
            self.progress.step(0)
            level = PREFIX + shown(snapshot)
            if self._levels(level):
                yield self._level(level, True)
            if any(_goes_below(pattern, level + SEPARATOR) for pattern in self.patterns):
                yield from self._in_snapshot(snapshot)

    def _in_snapshot(self, snapshot: Snapshot) -> Iterable[bytes]:
        try:
            return self.session.snapshots.visit(snapshot.name, lambda visit: list(self._below(visit)))
        except StoreError as error:
            if error.problem is Problem.NO_MAILBOX:         # it has just been removed
                return ()
            raise

    def _below(self, visit: Visit) -> Iterator[bytes]:
        every = {seen.entry.name.path: seen for seen in visit.mailboxes()}
        above = {name for name in parents(every) if len(name) > len(visit.level)}
        for name in sorted({*every, *above}):
            seen = every.get(name)
            if seen is not None and self._accepts(name):
                yield self._mailbox(visit, seen, name in above)
            elif seen is None and self._levels(name):
                yield self._level(name, True)
            self.progress.step(0)

    def _level(self, name: str, has_children: bool) -> bytes:
        kind = b"\\NonExistent" if self.command.extended else b"\\Noselect"
        return responses.listed([kind, children(has_children)], name, utf8=self.session.utf8)

    def _mailbox(self, visit: Visit, seen: Seen, has_children: bool) -> bytes:
        name, readable, after = seen.entry.name.path, seen.readable, b""
        if ListOption.STATUS in self.command.give and readable:
            try:
                after += _status(self.session, visit.snapshot, seen, self.command.status)
            except StoreError as error:                     # then it is left out (RFC 5819 §2)
                log.log(logging.DEBUG if error.problem is Problem.NO_MAILBOX else logging.WARNING,
                        "%s: no STATUS of mailbox %d in a snapshot: %s", self.session.stream.id, -seen.entry.id, error)
        if ListOption.MYRIGHTS in self.command.give:
            after += format_myrights(name, RIGHTS if readable else "l", utf8=self.session.utf8)
        attributes = [] if readable else [b"\\Noselect"]
        return responses.listed([*attributes, children(has_children)], name, utf8=self.session.utf8) + after


def _goes_below(pattern: str, level: str) -> bool:
    """Whether names that begin with `level` may match."""
    literal = pattern.partition("*")[0].partition("%")[0]
    return (level.startswith(literal) or literal.startswith(level)) and (
        "*" in pattern or pattern.count(SEPARATOR) >= level.count(SEPARATOR))


def _status(session: Session, snapshot: SnapshotReader, seen: Seen, items: Iterable[StatusItem]) -> bytes:
    """The STATUS response. Nothing is recent there, and nothing can be appended (RFC 7889 §5). Raises StoreError."""
    state = snapshot.state(seen.entry, seen.reader)
    return statusfigures.response(session, seen.entry, state, items,
                                  rows=lambda: snapshot.open_mailbox(seen.entry, seen.reader).rows)
