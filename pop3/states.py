"""The states of a session, and the one table that says what is allowed in which (RFC 1939 §3, RFC 2449, RFC 5034)."""

from enum import Enum

from attrs import frozen

from pop3 import wire
from pop3.wire import bare, of_message, of_messages


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

    parse: wire.Parser
    states: frozenset[State]


COMMANDS = {
    b"CAPA": Entry(bare(wire.Capa), ALWAYS),
    b"STLS": Entry(bare(wire.Stls), BEFORE),
    b"USER": Entry(wire.parse_user, BEFORE),
    b"PASS": Entry(wire.parse_pass, BEFORE),
    b"AUTH": Entry(wire.parse_auth, BEFORE),
    b"STAT": Entry(bare(wire.Stat), AFTER),
    b"LIST": Entry(of_messages(wire.List), AFTER),
    b"RETR": Entry(of_message(wire.Retr), AFTER),
    b"DELE": Entry(of_message(wire.Dele), AFTER),
    b"NOOP": Entry(bare(wire.Noop), AFTER),
    b"RSET": Entry(bare(wire.Rset), AFTER),
    b"TOP": Entry(wire.parse_top, AFTER),
    b"UIDL": Entry(of_messages(wire.Uidl), AFTER),
    b"LAST": Entry(bare(wire.Last), AFTER),
    b"UTF8": Entry(bare(wire.Utf8), BEFORE),
    b"LANG": Entry(wire.parse_lang, ALWAYS),
    b"QUIT": Entry(bare(wire.Quit), ALWAYS),
}
