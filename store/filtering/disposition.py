"""What the outcome of a script means in the store: targets of a delivery, and what follows in its transaction."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from attrs import define, evolve, field, frozen

from mboxlist.entry import MailboxEntry
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.events import outgoingfiles, outgoingmail
from store.filtering.answering import (
    Letter,
    circles,
    failure_note,
    mail_addresses,
    no_answer,
    notice,
    sent_on,
    vacation,
)
from store.filtering.sievesettings import Settings
from store.filtering.storesurroundings import mailbox_of, mailbox_of_id, owned_key, seen_key, special
from store.mailboxes import authorization
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.problems import NOT_NOW
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptoutcome import KEPT, Copied, Edition, Filed, Outcome, Redirected, Refused
from store.sieve.surroundings import Envelope
from store.store import Store
from store.values import Flag, Flags

log = logging.getLogger(__name__)

FAILURE_NOTES = 86_400          # seconds between two notes of one failure
_TOO_MANY = "the scripts of the user have sent enough for this hour (sieve.hourly)"
_TOO_LARGE = f"a message of more than {outgoingmail.LARGEST} octets cannot leave"
_SYSTEM = {"\\answered": Flag.ANSWERED, "\\flagged": Flag.FLAGGED, "\\deleted": Flag.DELETED, "\\seen": Flag.SEEN,
           "\\draft": Flag.DRAFT}

NO_FLAGS = Flags()

Follow = Callable[[WriteTxn], None]


@frozen
class Disposition:
    """What is done with a message for one recipient.

    `targets`: the message as it came; the first of them has what follows. `others`: messages that are another one,
    whole, each with its target; `copies` are no mail that came: notes to the owner, copies of what is sent. `refused`:
    it is not taken. `failure`: why its script did not run to its end; `notes`: what it wanted and could not have, for
    the log and `onecopy sieve test`.
    """

    targets: tuple[Target, ...]
    others: tuple[tuple[bytes, Target], ...] = ()
    copies: tuple[tuple[bytes, Target], ...] = ()
    refused: Refused | None = None
    failure: str = ""
    notes: tuple[str, ...] = ()


@define(eq=False)
class Disposer:
    """For one message and one recipient. `base` is where it goes without a script; `group` is the number of its
    targets; `addresses` gives those of the owner; `create` makes a mailbox of the owner, or gives None. `may_send`:
    whether the owner may send so many letters more; `keep` puts a large one on disk and gives its name.
    """

    store: Store
    settings: Settings
    base: Target
    message: ReceivedMail           # as it came
    envelope: Envelope
    now: datetime
    group: int
    addresses: Callable[[], frozenset[str]]
    create: Callable[[str, str], MailboxEntry | None]
    may_send: Callable[[int], bool] = lambda letters: True
    keep: Callable[[Path, bytes], str] = outgoingfiles.keep
    notes: list[str] = field(factory=list)
    _follows: list[Follow] = field(factory=list)
    _others: list[tuple[bytes, Target]] = field(factory=list)
    _copies: list[tuple[bytes, Target]] = field(factory=list)

    @property
    def user(self) -> str:
        return self.base.entry.name.owner

    @property
    def partition(self) -> Partition:
        return self.store.partition(self.base.entry.partition)

    @property
    def begin(self) -> bytes:
        """What keys of `arrivals.db` begin with that are the owner's."""
        return owned_key(self.store, self.base.entry)

    def only_tried(self, made: list[str]) -> None:
        """Nothing counts, is made, or put on disk; `made` gets the names of mailboxes that would be made."""
        def create(name: str, use: str) -> None:
            made.append(name)

        self.create, self.may_send, self.keep = create, lambda letters: True, lambda root, octets: ""

    def dispose(self, outcome: Outcome) -> Disposition:
        """What the outcome means."""
        if outcome.refused is not None:
            return Disposition((), refused=outcome.refused)
        files = outcome.files
        if (outcome.redirects or outcome.seen or outcome.notices or outcome.answer is not None) and not self.send(
                outcome) and not any(one.mailbox == KEPT for one in files):
            files = [*files, Filed()]       # what cannot be sent on stays
        if outcome.failure:
            self.tell_owner(outcome.failure)
        targets = self._targets(files)
        if not targets:
            targets = [evolve(self.base, filed=False, group=self.group)]
        if self._follows:
            targets[0] = evolve(targets[0], follows=tuple(self._follows))
        return Disposition(tuple(targets), tuple(self._others), tuple(self._copies), failure=outcome.failure,
                           notes=tuple(self.notes))

    @property
    def follows(self) -> tuple[Follow, ...]:
        """What is to be done in the transaction that files the message."""
        return tuple(self._follows)

    @property
    def copies(self) -> tuple[tuple[bytes, Target], ...]:
        """See Disposition."""
        return tuple(self._copies)

    def send(self, outcome: Outcome) -> bool:
        """Have what leaves written to the outbox, and what is remembered noted, by `follows`; whether the message can
        be sent on to all that the outcome names."""
        sent = not outcome.redirects or self._send_on(outcome)
        if outcome.answer is not None or outcome.notices:
            self._answer(outcome)
        for seen in outcome.seen:
            self._follows.append(partial(_remember, seen_key(self.begin, seen.key), seen.seconds))
        return sent

    # Mailboxes

    def _targets(self, files: Iterable[Filed]) -> list[Target]:
        """A target for each mailbox that gets the message as it is, with all flags that it is to have there."""
        found: dict[tuple[int, bytes], Target] = {}
        for filed in files:
            entry = self._entry(filed)
            target = self._target(entry, self._allowed(entry, filed.flags), filed.edition.added + self.base.header)
            if filed.edition.whole is not None:
                self._others.append((filed.edition.whole, evolve(target, group=0, suppress=0, repeat=0,
                                                                 header=self.base.header)))
                continue
            key = entry.id, target.header
            found[key] = target if key not in found else evolve(target, flags=_both(found[key].flags, target.flags))
        return list(found.values())

    def _target(self, entry: MailboxEntry, flags: Flags, header: bytes) -> Target:
        """`base`, but for these: `evolve` costs ten times as much."""
        base = self.base
        return Target(entry, flags, base.ignore_quota, base.reader, base.own, base.appended, header, base.suppress,
                      base.repeat, self.group)

    def _entry(self, filed: Filed | Copied) -> MailboxEntry:
        """The mailbox that is meant, or that of `base` when there is none (RFC 5228 §4.1)."""
        return self.base.entry if filed.mailbox == KEPT else self.find(filed) or self.base.entry

    def find(self, filed: Filed | Copied) -> MailboxEntry | None:
        """The mailbox that is named; it may be made."""
        found = special(self.store, self.user, filed.special_use) if filed.special_use else None
        if filed.mailbox_id:
            found = mailbox_of_id(self.store, self.user, filed.mailbox_id)
        found = found or mailbox_of(self.store, self.user, filed.mailbox)
        if found is None and (filed.create or filed.special_use):
            found = self.create(filed.mailbox, filed.special_use)
        if found is None:
            self.notes.append(f"there is no mailbox {filed.mailbox} to file into")
        return found

    def _allowed(self, entry: MailboxEntry, names: Sequence[str]) -> Flags:
        """The flags of these names that the owner of the script may set there (RFC 4314 §4)."""
        if not names:
            return NO_FLAGS
        return self.allowed(entry, flags_of(names))

    def allowed(self, entry: MailboxEntry, flags: Flags) -> Flags:
        """Those of the flags that the owner of the script may set there (RFC 4314 §4)."""
        system, keywords = authorization.changeable(self.store, self.user, entry)
        return Flags(flags.system & system, flags.keywords if keywords else ())

    # What leaves

    def _send_on(self, outcome: Outcome) -> bool:
        """Have the message sent to all addresses; whether all of that can be done. Raises StoreError, one of NOT_NOW.
        """
        why = circles(self.message, self.envelope)
        if not self.settings.redirects or len(outcome.redirects) > self.settings.redirects:
            why = f"messages are sent on to {self.settings.redirects} addresses at most (sieve.redirects)"
        if not why and not outgoingmail.may_leave(self.store.recorder):
            why = "no mail can leave: no relay is configured, or too much waits for it"
        if not why and not self.may_send(len(outcome.redirects)):
            why = _TOO_MANY
        if why:
            self.notes.append(f"the message was not sent on: {why}")
            return False
        try:
            posts = self._posts(outcome.redirects)
        except StoreError as error:
            if error.problem in NOT_NOW:        # it is done again as a whole, and nothing is kept in its place
                raise
            self.notes.append(f"the message was not sent on: {error}")
            return False
        self._follows += posts
        return True

    def _posts(self, redirects: Sequence[Redirected]) -> list[Follow]:
        """What sends the message on to each; a large one is on disk as a file. Raises StoreError."""
        found: list[Follow] = []
        files: dict[Edition, str] = {}
        sender = {"sender": self.envelope.sender, "recipient": self.envelope.recipient}.get(
            self.settings.redirect_sender, "")
        for redirected in redirects:
            octets = self._octets(redirected.edition)
            letter = sent_on(redirected, octets, self.message, self.envelope, sender)
            if len(letter.octets) <= outgoingmail.LARGEST:
                found.append(partial(_post, letter))
                continue
            if redirected.edition not in files:
                files[redirected.edition] = self.keep(self.store.root, letter.octets)
            found.append(partial(_post_file, letter.sender, letter.recipient, files[redirected.edition]))
        return found

    def _octets(self, edition: Edition) -> bytes:
        if edition.whole is not None:
            return edition.whole
        return edition.added + self.message.read(0, self.message.size)

    def _answer(self, outcome: Outcome) -> None:
        """Vacation and notices. What cannot leave is left, and noted; the message is filed all the same."""
        leaves = outgoingmail.may_leave(self.store.recorder)
        if outcome.answer is not None and self.settings.vacation:
            answer = outcome.answer
            owned = {*self.addresses(), self.envelope.recipient, *answer.addresses}
            why = no_answer(self.message, self.envelope, owned)
            key = seen_key(self.begin, f"vacation\0{answer.handle}\0{self.envelope.sender.lower()}")
            any_answer = seen_key(self.begin, f"answered\0{self.envelope.sender.lower()}")     # whatever the handle
            if not why and any(map(self.partition.duplicates.is_noted, (key, any_answer))):
                why = "its sender has had an answer lately"
            if not why and not leaves:
                why = "no mail can leave: no relay is configured, or too much waits for it"
            if not why and not self.may_send(1):
                why = _TOO_MANY
            letter = None if why else vacation(answer, self.message, self.envelope, self.now)
            if letter is not None and len(letter.octets) > outgoingmail.LARGEST:
                why = _TOO_LARGE
            if letter is None or why:
                self.notes.append(f"no vacation answer: {why}")
            else:
                keys = {key: max(answer.seconds, self.settings.vacation_least)}
                if self.settings.vacation_least:
                    keys[any_answer] = self.settings.vacation_least
                self._follows.append(partial(_answer_once, keys, letter))
                self._file_copy(letter, answer.copy)
        for notified in outcome.notices:
            automatic = any("auto-notified" in text.lower() for text in self.message.texts("auto-submitted"))
            if not leaves or automatic:
                self.notes.append("no notice: " + ("it is one itself" if automatic else "no mail can leave"))
                continue
            for address in mail_addresses(notified.method)[:self.settings.redirects]:
                letter = notice(notified, address, self.message, self.envelope, self.now)
                too_large = len(letter.octets) > outgoingmail.LARGEST
                if too_large or not self.may_send(1):
                    self.notes.append(f"no notice: {_TOO_LARGE if too_large else _TOO_MANY}")
                    continue
                self._follows.append(partial(_post, letter))
                self._file_copy(letter, notified.copy)

    def tell_owner(self, failure: str, became: str = "was kept in your INBOX") -> None:
        """The script has failed: a note to the owner, once a day for each kind of failure."""
        key = seen_key(self.begin, f"failure\0{failure}")
        if not self.partition.duplicates.is_noted(key):
            self._follows.append(partial(_remember, key, FAILURE_NOTES))
            note = failure_note(failure, self.message, self.envelope, self.now, became)
            self._copies.append((note, evolve(self.base, header=b"", suppress=0, repeat=0)))

    def _file_copy(self, letter: Letter, copy: Copied | None) -> None:
        """RFC 8580."""
        if copy is not None:
            entry = self._entry(copy)
            self._copies.append((letter.octets, evolve(
                self.base, entry=entry, flags=self._allowed(entry, copy.flags), header=b"", suppress=0,
                repeat=0)))


