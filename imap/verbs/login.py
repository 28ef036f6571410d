"""LOGIN and AUTHENTICATE: RFC 3501 §6.2.2, §6.2.3; RFC 4959."""

import logging

from imap import referrals
from imap.refusals import code
from imap.session import Session
from imap.states import Refused, Reply
from imap.wire import responses
from imap.wire.commands import State
from imap.wire.grammar import SyntaxProblem
from imap.wire.login import Authenticate, Login, challenge, sasl_response
from store.accounts.mechanisms import MECHANISMS, GivenUp, Malformed, NotOffered
from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from store.net.callers import IN_THE_CLEAR, Elsewhere
from store.net.linestates import LineTooLong
from store.values import Secret

log = logging.getLogger(__name__)


async def login(session: Session, command: Login) -> Reply:
    """A user name and a password in the clear, or under TLS."""
    caller, authenticator = session.caller, session.authenticator
    if not authenticator.takes_passwords(caller):
        authenticator.not_looked_at(caller, IN_THE_CLEAR, command.user)
        raise _needs_privacy()
    try:
        admitted = await authenticator.password(caller, command.user, command.password)
        await firstuse.find_inbox(session.store, admitted.account)
    except StoreError as error:
        return _failed(session, error)
    session.log_in(admitted)
    return Reply("Logged in", session.capability_code())


async def authenticate(session: Session, command: Authenticate) -> Reply:
    """A SASL exchange, with an initial response or without."""
    mechanism = command.mechanism.decode("ascii")

    async def talk(octets: bytes) -> Secret:
        session.stream.write(challenge(octets))
        try:
            response = sasl_response(await session.reading.line())
        except LineTooLong:
            raise GivenUp("The response is too long", malformed=True) from None
        except SyntaxProblem as problem:
            raise GivenUp(problem.public, malformed=True) from None
        if response is None:
            raise GivenUp("Authentication was given up")
        return response

    try:
        admitted = await session.authenticator.authenticate(session.caller, mechanism, command.initial, talk)
        await firstuse.find_inbox(session.store, admitted.account)
    except NotOffered:
        if mechanism in MECHANISMS and not session.caller.passwords:
            raise _needs_privacy() from None
        raise Refused("There is no such authentication mechanism", b"CANNOT") from None
    except (Malformed, GivenUp) as problem:
        raise SyntaxProblem(str(problem)) from None
    except StoreError as error:
        return _failed(session, error)
    session.log_in(admitted)
    return Reply("Logged in", session.capability_code())


def _needs_privacy() -> Refused:
    return Refused("Passwords are taken only under TLS", b"PRIVACYREQUIRED")        # RFC 5530 §3


def _failed(session: Session, error: StoreError) -> Reply:
    if isinstance(error, Elsewhere) and session.refers_logins:
        log.info("%s: %s", session.stream.id, error)
        return Reply("Your mail is on another server", referrals.to_home(error.account), responses.NO)
    if error.problem not in (Problem.BAD_LOGIN, Problem.NOT_AUTHORIZED, Problem.LIMIT):
        return session.refusal(error)
    session.failed_logins += 1
    text = "The user name or the password is wrong" if error.problem is Problem.BAD_LOGIN else error.public
    reply = Reply(text, code(error), responses.NO)
    if session.failed_logins < session.settings.login_attempts:
        return reply
    session.authenticator.turned.at_admission("imap", session.caller.peer, "", "too many failed logins",
                                                session=session.stream.id)
    session.stream.write(responses.bye("Too many failed logins"))
    session.state = State.LOGOUT
    return reply
