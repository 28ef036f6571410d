"""What each command notes in the audit trail (`store/audit`): before it begins, and when it ends otherwise than well.

Which commands that are, and of what kind, is in the registry. Passwords are in no argument; what looks like one is left
out all the same.
"""

import os
import pwd
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from store.audit.settings import Settings
from store.audit.trail import Trail
from tools.cli.invocation import AGAIN, Invocation
from tools.cli.registry import Registered

HIDDEN = "***"
_SECRET = re.compile(r"(?:passw(?:or)?d|passphrase|secret|token|credential|api-?key)s?$", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")      # user:password of a URL
_NOBODY = 0xFFFFFFFF        # the login of a process that has none


def notes(invocation: Invocation, command: Registered) -> bool:
    """Whether what was typed is noted."""
    return bool(command.audit) and (not command.audit_if or any(
        getattr(invocation.arguments, name, None) not in (None, False, "", []) for name in command.audit_if))


def note(invocation: Invocation, command: Registered, actor: str, **result: Any) -> None:
    """Note it; nothing where there is no store. Raises Failure."""
    root = invocation.config.root
    if not (root / "mboxlist").is_dir():
        return
    kinds = invocation.config.settings("audit", Settings).kinds
    Trail(root, kinds).write(command.audit, command.name, actor=actor, login=_login(), service="command",
                             arguments=list(arguments(invocation)), **result)


def actor() -> str:
    """Who runs this process; asked before it acts as the owner of the store."""
    return "the server" if os.environ.get(AGAIN) else _name(os.getuid())


def who(actor_name: str) -> dict[str, Any]:
    """The same for a command that notes by itself what it does."""
    return {"actor": actor_name, "login": _login(), "service": "command"}


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


def arguments(invocation: Invocation) -> Iterator[str]:
    """What was typed behind the command's name, without what may be a password."""
    program = invocation.arguments.program.split()[1:]
    words = list(invocation.words)
    for word in program:
        words.remove(word)
    return hidden(words, invocation.arguments.parser._option_string_actions)


def hidden(words: Sequence[str], options: Any) -> Iterator[str]:
    """The words, with HIDDEN in the place of what may be a password. `options`: argparse's, by name."""
    secret = False
    for word in words:
        if secret:
            yield HIDDEN
            secret = False
            continue
        name, equals, value = word.partition("=")
        if _SECRET.search(name):
            takes = name.startswith("--") and (name not in options or options[name].nargs != 0)
            secret = takes and not equals
            word = f"{name}={HIDDEN}" if equals else word
        elif equals and _SECRET.search(value.partition("=")[0]) and "=" in value:      # --spark=KEY=VALUE
            word = f"{name}={value.partition('=')[0]}={HIDDEN}"
        yield _LOGIN.sub(f"{HIDDEN}:{HIDDEN}", word)