def flags_of(names: Iterable[str]) -> Flags:
    """The flags of these names."""
    system, keywords = Flag(0), []
    for name in names:
        bit = _SYSTEM.get(name.lower())
        if bit is None:
            keywords.append(name)
        else:
            system |= bit
    return Flags(system, tuple(keywords))


def _both(one: Flags, other: Flags) -> Flags:
    return Flags(one.system | other.system, tuple(dict.fromkeys((*one.keywords, *other.keywords))))


def _remember(key: bytes, seconds: int, txn: WriteTxn) -> None:
    txn.partition.duplicates.add(key, seconds, txn.handle)


def _post(letter: Letter, txn: WriteTxn) -> None:
    recorder = txn.partition.recorder
    if recorder is None:
        raise StoreError(Problem.UNAVAILABLE, "No mail can leave")
    outgoingmail.add(recorder, txn.partition.outbox, letter.sender, (letter.recipient,), letter.octets, txn.handle)


def _post_file(sender: str, recipient: str, name: str, txn: WriteTxn) -> None:
    recorder = txn.partition.recorder
    if recorder is None:
        raise StoreError(Problem.UNAVAILABLE, "No mail can leave")
    outgoingmail.add_file(recorder, txn.partition.outbox, sender, recipient, name, txn.handle)


def _answer_once(keys: Mapping[bytes, int], letter: Letter, txn: WriteTxn) -> None:
    """Unless another message of the same sender was quicker. `keys`: with the seconds for which each holds."""
    if any([txn.partition.duplicates.counts(key, txn.handle) for key in sorted(keys)]):
        return
    for key, seconds in keys.items():
        txn.partition.duplicates.add(key, seconds, txn.handle)
    _post(letter, txn)
