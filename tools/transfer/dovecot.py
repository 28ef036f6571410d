"""A Dovecot on this machine, which speaks IMAP as any user through `doveadm exec imap`."""

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tools.transfer.mailofothers import program_user

TIMEOUT_SECONDS = 60


def imap_program(doveadm: str, config: Path | None, user: str) -> Sequence[str]:
    """The words that start it. It is given the plug-ins of Dovecot's IMAP server: by itself it has those that doveadm
    has, so it could not tell who else may do what (imap_acl)."""
    chosen = ("-c", str(config)) if config else ()
    plugins = _plugins(doveadm, chosen)
    return [doveadm, *chosen, "exec", "imap", "-u", user, *(["-o", f"mail_plugins={plugins}"] if plugins else [])]


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
