"""Asks the processes of a running server, for the commands."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from store.net import controlchannel
from store.net.controlchannel import Unanswered
from store.partition import processes
from tools.exits import Failure, no_server


def ask_all(root: Path, do: str, **words: Any) -> dict[str, Any]:
    """What each process of the server answers, by its name; none if no server runs. One that does not answer is named
    on standard error. Raises Failure when one may not ask."""
    return dict(_answers(root, do, **words))


def ask_pages(root: Path, do: str) -> Iterator[dict[str, Any]]:
    """The rows that all processes tell, page by page. Raises Failure."""
    for name, page in _answers(root, do):
        while True:
            yield from page["rows"]
            if page["next"] is None:
                break
            try:
                page = controlchannel.ask(root / "run", name, do, after=page["next"]) or {"rows": [], "next": None}
            except Unanswered as error:
                print(f"onecopy: {error}", file=sys.stderr)
                break


def ask_one(root: Path, name: str, do: str, **words: Any) -> Any:
    """What that process answers; None when it does not. Raises Failure."""
    try:
        return controlchannel.ask(root / "run", name, do, **words)
    except Unanswered as error:
        print(f"onecopy: {error}", file=sys.stderr)
        return None
    except PermissionError:
        raise _forbidden(root) from None


def is_up(root: Path) -> bool:
    """Whether a server runs on the store."""
    try:
        return bool(processes.server(root / "run" / "server.pid"))
    except PermissionError:
        raise _forbidden(root) from None


def require_server(root: Path) -> None:
    """Raises Failure when no server runs on the store."""
    if not is_up(root):
        raise no_server(root)


def _answers(root: Path, do: str, **words: Any) -> Iterator[tuple[str, Any]]:
    try:
        names = controlchannel.names(root / "run")
    except PermissionError:
        raise _forbidden(root) from None
    for name in names:
        answer = ask_one(root, name, do, **words)
        if answer is not None:
            yield name, answer


def _forbidden(root: Path) -> Failure:
    return Failure(f"{root}: only root and the user that the server runs as may ask it", 1)
