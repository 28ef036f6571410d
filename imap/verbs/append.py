"""APPEND: RFC 3501 §6.3.11, RFC 3502; APPENDUID is RFC 4315 §3. The messages go to the store as they arrive.

A client may send commands without waiting for answers (RFC 9051 §5.5). APPENDs of one message each, to one mailbox, are
delivered together if they have come whole when the first of them is carried out (`_gather`): they share syncs and one
transaction. Each is delivered or refused by itself, and answered in its turn, as any command is (`Session.ahead`).
Nothing of another kind of command is read before its turn.
"""

import logging
import re
from functools import partial

import numpy as np
from attrs import define, field

from imap import noting
from imap.refusals import BROKEN
from imap.session import Session
from imap.states import Refused, Reply, why_not
from imap.verbs.readonly import refusal
from imap.wire import responses
from imap.wire.append import NO_FLAGS, Append, Appended, is_message, parse_next_message
from imap.wire.commands import BadCommand, Head
from imap.wire.framer import CONTINUE, Frame, Message, Step, literal_at
from imap.wire.grammar import SyntaxProblem
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry, MailboxId
from store import offload
from store.delivery import durable, severalmessages
from store.delivery.commit import Delivered, Target
from store.delivery.sentahead import deliver_each
from store.errors import Problem, StoreError
from store.events.scriptevents import APPEND
from store.mailboxes import authorization
from store.mailboxes.authorization import changeable
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.quota import roots
from store.values import Flags

log = logging.getLogger(__name__)

HELD = 1 << 20              # octets of whole messages that one APPEND, or several that came together, keep in memory
_HEADER_END = re.compile(rb"\n\r?\n")


@define(eq=False)
class Header:
    """Looks for octets above 127 in the header of a message that comes in pieces (RFC 6855 §4)."""

    _end: bytes = b"\n"                     # the last octets, until the header has ended
    _over: bool = False

    def is_ascii(self, data: bytes) -> bool:
        """Whether the part of the header that is in these octets is ASCII."""
        if self._over:
            return True
        found = _HEADER_END.search(self._end + data)
        if found is None:
            self._end = (self._end + data)[-2:]
            return data.isascii()
        self._over = True
        return data[:max(0, found.end() - len(self._end))].isascii()


@define(eq=False)
class Arriving:
    """The messages of the APPEND that is being read, and what went wrong with them, if anything did."""

    entry: MailboxEntry
    command: Append                         # up to its first message,
    head: Head
    partition: Partition | None = None      # where the mailbox was when the last message began
    messages: list[Staged] = field(factory=list)
    octets: int = 0                         # of all of them
    secured: int = 0                        # how many of them are on disk,
    held: int = 0                           # and how many octets of the others are in memory
    failure: Exception | None = None
    outcome: int | StoreError | None = None     # its UID, or the refusal, when it was delivered with one before

    def abort(self) -> None:
        """Forget them."""
        for staged in self.messages:
            staged.abort()


async def receive(session: Session, wanted: Message) -> Step | None:
    """Take a message that a client has announced, or say what to do instead.

    A client that waits is asked for the message only after everything that can be known beforehand is in order.
    """
    framer = session.reading.framer
    try:
        arriving = _look_before(session, wanted)
        if arriving.held > HELD:
            await _make_room(session, arriving)
        assert arriving.partition is not None
        staged = await offload.change(session.store, arriving.partition.stage)
        arriving.messages.append(staged)
    except SyntaxProblem as problem:
        return framer.refuse(problem)
    except Refused as refused:
        return framer.refuse(SyntaxProblem(refused.public, code=refused.code, status=refused.status))
    except StoreError as error:
        reply = session.refusal(error)
        _note(session, session.arriving, error)
        return framer.refuse(SyntaxProblem(reply.text, code=reply.code, status=reply.status))
    except Exception:
        log.exception("%s: %s: APPEND failed", session.stream.id, session.user)
        return framer.refuse(SyntaxProblem(BROKEN[1], code=BROKEN[0], status=responses.NO))
    arriving.octets += wanted.size
    arriving.held += wanted.size
    if wanted.sync:
        session.stream.write(CONTINUE)
    header = None if session.utf8 or session.settings.eight_bit_headers else Header()
    left = wanted.size
    while left:
        data = await session.reading.some(left)
        left -= len(data)
        if arriving.failure is None:
            await _take(session, arriving, staged, data, header)
        if left:
            await session.stream.breathe()
    framer.streamed()
    return None


