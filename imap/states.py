"""What a command comes to: its tagged reply, or a refusal; and what may be done in which state (RFC 3501 §3, §7.1)."""

from collections.abc import Callable

from attrs import define

from imap.wire.commands import BEFORE_LOGIN, Entry, State
from imap.wire.responses import NO, OK


@define                 # `frozen` would set each of the attributes by a call, for each command
class Reply:
    """The tagged reply of a command that was carried out, which nobody changes. `then` is called once it has been
    written."""

    text: str
    code: bytes = b""
    status: bytes = OK
    then: Callable[[], None] | None = None


class Refused(Exception):
    """The command is not carried out; the client hears why."""

    def __init__(self, public: str, code: bytes = b"", status: bytes = NO) -> None:
        super().__init__(public)
        self.public = public
        self.code = code
        self.status = status


class Farewell(Exception):
    """The server ends the connection: the text and code of its BYE (RFC 3501 §7.1.5)."""

    def __init__(self, public: str, code: bytes = b"") -> None:
        super().__init__(public)
        self.public = public
        self.code = code


def why_not(entry: Entry, state: State) -> str:
    """Why a command is not allowed in this state; nothing if it is."""
    if state in entry.states:
        return ""
    if state is State.NOT_AUTHENTICATED:
        return "Log in first"
    return "Already logged in" if entry.states == BEFORE_LOGIN else "Select a mailbox first"
