"""The replies of LMTP: three digits, the enhanced code of RFC 3463, a text (RFC 5321 §4.2, RFC 2034 §4).

All replies with a fixed text are here; those to a problem of the store are made by `refusals.py`.
"""

import base64
import re
from collections.abc import Iterable

from attrs import field, frozen

REASON_LINES, REASON_WIDTH = 10, 200      # of a script's refusal
TEXT_LIMIT = 400        # octets of text in a line; a reply line may have 512 (RFC 5321 §4.5.3.1.5)

_NOT_TEXT = re.compile(r"[^\t -~]")


@frozen
class Reply:
    """One reply, of a line or more. `enhanced` is "" where RFC 2034 §4 wants none."""

    code: int
    enhanced: str
    lines: tuple[str, ...]
    octets: bytes = field(init=False, repr=False, eq=False)

    @octets.default
    def _render(self) -> bytes:
        enhanced = f"{self.enhanced} " if self.enhanced else ""
        if len(self.lines) == 1:
            text = _NOT_TEXT.sub("?", self.lines[0])[:TEXT_LIMIT]
            return f"{self.code} {enhanced}{text}\r\n".encode("ascii")
        texts = [enhanced + _NOT_TEXT.sub("?", line)[:TEXT_LIMIT] for line in self.lines]
        rendered = [f"{self.code}-{text}\r\n" for text in texts[:-1]] + [f"{self.code} {texts[-1]}\r\n"]
        return "".join(rendered).encode("ascii")

    def __str__(self) -> str:
        return f"{self.code} {self.enhanced}".rstrip()


class SyntaxProblem(Exception):
    """The command cannot be understood; `reply` says so to the client."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        super().__init__(str(reply))


class Farewell(Exception):
    """The conversation cannot go on; `reply` is the last one."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        super().__init__(str(reply))


def _reply(code: int, enhanced: str, *lines: str) -> Reply:
    return Reply(code, enhanced, lines)


def rejected(reason: str) -> Reply:
    """The recipient's script refuses the message with that text (RFC 5429 §2.1)."""
    lines = [line[:REASON_WIDTH] for line in reason.splitlines() if line.strip()][:REASON_LINES]
    return _reply(550, "5.7.1", *(lines or ("The recipient refuses the message",)))


OK = _reply(250, "2.0.0", "Ok")
SENDER_OK = _reply(250, "2.1.0", "Sender accepted")
RECIPIENT_OK = _reply(250, "2.1.5", "Recipient accepted")
GO_AHEAD = _reply(354, "", "Start the message; end it with <CRLF>.<CRLF>")
BYE = _reply(221, "2.0.0", "Goodbye")
CANNOT_VERIFY = _reply(252, "2.0.0", "Not verified; RCPT gives the answer")
TLS_READY = _reply(220, "2.0.0", "Ready to start TLS")
AUTHENTICATED = _reply(235, "2.7.0", "Authentication succeeded")
HELP = _reply(214, "2.0.0", "LMTP, RFC 2033. Commands:",
              "LHLO MAIL RCPT DATA BDAT RSET NOOP VRFY HELP STARTTLS AUTH XCLIENT QUIT")

STOPPING = _reply(421, "4.3.2", "The server is going down, try again later")
TOO_SLOW = _reply(421, "4.4.2", "Waited too long, closing the connection")
TOO_MANY_ERRORS = _reply(421, "4.7.0", "Too many errors, closing the connection")
TOO_MANY_COMMANDS = _reply(421, "4.7.0", "Too many commands and no message, closing the connection")
TOO_MUCH = _reply(421, "4.7.0", "The message does not end, closing the connection")
BAD_BDAT = _reply(421, "4.5.4", "Say BDAT size [LAST]; closing, since nobody knows where the chunk ends")
BROKEN = _reply(421, "4.3.0", "An error of this server, closing the connection")
REFUSED = _reply(554, "", "You may not deliver here")                                # in place of the greeting: no code

UNKNOWN_COMMAND = _reply(500, "5.5.1", "Unknown command")
USE_LHLO = _reply(500, "5.5.1", "This is LMTP: use LHLO")                           # RFC 2033 §4.1
LINE_TOO_LONG = _reply(500, "5.5.2", "Line too long")
NOT_OFFERED = _reply(502, "5.5.1", "Command not offered here")

