"""The Sieve scripts of users: kept, listed, renamed, made active (RFC 5804 §2).

A script is an annotation of its owner's INBOX that no client can name, and so is the number of the active one. So
scripts are in `store.idx`, snapshots and backups, and go along when the user is renamed or moved, or comes back. Each
change is one transaction, and durable when the function returns.
"""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from attrs import frozen

from mboxlist.annotations import ACTIVE_SCRIPT as ACTIVE
from mboxlist.annotations import SCRIPTS
from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry
from mboxlist.names import INBOX, MailboxName
from mboxlist.table import MailboxNames
from store.accounts.base import Account
from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from store.problems import problems
from store.sieve.compiling import compile_script
from store.sieve.language import SIEVE
from store.sieve.scriptlimits import DEFAULT
from store.sieve.scriptproblems import Place, ScriptProblem
from store.store import Store

MOST = 32                       # scripts of a user
LONGEST = 512                   # octets of a name; RFC 5804 §1.6 asks for 128 characters

T = TypeVar("T")


class Refusal(Enum):
    """Why a change of scripts is not made, by the response codes of RFC 5804 §1.3."""

    NONEXISTENT = "there is no script of that name"
    ALREADYEXISTS = "a script of that name is there already"
    ACTIVE = "the active script cannot be deleted"
    QUOTA_MAXSCRIPTS = f"a user has at most {MOST} scripts"
    QUOTA_MAXSIZE = f"a script has at most {DEFAULT.script} octets"
    BAD_NAME = f"a script has a name of 1 to {LONGEST} octets, without control characters"


