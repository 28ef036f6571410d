"""What each command notes in the audit trail (`store/audit`): before it begins, and when it ends otherwise than well.

Which commands that are, and of what kind, is in the registry. Passwords are in no argument; what looks like one is left
out all the same.
"""

import os
import pwd
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from store.audit.trail import Trail

HIDDEN = "***"
#: In the environment of a command that came by HTTP: "http" (the API) or "console", the token's id or the account, the
#: role and its scope.
ASKER = "_ONECOPY_ASKER"
_ASKERS = {"http": "token", "console": "account"}
_WORD = r"(?:passw(?:or)?d|passphrase|secret|token|credential|(?:api|access|account|private)[-_.]?key)s?"
_SECRET = re.compile(rf"{_WORD}$", re.IGNORECASE)
_VALUE = re.compile(rf"([^\s=&?;,]*{_WORD}(?:\.[\w.-]+|[-_.]?keys?)?)=[^\s&;]*", re.IGNORECASE)      # NAME=VALUE
_LOGIN = re.compile(r"(?<=://)[^\s:]*:\S*(?=@)")      # user:password of a URL, with whatever is in the password
_LONGEST = 400              # characters of what a line says of who asked
_runs = ContextVar("who runs the commands", default="")
_NOBODY = 0xFFFFFFFF        # the login of a process that has none


def note(root: Path, kinds: Sequence[str], kind: str, command: str, actor: str, arguments: Iterable[str],
         **result: str) -> None:
    """Note the command that an actor runs, if it is of one of these kinds; nothing where there is no store of ours: who
    may not write there does not get anything done either."""
    if os.path.isdir(root / "mboxlist") and root.stat().st_uid == os.geteuid():
        said = {name: without_secrets(text) for name, text in result.items()}       # an error may repeat an argument
        Trail(root, kinds).write(kind, command, **who(actor), arguments=list(arguments), **said)


def running() -> str:
    """Who runs this process; asked before it acts as the owner of the store."""
    return _runs.get() or _name(os.getuid())


@contextmanager
def running_as(name: str) -> Iterator[None]:
    """Who ran this process before it became the owner of the store is who runs the commands of the block."""
    before = _runs.set(name)
    try:
        yield
    finally:
        _runs.reset(before)


def who(actor: str) -> dict[str, Any]:
    """What each line says of the one who runs a command. Who asked for it by HTTP is named besides, never instead:
    whoever types a name into the environment is still there as `actor` and `login`."""
    service, _, asker = os.environ.get(ASKER, "").partition(" ")
    asked = {_ASKERS[service]: asker[:_LONGEST]} if service in _ASKERS else {}
    return {"actor": actor, "login": _login(), "service": service if asked else "command", **asked}


def _login() -> str | None:
    """Who has logged in to the host, and became another user since then."""
    with suppress(OSError, ValueError):
        with privatefiles.open_named(Path("/proc/self/loginuid")) as file:
            number = int(file.read())
        if number != _NOBODY:
            return _name(number)
    return os.environ.get("SUDO_USER")


def _name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def hidden(words: Sequence[str], options: Any) -> Iterator[str]:
    """The words, with HIDDEN in the place of what may be a password. `options`: argparse's, by name."""
    secret = False
    for word in words:
        if secret:
            yield HIDDEN
            secret = False
            continue
        name, equals, _ = word.partition("=")
        if _SECRET.search(name):
            takes = name.startswith("--") and (name not in options or options[name].nargs != 0)
            secret = takes and not equals
            word = f"{name}={HIDDEN}" if equals else word
        yield without_secrets(word)


def without_secrets(text: str) -> str:
    """With HIDDEN in the place of values of what is named as a password is, and of the login in a URL."""
    return _LOGIN.sub(f"{HIDDEN}:{HIDDEN}", _VALUE.sub(rf"\1={HIDDEN}", text))
