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
    parse_auth,
    parse_bdat,
    parse_help,
    parse_lhlo,
    parse_mail,
    parse_noop,
    parse_rcpt,
    parse_vrfy,
    parse_xclient,
)


class State(Enum):
    """How far the conversation is."""

    STRANGER = "no LHLO yet"
    READY = "between two messages"
    SENDER = "MAIL was accepted, no RCPT yet"
    RECIPIENTS = "a RCPT was accepted"
    CHUNKS = "a BDAT was accepted that was not the last one"
    FAILED = "a BDAT was refused: only RSET leads on"

    __hash__ = object.__hash__          # that of an Enum is a function of Python's, and each is one of a kind


@frozen
class Entry:
    """How to parse a command, and the replies in states where it is out of order."""

    parse: Parser
    refusals: dict[State, Reply]


_ANY: dict[State, Reply] = {}
_KNOWN = {State.STRANGER: replies.LHLO_FIRST}
_CHUNKED = {State.CHUNKS: replies.USE_BDAT, State.FAILED: replies.CHUNK_FAILED}
_BETWEEN = dict.fromkeys(set(State) - {State.STRANGER, State.READY}, replies.NOT_IN_MAIL)
_EMPTY = _KNOWN | {State.READY: replies.MAIL_FIRST, State.SENDER: replies.NO_RECIPIENTS}

COMMANDS = {
    b"LHLO": Entry(parse_lhlo, _ANY),
    b"MAIL": Entry(parse_mail, _KNOWN | dict.fromkeys(_BETWEEN, replies.NESTED_MAIL)),
    b"RCPT": Entry(parse_rcpt, _KNOWN | _CHUNKED | {State.READY: replies.MAIL_FIRST}),
    b"DATA": Entry(alone(Data()), _EMPTY | _CHUNKED),
    b"BDAT": Entry(parse_bdat, _EMPTY | {State.FAILED: replies.CHUNK_FAILED}),
    b"RSET": Entry(alone(Rset()), _ANY),
    b"NOOP": Entry(parse_noop, _ANY),
    b"VRFY": Entry(parse_vrfy, _ANY),
    b"HELP": Entry(parse_help, _ANY),
    b"STARTTLS": Entry(alone(Starttls()), _KNOWN | _BETWEEN),
    b"AUTH": Entry(parse_auth, _KNOWN | _BETWEEN),
    b"XCLIENT": Entry(parse_xclient, _BETWEEN),
    b"QUIT": Entry(alone(Quit()), _ANY),
}

OTHERS = {
    b"HELO": replies.USE_LHLO, b"EHLO": replies.USE_LHLO,                       # RFC 2033 §4.1
    b"EXPN": replies.NOT_OFFERED, b"TURN": replies.NOT_OFFERED, b"ETRN": replies.NOT_OFFERED,
}
