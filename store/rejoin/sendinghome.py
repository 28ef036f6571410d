"""The machine that comes back: it asks the promoted one for the common place, and brings it the mail that only it has.
"""

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.entry import MailboxId
from mboxlist.privatefiles import Folder
from store.errors import Problem, StoreError
from store.filelock import scratch
from store.rejoin import commonplace, stranded
from store.rejoin.stranded import Stranded, StrandedMail
from store.rejoin.takinghome import DIGESTS, OCTETS, TRACE
from store.standby import succession
from store.standby.sourcepeer import absent_of
from store.standby.succession import LINE, Lineage, Other
from store.store import Store
from store.usermove.messageformat import BadMessage, Message
from store.usermove.peer import Peer

log = logging.getLogger(__name__)

TABLE = re.compile(r"(?:mboxlist|partitions/[A-Za-z0-9][A-Za-z0-9._-]*/index)/[a-z]+\.db")
TABLES = 10_000             # that there may be
KEPT = "not-brought-home"   # a folder in the folder of what is set aside

Progress = Callable[[str, int, int], None]      # what is done, how many, out of how many


@frozen
class Refused:
    """Mail of one mailbox that the other machine does not take, and why."""

    mail: StrandedMail
    why: str


@frozen
class Promoted:
    """The promotions that the other machine knows of; the identity of its list of mailboxes; the tables of the common
    place that it has kept, and the promotions that had been before that; the partitions that it does not have, and
    those that have come `home` since."""

    lineage: Lineage
    identity: str
    files: list[tuple[str, int]]
    common: tuple[str, ...]
    absent: dict[str, str] = field(factory=dict)
    home: tuple[str, ...] = ()

    def has_common_place(self, ours: Lineage) -> bool:
        """Whether what it has kept is where both parted, and not where it parted from a third machine: then UIDs that
        only this machine gave out are below those that were given out at that place."""
        before = len(self.common)
        return (bool(self.files) and ours.line[:before] == self.common
                and ours.line[before:before + 1] != self.lineage.line[before:before + 1])


@define(eq=False)
class HomePeer:
    """A connection to the promoted machine. Every method raises StoreError: its refusal, or UNAVAILABLE."""

    peer: Peer

    def promoted(self, ours: Lineage) -> Promoted:
        """What it has been promoted from; `ours` are the promotions that are known here."""
        said = self.peer.ask_for({"op": "home files", "promotion": newest(ours)})
        with self._understood():
            files = [(str(name), int(size)) for name, size in said.list("files", TABLES)]
            if not all(TABLE.fullmatch(name) for name, _ in files):
                raise BadMessage("a table that there is not")
            return Promoted(Lineage.of(said), said.text("identity"), files, tuple(said.texts("common", LINE)),
                            absent_of(said), tuple(said.texts("home", TABLES)))

    def other(self) -> Other:
        """Which promotions it knows of."""
        said = self.peer.ask_for({"op": "copy succession"})
        with self._understood():
            return Other.of(said)

    def passed(self, store: Store) -> None:
        """Have it give out no number that this store has given out. From here on this store is not served: what came
        meanwhile to what has been brought would not be looked for again."""
        succession.note_other(store.root, self.peer.host, self.other())
        mailbox, validity = store.mailboxes.last_identity()
        self.peer.ask_for({"op": "home passed", "mailbox": int(mailbox), "validity": validity, "epochs": {
            name: partition.epoch for name, partition in store.partitions.items()}})

    def file(self, name: str, at: int) -> bytes:
        """Octets of a table."""
        return self.peer.ask_for({"op": "home file", "name": name, "at": at}).octets

    def mailbox(self, mail: StrandedMail) -> bool:
        """Have the mailbox there; whether it is the one that both had."""
        entry = mail.view.entry
        said = self.peer.ask_for({"op": "home mailbox", "mailbox": int(entry.id), "uidvalidity": entry.uidvalidity,
                                  "name": str(entry.name)})
        with self._understood():
            return said.truth("same")

    def elsewhere(self, partition: str, mailboxes: Sequence[MailboxId]) -> set[MailboxId]:
        """Which of these are on another partition there."""
        octets = np.array(mailboxes, "<u4").tobytes()
        said = self.peer.ask_for({"op": "home places", "partition": partition}, octets)
        with self._understood():
            return {mailboxes[place] for place in said.numbers("elsewhere", len(mailboxes)) if place < len(mailboxes)}

    def had(self, mailboxes: Sequence[MailboxId], digests: Sequence[bytes]) -> set[bytes]:
        """Which of these digests messages of these mailboxes had at the promotion."""
        return self._which({"op": "home had", "mailboxes": [int(each) for each in mailboxes]}, digests)

    def _which(self, question: Mapping[str, Any], digests: Sequence[bytes]) -> set[bytes]:
        found = set[bytes]()
        for at in range(0, len(digests), DIGESTS):
            some = digests[at:at + DIGESTS]
            said = self.peer.ask_for(question, b"".join(some))
            with self._understood():
                found.update(some[place] for place in said.numbers("had", DIGESTS) if place < len(some))
        return found

    def known(self, owner: str, digests: Sequence[bytes]) -> set[bytes]:
        """Which of these digests messages of that owner have now, or had lately."""
        return self._which({"op": "home known", "owner": owner}, digests)

    def there(self, mail: StrandedMail, since: int, digests: Sequence[bytes]) -> Counter[bytes]:
        """How many messages with these digests have come to it there, with UIDs from `since` on."""
        found = Counter[bytes]()
        for at in range(0, len(digests), DIGESTS):
            some = digests[at:at + DIGESTS]
            said = self.peer.ask_for({"op": "home there", "mailbox": int(mail.view.entry.id), "since": since},
                                     b"".join(some))
            with self._understood():
                counts = said.numbers("counts", DIGESTS)
                if len(counts) != len(some):
                    raise BadMessage("other messages than were asked for")
            found.update(dict(zip(some, counts, strict=True)))
        return found

    def message(self, fields: Mapping[str, Any], octets: Iterator[bytes]) -> None:
        """Deliver a message. When this returns, it is on disk there."""
        said: Message | None = None
        for some in octets:
            said = self.peer.ask_for({"op": "home octets"} if said is not None else {"op": "home message", **fields},
                                     some)
        with self._understood():
            if said is None or not said.number("uid"):
                raise BadMessage("a message did not come whole")

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (BadMessage, ValueError, TypeError) as error:
            raise self.peer.unclear(str(error)) from error


