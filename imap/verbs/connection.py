"""CAPABILITY, NOOP, LOGOUT, STARTTLS (RFC 3501 §6.1, §6.2.1), ID (RFC 2971), ENABLE (RFC 5161), IDLE (RFC 2177),
UNAUTHENTICATE (RFC 8437)."""

import logging
from ipaddress import ip_address

from imap.capabilities import ENABLED_BY_ENABLE, IMPLIED
from imap.session import Session
from imap.states import Refused, Reply
from imap.wire import responses
from imap.wire.commands import State
from imap.wire.connection import Capability, Enable, Id, Idle, Logout, Noop, StartTls, Unauthenticate, is_done
from imap.wire.responses import BAD
from store import VERSION
from store.net.linestates import LineTooLong

log = logging.getLogger(__name__)

CLIENT_LIMIT = 60               # octets that are kept of each value that a client gives about itself
ORIGIN = b"x-originating-ip"    # no RFC has it, proxies send it


async def capability(session: Session, command: Capability) -> Reply:
    """What is announced in this state."""
    session.stream.write(b"* " + session.capability_code() + b"\r\n")
    return Reply("CAPABILITY completed")


async def noop(session: Session, command: Noop) -> Reply:
    """Do nothing; the news follow by themselves."""
    return Reply("NOOP completed")


async def logout(session: Session, command: Logout) -> Reply:
    """The end, without expunging anything."""
    session.leave()
    session.stream.write(responses.bye("Goodbye"))
    session.state = State.LOGOUT
    return Reply("LOGOUT completed")


async def starttls(session: Session, command: StartTls) -> Reply:
    """Go on under TLS. What the client has sent in the clear after the command is dropped, not obeyed."""
    if not session.stream.can_start_tls:
        raise Refused("TLS is active already" if session.stream.secure else "TLS is not available", status=BAD)
    return Reply("Begin TLS negotiation now", then=session.stream.start_tls)


async def identify(session: Session, command: Id) -> Reply:
    """Say who we are. A client may say anything of itself, and only administrators see it. Proxies say for whom they
    connect."""
    said = {name.lower(): value for name, value in command.pairs}
    session.client = " ".join(_shown(value) for value in (said.get(b"name"), said.get(b"version")) if value)
    if session.state is State.NOT_AUTHENTICATED and session.authenticator.believes(session.stream):
        _believe(session, command)
    session.stream.write(responses.server_id(_IDENTITY))
    return Reply("ID completed")


def _shown(value: bytes) -> str:
    text = value[:CLIENT_LIMIT].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _believe(session: Session, command: Id) -> None:
    for name, value in command.pairs:
        if name.lower() == ORIGIN and value is not None:
            try:
                address = ip_address(value.decode("ascii"))
            except ValueError:
                raise Refused("That is no address", status=BAD) from None
            if getattr(address, "scope_id", None):
                raise Refused("That is an interface of another host", status=BAD)
            session.stream.introduce(str(address))
            log.info("%s: %s connects for %s", session.stream.id, session.stream.proxy, address)
            return


async def enable(session: Session, command: Enable) -> Reply:
    """Turn on what this server knows. The answer names what this command has asked for, also if it was on already: an
    answer without names would say that nothing is on (RFC 5161 §3.1, §3.2; RFC 9051 §6.3.1)."""
    names = dict.fromkeys(name for name in command.capabilities if name in ENABLED_BY_ENABLE)
    session.stream.write(responses.enabled([ENABLED_BY_ENABLE[name] for name in names]))
    if names.keys() & {b"CONDSTORE", b"QRESYNC"}:
        session.enable_condstore()
    session.have_enabled(session.enabled | names.keys() | {IMPLIED[name] for name in names if name in IMPLIED})
    if session.rev2 and session.view is not None:
        session.view.forget_recent()
    return Reply("ENABLE completed")


async def unauthenticate(session: Session, command: Unauthenticate) -> Reply:
    """Forget who the client is, and all that it has changed (RFC 8437 §3); TLS stays."""
    session.log_out()
    return Reply("UNAUTHENTICATE completed", session.capability_code())


async def idle(session: Session, command: Idle) -> Reply:
    """Tell what happens, when it happens, until the client says DONE."""
    session.stream.write(b"+ idling\r\n")
    if session.view is not None:
        session.view.answered = None            # many may wait: nothing is kept for them
    await session.listen()
    try:
        line = await session.reading.line()
    except LineTooLong:
        line = b""
    if not is_done(line):
        raise Refused("DONE was expected", status=BAD)
    return Reply("IDLE completed")


_IDENTITY = ((b"name", b"onecopy"), (b"version", VERSION.encode()))
