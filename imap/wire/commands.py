"""The one table that says which commands there are, how they are read, and where they are allowed (RFC 3501 §6).

A later extension is a family module and its rows here. UID commands have names of two words. What a command is answered
with in the end, `status_response`, is here, too; what else a server says is in `responses`.
"""

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, partial
from typing import Any

from attrs import frozen

from imap.wire.accesscontrol import GetAcl, MyRights, parse_deleteacl, parse_listrights, parse_setacl
from imap.wire.append import parse_append
from imap.wire.commandlimits import Limits
from imap.wire.connection import Capability, Idle, Logout, Noop, StartTls, Unauthenticate, parse_enable, parse_id
from imap.wire.copying import parse_copy
from imap.wire.fetch import parse_fetch
from imap.wire.flags import parse_store
from imap.wire.framer import Frame
from imap.wire.grammar import TAG, SyntaxProblem
from imap.wire.listing import parse_list, parse_lsub, parse_status
from imap.wire.login import parse_authenticate, parse_login
from imap.wire.mailboxes import Delete, Namespace, Subscribe, Unsubscribe, parse_create, parse_rename
from imap.wire.metadata import parse_getmetadata, parse_setmetadata
from imap.wire.quotaroots import GetQuotaRoot, parse_getquota, parse_setquota
from imap.wire.scanner import Scanner
from imap.wire.search import parse_search
from imap.wire.selecting import Check, Close, Expunge, Unselect, parse_select, parse_uid_expunge
from imap.wire.sorting import parse_sort, parse_thread


class State(Enum):
    """RFC 3501 §3."""

    NOT_AUTHENTICATED = "not authenticated"
    AUTHENTICATED = "authenticated"
    SELECTED = "selected"
    LOGOUT = "logout"


ANY = State.NOT_AUTHENTICATED, State.AUTHENTICATED, State.SELECTED
BEFORE_LOGIN = State.NOT_AUTHENTICATED,
AUTHENTICATED = State.AUTHENTICATED, State.SELECTED
SELECTED = State.SELECTED,


@frozen
class Entry:
    """One command. `numbers`: its arguments or its answer use message sequence numbers, so no expunge may be told
    between its being sent and its end unless `expunges` (RFC 3501 §5.5, §7.4.1)."""

    parse: "Callable[[Scanner], Any] | Bare"
    states: tuple[State, ...]
    numbers: bool
    expunges: bool


@frozen
class Bare:
    """The parser of a command without arguments, which is always this value."""

    command: Any

    def __call__(self, scan: Scanner) -> Any:
        """The command."""
        scan.end()
        return self.command


def of_mailbox(make: Callable[[str], Any]) -> Callable[[Scanner], Any]:
    """A parser for a command with the name of a mailbox and nothing else."""
    def parse(scan: Scanner) -> Any:
        name = scan.next_mailbox()
        scan.end()
        return make(name)
    return parse


