"""What proxies must know that ask who may log in: one line in a file that only the store's owner can read."""

import os
import secrets
from pathlib import Path

from mboxlist import privatefiles
from tools.exits import Failure

NAME = "front-secret"       # in the store's root, where front.secret_file names no other
_LONGEST = 1024             # octets


def secret(root: Path, named: Path | None) -> bytes:
    """The secret, which the first start makes unless a file is named. Raises Failure."""
    path = named or root / NAME
    try:
        if named is None and not path.exists():
            _make(path)
        with privatefiles.open_named(path) if named else privatefiles.open_file(path) as file:
            found = file.readline(_LONGEST).strip()
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    if not found:
        raise Failure(f"{path}: its first line is empty")
    return found


def _make(path: Path) -> None:
    """Whole or not at all; of several processes that do so the first has made it."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with privatefiles.open_file(new, "wb") as file:
            file.write(secrets.token_urlsafe(32).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        new.unlink(missing_ok=True)
