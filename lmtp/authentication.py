"""AUTH: a relay logs in (RFC 4954), by PLAIN (RFC 4616)."""

import binascii
import logging

from lmtp import replies
from lmtp.replies import Reply
from lmtp.wire import Auth
from store.accounts.sasl import Plain
from store.errors import Problem, StoreError
from store.net import offload
from store.net.lines import LineTooLong
from store.net.stream import Stream
from store.store import Store

LINE_LIMIT = 12288      # RFC 4954 §4
MECHANISMS = ("PLAIN",)

log = logging.getLogger(__name__)


async def log_in(stream: Stream, store: Store, command: Auth, users: frozenset[str], time: float) -> tuple[str, Reply]:
    """The user that the relay is, "" when it is none of `users`, and the reply. `time`: seconds for its response.

    Raises ConnectionLost, TimedOut.
    """
    if command.mechanism not in MECHANISMS:
        return "", replies.UNKNOWN_MECHANISM
    if command.initial is not None:
        response = command.initial.reveal()
    else:
        stream.write(replies.CONTINUE.octets)
        try:
            response = await stream.line(LINE_LIMIT, time)
        except LineTooLong:
            return "", replies.AUTH_TOO_LONG
        if response == b"*":
            return "", replies.AUTH_CANCELLED
    try:
        message = Plain.from_bytes(binascii.a2b_base64(response, strict_mode=True))
    except (binascii.Error, ValueError):
        return "", replies.BAD_RESPONSE
    try:
        account = await offload.authenticate(store, message.user, message.password)
    except StoreError as error:
        if error.problem is Problem.BAD_LOGIN:
            return "", replies.AUTH_FAILED
        log.warning("%s: AUTH: %s", stream.id, error)
        return "", replies.AUTH_UNAVAILABLE
    if account.user not in users or message.for_another:
        return "", replies.AUTH_FAILED
    return account.user, replies.AUTHENTICATED
