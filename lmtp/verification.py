"""What relays ask before they take a message: is there such a recipient, and would its mailbox take the message?

One listener speaks two protocols of Postfix: a connection that begins with a digit is one of netstrings
(socketmap_table(5)), any other one of policy delegation (SMTPD_POLICY_README). `recipients.py` decides, as at RCPT.

The policy says what MAIL and RCPT would say, in the same words. The map `recipients` only says whether an address takes
mail at all: of what refuses it for now, or for want of room, the policy and the delivery tell, since after NOTFOUND it
bounces as mail for nobody. The map gives the address back and not its user: RCPT does not tell whose alias it is. There
is no map of domains: the directory has no list of them.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence

from attrs import frozen

from lmtp import replies
from lmtp.access import Trust
from lmtp.recipients import Recipients
from lmtp.refusals import refusal
from lmtp.relay import Listener
from lmtp.replies import Reply
from lmtp.smtppaths import Address, PathProblem, path
from store.accounts import refusallines
from store.errors import StoreError
from store.net.linestates import LineTooLong, Stopping
from store.net.stream import Stream

log = logging.getLogger(__name__)

LINE_LIMIT = 4096           # octets of a line of a policy request; Postfix itself cuts at 2,048
LINES_LIMIT = 200           # lines of a policy request; Postfix sends some thirty
NETSTRING_LIMIT = 2048      # octets of a request to a map
MAP = b"recipients"

_REQUEST = b"smtpd_access_policy"
_SIZE = re.compile(rb"[0-9]{0,20}")
_LENGTH = re.compile(rb"(0|[1-9][0-9]{0,3}):")
_LENGTH_BEGUN = re.compile(rb"0|[1-9][0-9]{0,3}|")
_MAILBOX_STATUS = "4.2."    # RFC 3463 §3.3: the mailbox is there, and takes no mail for now
_NOT_FOUND = b"NOTFOUND "


class Malformed(ValueError):
    """The peer does not keep to the protocol, so nobody knows where its next request begins."""


@frozen
class Question:
    """What counts of a policy request. `recipient` is empty where there is none yet, or more than one."""

    recipient: bytes
    sender: bytes
    size: int


def parse_policy(lines: Sequence[bytes]) -> Question:
    """The lines of a request, without the empty one that ends it. Raises Malformed."""
    values: dict[bytes, bytes] = {}
    for line in lines:
        name, equals, value = line.partition(b"=")
        if not (name and equals) or b"\x00" in line:
            raise Malformed("a line is not name=value")
        values[name] = value
    if values.get(b"request") != _REQUEST:
        raise Malformed("not a request for an access policy")
    size = values.get(b"size", b"")
    if not _SIZE.fullmatch(size):
        raise Malformed("the size is not a number")
    return Question(values.get(b"recipient", b""), values.get(b"sender", b""), int(size or b"0"))


def parse_netstring(octets: bytes) -> tuple[bytes, int] | None:
    """The netstring that `octets` begin with, and its length with all around it; None: there must be more.

    Raises Malformed.
    """
    length = _LENGTH.match(octets)
    if length is None:
        if _LENGTH_BEGUN.fullmatch(octets):
            return None
        raise Malformed("not the length of a netstring")
    start, end = length.end(), length.end() + int(length[1])
    if end - start > NETSTRING_LIMIT:
        raise Malformed("the netstring is too long")
    if len(octets) <= end:
        return None
    if octets[end:end + 1] != b",":
        raise Malformed("no comma after the netstring")
    return octets[start:end], end + 1


def netstring(content: bytes) -> bytes:
    """The content as a netstring."""
    return b"%d:%b," % (len(content), content)


def parse_address(octets: bytes) -> Address:
    """An address in the form of RFC 5321, or with a local part that lacks the quotes it would need there.

    Raises PathProblem.
    """
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        raise PathProblem from None
    try:
        return _whole(text)
    except PathProblem:
        local, at, domain = text.rpartition("@")
        if not at:
            raise
        return _whole(str(Address(local, domain)))


def _whole(text: str) -> Address:
    address, rest = path(f"<{text}>")
    if address is None or rest:
        raise PathProblem
    return address


class Verification:
    """One connection of a relay that asks."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        self._stream = stream
        self._listener = listener
        self._time = listener.settings.command_time     # between two requests, and for a whole one

    async def run(self) -> None:
        """Answer until the relay goes, or is not understood. Raises ConnectionLost, TimedOut, LimitReached, Stopping.
        """
        stream = self._stream
        if self._listener.access.trust(stream.peer) not in (Trust.RELAY, Trust.TRUSTED):
            refusallines.refused(refusallines.ADDRESS, stream.peer, "", "verification", "not in lmtp.networks",
                                 session=stream.id)
            return
        stream.admit()
        try:
            await self._converse()
        except Malformed as problem:
            log.warning("%s: %s is not understood, the connection is ended: %s", stream.id, stream.peer, problem)

    async def _converse(self) -> None:
        await self._stream.wait(self._time)
        first = await self._stream.some(1, self._time)
        self._stream.unread(first)
        answer = self._map if first.isdigit() else self._policy
        while True:
            self._stream.write(await answer())
            await self._stream.drain(self._time)        # a peer that asks and does not listen must not fill the memory
            if self._stream.stopping:
                raise Stopping
            await self._stream.wait(self._time)

    # Policy delegation

    async def _policy(self) -> bytes:
        """Read a request; the answer to it: what Postfix is to do with the recipient (access(5))."""
        left = self._deadline()
        lines: list[bytes] = []
        try:
            while line := await self._stream.line(LINE_LIMIT, left()):
                lines.append(line)
                if len(lines) > LINES_LIMIT:
                    raise Malformed("too many lines")
        except LineTooLong:
            raise Malformed("a line is too long") from None
        reply = await self._verdict(parse_policy(lines))
        return b"action=%b\n\n" % (b"DUNNO" if reply is None else reply.octets.removesuffix(b"\r\n"))

    async def _verdict(self, question: Question) -> Reply | None:
        """How MAIL or RCPT would refuse the message; None: they would not, or it is too early to say."""
        if not question.recipient:
            return None
        store, settings = self._listener.store, self._listener.settings
        try:
            sender = parse_address(question.sender) if question.sender else None
        except PathProblem:
            return replies.BAD_SENDER
        if question.size > store.settings.message_limit:
            return replies.TOO_BIG
        try:
            recipient = parse_address(question.recipient)
        except PathProblem:
            return replies.BAD_RECIPIENT
        recipients = Recipients(store, settings, sender, asking=True)
        return await self._refused(recipient, recipients.check(recipient, question.size))

    # Maps

    async def _map(self) -> bytes:
        """Read a request; the answer to it."""
        left = self._deadline()
        octets = b""
        while (found := parse_netstring(octets)) is None:
            octets += await self._stream.some(NETSTRING_LIMIT, left())
        content, length = found
        self._stream.unread(octets[length:])
        name, _, key = content.partition(b" ")
        return netstring(await self._look_up(key) if name == MAP else b"PERM The only map here is " + MAP)

    async def _look_up(self, key: bytes) -> bytes:
        """Whether there is such an address. Only whole ones are: not users without a domain, and not domains."""
        try:
            address = parse_address(key)
        except PathProblem:
            return _NOT_FOUND
        if address.domain is None:
            return _NOT_FOUND
        recipients = Recipients(self._listener.store, self._listener.settings, None, asking=True)
        reply = await self._refused(address, recipients.find(address))
        if reply is None or reply.enhanced.startswith(_MAILBOX_STATUS):
            return b"OK " + key
        if reply.code < 500:
            return b"TEMP " + reply.lines[0].encode()
        return b"OK " + key if recipients.may_be_public(address) else _NOT_FOUND    # who may post is not asked here

    # Both

    async def _refused(self, address: Address, asked: Awaitable[object]) -> Reply | None:
        """The reply to what refused mail to the address, if anything did."""
        try:
            await asked
        except StoreError as error:
            log.info("%s: recipient <%s> would be refused: %s", self._stream.id, address, error)
            return refusal(error)
        except Exception:
            log.exception("%s: looking up <%s> failed", self._stream.id, address)
            return replies.LOCAL_ERROR
        return None

    def _deadline(self) -> Callable[[], float]:
        """What is left of the time of a request that begins now."""
        end = self._listener.clock() + self._time
        return lambda: end - self._listener.clock()