BAD_LHLO = _reply(501, "", "LHLO needs a domain or an address literal")             # RFC 2034 §4: no code
NEEDS_ARGUMENT = _reply(501, "5.5.4", "The command needs an argument")
NO_ARGUMENT = _reply(501, "5.5.4", "The command takes no argument")
BAD_MAIL = _reply(501, "5.5.2", "Say MAIL FROM:<address>")
BAD_RCPT = _reply(501, "5.5.2", "Say RCPT TO:<address>")
BAD_SENDER = _reply(501, "5.1.7", "Not the syntax of a sender's address")
BAD_RECIPIENT = _reply(501, "5.1.3", "Not the syntax of a recipient's address")
BAD_PARAMETER = _reply(501, "5.5.4", "A parameter is malformed or given twice")
UNKNOWN_PARAMETER = _reply(555, "5.5.4", "A parameter is not known here")
BAD_AUTH = _reply(501, "5.5.4", "Say AUTH mechanism [initial-response]")
BAD_RESPONSE = _reply(501, "5.5.2", "Not base64, or not a message of the mechanism")       # RFC 4954 §4
AUTH_CANCELLED = _reply(501, "5.7.0", "Authentication cancelled")
UNKNOWN_MECHANISM = _reply(504, "5.5.4", "The mechanism is not offered")
AUTH_FAILED = _reply(535, "5.7.8", "Authentication credentials invalid")
AUTH_UNAVAILABLE = _reply(454, "4.7.0", "Temporary authentication failure")
ENCRYPT_FIRST = _reply(538, "5.7.11", "Encryption required: say STARTTLS first")
AUTH_TOO_LONG = _reply(500, "5.5.6", "Authentication exchange line is too long")
NOT_TRUSTED = _reply(550, "5.7.0", "Only proxies that are trusted may say that")
PROVE_YOURSELF = _reply(530, "5.7.0", "Log in, or show a certificate, first")
EMPTY_RECIPIENT = _reply(553, "5.1.3", "A recipient has a name")
NOT_ASCII = _reply(553, "5.6.7", "Say MAIL with SMTPUTF8 for addresses like that")       # RFC 6531 §3.5

LHLO_FIRST = _reply(503, "5.5.1", "Say LHLO first")
MAIL_FIRST = _reply(503, "5.5.1", "Say MAIL first")
NESTED_MAIL = _reply(503, "5.5.1", "The sender is given already")
NO_RECIPIENTS = _reply(503, "5.5.1", "No recipient was accepted")                   # RFC 2033 §4.2
NOT_IN_MAIL = _reply(503, "5.5.1", "Not between MAIL and the end of the message")
USE_BDAT = _reply(503, "5.5.1", "This message comes by BDAT")                       # RFC 3030 §2, §3
CHUNK_FAILED = _reply(503, "5.5.1", "A part of the message was refused, say RSET")
AUTH_ALREADY = _reply(503, "5.5.1", "You are logged in already")
TLS_ALREADY = _reply(503, "5.5.1", "TLS is in use already")

TOO_BIG = _reply(552, "5.3.4", "The message is too big")
TOO_MANY_RECIPIENTS = _reply(452, "4.5.3", "Too many recipients, send the message again for the rest")
LOCAL_ERROR = _reply(451, "4.3.0", "An error of this server, try again later")


def greeting(hostname: str) -> Reply:
    """The first line of a connection (RFC 5321 §4.2)."""
    return Reply(220, "", (f"{hostname} LMTP onecopy",))


def limit_reached(text: str) -> Reply:
    """In place of the greeting, so without a code (RFC 2034 §4)."""
    return Reply(421, "", (f"{text}, try again later",))


def ended(text: str) -> Reply:
    """An administrator ends the connection."""
    return Reply(421, "4.3.2", (text,))


def login_ended(text: str) -> Reply:
    """The login of a relay holds no more: its mail waits there until it can log in again."""
    return Reply(421, "4.7.0", (text,))


def challenge(octets: bytes) -> bytes:
    """What AUTH asks the client (RFC 4954 §4); it may be longer than a reply."""
    return b"334 " + base64.b64encode(octets) + b"\r\n"


def hello(hostname: str, message_limit: int, extras: Iterable[str]) -> Reply:
    """The answer to LHLO: the extensions offered now (RFC 2033 §4.1), `extras` to this client."""
    return Reply(250, "", (hostname, "PIPELINING", f"SIZE {message_limit}", "8BITMIME", "SMTPUTF8", "CHUNKING",
                           "BINARYMIME", *extras, "ENHANCEDSTATUSCODES"))


def chunk_taken(octets: int) -> Reply:
    """RFC 3030 §2: a chunk that is not the last one."""
    return Reply(250, "2.0.0", (f"{octets} octets received",))


def taken(delivery_id: str) -> Reply:
    """The message is in the recipient's mailbox, and on disk."""
    return Reply(250, "2.0.0", (f"Delivered, {delivery_id}",))


def known(delivery_id: str) -> Reply:
    """The recipient has the message already (`duplicate_window`)."""
    return Reply(250, "2.0.0", (f"Delivered before, {delivery_id}",))