COMMANDS: dict[bytes, Entry] = {
    #                      parser                                    states         uses numbers   tells of expunges
    b"CAPABILITY":   Entry(Bare(Capability()),                       ANY,           numbers=False, expunges=True),
    b"NOOP":         Entry(Bare(Noop()),                             ANY,           numbers=False, expunges=True),
    b"LOGOUT":       Entry(Bare(Logout()),                           ANY,           numbers=False, expunges=False),
    b"ID":           Entry(parse_id,                                 ANY,           numbers=False, expunges=True),
    b"STARTTLS":     Entry(Bare(StartTls()),                         BEFORE_LOGIN,  numbers=False, expunges=False),
    b"LOGIN":        Entry(parse_login,                              BEFORE_LOGIN,  numbers=False, expunges=False),
    b"AUTHENTICATE": Entry(parse_authenticate,                       BEFORE_LOGIN,  numbers=False, expunges=False),
    b"ENABLE":       Entry(parse_enable,                             AUTHENTICATED, numbers=False, expunges=True),
    b"UNAUTHENTICATE": Entry(Bare(Unauthenticate()),                 AUTHENTICATED, numbers=False, expunges=False),
    b"IDLE":         Entry(Bare(Idle()),                             AUTHENTICATED, numbers=False, expunges=True),
    b"SELECT":       Entry(partial(parse_select, read_only=False),   AUTHENTICATED, numbers=False, expunges=False),
    b"EXAMINE":      Entry(partial(parse_select, read_only=True),    AUTHENTICATED, numbers=False, expunges=False),
    b"NAMESPACE":    Entry(Bare(Namespace()),                        AUTHENTICATED, numbers=False, expunges=True),
    b"CREATE":       Entry(parse_create,                             AUTHENTICATED, numbers=False, expunges=True),
    b"DELETE":       Entry(of_mailbox(Delete),                       AUTHENTICATED, numbers=False, expunges=True),
    b"RENAME":       Entry(parse_rename,                             AUTHENTICATED, numbers=False, expunges=True),
    b"SUBSCRIBE":    Entry(of_mailbox(Subscribe),                    AUTHENTICATED, numbers=False, expunges=True),
    b"UNSUBSCRIBE":  Entry(of_mailbox(Unsubscribe),                  AUTHENTICATED, numbers=False, expunges=True),
    b"LIST":         Entry(parse_list,                               AUTHENTICATED, numbers=False, expunges=True),
    b"LSUB":         Entry(parse_lsub,                               AUTHENTICATED, numbers=False, expunges=True),
    b"STATUS":       Entry(parse_status,                             AUTHENTICATED, numbers=False, expunges=True),
    b"SETACL":       Entry(parse_setacl,                             AUTHENTICATED, numbers=False, expunges=True),
    b"DELETEACL":    Entry(parse_deleteacl,                          AUTHENTICATED, numbers=False, expunges=True),
    b"GETACL":       Entry(of_mailbox(GetAcl),                       AUTHENTICATED, numbers=False, expunges=True),
    b"LISTRIGHTS":   Entry(parse_listrights,                         AUTHENTICATED, numbers=False, expunges=True),
    b"MYRIGHTS":     Entry(of_mailbox(MyRights),                     AUTHENTICATED, numbers=False, expunges=True),
    b"GETQUOTA":     Entry(parse_getquota,                           AUTHENTICATED, numbers=False, expunges=True),
    b"GETQUOTAROOT": Entry(of_mailbox(GetQuotaRoot),                 AUTHENTICATED, numbers=False, expunges=True),
    b"SETQUOTA":     Entry(parse_setquota,                           AUTHENTICATED, numbers=False, expunges=True),
    b"GETMETADATA":  Entry(parse_getmetadata,                        AUTHENTICATED, numbers=False, expunges=True),
    b"SETMETADATA":  Entry(parse_setmetadata,                        AUTHENTICATED, numbers=False, expunges=True),
    b"APPEND":       Entry(parse_append,                             AUTHENTICATED, numbers=False, expunges=True),
    b"CHECK":        Entry(Bare(Check()),                            SELECTED,      numbers=False, expunges=True),
    b"CLOSE":        Entry(Bare(Close()),                            SELECTED,      numbers=False, expunges=False),
    b"UNSELECT":     Entry(Bare(Unselect()),                         SELECTED,      numbers=False, expunges=False),
    b"EXPUNGE":      Entry(Bare(Expunge()),                          SELECTED,      numbers=False, expunges=True),
    b"UID EXPUNGE":  Entry(parse_uid_expunge,                        SELECTED,      numbers=False, expunges=True),
    b"SEARCH":       Entry(partial(parse_search, by_uid=False),      SELECTED,      numbers=True,  expunges=False),
    b"UID SEARCH":   Entry(partial(parse_search, by_uid=True),       SELECTED,      numbers=False, expunges=True),
    b"SORT":         Entry(partial(parse_sort, by_uid=False),        SELECTED,      numbers=True,  expunges=False),
    b"UID SORT":     Entry(partial(parse_sort, by_uid=True),         SELECTED,      numbers=False, expunges=True),
    b"THREAD":       Entry(partial(parse_thread, by_uid=False),      SELECTED,      numbers=True,  expunges=False),
    b"UID THREAD":   Entry(partial(parse_thread, by_uid=True),       SELECTED,      numbers=False, expunges=True),
    b"FETCH":        Entry(partial(parse_fetch, by_uid=False),       SELECTED,      numbers=True,  expunges=False),
    b"UID FETCH":    Entry(partial(parse_fetch, by_uid=True),        SELECTED,      numbers=False, expunges=True),
    b"STORE":        Entry(partial(parse_store, by_uid=False),       SELECTED,      numbers=True,  expunges=False),
    b"UID STORE":    Entry(partial(parse_store, by_uid=True),        SELECTED,      numbers=False, expunges=True),
    b"COPY":         Entry(partial(parse_copy, by_uid=False, remove=False), SELECTED, numbers=True,  expunges=True),
    b"UID COPY":     Entry(partial(parse_copy, by_uid=True, remove=False), SELECTED, numbers=False, expunges=True),
    b"MOVE":         Entry(partial(parse_copy, by_uid=False, remove=True), SELECTED, numbers=True,  expunges=True),
    b"UID MOVE":     Entry(partial(parse_copy, by_uid=True, remove=True), SELECTED, numbers=False, expunges=True),
}

