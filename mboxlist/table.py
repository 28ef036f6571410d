"""The table of mailboxes: look up, create, rename, delete, iterate, each in a given transaction."""

import os
import struct
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar, cast

from mboxlist.annotations import ACTIVE_KEY, EVENT_KEY, Annotations
from mboxlist.deleted import DeletedMailboxes
from mboxlist.engine.btree import Txn
from mboxlist.engine.freezegate import WriteFreeze, read_only_error
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Deadlock, transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.former import Former
from mboxlist.names import INBOX, OTHERS, PUBLIC, SEPARATOR, MailboxName
from mboxlist.pending import Pending, Renames
from mboxlist.rights import Granted
from mboxlist.subscriptions import Subscriptions
from mboxlist.usermoves import Moves

T = TypeVar("T")

NAMES_KNOWN = 50_000        # mailboxes whose names are remembered
SCRIPTS_KNOWN = 50_000      # mailboxes of which it is remembered whether there is a script
TRIES = 4                   # how often what is read at one moment is read without a lock

_COUNTERS = struct.Struct(">II")        # last mailbox id, last UIDVALIDITY
_COUNTERS_KEY = b"\x00counters"
LAST_IDENTITY = _COUNTERS_KEY, _COUNTERS        # where `MailboxList.last_identity` is, and in which form
_IDENTITY_KEY = b"\x00identity"