def _note(session: Session, arriving: Arriving | None, error: StoreError) -> None:
    """Note the refusal in the delivery log, for those who will ask why."""
    if arriving is not None:
        known = arriving.messages[-1].message_id if arriving.messages else b""
        noting.refused(session.store.delivery_log, "APPEND", session.stream, session.user, arriving.entry, error,
                       known)


async def _make_room(session: Session, arriving: Arriving) -> None:
    """Put the messages before the next one on disk if they are many: then they take neither memory nor open files."""
    partition = session.store.partition_of(arriving.entry)
    await severalmessages.secure(session.store, partition, arriving.messages[arriving.secured:])
    arriving.secured, arriving.held = len(arriving.messages), 0


async def _take(session: Session, arriving: Arriving, staged: Staged, data: bytes, header: Header | None) -> None:
    """Give octets of a message to the store; after a failure the rest is only read.

    RFC 3501 §9 has no NUL in a literal, but mail that holds some is kept as it is.
    """
    try:
        if header is not None and not header.is_ascii(data):
            raise Refused("Such a header is taken only after ENABLE UTF8=ACCEPT", b"CANNOT")
        if staged.write(data):
            await durable.spill(session.store, staged)
    except Exception as error:          # any: `append` raises it when the command is complete
        arriving.failure = error
        arriving.abort()


def _look_before(session: Session, wanted: Message) -> Arriving:
    """The messages so far, if one more can be added. Raises SyntaxProblem, Refused, StoreError, or what failed before.
    """
    arriving: Arriving | None = session.arriving
    if arriving is None:
        arriving = session.arriving = _first(session, wanted)
    else:
        if arriving.failure is not None:
            raise arriving.failure
        parse_next_message(wanted.frame[-1], wanted.frame[-3])
        arriving.messages[-1].scan()            # each one now, not all of them when the last one has come
    if not wanted.size:
        raise Refused("An empty message is not stored")
    if wanted.size > session.store.settings.message_limit:
        raise StoreError(Problem.TOO_BIG)
    arriving.partition, root = session.store.quota_of(arriving.entry)
    if not roots.fits(session.store, arriving.partition, root, arriving.octets + wanted.size):
        raise StoreError(Problem.OVER_QUOTA)
    session.arriving = arriving
    return arriving


def _first(session: Session, wanted: Message) -> Arriving:
    try:
        head = Head(wanted.frame)
        if session.state not in head.entry.states:
            raise SyntaxProblem(why_not(head.entry, session.state))
        command = head.value(session.reading.framer.limits, utf8=session.utf8)
    except BadCommand as bad:
        raise bad.problem from None
    if session.only_reads:
        raise refusal()                 # before the message is asked for
    return Arriving(session.target(command.mailbox), command, head)


async def append(session: Session, command: Append) -> Reply:
    """Deliver the messages that have arrived: all of them or none (RFC 3502 §6.3.11)."""
    arriving, session.arriving = session.arriving, None
    if arriving is None:
        raise SyntaxProblem("A message is expected")
    entry = arriving.entry
    try:
        if arriving.failure is not None:
            raise arriving.failure
        if arriving.outcome is None and session.stream.input_waiting and not session.ahead:
            await _deliver_group(session, await _gather(session, arriving))
        if isinstance(arriving.outcome, StoreError):
            raise arriving.outcome
        if arriving.outcome is not None:
            uids = [arriving.outcome]
        else:
            entry = _as_shared_now(session, entry)
            uids = await _deliver(session, arriving, entry, command)
        arriving.messages.clear()               # they are used up
    except StoreError as refusal:
        _note(session, arriving, refusal)
        return session.refusal(refusal, as_target=True)
    finally:
        if arriving.messages:
            after_commit(arriving.abort)
    reply = session.done("APPEND completed")
    if not authorization.may(session.store, session.user, entry, "r"):         # RFC 4315 §3
        return reply
    return Reply("APPEND completed", responses.appenduid(entry.uidvalidity, uids))


async def _deliver(session: Session, arriving: Arriving, entry: MailboxEntry, command: Append) -> list[int]:
    """The UIDs of the messages of this command. Raises StoreError."""
    if len(command.messages) == 1:
        message, = command.messages
        target = _target(session, entry, message)
        outcome, = await durable.deliver(session.store, arriving.messages[0], (target,), message.date)
        if isinstance(outcome, StoreError):
            raise outcome
        assert isinstance(outcome, Delivered)       # never a `Duplicate`: the target does not ask for that
        return [outcome.uid]
    targets = [_target(session, entry, one) for one in command.messages]
    dates = [one.date for one in command.messages]
    return await session.patiently(severalmessages.deliver_all(
        session.store, [*zip(arriving.messages, targets, dates, strict=True)]))


