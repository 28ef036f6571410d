"""AUTH: a relay logs in (RFC 4954)."""

import binascii

from lmtp import replies
from lmtp.replies import Reply
from lmtp.wire import Auth
from store.accounts import refusallines
from store.accounts.mechanisms import GivenUp, Malformed, NotOffered
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.callers import Admitted, Caller
from store.net.linestates import LineTooLong
from store.net.stream import Stream
from store.store import Store
from store.values import Secret

LINE_LIMIT = 12288      # RFC 4954 §4


class _GivenUp(GivenUp):
    """The client's response is none, or it gives up; what is replied."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.lines[0], malformed=reply is not replies.AUTH_CANCELLED)
        self.reply = reply


def mechanisms(stream: Stream, store: Store) -> tuple[str, ...]:
    """What a relay can log in by, on this connection, which is private enough."""
    return Authenticator.of(store).mechanisms(Caller(stream, "lmtp", passwords=True, anywhere=True))


async def log_in(stream: Stream, store: Store, command: Auth, users: frozenset[str], time: float
                 ) -> tuple[Admitted | None, Reply]:
    """The login of the relay, None when it is none of `users`, and the reply. `time`: seconds for its response.

    Raises ConnectionLost, TimedOut, Stopping.
    """
    async def talk(challenge: bytes) -> Secret:
        stream.write(replies.challenge(challenge))
        try:
            response = await stream.line(LINE_LIMIT, time)
        except LineTooLong:
            raise _GivenUp(replies.AUTH_TOO_LONG) from None
        if response == b"*":
            raise _GivenUp(replies.AUTH_CANCELLED)
        return _decoded(response)

    caller = Caller(stream, "lmtp", passwords=True, anywhere=True)
    initial = command.initial
    try:
        if initial is not None:
            said = initial.reveal()
            initial = Secret(b"") if said == b"=" else _decoded(said)
    except _GivenUp as reason:
        not_looked_at(stream, store, str(reason))
        return None, reason.reply
    try:
        admitted = await Authenticator.of(store).authenticate(caller, command.mechanism, initial, talk)
    except NotOffered:
        return None, replies.UNKNOWN_MECHANISM
    except Malformed:
        return None, replies.BAD_RESPONSE
    except _GivenUp as reason:
        return None, reason.reply
    except StoreError as error:
        failed = error.problem in (Problem.BAD_LOGIN, Problem.NOT_AUTHORIZED)
        return None, replies.AUTH_FAILED if failed else replies.AUTH_UNAVAILABLE
    if admitted.account.user not in users:
        refusallines.refused(refusallines.LOGIN, stream.peer, admitted.account.user, "lmtp",
                             "the user is none of lmtp.auth_users", session=stream.id)
        return None, replies.AUTH_FAILED
    return admitted, replies.AUTHENTICATED


def not_looked_at(stream: Stream, store: Store, why: str) -> None:
    """A login is refused of which the directory is not asked."""
    Authenticator.of(store).not_looked_at(Caller(stream, "lmtp", passwords=True, anywhere=True), why)


def _decoded(octets: bytes) -> Secret:
    try:
        return Secret(binascii.a2b_base64(octets, strict_mode=True) if octets else b"")
    except binascii.Error:
        raise _GivenUp(replies.BAD_RESPONSE) from None
