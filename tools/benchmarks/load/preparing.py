"""Mailboxes of known content, made through IMAP alone.

The prepared mailbox is kept on the server between runs. The server itself is
the memory of it: its name says which messages it holds, and a look at its
counts says whether it is complete and its flags are as they were.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence

from tools.benchmarks.load.bytestream import ProtocolError
from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loadlmtp import Lmtp
from tools.benchmarks.load.loop import run_one
from tools.benchmarks.load.measuring import Context
from tools.benchmarks.load.messages import Message, small_messages

# Messages in one MULTIAPPEND.
_BATCH = 100
# APPENDs under way at a time where there is no MULTIAPPEND.
_WINDOW = 16
# What a mail program asks of all messages in a mailbox, and of the last one.
_VISIT = (b"FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)",
          b"FETCH 1:* BODY.PEEK[HEADER.FIELDS (FROM TO CC SUBJECT DATE MESSAGE-ID REFERENCES)]",
          b"FETCH 1 BODY.PEEK[]")
# Users that have been broken in, by the target's name and the pattern of theirs.
_broken_in: dict[tuple[str, str], set[int]] = {}
# Changes whenever the generated messages do.
_VERSION = 1


def fill(ctx: Context, imap: Imap, mailbox: bytes, messages: Sequence[Message]) -> None:
    """Append `messages` the quickest way the server offers."""
    if ctx.offers("LITERAL+"):
        size = _BATCH if ctx.offers("MULTIAPPEND") else 1
        batches = [messages[at:at + size] for at in range(0, len(messages), size)]
        run_one(append_pipelined(imap, mailbox, batches, _WINDOW if size == 1 else 2))
    else:
        run_one(append_in_turn(imap, mailbox, messages))


async def append_pipelined(imap: Imap, mailbox: bytes, batches: Sequence[Sequence[Message]],
                           window: int, deadline: float = math.inf) -> tuple[int, int]:
    """Append batches with `window` commands under way, until time.perf_counter() is `deadline`.

    Returns the numbers of messages stored and of commands that failed.
    """
    stored = failed = 0
    under_way: deque[tuple[bytes, int]] = deque()

    async def take_reply() -> None:
        nonlocal stored, failed
        tag, size = under_way.popleft()
        if (await imap.reply(tag)).ok:
            stored += size
        else:
            failed += 1

    for batch in batches:
        if len(under_way) == window:
            await take_reply()
        if time.perf_counter() > deadline:
            break
        under_way.append((await imap.send_append(mailbox, batch), len(batch)))
    while under_way:
        await take_reply()
    return stored, failed


async def append_in_turn(imap: Imap, mailbox: bytes, messages: Sequence[Message],
                         deadline: float = math.inf) -> tuple[int, int]:
    """Append with synchronizing literals; messages stored and commands that failed."""
    stored = failed = 0
    for message in messages:
        if time.perf_counter() > deadline:
            break
        good = (await imap.append_sync(mailbox, message)).ok
        stored += good
        failed += not good
    return stored, failed


def break_in(ctx: Context, users: Iterable[int]) -> None:
    """Deliver one message to each user, read it as a mail program does, and remove it.

    Done once for each user. A new server makes its databases, one delivery
    after the other: some fail when several first ones come at the same time.
    And a server that learns what to keep in its indexes from what clients ask
    for (Dovecot) has learned it, so that deliveries cost what they will cost
    from then on. Raises ProtocolError when a message is refused, or not there:
    of an empty mailbox 1:* is no message (RFC 9051 section 9, seq-number).
    """
    known = _broken_in.setdefault((ctx.target.name, ctx.target.user), set())
    todo = [one for one in users if one % ctx.target.users not in known]
    if not todo:
        return
    lmtp = Lmtp(ctx.target.lmtp)
    run_one(lmtp.hello())
    data = small_messages("break-in", 1)[0].lmtp_data()
    for index in todo:
        if run_one(lmtp.deliver(b"sender@example.org", [ctx.target.recipient(index)], data)) != 1:
            raise ProtocolError(f"LMTP: the first message of user {index} is refused: {lmtp.refused!r}")
        imap = ctx.login(index, 1 << 14)
        if not run_one(imap.select(b"INBOX"))[0]:
            raise ProtocolError(f"the INBOX of user {index} has no message that LMTP has taken")
        for command in _VISIT:
            run_one(imap.must(command))
        run_one(imap.empty())
        run_one(imap.logout())
        known.add(index % ctx.target.users)
    run_one(lmtp.quit())


def create(imap: Imap, mailbox: bytes) -> None:
    """A new, empty mailbox, whatever was there before."""
    remove(imap, mailbox)
    run_one(imap.must(b"CREATE " + mailbox))


def remove(imap: Imap, mailbox: bytes) -> None:
    """Delete a mailbox if it is there.

    Cyrus keeps what was deleted under a name with the time in whole seconds,
    and refuses to delete a mailbox of the same name again within that second.
    """
    there = run_one(imap.status(mailbox)) >= 0
    if there and not run_one(imap.command(b"DELETE " + mailbox)).ok:
        time.sleep(1.1)
        run_one(imap.must(b"DELETE " + mailbox))


def fresh_mailbox(ctx: Context, user: int, name: str, messages: Sequence[Message]) -> bytes:
    """A user's mailbox just filled with `messages`; its full name."""
    mailbox = ctx.mailbox(name)
    imap = ctx.login(user)
    create(imap, mailbox)
    fill(ctx, imap, mailbox, messages)
    ctx.expect(f"messages in {name}", run_one(imap.status(mailbox)), len(messages))
    run_one(imap.logout())
    return mailbox


def drop_mailbox(ctx: Context, user: int, mailbox: bytes) -> None:
    """Delete a user's mailbox."""
    imap = ctx.login(user)
    remove(imap, mailbox)
    run_one(imap.logout())


def prepared_messages(ctx: Context) -> list[Message]:
    """What the prepared mailbox holds."""
    return small_messages(ctx.options.seed, ctx.options.mailbox_size)


def prepared_mailbox(ctx: Context) -> tuple[bytes, list[Message]]:
    """The first user's large mailbox, made unless it is there and intact."""
    messages = prepared_messages(ctx)
    name = f"load-{_VERSION}-{ctx.options.seed}-{len(messages)}"
    mailbox = ctx.mailbox(name)
    imap = ctx.login()
    if not _intact(imap, mailbox, messages):
        create(imap, mailbox)
        fill(ctx, imap, mailbox, messages)
        if not _intact(imap, mailbox, messages):
            raise ProtocolError(f"{name} could not be prepared")
    run_one(imap.logout())
    return mailbox, messages


def _intact(imap: Imap, mailbox: bytes, messages: Sequence[Message]) -> bool:
    """Whether a mailbox has all of `messages` with their first flags."""
    if run_one(imap.status(mailbox)) != len(messages):
        return False
    run_one(imap.select(mailbox))
    unseen = run_one(imap.must(b"SEARCH UNSEEN", keep=True)).numbers(b"SEARCH")
    flagged = run_one(imap.must(b"SEARCH OR FLAGGED DELETED", keep=True)).numbers(b"SEARCH")
    run_one(imap.must(b"CLOSE"))
    return unseen == [at for at, one in enumerate(messages, 1) if not one.seen] and not flagged
