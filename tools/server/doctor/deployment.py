"""A deployment as a whole: what is wrong with it, and what to do about it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from tools.cli.options import Config
from tools.exits import Failure
from tools.server import configcheck
from tools.server.doctor import agelooks, hostlooks, namelooks, postfixlooks
from tools.server.doctor.advice import Advice


@frozen
class Wanted:
    """What to look at: the names by which mail programs reach the server, and the folder of Postfix's configuration
    (None: that of the Postfix which is installed, if there is one)."""

    names: Sequence[str] = ()
    postfix: Path | None = None


def look_over(config: Config, wanted: Wanted) -> Iterator[Advice]:
    """All that is found. Other hosts are asked. Raises Failure where there is no store."""
    if not config.root.is_dir():
        raise Failure(f"There is no store in {config.root}; `onecopy init` makes one")
    for found in configcheck.examine(config, online=True):
        yield Advice(found.option, found.serious, found.text, "")
    yield from hostlooks.look(config)
    yield from namelooks.look(config, wanted.names)
    yield from postfixlooks.look(config, wanted.postfix)
    yield from agelooks.look(config)