class ScriptRefused(Exception):
    """A change of scripts that is not made."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.value)


@frozen
class UserScript:
    """A script; its text is UTF-8."""

    number: int
    name: str
    text: bytes
    active: bool = False

    def to_bytes(self) -> bytes:
        """As it is stored: its name, an LF, its text."""
        return self.name.encode() + b"\n" + self.text

    @classmethod
    def from_bytes(cls, number: int, data: bytes, active: bool = False) -> "UserScript":
        """Out of its stored form."""
        name, _, text = data.partition(b"\n")
        return cls(number, name.decode("utf-8", "replace"), text, active)


def check_name(name: str) -> None:
    """Raises ScriptRefused for what cannot be the name of a script (RFC 5804 §1.6)."""
    try:
        octets = len(name.encode())
    except UnicodeEncodeError:
        octets = 0
    if not 0 < octets <= LONGEST or any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or char in "\u2028\u2029"
                                        for char in name):
        raise ScriptRefused(Refusal.BAD_NAME)


def check(text: bytes) -> None:
    """Whether the text is a script. Raises ScriptProblem, ScriptRefused."""
    if len(text) > DEFAULT.script:
        raise ScriptRefused(Refusal.QUOTA_MAXSIZE)
    try:
        script = text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ScriptProblem(Place(line, 1), "a script is text in UTF-8") from None
    compile_script(script, SIEVE)


def of_user(mailboxes: MailboxNames, user: str) -> list[UserScript]:
    """All scripts of a user, by name."""
    entry = mailboxes.find(MailboxName(user, INBOX))
    return [] if entry is None else sorted(_all(mailboxes, entry).values(), key=lambda one: one.name)


def active(mailboxes: MailboxNames, inbox: MailboxEntry) -> tuple[int, bytes] | None:
    """The active script of the user whose INBOX that is, as it is stored, with its number."""
    number = mailboxes.annotations.get(inbox.id, ACTIVE)
    if number is None:
        return None
    stored = mailboxes.annotations.get(inbox.id, SCRIPTS + number.decode())
    return None if stored is None else (int(number), stored)


def find(mailboxes: MailboxNames, user: str, name: str) -> UserScript:
    """The script of that name. Raises ScriptRefused."""
    found = next((one for one in of_user(mailboxes, user) if one.name == name), None)
    if found is None:
        raise ScriptRefused(Refusal.NONEXISTENT)
    return found


def require_room(mailboxes: MailboxNames, user: str, name: str, octets: int) -> None:
    """Whether a script of that size could be put (HAVESPACE, RFC 5804 §2.5). Raises ScriptRefused."""
    check_name(name)
    scripts = of_user(mailboxes, user)
    if octets > DEFAULT.script:
        raise ScriptRefused(Refusal.QUOTA_MAXSIZE)
    if len(scripts) >= MOST and all(one.name != name for one in scripts):
        raise ScriptRefused(Refusal.QUOTA_MAXSCRIPTS)


def put(store: Store, account: Account, name: str, text: bytes) -> None:
    """Keep a script, in the place of one of that name (PUTSCRIPT). Raises ScriptProblem, ScriptRefused, StoreError."""
    check_name(name)
    check(text)
    firstuse.inbox(store, account)

    def work(scripts: "_Scripts") -> None:
        old = scripts.named.get(name)
        if old is None and len(scripts.named) >= MOST:
            raise ScriptRefused(Refusal.QUOTA_MAXSCRIPTS)
        scripts.write(UserScript(old.number if old else scripts.free(), name, text))

    _change(store, account.user, work)


def delete(store: Store, user: str, name: str) -> None:
    """DELETESCRIPT. Raises ScriptRefused, StoreError."""
    def work(scripts: "_Scripts") -> None:
        script = scripts.get(name)
        if script.active:
            raise ScriptRefused(Refusal.ACTIVE)
        scripts.remove(script)

    _change(store, user, work)


def rename(store: Store, user: str, old: str, new: str) -> None:
    """RENAMESCRIPT; the active one stays active. Raises ScriptRefused, StoreError."""
    check_name(new)

    def work(scripts: "_Scripts") -> None:
        script = scripts.get(old)
        if new in scripts.named:
            raise ScriptRefused(Refusal.ALREADYEXISTS)
        scripts.write(UserScript(script.number, new, script.text))

    _change(store, user, work)


def activate(store: Store, user: str, name: str) -> None:
    """SETACTIVE; "" makes none active. Raises ScriptRefused, StoreError."""
    _change(store, user, lambda scripts: scripts.activate(scripts.get(name) if name else None))


def _all(mailboxes: MailboxNames, inbox: MailboxEntry, txn: Txn = None) -> dict[str, UserScript]:
    found, number = [], mailboxes.annotations.get(inbox.id, ACTIVE, txn=txn)
    for name, user, value in mailboxes.annotations.of(inbox.id, txn, SCRIPTS):
        if not user and name != ACTIVE:
            own = name.removeprefix(SCRIPTS)
            found.append(UserScript.from_bytes(int(own), value, number is not None and own == number.decode()))
    return {one.name: one for one in found}


class _Scripts:
    """The scripts of one user within a transaction."""

    def __init__(self, store: Store, inbox: MailboxEntry, txn: Txn) -> None:
        self.named = _all(store.mailboxes, inbox, txn)
        self._annotations, self._inbox, self._txn = store.mailboxes.annotations, inbox, txn

    def get(self, name: str) -> UserScript:
        if name not in self.named:
            raise ScriptRefused(Refusal.NONEXISTENT)
        return self.named[name]

    def free(self) -> int:
        return max((one.number for one in self.named.values()), default=0) + 1

    def write(self, script: UserScript) -> None:
        self._annotations.set(self._inbox.id, f"{SCRIPTS}{script.number}", script.to_bytes(), self._txn)

    def remove(self, script: UserScript) -> None:
        self._annotations.set(self._inbox.id, f"{SCRIPTS}{script.number}", None, self._txn)

    def activate(self, script: UserScript | None) -> None:
        self._annotations.set(self._inbox.id, ACTIVE, None if script is None else b"%d" % script.number, self._txn)


@problems()
def _change(store: Store, user: str, work: Callable[[_Scripts], T]) -> T:
    """Do that in a transaction, and have it on disk."""
    def within(txn: Txn) -> tuple[T, MailboxEntry]:
        entry = store.mailboxes.find(MailboxName(user, INBOX), txn)
        if entry is None:
            raise ScriptRefused(Refusal.NONEXISTENT)
        store.mailboxes.guard(user, txn)
        return work(_Scripts(store, entry, txn)), entry

    try:
        done, entry = transact(store.mailboxes.env, within)
    except ValueError as problem:
        raise StoreError(Problem.LIMIT, str(problem)) from problem
    store.mailboxes.env.flush()
    after_commit(store.mailboxes.noticed, entry)
    return done
