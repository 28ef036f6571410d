"""The one that serves: what it answers to its standby. Nothing of it runs where there is none.

Each answer is a function of one message, which `store.usermove.responder` calls in the thread of that connection.
"""

import contextlib
import os
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from mboxlist.engine.damagemarks import file_id
from mboxlist.engine.generations import LogEnd
from mboxlist.engine.hotcopy import Position
from mboxlist.engine.kv import Env
from mboxlist.engine.logfiles import log_name
from store import VERSION
from store.errors import Problem, StoreError
from store.events import outgoingfiles
from store.partition.marks import absent, read_epoch
from store.partitions import volumes
from store.snapshots import retention, taking
from store.snapshots.taking import LIST, Snapshot, all_environments, environments
from store.standby import promotion, succession
from store.standby.applying import distance
from store.standby.copyformat import LISTED, SENT_OCTETS, SMALL, TOP, Listed, Packing, further_of, pack_list, positions
from store.standby.source.begunsyncs import BegunSyncs
from store.standby.source.fileanswers import Answer, FileAnswers
from store.standby.source.instep import LONGEST_LOOK, LOOK_FOR_NEWS, Member, Step
from store.standby.source.quickanswers import QuickAnswers, octets_of, open_message
from store.standby.succession import Lineage, Other, contested
from store.store import Store
from store.usermove.messageformat import BadMessage, Ended, Message

WAIT = 30.0                 # seconds, at most, that a question for news waits for some
OFTEN = 1.0                 # seconds between two looks at what changes seldom,
ROUND = 0.1                 # seconds, at least, between two answers with news that nobody waits for, and two looks,
SMALL_OFTEN = 0.25          # and at small files, where nothing else has come
FRESH = 2 * 10**9           # nanoseconds after a change of a folder in which another one may leave it the same time: a
                            # tick of the kernel, or a whole second, as the file system has it
AHEAD_OCTETS = 16 << 10     # of logs that are sent before they are on disk here: of many changes each waits little, and
                            # rounds that bring many cost less

ADDED = "A partition was added at this moment"
AUDIT = "audit"
LOOKED_AT = {folder: folder.rpartition("/")[0] for folder in SMALL if folder not in (AUDIT, TOP)}   # that each answer
                            # looks at, and the folder in which each is
PARTITIONS = 10_000         # that a standby may name


