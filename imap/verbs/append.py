"""APPEND: RFC 3501 §6.3.11; APPENDUID is RFC 4315 §3. The message goes to the store as it arrives."""

import logging

from attrs import define

from imap.refusals import BROKEN
from imap.session import Session
from imap.states import Refused, Reply, why_not
from imap.wire import responses
from imap.wire.append import Append
from imap.wire.commands import BadCommand, parse_head
from imap.wire.framer import CONTINUE, Message, Step
from imap.wire.grammar import SyntaxProblem
from mboxlist.entry import MailboxEntry
from store.deliver import Delivered, Target
from store.errors import Problem, StoreError
from store.messagefiles import Staged
from store.net import offload
from store.rights import changeable
from store.values import Flags

log = logging.getLogger(__name__)


@define(eq=False)
class Arriving:
    """The message of the APPEND that is being read, and what went wrong with it, if anything did."""

    entry: MailboxEntry
    staged: Staged
    failure: Exception | None = None


async def receive(session: Session, wanted: Message) -> Step | None:
    """Take the message that a client has announced, or say what to do instead.

    Nothing is asked of a client that waits before all that can be known beforehand looks right.
    """
    framer = session.framer
    try:
        entry = _look_before(session, wanted)
        arriving = session.arriving = Arriving(entry, session.store.stage(entry))
    except SyntaxProblem as problem:
        return framer.refuse(problem)
    except Refused as refused:
        return framer.refuse(SyntaxProblem(refused.public, code=refused.code, status=refused.status))
    except StoreError as error:
        reply = session.refusal(error)
        return framer.refuse(SyntaxProblem(reply.text, code=reply.code, status=reply.status))
    except Exception:
        log.exception("%s: %s: APPEND failed", session.stream.id, session.user)
        return framer.refuse(SyntaxProblem(BROKEN[1], code=BROKEN[0], status=responses.NO))
    if wanted.sync:
        session.stream.write(CONTINUE)
    left = wanted.size
    while left:
        data = await session.some(left)
        left -= len(data)
        if arriving.failure is None:
            await _take(session, arriving, data)
        await session.stream.breathe()
    framer.streamed()
    return None


async def _take(session: Session, arriving: Arriving, data: bytes) -> None:
    """Give octets of the message to the store; after a failure the rest is only read.

    RFC 3501 §9 has no NUL in a literal, but mail that holds some is kept and served as it is.
    """
    try:
        arriving.staged.write(data)
        if arriving.staged.full:
            await offload.spill(session.store, arriving.staged)
    except Exception as error:          # of whatever kind: `append` raises it when the command is complete
        arriving.failure = error
        arriving.staged.abort()


def _look_before(session: Session, wanted: Message) -> MailboxEntry:
    """The mailbox, if the message can go there. Raises SyntaxProblem, Refused, StoreError."""
    try:
        head = parse_head(wanted.frame, session.framer.limits)
        reason = why_not(head.entry, session.state)
        if reason or session.arriving is not None:
            raise SyntaxProblem(reason or "One message at a time")
        command = head.value()
    except BadCommand as bad:
        raise bad.problem from None
    entry = session.target(command.mailbox)
    if not wanted.size:
        raise Refused("An empty message is not stored")
    if wanted.size > session.store.settings.message_limit:
        raise StoreError(Problem.TOO_BIG)
    if session.store.over_quota(entry, wanted.size):
        raise StoreError(Problem.OVER_QUOTA)
    return entry


async def append(session: Session, command: Append) -> Reply:
    """Deliver the message that has arrived."""
    arriving, session.arriving = session.arriving, None
    if arriving is None:
        raise SyntaxProblem("A message is expected")
    try:
        if arriving.failure is not None:
            raise arriving.failure
        flags = _allowed(session, arriving.entry, command.flags)
        own = session.store.private_bits(arriving.entry, session.user)
        target = Target(arriving.entry, flags, reader=session.user, own=own, appended=True)
        outcome, = await offload.deliver(session.store, arriving.staged, [target], command.date)
    finally:
        arriving.staged.abort()
    if isinstance(outcome, StoreError):
        return session.refusal(outcome, as_target=True)
    assert isinstance(outcome, Delivered)       # never a `Duplicate`: the target does not ask for that
    return Reply("APPEND completed", responses.appenduid(arriving.entry.uidvalidity, [outcome.uid]))


def _allowed(session: Session, entry: MailboxEntry, flags: Flags) -> Flags:
    """Those of the flags that the user may set there (RFC 4314 §4)."""
    system, keywords = changeable(session.store, session.user, entry)
    return Flags(flags.system & system, flags.keywords if keywords else ())