async def _gather(session: Session, first: Arriving) -> list[Arriving]:
    """The message, and those of the next APPENDs to the mailbox that are there whole. These have been read, and wait in
    `Session.ahead`; so does one that has turned out not to belong to them.

    They never take more than HELD octets, nor more work in a turn of the event loop than one message may take.
    """
    group, octets, share, looked = [first], first.octets, _share(first), False
    while share < 1.0 and len(group) < durable.FEW:
        has_another = _has_another(session, HELD - octets)
        if has_another is None and not looked and session.stream.input_waiting:
            looked = True               # once: much of what a client sends comes between two reads
            await session.stream.look_again()
            continue
        if not has_another:
            break
        await session.stream.breathe()
        line = session.stream.line_at_once(session.reading.framer.limits.line)
        if line is None:                # others come first
            break
        step = await session.reading.command(partial(receive, session), session.reading.framer.line(line), 0.0)
        another: Arriving | None = session.arriving
        session.arriving = None
        session.ahead.append((another, step))
        if another is None or not isinstance(step, Frame) or another.failure or another.entry.id != first.entry.id:
            break
        octets, share = octets + another.octets, share + _share(another)
        if share > 1.0:
            break
        group.append(another)
    return group


def _share(arriving: Arriving) -> float:
    """See `Staged.share`; several messages of one command are enough."""
    if len(arriving.messages) != 1:
        return 1.0
    arriving.messages[0].scan()
    return arriving.messages[0].share


def _has_another(session: Session, octets: int) -> bool | None:
    """Whether the next command is an APPEND of one message of at most so many octets; None when not all of it has
    come."""
    stream = session.stream
    line = stream.line_ahead(0, session.reading.framer.limits.line)
    if line is None:
        return None
    if not line.endswith((b"+}\r\n", b"+}\n")):
        return False
    text = line.rstrip(b"\r\n")
    announced = literal_at(text, text.rfind(b"{"))
    if announced is None or announced.size > octets or not is_message(Frame((text,))):
        return False
    end = stream.line_ahead(len(line) + announced.size, 2)
    return None if end is None else end in (b"\r\n", b"\n")


async def _deliver_group(session: Session, group: list[Arriving]) -> None:
    """Deliver the messages together, if they are several and that can be done; then the outcome of each is known.
    Raises StoreError, which is then the outcome of all."""
    if len(group) == 1:
        return
    try:
        entry = _as_shared_now(session, group[0].entry)
        messages = []
        for one in group:
            appended, = one.command.messages
            messages.append((one.messages[0], _target(session, entry, appended), appended.date))
        outcomes = await session.patiently(deliver_each(session.store, messages))
    except Exception as error:
        for one in group:
            one.failure = error
        raise
    if outcomes is None:                # each is delivered in its turn
        return
    for one, outcome in zip(group, outcomes, strict=True):
        one.outcome = outcome
        if not isinstance(outcome, StoreError):     # who notes a refusal names the message
            one.messages.clear()                    # they are used up


def _as_shared_now(session: Session, entry: MailboxEntry) -> MailboxEntry:
    """The mailbox with its present access control list: messages may have taken long to come.

    Raises StoreError NO_MAILBOX, NO_PERMISSION.
    """
    now = session.store.mailboxes.find(entry.name)
    if now is None or now.id != entry.id:               # it has another name now, or is gone
        now = session.store.mailboxes.find_id(entry.id)
    return entry if now is None else session.granted(now, "i")      # of one that has gone the delivery will tell


def _target(session: Session, entry: MailboxEntry, message: Appended) -> Target:
    """The target: the mailbox, and those of the message's flags that the user may set there (RFC 4314 §4)."""
    flags = message.flags
    if flags is not NO_FLAGS:
        system, keywords = changeable(session.store, session.user, entry)
        flags = Flags(flags.system & system, flags.keywords if keywords else ())
    own = session.store.private_bits(entry, session.user)
    follows = (partial(_have_script_run, entry.id, session.user),) if session.store.runs_script(entry) else ()
    return Target(entry, flags, reader=session.user, own=own, appended=True, follows=follows)


def _have_script_run(mailbox: MailboxId, user: str, txn: WriteTxn) -> None:
    """Have a script run for the message that has just come (RFC 6785 §2.2.1)."""
    uid = txn.state(mailbox).uidnext - 1
    txn.partition.script_events.add(mailbox, APPEND, user, np.array([uid], np.uint32), txn.handle)
