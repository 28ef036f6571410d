"""The Sieve scripts of users: kept, listed, renamed, made active (RFC 5804 §2).

A script is an annotation of its owner's INBOX that no client can name, and so is the number of the active one. So
scripts are in `store.idx`, snapshots and backups, and go along when the user is renamed or moved, or comes back. Each
change is one transaction, and durable when the function returns.

The number 0 is that of what the directory has for the user (mailSieveRuleSource). It is the active one while the user
has made no other active: so a delivery finds what runs in one look, and needs no directory for it.
"""

from collections.abc import Callable, Sequence
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
from store.filtering.sievesettings import Settings
from store.mailboxes import firstuse
from store.problems import problems
from store.sieve.compiling import compile_script
from store.sieve.language import SIEVE
from store.sieve.scriptlimits import DEFAULT
from store.sieve.scriptproblems import Place, ScriptProblem
from store.sieve.scriptrun import Tree
from store.store import Store

OF_DIRECTORY = 0                # the number of the directory's script
LONGEST = 512                   # octets of a name; RFC 5804 §1.6 asks for 128 characters

_BETWEEN = "\0"                  # two values of the directory, of which each is a script
_USUAL = Settings()

T = TypeVar("T")


class Refusal(Enum):
    """Why a change of scripts is not made, by the response codes of RFC 5804 §1.3."""

    NONEXISTENT = "there is no script of that name"
    ALREADYEXISTS = "a script of that name is there already"
    ACTIVE = "the active script cannot be deleted"
    QUOTA_MAXSCRIPTS = "there are as many scripts as may be"
    QUOTA_MAXSIZE = "the script is too large"
    BAD_NAME = f"a script has a name of 1 to {LONGEST} octets, without control characters"


class ScriptRefused(Exception):
    """A change of scripts that is not made."""

    def __init__(self, refusal: Refusal, most: int | None = None) -> None:
        self.refusal = refusal
        super().__init__(refusal.value + ("" if most is None else f": {most} at most"))


@frozen
class UserScript:
    """A script; its text is UTF-8."""

    number: int
    name: str
    text: bytes
    active: bool = False

    def of(self, user: str) -> str:
        """How the log names it."""
        whose = "the directory's script" if self.number == OF_DIRECTORY else f"the script {self.name}"
        return f"{whose} of {user}"

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


def check(text: bytes, settings: Settings = _USUAL) -> Tree:
    """The compiled script. Raises ScriptProblem, ScriptRefused."""
    if len(text) > min(DEFAULT.script, settings.script_size):
        raise ScriptRefused(Refusal.QUOTA_MAXSIZE, min(DEFAULT.script, settings.script_size))
    try:
        script = text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ScriptProblem(Place(line, 1), "a script is text in UTF-8") from None
    return compile_script(script, SIEVE)


def compiled(script: UserScript) -> Tree:
    """What runs of a stored script; of the directory's, which may be several, one after the other. Raises
    ScriptProblem."""
    if script.number != OF_DIRECTORY:
        return check(script.text)
    trees = [check(text) for text in script.text.split(_BETWEEN.encode())]
    needs = frozenset().union(*(tree.needs for tree in trees))
    return Tree(tuple([node for tree in trees for node in tree.nodes]), needs, all([tree.alike for tree in trees]))


def of_user(mailboxes: MailboxNames, user: str) -> list[UserScript]:
    """All scripts of a user, by name."""
    entry = mailboxes.find(MailboxName(user, INBOX))
    return [] if entry is None else sorted(_all(mailboxes, entry).values(), key=lambda one: one.name)


def active(mailboxes: MailboxNames, inbox: MailboxEntry, *, own: bool = True) -> tuple[int, bytes] | None:
    """What runs for the user whose INBOX that is, as it is stored, with its number: the active script, which may be the
    directory's; without `own` the directory's alone."""
    number = mailboxes.annotations.get(inbox.id, ACTIVE) if own else b"%d" % OF_DIRECTORY
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