@define(eq=False)
class Source:
    """What one standby hears, which is the machine `host`. Every answer raises BadMessage for what is no question,
    StoreError, OSError. `member`: how far it is, and whether answers wait for it."""

    store: Store
    host: str
    member: Member | None = None
    _only: frozenset[str] = field(default=frozenset(), init=False)      # the partitions that it wants; else all
    _here: tuple[object, dict[str, Env]] = field(default=(None, {}), init=False)    # partitions, and `_environments`
    _session: int = field(default=0, init=False)
    _packing: Packing = field(factory=Packing, init=False)
    _quick: QuickAnswers = field(init=False)
    _files: FileAnswers = field(init=False)
    _sent: tuple[int, dict[str, Position], dict[str, int]] = field(default=(0, {}, {}), init=False)     # with an answer
    _small_looked: float = field(default=0.0, init=False)               # when small files were looked at
    _seldom: dict[str, Any] = field(factory=dict, init=False)           # what was sent last of it
    _changed: dict[str, int] = field(factory=dict, init=False)          # when names in the folders of tables changed,
    _looked: float = field(default=0.0, init=False)                     # and were looked at,
    _known_epochs: dict[str, int] = field(factory=dict, init=False)     # as the epochs were,
    _table_ids: dict[str, dict[str, str]] = field(factory=dict, init=False)     # and what there was,
    _first: dict[str, int] = field(factory=dict, init=False)            # and the first log files that recovery needs
    _durable: dict[str, Position] = field(factory=dict, init=False)     # how far logs may be read
    _ahead: tuple[dict[str, Env], dict[str, Position]] = field(factory=lambda: ({}, {}), init=False)    # and have been
    _syncs: BegunSyncs = field(factory=BegunSyncs, init=False)
    _slow: dict[str, int] = field(factory=dict, init=False)     # what `_signatures` said last of some folders,
    _slow_looked: float = field(default=0.0, init=False)        # and when these were looked at;
    _missing: dict[str, int] = field(factory=dict, init=False)  # folders that were not there, and when that in which
                                                                # each would be had changed last

    @_quick.default
    def _quick_of_store(self) -> QuickAnswers:
        return QuickAnswers(self._find, is_unhurried=self.member is None or self.member.asked is None)

    @_files.default
    def _files_of_store(self) -> FileAnswers:
        return FileAnswers(self.store.root, self._messages, self._find)

    def _messages(self, partition: str) -> Path:
        """The folder of its message files. Raises StoreError GONE where this standby does not have that partition."""
        if not self._has(f"partitions/{partition}/index"):
            raise StoreError(Problem.GONE, f"This standby does not protect the partition {partition}")
        return self.store.partition(partition).files.folder

    def _find(self, partition: str, digest: bytes) -> int:
        return open_message(self.store.partition(partition), digest)

    def actions(self) -> dict[str, Callable[[Message], Any]]:
        """By the names that the standby uses."""
        found = {**self._files.actions(), "copy begin": self._begin, "copy snapshot": self._snapshot,
                 "copy database": self._database, "copy staged": self._staged, "copy ends": self._ends,
                 "copy log": self._log, "copy next": self._next, "copy succession": self._succession,
                 "copy place": self._place}
        return {name: partial(self._do, action) for name, action in found.items()}

    def _do(self, action: Callable[[Message], Answer], message: Message) -> Answer:
        """Nothing here waits for a standby, or is refused since one is away."""
        if self.member is not None:
            self.member.says_something()
        with self.store.write_freeze.second.exempt():
            return self._packing.pack(*action(message))

    def _succession(self, message: Message) -> Answer:
        """Asked by a machine that has served the store before."""
        known = succession.read(self.store.root)
        return {"identity": self.store.mailboxes.identity, "skipped": known.skipped, **known.lineage.fields()}, b""

    def _begin(self, message: Message) -> Answer:
        """The first question: whether both understand each other, and what there is."""
        if message.text("version") != VERSION:
            raise StoreError(Problem.UNAVAILABLE, f"This back end has version {VERSION} of onecopy, and the standby "
                                                  f"{message.text('version')}: both must have the same one")
        self.store.join_all()
        taking.require_whole(self.store)
        _require_all_there(self.store)
        partitions = self._choose(message.texts("only", PARTITIONS))
        self._packing.is_wanted = message.truth("compress")
        root, identity = self.store.root, self.store.mailboxes.identity
        lineage = Lineage.of(message)
        if succession.read(root).lineage.contests(lineage):
            raise StoreError(Problem.STORE_IN_USE, contested("the machine that was followed there",
                                                             self.store.settings.host))
        succession.note_other(root, self.host, Other(lineage))
        succession.require_not_superseded(root)
        place = succession.note_follower(root, identity, self.host)     # before it has anything that it could serve
        (mailbox, validity), known = self.store.mailboxes.last_identity(), succession.read(root)
        return {"host": self.store.settings.host, "identity": identity, "place": place, "epochs": self._epochs(),
                "mailbox": int(mailbox), "validity": validity, "skipped": known.skipped, **partitions,
                "partings": succession.said_of(known.partings), **known.lineage.fields()}, b""

    def _choose(self, names: Sequence[str]) -> dict[str, Any]:
        """The standby wants only these partitions, or all: what it is told of them. Raises StoreError UNAVAILABLE when
        one is not here."""
        here = self.store.partitions.keys()
        if missing := sorted(set(names) - here):
            raise StoreError(Problem.UNAVAILABLE, f"There is no partition {', '.join(missing)}: there are "
                                                  f"{', '.join(sorted(here))}")
        self._only, self._here = frozenset(names), (None, {})
        unprotected = sorted(here - self._only) if names else []
        if self.member is not None:
            self.member.wants(names)        # what it has no more of is known when it follows
        return {"partitions": sorted(names or here), "unprotected": unprotected, "absent": absent(self.store.root),
                "given_up": promotion.given_up(self.store.root)}

    def _environments(self) -> dict[str, Env]:
        """The environments that this standby has: the list, and all partitions or some. Raises StoreError UNAVAILABLE,
        OSError."""
        self.store.join_all()
        here = self.store.partitions            # another one after each change
        if here is not self._here[0]:
            self._here = here, {name: env for name, env in environments(self.store).items() if self._has(name)}
        return self._here[1]

    def _at_hand(self) -> dict[str, Env]:
        """Likewise, but for what other processes have added or removed meanwhile."""
        return self._here[1] if self.store.partitions is self._here[0] else self._environments()

    def _has(self, environment: str) -> bool:
        return not self._only or environment == LIST or environment.split("/")[1] in self._only

    def _place(self, message: Message) -> Answer:
        """Asked by a standby whom another machine wants to follow: the place of that one, which may be promoted while
        this machine is away, as any that follows. It is on record before it has anything that it could serve."""
        root, host = self.store.root, message.text("host")
        other = None if self.member is None else self.member.group.members.get(host)
        if other is None:
            raise StoreError(Problem.NO_PERMISSION, f"{host} is not among exchange.standbys of "
                                                    f"{self.store.settings.host}")
        if other.asked is not None:
            raise StoreError(Problem.NO_PERMISSION, f"answers of {self.store.settings.host} wait for {host}, which has "
                                                    "to follow that machine itself")
        succession.require_not_superseded(root)
        return {"place": succession.note_follower(root, self.store.mailboxes.identity, host)}, b""

    # Beginning

    def _snapshot(self, message: Message) -> Answer:
        """The manifest of a snapshot that is not older than so many seconds; it is made if there is none."""
        if self.member is not None:
            self.member.goes_away(self._session, "it copies the databases again")
        newest = next(iter(taking.listed(taking.folder(self.store.root, self.store.settings))), None)
        age = -1.0 if newest is None else time.time() - newest.manifest.moment
        if newest is None or not 0 <= age <= message.number("age") or (         # of the future: the clock was wrong
                self._environments().keys() != set(filter(self._has, newest.manifest.environments))):
            # A partition has been added or removed since.
            newest = retention.make(self.store, verify=False)           # the standby verifies what comes of it
        return self._manifest(newest)

    def _manifest(self, snapshot: Snapshot) -> Answer:
        parts = {name: part for name, part in snapshot.manifest.environments.items() if self._has(name)}
        return {"snapshot": snapshot.name}, evolve(snapshot.manifest, environments=parts).to_bytes()

    def _database(self, message: Message) -> Answer:
        """Octets of a file of that snapshot."""
        snapshot = self._snapshot_of(message.text("snapshot"))
        part = snapshot.manifest.environments.get(message.text("environment"))
        name = message.text("file")
        if part is None or name not in [file.name for file in part.files]:
            raise StoreError(Problem.GONE, f"There is no {name} in the snapshot {snapshot.name}")
        return {}, octets_of(snapshot.path / message.text("environment") / name, message.number("at"))

    def _snapshot_of(self, name: str) -> Snapshot:
        for each in taking.listed(taking.folder(self.store.root, self.store.settings)):
            if each.name == name:
                return each
        raise StoreError(Problem.GONE, f"The snapshot {name} is there no more")

    def _staged(self, message: Message) -> Answer:
        """The messages that have been committed and are still in `staging/`, by their digests."""
        partition, found = self.store.partition(message.text("partition")), list[Listed]()
        for name in os.listdir(partition.files.staging):
            with contextlib.suppress(ValueError, FileNotFoundError):
                if (digest := partition.serials.committed_digest(int(name, 16))) is not None:
                    status = os.stat(partition.files.staging / name, follow_symlinks=False)
                    found.append(Listed(digest, status.st_size, status.st_mtime_ns))
        return {}, pack_list(found[:LISTED])

    # Following

    def _ends(self, message: Message) -> Answer:
        """The places up to which all logs are on disk, at one moment.

        `unlike`: environments whose log has not been where the standby says that it was.
        """
        known, sums = positions(message.fields.get("known")), message.fields.get("sums")
        if not isinstance(sums, dict) or not all(isinstance(each, int) for each in sums.values()):
            raise BadMessage("there are no sums")
        envs = self._environments()
        unlike = [name for name, end in known.items() if name not in envs or name in sums and not LogEnd(
            *end, sums[name]).is_in(envs[name].folder) or not _reaches_back(envs[name], end)]
        first = {name: env.logs.first_needed() for name, env in envs.items()}         # before the ends: see `applying`
        ends, moment = taking.ends_at_one_moment(envs)
        self._sync(envs, ends)
        if self._environments().keys() != envs.keys():
            raise StoreError(Problem.BUSY, ADDED)
        return {"ends": ends, "first": first, "tables": self._tables(envs), "moment": moment,
                "small": self._signatures(), "unlike": unlike, "epochs": self._known_epochs}, b""

    def _sync(self, envs: dict[str, Env], ends: dict[str, Position]) -> None:
        """Return when the logs are on disk here up to there."""
        self._syncs.finish()
        for name, env in envs.items():
            if env.log.known < ends[name]:
                env.flush(here=True)
                env.log.is_written(ends[name])      # so that it is known the next time
        self._durable = {name: max(end, self._durable.get(name, end)) for name, end in ends.items()}

    def answered(self) -> None:
        """The answer has been sent: what it had of the logs gets on disk here while the standby has it on disk. So when
        the standby asks again it is on both. Raises Ended: nobody has been told that it is."""
        (envs, ends), self._ahead = self._ahead, ({}, {})
        if ends:
            try:
                self._sync(envs, ends)
            except OSError as error:
                raise Ended(f"what was sent to the standby is not on disk here: {error}") from error

    def _epochs(self) -> dict[str, int]:
        """The epochs that will hold from the next start on, if they are later: see `promotion.go_ahead`."""
        return {name: max(partition.epoch, read_epoch(partition.folder))
                for name, partition in self.store.partitions.items()}

    def _tables(self, envs: dict[str, Env]) -> dict[str, dict[str, str]]:
        """After the ends: a table that was exchanged before them is seen. They are looked at when a name in one of the
        folders has changed, and from time to time."""
        now, changed = time.monotonic(), {name: os.stat(env.folder).st_mtime_ns for name, env in envs.items()}
        if changed != self._changed or now - self._looked > OFTEN:
            self._table_ids = {name: {path.name: file_id(path) for path in sorted(env.folder.glob("*.db"))}
                               for name, env in envs.items()}
            self._first = {name: env.logs.first_needed() for name, env in envs.items()}
            self._known_epochs = self._epochs()
            self._changed, self._looked = changed, now
        return self._table_ids

    def _next(self, message: Message) -> Answer:
        """What has come since `known`, which the standby has on disk: at once where answers wait for it, and else a
        moment later, with what came meanwhile; after so many milliseconds in any case. `number`: of what it was sent
        last, and has; if that is all that it has, it does not say what it knows.

        What is little comes whole (`quick`): octets of logs, and message files of which they tell. Of the rest the
        standby asks. Where answers wait for it, that may be `ahead`, before the logs are on disk here (`answered`).
        """
        known, small = self._known(message)
        member = self.member
        if member is not None:
            self._hear(member, message.number("number"))
            if "further" in message.fields:
                member.group.further(member, further_of(message))
        number, envs, ends, moment, first = self._moment(known, small, min(WAIT, message.number("wait") / 1000))
        quick = None
        if self._may_be_ahead(known, ends, envs):
            for name, end in ends.items():
                if end != known[name] and end[0] == known[name][0]:
                    self._syncs.begin(envs[name].log, end, self._quick.handle(name, envs[name], end[0]))
            quick = self._quick.between(known, ends, envs)
        if quick is None:
            self._sync(envs, ends)
        else:
            self._ahead = envs, ends
        seldom = {"tables": self._tables(envs), "epochs": self._known_epochs}
        seldom["first"] = first if first.keys() == ends.keys() else self._first
        small_now = self._signatures()      # after the ends: a file of which these tell is seen
        said = {"number": number, "ends": ends, "moment": moment, "known": known}
        if small_now != small:
            said["small"] = small_now
        if seldom != self._seldom:
            said |= seldom
            self._seldom = seldom
        if quick is None:
            quick = self._quick.between(known, ends, envs)
        else:
            said["ahead"] = True
        self._sent = number, ends, small_now
        if member is not None:
            if quick is not None:
                member.joins()
            member.is_sent(number)
            said["step"] = member.step.value
        return (said, b"") if quick is None else ({**said, **quick[0]}, quick[1])

    def _may_be_ahead(self, known: dict[str, Position], ends: dict[str, Position], envs: dict[str, Env]) -> bool:
        """Whether what is new of the logs is sent before it is on disk here: somebody waits, and it can be read."""
        member = self.member
        return member is not None and member.step is Step.IN_STEP and ends != known and (
            member.behind <= AHEAD_OCTETS) and all(
            end == known.get(name) or envs[name].log.is_written(end) for name, end in ends.items())

    def _known(self, message: Message) -> tuple[dict[str, Position], dict[str, Any]]:
        """What the standby has: places in logs, and numbers of folders of small files."""
        if "known" in message.fields:
            small = message.fields.get("small")
            return positions(message.fields["known"]), dict(small) if isinstance(small, dict) else {}
        number, ends, small = self._sent
        if not number or message.number("number") != number:
            raise BadMessage("what is known was not said")
        return ends, small

    def _moment(self, known: dict[str, Position], small: dict[str, Any], seconds: float
                ) -> tuple[int, dict[str, Env], dict[str, Position], float, dict[str, int]]:
        """As `_news`, with where the logs end at one moment, and the Unix time of that."""
        while True:
            number, envs, seen, first = self._news(known, small, seconds)
            ends, moment = taking.ends_at_one_moment(envs, seen)
            if self._environments() is envs:        # else one was added, or removed, just now
                break
        if known.keys() - ends.keys():
            _require_all_there(self.store)
        return number, envs, ends, moment, first

    def _news(self, known: dict[str, Position], small: dict[str, Any], seconds: float
              ) -> tuple[int, dict[str, Env], tuple[dict[str, Position], float], dict[str, int]]:
        """Wait until there is more, or for so long. Who waits for an answer wakes us; for what nobody waits for we look
        less and less often while nothing comes. The moment before that was looked for, the environments that there
        were after it, where their logs end and the time, and the first log files that recovery needed before."""
        member, deadline = self.member, time.monotonic() + seconds
        asked = None if member is None else member.asked
        pause = LOOK_FOR_NEWS
        waits = asked is not None and member is not None and member.step is Step.IN_STEP and not asked.is_awaited(
            member.number)              # nobody does: there is nothing yet, or it need not go at once
        if seconds and asked is None:
            time.sleep(min(ROUND, seconds))     # whoever follows at full speed has the disk synced so often at most
        while True:
            left = deadline - time.monotonic()
            if waits and left > 0:
                if asked is not None:
                    asked.wait(min(pause, left))
                    pause = min(2 * pause, LONGEST_LOOK)
                else:
                    time.sleep(min(ROUND, left))
            waits = True
            first, number = self._first, time.monotonic_ns()
            if self._only and member is not None:
                self._leave_others(member, known)
            envs = self._at_hand()
            seen = now, _ = taking.log_ends(envs)
            if now == known and self._environments() is not envs:
                waits = False
                continue                # what was committed before the moment may be in another one
            if now != known:
                if member is not None:
                    member.behind = sum(distance(end, now[name]) for name, end in known.items() if name in now)
                return number, envs, seen, first
            if self._is_new(small):
                return number, envs, seen, first
            if member is not None:
                member.has_all(number)
            if left <= 0:
                return number, envs, seen, first

    def _leave_others(self, member: Member, known: dict[str, Position]) -> None:
        """It has its logs up to there, and nothing of other partitions: changes of these do not wait for it. Return
        when all that was committed there is on disk here: who waits for an answer waits for the standby alone."""
        for name, env in all_environments(self.store).items() if member.asked is not None else ():
            if not self._has(name) and env.log.grown:
                env.flush(here=True)
        member.lacks(sorted(name for name in self.store.partitions.keys() - self._only
                            if f"partitions/{name}/index" not in known))

    def _is_new(self, small: dict[str, Any]) -> bool:
        """Whether small files are others than those, as far as that has been looked at."""
        if (now := time.monotonic()) - self._small_looked < SMALL_OFTEN:
            return False
        self._small_looked = now
        return self._signatures() != small

    def _hear(self, member: Member, number: int) -> None:
        """The standby has what it was sent last on disk."""
        if not self._session:
            self._session = member.begin()
        if not member.is_of(self._session):
            raise StoreError(Problem.UNAVAILABLE, "There is a newer connection of this standby")
        if number not in (0, member.sent):
            raise BadMessage("that number was not sent")
        member.has(number)

    def close(self) -> None:
        """The connection has ended."""
        with contextlib.suppress(OSError):
            self._syncs.finish()
        self._quick.close()
        if self.member is not None and self._session:
            self.member.goes_away(self._session, "its connection has ended")

    def _signatures(self) -> dict[str, int]:
        """A number for each folder of small files, which is another one when something in it has changed. The audit
        trail is looked at from time to time only, since its files grow in their places; so are the folders of the store
        and of partitions: each look asks for a file. The trail is looked at behind the store's own folder, which says
        that there has been one: whoever hears of that hears of the trail, too.

        A folder that has just been changed may be changed again and keep its time, so its number is another one some
        seconds later; and that a folder is not there holds until the one in which it would be changes. Letters that
        leave are not waited for: logs tell of them, and of these the names count."""
        partitions = [f"partitions/{name}" for name in self.store.partitions if not self._only or name in self._only]
        slow, root = [TOP, AUDIT, *partitions], os.fspath(self.store.root)
        if (now := time.monotonic()) - self._slow_looked > OFTEN or list(self._slow) != slow:
            self._slow_looked = now
            self._slow = {folder: self._signature(folder) for folder in slow}
        found, now_ns = dict(self._slow), time.time_ns()
        times = {TOP: os.stat(root).st_mtime_ns}
        for folder, within in LOOKED_AT.items():
            if within not in times or self._missing.get(folder) == times[within]:
                continue
            try:
                times[folder] = changed = os.stat(f"{root}/{folder}").st_mtime_ns
                fresh = abs(now_ns - changed) < FRESH
                names = sorted(os.listdir(f"{root}/{folder}")) if fresh and folder == outgoingfiles.FOLDER else ()
            except FileNotFoundError:
                if abs(now_ns - times[within]) >= FRESH:
                    self._missing[folder] = times[within]
                continue
            found[folder] = changed + fresh + (zlib.crc32("/".join(names).encode()) if names else 0)
        return found

    def _signature(self, folder: str) -> int:
        return zlib.crc32(repr([(name, status.st_size, folder == AUDIT or (status.st_mtime_ns, status.st_ino))
                                for name, status in self._files.small_files(folder)]).encode())

    def _log(self, message: Message) -> Answer:
        """Octets of a log, up to where it is known to be on disk."""
        name, number, at = message.text("environment"), message.number("file"), message.number("at")
        end = self._durable.get(name)
        if end is None or number > end[0]:
            raise BadMessage("nobody has been told of that part of a log")
        path = environments(self.store)[name].folder / log_name(number)
        most = min(SENT_OCTETS, end[1] - at) if number == end[0] else SENT_OCTETS
        try:
            return {"last": number == end[0]}, octets_of(path, at, max(0, most))
        except FileNotFoundError:
            raise StoreError(Problem.GONE, f"{path.name} of {name} is there no more") from None


def _require_all_there(store: Store) -> None:
    """A partition whose volume is missing, or whose databases are being rebuilt, has not been removed: a standby keeps
    what it has of it. Raises StoreError UNAVAILABLE."""
    if missing := sorted(set(volumes.named_there(store.root)) - {*store.partitions, *absent(store.root)}):
        raise StoreError(Problem.UNAVAILABLE, f"Partition {', '.join(missing)} is not there at present: a standby "
                                              "stays as it is until it is back, or has been removed")


def _reaches_back(env: Env, end: Position) -> bool:
    """Whether the log of the environment still has what follows that place."""
    return (env.folder / log_name(end[0])).exists()
