"""Mail that scripts send: vacation (RFC 5230, RFC 3834), notices (RFC 5436), what is sent on (RFC 5228 §4.2).

Who gets none, so that no mail goes in circles: RFC 5230 §4.5, §4.6; RFC 3834 §2.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from email.utils import format_datetime
from hashlib import blake2b
from urllib.parse import unquote, urlsplit

from attrs import frozen

from store.addresses import canonical
from store.message import headers
from store.sieve.actions.editing import MARK, PLAIN, field_of
from store.sieve.conditions.fieldtests import addresses_of
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptoutcome import Answered, Notified, Redirected
from store.sieve.surroundings import Envelope

HOPS = 100                      # Received fields of a message that is still sent on (RFC 5321 §6.3)
MARKS = 4                       # users whose scripts have sent a message on, one after the other
_ROBOTS = re.compile(r"(?:mailer-?daemon|postmaster|daemon|listserv|majordomo|no-?reply|do-?not-?reply|bounces?|root"
                     r"|owner-.*|.*-(?:request|owner|bounces?|relay))(?:[+=].*)?", re.IGNORECASE)
_RETURN_PATH = re.compile(rb"^return-path[ \t]*+:[^\n]*+\n(?:[ \t][^\n]*+\n)*", re.IGNORECASE | re.MULTILINE)
_TO = ("to", "cc", "bcc", "resent-to", "resent-cc", "resent-bcc")
_LISTS = ("list-id", "list-post", "list-unsubscribe", "list-help", "list-subscribe", "list-owner", "list-archive")


@frozen
class Letter:
    """A message that leaves by the outbox; `sender` is "" for <>."""

    sender: str
    recipient: str
    octets: bytes


def no_answer(message: ReceivedMail, envelope: Envelope, owned: Iterable[str]) -> str:
    """Why a message gets no answer from its recipient's script, whose addresses are `owned`; "" if it may get one."""
    sender = envelope.sender
    local = sender.rpartition("@")[0]
    mine = {_key(address) for address in owned}
    if not sender or not local:
        return "it has no sender"
    if _ROBOTS.fullmatch(local):
        return "its sender is no person"
    if _key(sender) in mine:
        return "the owner has sent it"
    if any(text.split(";")[0].strip().lower() != "no" for text in message.texts("auto-submitted")):
        return "no person has sent it (Auto-Submitted)"
    if any(message.values(name) for name in _LISTS):
        return "it has come by a mailing list"
    if any(text.strip().lower() in ("bulk", "list", "junk") for text in message.texts("precedence")):
        return "it is bulk mail (Precedence)"
    if any("oof" in text.lower() or text.strip().lower() == "all" for text in message.texts(
            "x-auto-response-suppress")):
        return "its sender wants no answers by programs"
    if any(text.strip().lower() in ("yes", "true") for text in message.texts("x-spam-flag")):
        return "it is spam (X-Spam-Flag)"
    named = {_key(f"{user}@{domain}") for name in _TO for value in message.values(name)
             for user, domain in addresses_of(value)}
    return "" if named & mine else "none of the owner's addresses is in To or Cc"


def _key(address: str) -> str:
    try:
        return canonical(address)
    except ValueError:
        return address.lower()


def vacation(answer: Answered, message: ReceivedMail, envelope: Envelope, now: datetime) -> Letter:
    """The answer (RFC 5230 §5): from the null path, so that nothing answers it."""
    subject = answer.subject or "Auto: " + (message.texts("subject") or [""])[0]
    sender = answer.sender or envelope.recipient
    fields = [("From", sender), ("To", envelope.sender), ("Subject", subject[:500]), ("Date", format_datetime(now)),
              ("Message-ID", _message_id(b"vacation", message, envelope, answer.handle)),
              ("Auto-Submitted", "auto-replied (vacation)"), ("Precedence", "bulk")]
    return Letter("", envelope.sender, _message([*fields, *_threading(message)], answer.reason, entity=answer.mime))


def notice(notified: Notified, address: str, message: ReceivedMail, envelope: Envelope, now: datetime) -> Letter:
    """RFC 5436 §2.7: a notice, from the owner unless the script says otherwise."""
    subject = (message.texts("subject") or [""])[0]
    text = notified.message or f"New mail: {subject}"
    fields = [("From", notified.sender or envelope.recipient), ("To", address), ("Subject", text.splitlines()[0][:500]),
              ("Date", format_datetime(now)), ("Message-ID", _message_id(b"notify", message, envelope, address)),
              ("Auto-Submitted", f"auto-notified; owner-email=\"{envelope.recipient}\""),
              ("X-Priority", str(notified.importance * 2 - 1))]
    body = f"{notified.message}\n" if notified.message else (
        f"From: {(message.texts('from') or [''])[0]}\nSubject: {subject}\n")
    return Letter("", address, _message(fields, body))


