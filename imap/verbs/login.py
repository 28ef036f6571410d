"""LOGIN and AUTHENTICATE PLAIN: RFC 3501 §6.2.2, §6.2.3; RFC 4616, RFC 4959."""

import logging

from imap.refusals import CODES
from imap.session import Session
from imap.states import Refused, Reply
from imap.wire import responses
from imap.wire.commands import State
from imap.wire.grammar import SyntaxProblem
from imap.wire.login import Authenticate, Login, challenge, sasl_response
from imap.wire.responses import BAD
from store.accounts.sasl import Plain
from store.errors import Problem, StoreError
from store.net import offload
from store.net.lines import LineTooLong
from store.values import Secret

log = logging.getLogger(__name__)


async def login(session: Session, command: Login) -> Reply:
    """A user name and a password in the clear, or under TLS."""
    _require_privacy(session)
    return await _log_in(session, command.user, command.password)


async def authenticate(session: Session, command: Authenticate) -> Reply:
    """SASL PLAIN, with an initial response or without."""
    if command.mechanism != b"PLAIN":
        raise Refused("There is no such authentication mechanism", b"CANNOT")
    _require_privacy(session)
    response = command.initial
    if response is None:
        session.stream.write(challenge(b""))
        try:
            response = sasl_response(await session.reading.line())
        except LineTooLong:
            raise SyntaxProblem("The response is too long") from None
        if response is None:
            raise Refused("Authentication was given up", status=BAD)
    try:
        plain = Plain.from_bytes(response.reveal())
    except ValueError as error:
        raise SyntaxProblem(str(error)) from None
    if plain.for_another:
        raise Refused("Nobody may act as another user", b"AUTHORIZATIONFAILED")
    return await _log_in(session, plain.user, plain.password)


def _require_privacy(session: Session) -> None:
    if not session.may_log_in:
        raise Refused("Passwords are taken only under TLS", b"PRIVACYREQUIRED")     # RFC 5530 §3


async def _log_in(session: Session, user: str, password: Secret) -> Reply:
    try:
        account = await offload.authenticate(session.store, user, password)
    except StoreError as error:
        if error.problem is not Problem.BAD_LOGIN:
            return session.refusal(error)
        session.failed_logins += 1
        log.warning("%s: a login from %s failed", session.stream.id, session.stream.peer)
        reply = Reply("The user name or the password is wrong", CODES[Problem.BAD_LOGIN], responses.NO)
        if session.failed_logins < session.settings.login_attempts:
            return reply
        session.stream.write(responses.bye("Too many failed logins"))
        session.state = State.LOGOUT
        return reply
    session.log_in(account)
    return Reply("Logged in", session.capability_code())
