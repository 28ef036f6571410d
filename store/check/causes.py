"""Of several findings that one fault makes, the cause is told, and how many follow from it.

A lost row of the list makes records that are in no mailbox, a quota that fits no mailbox, and messages that are counted
too often: who reads all of these does not see that one command mends one fault.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from attrs import define, evolve, field

from mboxlist.entry import MailboxId
from mboxlist.names import MailboxName, NameProblem
from store.errors import StoreError
from store.partition.filecontent import likely_digests
from store.partition.partition import Partition
from store.rebuild.salvage import readable
from store.store import Store
from store.tables.index import Rows, chunk_key
from store.userarea import idxreading
from store.userarea.paths import owner_of, place
from store.userarea.writing import right_place
from store.values import RECONSTRUCT, Finding

#: What a mailbox may have lost: the first of these that is found is the cause of the others.
_CAUSES = [re.compile(pattern) for pattern in (
    r"of which nothing else is left", r"is on partition .* which does not exist|has the same id",
    r"is not in the list$", r"is on .* by the list", r"also on record as deleted|do not say so", r"last one given",
    r"has no figures$", r"^index chunk", r"figures say that it was deleted", r"MODSEQ is above|not below UIDNEXT",
    r"in its figures, .* in its records", r"")]
_OF_FILE = re.compile(r"^it (is missing|says other things|has other records|is ahead)")
#: What follows from them, of the same mailbox;
_OF_MAILBOX = re.compile(
    r"of a mailbox that has no figures|is not in the list|in its figures|is charged to quota root|last one given"
    r"|has no figures|is not found by its id|was expunged|UIDs do not ascend|UIDNEXT|MODSEQ|its figures|by the list"
    r"|is not what is known of its message|octets of expunged UIDs")
#: and of its messages.
_OF_MESSAGE = re.compile(r"refer to it, counted are|not those that were counted|does not wait for the purge")
_MESSAGES = re.compile(r"and nothing is known of it$|octets instead of .* is whole|its trace header is")
_SERIAL = re.compile(r"arrival serial (\d+)")
#: A row of the list that is another's: what its mailbox has is in no list then.
_ROW = re.compile(r"last one given|has no figures$|has the same id as (.*?)(?: \(and |$)")
_UNLISTED = re.compile(r"of a mailbox that is not in the list$")


def causes_among(store: Store, findings: Sequence[Finding]) -> list[Finding]:
    """The causes among these findings, in their order."""
    return _Causes(store, list(findings)).run()


@define(eq=False)
class _Causes:
    store: Store
    left: list[Finding]
    _follow: dict[Finding, int] = field(factory=dict)

    def run(self) -> list[Finding]:
        """See `causes_among`."""
        self._other_names()
        self._messages()
        for mailbox, here in self._by_mailbox().items():
            self._mailbox(mailbox, here)
        self._other_ids()
        return [evolve(finding, what=f"{finding.what} (and {count} findings that follow from it)")
                if (count := self._follow.get(finding, 0)) else finding for finding in self.left]

    def _drop(self, cause: Finding, consequences: Sequence[Finding]) -> None:
        for finding in consequences:
            if finding is not cause and finding in self.left:
                self.left.remove(finding)
                self._follow[cause] = self._follow.get(cause, 0) + 1 + self._follow.pop(finding, 0)

    # Message files

    def _other_names(self) -> None:
        """A file that nobody knows has a message that is missing."""
        missing = {finding.where: finding for finding in self.left if finding.what == "its file is missing"}
        for finding in list(self.left) if missing else ():
            if finding.what == "nothing is known of this file":
                try:
                    held = [f"message {digest.hex()}" for digest in likely_digests(Path(finding.where))]
                except OSError:
                    continue
                lost = next((missing[where] for where in held if where in missing), None)
                if lost is not None:
                    cause = Finding(f"it is {lost.where}, under another name", finding.where, RECONSTRUCT)
                    self.left[self.left.index(finding)] = cause
                    self._drop(cause, [lost])

    def _messages(self) -> None:
        """The records of a message of which messages.db says something else, or whose arrival serial is another's."""
        causes = {finding: places for finding in self.left if (places := self._about(finding))}
        for cause in sorted(causes, key=lambda finding: not _SERIAL.search(finding.what)):
            if cause in self.left:
                self._drop(cause, [finding for finding in self.left if finding.where in causes[cause]
                                   or f"message {Path(finding.where).name}" in causes[cause]])
        left = {place: cause for cause, places in causes.items() if cause in self.left for place in sorted(places)}
        for mailbox, here in self._by_mailbox().items() if left else ():
            digests = {f"message {digest.hex()}" for digest in self._digests(mailbox)} & left.keys()
            if digests:
                self._drop(left[min(digests)], [finding for finding in here if "not what is known" in finding.what])

    def _about(self, finding: Finding) -> set[str]:
        """The places of the messages that are wrong by it; empty when it is about something else."""
        if _MESSAGES.search(finding.what):
            return {finding.where}
        serial = _SERIAL.search(finding.what)
        return set() if serial is None else {
            f"message {digest.hex()}" for partition in self._partitions() if finding.where == f"partition "
            f"{partition.name}" for digest, record in partition.refs.all() if record.serial == int(serial[1])}

    # Mailboxes

    def _by_mailbox(self) -> dict[MailboxId, list[Finding]]:
        places: dict[str, MailboxId] = {}
        for entry, removed in [*((entry, 0) for entry in self.store.mailboxes.all()),
                               *((entry, when) for when, entry in self.store.mailboxes.deleted.all())]:
            places[f"{entry.name} (deleted)" if removed else str(entry.name)] = entry.id
            partition = self.store.partitions.get(entry.partition)
            if partition is not None:
                places[str(right_place(partition, entry, removed))] = entry.id
        found: dict[MailboxId, list[Finding]] = {}
        for finding in self.left:
            number = re.match(r"mailbox (\d+)", finding.where) or re.match(r"it is of mailbox (\d+)", finding.what)
            mailbox = MailboxId(int(number[1])) if number else places.get(finding.where)
            if mailbox is not None:
                found.setdefault(mailbox, []).append(finding)
        return found

    def _mailbox(self, mailbox: MailboxId, here: list[Finding]) -> None:
        here = [finding for finding in here if finding in self.left]
        cause = next((finding for pattern in _CAUSES for finding in here if pattern.search(finding.what)
                      and not _OF_FILE.search(finding.what)), None)
        if cause is None:               # but for what the file says of the quota root
            roots = {f"quota root {root}" for root in self._roots(mailbox)} if here else set()
            cause = next((finding for finding in self.left if finding.where in roots), None)
            if cause is not None:
                self._drop(cause, [finding for finding in here if "says other things" in finding.what])
            return
        self._drop(cause, [finding for finding in here if _OF_FILE.search(finding.what)])
        of_messages = [finding for finding in self.left if _OF_MESSAGE.search(finding.what)]
        digests = {f"message {digest.hex()}" for digest in self._digests(mailbox)} if of_messages else set()
        roots = {f"quota root {root}" for root in self._roots(mailbox)}
        self._drop(cause, [
            *(finding for finding in here if _OF_MAILBOX.search(finding.what)),
            *(finding for finding in of_messages if finding.where in digests),
            *(finding for finding in list(self.left) if finding.where in roots)])

    def _other_ids(self) -> None:
        """Of a mailbox whose row has another one's id its store.idx tells."""
        unlisted = {int(finding.where.removeprefix("mailbox ")): finding for finding in self.left
                    if _UNLISTED.search(finding.what)}
        for cause in list(self.left) if unlisted else ():
            row = _ROW.search(cause.what)
            for name in [cause.where, row[1] or ""] if row is not None else ():
                with suppress(NameProblem):
                    places = [place(partition, MailboxName.parse(name)) for partition in self._partitions()]
                    self._drop(cause, [unlisted[owner] for path in places if (owner := owner_of(path)) in unlisted])

    def _owner(self, mailbox: MailboxId) -> str:
        """Of a mailbox of which nothing but its file is left, or that the list knows."""
        known = self.store.known(mailbox)
        if known is not None:
            return known[0].name.owner
        return next((name[1] for finding in self.left if (name := re.match(
            rf"it is of mailbox {mailbox}, user/([^/]+)/", finding.what))), "")

    def _partitions(self) -> Iterator[Partition]:
        yield from self.store.partitions.values()

    def _digests(self, mailbox: MailboxId) -> set[bytes]:
        """Of the messages that its records, or its file, have."""
        found: set[bytes] = set()
        for partition in self._partitions():
            rows: Rows = readable(mailbox, partition.index.scan(
                chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)))[0]
            found.update(rows["digest"].tolist())
        known = self.store.known(mailbox)
        places = [right_place(partition, *known) for partition in self._partitions()] if known else [
            Path(finding.where) for finding in self.left if finding.what.startswith(f"it is of mailbox {mailbox},")]
        for path in places:
            try:
                found.update(idxreading.read_what_is_left(path).rows["digest"].tolist())
            except StoreError:
                continue
        return found

    def _roots(self, mailbox: MailboxId) -> set[str]:
        states = [state for partition in self._partitions() if (state := partition.any_state(mailbox)) is not None]
        return {state.quota_root for state in states} | {self._owner(mailbox)}