def require_room(mailboxes: MailboxNames, user: str, name: str, octets: int, settings: Settings = _USUAL) -> None:
    """Whether a script of that size could be put (HAVESPACE, RFC 5804 §2.5). Raises ScriptRefused."""
    check_name(name)
    scripts = of_user(mailboxes, user)
    if octets > settings.script_size:
        raise ScriptRefused(Refusal.QUOTA_MAXSIZE, settings.script_size)
    if len(scripts) >= settings.scripts and all(one.name != name for one in scripts):
        raise ScriptRefused(Refusal.QUOTA_MAXSCRIPTS, settings.scripts)


def put(store: Store, account: Account, name: str, text: bytes, settings: Settings = _USUAL) -> None:
    """Keep a script, in the place of one of that name (PUTSCRIPT). Raises ScriptProblem, ScriptRefused, StoreError."""
    check_name(name)
    check(text, settings)
    firstuse.inbox(store, account)

    def work(scripts: "_Scripts") -> None:
        old = scripts.named.get(name)
        if old is None and len(scripts.named) >= settings.scripts:
            raise ScriptRefused(Refusal.QUOTA_MAXSCRIPTS, settings.scripts)
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
    """SETACTIVE; "" makes none of the user's active: then the directory's runs, if there is one. Raises ScriptRefused,
    StoreError."""
    _change(store, user, lambda scripts: scripts.activate(scripts.get(name) if name else None))


def take_over(store: Store, user: str, texts: Sequence[str]) -> None:
    """Have what the directory has for the user be what runs while no script of the user's is active; none of it is
    looked at. Nothing for a user without an INBOX. Raises ScriptRefused, StoreError."""
    inbox, text = store.mailboxes.find(MailboxName(user, INBOX)), _BETWEEN.join(texts).encode("utf-8", "replace")
    wanted = UserScript(OF_DIRECTORY, "", text).to_bytes() if texts else None
    if inbox is not None and store.mailboxes.annotations.get(inbox.id, f"{SCRIPTS}{OF_DIRECTORY}") != wanted:
        _change(store, user, lambda scripts: scripts.take_over(wanted))


def of_directory(mailboxes: MailboxNames, user: str) -> UserScript | None:
    """What the directory has for the user, as far as it was asked; its name is ""."""
    inbox = mailboxes.find(MailboxName(user, INBOX))
    stored = None if inbox is None else active(mailboxes, inbox, own=False)
    return None if inbox is None or stored is None else UserScript.from_bytes(*stored, active=stored == active(
        mailboxes, inbox))


def _all(mailboxes: MailboxNames, inbox: MailboxEntry, txn: Txn = None) -> dict[str, UserScript]:
    found, number = [], mailboxes.annotations.get(inbox.id, ACTIVE, txn=txn)
    for name, user, value in mailboxes.annotations.of(inbox.id, txn, SCRIPTS):
        if not user and name not in (ACTIVE, f"{SCRIPTS}{OF_DIRECTORY}"):
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
        number = None if script is None else script.number
        if number is None and self._annotations.get(self._inbox.id, f"{SCRIPTS}{OF_DIRECTORY}", txn=self._txn):
            number = OF_DIRECTORY
        self._annotations.set(self._inbox.id, ACTIVE, None if number is None else b"%d" % number, self._txn)

    def take_over(self, stored: bytes | None) -> None:
        self._annotations.set(self._inbox.id, f"{SCRIPTS}{OF_DIRECTORY}", stored, self._txn)
        if not any(one.active for one in self.named.values()):
            self.activate(None)


@problems()
def _change(store: Store, user: str, work: Callable[[_Scripts], T]) -> T:
    """Do that in a transaction, and have it on disk."""
    def within(txn: Txn) -> tuple[T, MailboxEntry]:
        entry = store.mailboxes.find(MailboxName(user, INBOX), txn)
        if entry is None:
            raise ScriptRefused(Refusal.NONEXISTENT)
        store.mailboxes.guard(user, txn)
        store.directory.require_settled(user, txn)
        return work(_Scripts(store, entry, txn)), entry

    try:
        done, entry = transact(store.mailboxes.env, within)
    except ValueError as problem:
        raise StoreError(Problem.LIMIT, str(problem)) from problem
    store.mailboxes.env.flush()
    after_commit(store.mailboxes.noticed, entry)
    return done
