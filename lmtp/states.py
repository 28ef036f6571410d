"""Which command may come when (RFC 5321 §4.1.4, RFC 2033 §4), in one table."""

from enum import Enum

from attrs import frozen

from lmtp import replies
from lmtp.replies import Reply
from lmtp.wire import (
    Data,
    Parser,
    Quit,
    Rset,
    Starttls,
    alone,
    parse_help,
    parse_lhlo,
    parse_mail,
    parse_noop,
    parse_rcpt,
    parse_vrfy,
)


class State(Enum):
    """How far the conversation is."""

    STRANGER = "no LHLO yet"
    READY = "between two messages"
    SENDER = "MAIL was accepted, no RCPT yet"
    RECIPIENTS = "a RCPT was accepted"


@frozen
class Entry:
    """How to parse a command, and the replies in states where it is out of order."""

    parse: Parser
    refusals: dict[State, Reply]


_ANY: dict[State, Reply] = {}
_KNOWN = {State.STRANGER: replies.LHLO_FIRST}
_BETWEEN = _KNOWN | {State.SENDER: replies.NOT_IN_MAIL, State.RECIPIENTS: replies.NOT_IN_MAIL}

COMMANDS = {
    b"LHLO": Entry(parse_lhlo, _ANY),
    b"MAIL": Entry(parse_mail, _KNOWN | {State.SENDER: replies.NESTED_MAIL, State.RECIPIENTS: replies.NESTED_MAIL}),
    b"RCPT": Entry(parse_rcpt, _KNOWN | {State.READY: replies.MAIL_FIRST}),
    b"DATA": Entry(alone(Data()), _KNOWN | {State.READY: replies.MAIL_FIRST, State.SENDER: replies.NO_RECIPIENTS}),
    b"RSET": Entry(alone(Rset()), _ANY),
    b"NOOP": Entry(parse_noop, _ANY),
    b"VRFY": Entry(parse_vrfy, _ANY),
    b"HELP": Entry(parse_help, _ANY),
    b"STARTTLS": Entry(alone(Starttls()), _BETWEEN),
    b"QUIT": Entry(alone(Quit()), _ANY),
}

OTHERS = {
    b"HELO": replies.USE_LHLO, b"EHLO": replies.USE_LHLO,                       # RFC 2033 §4.1
    b"EXPN": replies.NOT_OFFERED, b"TURN": replies.NOT_OFFERED, b"ETRN": replies.NOT_OFFERED,
    b"AUTH": replies.NOT_OFFERED, b"BDAT": replies.NOT_OFFERED,
}