def newest(ours: Lineage) -> str:
    """The identity of the last promotion; "" where there was none."""
    return "".join(ours.line[-1:])


def fetch(peer: HomePeer, files: Sequence[tuple[str, int]], folder: Path) -> None:
    """Have the tables of the common place in an empty folder. Raises StoreError, OSError."""
    for name, size in files:
        path = folder / name
        privatefiles.make_folder(path.parent, parents=True, exist_ok=True)
        with privatefiles.open_file(path, "xb") as file:
            while file.tell() < size and (octets := peer.file(name, file.tell())):
                file.write(octets)
            if file.tell() != size:
                raise StoreError(Problem.UNAVAILABLE, f"{name} did not come whole")


def find(store: Store, peer: HomePeer, promoted: Promoted, ours: Lineage,
         without: Collection[MailboxId] = frozenset()) -> Stranded:
    """What only this store has, but for what is in the mailboxes `without`. Raises StoreError, OSError."""
    if not promoted.has_common_place(ours):
        return stranded.find_without(store, peer.known, without)
    with scratch(store.root, "rejoin") as folder:
        fetch(peer, promoted.files, folder)
        with commonplace.opened(folder) as common:
            return stranded.find(store, common, peer.had, without)


@define(eq=False)
class SendingHome:
    """Delivers mail to the promoted machine. `brought` and `there` are how many messages were, or had been there."""

    store: Store
    peer: HomePeer
    progress: Progress
    brought: int = field(default=0, init=False)
    there: int = field(default=0, init=False)
    refused: list[Refused] = field(factory=list, init=False)

    def bring(self, mail: Sequence[StrandedMail]) -> None:
        """All of it; what is not taken is `refused`. Raises StoreError UNAVAILABLE, CORRUPT and others that concern no
        single mailbox."""
        total = sum(len(each.rows) for each in mail)
        for each in mail:
            try:
                since = each.since if self.peer.mailbox(each) else 1
            except StoreError as error:
                if error.problem not in (Problem.NO_USER, Problem.BAD_NAME, Problem.NO_PERMISSION, Problem.LIMIT,
                                         Problem.NO_MAILBOX):
                    raise
                self.refused.append(Refused(each, str(error)))
                continue
            left = self.peer.there(each, since, sorted({row["digest"].tobytes() for row in each.rows}))
            for row in each.rows:
                digest = row["digest"].tobytes()
                if left[digest]:
                    left[digest] -= 1
                    self.there += 1
                else:
                    self.peer.message(*self._message(each, row))
                    self.brought += 1
                self.progress("messages", self.brought + self.there, total)

    def _message(self, mail: StrandedMail, row: np.void) -> tuple[Mapping[str, Any], Iterator[bytes]]:
        size, trace = int(row["size"]), _own_header(self.store, mail, row)
        fields = {"mailbox": int(mail.view.entry.id), "trace": trace, "size": size, "flags": int(row["flags"]) & 31,
                  "keywords": list(mail.view.keyword_names(int(row["keywords"]))), "received": int(row["received"]),
                  "zone": int(row["zone"]) + 1440}
        return fields, _octets(self.store, mail, row, trace)


def _own_header(store: Store, mail: StrandedMail, row: np.void) -> int:
    """Octets of header fields in front of the message that are not in its digest. Raises StoreError CORRUPT."""
    digest = row["digest"].tobytes()
    record = store.partition(mail.view.entry.partition).look_at_file(digest)
    if record is None:
        raise StoreError(Problem.CORRUPT, "A message cannot be read", f"{digest.hex()} is not on record")
    found = int(row["size"]) - (record.size - record.trace)
    if not 0 <= found <= TRACE:
        raise StoreError(Problem.CORRUPT, "A message cannot be read", f"{digest.hex()} has another size")
    return found


def _octets(store: Store, mail: StrandedMail, row: np.void, trace: int) -> Iterator[bytes]:
    size, at = int(row["size"]), 0
    with store.open_message(mail.view.entry, row) as file:
        while at < size or not at:
            octets = file.read(at, max(OCTETS, trace))
            if not octets and size:
                raise StoreError(Problem.CORRUPT, "A message cannot be read", f"it ends {size - at} octets early")
            yield octets
            at += len(octets)
            if not size:
                return


def keep(store: Store, refused: Sequence[Refused], aside: Path) -> int:
    """Write what is not taken to files `not-brought-home/<mailbox>/<UID>.eml` in the folder `aside`, on disk; how many.
    Raises StoreError CORRUPT, OSError."""
    count = 0
    for each in refused:
        place = aside / KEPT / str(each.mail.view.entry.name)
        privatefiles.make_folder(place, parents=True, exist_ok=True)
        with Folder.at(place) as folder:
            for row in each.mail.rows:
                with (store.open_message(each.mail.view.entry, row) as message,
                      privatefiles.replacing(place / f"{row['uid']}.eml") as file):
                    for octets in message.pieces():
                        file.write(octets)
                count += 1
            folder.sync()
    return count


