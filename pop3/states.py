"""The states of a session, and the one table that says what is allowed in which (RFC 1939 §3, RFC 2449, RFC 5034)."""

from enum import Enum

from attrs import frozen

from pop3.wire import (
    Capa,
    Dele,
    Last,
    List,
    Noop,
    Parser,
    Quit,
    Retr,
    Rset,
    Stat,
    Stls,
    Uidl,
    Utf8,
    bare,
    of_message,
    of_messages,
    parse_auth,
    parse_lang,
    parse_pass,
    parse_top,
    parse_user,
)


class State(Enum):
    """RFC 1939 §3. UPDATE lasts as long as the answer to QUIT takes, and no command is read in it."""

    AUTHORIZATION = "not logged in"
    TRANSACTION = "logged in"


BEFORE = frozenset({State.AUTHORIZATION})
AFTER = frozenset({State.TRANSACTION})
ALWAYS = BEFORE | AFTER


class Farewell(Exception):
    """The server has had enough of this client: the last reply."""

    def __init__(self, reply: bytes) -> None:
        super().__init__()
        self.reply = reply


@frozen
class Entry:
    """How a command is parsed, and in which states it is allowed."""

    parse: Parser
    states: frozenset[State]


COMMANDS = {
    b"CAPA": Entry(bare(Capa), ALWAYS),
    b"STLS": Entry(bare(Stls), BEFORE),
    b"USER": Entry(parse_user, BEFORE),
    b"PASS": Entry(parse_pass, BEFORE),
    b"AUTH": Entry(parse_auth, BEFORE),
    b"STAT": Entry(bare(Stat), AFTER),
    b"LIST": Entry(of_messages(List), AFTER),
    b"RETR": Entry(of_message(Retr), AFTER),
    b"DELE": Entry(of_message(Dele), AFTER),
    b"NOOP": Entry(bare(Noop), AFTER),
    b"RSET": Entry(bare(Rset), AFTER),
    b"TOP": Entry(parse_top, AFTER),
    b"UIDL": Entry(of_messages(Uidl), AFTER),
    b"LAST": Entry(bare(Last), AFTER),
    b"UTF8": Entry(bare(Utf8), BEFORE),
    b"LANG": Entry(parse_lang, ALWAYS),
    b"QUIT": Entry(bare(Quit), ALWAYS),
}
