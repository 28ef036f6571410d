"""A Dovecot on this machine, which speaks IMAP as any user through `doveadm exec imap`, and gives Sieve scripts to
`doveadm sieve`."""

import json
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tools.transfer.mailofothers import program_user
from tools.transfer.sourcevalues import OldScript, Unreadable

TIMEOUT_SECONDS = 60
NO_SUCH_COMMAND = 64        # EX_USAGE: a Dovecot without Sieve


def imap_program(doveadm: str, config: Path | None, user: str) -> Sequence[str]:
    """The words that start it. It is given the plug-ins of Dovecot's IMAP server: by itself it has those that doveadm
    has, so it could not tell who else may do what (imap_acl). It is to tell annotations, too, if Dovecot keeps any."""
    chosen = ("-c", str(config)) if config else ()
    plugins = _plugins(doveadm, chosen)
    settings = ["imap_metadata=yes", *([f"mail_plugins={plugins}"] if plugins else [])]
    return [doveadm, *chosen, "exec", "imap", "-u", user, *(word for each in settings for word in ("-o", each))]


@cache
def _plugins(doveadm: str, chosen: tuple[str, ...]) -> str:
    """Those that `protocol imap` has; none where doveconf does not say it."""
    user, doveconf = program_user(), os.path.join(os.path.dirname(doveadm), "doveconf")
    try:
        said = subprocess.run([doveconf, *chosen, "-h", "-f", "protocol=imap", "mail_plugins"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, user=user,
                              group=user, check=True, timeout=TIMEOUT_SECONDS).stdout
        return said.decode("utf-8", "replace").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def scripts(doveadm: str, config: Path | None, user: str) -> Sequence[OldScript]:
    """The user's Sieve scripts; none where Dovecot has no Sieve. Raises Unreadable."""
    command = [doveadm, *(("-c", str(config)) if config else ()), "-f", "json", "sieve"]
    try:
        listed = _said([*command, "list", "-u", user], NO_SUCH_COMMAND)
    except Unreadable as problem:
        raise Unreadable(f"Sieve scripts: {problem}") from problem
    return [_script([*command, "get", "-u", user, "--"], row.get("script", ""), active=row.get("active") == "ACTIVE")
            for row in listed]


def _script(command: Sequence[str], name: str, *, active: bool) -> OldScript:
    """The script that `command` prints, which lacks its name: one that begins with a hyphen is no option."""
    try:
        text, = [value for row in _said([*command, name]) for value in row.values()]
        return OldScript(name, text.encode(), active)
    except Unreadable as problem:
        return OldScript(name, b"", active, str(problem))
    except ValueError as error:
        return OldScript(name, b"", active, f"doveadm: {error}")


def _said(command: Sequence[str], nothing: int = 0) -> list[dict[str, str]]:
    """The rows that doveadm prints; none where it ends with the status `nothing`. Raises Unreadable."""
    user = program_user()
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, user=user, group=user,
                              check=False, timeout=TIMEOUT_SECONDS)
        if done.returncode and done.returncode == nothing:
            return []
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Unreadable(f"doveadm has failed with status {done.returncode}: {why}")
        rows: list[dict[str, str]] = json.loads(done.stdout)
        return [{name: str(value) for name, value in row.items()} for row in rows]
    except (OSError, subprocess.SubprocessError, ValueError, AttributeError, TypeError) as error:
        raise Unreadable(f"doveadm: {error}") from error
