"""A relay, by SMTP (RFC 5321): it gets the mail that the store sends by itself, a message for one recipient at a time.

A code 4yz says that the relay does not take this message now, 5yz that it does not take it (RFC 5321 §4.2.1). All else
that fails, and 421 (§3.8), says that the relay is down. `smtp` is for a relay on this machine or in a network that is
trusted; `smtps` is TLS from the beginning (RFC 8314 §3.3), with the name and password of the address and the secret.

smtplib waits for the other side, so it runs in a thread of this receiver's own.
"""

import smtplib
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from attrs import define

from mboxlist import privatefiles
from store.accounts import clienttls
from store.events.outboxtable import Parcel
from store.events.outgoingmail import message_of
from tools.outbox.destination import Down, NotNow, Refused
from tools.outbox.outboxsettings import Settings
from tools.outbox.ownthread import OwnThread

PORTS = {"smtp": 25, "smtps": 465}
CLOSING = 421               # RFC 5321 §3.8: the relay ends the connection
_CONTROLS = frozenset(map(chr, (*range(33), 127))) | frozenset("<>")    # of which no address has any: RFC 5321 §4.1.2


@define(eq=False)
class MailRelay:
    """A connection for each message."""

    settings: Settings
    thread: OwnThread
    root: Path

    async def send(self, batch: Sequence[Parcel]) -> None:
        """See Destination. Raises Down, Refused, NotNow."""
        for parcel in batch:
            await self.thread.run(partial(deliver, self.settings, parcel, self.root))

    def close(self) -> None:
        """Nothing is open between two messages."""


def deliver(settings: Settings, parcel: Parcel, root: Path = Path()) -> None:
    """Give the relay the message; `root` is the folder of the store. Raises Down, Refused, NotNow."""
    try:
        sender, recipient, octets = message_of(parcel, root)
    except (ValueError, KeyError) as error:
        raise Refused(f"the row cannot be read: {error}", final=True) from error
    if not recipient or _CONTROLS.intersection(sender + recipient):
        raise Refused("an address is none", final=True)
    try:
        with _connected(settings) as smtp:
            _send(smtp, sender, recipient, octets)
    except smtplib.SMTPResponseException as error:      # of the greeting, EHLO, AUTH
        raise Down(_said(error.smtp_code, error.smtp_error)) from error
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise Down(f"{type(error).__name__}: {error}") from error


def _connected(settings: Settings) -> smtplib.SMTP:
    """Raises OSError, SMTPException, ValueError."""
    url = urlsplit(settings.to)
    own = socket.gethostname()          # else smtplib asks the DNS for it, which may take long
    host, port = url.hostname or "", url.port or PORTS[settings.kind]
    if settings.kind == "smtp":
        smtp = smtplib.SMTP(host, port, own, timeout=settings.timeout)
    else:
        authorities = None if settings.authorities is None else privatefiles.read_named(settings.authorities).decode()
        smtp = smtplib.SMTP_SSL(host, port, own, timeout=settings.timeout, context=clienttls.context(pem=authorities))
    try:
        smtp.ehlo_or_helo_if_needed()
        if settings.kind == "smtps" and url.username and settings.secret is not None:
            smtp.login(unquote(url.username), privatefiles.read_named(settings.secret).decode().strip())
    except BaseException:
        smtp.close()
        raise
    return smtp


def _send(smtp: smtplib.SMTP, sender: str, recipient: str, octets: bytes) -> None:
    """Raises Down, Refused, NotNow."""
    options = ["BODY=8BITMIME"] if not octets.isascii() and smtp.has_extn("8bitmime") else []
    if not (sender + recipient).isascii():
        options.append("SMTPUTF8")
    try:
        smtp.sendmail(sender, [recipient], octets, options)
    except smtplib.SMTPNotSupportedError as error:
        raise Refused(str(error), final=True) from error
    except smtplib.SMTPRecipientsRefused as error:
        raise _answer(*error.recipients[recipient]) from error
    except smtplib.SMTPResponseException as error:
        raise _answer(error.smtp_code, error.smtp_error) from error
    except ValueError as error:         # an address that smtplib cannot write: of this message alone
        raise Refused(f"it cannot be sent: {error}", final=True) from error


def _answer(code: int, text: bytes | str) -> Exception:
    """What the answer of the relay means."""
    if code == CLOSING or not 400 <= code < 600:
        return Down(_said(code, text))
    return NotNow(_said(code, text)) if code < 500 else Refused(_said(code, text), final=True)


def _said(code: int, text: bytes | str) -> str:
    return f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}".replace("\n", " ")


def of_settings(settings: Settings, reactor: Any, root: Path) -> MailRelay:
    """The receiver's relay, for the store in that folder."""
    return MailRelay(settings, OwnThread("outbox-relay", reactor.callFromThread), root)
