"""The program `onecopy`: finds the command, reads the configuration, and turns failures into one line and a status."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import mboxlist.kv
from store.errors import StoreError
from tools import config, opening
from tools.commands import (
    Command,
    Invocation,
    accounting,
    backup,
    checking,
    configuration,
    connections,
    directories,
    expire,
    explaining,
    exporting,
    generate,
    importing,
    mailboxes,
    manuals,
    messages,
    moving,
    partitions,
    purge,
    purging,
    quotas,
    reconstruct,
    recovering,
    relink,
    report,
    serving,
    sharing,
    snapshot,
    spark,
    stats,
    uidls,
    undelete,
    users,
)
from tools.errors import Failure
from tools.tree import Node, explain, read

GROUPS = (serving, users, purging, directories, mailboxes, sharing, messages, undelete, purge, uidls, partitions,
          moving, quotas, accounting, expire, report, checking, snapshot, recovering, reconstruct, relink, backup,
          exporting, importing, spark, generate, configuration, connections, stats, explaining, manuals)

_USUAL = {"expire": "run"}  # in groups of commands: the one that is meant when none is named

_OPTION = "option:"         # begins the name under which argparse keeps an option of the configuration


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"onecopy: {message} (see {self.prog} --help)\n")


class _Tree:
    """The parsers of all commands: `user` and `add` below it. Only those that are among the words have the options of
    the configuration: there are a hundred of them."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = frozenset(words)
        self.parsers: list[argparse.ArgumentParser] = []
        self.top = _Parser("onecopy", description="A single-copy mail message store.", allow_abbrev=False)
        self.top.add_argument("--version", action="version", version=f"onecopy {version('onecopy')}")
        self._shown, self._hidden = _options(shown=True), _options(shown=False)
        self._below = {"": self.top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)}

    def __call__(self, name: str, command: Command, help: str, *, settings: bool = False) -> argparse.ArgumentParser:
        group, _, own = name.rpartition(" ")
        if group not in self._below:
            made = self._below[""].add_parser(group, help=f"{group}: see onecopy {group} --help", allow_abbrev=False)
            self._below[group] = made.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
        parser: argparse.ArgumentParser = self._below[group].add_parser(
            own, help=help, description=help, allow_abbrev=False,
            parents=[self._shown if settings else self._hidden] if own in self._words else [])
        parser.set_defaults(command=command, program=parser.prog)
        self.parsers.append(parser)
        return parser


def _options(*, shown: bool) -> _Parser:
    """A parent parser with every option of the configuration; only --root and --config are always in the help."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    group = parser.add_argument_group("configuration", f"also in {config.FILE_NAME} and in the environment")
    group.add_argument("--config", type=Path, metavar="FILE",
                       help=f"default: ./{config.FILE_NAME}, or {config.DEFAULT_FILE}")
    for option in config.table().values():
        show = shown or option is config.ROOT
        default = option.show(option.default)
        text = f"{option.help} ({default})" if default else option.help
        group.add_argument(option.flag, dest=_OPTION + option.name, metavar="VALUE", default=argparse.SUPPRESS,
                           help=text.replace("%", "%%") if show else argparse.SUPPRESS)
    return parser


def parse(words: Sequence[str], defaults: Mapping[str, str] | None = None) -> Invocation:
    """From what was typed. Raises Failure, SystemExit (argparse has said why).

    `defaults`: by option, stand in the place of the built-in ones.
    """
    if words and words[0] in _USUAL and not {*words[1:2]} & {*expire.NAMES, "-h", "--help"}:
        words = [words[0], _USUAL[words[0]], *words[1:]]
    arguments = _grown(words).top.parse_args(words)
    return Invocation(arguments, config.load(given(arguments), os.environ, arguments.config, defaults or {}))


def _grown(words: Sequence[str]) -> _Tree:
    made = _Tree(words)
    for group in GROUPS:
        group.add(made)
    for parser in made.parsers:
        explain(parser)
    return made


def tree() -> Node:
    """All commands, without the options of the configuration."""
    return read(_grown(()).top)


def given(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the configuration that were typed."""
    return {name.removeprefix(_OPTION): value for name, value in vars(arguments).items() if name.startswith(_OPTION)}


def run(invocation: Invocation) -> int:
    """Do what was typed; the exit status."""
    command: Command = invocation.arguments.command
    return command(invocation)


def guarded(work: Callable[[], int]) -> int:
    """The exit status of `work`; what goes wrong in it is said in one line."""
    try:
        status = work()
        sys.stdout.flush()
        return status
    except SystemExit as end:
        return int(end.code or 0)
    except Failure as failure:
        return _complain(str(failure), failure.status)
    except StoreError as error:
        return _complain(str(error), opening.status(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)        # nobody reads the rest, and nobody minds
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)        # end as any program does, so that a shell sees it
        os.kill(os.getpid(), signal.SIGINT)
        return 128 + signal.SIGINT
    except (OSError, mboxlist.kv.Failure) as error:
        return _complain(str(error), 1)


def _complain(text: str, status: int) -> int:
    print("onecopy:", text.replace("\n", " "), file=sys.stderr)
    return status


def main(words: Sequence[str] | None = None) -> int:
    """The program."""
    return guarded(lambda: run(parse(sys.argv[1:] if words is None else words)))


if __name__ == "__main__":
    sys.exit(main())