_HEAD = re.compile(rb"(" + TAG.pattern + rb") ((?i:UID) [A-Za-z]++|[A-Za-z][A-Za-z0-9-]*+)")
_DEFAULT = Limits()
_NOT_TEXT = re.compile(r"[^ -~]")
_NOT_CODE = re.compile(rb"[^ -\\^-~]")      # printable, and no "]"


class BadCommand(Exception):
    """A frame that is no command; `tag` is None if it could not be read. `responses.problem` makes the answer."""

    def __init__(self, tag: bytes | None, problem: SyntaxProblem) -> None:
        self.tag = tag
        self.problem = problem
        super().__init__(problem.public)


class Head:
    """A command whose name is known and whose arguments have not been looked at."""

    __slots__ = ("_at", "_frame", "entry", "name", "tag")

    def __init__(self, frame: Frame) -> None:
        """Raises BadCommand."""
        found = _HEAD.match(frame[0])
        if found is None:
            raise _no_command(frame)
        self.tag, name = found.groups()
        self.name: bytes = name.upper()         # its key in COMMANDS
        entry = COMMANDS.get(self.name)
        if entry is None:
            raise BadCommand(self.tag, SyntaxProblem("Unknown command"))
        self.entry = entry
        self._frame = frame
        self._at = found.end()

    def value(self, limits: Limits = _DEFAULT, *, utf8: bool = False) -> Any:
        """The command itself: one of the frozen values of the families. `utf8`: see `Scanner`. Raises BadCommand."""
        parse = self.entry.parse
        if type(parse) is Bare and self._at == len(self._frame[0]):
            return parse.command
        try:
            return parse(Scanner(self._frame, limits, utf8, self._at))
        except SyntaxProblem as problem:
            raise BadCommand(self.tag, problem) from None


def parse_command(frame: Frame, limits: Limits = _DEFAULT, *, utf8: bool = False) -> tuple[bytes, Any]:
    """The tag and the command. Raises BadCommand."""
    head = Head(frame)
    return head.tag, head.value(limits, utf8=utf8)


def _no_command(frame: Frame) -> BadCommand:
    """What to say of a frame that does not begin with a tag and a word."""
    text = frame[0]
    tag = TAG.match(text)
    if tag is None:
        return BadCommand(None, SyntaxProblem("A command begins with a tag"))
    rest = text[tag.end():]
    if not rest:
        return BadCommand(tag[0], SyntaxProblem("The command is missing"))
    return BadCommand(tag[0] if rest.startswith(b" ") else None, SyntaxProblem("A tag and a command are expected"))


def status_response(tag: bytes | None, status: bytes, text: str, code: bytes = b"") -> bytes:
    """response-tagged; without a tag, resp-cond-state or resp-cond-bye (RFC 3501 §7.1).

    Raises ValueError for a code that would end early.
    """
    if code:
        if _NOT_CODE.search(code):
            raise ValueError("not a response code")
        return b"%s %s [%s] %s\r\n" % (tag or b"*", status, code, _NOT_TEXT.sub("?", text).encode("ascii") or b"-")
    return b"%s %s %s\r\n" % (tag or b"*", status, _without_code(text))


@lru_cache(maxsize=256)
def _without_code(text: str) -> bytes:
    """resp-text without a code; the same few come again and again. What begins with "[" would be read as a code."""
    return _NOT_TEXT.sub("?", text).lstrip("[ ").encode("ascii") or b"-"