class MailboxNames:
    """The list, for those who only read it, and the users' tables beside it."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.users = env.table("users.db", page=4096, glances=True)
        self.aliases = env.table("aliases.db", page=4096)              # of the users
        self._mailboxes = env.table("mailboxes.db", page=4096, glances=True)
        self._annotations = env.table("annotations.db", page=4096, glances=True)
        self.annotations = Annotations(self._annotations)
        # See `scripted`; by the mailbox and its owner: another one may have had it when somebody looked for it.
        self._scripts: tuple[tuple[int, int], dict[tuple[MailboxId, str], bool]] = (-1, -1), {}

    def find(self, name: MailboxName, txn: Txn = None) -> MailboxEntry | None:
        """The mailbox of that name."""
        key = _key(name)
        data = self._mailboxes.get(key, txn)
        return _entry(key, data) if data is not None else None

    def is_still(self, entry: MailboxEntry) -> bool:
        """Whether its row says that now, committed or not. Waits for no lock."""
        key = _key(entry.name)
        data = self._mailboxes.glance(key)
        return data is not None and _entry(key, data) == entry

    def scripted(self, mailboxes: Iterable[MailboxEntry]) -> tuple[int, int] | None:
        """The version of the list in which the owner of one of these has an active script, as it seems at this moment;
        None: nobody has. Asked for each message, and remembered until anything changes."""
        version, (seen, scripts) = self.env.log.end(), self._scripts        # as `version` says
        if version != seen or len(scripts) > SCRIPTS_KNOWN:
            self._scripts = version, (scripts := {})
        unsure: dict[tuple[MailboxId, str], bytes] = {}
        for entry in mailboxes:
            owner = entry.name.owner
            has = scripts.get((entry.id, owner))
            if has:
                return version
            if has is None:
                inbox = entry if entry.name.path == INBOX or not owner else self.find(MailboxName(owner, INBOX))
                if inbox is not None:
                    unsure[entry.id, owner] = inbox.id.to_bytes(4, "big") + ACTIVE_KEY
        return version if unsure and self._has_script(unsure, scripts) else None

    def _has_script(self, rows: Mapping[tuple[MailboxId, str], bytes], scripts: dict[tuple[MailboxId, str], bool]
                    ) -> bool:
        """Whether one of these has an active one. Nothing is remembered while somebody changes any of it: that may be
        undone, and the log ends where it ended then."""
        try:
            found = transact(self.env, lambda txn: [self._annotations.get(row, txn) is not None
                                                    for row in rows.values()], seconds=0, reads=True)
        except Deadlock:
            return any([self._annotations.glance(row) is not None for row in rows.values()])
        scripts.update(zip(rows, found, strict=True))
        return any(found)

    def has_event_script(self, mailbox: MailboxId) -> bool:
        """Whether an annotation names a script for events of IMAP there, as it seems at this moment."""
        return self._annotations.glance(mailbox.to_bytes(4, "big") + EVENT_KEY) is not None

    def below(self, owner: str, path: str = "", txn: Txn = None) -> Iterator[MailboxEntry]:
        """All mailboxes of `owner` ("" for the public ones), or those below `path`; parents before their children.
        Within a transaction they stay so to its end."""
        prefix = _prefix(owner) + (path + SEPARATOR if path else "")
        return self._scan(prefix, txn, hold=txn is not None)

    def all(self, txn: Txn = None) -> Iterator[MailboxEntry]:
        """Every mailbox, in order of name; each as it is when it is come to. There may be too many to lock all: who
        changes one reads it again."""
        return self._scan("", txn)

    def _scan(self, prefix: str, txn: Txn, *, hold: bool = False) -> Iterator[MailboxEntry]:
        start = _sortable(prefix)
        end = start[:-1] + bytes((start[-1] + 1,)) if start else None
        for key, data in self._mailboxes.scan(start or b"\x01", end, txn, hold=hold):
            yield _entry(key, data)


class AtZero(Protocol):
    """Has something at 0: `MailboxList.names`."""

    def __getitem__(self, at: int, /) -> object:
        """What is there now."""


class _Others:
    """Where no process says that the name of a mailbox has changed: another value each time."""

    def __getitem__(self, at: int, /) -> object:
        return object()


class MailboxList(MailboxNames):
    """The environment of the name space.

    `identity` is that of this list: an id was given by it if it has the same. `noticed` is called with each row that a
    transaction writes or takes away; not every such transaction comes to its end. `guard` is called before that with
    the owner: it raises what keeps that owner's mailboxes from being changed; `settled` is called then, too: it raises
    what keeps the owner's names from being changed while a tree of them is being renamed. `read_only`: partitions of
    which no row changes (OSError, EROFS). `names` has at 0 another value after the name of a mailbox has changed.
    `marks`: see `Env`.
    """

    def __init__(self, folder: Path, *, cache: int, recover: bool, broken: Callable[[], None] = lambda: None,
                 write_freeze: WriteFreeze | None = None, marks: Callable[[], Iterable[Path]] = tuple) -> None:
        super().__init__(Env(folder, cache=cache, locks=20_000, recover=recover, broken=broken,
                             write_freeze=write_freeze, marks=marks))
        self.forgotten = self.env.table("forgotten.db", page=4096)     # users who can be had back
        self.deleted = DeletedMailboxes(self.env.table("deleted.db", page=4096))
        self.subscriptions = Subscriptions(self.env.table("subscriptions.db", page=4096))
        self._names = self.env.table("names.db", page=4096)            # mailbox id -> canonical name
        self._freeze = write_freeze
        self.names: AtZero = _Others() if write_freeze is None else write_freeze.names
        self._read_names: dict[bytes, tuple[int, bytes]] = {}     # by id: WriteFreeze.names before, and the name
        self.granted = Granted(self.env.table("rights.db", page=4096))
        pending = self.env.table("pending.db", page=4096)
        self.pending, self.renames = Pending(pending), Renames(pending)
        self.moves = Moves(self.env.table("moves.db", page=4096))
        self.former = Former(self.env.table("former.db", page=4096))
        self.outbox = self.env.table("outbox.db")
        self.changed: Callable[[MailboxEntry | None, MailboxEntry | None, Txn], None] = lambda old, new, txn: None
        self.noticed: Callable[[MailboxEntry], None] = lambda entry: None
        self.guard: Callable[[str, Txn], None] = lambda owner, txn: None
        self.settled: Callable[[str, Txn], None] = lambda owner, txn: None
        self.read_only: Collection[str] = ()
        self.identity: str = transact(self.env, self._identify)

    def name_of(self, mailbox: bytes) -> bytes | None:
        """The canonical name of a mailbox, by its id in four octets. Each event of a message asks for it, so what was
        read before is believed while no process has changed a name."""
        if self._freeze is None:
            return self._names.get(mailbox)
        names, found = self._freeze.names[0], self._read_names.get(mailbox)
        if found is not None and found[0] == names:
            return found[1]
        name = self._names.get(mailbox)
        if name is not None:
            if len(self._read_names) >= NAMES_KNOWN:
                self._read_names.clear()
            self._read_names[mailbox] = names, name
        return name

    def change(self, work: Callable[[Txn], T]) -> T:
        """The result of `work` in a transaction of this environment that is on disk. `work` may run more than once."""
        result = transact(self.env, work)
        self.env.flush()
        return result

    def version(self) -> tuple[int, int]:
        """Another one after each change of the list, or of users, by any process."""
        return self.env.log.end()

    def find_id(self, mailbox: MailboxId, txn: Txn = None) -> MailboxEntry | None:
        """The mailbox of that id."""
        key = mailbox.to_bytes(4, "big")
        name, before = self._names.get(key, txn), None
        while name is not None and name != before:          # else it has been renamed between the two looks
            entry = self.find(_parsed(name), txn)
            if entry is not None and entry.id == mailbox:
                return entry
            before, name = name, self._names.get(key, txn)
        return None

    def listed(self, owner: str) -> list[MailboxEntry]:
        """All mailboxes of `owner`, in order of name, as they were at one moment."""
        return self.at_one_moment(lambda txn: list(self._scan(_prefix(owner), txn, hold=True)))

    def at_one_moment(self, work: Callable[[Txn], T]) -> T:
        """The result of `work`, which reads several rows, as they were at one moment: who is renamed meanwhile is there
        once. It is done again where something has been committed meanwhile, at last in a transaction."""
        for _ in range(TRIES):
            before = self.version()
            result = work(None)
            if self.version() == before:
                return result
        return transact(self.env, work, reads=True)

    def some_after(self, name: MailboxName | None, most: int) -> list[MailboxEntry]:
        """The next ones in order of name after that one (None: the first ones): who walks through all of them keeps no
        cursor open."""
        scan = self._mailboxes.scan(_key(name) + b"\x00" if name else b"\x01")
        with closing(cast("Generator[tuple[bytes, bytes], None, None]", scan)) as rows:
            return [_entry(key, data) for key, data in islice(rows, most)]

    def next_identity(self, txn: Txn) -> tuple[MailboxId, int]:
        """A new mailbox id and UIDVALIDITY, both greater than any given before (RFC 3501 §2.3.1.1)."""
        data = self._mailboxes.get_to_change(_COUNTERS_KEY, txn)
        last_id, last_validity = _COUNTERS.unpack(data) if data else (0, 0)
        identity = MailboxId(last_id + 1), max(int(time.time()), last_validity + 1)
        self._mailboxes.put(_COUNTERS_KEY, _COUNTERS.pack(*identity), txn)
        self.pending.note([identity[0]], txn)
        return identity

    def last_identity(self, txn: Txn = None) -> tuple[MailboxId, int]:
        """The last mailbox id and UIDVALIDITY that were given."""
        data = self._mailboxes.get(_COUNTERS_KEY, txn)
        last_id, last_validity = _COUNTERS.unpack(data) if data else (0, 0)
        return MailboxId(last_id), last_validity

    def skip_identities(self, mailbox: MailboxId, validity: int, txn: Txn) -> None:
        """Give out neither these nor smaller ones."""
        last_id, last_validity = self.last_identity(txn)
        self._mailboxes.put(_COUNTERS_KEY, _COUNTERS.pack(max(last_id, mailbox), max(last_validity, validity)), txn)

    def _identify(self, txn: Txn) -> str:
        data = self._mailboxes.get_to_change(_IDENTITY_KEY, txn)
        if data is None:
            data = os.urandom(8).hex().encode()
            self._mailboxes.put(_IDENTITY_KEY, data, txn)
        return data.decode()

    def write(self, entry: MailboxEntry, txn: Txn, *, guarded: bool = True) -> None:
        """Add the row, or put it in the place of the one with its name. Raises what `guard` and `settled` raise."""
        if guarded:
            self.guard(entry.name.owner, txn)
            self.settled(entry.name.owner, txn)
        old = self.find(entry.name, txn)
        self._require_writable(entry, old)
        if old is not None and old.uidvalidity != entry.uidvalidity:
            self.former.note(str(old.name), old.uidvalidity, txn)
        self.pending.note([entry.id, *([old.id] if old is not None else [])], txn)
        self._mailboxes.put(_key(entry.name), entry.to_bytes(), txn)
        self._names.put(entry.id.to_bytes(4, "big"), str(entry.name).encode(), txn)
        self._renames()
        self.granted.update(old, entry, txn)
        self.changed(old, entry, txn)
        for changed in (entry, old):
            if changed is not None:
                self.noticed(changed)

    def remove(self, name: MailboxName, txn: Txn, *, guarded: bool = True) -> bool:
        """Take the row away; whether it was there. Raises what `guard` and `settled` raise."""
        if guarded:
            self.guard(name.owner, txn)
            self.settled(name.owner, txn)
        entry = self.find(name, txn)
        if entry is None:
            return False
        self._require_writable(entry)
        self.pending.note([entry.id], txn)
        self._mailboxes.delete(_key(name), txn)
        self._names.delete(entry.id.to_bytes(4, "big"), txn)
        self._renames()
        self.former.note(str(entry.name), entry.uidvalidity, txn)
        self.granted.update(entry, None, txn)
        self.changed(entry, None, txn)
        self.noticed(entry)
        return True

    def _renames(self) -> None:
        if self._freeze is not None:
            self._freeze.renames()

    def _require_writable(self, *entries: MailboxEntry | None) -> None:
        if self.read_only and any(entry is not None and entry.partition in self.read_only for entry in entries):
            raise read_only_error()

    def close(self, *, clean: bool = False) -> None:
        """Leave the environment; `clean`: see `Env.close`."""
        self.env.close(clean=clean)


def _prefix(owner: str) -> str:
    return f"{OTHERS}{owner}/" if owner else PUBLIC


def _sortable(text: str) -> bytes:
    """As a key: the separator sorts before all other octets, so that children follow their parent at once."""
    return text.encode().replace(b"/", b"\x01")


def _key(name: MailboxName) -> bytes:
    text = f"{OTHERS}{name.owner}/{name.path}" if name.owner else PUBLIC + name.path
    return text.encode().replace(b"/", b"\x01")


@lru_cache(maxsize=50_000)
def _entry(key: bytes, data: bytes) -> MailboxEntry:
    """The mailbox of a row. Equal octets give the same object: rows are read far more often than written."""
    return MailboxEntry.from_bytes(_name(key), data)


@lru_cache(maxsize=10_000)
def _parsed(text: bytes) -> MailboxName:
    """A name as `names.db` has it."""
    return MailboxName.parse(text.decode())


def _name(key: bytes) -> MailboxName:
    kind, _, rest = key.replace(b"\x01", b"/").decode().partition(SEPARATOR)
    if kind + SEPARATOR == PUBLIC:
        return MailboxName("", rest)
    owner, _, path = rest.partition(SEPARATOR)
    return MailboxName(owner, path)
