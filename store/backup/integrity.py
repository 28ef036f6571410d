"""Whether archives are whole: every octet is read, and every digest compared."""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from store.backup.archive import BESIDE, CATALOGUE, CATALOGUE_OCTETS, TOTALS, Archive, Catalogue, in_memory, parse_name
from store.backup.tarmembers import Cut, Lost, Member
from store.errors import StoreError
from store.userarea import idxreading
from store.userarea.idxreading import Salvaged

DIGESTS_UNSORTED = 1 << 16


@define
class Verified:
    """What was found. `elsewhere` are references to messages in earlier archives that were not given."""

    messages: int = 0
    octets: int = 0
    mailboxes: int = 0
    records: int = 0
    elsewhere: int = 0
    findings: list[str] = field(factory=list)


Progress = Callable[[Verified], None]


@define(eq=False)
class Seen:
    """Digests, of which the first 8 octets are kept: 8 MB for a million."""

    _sorted: list[NDArray[np.uint64]] = field(factory=list)
    _new: list[int] = field(factory=list)

    def add(self, digest: bytes) -> None:
        self._new.append(int.from_bytes(digest[:8], "little"))
        if len(self._new) >= DIGESTS_UNSORTED:
            self._sort()

    def lacks(self, digests: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which of these digests have not been added."""
        self._sort()
        wanted = np.frombuffer(digests.tobytes(), np.uint64)[::4]
        lacks = np.ones(len(wanted), np.bool_)
        for each in self._sorted:
            at = np.minimum(np.searchsorted(each, wanted), len(each) - 1)
            lacks &= each[at] != wanted
        return lacks

    def _sort(self) -> None:
        if self._new:
            self._sorted.append(np.sort(np.array(self._new, np.uint64)))
            self._new = []
        while len(self._sorted) > 1 and len(self._sorted[-2]) < 2 * len(self._sorted[-1]):
            last = self._sorted.pop()
            self._sorted[-1] = np.sort(np.concatenate((self._sorted[-1], last)))


def verify(archives: Sequence[Archive], progress: Progress = lambda so_far: None) -> Verified:
    """Read these archives, a full one and those that continue it. Raises StoreError UNAVAILABLE."""
    done, seen = Verified(), Seen()
    for archive in archives:
        if archive.path is not None:
            archive.catalogue()
    ordered = sorted(archives, key=lambda archive: len(archive.manifest.since) if archive.manifest is not None else 0)
    given: set[str] = set()
    for archive in ordered:
        before = len(done.findings)
        _Verifying(archive, done, seen, given, progress).run()
        if len(done.findings) > before and archive.manifest is None:
            done.findings.append(f"{archive.name}: it has no manifest")
        if archive.manifest is not None:
            given.add(archive.manifest.id)
    return done


@define(eq=False)
class _Verifying:
    """One archive."""

    archive: Archive
    done: Verified
    seen: Seen
    given: set[str]
    progress: Progress
    _listed: dict[str, tuple[int, int, int]] = field(factory=dict, init=False)
    _catalogue: Catalogue | None = field(default=None, init=False)
    _digest: str = field(default="", init=False)        # over all members before the totals
    _counts: list[int] = field(factory=lambda: [0, 0, 0, 0, 0], init=False)     # as in Totals

    def run(self) -> None:
        for member in self.archive.members():
            if isinstance(member, Lost):
                self._tell(f"{member.octets} octets from {member.offset} on cannot be read")
                continue
            try:
                self._look(member)
            except Cut:
                self._tell(f"{member.name} is damaged")
            self._counts[4] += member.name != TOTALS
            self.progress(self.done)
        self.done.findings += self.archive.wrong()
        self._compare()

    def _tell(self, finding: str) -> None:
        self.done.findings.append(f"{self.archive.name}: {finding}")

    def _look(self, member: Member) -> None:
        place = parse_name(member.name)
        if place is None:
            if member.name == TOTALS:
                self._digest = member.before.hexdigest()
            elif member.name == CATALOGUE:
                data = member.octets(CATALOGUE_OCTETS)
                if self.archive.manifest is not None:
                    try:
                        self._catalogue = Catalogue.from_bytes(self.archive.manifest, data)
                    except StoreError:
                        raise Cut from None
            elif member.name.startswith(BESIDE):
                member.octets(1 << 30)
        elif place[1] == "messages":
            self._message(place[2], member)
        else:
            self._mailbox(member)

    def _message(self, digest: bytes, member: Member) -> None:
        trace = int(member.said.get("trace", "0"))
        whole, content, at = blake2b(digest_size=32), blake2b(digest_size=32), 0
        for data in member.data():
            whole.update(data)
            content.update(data[max(0, trace - at):])
            at += len(data)
        if content.digest() != digest or whole.hexdigest() != member.said.get("digest"):
            raise Cut
        self.seen.add(digest)
        self._counts[0] += 1
        self._counts[1] += member.size
        self.done.messages += 1
        self.done.octets += member.size

    def _mailbox(self, member: Member) -> None:
        digest = blake2b(digest_size=32)
        with in_memory() as file:
            for data in member.data():
                file.write(data)
                digest.update(data)
            if digest.hexdigest() != member.said.get("digest"):
                raise Cut
            file.seek(0)
            left = idxreading.decode_what_is_left(file)
        for finding in left.findings:
            self._tell(f"{member.name}: {finding}")
        if left.head is not None:
            self._references(left)
            self._listed[left.head.name] = left.head.uidnext, left.head.highestmodseq, left.head.records
            self._counts[2] += 1
            self._counts[3] += len(left.rows)
            self.done.mailboxes += 1
            self.done.records += len(left.rows)

    def _references(self, left: Salvaged) -> None:
        lacks = self.seen.lacks(left.rows["digest"])
        manifest = self.archive.manifest
        if not lacks.any() or left.head is None:
            return
        if manifest is not None and set(manifest.since) - self.given:
            self.done.elsewhere += int(np.count_nonzero(lacks))
        else:
            uid = int(left.rows["uid"][lacks][0])
            self._tell(f"{left.head.name}: {np.count_nonzero(lacks)} messages are not there, the first is UID {uid}")

    def _compare(self) -> None:
        totals, manifest = self.archive.totals, self.archive.manifest
        if totals is None:
            self._tell("it has no totals")
        else:
            wanted = [totals.messages, totals.octets, totals.mailboxes, totals.records, totals.members]
            self._counts[4] += 1                # the manifest
            if self._counts != wanted:
                self._tell(f"messages, octets, mailboxes, records, members: {wanted} by the totals, {self._counts} "
                           "found")
            if self._digest != totals.digest:
                self._tell("all together is not what the digest of the totals says")
        if self._catalogue is None or manifest is None:
            self._tell("it has no catalogue")
            return
        for each in self._catalogue.mailboxes.values():
            if each.archive == manifest.id and self._listed.pop(each.name, None) != (
                    each.uidnext, each.highestmodseq, each.records):
                self._tell(f"{each.name}: it is not what the catalogue says, or not there")
        for name in self._listed:
            self._tell(f"{name}: the catalogue does not have it")


