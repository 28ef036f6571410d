"""LIST, STATUS, MYRIGHTS and GETQUOTAROOT in snapshots (`imap.travel`).

"#" breaks out (RFC 3501 §6.3.8, RFC 9051 §6.3.9): a pattern that begins with #snapshots is taken as it stands, whatever
the reference. Only such patterns, and references that lead there, are looked for in snapshots: a client that lists
everything does not find all its mailboxes again once for each of them.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
from attrs import define, field

from imap.session import Session
from imap.states import Reply
from imap.travel import PREFIX, RIGHTS, ROOT, Visit, is_there, shown
from imap.wire import responses
from imap.wire.acl import MyRights, format_myrights
from imap.wire.listing import List, ListOption, Status, StatusItem
from imap.wire.quota import GetQuotaRoot, format_quotaroot
from mboxlist.entry import MailboxEntry
from mboxlist.names import SEPARATOR
from mboxlist.patterns import compile_pattern
from store.errors import Problem, StoreError
from store.past import Past
from store.progress import Progress
from store.snapshots import Snapshot
from store.values import Flag

PIECE = 500                 # lines that are written together


async def status(session: Session, command: Status) -> Reply:
    """The figures of a mailbox as they were."""
    if StatusItem.HIGHESTMODSEQ in command.items:
        session.enable_condstore()
    session.stream.write(await session.travel.look(
        command.mailbox, "r", lambda past, entry: _status(session, past, entry, command.items)))
    return Reply("STATUS completed")


async def my_rights(session: Session, command: MyRights) -> Reply:
    """To look up and to read, and nothing else, whatever the user's rights were."""
    entry = await session.travel.look(command.mailbox, "l", lambda past, entry: entry)
    session.stream.write(format_myrights(entry.name.to_client(session.user), RIGHTS, utf8=session.utf8))
    return Reply("MYRIGHTS completed")


async def get_quota_root(session: Session, command: GetQuotaRoot) -> Reply:
    """None: what is only in a snapshot is charged to nobody."""
    entry = await session.travel.look(command.mailbox, "r", lambda past, entry: entry)
    session.stream.write(format_quotaroot(entry.name.to_client(session.user), [], utf8=session.utf8))
    return Reply("GETQUOTAROOT completed")


async def list_snapshots(session: Session, command: List) -> None:
    """Write the names in snapshots that match, if any are asked for."""
    patterns = _patterns(command)
    if not patterns or not session.travel.granted or {ListOption.SUBSCRIBED, ListOption.SPECIAL_USE} & command.select:
        return                      # nobody is subscribed there, and nothing there is for any use
    progress = session.progress()

    def work() -> list[bytes]:
        lines, pieces = _Names(session, command, patterns, progress).lines(), []
        while piece := list(islice(lines, PIECE)):
            pieces.append(b"".join(piece))
        return pieces

    for piece in await session.travel.run(work, progress):
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
        self._accepts = _matching(self.patterns)
        # An extended LIST asks for these with a % at the end (RFC 5258 §3), as outside of snapshots.
        self._levels = _matching([pattern for pattern in self.patterns if pattern.endswith("%")]
                                 if self.command.extended else self.patterns)

    def lines(self) -> Iterator[bytes]:
        """The LIST responses, the oldest snapshot first. Raises StoreError, Abandoned."""
        snapshots = self.session.travel.snapshots()
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
            return self.session.travel.visit(snapshot.name, lambda visit: list(self._below(visit)))
        except StoreError as error:
            if error.problem is Problem.NO_MAILBOX:         # it has just been removed
                return ()
            raise

    def _below(self, visit: Visit) -> Iterator[bytes]:
        entries = {entry.name.path: entry for entry in visit.mailboxes()}
        parents = {name[:at] for name in entries for at in range(len(visit.level) + 1, len(name))
                   if name[at] == SEPARATOR}
        for name in sorted({*entries, *parents}):
            entry = entries.get(name)
            if entry is not None and self._accepts(name):
                yield self._mailbox(visit, entry, name in parents)
            elif entry is None and self._levels(name):
                yield self._level(name, True)
            self.progress.step(0)

    def _level(self, name: str, has_children: bool) -> bytes:
        kind = b"\\NonExistent" if self.command.extended else b"\\Noselect"
        return responses.listed([kind, _children(has_children)], name, utf8=self.session.utf8)

    def _mailbox(self, visit: Visit, entry: MailboxEntry, has_children: bool) -> bytes:
        name, readable, after = entry.name.path, visit.may_read(entry), b""
        if ListOption.STATUS in self.command.give and readable:
            try:
                after += _status(self.session, visit.past, entry, self.command.status)
            except StoreError as error:                     # then it is left out (RFC 5819 §2)
                if error.problem is not Problem.NO_MAILBOX:
                    raise
        if ListOption.MYRIGHTS in self.command.give:
            after += format_myrights(name, RIGHTS if readable else "l", utf8=self.session.utf8)
        attributes = [] if readable else [b"\\Noselect"]
        return responses.listed([*attributes, _children(has_children)], name, utf8=self.session.utf8) + after


def _children(there: bool) -> bytes:
    return b"\\HasChildren" if there else b"\\HasNoChildren"


def _matching(patterns: list[str]) -> Callable[[str], bool]:
    """Whether a name matches any of the patterns. One that is too long is passed over, as outside of snapshots."""
    tests = []
    for pattern in patterns:
        try:
            tests.append(compile_pattern(pattern))
        except ValueError:
            continue
    return lambda name: any(test(name) for test in tests)


def _goes_below(pattern: str, level: str) -> bool:
    """Whether names that begin with `level` may match."""
    literal = pattern.partition("*")[0].partition("%")[0]
    return (level.startswith(literal) or literal.startswith(level)) and (
        "*" in pattern or pattern.count(SEPARATOR) >= level.count(SEPARATOR))


def _status(session: Session, past: Past, entry: MailboxEntry, items: Iterable[StatusItem]) -> bytes:
    """The STATUS response. Raises StoreError."""
    state = past.state(entry)

    def figure(item: StatusItem) -> int:
        match item:
            case StatusItem.MESSAGES:
                return state.messages
            case StatusItem.UIDNEXT:
                return state.uidnext
            case StatusItem.UIDVALIDITY:
                return state.uidvalidity
            case StatusItem.UNSEEN:
                return state.unseen
            case StatusItem.SIZE:
                return state.octets
            case StatusItem.DELETED:
                return state.deleted
            case StatusItem.DELETED_STORAGE:
                rows = past.open_mailbox(entry).rows
                return int(rows["size"][rows["flags"] & np.uint16(Flag.DELETED) != 0].sum())
            case StatusItem.HIGHESTMODSEQ:
                return state.highestmodseq
            case StatusItem.RECENT | StatusItem.APPENDLIMIT:        # RFC 7889 §5: there is no APPEND
                return 0

    return responses.status(entry.name.to_client(session.user), [(item, figure(item)) for item in items],
                            utf8=session.utf8)