def failure_note(failure: str, message: ReceivedMail, envelope: Envelope, now: datetime,
                 became: str = "was kept in your INBOX") -> bytes:
    """What the owner of a script finds in the INBOX when it has failed (RFC 5228 §2.10.6). `became`: what the message
    did."""
    subject = (message.texts("subject") or [""])[0]
    fields = [("From", envelope.recipient), ("To", envelope.recipient), ("Subject", "A mail filter failed"),
              ("Date", format_datetime(now)), ("Message-ID", _message_id(b"failure", message, envelope, failure)),
              ("Auto-Submitted", "auto-generated")]
    return _message(fields, f"Your filter script could not run to its end:\n\n    {failure}\n\n"
                            f"The message \"{subject}\" {became}, and nothing else was done with it.\n"
                            "You get such a note once a day at most for each kind of failure.\n")


def sent_on(redirected: Redirected, octets: bytes, message: ReceivedMail, envelope: Envelope, sender: str) -> Letter:
    """RFC 5228 §4.2: the message as it is, with a trace of whose script has sent it on; what a script has made of it
    keeps the traces that there were. Return-Path is of what is delivered, not of what goes on (RFC 5321 §4.4)."""
    trace = f"{MARK}: {envelope.recipient}\r\n".encode("utf-8", "replace")
    if redirected.edition.whole is not None and not ReceivedMail.of(octets).values(MARK):
        trace += b"".join([MARK.encode() + b": " + value[:500] + b"\r\n" for value in message.values(MARK)])
    end = headers.header_end(octets) or len(octets)
    return Letter(sender, redirected.address, trace + _RETURN_PATH.sub(b"", octets[:end]) + octets[end:])


def circles(message: ReceivedMail, envelope: Envelope) -> str:
    """Why a message is not sent on; "" if it may be (RFC 5228 §10)."""
    if len(message.values("received")) > HOPS:
        return f"it has come by more than {HOPS} hosts"
    if len(message.values(MARK)) > MARKS:
        return f"the scripts of more than {MARKS} users have sent it on"
    mine = _key(envelope.recipient)
    if any(_key(text.strip()) == mine for text in message.texts(MARK)):
        return f"it has been here before ({MARK})"
    return ""


def _threading(message: ReceivedMail) -> Sequence[tuple[str, str]]:
    """RFC 5322 §3.6.4."""
    own = (message.texts("message-id") or [""])[0]
    if not own or len(own) > PLAIN // 2 or not own.isascii() or any(char.isspace() for char in own):
        return ()                   # what is none, or could not be folded
    references, room = [own], PLAIN - 20
    for one in reversed(" ".join(message.texts("references") or message.texts("in-reply-to")).split()):
        room -= len(one) + 1
        if room < len(own) or not one.isascii():
            break
        references.insert(0, one)
    return ("In-Reply-To", own), ("References", " ".join(references))


def _message_id(what: bytes, message: ReceivedMail, envelope: Envelope, more: str) -> str:
    """One that is the same when the same is sent again."""
    parts = what, message.header, envelope.recipient.encode("utf-8", "replace"), more.encode("utf-8", "replace")
    domain = envelope.recipient.rpartition("@")[2] or "localhost"
    return f"<{blake2b(bytes(1).join(parts), digest_size=15).hexdigest()}@{domain}>"


def _message(fields: Iterable[tuple[str, str]], text: str, *, entity: bool = False) -> bytes:
    head = b"".join([field_of(name, value).octets for name, value in fields]) + b"MIME-Version: 1.0\r\n"
    body = text.replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-8", "replace")
    if entity:
        return head + body
    return head + b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + body


def mail_addresses(uri: str) -> list[str]:
    """The addresses of a URI of scheme mailto (RFC 6068)."""
    path = urlsplit(uri).path
    found = (headers.addresses(unquote(part).encode("utf-8", "replace")) for part in path.split(","))
    return [f"{one[0].mailbox.decode()}@{one[0].host.decode()}" for one in found
            if len(one) == 1 and one[0].mailbox and one[0].host]
